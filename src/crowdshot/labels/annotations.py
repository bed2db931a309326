"""Who said what about which item: (item, annotator, label) triples, and the tables they come from.

A table names its ids row by row, so ids that only occur in rows without a label are left out unless they are
listed with ``items=`` or ``annotators=``. A matrix or a dict of dicts names its items and annotators outright,
so items nobody labelled and annotators who labelled nothing are kept.
"""

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from crowdshot.errors import CrowdshotError, NoLabelError
from crowdshot.formatting import counted, first, listing, show
from crowdshot.io.cells import Ids
from crowdshot.labels.columns import Columns, ColumnsInput, find_columns
from crowdshot.labels.indexing import Positions, arrange, as_index, factorize, ordered, positions, unique_ids, without
from crowdshot.labels.label_values import categories_order

if TYPE_CHECKING:
    import torch


__all__ = ["Annotations", "Columns", "Duplicates"]

Duplicates = Literal["last", "first", "error"]
ListOfIds = Iterable[Any] | None


@dataclass(frozen=True, eq=False, repr=False)
class Annotations:
    """L labels as positions in three arrays of ids; made by the ``from_…`` constructors, which validate.

    ``item``, ``annotator``, ``label``: (L,) int64, one row a label, each (item, annotator) at most once.
    ``items`` (N,) and ``annotators`` (R,): ids as they came in, in order of first appearance or as listed.
    ``classes`` (K,): sorted, as an ordered categorical dtype has them, or in the order given. Whole numbers that a
    missing value beside them had turned into floats are integers again.

    >>> from crowdshot import Annotations
    >>> said = Annotations.from_dict({"a": {"ann": "cat", "bob": "dog"}, "b": {"ann": "dog"}})
    >>> said.n_items, said.annotators.tolist(), said.classes.tolist()
    (2, ['ann', 'bob'], ['cat', 'dog'])
    >>> said.to_frame()
      item annotator label
    0    a       ann   cat
    1    a       bob   dog
    2    b       ann   dog
    """

    item: Positions
    annotator: Positions
    label: Positions
    items: Ids
    annotators: Ids
    classes: Ids
    columns: Columns = field(default_factory=Columns)

    @property
    def n_items(self) -> int:
        return len(self.items)

    @property
    def n_annotators(self) -> int:
        return len(self.annotators)

    @property
    def n_classes(self) -> int:
        return len(self.classes)

    @property
    def n_labels(self) -> int:
        return len(self.label)

    def __len__(self) -> int:
        return self.n_labels

    def __repr__(self) -> str:
        sizes = f"{self.n_items:,} items × {self.n_annotators:,} annotators, {self.n_labels:,} labels"
        return f"Annotations({sizes}, {self.n_classes:,} classes: {listing(self.classes, 6)})"

    @classmethod
    def from_frame(
        cls,
        df: pd.DataFrame,
        columns: ColumnsInput = None,
        *,
        classes: ListOfIds = None,
        items: ListOfIds = None,
        annotators: ListOfIds = None,
        duplicates: Duplicates = "last",
        source: str = "the table",
    ) -> Self:
        """From a table with one row a label.

        ``columns`` names the three columns; those it does not name are recognised by their usual names
        (``crowdshot.labels.columns.ALIASES``). Policies:

        - a missing label (NaN, None, blank text) drops its row; a missing item or annotator in any other row
          is an error;
        - ``classes``, ``items``, ``annotators``: every id that may occur, in this order. Listed ids without a
          label are kept; an id that is not listed is an error. Not given: the ids that have a label;
        - ``duplicates``: an annotator who labelled an item more than once counts with the ``"last"`` label
          (a warning says how many were dropped), with the ``"first"`` (likewise), or is an ``"error"``.

        ``source`` is what messages call the table, say its file name. They count rows from 1.
        """
        if not isinstance(df, pd.DataFrame):
            raise CrowdshotError(f"{source} is a {type(df).__name__}, expected a pandas DataFrame.")
        names = find_columns(df.columns, columns, source)
        said = df[names.label]
        label, class_ids = factorize(said)
        rows = np.flatnonzero(label >= 0)
        if len(rows) == 0:
            raise NoLabelError(f"{source} holds no label in its {len(df)} rows of {names.label!r}, expected one.")
        if len(rows) < len(df):
            df, label = df.iloc[rows], label[rows]

        item, item_ids = factorize(df[names.item])
        annotator, annotator_ids = factorize(df[names.annotator])
        for name, position in ((names.item, item), (names.annotator, annotator)):
            if (position < 0).any():
                row = rows[first(position < 0)] + 1
                raise CrowdshotError(f"{source}, row {row}, column {name!r} is empty, expected an id.")

        def place(name: str) -> Callable[[int], str]:
            return lambda row: f"{source}, row {rows[row] + 1}, column {name!r}"

        if items is not None:
            item, item_ids = arrange(item, item_ids, items, "items", place(names.item))
        if annotators is not None:
            annotator, annotator_ids = arrange(
                annotator, annotator_ids, annotators, "annotators", place(names.annotator)
            )
        in_order = _in_order(class_ids, said) if classes is None else classes
        label, class_ids = arrange(label, class_ids, in_order, "classes", place(names.label))

        def describe(row: int) -> str:
            who, what = show(annotator_ids[annotator[row]]), show(item_ids[item[row]])
            return f"{source}, row {rows[row] + 1} has annotator {who} label item {what} again, expected once."

        keep = _once_a_pair(item * len(annotator_ids) + annotator, duplicates, source, describe)
        if keep is not None:
            item, annotator, label = item[keep], annotator[keep], label[keep]
        return cls(item, annotator, label, item_ids, annotator_ids, class_ids, names)

    @classmethod
    def from_matrix(
        cls,
        matrix: "pd.DataFrame | pd.Series[Any] | ArrayLike",
        *,
        classes: ListOfIds = None,
        items: ListOfIds = None,
        annotators: ListOfIds = None,
        missing: Any = -1,
    ) -> Self:
        """From (N, R) labels, a row an item and a column an annotator; NaN, None, "", -1 and masked ones are missing.

        (N,) labels are those of one annotator.

        -1 is a label after all where ``classes`` lists it, and beside 0 and 1 alone where others are missing otherwise;
        ``missing=None`` makes it one in any case, and ``missing=99`` has 99 in its place.
        ``items`` and ``annotators`` name the rows and the columns (else a DataFrame's index and columns, or 0, 1, 2,
        …). All of them are kept, labelled or not.

        >>> Annotations.from_matrix([["cat", "dog"], ["dog", None]], annotators=["ann", "bob"])
        Annotations(2 items × 2 annotators, 3 labels, 2 classes: 'cat', 'dog')
        >>> Annotations.from_matrix([0, 1, -1, 1])
        Annotations(4 items × 1 annotators, 3 labels, 2 classes: 0, 1)
        """
        if isinstance(matrix, pd.Series):
            matrix = matrix.to_frame(0 if matrix.name is None else matrix.name)
        if isinstance(matrix, pd.DataFrame):
            items = matrix.index if items is None else items
            annotators = matrix.columns if annotators is None else annotators
            values: Ids = matrix.to_numpy()
        elif isinstance(matrix, list | tuple):  # NumPy would turn a NaN beside text into the text 'nan'
            values = np.array(matrix, dtype=object)
        elif isinstance(matrix, np.ma.MaskedArray):
            values = matrix.data.astype(object)
            values[np.ma.getmaskarray(matrix)] = None
        else:
            values = np.asarray(matrix)
            if values.dtype.kind == "U":
                values = np.where(values == "nan", "", values)  # as NumPy writes a NaN beside text
        if values.ndim == 1 and not any(isinstance(value, list | tuple | np.ndarray) for value in values):
            values = values[:, None]
        if values.ndim != 2:
            ragged = " of lists that differ in length" if values.ndim == 1 else ""
            raise CrowdshotError(
                f"the matrix of labels is of shape {values.shape}{ragged}, expected (items, annotators), or (items,)"
                " for one annotator."
            )
        item_ids, annotator_ids = (
            unique_ids(range(size) if names is None else names, argument, size)
            for names, argument, size in zip((items, annotators), ("items", "annotators"), values.shape, strict=True)
        )
        label, class_ids = factorize(values.ravel())
        given = None if classes is None else unique_ids(classes, "classes")
        doubtful = missing == -1 and given is None and set(class_ids.tolist()) == {-1, 0, 1}
        is_mark = missing is not None and (given is None or missing not in given.tolist())
        if is_mark and not (doubtful and (label < 0).any()):
            if doubtful and isinstance(matrix, pd.DataFrame):
                told = "labels: -1 is taken for a missing label; missing=None makes it one as 0 and 1 are."
                warnings.warn(told, UserWarning, stacklevel=2)
            marks = np.array([c == missing for c in class_ids.tolist()], dtype=bool)
            label, class_ids = without(label, class_ids, marks)
        cells = np.flatnonzero(label >= 0)
        if len(cells) == 0:
            raise CrowdshotError(f"the matrix of shape {values.shape} holds no label, expected one at least.")
        item, annotator = np.divmod(cells, values.shape[1])

        def place(row: int) -> str:
            return f"the matrix, row {item[row] + 1}, column {annotator[row] + 1}"

        in_order = _in_order(class_ids, matrix) if given is None else given
        label, class_ids = arrange(label[cells], class_ids, in_order, "classes", place)
        return cls(item, annotator, label, item_ids, annotator_ids, class_ids)

    @classmethod
    def from_dict(cls, labels: Mapping[Any, Mapping[Any, Any]], *, classes: ListOfIds = None) -> Self:
        """From ``{item: {annotator: label}}``; every id named is kept, None, NaN and "" are missing labels."""
        if not isinstance(labels, Mapping) or not all(isinstance(said, Mapping) for said in labels.values()):
            raise CrowdshotError("labels is no dict of dicts, expected {item: {annotator: label}}.")
        rows = [(item, annotator, label) for item, said in labels.items() for annotator, label in said.items()]
        table = pd.DataFrame(rows, columns=list(Columns()), dtype=object)
        annotators = dict.fromkeys(annotator for _, annotator, _ in rows)
        source = "the dict of labels"
        return cls.from_frame(table, Columns(), classes=classes, items=labels, annotators=annotators, source=source)

    @classmethod
    def from_crowdkit(cls, df: pd.DataFrame, *, classes: ListOfIds = None, duplicates: Duplicates = "last") -> Self:
        """From crowd-kit's table, whose columns are task, worker and label."""
        return cls.from_frame(df, Columns("task", "worker", "label"), classes=classes, duplicates=duplicates)

    @classmethod
    def from_cleanlab(cls, labels: "pd.DataFrame | ArrayLike", *, n_classes: int | None = None) -> Self:
        """From cleanlab's ``labels_multiannotator``: (N, R) integers 0 … K-1, NaN missing.

        K is ``n_classes``, or one more than the largest label, so that a class nobody chose keeps its place.
        """
        ann = cls.from_matrix(labels)
        if ann.classes.dtype.kind not in "iu" or ann.classes[0] < 0:
            raise CrowdshotError(f"labels has {listing(ann.classes)}, expected integers from 0, as cleanlab's are.")
        size = int(ann.classes[-1]) + 1 if n_classes is None else n_classes
        if ann.classes[-1] >= size:
            raise CrowdshotError(f"labels has {ann.classes[-1]}, expected 0 to {size - 1}, as n_classes is {size}.")
        return replace(ann, label=ann.classes[ann.label].astype(np.int64), classes=np.arange(size))

    def to_frame(self) -> pd.DataFrame:
        """One row a label, under the column names that came in."""
        pairs = ((self.items, self.item), (self.annotators, self.annotator), (self.classes, self.label))
        taken = [as_index(ids).take(position) for ids, position in pairs]
        return pd.DataFrame(dict(zip(self.columns, taken, strict=True)))

    def to_matrix(self) -> Positions:
        """(N, R) positions in ``classes``, -1 where missing; dense, so mind N·R."""
        matrix = np.full((self.n_items, self.n_annotators), -1, dtype=np.int64)
        matrix[self.item, self.annotator] = self.label
        return matrix

    def to_tensor(self) -> "torch.Tensor":
        """``to_matrix`` as an int64 tensor, the form that ``mixture.fit`` takes."""
        import torch  # here, because labels alone need not wait for it

        return torch.from_numpy(self.to_matrix())

    def to_crowdkit(self) -> pd.DataFrame:
        """The table that crowd-kit's aggregators take."""
        return replace(self, columns=Columns("task", "worker", "label")).to_frame()

    def to_cleanlab(self) -> pd.DataFrame:
        """cleanlab's ``labels_multiannotator``: (N, R) floats 0 … K-1 with NaN, items as index."""
        matrix = self.to_matrix().astype(np.float64)
        matrix[matrix < 0] = np.nan
        return pd.DataFrame(matrix, index=as_index(self.items), columns=as_index(self.annotators))

    def vote_counts(self) -> NDArray[np.float64]:
        """(N, K): how many annotators gave each item each label."""
        cell = self.item * self.n_classes + self.label
        counts = np.bincount(cell, minlength=self.n_items * self.n_classes)
        return counts.reshape(self.n_items, self.n_classes).astype(np.float64)

    def select_items(self, ids: Iterable[Any]) -> Self:
        """Only these items, in this order; annotators and classes stay as they are, with or without a label.

        One of the items must have a label.
        """
        wanted = unique_ids(ids, "ids")
        found = positions(self.items, wanted)
        if (found < 0).any():
            stranger = show(wanted[first(found < 0)])
            raise CrowdshotError(f"items has {stranger}, expected some of the {self.n_items} items there are.")
        place = np.full(self.n_items, -1, dtype=np.int64)
        place[found] = np.arange(len(found))
        selected = self.with_items(place, self.items[found])
        if selected.n_labels == 0:
            raise CrowdshotError(f"items has {len(wanted)} without any label, expected one label at least.")
        return selected

    def keep(self, mask: NDArray[np.bool_]) -> Self:
        """Only the labels at which the mask (L,) is true; items, annotators and classes stay as they are."""
        return replace(self, item=self.item[mask], annotator=self.annotator[mask], label=self.label[mask])

    def with_items(self, rows: Positions, items: Ids) -> Self:
        """The same labels about other items: what was item i is now at ``rows[i]`` of them, gone where that is -1."""
        kept = self.keep(rows[self.item] >= 0)
        return replace(kept, item=rows[kept.item], items=items)


def _in_order(classes: Ids, labels: Any) -> Ids:
    """As the dtype of the labels has them where that is an ordered categorical one, else sorted."""
    said = categories_order(labels, classes)
    return ordered(classes) if said is None else said


def _once_a_pair(
    pair: Positions, duplicates: str, source: str, describe: Callable[[int], str]
) -> NDArray[np.bool_] | None:
    """Which rows stay when each (item, annotator) pair may stand once; None for all, which a sort tells fastest."""
    if duplicates not in get_args(Duplicates):
        raise CrowdshotError(f"duplicates is {duplicates!r}, expected one of {listing(get_args(Duplicates))}.")
    in_order = np.sort(pair)
    if (in_order[1:] != in_order[:-1]).all():
        return None
    rows = pd.Series(pair)
    if duplicates == "error":
        raise CrowdshotError(describe(first(rows.duplicated().to_numpy())))
    dropped: NDArray[np.bool_] = rows.duplicated(keep=duplicates).to_numpy()
    labels = counted(int(dropped.sum()), "labels")
    because = "because an annotator labelled the same item more than once"
    told = f"{source}: {labels} dropped {because}; the {duplicates} one in its order counts."
    warnings.warn(told, UserWarning, stacklevel=3)
    return ~dropped
