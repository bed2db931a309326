"""Encode tables with columns of several kinds: numbers, dates, categories and missing cells.

The features are those of scikit-learn's ColumnTransformer with these transformers:

    numbers     SimpleImputer(strategy="mean", add_indicator=True), then StandardScaler for the numbers themselves;
                dates are numbers of days
    categories  OneHotEncoder(min_frequency=2, max_categories=21, handle_unknown="infrequent_if_exist"),
                where a missing cell is a category

The learned means and category names are kept in the card of a saved file; nothing is pickled.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.shipped import describe_input
from crowdshot.errors import CrowdshotError, CrowdshotWarning
from crowdshot.formatting import described, first, listing, plural
from crowdshot.io.cells import fold, text

MOST = 20  # categories of a column that get a feature, the most frequent; all others share one
RECURS = 0.5  # of the rows; a column with more distinct words than this (and than MOST) is left out
FEWEST_NEW = 5  # cells; with fewer, no warning that all their categories are new
MISSING = ""
DATES = {  # unambiguous ways to write dates -> their format for pandas
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?": "ISO8601",
    r"\d{1,2}\.\d{1,2}\.\d{4}": "%d.%m.%Y",
}

Column = dict[str, Any]
"""``name``; for numbers ``mean``, ``std`` and whether cells were ``missing``; for categories their ``values`` and
whether there are ``others``."""


def is_mixed(X: Any) -> bool:
    """Return whether X is a DataFrame with words, dates or missing cells."""
    if not isinstance(X, pd.DataFrame):
        return False
    columns = (_plain_numbers(X.iloc[:, place]) for place in range(X.shape[1]))
    return any(numbers is None or np.isnan(numbers).any() for numbers in columns)


@dataclass(frozen=True)
class TableInput:
    """A DataFrame with these columns in any order as the input of an encoder; other columns are ignored."""

    kind: ClassVar[str] = "features"
    columns: tuple[str, ...]

    def batches(self, X: Any, batch_size: int, bad: list[Any] | None = None) -> Iterator[pd.DataFrame]:
        if not isinstance(X, pd.DataFrame):
            raise CrowdshotError(
                f"is {described(X)}", argument="X", expected=f"{self.describe()}, which this encoder was made for"
            )
        X = _named(X)
        absent = [name for name in self.columns if list(X.columns).count(name) != 1]
        if absent:
            times = "more than one" if absent[0] in X.columns else "no"
            raise CrowdshotError(
                f"has {times} column {absent[0]!r}", argument="X", found=absent[0], expected="one, as in fit"
            )
        wanted = X[list(self.columns)]
        return (wanted.iloc[start : start + batch_size] for start in range(0, len(wanted), batch_size))

    def blank(self) -> pd.DataFrame:
        return pd.DataFrame({name: [None] for name in self.columns}, dtype=object)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "table", "columns": list(self.columns)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TableInput:
        return cls(tuple(data["columns"]))

    def describe(self) -> str:
        return describe_input(self.to_dict())


class TableNetwork(nn.Module):
    """Maps a DataFrame to (n, D): standardised numbers, 0 and an indicator for missing ones, one-hot categories."""

    columns: list[Column]

    def __init__(self, columns: Sequence[Column] = ()) -> None:
        super().__init__()
        self.columns = list(columns)

    def forward(self, table: pd.DataFrame) -> Tensor:
        parts = [_encoded(table[column["name"]], column) for column in self.columns]
        return torch.from_numpy(np.concatenate(parts, 1).astype(np.float32))


def learn_table_encoder(X: Any) -> Encoder:
    """Return an encoder for tables like the DataFrame X."""
    if not isinstance(X, pd.DataFrame):
        raise CrowdshotError(
            f"is {described(X)}", argument="X", expected="a DataFrame, which the encoder 'table' needs"
        )
    X = _named(X)
    names = X.columns.tolist()
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CrowdshotError(
            f"has more than one column {twice!r}", argument="X", found=twice, expected="distinct names"
        )
    columns: list[Column] = []
    left_out: list[str] = []
    for name in X.columns:
        column = _learn_column(X[name], name)
        if column is None:
            left_out.append(name)
        else:
            columns.append(column)
    words = next((name for name in left_out if X[name].map(lambda cell: isinstance(cell, str)).any()), None)
    if not columns:
        raise CrowdshotError(
            f"has no informative column among {listing(names)}",
            argument="X",
            found=names[:10],
            expected="one column at least whose values differ and recur",
            hint=f"If the column {words!r} has texts or files, pass it by itself instead of a table."
            if words
            else None,
        )
    if left_out:
        warnings.warn(
            CrowdshotWarning(
                f"has columns whose cells are constant or hardly ever recur, which are left out: {listing(left_out)}",
                argument="X",
                found=left_out[:10],
            ),
            stacklevel=2,
        )
    n_numbers = sum("mean" in column for column in columns)
    about = f"a table with {plural(n_numbers, 'column')} of numbers and {len(columns) - n_numbers:,} of categories"
    card = {
        "about": about + (f"; left out: {', '.join(left_out)}" if left_out else ""),
        "left_out": left_out,
    }
    spec = TableInput(tuple(column["name"] for column in columns))
    return Encoder(TableNetwork(columns), "table", {"columns": columns}, spec, card, name="table")


def _named(X: pd.DataFrame) -> pd.DataFrame:
    """Return the table with texts as column names; pandas numbers unnamed columns."""
    return X.set_axis([str(name) for name in X.columns], axis=1)


def _learn_column(cells: pd.Series, name: str) -> Column | None:
    """Return the encoding of a column; None if it is left_out."""
    numbers = _finite(_numbers(cells), name)
    if numbers is not None:
        known = numbers[~np.isnan(numbers)]
        if len(known) == 0 or (known.std() == 0 and len(known) == len(numbers)):
            return None
        std = float(known.std()) or 1.0
        return {"name": name, "mean": float(known.mean()), "std": std, "missing": len(known) < len(numbers)}
    values, counts = np.unique(_words(cells, name), return_counts=True)
    if len(values) < 2 or len(values) > max(MOST, RECURS * len(cells)):
        return None
    frequent = sorted(zip(-counts, values, strict=True))[:MOST]
    kept = sorted(str(value) for count, value in frequent if count < -1)
    return {"name": name, "values": kept, "others": len(kept) < len(values)}


def _encoded(cells: pd.Series, column: Column) -> NDArray[np.float64]:
    """Return the features (n, d) of a column."""
    if "mean" in column:
        numbers = _finite(_numbers(cells), column["name"])
        if numbers is None:
            words = _words(cells, column["name"])
            bad = next((word for word in words if _numbers(pd.Series([word], dtype=object)) is None), words[0])
            raise CrowdshotError(
                f"holds {bad!r} in column {column['name']!r}", argument="X", found=bad, expected="numbers as in fit"
            )
        missing = np.isnan(numbers)
        if missing.any() and not column["missing"]:
            _warn_missing(column["name"], "its mean")
        scaled = np.where(missing, 0, (numbers - column["mean"]) / column["std"])
        return np.stack([scaled, missing] if column["missing"] else [scaled], 1)
    words = _words(cells, column["name"])
    if (words == MISSING).any() and MISSING not in column["values"] and not column["others"]:
        _warn_missing(column["name"], "none of its categories")
    one_hot: NDArray[np.bool_] = words[:, None] == np.array(column["values"], dtype=object)
    _warn_misspelled(column, words[~one_hot.any(1) & (words != MISSING)].tolist(), len(words))
    if not column["others"]:
        return one_hot.astype(np.float64)
    return np.concatenate([one_hot, ~one_hot.any(1, keepdims=True)], 1).astype(np.float64)


def _warn_missing(name: str, meaning: str) -> None:
    warnings.warn(
        CrowdshotWarning(
            f"has missing cells in column {name!r}, which had none in fit; they count as {meaning}",
            argument="X",
            found=name,
        ),
        stacklevel=2,
    )


def _warn_misspelled(column: Column, new: list[str], n_cells: int) -> None:
    """Warn about new categories that differ in case or spaces from one of fit, or if all of many cells are new."""
    folded = set(map(fold, column["values"]))
    all_new = FEWEST_NEW <= n_cells == len(new) and not column["others"]  # which may be rare categories of fit
    found = [word for word in dict.fromkeys(new) if all_new or fold(word) in folded]
    if found:
        warnings.warn(
            CrowdshotWarning(
                f"has {listing(found, 3)} in column {column['name']!r}, which is no category of fit",
                argument="X",
                found=found[:10],
                hint="If it is one that was written otherwise, write it as in fit.",
            ),
            stacklevel=2,
        )


def _numbers(cells: pd.Series) -> NDArray[np.float64] | None:
    """Return the cells of a column of numbers or dates (in days), NaN if missing; None for a column of words."""
    numbers = _plain_numbers(cells)
    return _days(cells) if numbers is None else numbers


def _plain_numbers(cells: pd.Series) -> NDArray[np.float64] | None:
    if pd.api.types.is_datetime64_any_dtype(cells):
        return None
    try:
        numbers = np.array(pd.to_numeric(cells), dtype=np.float64)
    except (TypeError, ValueError):
        return None
    return np.where(cells.isna(), np.nan, numbers)


def _days(cells: pd.Series) -> NDArray[np.float64] | None:
    """Return days since 1970 if every cell is a date or missing, else None. Times without a zone count as UTC."""
    if pd.api.types.is_datetime64_any_dtype(cells):
        return _since_1970(cells)
    words = [text(cell) for cell in cells]
    for pattern, written in DATES.items():
        if all(word is not None and (word == MISSING or re.fullmatch(pattern, word)) for word in words):
            return _since_1970(pd.Series([word or None for word in words], dtype=object), written)
    return None


def _since_1970(dates: pd.Series, written: str | None = None) -> NDArray[np.float64] | None:
    try:
        times = pd.to_datetime(dates, format=written, utc=True)
    except ValueError:  # such as 30 February
        return None
    return np.array((times - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1), dtype=np.float64)


def _finite(numbers: NDArray[np.float64] | None, name: str) -> NDArray[np.float64] | None:
    if numbers is not None and np.isinf(numbers).any():
        row = first(np.isinf(numbers))
        raise CrowdshotError(
            f"is infinite in column {name!r}, row {row}", argument="X", found=row, expected="a finite number"
        )
    return numbers


def _words(cells: pd.Series, name: str) -> NDArray[Any]:
    found = [text(None if cell is pd.NA or cell is pd.NaT else cell) for cell in cells]
    if None in found:
        row = found.index(None)
        kind = type(cells.iloc[row]).__name__
        raise CrowdshotError(
            f"holds a {kind} in column {name!r}, row {row}", argument="X", found=kind, expected="text or a number"
        )
    return np.array(found, dtype=object)
