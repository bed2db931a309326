"""Labels as flat arrays, the input of the label model, and sums over them.

Indices: i item, r annotator, y label, k class. A *pair* is an item and a class that it may have. A *message* is a label
and a pair of its item. There are two forms:

- dense: an item may have every class. Arrays of pairs are (N, K), arrays of messages (L, K).
- named, for many classes: an item has pairs only for the classes that somebody named for it. Arrays of pairs are (P,),
  arrays of messages (M,), and tables over annotators and classes are sums by key (`crowdshot.model.parts.Keyed`).

The methods of `Problem` hide the difference. All that crosses items is a sum over labels or pairs. Functions that take
``xp`` and ``total`` run on NumPy and on torch: ``xp`` is the library, ``total(values, index, n)`` its sum by index.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crowdshot.model.parts import Keyed, Sizes

Array = Any  # of NumPy or of torch
Positions = NDArray[np.int64]
Floats = NDArray[np.float64]
Total = Callable[[Array, Array, Any], Array]

UNTHREADED = 250_000  # multiplications of a product for which OpenBLAS starts no threads


@dataclass(frozen=True)
class Named:
    """Pairs for the classes that somebody named, and their messages."""

    pair_item: Positions  # (P,) sorted: the pairs of an item are consecutive
    pair_class: Positions  # (P,)
    message_label: Positions  # (M,) message m belongs to label message_label[m]
    message_pair: Positions  # (M,) and to pair message_pair[m]
    cell: Positions  # (M,) index of annotator, label and class
    row: Positions  # (M,) index of annotator and class
    shared: Positions  # (M,) index of label and class


@dataclass(frozen=True)
class Problem:
    """The labels of a crowd, or of G crowds with equally many classes (to train on many at once)."""

    weight: Array  # (L,) ones, in the precision of all computations
    item: Array  # (L,)
    annotator: Array  # (L,)
    label: Array  # (L,)
    label_pair: Array  # (L,) the pair of the label's item and class
    n_items: int
    n_annotators: int
    n_classes: int
    crowd_of_item: Array  # (N,)
    crowd_of_annotator: Array  # (R,)
    crowd_of_class: Array  # (G·K,)
    n_crowds: int = 1
    named: Named | None = None  # None for the dense form; several crowds are always dense
    known: Array | None = None  # of pairs: 1 and 0 for items whose class is known, NaN elsewhere
    right: Array | None = None  # (R,) earlier labels known to be right
    wrong: Array | None = None  # (R,) earlier labels known to be wrong
    ordered: Array | None = None  # (G,) 1 where classes are ordered, so that near classes are confused more often

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of arrays of pairs."""
        return (self.n_items, self.n_classes) if self.named is None else (len(self.named.pair_item),)

    @property
    def classes(self) -> Array:
        """(K,) the numbers of the classes."""
        return (self.crowd_of_class[: self.n_classes] * 0 + 1).cumsum(0) - 1

    @property
    def one(self) -> Array:
        """1 as an array of the kind and precision of the problem."""
        return self.weight.sum() * 0 + 1

    def pairs(self) -> tuple[Positions, Positions]:
        """Return item and class of each pair, flat; on NumPy."""
        if self.named is not None:
            return self.named.pair_item, self.named.pair_class
        item, label = np.divmod(np.arange(self.n_items * self.n_classes), self.n_classes)
        return item, label

    # ---- values for pairs

    def of_item(self, values: Array) -> Array:
        """Repeat values of items (N,) for their pairs."""
        return values[:, None] if self.named is None else values[self.named.pair_item]

    def of_class(self, values: Array) -> Array:
        """Repeat values of crowds and classes (G·K,) for all pairs."""
        if self.named is not None:
            return values[self.named.pair_class]
        return values if self.n_crowds == 1 else values.reshape(-1, self.n_classes)[self.crowd_of_item]

    def sum_of_item(self, xp: Any, total: Total, values: Array) -> Array:
        """Sum values of pairs for each item, (N,)."""
        if self.named is None:
            return xp.einsum("nk->n", values)
        return total(values, self.named.pair_item, self.n_items)

    def sum_of_class(self, total: Total, values: Array) -> Array:
        """Sum values of pairs for each crowd and class, (G·K,)."""
        if self.named is None:
            return total(values, self.crowd_of_item, self.n_crowds).reshape(-1)
        return total(values, self.named.pair_class, self.n_classes)

    # ---- values for labels and messages

    def at_label(self, values: Array) -> Array:
        """Return the values (L,) of the pairs that labels name."""
        return values.reshape(-1)[self.label_pair]

    def sum_at_label(self, total: Total, values: Array) -> Array:
        """Sum values of labels (L,) for the pairs that they name."""
        shape = self.shape
        return total(values, self.label_pair, shape[0] * (shape[1] if self.named is None else 1)).reshape(shape)

    def of_label(self, values: Array) -> Array:
        """Repeat values of labels (L,) for their messages."""
        return values[:, None] if self.named is None else values[self.named.message_label]

    def of_pair(self, values: Array) -> Array:
        """Return the values of the pairs of all messages."""
        return rows_at(values, self.item) if self.named is None else values[self.named.message_pair]

    def sum_of_pair(self, total: Total, values: Array) -> Array:
        """Sum values of messages for each pair."""
        if self.named is None:
            return total(values, self.item, self.n_items)
        return total(values, self.named.message_pair, len(self.named.pair_item))

    def crowd_of_message(self, values: Array) -> Array:
        """Repeat values of crowds (G,) for messages; those of a single crowd broadcast."""
        return values if self.n_crowds == 1 else self.crowds_of(values)[:, None]

    def class_of_message(self, values: Array) -> Array:
        """Repeat values of crowds and classes (G·K,) for messages."""
        if self.named is not None:
            return values[self.named.pair_class[self.named.message_pair]]
        return values if self.n_crowds == 1 else self.of_class(values)[self.item]

    @property
    def names_class(self) -> Array:
        """Whether the label of each message is its class."""
        if self.named is None:
            return self.label[:, None] == self.classes
        return self.label[self.named.message_label] == self.named.pair_class[self.named.message_pair]

    @property
    def at_crowd_and_label(self) -> Array:
        """(L,) index of crowd and label."""
        return self.label if self.n_crowds == 1 else self.crowd_of_item[self.item] * self.n_classes + self.label

    def at_class(self, values: Array) -> Array:
        """Return the values (L,), of crowds and classes (G·K,), of the classes that labels name."""
        return values[self.at_crowd_and_label]

    def at_cell(self, counts: Array) -> Array:
        """Return the counts, by annotator, label and class, of all messages."""
        if self.named is not None:
            return counts[self.named.cell]
        return rows_at(counts.reshape(-1, self.n_classes), self.annotator * self.n_classes + self.label)

    def at_row(self, counts: Array) -> Array:
        """Return the counts, by annotator and class, of all messages."""
        if self.named is not None:
            return counts[self.named.row]
        return rows_at(counts.reshape(-1, self.n_classes), self.annotator)

    def crowds_of(self, values: Array) -> Array:
        """Repeat values of crowds (G,) for labels; those of a single crowd broadcast."""
        return values if self.n_crowds == 1 else values[self.crowd_of_item[self.item]]

    def item_crowds(self, values: Array) -> Array:
        """Repeat values of crowds (G, ...) for items; those of a single crowd broadcast."""
        return values if self.n_crowds == 1 else values[self.crowd_of_item]


def rows_at(table: Array, index: Array) -> Array:
    """Return the rows of a table at each index."""
    return table.take(index, axis=0) if isinstance(table, np.ndarray) else table[index]


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
    gold = np.full(n_items, -1) if known is None else np.asarray(known)
    named, label_pair = None, item * K + label
    if Sizes(n_items, R, K).sparse if named_only is None else named_only:
        named, label_pair = _named_pairs(item, annotator, label, gold, n_items, K)
    fixed = None
    if (gold >= 0).any():
        is_class = gold[:, None] == np.arange(K) if named is None else gold[named.pair_item] == named.pair_class
        fixed = np.where((gold[:, None] if named is None else gold[named.pair_item]) < 0, np.nan, is_class)
    return Problem(
        np.ones(len(item)),
        item,
        annotator,
        label,
        label_pair,
        n_items,
        R,
        K,
        np.zeros(n_items, dtype=np.int64),
        np.zeros(R, dtype=np.int64),
        np.zeros(K, dtype=np.int64),
        1,
        named,
        fixed,
        right,
        wrong,
        np.ones(1) if ordered and K > 2 else None,
    )


def _named_pairs(
    item: Positions, annotator: Positions, label: Positions, gold: Positions, n_items: int, K: int
) -> tuple[Named, Positions]:
    """Return the pairs of the classes named for each item, and of its known class; and the pair of each label."""
    L, with_gold = len(item), np.flatnonzero(gold >= 0)
    pairs, pair_of = np.unique(np.concatenate([item * K + label, with_gold * K + gold[with_gold]]), return_inverse=True)
    pair_item, pair_class = pairs // K, pairs % K
    per_item = np.bincount(pair_item, minlength=n_items)
    first = np.cumsum(per_item) - per_item
    message_label = np.repeat(np.arange(L), per_item[item])
    within = np.arange(len(message_label)) - np.repeat(np.cumsum(per_item[item]) - per_item[item], per_item[item])
    message_pair = first[item][message_label] + within
    true, observed, of_annotator = pair_class[message_pair], label[message_label], annotator[message_label]
    keys = (of_annotator * K + observed) * K + true, of_annotator * K + true, observed * K + true
    return Named(pair_item, pair_class, message_label, message_pair, *keys), pair_of[:L]


def total(values: Floats, index: Positions, n: int | None) -> Any:
    """Return the sum of the values, or rows of values, at each index: (n, ...), or a `Keyed` sum if n is None."""
    if n is None:
        return Keyed.total(values, index)
    if values.ndim == 2:
        rows = np.ones(len(index)), index, np.arange(len(index) + 1)
        return np.asarray(sparse.csc_array(rows, shape=(n, len(index))) @ values)
    return np.asarray(np.bincount(index, values, n), dtype=np.float64)


def posterior_of(problem: Problem, score: Floats) -> Floats:
    """Return p(class | labels), of the shape of the scores; known classes have probability 1."""
    scores = score.reshape(problem.shape)
    posterior: Floats = posterior_from(np, total, problem, scores).reshape(score.shape)
    return posterior


def posterior_from(xp: Any, total: Total, problem: Problem, score: Array) -> Array:
    """Return the softmax of scores (P,), with known classes held fixed."""
    return hold_known(xp, problem, softmax(xp, total, problem, score))


def hold_known(xp: Any, problem: Problem, posterior: Array) -> Array:
    """Set the posterior of items whose class is known to 1 and 0."""
    if problem.known is None:
        return posterior
    return xp.where(xp.isnan(problem.known), posterior, problem.known)


def softmax(xp: Any, total: Total, problem: Problem, score: Array) -> Array:
    """Return the softmax over the classes of each item. Scores are centred, so clipping them avoids overflow."""
    weight = xp.exp(score.clip(-80, 80))
    return weight / problem.of_item(problem.sum_of_item(xp, total, weight).clip(1e-30, None))


# ---- functions of arrays ----


def product(x: Array, weight: Array) -> Array:
    """Return x @ weight, (n, i) @ (i, j); in NumPy some rows at a time, so that BLAS starts no threads."""
    rows = max(1, UNTHREADED // weight.size) if isinstance(x, np.ndarray) else len(x)
    if len(x) <= rows:
        return x @ weight
    out = np.empty((len(x), weight.shape[1]))
    for start in range(0, len(x), rows):
        np.matmul(x[start : start + rows], weight, out=out[start : start + rows])
    return out


def logit(xp: Any, p: Array, edge: float = 0.01) -> Array:
    p = p.clip(edge, 1 - edge)
    return xp.log(p) - xp.log(1 - p)


def sigmoid(xp: Any, x: Array) -> Array:
    return 1 / (1 + xp.exp(-x))
