"""Escape cells that a spreadsheet would run as formulas, such as =1+1, with an apostrophe.

By default tables keep their cells unchanged, so that ids can be matched again. The option ``--excel-safe`` activates
escaping for tables that people open in a spreadsheet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

FORMULA = re.compile(r"'*[=+\-@]")  # includes escaped cells, so that escaping and unescaping are inverse
_safe: ContextVar[bool] = ContextVar("excel_safe", default=False)


@contextmanager
def excel_safe() -> Iterator[None]:
    """Write all tables in the block with escaped formulas, and unescape those that are read as text or workbooks."""
    token = _safe.set(True)
    try:
        yield
    finally:
        _safe.reset(token)


def stay_excel_safe(on: bool) -> None:
    """Set `excel_safe` for the rest of a child process."""
    _safe.set(on)


def guarded(table: pd.DataFrame) -> pd.DataFrame:
    """Escape text cells and column names, if `excel_safe` is active."""
    return _each_text(table, lambda cell: f"'{cell}" if FORMULA.match(cell) else cell)


def unguarded(table: pd.DataFrame) -> pd.DataFrame:
    """Undo `guarded`, if `excel_safe` is active."""
    return _each_text(table, lambda cell: cell[1:] if cell.startswith("'") and FORMULA.match(cell) else cell)


def _each_text(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    if not _safe.get():
        return table

    def changed(cell: Any) -> Any:
        return change(cell) if isinstance(cell, str) else cell

    numbers = "biufc"
    columns = [
        column if column.dtype.kind in numbers else column.map(changed).astype(column.dtype)
        for _, column in table.items()  # by position, because names may be repeated
    ]
    return type(table)(dict(enumerate(columns)), index=table.index).set_axis(list(map(changed, table.columns)), axis=1)
