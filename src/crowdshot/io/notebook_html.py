"""Write titles and tables as HTML for notebooks."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape

import pandas as pd

WIDEST = 10  # columns
LONGEST = 40  # characters of a cell


def facts_and_tables(title: str, tables: Mapping[str, pd.DataFrame]) -> str:
    """Return a title and tables with captions; all text is escaped."""
    parts = [f"<p>{escape(title)}</p>"]
    for caption, table in tables.items():
        some = table.iloc[:, :WIDEST].map(_cell)
        some.columns = [_cell(name) for name in some.columns]
        parts.append(f"<p><b>{escape(caption)}</b></p>{some.to_html(index=False, border=0)}")
    return "<div>" + "".join(parts) + "</div>"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.3g}"
    text = " ".join(str(value).split())
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
