"""Cells that a spreadsheet would run as formulas, such as =1+1, and an apostrophe before them that it takes for text.

Tables hold cells as they are, so that ids come back; ``--excel-safe`` is for those that people open.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

FORMULA = re.compile(r"'*[=+\-@]")  # with apostrophes that were there before, so that one more is one to take off
_safe: ContextVar[bool] = ContextVar("excel_safe", default=False)


@contextmanager
def excel_safe() -> Iterator[None]:
    """Inside, all tables that are text or workbooks are written with the apostrophe, and read without it."""
    token = _safe.set(True)
    try:
        yield
    finally:
        _safe.reset(token)


def stay_excel_safe(on: bool) -> None:
    """As `excel_safe`, for the rest of a process that another one started."""
    _safe.set(on)


def guarded(table: pd.DataFrame) -> pd.DataFrame:
    """As it is written: text cells, and names of columns."""
    return _each_text(table, lambda cell: f"'{cell}" if FORMULA.match(cell) else cell)


def unguarded(table: pd.DataFrame) -> pd.DataFrame:
    """As it was before it was written so."""
    return _each_text(table, lambda cell: cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell)


def _each_text(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    if not _safe.get():
        return table

    def changed(cell: Any) -> Any:
        return change(cell) if isinstance(cell, str) else cell

    numbers = "biufc"
    columns = [
        column if column.dtype.kind in numbers else column.map(changed).astype(column.dtype)
        for _, column in table.items()  # by position, because two may have the same name
    ]
    return type(table)(dict(enumerate(columns)), index=table.index).set_axis(list(map(changed, table.columns)), axis=1)
