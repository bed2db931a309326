"""Convert cells of tables to text and ids to positions, and escape cells that a spreadsheet would run as formulas."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, listing, show

if TYPE_CHECKING:
    import pandas as pd

Ids = NDArray[Any]
"""(n,) text, numbers or a mix of them."""
EXACT = 2**53  # largest whole number up to which a float has them all
UNSEEN = "\u200b\u200c\u200d\u2060\ufeff"  # zero-width spaces, joiners and byte order marks, which copying may leave
AROUND = "".join(filter(str.isspace, map(chr, range(0x3001)))) + UNSEEN


def trim(word: str) -> str:
    """Return the word without spaces and invisible characters at its ends.

    Invisible characters inside a word stay: they may join the parts of an emoji.
    """
    return word.strip(AROUND)


def fold(name: str) -> str:
    """Return a key that is equal for names that differ only in case, spaces or width; 7.0 equals 7."""
    return as_whole(unicodedata.normalize("NFKC", " ".join(name.split())).casefold())


def as_whole(label: str) -> str:
    """Return a whole number such as 7.0 without its decimals; other labels stay unchanged."""
    return re.sub(r"^(-?\d+)\.0*$", r"\1", label)


def text(value: Any) -> str | None:
    """Return text, a number or a date as trimmed text, "" for a missing value, None for any other type.

    A float such as 7.0 becomes "7", because a missing value in the same column turns integers into floats. A float
    above 2^53 keeps its exponent, because the last digits of such an integer are lost.
    """
    if isinstance(value, str):
        return trim(value)
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    if isinstance(value, float | np.floating) and value != value:  # NaN differs from itself
        return ""
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, float | np.floating):
        return str(int(value)) if value.is_integer() and abs(float(value)) <= EXACT else str(value)
    return str(value) if isinstance(value, int | np.integer | date) else None


# ---- formulas, such as =1+1, escaped with an apostrophe ----

# Of full width too, and after a tab. It includes escaped cells, so that escaping and unescaping are inverse.
FORMULA = re.compile("'*[=+\\-@\t\r\uff1d\uff0b\uff0d\uff20]")
_excel_safe: ContextVar[bool] = ContextVar("excel_safe", default=False)


@contextmanager
def excel_safe() -> Iterator[None]:
    """Write all tables in the block with escaped formulas, and unescape those that are read as text or workbooks."""
    token = _excel_safe.set(True)
    try:
        yield
    finally:
        _excel_safe.reset(token)


def stay_excel_safe(on: bool) -> None:
    """Set `excel_safe` for the rest of a child process."""
    _excel_safe.set(on)


def guarded(table: pd.DataFrame) -> pd.DataFrame:
    """Escape text cells and column names, if `excel_safe` is active."""
    return _each_text(table, lambda cell: f"'{cell}" if FORMULA.match(cell) else cell)


def unguarded(table: pd.DataFrame) -> pd.DataFrame:
    """Undo `guarded`, if `excel_safe` is active."""
    return _each_text(table, lambda cell: cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell)


def _each_text(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    if not _excel_safe.get():
        return table

    def changed(cell: Any) -> Any:
        return change(cell) if isinstance(cell, str) else cell

    numbers = "biufc"
    columns = [
        column if column.dtype.kind in numbers else column.map(changed).astype(column.dtype)
        for _, column in table.items()  # by position, because names may be repeated
    ]
    return type(table)(dict(enumerate(columns)), index=table.index).set_axis(list(map(changed, table.columns)), axis=1)


# ---- ids of any kind (text, numbers, a mix) and their positions 0, 1, 2, … ----

SURROGATE = re.compile("[\ud800-\udfff]")
WHOLE_NUMBER = re.compile(r"-?[0-9]{1,18}")
Positions = NDArray[np.int64]


def positions(ids: Ids, wanted: Iterable[Any]) -> Positions:
    """Return the position of each wanted id in ``ids``, which are unique; -1 if it is not there."""
    return np.asarray(as_index(ids).get_indexer(as_index(wanted)), dtype=np.int64)


def factorize(values: Any) -> tuple[Positions, Ids]:
    """Return the positions (L,) of values among the distinct ones, and the distinct ones in order of appearance.

    NaN, None, NaT and blank text are missing; their position is -1.
    """
    try:
        position, distinct = pd.factorize(values)
    except TypeError:
        odd = next(value for value in values if value.__hash__ is None)
        raise CrowdshotError(
            f"has a {type(odd).__name__} as a label", argument="labels", found=odd, expected="names or numbers"
        ) from None
    found = _plain(distinct)
    position = np.asarray(position, dtype=np.int64)
    if found.dtype != object:
        return position, found
    return without(position, found, np.array([isinstance(v, str) and not trim(v) for v in found], dtype=bool))


def trimmed(position: Positions, ids: Ids) -> tuple[Positions, Ids]:
    """Remove spaces around ids that are text; ids that become equal are merged."""
    if ids.dtype != object or all(trim(name) == name for name in ids if isinstance(name, str)):
        return position, ids
    code, distinct = factorize(np.array([trim(name) if isinstance(name, str) else name for name in ids], dtype=object))
    return np.append(code, -1)[position], distinct


def without(position: Positions, ids: Ids, unwanted: NDArray[np.bool_]) -> tuple[Positions, Ids]:
    """Remove the unwanted ids; their positions become -1, and the other positions are renumbered."""
    if not unwanted.any():
        return position, ids
    moved = np.append(np.where(unwanted, -1, np.cumsum(~unwanted) - 1), -1)  # the last entry serves position -1
    return moved[position], ids[~unwanted]


def arrange(
    position: Positions, found: Ids, listed: Iterable[Any], argument: str, where: Callable[[int], str]
) -> tuple[Positions, Ids]:
    """Convert positions in ``found`` to positions in the ids that ``argument`` listed; ``where(row)`` names a cell."""
    ids = unique_ids(listed, argument)
    place = positions(ids, found)
    if (place < 0).any():
        row = first(place[position] < 0)
        unknown = found[position[row]]
        raise CrowdshotError(
            f"is {show(unknown)}, which {argument} does not list",
            where=where(row),
            found=unknown,
            expected=f"one of {listing(ids)}",
        )
    return place[position], ids


def unique_ids(values: Iterable[Any], argument: str, size: int | None = None) -> Ids:
    """Return ids as an array; raise an error if one is missing or repeated, or if their number is not ``size``."""
    index = as_index(values, argument)
    if index.hasnans:
        raise CrowdshotError(f"has no value at position {first(index.isna()) + 1}", argument=argument, expected="an id")
    if not index.is_unique:
        repeated = index[first(index.duplicated())]
        raise CrowdshotError(
            f"lists {show(repeated)} more than once", argument=argument, found=repeated, expected="different ids"
        )
    if size is not None and len(index) != size:
        raise CrowdshotError(f"lists {len(index)} ids", argument=argument, found=len(index), expected=str(size))
    return _plain(index)


def ordered(ids: Ids) -> Ids:
    """Return ids in order: whole numbers in text by value, ids that cannot be compared by type and then as text."""
    if ids.dtype == object and all(isinstance(name, str) and WHOLE_NUMBER.fullmatch(name) for name in ids):
        return ids[sorted(range(len(ids)), key=lambda i: (int(ids[i]), ids[i]))]
    try:
        return np.sort(ids)
    except TypeError:
        order = sorted(range(len(ids)), key=lambda i: (type(ids[i]).__name__, str(ids[i])))
        return ids[order]


def as_index(values: Any, argument: str = "ids") -> pd.Index[Any]:
    if not isinstance(values, (np.ndarray, pd.Index, pd.Series)):
        values = list(values)
    try:
        return pd.Index(values, tupleize_cols=False)
    except UnicodeEncodeError:
        check_text(argument, values)
        raise


def check_text(argument: str, ids: Iterable[Any]) -> None:
    """Refuse unpaired surrogates, which no table and no file can hold."""
    try:
        "".join(map(str, ids)).encode()
    except UnicodeEncodeError:
        odd = next(name for name in map(str, ids) if SURROGATE.search(name))
        raise CrowdshotError(
            f"has {odd!r}, with half a character (an unpaired surrogate)", argument=argument, found=odd, expected="text"
        ) from None


def _plain(index: Any) -> Ids:
    """Return ids as an array: text and mixtures as objects, floats that are whole numbers as integers."""
    values: Ids = np.asarray(index)
    if values.dtype.kind in "US":
        values = values.astype(object)
    if values.dtype == object:
        kinds = {"integer": np.int64, "floating": np.float64, "mixed-integer-float": np.float64, "boolean": np.bool_}
        kind = kinds.get(pd.api.types.infer_dtype(values, skipna=False))
        values = values if kind is None else values.astype(kind)
    if values.dtype.kind == "f" and (np.abs(values) < 2**53).all() and (values == np.floor(values)).all():
        values = values.astype(np.int64)
    return values
