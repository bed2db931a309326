"""Convert tables of any library to pandas, once, where they enter the public functions.

polars, pyarrow, DuckDB, Modin and others are converted by narwhals; Hugging Face datasets and their columns, lists of
dicts and NumPy records by the functions here. Everything else passes unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import narwhals.stable.v2 as nw
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import EXACT


def to_pandas(data: Any, argument: str = "labels") -> Any:
    """Return a table or column of another library as a DataFrame or Series; return anything else unchanged.

    Parameters
    ----------
    data : any
    argument : str
        Name of the argument, for error messages.

    Raises
    ------
    CrowdshotError
        If the data is a collection of tables, such as a ``DatasetDict``.

    Examples
    --------
    >>> from crowdshot.io.dataframes import to_pandas
    >>> to_pandas([{"item": "a", "label": "cat"}, {"item": "b", "label": "dog"}])
      item label
    0    a   cat
    1    b   dog
    """
    if isinstance(data, pd.DataFrame | pd.Series):
        return _plain_dtypes(data)
    if isinstance(data, np.ndarray):
        return pd.DataFrame(data) if data.dtype.names else data
    if _module_of(data) == "datasets":
        return _from_datasets(data, argument)
    if isinstance(data, list | tuple):
        return _from_records(data)
    if isinstance(data, Mapping):
        return data
    frame = nw.from_native(data, allow_series=True, pass_through=True)
    if isinstance(frame, nw.LazyFrame):
        frame = frame.collect()
    if isinstance(frame, nw.DataFrame | nw.Series):
        return _plain_dtypes(frame.to_pandas())
    return data


def _module_of(data: Any) -> str:
    return type(data).__module__.partition(".")[0]


def _plain_dtypes(table: Any) -> Any:
    """Convert nullable and Arrow dtypes to NumPy's, in which missing values are NaN or None; others are unchanged."""
    if isinstance(table, pd.Series):
        return _plain_column(table)
    changed = {place: _plain_column(table.iloc[:, place]) for place in range(table.shape[1])}
    if all(column.dtype == table.dtypes.iloc[place] for place, column in changed.items()):
        return table
    return pd.DataFrame(dict(enumerate(changed.values())), index=table.index).set_axis(table.columns, axis=1)


def _plain_column(column: pd.Series[Any]) -> pd.Series[Any]:
    kind = column.dtype
    if isinstance(kind, np.dtype | pd.CategoricalDtype | pd.StringDtype | pd.DatetimeTZDtype):
        return column
    if not pd.api.types.is_numeric_dtype(kind) or pd.api.types.is_bool_dtype(kind):
        return column.astype(object).where(column.notna(), None)
    if pd.api.types.is_integer_dtype(kind) and not column.hasnans:
        return column.astype(np.int64)
    if pd.api.types.is_integer_dtype(kind) and (column.abs() > EXACT).any():
        return column.astype(object).where(column.notna(), None)
    numbers = column.to_numpy(np.float64, na_value=np.nan)  # pandas 2.2 cannot convert Arrow's with `astype`
    return pd.Series(numbers, column.index, name=column.name)


def _from_datasets(data: Any, argument: str) -> Any:
    """Convert a Hugging Face ``Dataset`` or one of its columns."""
    if isinstance(data, Mapping):
        raise CrowdshotError(
            f"is a {type(data).__name__} with the splits {', '.join(map(str, data))}",
            argument=argument,
            found=list(data),
            expected="one of them",
            hint=f"Choose one, such as {argument}[{next(iter(data), 'train')!r}].",
        )
    if hasattr(data, "to_pandas"):
        return _plain_dtypes(data.with_format(None).to_pandas())
    return list(data)


def _from_records(data: Sequence[Any]) -> Any:
    """Convert a list of dicts."""
    if not data or not all(isinstance(row, Mapping) for row in data):
        return data
    fields = list(dict.fromkeys(name for row in data for name in row))
    return pd.DataFrame([[row.get(name) for name in fields] for row in data], columns=fields)


def column_names(X: Any) -> NDArray[Any] | None:
    """Return the column names of a DataFrame if all are strings, else None, as in scikit-learn."""
    if not isinstance(X, pd.DataFrame) or not all(isinstance(name, str) for name in X.columns):
        return None
    return np.asarray(X.columns, dtype=object)
