"""A crowd in parts, each with its own items and all labels of theirs; and what a way to believe them promises.

All that crosses items is a sum over them. So a part and what is known of the crowd go in, sums come out, and whether
the parts lie in memory, in files or on other machines is nobody's business but that of whoever adds up (`Ask`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
PosteriorMatrix: TypeAlias = (
    "Floats | sparse.csr_array"  # (N, K); sparse where an item has only the classes named for it
)
T = TypeVar("T")
Ask = Callable[..., Any]
"""ask(function, *given): function(part, *given) of every part, added up."""

MANY = 100  # classes, beyond which a table of items by classes is too wide to be read, and maybe to be held
MOST_CELLS = 30_000_000  # of a table, beyond which what nobody named is left out of it
LABELS = 2_000_000  # of a part in memory
LABELS_A_CELL = 8  # of annotators' tables at least, so that making and adding these up is little beside the rest


class Sizes(NamedTuple):
    """Of the whole crowd."""

    items: int
    annotators: int
    classes: int

    @property
    def sparse(self) -> bool:
        """Whether classes are so many that an item has only those that somebody named for it."""
        N, R, K = self
        return R * K * K > MOST_CELLS or (K > MANY and N * K > MOST_CELLS)


@dataclass(frozen=True, eq=False)
class Part:
    per_item: NDArray[Any]  # (N,) labels of each item
    annotator: NDArray[Any]  # (L,) those of an item one after the other
    label: NDArray[Any]  # (L,)
    known: NDArray[Any] | None = None  # (N,) the class of items whose truth is known, else -1
    kept: MutableMapping[str, Any] = field(default_factory=dict)  # what a way to believe keeps from step to step

    @property
    def n_items(self) -> int:
        return len(self.per_item)

    @cached_property
    def item(self) -> Positions:
        """(L,)"""
        return np.repeat(np.arange(self.n_items), self.per_item)

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """(N,) the items of which anything is known."""
        told = np.asarray(self.per_item) > 0
        return told if self.known is None else told | (np.asarray(self.known) >= 0)

    def pieces(self, most_labels: int) -> Iterator[tuple[slice, Part]]:
        """So many labels at a time, or an item's, and where their items stand."""
        ends = np.cumsum(self.per_item, dtype=np.int64)
        first = low = 0
        while first < self.n_items:
            last = max(first + 1, int(np.searchsorted(ends, low + most_labels, side="right")))
            high = int(ends[last - 1])
            items = slice(first, last)
            known = None if self.known is None else np.asarray(self.known[items], dtype=np.int64)
            yield items, Part(self.per_item[items], self.annotator[low:high], self.label[low:high], known)
            first, low = last, high


class Aggregator(Protocol):
    """From a crowd to posteriors. What is known of the crowd is a tuple of arrays, made anew in every step."""

    @property
    def sizes(self) -> Sizes: ...

    def begin(self, ask: Ask) -> Any: ...

    def is_done(self, state: Any) -> bool: ...

    def advance(self, ask: Ask, state: Any) -> Any: ...

    def believe(self, part: Part, state: Any) -> PosteriorMatrix:
        """(N, K) of a part's items, when all steps are done."""


def run(way: Aggregator, ask: Ask, state: Any = None, after: Callable[[Any], None] = lambda state: None) -> Any:
    """All steps, from the beginning or from a ``state``; ``after`` each, it is told the state."""
    if state is None:
        state = way.begin(ask)
        after(state)
    while not way.is_done(state):
        state = way.advance(ask, state)
        after(state)
    return state


def added(results: Iterable[T]) -> T:
    """Tuples of sums, added up in place."""
    return reduce(_add, results)


def _add(total: Any, more: Any) -> Any:
    if isinstance(total, tuple):
        return type(total)(*map(_add, total, more))
    if isinstance(total, np.ndarray) and not total.flags.writeable:  # as what comes from elsewhere may be
        return total + more
    total += more
    return total


def asked(parts: Iterable[Part]) -> Ask:
    """Of parts in memory, by this process."""
    return lambda function, *given: added(function(part, *given) for part in parts)


def parts_of(
    item: Positions, annotator: Positions, label: Positions, sizes: Sizes, known: Positions | None = None
) -> list[Part]:
    """Labels in any order -> parts in the order of the items; in each, labels stay in the order in which they came."""
    N, R, K = sizes
    small = np.int32 if max(N, R * K, len(item)) < 2**31 else np.int64
    cells = (item.astype(small), (annotator * K + label).astype(small))
    matrix = sparse.coo_array((np.ones(len(item), np.int8), cells), shape=(N, R * K))
    matrix.has_canonical_format = True  # no pair stands twice, so there is nothing to sort or to sum
    rows = matrix.tocsr()  # by counting, which is faster than sorting
    who, said = np.divmod(rows.indices, small(K))
    whole = Part(np.diff(rows.indptr), who, said, known)
    most = max(LABELS, 0 if sizes.sparse else LABELS_A_CELL * R * K)
    return [part for _, part in whole.pieces(most)]


# ---- keyed ------------------------------------------------------------
#
# Sums by a number that may be anything up to 2^63: for tables with far more cells than any crowd fills.

Keys = NDArray[np.int64]


class Keyed:
    """A sum for each key that occurs, 0 for all others. What is added waits until it is worth sorting."""

    def __init__(self, keys: Keys, values: Floats) -> None:
        self._keys, self._values = keys, values
        self._waiting: list[tuple[Keys, Floats]] = []

    @classmethod
    def total(cls, values: Floats, keys: Keys) -> Keyed:
        found, place = np.unique(keys, return_inverse=True)
        return cls(found, np.bincount(place, values, len(found)).astype(np.float64))

    def __iadd__(self, other: Keyed) -> Keyed:
        self._waiting += [(other._keys, other._values), *other._waiting]
        if sum(len(keys) for keys, _ in self._waiting) > len(self._keys):
            self._settle()
        return self

    def __getitem__(self, keys: Keys) -> Floats:
        self._settle()
        if len(self._keys) == 0:
            return np.zeros(len(keys))
        place = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        return np.where(self._keys[place] == keys, self._values[place], 0.0)

    def between(self, first: int, after: int) -> tuple[Keys, Floats]:
        """Keys from ``first`` on and below ``after``, less ``first``, and their sums."""
        self._settle()
        found = slice(*np.searchsorted(self._keys, (first, after)).tolist())
        return self._keys[found] - first, self._values[found]

    def items(self) -> tuple[Keys, Floats]:
        """Keys in order, and their sums."""
        self._settle()
        return self._keys, self._values

    def _settle(self) -> None:
        if self._waiting:
            own = self._keys, self._values
            keys, values = (np.concatenate(both) for both in zip(own, *self._waiting, strict=True))
            whole = Keyed.total(values, keys)
            self._keys, self._values, self._waiting = whole._keys, whole._values, []

    def __reduce__(self) -> Any:
        return Keyed, self.items()
