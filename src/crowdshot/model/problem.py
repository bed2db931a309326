"""Labels as flat arrays: what the inference (`crowdshot.model.label_model`) is asked, and sums over them.

Signs: i item, r annotator, y label, k class. A *pair* is an item and a class that it may have, a *message* what one
label says of one pair. Where classes are few every item has all of them, else those that somebody named for it. All
that crosses items is a sum over labels or pairs, so a million labels are a few passes over flat arrays.
Where classes are many, tables have no place for what never occurs: cells go by their number (`crowdshot.model.parts`).

``xp`` is NumPy or torch, and ``total(values, index, n)`` its sum by index: the body is one, to infer and to learn.
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
    """One crowd's labels, or those of G crowds with as many classes, side by side (to learn from many at once)."""

    weight: Array  # (L,) ones, of the kind to compute in
    item: Array  # (L,)
    annotator: Array  # (L,)
    label: Array  # (L,)
    pair_item: Array  # (P,) every item has its pairs one after the other
    pair_class: Array  # (P,)
    message_label: Array  # (M,) message m is what label message_label[m]
    message_pair: Array  # (M,) says of pair message_pair[m]
    label_pair: Array  # (L,) the pair that a label names
    cell: Array  # (M,) which annotator, label and class a message is about
    row: Array  # (M,) which annotator and class
    shared: Array  # (M,) which crowd, label and class
    n_cells: int | None  # None where they are too many for a table
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
    right: Array | None = None  # (R,) answers known to be right, from before
    wrong: Array | None = None  # (R,)
    ordered: Array | None = None  # (G,) 1 where classes are in order, so that a neighbour is the likelier mistake

    @property
    def size_of_pair(self) -> Array:
        """(P,) the crowd's class."""
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
    """One crowd's labels. ``known`` (N,): the class of items whose truth is known, -1 elsewhere.

    ``right``, ``wrong`` (R,): how often annotators were that before. ``ordered``: classes are numbered in order.
    """
    L, K = len(item), n_classes
    sparse = Sizes(n_items, n_annotators, K).sparse if named_only is None else named_only
    gold = np.full(n_items, -1) if known is None else known
    if sparse:
        told = np.flatnonzero(gold >= 0)
        pairs, named = np.unique(np.concatenate([item * K + label, told * K + gold[told]]), return_inverse=True)
        pair_item, pair_class = pairs // K, pairs % K
        per_item = np.bincount(pair_item, minlength=n_items)
        first = np.cumsum(per_item) - per_item
        message_label = np.repeat(np.arange(L), per_item[item])
        within = np.arange(len(message_label)) - np.repeat(np.cumsum(per_item[item]) - per_item[item], per_item[item])
        message_pair, label_pair = first[item][message_label] + within, named[:L]
    else:
        pair_item, pair_class = np.repeat(np.arange(n_items), K), np.tile(np.arange(K), n_items)
        message_label = np.repeat(np.arange(L), K)
        message_pair, label_pair = (item[:, None] * K + np.arange(K)).ravel(), item * K + label
    of, said = pair_class[message_pair], label[message_label]
    who = annotator[message_label]
    keys = (who * K + said) * K + of, who * K + of, said * K + of
    R = n_annotators
    fixed = None
    if known is not None and (gold >= 0).any():
        fixed = np.where(gold[pair_item] < 0, np.nan, gold[pair_item] == pair_class)
    return Problem(
        np.ones(L),
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
        n_annotators,
        K,
        np.zeros(n_items, dtype=np.int64),
        np.zeros(n_annotators, dtype=np.int64),
        np.zeros(K, dtype=np.int64),
        1,
        fixed,
        right,
        wrong,
        np.ones(1) if ordered and K > 2 else None,
    )


def total(values: Floats, index: Positions, n: int | None) -> Any:
    """(M,) -> (n,): the sum of the values that have each index, which may be any number where n is None."""
    if n is None:
        return Keyed.total(values, index)
    return np.asarray(np.bincount(index, values, n), dtype=np.float64)


def posterior_of(problem: Problem, score: Floats) -> Floats:
    """(P,) p(class | labels), those whose class is known held to it."""
    posterior: Floats = settle(np, problem, softmax(np, total, problem, score))
    return posterior


def settle(xp: Any, problem: Problem, posterior: Array) -> Array:
    """Items whose class is known are believed to be of it."""
    if problem.known is None:
        return posterior
    return xp.where(xp.isnan(problem.known), posterior, problem.known)


def softmax(xp: Any, total: Total, problem: Problem, score: Array) -> Array:
    """Over the classes of each item; scores come centred, so that nothing overflows."""
    weight = xp.exp(score.clip(-80, 80))
    return weight / total(weight, problem.pair_item, problem.n_items).clip(1e-30, None)[problem.pair_item]
