"""Tables with columns of several kinds as an encoder's input: numbers, categories, and cells that are missing.

What is made of a table is what scikit-learn's ColumnTransformer would make of it with these:

    numbers     SimpleImputer(strategy="mean", add_indicator=True), the numbers themselves through a StandardScaler;
                dates are numbers of days
    categories  OneHotEncoder(min_frequency=2, max_categories=21, handle_unknown="infrequent_if_exist"),
                a missing cell being a category of its own

It is a few means and names, which are kept in the card of a saved file: nothing is pickled.
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
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import described, first, listing, plural
from crowdshot.io.cells import text

MOST = 20  # categories of a column that are told apart, the most frequent; all others are one
RECURS = 0.5  # of the rows: a column with more different words, and more than MOST, says nothing
MISSING = ""
DATES = {  # as text, in the ways of writing that leave no doubt about day and month: which, for pandas
    r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?)?": "ISO8601",
    r"\d{1,2}\.\d{1,2}\.\d{4}": "%d.%m.%Y",
}

Column = dict[str, Any]
"""``name``; of numbers ``mean``, ``std``, and if any was ``missing``; of categories ``values``, and if there are
``others``."""


def is_mixed(X: Any) -> bool:
    """Is it a DataFrame that holds words or dates, or misses cells?"""
    if not isinstance(X, pd.DataFrame):
        return False
    columns = (_plain_numbers(X.iloc[:, place]) for place in range(X.shape[1]))
    return any(numbers is None or np.isnan(numbers).any() for numbers in columns)


@dataclass(frozen=True)
class TableInput:
    """A DataFrame with these columns, in any order; others are left aside."""

    kind: ClassVar[str] = "features"
    columns: tuple[str, ...]

    def batches(self, X: Any, batch_size: int, bad: list[Any] | None = None) -> Iterator[pd.DataFrame]:
        if not isinstance(X, pd.DataFrame):
            raise CrowdshotError(f"X is {described(X)}, expected {self.describe()}, for which this encoder was made.")
        absent = [name for name in self.columns if list(X.columns).count(name) != 1]
        if absent:
            times = "more than one" if absent[0] in X.columns else "no"
            raise CrowdshotError(f"X has {times} column {absent[0]!r}, expected one, as in fit.")
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
    """A DataFrame -> (n, D): standardised numbers, with 0 and a mark where missing, and a place for each category."""

    columns: list[Column]

    def __init__(self, columns: Sequence[Column] = ()) -> None:
        super().__init__()
        self.columns = list(columns)

    def forward(self, table: pd.DataFrame) -> Tensor:
        parts = [_encoded(table[column["name"]], column) for column in self.columns]
        return torch.from_numpy(np.concatenate(parts, 1).astype(np.float32))


def learn_table_encoder(X: Any) -> Encoder:
    """The encoder for tables like X."""
    if not isinstance(X, pd.DataFrame):
        raise CrowdshotError(f"X is {described(X)}, expected a DataFrame for encoder='table'.")
    names = [str(name) for name in X.columns]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise CrowdshotError(f"X has more than one column {twice!r}, expected different names.")
    columns: list[Column] = []
    idle: list[str] = []
    for name in X.columns:
        column = _learned(X[name], str(name))
        if column is None:
            idle.append(str(name))
        else:
            columns.append(column)
    if not columns:
        raise CrowdshotError(f"X has no column that tells items apart among {listing(names)}, expected one at least.")
    if idle:
        told = f"X has columns whose cells are all the same or hardly ever recur, which are left out: {listing(idle)}."
        warnings.warn(told, UserWarning, stacklevel=2)
    n_numbers = sum("mean" in column for column in columns)
    about = f"a table with {plural(n_numbers, 'column')} of numbers and {len(columns) - n_numbers:,} of categories"
    card = {"about": about + (f"; left out: {', '.join(idle)}" if idle else ""), "left_out": idle}
    fed = TableInput(tuple(column["name"] for column in columns))
    return Encoder(TableNetwork(columns), "table", {"columns": columns}, fed, card)


def _learned(cells: pd.Series, name: str) -> Column | None:
    """What is kept of a column; None where it says nothing."""
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
    """(n, d)"""
    if "mean" in column:
        numbers = _finite(_numbers(cells), column["name"])
        if numbers is None:
            words = _words(cells, column["name"])
            odd = next((word for word in words if _numbers(pd.Series([word], dtype=object)) is None), words[0])
            raise CrowdshotError(f"X, column {column['name']!r} holds {odd!r}, expected numbers as in fit.")
        missing = np.isnan(numbers)
        scaled = np.where(missing, 0, (numbers - column["mean"]) / column["std"])
        return np.stack([scaled, missing] if column["missing"] else [scaled], 1)
    words = _words(cells, column["name"])
    one_hot: NDArray[np.bool_] = words[:, None] == np.array(column["values"], dtype=object)
    if not column["others"]:
        return one_hot.astype(np.float64)
    return np.concatenate([one_hot, ~one_hot.any(1, keepdims=True)], 1).astype(np.float64)


def _numbers(cells: pd.Series) -> NDArray[np.float64] | None:
    """The cells of a column of numbers or dates (as days), NaN where missing; None for a column of words."""
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
    """Since 1970, where every cell is a date, text that is one, or missing; times without a zone are taken for UTC."""
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
    except ValueError:  # the 30th of February
        return None
    return np.array((times - pd.Timestamp(0, tz="UTC")) / pd.Timedelta(days=1), dtype=np.float64)


def _finite(numbers: NDArray[np.float64] | None, name: str) -> NDArray[np.float64] | None:
    if numbers is not None and np.isinf(numbers).any():
        row = first(np.isinf(numbers))
        raise CrowdshotError(f"X, column {name!r}, row {row} is infinite, expected a finite number.")
    return numbers


def _words(cells: pd.Series, name: str) -> NDArray[Any]:
    found = [text(None if cell is pd.NA or cell is pd.NaT else cell) for cell in cells]
    if None in found:
        row = found.index(None)
        kind = type(cells.iloc[row]).__name__
        raise CrowdshotError(f"X, column {name!r}, row {row} holds a {kind}, expected text or a number.")
    return np.array(found, dtype=object)
