"""Crowds in parts, and the protocol of aggregation methods that process them part by part.

Each part has its own items, with all their labels. All that crosses items is a sum over items. An `Aggregator` asks
every part for such sums; an `Ask` evaluates them and adds the results. The aggregator does not need to know whether
parts lie in memory, in files or on other machines.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
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
S = TypeVar("S")
T = TypeVar("T")
Ask = Callable[..., Any]
"""ask(function, *arguments) returns the sum of function(part, *arguments) over all parts."""

MANY = 100  # classes; a table of items by more classes is too wide to read, and may not fit into memory
MOST_CELLS = 30_000_000  # of a dense table; larger tables hold only classes that somebody named
LABELS = 50_000  # least of a part in memory, so that starting threads costs little
LABELS_SPARSE = 2_000_000  # the same where classes are many, because adding sums by key is slower
LABELS_A_CELL = 8  # least labels of a part for each cell of annotators' tables, so that these cost little to add


class Sizes(NamedTuple):
    """The size of a whole crowd."""

    items: int
    annotators: int
    classes: int

    @property
    def sparse(self) -> bool:
        """Whether tables would be too large, so that an item has only the classes that somebody named for it."""
        N, R, K = self
        return R * K * K > MOST_CELLS or (K > MANY and N * K > MOST_CELLS)


@dataclass(frozen=True, eq=False)
class Part:
    """Some items of a crowd, with all their labels."""

    per_item: NDArray[Any]  # (N,) labels of each item
    annotator: NDArray[Any]  # (L,) labels are sorted by item
    label: NDArray[Any]  # (L,)
    known: NDArray[Any] | None = None  # (N,) the class of items whose truth is known, else -1
    kept: MutableMapping[str, Any] = field(default_factory=dict)  # what an aggregator keeps from step to step

    @property
    def n_items(self) -> int:
        return len(self.per_item)

    @cached_property
    def item(self) -> Positions:
        return np.repeat(np.arange(self.n_items), self.per_item)

    @cached_property
    def starts(self) -> Positions:
        """(N + 1,) where the labels of each item start, and the number of all labels."""
        return np.append(0, np.cumsum(self.per_item, dtype=np.int64))

    @cached_property
    def counted(self) -> NDArray[np.bool_]:
        """(N,) whether an item has labels or a known class."""
        labelled = np.asarray(self.per_item) > 0
        return labelled if self.known is None else labelled | (np.asarray(self.known) >= 0)

    def pieces(self, most_labels: int) -> Iterator[tuple[slice, Part]]:
        """Yield consecutive items with at most ``most_labels`` labels, or one item, as (slice of items, part)."""
        ends = self.starts[1:]
        first = low = 0
        while first < self.n_items:
            last = max(first + 1, int(np.searchsorted(ends, low + most_labels, side="right")))
            high = int(ends[last - 1])
            items = slice(first, last)
            known = None if self.known is None else np.asarray(self.known[items], dtype=np.int64)
            yield items, Part(self.per_item[items], self.annotator[low:high], self.label[low:high], known)
            first, low = last, high


class Aggregator(Protocol):
    """An aggregation method that processes a crowd part by part.

    The state is an immutable tuple of arrays that describes the whole crowd; every step makes a new one.
    """

    @property
    def sizes(self) -> Sizes: ...

    def begin(self, ask: Ask) -> Any: ...

    def is_done(self, state: Any) -> bool: ...

    def advance(self, ask: Ask, state: Any) -> Any: ...

    def believe(self, part: Part, state: Any) -> PosteriorMatrix:
        """Return the posteriors of a part's items, (N, K), after the last step."""


def run(aggregator: Aggregator, ask: Ask, state: Any = None, after: Callable[[Any], None] = lambda state: None) -> Any:
    """Run all steps, from the beginning or from a ``state``, and call ``after`` with each new state."""
    if state is None:
        state = aggregator.begin(ask)
        after(state)
    while not aggregator.is_done(state):
        state = aggregator.advance(ask, state)
        after(state)
    return state


def added(results: Iterable[T]) -> T:
    """Add tuples of sums, in place."""
    return reduce(_add, results)


def _add(total: Any, more: Any) -> Any:
    if isinstance(total, tuple):
        return type(total)(*map(_add, total, more))
    if isinstance(total, np.ndarray) and not total.flags.writeable:  # arrays mapped from files are read-only
        return total + more
    total += more
    return total


def asked(parts: Sequence[Part]) -> Ask:
    """Return an `Ask` for parts in memory."""
    return lambda function, *arguments: added(each(parts, lambda part: function(part, *arguments)))


def each(parts: Sequence[S], function: Callable[[S], T]) -> Iterator[T]:
    """Yield the function of each part, in their order; threads evaluate several at a time.

    The number of threads does not change the results, because the number of parts does not depend on it.
    """
    n = min(threads(), len(parts))
    if n < 2:
        yield from map(function, parts)
        return
    with ThreadPoolExecutor(n) as pool:
        yield from pool.map(function, parts)


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def threads() -> int:
    """Return the number of cores, or ``OMP_NUM_THREADS`` if it is less, as numerical libraries do."""
    limit = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return min(cores(), int(limit)) if limit.isdecimal() and int(limit) > 0 else cores()


def one_thread() -> AbstractContextManager[object]:
    """Limit linear algebra to one thread until the ``with`` block ends.

    Threads of the library wait for each other longer than they compute. `each` uses the cores instead.
    """
    from threadpoolctl import threadpool_limits  # a dependency of scikit-learn

    limits: AbstractContextManager[object] = threadpool_limits(1)
    return limits


def parts_of(
    item: Positions, annotator: Positions, label: Positions, sizes: Sizes, known: Positions | None = None
) -> list[Part]:
    """Split labels, in any order, into equal parts of consecutive items; labels of an item keep their order."""
    N, R, K = sizes
    small = np.int32 if max(N, R * K, len(item)) < 2**31 else np.int64
    cells = (item.astype(small), (annotator * K + label).astype(small))
    matrix = sparse.coo_array((np.ones(len(item), np.int8), cells), shape=(N, R * K))
    matrix.has_canonical_format = True  # (item, annotator, label) is unique, so there is nothing to sort or to sum
    rows = matrix.tocsr()  # a counting sort
    annotators, labels = np.divmod(rows.indices, small(K))
    whole = Part(np.diff(rows.indptr), annotators, labels, known)
    least = LABELS_SPARSE if sizes.sparse else max(LABELS, LABELS_A_CELL * R * K)
    equal = -(-len(item) // max(1, len(item) // least))
    return [part for _, part in whole.pieces(equal + int(whole.per_item.max(initial=0)))]


# ---- labels as sparse matrices ---------------------------------------------------------------------------------------


_ones: Floats = np.ones(0)


def ones(n: int) -> Floats:
    """Return n ones: a view of one read-only array that all callers share."""
    global _ones
    if len(_ones) < n:
        _ones = np.ones(n)
        _ones.flags.writeable = False
    return _ones[:n]


def label_matrix(part: Part, columns: NDArray[Any], n: int, values: Floats | None = None) -> sparse.csr_array:
    """Return a matrix (N, n) with an entry for each label, in the row of its item; by default ones."""
    small = np.int32 if max(n, len(columns)) < 2**31 else np.int64
    matrix = sparse.csr_array((part.n_items, n))  # its constructor would copy the arrays
    matrix.indices, matrix.indptr = columns.astype(small, copy=False), part.starts.astype(small)
    matrix.data = ones(len(columns)) if values is None else values
    return matrix


def cell_matrix(part: Part, sizes: Sizes) -> sparse.csr_array:
    """Return a matrix (N, R·K) with a 1 at [item, annotator · K + label]."""
    _, R, K = sizes
    if "cell" not in part.kept:
        small = np.int32 if R * K < 2**31 else np.int64
        cell: NDArray[Any] = np.multiply(part.annotator, small(K), dtype=small)
        part.kept["cell"] = np.add(cell, part.label, out=cell, casting="unsafe")
    return label_matrix(part, part.kept["cell"], R * K)


# ---- sums by key -----------------------------------------------------------------------------------------------------

Keys = NDArray[np.int64]


class Keyed:
    """A sparse table: a sum for each key (up to 2^63) that occurs, 0 for all others.

    Added tables are merged only once they hold more keys than the table itself, so that additions cost little.
    """

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
            self._merge()
        return self

    def __getitem__(self, keys: Keys) -> Floats:
        self._merge()
        if len(self._keys) == 0:
            return np.zeros(len(keys))
        place = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        return np.where(self._keys[place] == keys, self._values[place], 0.0)

    def between(self, first: int, after: int) -> tuple[Keys, Floats]:
        """Return the keys in [first, after), minus ``first``, and their sums."""
        self._merge()
        found = slice(*np.searchsorted(self._keys, (first, after)).tolist())
        return self._keys[found] - first, self._values[found]

    def items(self) -> tuple[Keys, Floats]:
        """Return the sorted keys and their sums."""
        self._merge()
        return self._keys, self._values

    def _merge(self) -> None:
        if self._waiting:
            merged = self._keys, self._values
            keys, values = (np.concatenate(arrays) for arrays in zip(merged, *self._waiting, strict=True))
            whole = Keyed.total(values, keys)
            self._keys, self._values, self._waiting = whole._keys, whole._values, []

    def __reduce__(self) -> Any:
        return Keyed, self.items()
