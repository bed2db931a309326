"""One cell of a table or field of a record, as text."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

Ids = NDArray[Any]
"""(n,) text, numbers or a mix of them."""


def text(value: Any) -> str | None:
    """Text or a number as text without spaces around it, "" if missing, None if it is neither."""
    if isinstance(value, str):
        return value.strip()
    if value is None or (isinstance(value, float) and value != value):  # NaN differs from itself
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return str(int(value)) if value.is_integer() else str(value)
    return str(value) if isinstance(value, int) else None
