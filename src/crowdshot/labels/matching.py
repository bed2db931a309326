"""Match labels to items: by row, by id, or by the name of a file; and add new labels to those of a fit."""

from __future__ import annotations

import functools
import inspect
import os
import re
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import counted, first, listing, show
from crowdshot.io.cells import Ids, Positions, as_index, factorize, fold, ordered, positions, unique_ids
from crowdshot.io.dataframes import to_pandas
from crowdshot.io.file_names import strings_in
from crowdshot.labels.annotations import Annotations, categories_order, warn_alphabetical_order
from crowdshot.labels.columns import Columns, find_columns, matches
from crowdshot.labels.item_names import plainer
from crowdshot.labels.wide_tables import have_names, ids_among, wide_table

MOST_COMPARED = 50_000  # items whose names are compared
NAME_ROWS = (
    "Name the rows of X with items=. In a pipeline, pass the name of the step before it, as in"
    " crowdclassifier__items=, or keep the index with set_output(transform='pandas')."
)
P = ParamSpec("P")
T = TypeVar("T")


def names_of(X: Any) -> list[Any] | None:
    """Return the names that X has for its items: a table's unique index, or file paths; None otherwise."""
    if isinstance(X, pd.DataFrame | pd.Series):
        return list(X.index) if X.index.is_unique else None
    if isinstance(X, list | tuple) and strings_in(X) == "paths":
        return [PurePath(x) for x in X]
    return None


def refuse_column_of_items(X: Any, labels: Any) -> None:
    """Raise an error if a column of X, rather than its index, has the items of a long table of labels.

    The ids would be a feature, and labels would be matched by the position of a row.
    """
    labels = to_pandas(labels)
    if not isinstance(X, pd.DataFrame) or not isinstance(labels, pd.DataFrame) or not have_names(labels.columns):
        return
    item = find_columns(labels.columns).item
    if item in X.columns and labels[item].isin(X[item]).all():
        raise CrowdshotError(
            f"has the items of the labels in its column {show(item)}",
            argument="X",
            found=item,
            expected="them as its index",
            hint=f"Pass X.set_index({item!r}).",
        )


def of_any_labels(function: Callable[Concatenate[Annotations, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a function of annotations accept labels in any form that `CrowdClassifier.fit` accepts."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapped(ann: Any, *args: P.args, **kwargs: P.kwargs) -> T:
        annotations = as_annotations(ann)
        listed = isinstance(getattr(ann, "annotations", ann), Annotations)
        if not listed and signature.bind(annotations, *args, **kwargs).arguments.get("ordered"):
            warn_alphabetical_order(ann, annotations.classes, "classes= of Annotations.from_matrix")
        return function(annotations, *args, **kwargs)

    return wrapped  # type: ignore[return-value]  # its first argument may be passed by keyword


def as_annotations(labels: Any, classes: Iterable[Any] | None = None, missing: Any = "auto") -> Annotations:
    """Convert labels in any form to annotations.

    Forms are an array or list (N, R), a long or wide table of any library, a list of dicts or of (item, annotator,
    label) tuples, a dict of dicts, and the result of `read_labels`. ``classes`` and ``missing`` are as in
    `annotations_of`.
    """
    labels, table = _read_form(labels)
    if isinstance(labels, Annotations):
        return labels
    if isinstance(labels, Mapping):
        return warn_near_duplicates(Annotations.from_dict(labels, classes=classes, missing=missing))
    if table is None and isinstance(labels, pd.DataFrame):
        return warn_near_duplicates(_from_frame(labels, classes, missing))
    if table is None and (isinstance(labels, str | bytes) or not hasattr(labels, "__len__")):
        raise CrowdshotError(
            f"is {_type_of(labels)}",
            argument="labels",
            expected="Annotations, an array or a table",
            hint="Read files with read_labels.",
        )
    if table is None:
        _refuse_sparse(labels)
        _refuse_triples(labels)
    matrix = labels if table is None else table
    return warn_near_duplicates(Annotations.from_matrix(matrix, classes=classes, missing=missing))


def _read_form(labels: Any) -> tuple[Any, pd.DataFrame | None]:
    """Return labels as annotations, a mapping, a DataFrame or an array, and the table with annotators as columns."""
    if not isinstance(labels, pd.DataFrame) and isinstance(getattr(labels, "annotations", None), Annotations):
        labels = labels.annotations  # the result of read_labels
    if isinstance(labels, Annotations):
        return labels, None
    labels = _with_index_columns(_of_columns(to_pandas(labels)))
    if isinstance(labels, list | tuple) and labels and all(isinstance(row, tuple) for row in labels):
        named = hasattr(labels[0], "_fields")  # rows of DataFrame.itertuples
        labels = pd.DataFrame(labels) if named else _of_tuples(list(labels))
    return labels, wide_table(labels) if isinstance(labels, pd.DataFrame | pd.Series) else None


def _with_index_columns(labels: Any) -> Any:
    """Return a long table whose index has the items, or items and annotators, with these as columns.

    The two levels of a Series' index need no names if values of both are repeated. Anything else is returned unchanged.
    """
    if not isinstance(labels, pd.DataFrame | pd.Series):
        return labels
    levels = list(labels.index.names)
    if isinstance(labels, pd.Series) and levels == [None, None]:
        levels = [Columns().item, Columns().annotator] if _repeat_in_levels(labels.index) else levels
        labels = labels.rename_axis(levels)
    if None in levels:
        return labels
    if isinstance(labels, pd.DataFrame):
        long = not have_names(labels.columns) and have_names([*levels, *labels.columns])
        return labels.reset_index() if long else labels
    return labels.to_frame("label").reset_index() if have_names([*levels, "label"]) else labels


def _repeat_in_levels(index: pd.Index[Any]) -> bool:
    return all(index.get_level_values(level).has_duplicates for level in range(index.nlevels))


def names_items(labels: Any) -> bool:
    """Return whether labels name their items; those of an array, or of a wide table with numbered rows, do not."""
    labels, table = _read_form(labels)
    if table is not None:
        return list(table.index) != list(range(len(table)))
    return isinstance(labels, Mapping | Annotations | pd.DataFrame)


def _of_columns(labels: Any) -> Any:
    """Return a dict of equally long columns as a table, and anything else unchanged."""
    if not isinstance(labels, Mapping) or not labels:
        return labels
    columns = list(labels.values())
    same = all(
        isinstance(column, list | np.ndarray | pd.Series) and len(column) == len(columns[0]) for column in columns
    )
    return pd.DataFrame(labels) if same else labels


def _of_tuples(rows: list[tuple[Any, ...]]) -> Any:
    """Return a list of (item, annotator, label) tuples as a table, and rows of a matrix unchanged.

    Three columns that have no values in common are a table. Pairs of the first two values that occur twice show that
    the rows are those of a matrix. Raises an error if neither is clear.
    """
    if any(len(row) != 3 for row in rows) or len({row[:2] for row in rows}) < len(rows):
        return rows
    columns = [{value for value in column if not pd.isna(value)} for column in zip(*rows, strict=True)]
    if not (columns[0] & columns[1] or columns[0] & columns[2] or columns[1] & columns[2]):
        return pd.DataFrame(rows, columns=list(Columns()))
    raise CrowdshotError(
        "is a list of tuples that may be (item, annotator, label) or the labels of three annotators",
        argument="labels",
        found=rows[:3],
        expected="a table or an array",
        hint="Use a DataFrame with the columns item, annotator and label, or a list of lists with a row for each item.",
    )


def warn_near_duplicates(ann: Annotations) -> Annotations:
    """Warn about classes and annotators that may be spellings of one name, such as 'Cat' and 'cat', or '0' and 0."""
    for ids, noun in ((ann.classes, "class"), (ann.annotators, "annotator")):
        groups: dict[str, list[Any]] = {}
        for name in ids.tolist() if ids.dtype == object and len(ids) <= MOST_COMPARED else []:
            groups.setdefault(fold(str(name)), []).append(name)
        found = next((group for group in groups.values() if len(group) > 1), None)
        if found is not None:
            warnings.warn(
                CrowdshotWarning(
                    f"has {listing(found)}, which may be one {noun}",
                    argument="labels",
                    found=found,
                    hint="Annotations.from_frame(…).merge_case() merges such names.",
                ),
                stacklevel=4,
            )
    return ann


def annotations_of(
    labels: Any, n_items: int, items: Iterable[Any] | None, classes: Iterable[Any] | None, missing: Any = "auto"
) -> Annotations:
    """Convert labels in any form to annotations whose items are the rows of X, in X's order.

    Parameters
    ----------
    labels : any form of labels
        A matrix belongs to X row by row; (N,) is one annotator. A long table, a dict of dicts and `Annotations` name
        items by ``items``, by file name if these are paths, or by position in X if ``items`` is None. A wide table
        (`wide_tables.wide_table`) is matched by its index if both name the items, otherwise row by row.
    n_items : int
        Number of rows of X.
    items : iterable or None
        Names of X's rows.
    classes : iterable or None
        All classes, in order.
    missing : any
        Mark of a missing label.
    """
    names = None if items is None else list(items)
    if names is not None and len(names) != n_items:
        raise CrowdshotError(
            f"has {len(names)} ids",
            argument="items",
            found=len(names),
            expected=f"{n_items}, one for each row of X",
        )
    given = labels
    labels, table = _read_form(labels)
    if table is not None:
        by_row = row_by_row(table.index, names)
        labels = table if by_row else Annotations.from_matrix(table, classes=classes, missing=missing)
    elif isinstance(labels, pd.DataFrame):
        labels = _from_frame(labels, classes, missing)
    elif isinstance(labels, Mapping):
        labels = Annotations.from_dict(labels, classes=classes, missing=missing)
    if not isinstance(labels, Annotations):
        return warn_near_duplicates(_from_rows(labels, table, n_items, names, classes, missing))
    if labels is not given:
        warn_near_duplicates(labels)
    known = np.asarray(as_index(range(n_items) if names is None else names))
    return rows_of(labels, known, "X", advice=NAME_ROWS)[0]


def _from_rows(
    labels: Any, table: pd.DataFrame | None, n_items: int, names: list[Any] | None, classes: Any, missing: Any
) -> Annotations:
    """Convert a matrix, or a wide ``table``, whose rows are the rows of X."""
    _refuse_sparse(labels)
    if hasattr(labels, "__array__") and not hasattr(labels, "__len__"):
        labels = np.asarray(labels)
    n_rows = len(labels) if hasattr(labels, "__len__") else None
    if n_rows != n_items:
        raise CrowdshotError(
            f"is {_type_of(labels)}" if n_rows is None else f"has {n_rows} rows",
            argument="labels",
            found=n_rows,
            expected=f"{n_items} rows as in X",
            hint=_advice_on_shape(labels, n_items),
        )
    ids = None if names is None else [os.fspath(x) if isinstance(x, PurePath) else x for x in names]
    annotators = None
    if table is not None and (ids is not None or not table.index.is_unique):
        ids, annotators = ids or list(range(n_items)), list(table.columns)
    return Annotations.from_matrix(labels, items=ids, annotators=annotators, classes=classes, missing=missing)


def _advice_on_shape(labels: Any, n_items: int) -> str | None:
    """Return advice about labels whose number of rows is not that of X."""
    shape = np.shape(labels) if isinstance(labels, np.ndarray | pd.DataFrame) else ()
    if len(shape) == 2 and shape[1] == n_items:
        return "Pass labels.T if its columns are the items."
    if len(shape) == 2 and shape[1] == len(Columns()):
        return "Rows of (item, annotator, label) are a DataFrame with these columns."
    return None


def _refuse_sparse(labels: Any) -> None:
    """Raise an error for sparse arrays and tensors, whose zeros would be missing labels or a class."""
    if hasattr(labels, "toarray") or getattr(labels, "is_sparse", False) or getattr(labels, "is_meta", False):
        raise CrowdshotError(
            f"is a sparse or empty {type(labels).__name__}", argument="labels", expected="an array with all labels"
        )


def _refuse_triples(labels: Any) -> None:
    """Raise an error for an array of whole numbers whose rows are probably (item, annotator, label)."""
    array = labels if isinstance(labels, np.ndarray) else np.array([])
    if array.ndim != 2 or array.shape[1] != len(Columns()) or array.dtype.kind not in "iu":
        return
    if ids_among([factorize(column)[0] for column in array.T]):
        raise CrowdshotError(
            "has three columns, of which two hardly repeat a pair of values, as in rows of (item, annotator, label)",
            argument="labels",
            found=array.shape,
            expected="a row for each item and a column for each annotator",
            hint="Use a DataFrame with the columns item, annotator and label,"
            " or Annotations.from_matrix(labels) if these are three annotators.",
        )


def _type_of(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def mark_of(missing: Any, classes: Ids) -> Any:
    """Return the mark of missing labels for further labels: None if ``missing``, or -1 for "auto", is a class."""
    mark = -1 if isinstance(missing, str) and missing == "auto" else missing
    return None if mark in classes.tolist() else mark


def row_by_row(index: pd.Index[Any], names: Sequence[Any] | None) -> bool:
    """Return whether a table's rows belong to X row by row: one of them has no names, or only numbers its rows."""
    if names is None or not index.is_unique:
        return True
    counted = any(list(ids) == list(range(len(ids))) for ids in (index, names))
    return counted and set(index) != set(names)


def _from_frame(labels: pd.DataFrame, classes: Iterable[Any] | None, missing: Any) -> Annotations:
    try:
        columns = find_columns(labels.columns)
    except CrowdshotError as error:
        free = {role: "NAME" for role in Columns._fields if len(matches(role, labels.columns)) != 1}
        used = [name for role in Columns._fields if role not in free for name in matches(role, labels.columns)]
        others = [name for name in labels.columns if name not in used]
        if len(free) == len(others) == 1:
            free = dict.fromkeys(free, others[0])
        hint = f"Name the columns with Annotations.from_frame(table, columns={free or {'item': 'NAME'}})"
        raise CrowdshotError(
            error.message,
            where="labels",
            found=error.found,
            expected=error.expected,
            hint=f"{hint}, or use Annotations.from_matrix(table) if each column has the labels of an annotator.",
        ) from None
    return Annotations.from_frame(labels, columns, classes=classes, missing=missing)


def rows_of(
    labels: Annotations,
    ids: Ids,
    source: str,
    what: str = "item",
    lost: Literal["refuse", "leave out"] = "refuse",
    advice: str | Use | None = None,
    folder: Path | None = None,
) -> tuple[Annotations, list[str]]:
    """Return the labels with the items ``ids``, in that order, and the labelled items that are not among them.

    Parameters
    ----------
    labels : Annotations
    ids : array
        Names of the items, with or without labels. Paths are matched by `match_files`; the returned annotations use
        the labels' names for them.
    source, what : str
        Names of the collection and of one item in it, for messages.
    lost : {"refuse", "leave out"}
        What to do with labels of other items. If no label has an item among ``ids``, that is always an error.
    advice : str or Use, optional
        A hint for the error message.
    folder : Path, optional
        Folder of the files, for tables that name them by a longer path.
    """
    files = all(isinstance(name, PurePath) for name in ids)
    row = match_files(labels.items, ids) if files else positions(ids, labels.items)
    if folder is not None:
        rest = row < 0
        row[rest] = match_files(labels.items[rest], [folder / name for name in ids])
    known = np.array([name.as_posix() for name in ids], dtype=object) if files else ids.copy()
    missing = row < 0
    if missing.any() and (missing.all() or lost == "refuse"):
        unknown = labels.items[first(missing)]
        if files:
            _refuse_shared_name(unknown, known, source)
        number = f"{missing.sum():,} of the {len(row):,} labelled items, first {show(unknown)}"
        instance = f" (it has {show(known[0])}, for instance)" if len(known) else ""
        raise CrowdshotError(
            f"has no {what} for {number}{instance}",
            where=source,
            found=unknown,
            expected="one for each",
            hint=None if missing.all() and files else advice,
        )
    matched, times = np.unique(row[~missing], return_counts=True)
    if (times > 1).any():
        file = matched[first(times > 1)]
        one, two = labels.items[row == file][:2]
        raise CrowdshotError(
            f"has {show(known[file])} for both {show(one)} and {show(two)}",
            where=source,
            found=[one, two],
            expected="one item for each image",
            hint=None if advice is None else Use("if they are the same image", file_names=True),
        )
    if files:
        known[row[~missing]] = labels.items[~missing]
    return labels.with_items(row, known), [str(name) for name in labels.items[missing]]


def named_like(ids: Iterable[Any], files: Sequence[PurePath] | Ids) -> Ids:
    """Return names for files in the style of the labels' ids.

    Names have no folder if no id has one, and no suffix if no id has one. Files that would share a name get their path.
    """
    words = [str(name).replace("\\", "/") for name in ids]
    paths = [file.as_posix() for file in files]
    if any("/" in word for word in words):
        return np.array(paths, dtype=object)
    suffixes = tuple({file.suffix.lower() for file in files} - {""})
    with_suffix = any(word.lower().endswith(suffixes) for word in words)
    bare = [file.name if with_suffix else file.stem for file in files]
    times = Counter(bare)
    return np.array([name if times[name] == 1 else path for name, path in zip(bare, paths, strict=True)], dtype=object)


def _refuse_shared_name(name: object, known: Ids, source: str) -> None:
    """Raise an error if several files have this name, which is then ambiguous rather than missing."""
    bare = PurePosixPath(str(name).replace("\\", "/")).name
    same = [show(other) for other in known if PurePosixPath(str(other)).name == bare]
    if len(same) > 1:
        raise CrowdshotError(
            f"has {same[0]} and {same[1]} for {show(name)}",
            where=source,
            found=name,
            expected="one",
            hint="Write the folder before the name.",
        )


def match_files(ids: Ids, files: Sequence[PurePath] | Ids) -> Positions:
    """Return the position of the file that each id names, -1 if there is none.

    These forms of a name are tried in order:

    1. the whole path;
    2. the last parts of a file's path (``a/7.png`` for ``photos/a/7.png``);
    3. the bare name, and the name without its suffix, on both sides;
    4. the same for the forms of `plainer`, which removes what label tools add;
    5. the name as Label Studio changes it on upload (`_uploaded`).

    Each form is compared exactly, then with accents composed (Unicode NFC). The first form that any file has decides.
    If several files share it, the id matches none of them.
    """
    meant = file_finder(files)
    return np.array([meant(str(name)) for name in ids], dtype=np.int64)


def file_finder(files: Sequence[PurePath] | Ids) -> Callable[[str], int]:
    """Return a function that matches one name as `match_files` does, for many calls."""
    spelled = _by_path(files)
    composed = _by_path([PurePath(_composed(str(file))) for file in files])

    def meant(name: str) -> int:
        paths = list(plainer(name))
        keys = [*(key for path in paths for key in _keys(path)), f"upload:{paths[-1].name}"]
        places = (place for key in keys for place in (spelled.get(key), composed.get(_composed(key))))
        return next((place for place in places if place is not None), -1)

    return meant


def _by_path(files: Sequence[PurePath] | Ids) -> dict[str, int]:
    """Return the position of the file for each form of a name, -1 for ambiguous forms."""
    by_path: dict[str, int] = {}
    for index, file in enumerate(files):
        parts = file.parts
        for start in range(len(parts)):
            _claim(by_path, "/".join(parts[start:]), index)
        _claim(by_path, f"stem:{file.stem}", index)
        _claim(by_path, f"upload:{_uploaded(file.name)}", index)
    for index, file in enumerate(files):
        by_path[file.as_posix()] = index
    return by_path


def _composed(name: str) -> str:
    """Compose letters and accents into one character; macOS stores file names decomposed."""
    return unicodedata.normalize("NFC", name)


def _keys(path: PurePosixPath) -> tuple[str, ...]:
    return path.as_posix(), path.name, f"stem:{path.name}", f"stem:{path.stem}"


def _uploaded(name: str) -> str:
    """Return the name that Label Studio gives to an uploaded file: ``my cat (1).jpg`` becomes ``my_cat_1.jpg``."""
    return re.sub(r"[^-\w.]", "", name.strip().replace(" ", "_"))


def _claim(table: dict[str, int], key: str, index: int) -> None:
    """Enter a file's name; a name that two files share maps to -1."""
    table[key] = index if table.get(key, index) == index else -1


# ---- further labels, items and annotators ----


def with_new_labels(
    old: Annotations, labels: Any, n_added: int, names: Iterable[Any] | None, missing: Any = "auto"
) -> Annotations:
    """Return old and new labels together, with old items first. A new label replaces the annotator's old one.

    Parameters
    ----------
    old : Annotations
    labels : array, list, DataFrame, dict or Annotations
        The new labels. A matrix has a row for each added item or, if none are added, for each old item. Labels that
        name their items may be about any item. Columns without names are the known annotators in their order.
    n_added : int
        Number of added items.
    names : iterable or None
        Ids of the added items. None: they are numbered on.
    missing : scalar
        Mark of a missing label, as in fit.
    """
    added = list(range(old.n_items, old.n_items + n_added)) if names is None else list(names)
    if len(added) != n_added:
        raise CrowdshotError(
            f"has {len(added)} ids", argument="items", found=len(added), expected=f"{n_added}, one for each row of X"
        )
    known = list(old.items)
    known_ids = set(known)
    repeated = next((name for name in added if name in known_ids), None)
    if repeated is not None:
        raise CrowdshotError(
            f"has item {show(repeated)}, which was fitted already",
            argument="X",
            found=repeated,
            expected="new items only",
        )
    if any(isinstance(name, PurePath) for name in added) and all(isinstance(name, str) for name in known):
        known = [PurePath(name) for name in known]  # labels may name files by the end of their path
    labels, table = _read_form(labels)
    named = isinstance(labels, Mapping | Annotations) or (isinstance(labels, pd.DataFrame) and table is None)
    about = [*known, *added] if named or not n_added else added
    new = annotations_of(labels, len(about), about, None, mark_of(missing, old.classes))
    if not named:
        new = _by_known_annotators(old, new)
    ids = [*old.items.tolist(), *new.items[len(about) - n_added :].tolist()]
    items = unique_ids(ids, "items")
    new = new.with_items(np.arange(len(items) - len(about), len(items)), items)
    frames = [part.to_frame().set_axis(list(old.columns), axis=1) for part in (old, new)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # repeated labels are expected in an update
        return Annotations.from_frame(
            pd.concat(frames, ignore_index=True),
            old.columns,
            items=items,
            annotators=dict.fromkeys([*old.annotators.tolist(), *new.annotators.tolist()]),
            classes=_merged_classes(old.classes, new.classes, labels),
        )


def _by_known_annotators(old: Annotations, new: Annotations) -> Annotations:
    """Return labels of a matrix with its numbered columns as the known annotators.

    Raises an error if the numbers of columns differ, or if named columns follow numbered annotators. If the known
    annotators are numbered themselves, further columns are new annotators.
    """
    R, width = old.n_annotators, new.n_annotators
    known, names = old.annotators.tolist(), new.annotators.tolist()
    if names == list(range(width)) and not set(range(min(R, width))) <= set(known):
        if width != R:
            columns = counted(width, "columns without names")
            raise CrowdshotError(
                f"has {columns}",
                argument="labels",
                found=width,
                expected=f"{R}, one for each of {listing(known, 3)}",
                hint="Name other annotators by the columns of a DataFrame.",
            )
        return replace(new, annotators=old.annotators)
    if known == list(range(R)) and width == R and not set(names) & set(known):
        raise CrowdshotError(
            f"has columns {listing(names, 3)}",
            argument="labels",
            found=names[:3],
            expected=f"{listing(known, 3)} as in fit",
            hint="labels.to_numpy() has the columns in this order; a table with a row for each label adds annotators.",
        )
    return new


def _merged_classes(old: Ids, new: Ids, labels: Any) -> Ids:
    """Return old and new classes in the order of an ordered dtype of the labels, if it keeps the order of the old ones.

    Otherwise they are sorted if the old ones are, else new ones come last.
    """
    classes = unique_ids(dict.fromkeys([*old.tolist(), *new.tolist()]), "classes")
    order = categories_order(labels, classes)
    if order is not None and (order[np.sort(positions(order, old))] == old).all():
        return order
    return ordered(classes) if (ordered(old) == old).all() else classes
