"""Labels as flat arrays, the input of the label model, and sums over them.

Indices: i item, r annotator, y label, k class. A *pair* is an item and a class that it may have. A *message* is a label
and a pair of its item. With few classes, an item has a pair for every class. With many, it has pairs only for the
classes that somebody named for it, and tables over annotators and classes are sums by key
(`crowdshot.model.parts.Keyed`).

All that crosses items is a sum over labels or pairs, so a million labels take a few passes over flat arrays. Functions
that take ``xp`` and ``total`` run on NumPy and on torch: ``xp`` is the library, ``total(values, index, n)`` its sum by
index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdshot.model.parts import Keyed, Sizes

Array = Any  # of NumPy or of torch
Positions = NDArray[np.int64]
Floats = NDArray[np.float64]
Total = Callable[[Array, Array, Any], Array]


@dataclass(frozen=True)
class Problem:
    """The labels of a crowd, or of G crowds with equally many classes (to train on many at once)."""

    weight: Array  # (L,) ones, in the precision of all computations
    item: Array  # (L,)
    annotator: Array  # (L,)
    label: Array  # (L,)
    pair_item: Array  # (P,) sorted: the pairs of an item are consecutive
    pair_class: Array  # (P,)
    message_label: Array  # (M,) message m belongs to label message_label[m]
    message_pair: Array  # (M,) and to pair message_pair[m]
    label_pair: Array  # (L,) the pair of the label's item and class
    cell: Array  # (M,) index of annotator, label and class
    row: Array  # (M,) index of annotator and class
    shared: Array  # (M,) index of crowd, label and class
    n_cells: int | None  # None if a table would be too large
    n_rows: int | None
    n_shared: int | None
    n_items: int
    n_annotators: int
    n_classes: int
    crowd_of_item: Array  # (N,)
    crowd_of_annotator: Array  # (R,)
    crowd_of_class: Array  # (G·K,)
    n_crowds: int = 1
    known: Array | None = None  # (P,) 1 and 0 for items whose class is known, NaN elsewhere
    right: Array | None = None  # (R,) earlier labels known to be right
    wrong: Array | None = None  # (R,) earlier labels known to be wrong
    ordered: Array | None = None  # (G,) 1 where classes are ordered, so that near classes are confused more often

    @property
    def size_of_pair(self) -> Array:
        """(P,) index of crowd and class."""
        return self.crowd_of_item[self.pair_item] * self.n_classes + self.pair_class


def problem_of(
    item: Positions,
    annotator: Positions,
    label: Positions,
    n_items: int,
    n_annotators: int,
    n_classes: int,
    *,
    known: Array | None = None,
    named_only: bool | None = None,
    right: Array | None = None,
    wrong: Array | None = None,
    ordered: bool = False,
) -> Problem:
    """Return the labels of one crowd as a `Problem`.

    Parameters
    ----------
    item, annotator, label : (L,) int arrays
        The labels.
    n_items, n_annotators, n_classes : int
        N, R and K.
    known : (N,) int array, optional
        The class of items whose class is known, -1 elsewhere.
    named_only : bool, optional
        Whether items have pairs only for named classes; by default where tables would be too large (`Sizes.sparse`).
    right, wrong : (R,) arrays, optional
        Earlier labels of each annotator that are known to be right and wrong.
    ordered : bool
        Classes are numbered in order.
    """
    K, R = n_classes, n_annotators
    sparse = Sizes(n_items, R, K).sparse if named_only is None else named_only
    gold = np.full(n_items, -1) if known is None else known
    pair_item, pair_class, message_label, message_pair, label_pair = (
        _named_pairs(item, label, gold, n_items, K) if sparse else _all_pairs(item, label, n_items, K)
    )
    true, observed = pair_class[message_pair], label[message_label]
    of_annotator = annotator[message_label]
    keys = (of_annotator * K + observed) * K + true, of_annotator * K + true, observed * K + true
    fixed = None
    if known is not None and (gold >= 0).any():
        fixed = np.where(gold[pair_item] < 0, np.nan, gold[pair_item] == pair_class)
    return Problem(
        np.ones(len(item)),
        item,
        annotator,
        label,
        pair_item,
        pair_class,
        message_label,
        message_pair,
        label_pair,
        *keys,
        None if sparse else R * K * K,
        None if sparse else R * K,
        None if sparse else K * K,
        n_items,
        R,
        K,
        np.zeros(n_items, dtype=np.int64),
        np.zeros(R, dtype=np.int64),
        np.zeros(K, dtype=np.int64),
        1,
        fixed,
        right,
        wrong,
        np.ones(1) if ordered and K > 2 else None,
    )


def _all_pairs(item: Positions, label: Positions, n_items: int, K: int) -> tuple[Positions, ...]:
    """Return pair_item, pair_class, message_label, message_pair and label_pair, where every item has all classes."""
    pair_item, pair_class = np.repeat(np.arange(n_items), K), np.tile(np.arange(K), n_items)
    message_label = np.repeat(np.arange(len(item)), K)
    return pair_item, pair_class, message_label, (item[:, None] * K + np.arange(K)).ravel(), item * K + label


def _named_pairs(item: Positions, label: Positions, gold: Positions, n_items: int, K: int) -> tuple[Positions, ...]:
    """Return the same, where an item has the classes named for it, and its known class."""
    L, with_gold = len(item), np.flatnonzero(gold >= 0)
    named = np.concatenate([item * K + label, with_gold * K + gold[with_gold]])
    pairs, pair_of = np.unique(named, return_inverse=True)
    pair_item, pair_class = pairs // K, pairs % K
    per_item = np.bincount(pair_item, minlength=n_items)
    first = np.cumsum(per_item) - per_item
    message_label = np.repeat(np.arange(L), per_item[item])
    within = np.arange(len(message_label)) - np.repeat(np.cumsum(per_item[item]) - per_item[item], per_item[item])
    return pair_item, pair_class, message_label, first[item][message_label] + within, pair_of[:L]


def total(values: Floats, index: Positions, n: int | None) -> Any:
    """Return the sum of the values at each index: (n,), or a `Keyed` sum if n is None."""
    if n is None:
        return Keyed.total(values, index)
    return np.asarray(np.bincount(index, values, n), dtype=np.float64)


def posterior_of(problem: Problem, score: Floats) -> Floats:
    """Return p(class | labels), (P,), from scores; known classes have probability 1."""
    posterior: Floats = hold_known(np, problem, softmax(np, total, problem, score))
    return posterior


def hold_known(xp: Any, problem: Problem, posterior: Array) -> Array:
    """Set the posterior of items whose class is known to 1 and 0."""
    if problem.known is None:
        return posterior
    return xp.where(xp.isnan(problem.known), posterior, problem.known)


def softmax(xp: Any, total: Total, problem: Problem, score: Array) -> Array:
    """Return the softmax over the classes of each item. Scores are centred, so clipping them avoids overflow."""
    weight = xp.exp(score.clip(-80, 80))
    return weight / total(weight, problem.pair_item, problem.n_items).clip(1e-30, None)[problem.pair_item]
