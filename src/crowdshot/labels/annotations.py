"""Hold labels as (item, annotator, label) triples, and convert them from and to tables, matrices and dicts.

A long table lists ids row by row, so ids that occur only in rows without a label are dropped unless ``items=`` or
``annotators=`` lists them. A matrix or a dict of dicts lists its items and annotators explicitly, so items and
annotators without labels are kept.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from crowdshot.errors import CrowdshotError, CrowdshotWarning, NoLabelError, Use
from crowdshot.extras import missing_packages_explained
from crowdshot.formatting import counted, facts_and_tables, first, listing, show
from crowdshot.io.cells import (
    WHOLE_NUMBER,
    Ids,
    Positions,
    arrange,
    as_index,
    check_text,
    factorize,
    fold,
    ordered,
    positions,
    trim,
    trimmed,
    unique_ids,
    without,
)
from crowdshot.io.dataframes import to_pandas
from crowdshot.labels.columns import Columns, ColumnsInput, find_columns

if TYPE_CHECKING:
    import torch

__all__ = ["Annotations", "Columns", "Duplicates"]

Duplicates = Literal["last", "first", "error"]
ListOfIds = Iterable[Any] | None
SHOWN = (5, 8)  # items and annotators in a notebook


@dataclass(frozen=True, eq=False, repr=False)
class Annotations:
    """L labels as positions in arrays of ids. Use the ``from_…`` constructors, which validate the input.

    Whole numbers that were stored as floats because of missing values become integers again.

    Attributes
    ----------
    item, annotator, label : int64 arrays of shape (L,)
        One entry per label; each (item, annotator) pair occurs at most once.
    items : array of shape (N,)
        Ids of the items, in order of first appearance or as listed.
    annotators : array of shape (R,)
        Ids of the annotators, in the same manner.
    classes : array of shape (K,)
        Sorted, or in the order of an ordered categorical dtype, or as listed.
    columns : Columns
        Column names of the input table.

    Examples
    --------
    >>> from crowdshot import Annotations
    >>> ann = Annotations.from_dict({"a": {"ann": "cat", "bob": "dog"}, "b": {"ann": "dog"}})
    >>> ann.n_items, ann.annotators.tolist(), ann.classes.tolist()
    (2, ['ann', 'bob'], ['cat', 'dog'])
    >>> ann.to_frame()
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

    def __post_init__(self) -> None:
        for name in ("items", "annotators", "classes", "columns"):
            ids = getattr(self, name)
            if name == "columns" or ids.dtype == object:
                check_text(name, ids)

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

    def _repr_html_(self) -> str:
        """Show the first labels as a table in a notebook."""
        n, people = min(self.n_items, SHOWN[0]), self.annotators[: SHOWN[1]]
        some = (self.item < n) & (self.annotator < len(people))
        cells = np.full((n, len(people)), "", dtype=object)
        cells[self.item[some], self.annotator[some]] = self.classes[self.label[some]]
        table = pd.DataFrame(np.column_stack([self.items[:n], cells]), columns=[self.columns.item, *people])
        counts = np.bincount(self.label, minlength=self.n_classes)[: 2 * n]
        classes = pd.DataFrame({"class": self.classes[: 2 * n], "labels": counts})
        return facts_and_tables(repr(self), {"First items and annotators": table, "Labels of each class": classes})

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
        missing: Any = "auto",
        source: str = "the table",
    ) -> Self:
        """Convert a table with one row per label.

        Rows without a label (NaN, None, blank text) are dropped. A missing item or annotator in any other row is an
        error.

        Parameters
        ----------
        df : DataFrame
            A table of pandas, polars, PyArrow or another library, or a list of dicts.
        columns : Columns, sequence of three names, or mapping, optional
            Names of the item, annotator and label columns, or some of them by role. The others are recognised by their
            usual names (``crowdshot.labels.columns.ALIASES``).
        classes, items, annotators : iterable, optional
            All ids that may occur, in this order. Listed ids without labels are kept; ids that are not listed are an
            error. By default, the ids that have a label.
        duplicates : {"last", "first", "error"}
            Which label counts if an annotator labelled an item more than once. A warning reports how many labels were
            dropped. "error" refuses such a table.
        missing : any
            A further value that marks a missing label, unless ``classes`` lists it. With "auto", the number -1 does,
            with a warning, except beside another negative number, beside just 0 and 1, or beside fewer than two other
            classes. With None, no value does.
        source : str
            The table's name in error messages, such as a file name. They count rows from 1.
        """
        df = to_pandas(df)
        if not isinstance(df, pd.DataFrame):
            raise CrowdshotError(f"is a {type(df).__name__}", where=source, expected="a table")
        names = find_columns(df.columns, columns, source)
        label_cells = df[names.label]
        label, class_ids = trimmed(*factorize(label_cells))
        classes = None if classes is None else unique_ids(classes, "classes")
        label, class_ids = _without_mark(_mark_in_rows(missing, classes, class_ids, source), label, class_ids)
        rows = np.flatnonzero(label >= 0)
        if len(rows) == 0:
            raise NoLabelError(f"holds no label in its {len(df)} rows of {names.label!r}", where=source, expected="one")
        if len(rows) < len(df):
            df, label = df.iloc[rows], label[rows]

        def cell(name: str) -> Callable[[int], str]:
            return lambda row: f"{source}, row {rows[row] + 1}, column {name!r}"

        item, item_ids = _present(df[names.item], cell(names.item))
        annotator, annotator_ids = trimmed(*_present(df[names.annotator], cell(names.annotator)))
        if items is not None:
            item, item_ids = arrange(item, item_ids, items, "items", cell(names.item))
        if annotators is not None:
            annotator, annotator_ids = arrange(
                annotator, annotator_ids, annotators, "annotators", cell(names.annotator)
            )
        in_order = _in_order(class_ids, label_cells) if classes is None else classes
        label, class_ids = arrange(label, class_ids, in_order, "classes", cell(names.label))

        def repeated(row: int) -> CrowdshotError:
            who, what = show(annotator_ids[annotator[row]]), show(item_ids[item[row]])
            return CrowdshotError(
                f"is a second label of annotator {who} for item {what}",
                where=f"{source}, row {rows[row] + 1}",
                expected="one label",
            )

        keep = _one_per_pair(item * len(annotator_ids) + annotator, duplicates, source, repeated)
        if keep is not None:
            item, annotator, label = item[keep], annotator[keep], label[keep]
        return cls(item, annotator, label, item_ids, annotator_ids, class_ids, names)

    @classmethod
    def from_matrix(
        cls,
        matrix: pd.DataFrame | pd.Series[Any] | ArrayLike,
        *,
        classes: ListOfIds = None,
        items: ListOfIds = None,
        annotators: ListOfIds = None,
        missing: Any = "auto",
    ) -> Self:
        """Convert an array of labels with a row per item and a column per annotator.

        Parameters
        ----------
        matrix : array of shape (N, R) or (N,), DataFrame or Series
            NaN, None, "" and masked cells are missing. Shape (N,) is one annotator.
        classes : iterable, optional
            All classes, in order.
        items, annotators : iterable, optional
            Names of the rows and columns. By default, a DataFrame's index and columns, or 0, 1, 2, …. All of them are
            kept, labelled or not.
        missing : any
            A further value that marks a missing label, unless ``classes`` lists it. With "auto", -1 does if no cell is
            missing in another way and no other label is negative. With None, no value does.

        Examples
        --------
        >>> Annotations.from_matrix([["cat", "dog"], ["dog", None]], annotators=["ann", "bob"])
        Annotations(2 items × 2 annotators, 3 labels, 2 classes: 'cat', 'dog')
        >>> Annotations.from_matrix([0, 1, -1, 1], missing=-1)
        Annotations(4 items × 1 annotators, 3 labels, 2 classes: 0, 1)
        """
        matrix = to_pandas(matrix)
        if isinstance(matrix, pd.Series):
            matrix = matrix.to_frame(0 if matrix.name is None else matrix.name)
        if isinstance(matrix, pd.DataFrame):
            items = matrix.index if items is None else items
            annotators = matrix.columns if annotators is None else annotators
        values = _as_values(matrix)
        item_ids, annotator_ids = (
            unique_ids(range(size) if names is None else names, argument, size)
            for names, argument, size in zip((items, annotators), ("items", "annotators"), values.shape, strict=True)
        )
        label, class_ids = trimmed(*factorize(values.ravel()))
        listed = None if classes is None else unique_ids(classes, "classes")
        mark = _missing_mark(missing, listed, class_ids, label, values)
        label, class_ids = _without_mark(mark, label, class_ids)
        cells = np.flatnonzero(label >= 0)
        if len(cells) == 0:
            raise CrowdshotError(f"of shape {values.shape} holds no label", where="the matrix", expected="one at least")
        item, annotator = np.divmod(cells, values.shape[1])

        def place(row: int) -> str:
            return f"the matrix, row {item[row] + 1}, column {annotator[row] + 1}"

        in_order = _in_order(class_ids, matrix) if listed is None else listed
        label, class_ids = arrange(label[cells], class_ids, in_order, "classes", place)
        return cls(item, annotator, label, item_ids, annotator_ids, class_ids)

    @classmethod
    def from_dict(
        cls, labels: Mapping[Any, Mapping[Any, Any]], *, classes: ListOfIds = None, missing: Any = "auto"
    ) -> Self:
        """Convert ``{item: {annotator: label}}``; all ids are kept.

        None, NaN and "" are missing labels; ``missing`` is as in `from_frame`.
        """
        if not isinstance(labels, Mapping) or not all(isinstance(answers, Mapping) for answers in labels.values()):
            raise CrowdshotError("is not a dict of dicts", argument="labels", expected="{item: {annotator: label}}")
        rows = [(item, annotator, label) for item, answers in labels.items() for annotator, label in answers.items()]
        table = pd.DataFrame(rows, columns=list(Columns()), dtype=object)
        annotators = dict.fromkeys(trim(name) if isinstance(name, str) else name for _, name, _ in rows)
        source = "the dict of labels"
        return cls.from_frame(
            table, Columns(), classes=classes, items=labels, annotators=annotators, missing=missing, source=source
        )

    @classmethod
    def from_crowdkit(cls, df: pd.DataFrame, *, classes: ListOfIds = None, duplicates: Duplicates = "last") -> Self:
        """Convert crowd-kit's table with the columns task, worker and label."""
        return cls.from_frame(df, Columns("task", "worker", "label"), classes=classes, duplicates=duplicates)

    @classmethod
    def from_cleanlab(cls, labels: pd.DataFrame | ArrayLike, *, n_classes: int | None = None) -> Self:
        """Convert cleanlab's ``labels_multiannotator``: (N, R) integers 0 … K-1, NaN if missing.

        K is ``n_classes``, or one more than the largest label. Classes that nobody chose are kept.
        """
        ann = cls.from_matrix(labels)
        if ann.classes.dtype.kind not in "iu" or ann.classes[0] < 0:
            raise CrowdshotError(
                f"has {listing(ann.classes)}",
                argument="labels",
                found=ann.classes.tolist()[:10],
                expected="integers from 0, as cleanlab's labels are",
            )
        size = int(ann.classes[-1]) + 1 if n_classes is None else n_classes
        if ann.classes[-1] >= size:
            raise CrowdshotError(
                f"has {ann.classes[-1]}",
                argument="labels",
                found=int(ann.classes[-1]),
                expected=f"0 to {size - 1}, as n_classes is {size}",
            )
        return replace(ann, label=ann.classes[ann.label].astype(np.int64), classes=np.arange(size))

    def to_frame(self) -> pd.DataFrame:
        """Return a table with one row per label and the column names of the input."""
        pairs = ((self.items, self.item), (self.annotators, self.annotator), (self.classes, self.label))
        taken = [as_index(ids).take(position) for ids, position in pairs]
        return pd.DataFrame(dict(zip(self.columns, taken, strict=True)))

    def to_matrix(self) -> Positions:
        """Return an array (N, R) of positions in ``classes``, -1 if missing. It is dense: N·R numbers."""
        matrix = np.full((self.n_items, self.n_annotators), -1, dtype=np.int64)
        matrix[self.item, self.annotator] = self.label
        return matrix

    def to_tensor(self) -> torch.Tensor:
        """Return `to_matrix` as an int64 tensor, as ``mixture.fit`` takes it."""
        with missing_packages_explained("to_tensor"):
            import torch  # imported here, because it takes long and labels alone do not need it

        return torch.from_numpy(self.to_matrix())

    def to_crowdkit(self) -> pd.DataFrame:
        """Return the table that crowd-kit's aggregators take."""
        return replace(self, columns=Columns("task", "worker", "label")).to_frame()

    def to_cleanlab(self) -> pd.DataFrame:
        """Return cleanlab's ``labels_multiannotator``: a table (N, R) of floats 0 … K-1 with NaN, items as index."""
        matrix = self.to_matrix().astype(np.float64)
        matrix[matrix < 0] = np.nan
        return pd.DataFrame(matrix, index=as_index(self.items), columns=as_index(self.annotators))

    def merge_case(self) -> Self:
        """Merge classes, and annotators, that differ only in case, spaces or width, or as '0' and 0 do.

        The most frequent spelling is kept. If two annotators become one, the last of their labels for an item counts.

        Examples
        --------
        >>> from crowdshot import Annotations
        >>> ann = Annotations.from_dict({"a": {"ann": "cat", "bob": "cat"}, "b": {"ann": "Cat", "bob": "dog"}})
        >>> ann.merge_case().classes.tolist()
        ['cat', 'dog']
        """
        classes, annotators = _merged(self.classes, self.label), _merged(self.annotators, self.annotator)
        table = replace(self, classes=classes, annotators=annotators).to_frame()
        listed = [dict.fromkeys(names.tolist()) for names in (classes, annotators)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CrowdshotWarning)  # repeated labels are expected
            return self.from_frame(table, self.columns, items=self.items, classes=listed[0], annotators=listed[1])

    def vote_counts(self) -> NDArray[np.float64]:
        """Return an array (N, K): how many annotators gave each item each label."""
        cell = self.item * self.n_classes + self.label
        counts = np.bincount(cell, minlength=self.n_items * self.n_classes)
        return counts.reshape(self.n_items, self.n_classes).astype(np.float64)

    def select_items(self, ids: Iterable[Any]) -> Self:
        """Return the annotations of these items, in this order; all annotators and classes are kept.

        At least one of the items must have a label.
        """
        wanted = unique_ids(ids, "ids")
        found = positions(self.items, wanted)
        if (found < 0).any():
            unknown = wanted[first(found < 0)]
            raise CrowdshotError(
                f"has {show(unknown)}, which is not an item",
                argument="ids",
                found=unknown,
                expected=f"some of the {self.n_items} items",
            )
        place = np.full(self.n_items, -1, dtype=np.int64)
        place[found] = np.arange(len(found))
        selected = self.with_items(place, self.items[found])
        if selected.n_labels == 0:
            raise CrowdshotError(
                f"names {len(wanted)} items without labels", argument="ids", expected="one labelled item at least"
            )
        return selected

    def keep(self, mask: NDArray[np.bool_]) -> Self:
        """Return the labels for which the mask (L,) is true; all items, annotators and classes are kept."""
        return replace(self, item=self.item[mask], annotator=self.annotator[mask], label=self.label[mask])

    def with_items(self, rows: Positions, items: Ids) -> Self:
        """Return the labels with other items: item i becomes ``items[rows[i]]``, or is dropped if ``rows[i]`` is -1."""
        kept = self.keep(rows[self.item] >= 0)
        return replace(kept, item=rows[kept.item], items=items)


def _present(cells: Any, cell: Callable[[int], str]) -> tuple[Positions, Ids]:
    """Factorize ids; raise an error if one is missing."""
    position, ids = factorize(cells)
    if (position < 0).any():
        raise CrowdshotError("is empty", where=cell(first(position < 0)), expected="an id")
    return position, ids


def _as_values(matrix: Any) -> Ids:
    """Return labels as an array (N, R), with None or "" in missing cells."""
    if isinstance(matrix, pd.DataFrame):
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
            f"has shape {values.shape}{ragged}",
            where="the matrix of labels",
            found=values.shape,
            expected="(items, annotators), or (items,) for one annotator",
        )
    return values


def _missing_mark(missing: Any, listed: Ids | None, found: Ids, label: Positions, values: Ids) -> Any:
    """Return the value that marks missing labels, or None; warn where that is ambiguous.

    ``found`` are the values (N, R) that occur, ``label`` their positions, -1 in empty cells. If one annotator's labels
    are -1 and 1, both are classes.
    """
    if missing is None or (listed is not None and missing in listed.tolist()):
        return None
    if not (isinstance(missing, str) and missing == "auto"):
        return missing
    numbers = {value for value in found.tolist() if isinstance(value, int | float)}
    if -1 not in numbers or (listed is not None and -1 in listed.tolist()) or min(numbers) < -1:
        return None
    if len(found) == 1:
        return -1
    if (label < 0).any() or (values.shape[1] == 1 and len(found) == 2):
        reason = "empty cells" if (label < 0).any() else listing(sorted(numbers - {-1}))
        _warn_ambiguous(f"has -1 beside {reason}; -1 is read as a class", Use("if -1 is a missing label", missing=-1))
        return None
    if set(found.tolist()) == {-1, 0, 1} and values.dtype.kind != "i":  # integers cannot be missing in another way
        _warn_ambiguous("has -1 beside 0 and 1; -1 is read as a missing label", Use("if -1 is a class", missing=None))
    return -1


def _mark_in_rows(missing: Any, listed: Ids | None, found: Ids, source: str) -> Any:
    """Return the value that marks missing labels in rows, or None, by the rule of `wide_tables.is_label` for -1."""
    if missing is None or (listed is not None and missing in listed.tolist()):
        return None
    if not (isinstance(missing, str) and missing == "auto"):
        return missing
    values = found.tolist()
    others = [value for value in values if value != -1 or isinstance(value, str)]
    if len(others) == len(values) or (listed is not None and -1 in listed.tolist()):
        return None
    if all(isinstance(value, int) for value in others):
        if set(others) == {0, 1}:
            _warn_ambiguous("has -1 beside 0 and 1; -1 is read as a class", Use("if it is a missing label", missing=-1))
            return None
        if len(others) < 2 or min(others) < 0:
            return None
    message = "has rows with -1, which are read as missing labels"
    hint = Use("if -1 is a class", missing=None)
    warnings.warn(CrowdshotWarning(message, where=source, found=-1, hint=hint), stacklevel=3)
    return -1


def _without_mark(mark: Any, label: Positions, class_ids: Ids) -> tuple[Positions, Ids]:
    """Remove the mark of missing labels from the classes."""
    if mark is None:
        return label, class_ids
    return without(label, class_ids, np.array([c == mark for c in class_ids.tolist()], dtype=bool))


def _warn_ambiguous(message: str, hint: Use) -> None:
    warnings.warn(CrowdshotWarning(message, argument="labels", found=-1, hint=hint), stacklevel=4)


def _merged(ids: Ids, position: Positions) -> Ids:
    """Return the most frequent spelling of each id, (n,); ``position`` (L,) are positions in ``ids``."""
    frequency = np.bincount(position, minlength=len(ids))
    kept: dict[str, Any] = {}
    for place in np.argsort(-frequency, kind="stable"):
        kept.setdefault(fold(str(ids[place])), ids.tolist()[place])
    out = np.empty(len(ids), dtype=object)
    out[:] = [kept[fold(str(name))] for name in ids.tolist()]
    return out


def _in_order(classes: Ids, labels: Any) -> Ids:
    """Sort the classes, or take the order of the labels' ordered categorical dtype."""
    listed = categories_order(labels, classes)
    return ordered(classes) if listed is None else listed


def _one_per_pair(
    pair: Positions, duplicates: str, source: str, repeated: Callable[[int], CrowdshotError]
) -> NDArray[np.bool_] | None:
    """Return a mask of rows that keeps one row for each (item, annotator) pair; None keeps all."""
    if duplicates not in get_args(Duplicates):
        raise CrowdshotError(
            f"is {duplicates!r}",
            argument="duplicates",
            found=duplicates,
            expected=f"one of {listing(get_args(Duplicates))}",
        )
    in_order = np.sort(pair)  # the fastest way to find that there are no duplicates
    if (in_order[1:] != in_order[:-1]).all():
        return None
    rows = pd.Series(pair)
    if duplicates == "error":
        raise repeated(first(rows.duplicated().to_numpy()))
    dropped: NDArray[np.bool_] = rows.duplicated(keep=duplicates).to_numpy()
    labels = counted(int(dropped.sum()), "labels")
    because = "because an annotator labelled the same item more than once"
    warnings.warn(
        CrowdshotWarning(f"{labels} dropped {because}; the {duplicates} one in its order counts", where=source),
        stacklevel=3,
    )
    return ~dropped


# ---- values of labels: their order, and whether they are numbers rather than classes ----

MOST = 50  # different whole numbers that are accepted as classes
AS_CLASSES = Use("if they are names of classes; measurements cannot be aggregated", categories=True)


def categories_order(labels: Any, classes: Ids) -> Ids | None:
    """Return the classes in the order of an ordered categorical column.

    Return None if no such column has all classes, or if two columns have different orders.
    """
    kinds = labels.dtypes if isinstance(labels, pd.DataFrame) else [getattr(labels, "dtype", None)]
    found = []
    for kind in set(kinds):
        if isinstance(kind, pd.CategoricalDtype) and kind.ordered:
            place = positions(np.asarray(kind.categories), classes)
            found += [classes[np.argsort(place)]] if (place >= 0).all() else []
    return found[0] if found and all((order == found[0]).all() for order in found) else None


def warn_alphabetical_order(labels: Any, classes: Ids, advice: str) -> None:
    """Warn if three or more ordered classes are words whose order nobody gave: alphabetical is seldom right."""
    words = [name for name in classes.tolist() if isinstance(name, str)]
    if len(classes) < 3 or all(WHOLE_NUMBER.fullmatch(word) for word in words):
        return
    if categories_order(labels, classes) is None:
        warnings.warn(
            CrowdshotWarning(
                f"Ordered classes are taken in alphabetical order: {listing(classes)}",
                argument="ordered",
                found=classes.tolist()[:10],
                hint=f"Set another order with {advice}.",
            ),
            stacklevel=4,
        )


def refuse_fractions(labels: Collection[str], source: str) -> None:
    """Raise an error if most labels are numbers and some have decimals, such as 3.5 (or 3,5 in many countries)."""
    numbers = [label for label in map(str, labels) if re.fullmatch(r"[-+]?(\d+([.,]\d*)?|[.,]\d+)", label)]
    found = [label for label in numbers if re.search(r"[.,]\d*[1-9]", label)]
    if found and 2 * len(numbers) > len(labels):
        raise CrowdshotError(
            f"has numbers with decimals as labels: {listing(found, 3)}",
            where=source,
            found=found[:10],
            expected="classes",
            hint=AS_CLASSES,
        )


def refuse_many(labels: Collection[str], source: str) -> None:
    """Raise an error if the labels are more than `MOST` different whole numbers: they are probably measurements."""
    if len(labels) > MOST and all(re.fullmatch(r"[-+]?\d+", str(label)) for label in labels):
        raise CrowdshotError(
            f"has {len(labels)} different numbers as labels: {listing(labels, 3)}",
            where=source,
            found=len(labels),
            expected=f"{MOST} at most",
            hint=AS_CLASSES,
        )
