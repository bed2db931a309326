"""Which row of X each label speaks of."""

from __future__ import annotations

import functools
import inspect
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path, PurePath, PurePosixPath
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar
from urllib.parse import unquote

import numpy as np
import pandas as pd
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, show
from crowdshot.io.cells import Ids
from crowdshot.io.file_names import PICTURES, strings_in
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import find_columns
from crowdshot.labels.indexing import Positions, as_index, positions
from crowdshot.labels.label_values import warn_alphabetical_order
from crowdshot.labels.spelling import fold
from crowdshot.labels.wide_tables import wide_table

PREFIX = re.compile(r"^[0-9a-f]{8}-(?=.)")  # of Label Studio's uploads
UPLOADS = re.compile(r"(^|/)upload/\d+$")  # where these lie, by project
ADDED = re.compile(r"[?#%\\]|(^|/)[0-9a-f]{8}-|[.][A-Za-z]*[A-Z][A-Za-z]*$")  # what tells that a name could be plainer
MOST_COMPARED = 50_000  # items of several files, the first of each: where files differ in how they write them, all do
MOST_FOLDERS = 8  # that one file names before an item and another does not; a text may be an item, with any slashes
P = ParamSpec("P")
T = TypeVar("T")


def names_of(X: Any) -> list[Any] | None:
    """What X itself calls its items: the index of a table, if it names each row, or file paths; else None."""
    if isinstance(X, pd.DataFrame | pd.Series):
        return list(X.index) if X.index.is_unique else None
    if isinstance(X, list | tuple) and strings_in(X) == "paths":
        return [PurePath(x) for x in X]
    return None


def of_any_labels(function: Callable[Concatenate[Annotations, P], T]) -> Callable[Concatenate[Any, P], T]:
    """The function takes labels in any form that `CrowdClassifier.fit` does in the place of annotations."""
    signature = inspect.signature(function)

    @functools.wraps(function)
    def wrapped(ann: Any, *rest: P.args, **named: P.kwargs) -> T:
        annotations = as_annotations(ann)
        listed = isinstance(getattr(ann, "annotations", ann), Annotations)
        if not listed and signature.bind(annotations, *rest, **named).arguments.get("ordered"):
            warn_alphabetical_order(ann, annotations.classes, "classes= of Annotations.from_matrix")
        return function(annotations, *rest, **named)

    return wrapped  # type: ignore[return-value]  # whose first argument may be named, too


def as_annotations(labels: Any) -> Annotations:
    """An array or a list (N, R), a table of either kind, a dict of dicts, what `read_labels` gives, or annotations."""
    if not isinstance(labels, pd.DataFrame):  # which may have a column of that name
        labels = getattr(labels, "annotations", labels)
    if isinstance(labels, Annotations):
        return labels
    if isinstance(labels, dict):
        return Annotations.from_dict(labels)
    table = wide_table(labels) if isinstance(labels, pd.DataFrame | pd.Series) else None
    if table is None and isinstance(labels, pd.DataFrame):
        return Annotations.from_frame(labels)
    if table is None and (isinstance(labels, str | bytes) or not hasattr(labels, "__len__")):
        what = "None" if labels is None else f"a {type(labels).__name__}"
        raise CrowdshotError(f"labels is {what}, expected Annotations, an array or a table; read_labels reads a file.")
    return Annotations.from_matrix(labels if table is None else table)


def annotations_of(
    labels: Any, n_items: int, items: Iterable[Any] | None, classes: Iterable[Any] | None, missing: Any = -1
) -> Annotations:
    """Labels in any form, as annotations whose items are the rows of X in X's order.

    A matrix goes row by row, (N,) being one annotator's. In a table, a dict of dicts or `Annotations` an item is an id:
    one of ``items``, the name of a file where these are paths, or a position in X where there are none. A wide table
    (`wide.wide_table`) goes by its index where that and X name the items, else row by row.
    """
    names = None if items is None else list(items)
    if names is not None and len(names) != n_items:
        raise CrowdshotError(f"items has {len(names)} ids, expected {n_items}, one for each row of X.")
    table = wide_table(labels) if isinstance(labels, pd.DataFrame | pd.Series) else None
    if table is not None:
        by_row = row_by_row(table.index, names)
        labels = table if by_row else Annotations.from_matrix(table, classes=classes, missing=missing)
    elif isinstance(labels, pd.DataFrame):
        labels = _from_frame(labels, n_items, classes)
    elif isinstance(labels, dict):
        labels = Annotations.from_dict(labels, classes=classes)
    if hasattr(labels, "toarray") or getattr(labels, "is_sparse", False) or getattr(labels, "is_meta", False):
        raise CrowdshotError(f"labels is a sparse or empty {type(labels).__name__}, expected an array with all labels.")
    if not isinstance(labels, Annotations):
        if hasattr(labels, "__array__") and not hasattr(labels, "__len__"):
            labels = np.asarray(labels)
        n_rows = len(labels) if hasattr(labels, "__len__") else None
        if n_rows != n_items:
            what = "None" if labels is None else f"a {type(labels).__name__}"
            found = f"is {what}" if n_rows is None else f"has {n_rows} rows"
            raise CrowdshotError(f"labels {found}, expected {n_items} rows as in X.")
        plain = None if names is None else [os.fspath(x) if isinstance(x, PurePath) else x for x in names]
        if table is not None and (plain is not None or not table.index.is_unique):
            plain, annotators = plain or list(range(n_items)), list(table.columns)
            return Annotations.from_matrix(labels, items=plain, annotators=annotators, classes=classes, missing=missing)
        return Annotations.from_matrix(labels, items=plain, classes=classes, missing=missing)
    known = np.asarray(as_index(range(n_items) if names is None else names))
    return rows_of(labels, known, "X", advice="items= can name them")[0]


def mark_of(missing: Any, classes: Ids) -> Any:
    """What stands for no label in further labels: nothing but None and NaN where ``missing`` is one of the classes."""
    return None if missing in classes.tolist() else missing


def row_by_row(index: pd.Index[Any], names: Sequence[Any] | None) -> bool:
    """Whether rows of a table follow X: one of the two has no names, or merely counts what the other names."""
    if names is None or not index.is_unique:
        return True
    counted = any(list(ids) == list(range(len(ids))) for ids in (index, names))
    return counted and set(index) != set(names)


def _from_frame(labels: pd.DataFrame, n_items: int, classes: Iterable[Any] | None) -> Annotations:
    try:
        columns = find_columns(labels.columns)
    except CrowdshotError as error:
        wide = "; or labels.to_numpy(), if rows are the items of X and columns the annotators"
        hint = wide if len(labels) == n_items else ""
        raise CrowdshotError(f"{str(error).removesuffix('.')} in Annotations.from_frame{hint}.") from None
    return Annotations.from_frame(labels, columns, classes=classes)


def rows_of(
    labels: Annotations,
    ids: Ids,
    source: str,
    what: str = "item",
    lost: Literal["refuse", "leave out"] = "refuse",
    advice: str = "",
    folder: Path | None = None,
) -> tuple[Annotations, list[str]]:
    """The same labels, but about ``ids``, in that order, labelled or not; and the labelled items not found there.

    Ids that are paths mean files (`match_files`); what the labels call a file is its id from here on. Labels of items
    that are not there are an error or, if something else is found, may be left out. ``source`` and ``what`` say in
    messages where was looked for what. ``folder``: where the files lie, for tables that name them from further up.
    """
    files = all(isinstance(name, PurePath) for name in ids)
    row = match_files(labels.items, ids) if files else positions(ids, labels.items)
    if folder is not None:
        rest = row < 0
        row[rest] = match_files(labels.items[rest], [folder / name for name in ids])
    known = np.array([name.as_posix() for name in ids], dtype=object) if files else ids.copy()
    missing = row < 0
    if missing.any() and (missing.all() or lost == "refuse"):
        stranger = labels.items[first(missing)]
        if files:
            _refuse_shared_name(stranger, known, source)
        number = f"{missing.sum():,} of the {len(row):,} labelled items, first {show(stranger)}"
        instance = f" (it has {show(known[0])}, for instance)" if len(known) else ""
        hint = f"; {advice}" if advice and not (missing.all() and files) else ""
        raise CrowdshotError(f"{source} has no {what} for {number}{instance}, expected one for each{hint}.")
    taken, times = np.unique(row[~missing], return_counts=True)
    if (times > 1).any():
        file = taken[first(times > 1)]
        one, two = labels.items[row == file][:2]
        raise CrowdshotError(
            f"{source} has {show(known[file])} for both {show(one)} and {show(two)}, expected one item an image."
        )
    if files:
        known[row[~missing]] = labels.items[~missing]
    return labels.with_items(row, known), [str(name) for name in labels.items[missing]]


def named_like(ids: Iterable[Any], files: Sequence[PurePath] | Ids) -> Ids:
    """What files are called in the manner of the labels' own ids: by their names where no id has a folder.

    Without suffix where no id has one. A name that several files share is told apart by the path.
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
    """An image that several files are called by is not missing."""
    bare = PurePosixPath(str(name).replace("\\", "/")).name
    same = [show(other) for other in known if PurePosixPath(str(other)).name == bare]
    if len(same) > 1:
        raise CrowdshotError(
            f"{source} has {same[0]} and {same[1]} for {show(name)}, expected one; write the folder before the name."
        )


def match_files(ids: Ids, files: Sequence[PurePath] | Ids) -> Positions:
    """The file that each id means, -1 where there is none.

    Tried in this order: the whole path, its last parts (``a/7.png`` for ``photos/a/7.png``), then the bare name and
    the name without its suffix, on both sides (label tools put folders and addresses before a file's name); then the
    same without what else they add, see `_plainer`; then the name as Label Studio writes an upload's, see `_uploaded`;
    of each the very spelling, then the one with accents in one piece with their letters, from which some systems
    part them. The first that is some file's decides, and if several files share it, it means none of them.
    """
    meant = file_finder(files)
    return np.array([meant(str(name)) for name in ids], dtype=np.int64)


def file_finder(files: Sequence[PurePath] | Ids) -> Callable[[str], int]:
    """`match_files` for whoever asks again and again."""
    spelled = _by_path(files)
    composed = _by_path([PurePath(_composed(str(file))) for file in files])

    def meant(name: str) -> int:
        paths = list(_plainer(name))
        keys = [*(key for path in paths for key in _keys(path)), f"upload:{paths[-1].name}"]
        places = (place for key in keys for place in (spelled.get(key), composed.get(_composed(key))))
        return next((place for place in places if place is not None), -1)

    return meant


def _by_path(files: Sequence[PurePath] | Ids) -> dict[str, int]:
    """All that a file may be called -> its position, -1 where several are called so."""
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
    """é as one character, where it is an e with an accent put over it, as macOS writes it."""
    return unicodedata.normalize("NFC", name)


def _keys(path: PurePosixPath) -> tuple[str, ...]:
    return path.as_posix(), path.name, f"stem:{path.name}", f"stem:{path.stem}"


def _plainer(name: str) -> Iterator[PurePosixPath]:
    """The path as it stands; as an address without its query; and that without Label Studio's upload prefix.

    ``/data/local-files/?d=photos/my%20cat.jpg`` and ``https://host/my%20cat.jpg?key=…`` both mean ``my cat.jpg``, and
    so does ``/data/upload/3/3f2a1b9c-my cat.jpg``.
    """
    yield PurePosixPath(name.replace("\\", "/"))
    address = PurePosixPath(_address(name))
    yield address
    yield address.with_name(PREFIX.sub("", address.name)) if address.name else address


def _address(name: str) -> str:
    """The path without a query, or the one in it that is called d."""
    path = name.rpartition("?d=")[2].partition("?")[0].partition("#")[0]
    return unquote(path).replace("\\", "/")


def same_files(names: Iterable[str]) -> list[list[str]]:
    """Groups of names that may mean one picture: alike but for what `_plainer` takes away and the case of the ending.

    Of names in different folders nothing is said, nor of bare numbers, nor where the query alone tells items apart.
    """
    names = list(names)
    if not any(map(ADDED.search, names)):
        return []
    file, meant = pd.factorize(np.array([_file_meant(name) for name in names], dtype=object))
    shared = (np.bincount(file) > 1) & (meant != "")
    groups: dict[int, list[str]] = {}
    for place in np.flatnonzero(shared[file]).tolist():
        groups.setdefault(file[place], []).append(names[place])
    return [group for group in groups.values() if len(group) <= max(2, len(meant))]


def named_otherwise(files: Sequence[Ids]) -> list[list[str]]:
    """Groups of items that may be one, of labels' files that have no item in common, nor with others between them.

    ``IMG_1.jpg`` in one, ``img_1.jpg`` in another and ``photos/IMG_1.jpg`` in a third; 1 and 1.0.
    """
    item, names = pd.factorize(np.concatenate(files))
    file = np.repeat(np.arange(len(files)), [len(items) for items in files])
    n = len(names) + len(files)
    links = coo_array((np.ones(len(item)), (item, len(names) + file)), shape=(n, n))
    lots, lot = connected_components(links, directed=False)
    if lots == 1:
        return []
    among = pd.Series(lot[: len(names)]).groupby(lot[: len(names)]).cumcount()  # where an item stands in its lot
    called: dict[int, str] = {}
    by_tail: dict[str, list[int]] = {}  # items by the last parts of their paths
    for place in np.flatnonzero(among < max(1, MOST_COMPARED // lots)).tolist():
        called[place] = fold(str(names[place]).replace("\\", "/"))
        parts = called[place].rsplit("/", MOST_FOLDERS)
        for start in range(len(parts)):
            by_tail.setdefault("/".join(parts[start:]), []).append(place)
    groups = (by_tail[path] for path in dict.fromkeys(called.values()))
    return [[str(names[place]) for place in group] for group in groups if len({lot[place] for place in group}) > 1]


def _file_meant(name: str) -> str:
    """What names of one picture, or of one file at an address, have in common; "" for all others."""
    folder, _, file = _address(name).rpartition("/")
    uploaded = PREFIX.match(file) is not None and not file[:8].isdigit()  # 20260304-cat.png has a date
    stem, _, ending = (file[9:] if uploaded else file).rpartition(".")
    is_file = bool(stem) and (f".{ending.lower()}" in PICTURES or "://" in name[:10])
    if not is_file or stem.isdigit():
        return ""
    return f"{'' if uploaded and UPLOADS.search(folder) else folder}/{stem}.{ending.lower()}"


def _uploaded(name: str) -> str:
    """What Label Studio makes of an uploaded file's name: ``my cat (1).jpg`` becomes ``my_cat_1.jpg``."""
    return re.sub(r"[^-\w.]", "", name.strip().replace(" ", "_"))


def _claim(table: dict[str, int], key: str, index: int) -> None:
    """A name that two files share belongs to neither."""
    table[key] = index if table.get(key, index) == index else -1
