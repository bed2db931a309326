"""Convert one cell of a table, or one field of a record, to text."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Ids = NDArray[Any]
"""(n,) text, numbers or a mix of them."""
UNSEEN = "\u200b\u200c\u200d\u2060\ufeff"  # zero-width spaces, joiners and byte order marks, which copying may leave
AROUND = "".join(filter(str.isspace, map(chr, range(0x3001)))) + UNSEEN


def trim(word: str) -> str:
    """Return the word without spaces and invisible characters at its ends.

    Invisible characters inside a word stay: they may join the parts of an emoji.
    """
    return word.strip(AROUND)


def text(value: Any) -> str | None:
    """Return text, a number or a date as trimmed text, "" for a missing value, None for any other type.

    A float such as 7.0 becomes "7", because a missing value in the same column turns integers into floats.
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
