"""One cell of a table or field of a record, as text."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Ids = NDArray[Any]
"""(n,) text, numbers or a mix of them."""
UNSEEN = "\u200b\u200c\u200d\u2060\ufeff"  # spaces without width, joiners and marks, which copying may leave
AROUND = "".join(filter(str.isspace, map(chr, range(0x3001)))) + UNSEEN


def trim(word: str) -> str:
    """Without the spaces around it, nor what cannot be seen there; inside it is part of a word, or of an emoji."""
    return word.strip(AROUND)


def text(value: Any) -> str | None:
    """Text or a number as text without spaces around it, "" if missing, None if it is neither.

    7.0 is a 7 that stood beside a missing value. A date or a time is one of Parquet's.
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
        return str(int(value)) if value.is_integer() else str(value)
    return str(value) if isinstance(value, int | np.integer | date) else None
