"""Names and numbers as a page shows them."""

from __future__ import annotations

import unicodedata
from typing import Any

LONGEST = 160  # characters of a name; tables in CSV files have all of it


def clean(name: Any, longest: int = LONGEST) -> str:
    """A name without what no page can hold (control characters, half characters), and not without end."""
    text = str(name)
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)


def apart(name: Any, longest: int = 60) -> str:
    """A name within a sentence, kept from turning the text around it when it runs from right to left."""
    return f"\N{FIRST STRONG ISOLATE}{clean(name, longest)}\N{POP DIRECTIONAL ISOLATE}"


def percent(share: float) -> str:
    """Never "100 %" or "0 %" of what is not all or nothing."""
    if 0.995 <= share < 1:
        return ">99\N{NO-BREAK SPACE}%"
    if 0 < share < 0.005:
        return "<1\N{NO-BREAK SPACE}%"
    return f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


def probability(p: float) -> str:
    """Of a belief: never certain."""
    return percent(min(max(p, 0.0049), 0.9951))


def spread(low: float, high: float) -> str:
    """An interval of shares: "39–68 %"."""
    return f"{100 * low:.0f}–{100 * high:.0f}\N{NO-BREAK SPACE}%"


def times(number: float) -> str:
    """An expected count, with a digit after the point where it is small and not nearly whole."""
    return f"{number:.0f}" if number >= 9.95 or abs(number - round(number)) < 0.05 else f"{number:.1f}"


def plural(number: int, word: str) -> str:
    """ "1 item", "2,000 items", "3 classes"."""
    ending = "" if number == 1 else "es" if word.endswith("s") else "s"
    return f"{number:,} {word}{ending}"
