"""Read feature vectors with item ids from tables, ``.npz`` and ``.npy`` files. Nothing is unpickled."""

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
from crowdshot.formatting import first, first_line, shown
from crowdshot.io.archive_limits import ZIP, check_parts
from crowdshot.io.cells import Ids
from crowdshot.io.tables import Table, ids_of, one_each, parse_table, read_bytes

MAGIC = b"\x93NUMPY"
NUMBERS = "buif"  # kinds of data types
Array = NDArray[Any]


def read_arrays(file: Path | bytes, wanted: Iterable[str], name: str = "") -> tuple[dict[str, Array], list[str]]:
    """Read arrays from an ``.npz`` file.

    Parameters
    ----------
    file : Path or bytes
        The path or the content.
    wanted : iterable of str
        Names of the arrays to read; those that the file does not have are skipped.
    name : str, optional
        Name of the file in messages, by default its path.

    Returns
    -------
    arrays : dict
        Name -> array.
    names : list of str
        The names of all arrays in the file.
    """
    where = name or (shown(file) if isinstance(file, Path) else "the file")
    try:
        with (
            BytesIO(file) if isinstance(file, bytes) else file.open("rb") as opened,
            np.load(opened, allow_pickle=False) as arrays,
        ):
            check_parts(where, arrays.zip, [f"{key}.npy" for key in wanted])
            return {key: _checked(arrays[key]) for key in wanted if key in arrays.files}, list(arrays.files)
    except FileNotFoundError:
        raise CrowdshotError("does not exist", where=where, expected="an .npz file") from None
    except CrowdshotError:
        raise
    except Exception as error:  # damaged bytes make zipfile, its codecs and NumPy's parsers raise nearly anything
        if "allow_pickle" in str(error):
            raise CrowdshotError(
                "holds pickled objects, which are not read for safety",
                where=where,
                expected="arrays of text or numbers",
            ) from None
        reason = first_line(error) or type(error).__name__
        raise CrowdshotError(
            f"is damaged or of another kind ({reason})", where=where, expected="an .npz file"
        ) from None


def _checked(array: Any) -> Array:
    """Refuse members that are not arrays, and text with invalid code points, which would fail only later."""
    if not isinstance(array, np.ndarray):
        raise ValueError("a member is not an array")
    if array.dtype.itemsize == 0 and array.size:  # without a byte in the file, its shape may be anything
        raise ValueError("its values have no content")
    if array.dtype.kind == "U" and array.size:
        codes = np.ascontiguousarray(array).reshape(-1).view(np.uint32 if array.dtype.isnative else ">u4")
        if codes.size and codes.max() > sys.maxunicode:
            raise ValueError("a text has invalid characters")
    return array


class FeatureFile(NamedTuple):
    """Items with their features.

    Attributes
    ----------
    ids : (N,) array
        Text as it is in the file ("007" stays "007").
    features : (N, D) array or DataFrame
        Finite numbers, as a DataFrame if the column names are unique; or a mixed table of numbers and words that may
        have missing cells.
    """

    ids: Ids
    features: NDArray[np.float32] | pd.DataFrame


def read_feature_file(
    path: str | os.PathLike[str], mixed: bool | None = False, wanted: Sequence[str] | None = None
) -> FeatureFile:
    """Read item ids and feature vectors.

    Parameters
    ----------
    path : path-like
        A table (CSV, Excel, JSON lines, Parquet) with the item's id in the first column and features in the others, an
        ``.npz`` file with ``ids`` (N,) and ``features`` (N, D), or an ``.npy`` file (N, D).
    mixed : bool or None
        Whether columns may hold words and cells may be missing. None detects it from the content.
    wanted : sequence of str, optional
        The columns of a table to read, in this order. Arrays have no column names.

    Returns
    -------
    FeatureFile
    """
    name = os.fspath(path)
    if is_array(path):
        return next(array_pieces(path))[0]
    data = read_bytes(path)
    return _from_npz(data, name) if _is_npz(data) else features_of(parse_table(data, name), mixed, wanted)


def features_of(
    table: Table, mixed: bool | None, wanted: Sequence[str] | None = None, repeated: bool = False
) -> FeatureFile:
    """Convert a table as `read_feature_file` does; ``repeated`` allows repeated ids."""
    header = table.header
    if len(header) < 2:
        raise CrowdshotError(
            f"has {len(header)} column", where=table.name, expected="the item's id and one feature at least"
        )
    if len(table.frame) == 0:
        raise CrowdshotError("has a header but no rows", where=table.name, expected="a row for each item")
    if _looks_like_data(header[1:]):
        raise CrowdshotError(
            f"holds numbers ({', '.join(header[1:3])}, …)",
            where=f"{table.name}, row 1",
            found=header[1:3],
            expected="the names of the columns",
        )
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
    """Return the position of a feature column."""
    places = [place for place, header in enumerate(table.header) if header == name and place > 0]
    if len(places) != 1:
        number = "more than one" if places else "no"
        raise CrowdshotError(
            f"has {number} column {name!r}", where=table.name, found=len(places), expected="one, as in fit"
        )
    return places[0]


def _column(table: Table, column: int, mixed: bool | None) -> NDArray[Any]:
    """Return a feature column (N,) as numbers (NaN where missing) or, in a mixed table, as words (None where missing).

    If ``mixed`` is None, a word in a column that is mostly numbers is an error.
    """
    try:
        values = table.numbers(column)
    except CrowdshotError:
        words = table.text(column)
        n_numbers = (~np.isnan(table.parsed(words))).sum()
        if mixed is False or (mixed is None and n_numbers > (words != "").sum() / 2):
            raise
        return np.array([word or None for word in words], dtype=object)
    with np.errstate(over="ignore"):  # numbers too large for float32 become infinite
        bad = np.isinf(values.astype(np.float32)) | (np.isnan(values) & (mixed is False))
    if bad.any():
        row = first(bad)
        problem = "is empty or NaN" if np.isnan(values[row]) else f"is {values[row]:g}"
        raise CrowdshotError(
            problem, where=table.place(row, column), found=float(values[row]), expected="a finite number"
        )
    return values


def _looks_like_data(names: list[str]) -> bool:
    """Return whether the header holds numbers, except 0, 1, 2, …, which pandas writes for columns without names."""
    if names == [str(i) for i in range(len(names))] or names == [str(i + 1) for i in range(len(names))]:
        return False
    return bool(pd.to_numeric(pd.Series(names), errors="coerce").notna().all())


def _is_npz(data: bytes) -> bool:
    if not data.startswith(ZIP):
        return False
    from crowdshot.io.workbooks import is_workbook

    return not is_workbook(data)


def _from_npz(data: bytes, name: str) -> FeatureFile:
    arrays, names = read_arrays(data, ("ids", "features"), name)
    missing = [key for key in ("ids", "features") if key not in arrays]
    if missing:
        raise CrowdshotError(
            f"has no array {missing[0]!r} among {', '.join(names) or 'none'}",
            where=name,
            found=names,
            expected="'ids' and 'features'",
        )
    ids, features = arrays["ids"], arrays["features"]
    if ids.ndim != 1 or features.ndim != 2 or len(ids) != len(features):
        raise CrowdshotError(
            f"has ids of shape {ids.shape} and features of shape {features.shape}",
            where=name,
            found=(ids.shape, features.shape),
            expected="(N,) and (N, D)",
        )
    if ids.dtype.kind not in "UTSiu":
        raise CrowdshotError(
            f"has ids of type {ids.dtype}", where=name, found=str(ids.dtype), expected="text or whole numbers"
        )
    ids = np.char.decode(ids, "utf-8", "backslashreplace") if ids.dtype.kind == "S" else ids
    vectors = _vectors(ids, features, name)
    table = Table(name, pd.DataFrame({"ids": ids.astype(object)}), np.arange(1, 1 + len(ids)))
    return FeatureFile(one_each(table, 0), vectors)


def _vectors(ids: NDArray[Any], features: NDArray[Any], name: str) -> NDArray[np.float32]:
    if features.size == 0:
        raise CrowdshotError(
            f"has features of shape {features.shape}",
            where=name,
            found=features.shape,
            expected="one item and one feature at least",
        )
    _check_type(features, name)
    with np.errstate(over="ignore"):
        vectors = features.astype(np.float32)
    bad = ~np.isfinite(vectors)
    if bad.any():
        row, column = np.argwhere(bad)[0]
        value = float(vectors[row, column])
        raise CrowdshotError(
            f"is {value:g}",
            where=f"{name}, item {str(ids[row])!r}, feature {column}",
            found=value,
            expected="a finite number",
        )
    return vectors


def _check_type(features: NDArray[Any], name: str) -> None:
    if features.dtype.kind not in NUMBERS:
        raise CrowdshotError(
            f"has features of type {features.dtype}", where=name, found=str(features.dtype), expected="numbers"
        )


def is_array(path: str | os.PathLike[str]) -> bool:
    """Return whether the first bytes are those of an ``.npy`` file."""
    try:
        with open(path, "rb") as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def array_pieces(path: str | os.PathLike[str], rows: int | None = None) -> Iterator[tuple[FeatureFile, int, int]]:
    """Yield the vectors of an ``.npy`` file (N, D) in batches; item ids are "0", "1", "2", …

    Parameters
    ----------
    path : path-like
    rows : int, optional
        Rows per batch, by default all.

    Yields
    ------
    features : FeatureFile
    done, total : int
        Rows read so far, and in the file.
    """
    name = os.fspath(path)
    try:
        whole = np.load(path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # NumPy parses the header as Python code, whose parser raises errors of many types
        reason = first_line(error) or type(error).__name__
        raise CrowdshotError(
            f"is damaged or holds objects ({reason})", where=name, expected="an array of numbers"
        ) from None
    if whole.ndim != 2 or whole.size == 0:
        raise CrowdshotError(
            f"has an array of shape {whole.shape}",
            where=name,
            found=whole.shape,
            expected="(N, D), a row for each item",
        )
    _check_type(whole, name)  # before rows are read: the header may claim any number of them
    total, at_once = len(whole), rows or len(whole)
    for start in range(0, total, at_once):
        whole = np.load(path, mmap_mode="r", allow_pickle=False)  # mapped again to release the pages read so far
        batch = whole[start : start + at_once]
        ids = np.arange(start, start + len(batch)).astype(str).astype(object)
        yield FeatureFile(ids, _vectors(ids, batch, name)), start + len(batch), total
