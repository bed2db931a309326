"""Files of feature vectors: the items' ids and what someone else's network made of them."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, shown
from crowdshot.io.archive_limits import check_parts
from crowdshot.io.cells import Ids
from crowdshot.io.tables import Table, ids_of, one_each, parse_table, read_bytes
from crowdshot.io.workbooks import ZIP, is_workbook

# ---- arrays ------------------------------------------------------------
#
# Arrays of an ``.npz`` file; nothing in it is ever unpickled.


Array = NDArray[Any]


def read_arrays(file: Path | bytes, wanted: Iterable[str], name: str = "") -> tuple[dict[str, Array], list[str]]:
    """Those of the ``wanted`` arrays that a file has, and the names of all that it has.

    ``file``: where it is, or what is in it; ``name`` is what messages call it, else its path.
    """
    called = name or (shown(file) if isinstance(file, Path) else "the file")
    try:
        with (
            BytesIO(file) if isinstance(file, bytes) else file.open("rb") as opened,
            np.load(opened, allow_pickle=False) as arrays,
        ):
            check_parts(called, arrays.zip, [f"{key}.npy" for key in wanted])
            return {key: _sound(arrays[key]) for key in wanted if key in arrays.files}, list(arrays.files)
    except FileNotFoundError:
        raise CrowdshotError(f"{called} does not exist, expected an .npz file.") from None
    except CrowdshotError:
        raise
    except Exception as error:  # damaged bytes make zipfile, its codecs and NumPy's parsers raise nearly anything
        if "allow_pickle" in str(error):
            raise CrowdshotError(f"{called} holds pickled objects, expected arrays of text or numbers.") from None
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CrowdshotError(f"{called} is damaged or of another kind ({reason}), expected an .npz file.") from None


def _sound(array: Any) -> Array:
    """What is no array, or holds characters that there are not, is refused here and not where it is used."""
    if not isinstance(array, np.ndarray):
        raise ValueError("a part of it is no array")
    if array.dtype.kind == "U" and array.size:
        codes = np.ascontiguousarray(array).reshape(-1).view(np.uint32 if array.dtype.isnative else ">u4")
        if codes.size and codes.max() > sys.maxunicode:
            raise ValueError("a text in it has characters that there are not")
    return array


# ---- features ------------------------------------------------------------


MAGIC = b"\x93NUMPY"


class FeatureFile(NamedTuple):
    ids: Ids
    """(N,) text as it was written ("007" stays "007")."""
    features: NDArray[np.float32] | pd.DataFrame
    """(N, D), finite, with the columns' names where no two are the same; or a table of numbers and words, with
    cells that are missing."""


def read_feature_file(
    path: str | os.PathLike[str], mixed: bool | None = False, wanted: Sequence[str] | None = None
) -> FeatureFile:
    """A table (CSV, Excel, JSON lines, Parquet) whose first column is the item's id and whose others are numbers, or an
    ``.npz`` with ``ids`` (N,) and ``features`` (N, D), or an ``.npy`` (N, D). Nothing in it is unpickled.

    ``mixed``: its columns may hold words, and cells may be missing; None: it is given as a table only where that is so.
    ``wanted``: the columns of a table that are read, in this order, whatever others hold; arrays have no names.
    """
    name = os.fspath(path)
    if is_array(path):
        return next(array_pieces(path))[0]
    data = read_bytes(path)
    is_npz = data.startswith(ZIP) and not is_workbook(data)
    return _from_npz(data, name) if is_npz else features_of(parse_table(data, name), mixed, wanted)


def features_of(
    table: Table, mixed: bool | None, wanted: Sequence[str] | None = None, repeated: bool = False
) -> FeatureFile:
    """As `read_feature_file`; ``repeated``: ids may be."""
    header = table.header
    if len(header) < 2:
        raise CrowdshotError(f"{table.name} has {len(header)} column, expected the item's id and one feature at least.")
    if len(table.frame) == 0:
        raise CrowdshotError(f"{table.name} has a header but no rows, expected a row for each item.")
    if _looks_like_data(header[1:]):
        found = ", ".join(header[1:3])
        raise CrowdshotError(f"{table.name}, row 1 holds numbers ({found}, …), expected the names of the columns.")
    ids = ids_of(table, 0) if repeated else one_each(table, 0)
    places = range(1, len(header)) if wanted is None else [_place(table, name) for name in wanted]
    columns = [_column(table, place, mixed) for place in places]
    names = [header[place] for place in places]
    plain = all(values.dtype == np.float64 and not np.isnan(values).any() for values in columns)
    if mixed or (mixed is None and not plain):
        return FeatureFile(ids, pd.concat([pd.Series(values) for values in columns], axis=1, keys=names))
    vectors = np.stack(columns, 1).astype(np.float32)
    return FeatureFile(ids, pd.DataFrame(vectors, columns=names) if len(set(names)) == len(names) else vectors)


def _place(table: Table, name: str) -> int:
    """Where the one column of this name stands, of those behind the item's id."""
    places = [place for place, called in enumerate(table.header) if called == name and place > 0]
    if len(places) != 1:
        times = "more than one" if places else "no"
        raise CrowdshotError(f"{table.name} has {times} column {name!r}, expected one, as in fit.")
    return places[0]


def _column(table: Table, column: int, mixed: bool | None) -> NDArray[Any]:
    """(N,) numbers or, in a mixed table, words; NaN and None where a cell is missing, which only there may be.

    Where it is not known what the table is, a column that is mostly numbers is one of numbers, and a word a mistake.
    """
    try:
        values = table.numbers(column)
    except CrowdshotError:
        words = table.text(column)
        n_numbers = (~np.isnan(table.parsed(words))).sum()
        if mixed is False or (mixed is None and n_numbers > (words != "").sum() / 2):
            raise
        return np.array([word or None for word in words], dtype=object)
    with np.errstate(over="ignore"):  # what is too large for float32 becomes infinite
        bad = np.isinf(values.astype(np.float32)) | (np.isnan(values) & (mixed is False))
    if bad.any():
        row = first(bad)
        found = "empty or NaN" if np.isnan(values[row]) else f"{values[row]:g}"
        raise CrowdshotError(f"{table.place(row, column)} is {found}, expected a finite number.")
    return values


def _looks_like_data(names: list[str]) -> bool:
    """Numbers where names should be; 0, 1, 2, … are what pandas calls columns without names."""
    if names == [str(i) for i in range(len(names))] or names == [str(i + 1) for i in range(len(names))]:
        return False
    return bool(pd.to_numeric(pd.Series(names), errors="coerce").notna().all())


def _from_npz(data: bytes, name: str) -> FeatureFile:
    arrays, there = read_arrays(data, ("ids", "features"), name)
    missing = [key for key in ("ids", "features") if key not in arrays]
    if missing:
        raise CrowdshotError(
            f"{name} has no array {missing[0]!r} among {', '.join(there) or 'none'}, expected 'ids' and 'features'."
        )
    ids, features = arrays["ids"], arrays["features"]
    if ids.ndim != 1 or features.ndim != 2 or len(ids) != len(features):
        raise CrowdshotError(f"{name} has ids {ids.shape} and features {features.shape}, expected (N,) and (N, D).")
    if ids.dtype.kind not in "UTSiu":
        raise CrowdshotError(f"{name} has ids of type {ids.dtype}, expected text or whole numbers.")
    ids = np.char.decode(ids, "utf-8", "backslashreplace") if ids.dtype.kind == "S" else ids
    vectors = _vectors(ids, features, name)
    table = Table(name, pd.DataFrame({"ids": ids.astype(object)}), np.arange(1, 1 + len(ids)))
    return FeatureFile(one_each(table, 0), vectors)


def _vectors(ids: NDArray[Any], features: NDArray[Any], name: str) -> NDArray[np.float32]:
    if features.size == 0:
        raise CrowdshotError(f"{name} has features {features.shape}, expected one item and one feature at least.")
    if features.dtype.kind not in "buif":
        raise CrowdshotError(f"{name} has features of type {features.dtype}, expected numbers.")
    with np.errstate(over="ignore"):
        vectors = features.astype(np.float32)
    bad = ~np.isfinite(vectors)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        raise CrowdshotError(
            f"{name}, item {str(ids[row])!r}, feature {column} is {vectors[row, column]:g}, expected a finite number."
        )
    return vectors


def is_array(path: str | os.PathLike[str]) -> bool:
    """Whether it is an ``.npy`` file, by its first bytes."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def array_pieces(path: str | os.PathLike[str], rows: int | None = None) -> Iterator[tuple[FeatureFile, int, int]]:
    """The vectors of an ``.npy`` file (N, D), so many at a time, and how far that is; items are called 0, 1, 2, …"""
    name = os.fspath(path)
    try:
        whole = np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CrowdshotError(f"{name} is damaged or holds objects ({reason}), expected an array of numbers.") from None
    if whole.ndim != 2 or whole.size == 0:
        raise CrowdshotError(f"{name} has an array of shape {whole.shape}, expected (N, D), a row for each item.")
    total, at_once = len(whole), rows or len(whole)
    for start in range(0, total, at_once):
        whole = np.load(path, mmap_mode="r", allow_pickle=False)  # anew, so that pages that were read are given back
        some = whole[start : start + at_once]
        ids = np.arange(start, start + len(some)).astype(str).astype(object)
        yield FeatureFile(ids, _vectors(ids, some, name)), start + len(some), total
