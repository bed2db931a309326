"""Convert ids of any kind (text, numbers, a mix) to positions 0, 1, 2, … and back, without loops over rows."""

import re
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, listing, show
from crowdshot.io.cells import Ids, trim

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
    index = as_index(values)
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


def as_index(values: Any) -> "pd.Index[Any]":
    if not isinstance(values, (np.ndarray, pd.Index, pd.Series)):
        values = list(values)
    return pd.Index(values, tupleize_cols=False)


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
