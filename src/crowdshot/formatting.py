"""Format names, counts, numbers and command lines for messages, pages and notebooks."""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 160  # characters of a name; CSV files have the full name
WIDEST, LONGEST_CELL = 10, 40  # columns of a table in a notebook, and characters of its cells


def clean(name: Any, longest: int = LONGEST) -> str:
    """Return a name without control characters and unpaired surrogates, shortened if it is long."""
    text = str(name)
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)


def ending(path: str, longest: int = 24) -> str:
    """Return the end of a long path, as the beginnings of paths are often equal.

    >>> ending("data/upload/3/8f2c1a77-kitchen-04.jpg")
    '…8f2c1a77-kitchen-04.jpg'
    """
    return f"…{path[1 - longest :]}" if "/" in path and len(path) > longest else path


def apart(name: Any, longest: int = 60) -> str:
    """Return a name in marks that isolate it, so that a right-to-left name does not reorder the text around it."""
    return f"\N{FIRST STRONG ISOLATE}{clean(name, longest)}\N{POP DIRECTIONAL ISOLATE}"


def named_annotator(name: Any) -> str:
    """Return the name of an annotator for a sentence; a number alone could be read as a count.

    >>> in_a_terminal(named_annotator("Ann")), in_a_terminal(named_annotator("7"))
    ('Ann', 'annotator 7')
    """
    return f"annotator {apart(name)}" if str(name).isdigit() else apart(name)


def in_a_terminal(text: str) -> str:
    """Remove the marks of `apart`, which terminals show as boxes."""
    return text.replace("\N{FIRST STRONG ISOLATE}", "").replace("\N{POP DIRECTIONAL ISOLATE}", "")


def percent(share: float) -> str:
    """Return a share in percent; only exact values are "100 %" or "0 %"."""
    if 0.995 <= share < 1:
        return ">99\N{NO-BREAK SPACE}%"
    if 0 < share < 0.005:
        return "<1\N{NO-BREAK SPACE}%"
    return f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


def probability(p: float) -> str:
    """Return a posterior probability in percent, never "100 %" or "0 %"."""
    return percent(min(max(p, 0.0049), 0.9951))


def spread(low: float, high: float) -> str:
    """Return an interval of shares, such as "39–68 %"."""
    return f"{100 * low:.0f}–{100 * high:.0f}\N{NO-BREAK SPACE}%"


def times(number: float) -> str:
    """Return an expected count, with one decimal if it is small and not nearly whole."""
    return f"{number:.0f}" if number >= 9.95 or abs(number - round(number)) < 0.05 else f"{number:.1f}"


def whole_counts(counts: Any) -> Any:
    """Round expected counts (K true, K observed) to whole numbers that keep the total of each column.

    >>> import numpy as np
    >>> whole_counts(np.array([[2.6, 0.9], [0.4, 3.1]])).tolist()
    [[3, 1], [0, 3]]
    """
    import numpy as np

    whole = np.floor(counts + 1e-9).astype(np.int64)
    for column, total in enumerate(np.rint(counts.sum(0)).astype(np.int64).tolist()):
        rest = counts[:, column] - whole[:, column]
        whole[np.argsort(-rest, kind="stable")[: total - int(whole[:, column].sum())], column] += 1
    return whole


def plural(number: int, word: str) -> str:
    """Return a count with its noun: "1 item", "2,000 items", "3 classes"."""
    ending = "" if number == 1 else "es" if word.endswith("s") else "s"
    return f"{number:,} {word}{ending}"


def shown(path: str | os.PathLike[str]) -> str:
    """Return a path that can be printed, even if it is not valid text."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def described(X: Any) -> str:
    """Describe a value: 'an array of shape (3, 4)', 'a list of 5 str'."""
    if hasattr(X, "shape"):
        return f"{'a tensor' if hasattr(X, 'requires_grad') else 'an array'} of shape {tuple(X.shape)}"
    if isinstance(X, (list, tuple)) and X:
        return f"a {type(X).__name__} of {len(X)} {type(X[0]).__name__}"
    return f"a {type(X).__name__}"


def first_line(error: Exception) -> str:
    """Return the first line of an error of another library, for use within a sentence."""
    return next(iter(str(error).splitlines()), "").rstrip(".")


def first(mask: Any) -> int:
    """Return the position of the first true value of an array."""
    return int(mask.argmax())


def show(value: Any) -> str:
    is_scalar = type(value).__module__ == "numpy" and hasattr(value, "item")
    return repr(value.item() if is_scalar else value)


def counted(n: int, things: str) -> str:
    """Return a count with a phrase whose first plural is counted: "1 row without labels", "2 rows without labels"."""
    return f"{n:,} " + (re.sub(r"s\b", "", things, count=1) if n == 1 else things)


def listing(values: Iterable[Any], most: int = 10) -> str:
    """Return a list such as "'cat', 'dog', 'owl' and 7 more"."""
    values = list(values)
    tail = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(show(value) for value in values[:most]) + tail


def align_columns(rows: Sequence[Sequence[str]]) -> str:
    """Align rows in columns: the first and the last to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i in (0, last) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


SMALL = 1e-4  # Python writes smaller numbers with an exponent, as 1e-05


def digits(x: float) -> str:
    """Return six significant digits, but at most six decimals: a probability of 3.7e-41 is 0."""
    if abs(x) >= SMALL:
        return f"{x:.6g}"
    text = f"{x:.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def command(name: str, arguments: Iterable[Any], options: Mapping[str, Any]) -> str:
    """Return a command for a shell.

    Options that are None, False, empty or "auto" are left out. Mappings become ``a=1,b=2``.
    """
    words = ["crowdshot", name, *map(str, arguments)]
    for name, value in options.items():
        if value == "auto":
            continue
        if isinstance(value, Mapping):
            value = ",".join(f"{key}={str(v).lower() if isinstance(v, bool) else v}" for key, v in value.items())
        if value is True:
            words.append(f"--{name}")
        elif value:
            words += [f"--{name}", str(value)]
    return shlex.join(words)


def command_line(typed: Sequence[str], places: Iterable[str] | None = None) -> str:
    """Return a command as typed, but with paths reduced to file names, as folders differ between machines.

    Parameters
    ----------
    typed : sequence of str
        The words after "crowdshot".
    places : iterable of str, optional
        The options whose values are paths. By default all values with a path separator are paths.
    """
    words, follows_option = ["crowdshot"], False
    for word in typed:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        is_path = os.sep in value if places is None else follows_option or bool(equals and option in places)
        words.append(f"{option}{equals}{Path(value).name}" if is_path else word)
        follows_option = places is not None and not equals and word in places
    return shlex.join(words)


UNITS = {"days": 86_400, "h": 3_600, "min": 60, "s": 1}


def about_duration(seconds: float) -> str:
    """Return a rough duration in the unit that fits: "about 3 h"."""
    if seconds < 10:
        return "some seconds"
    unit, size = next((unit, size) for unit, size in UNITS.items() if seconds >= 2 * size or size == 1)
    return f"about {seconds / size:.0f} {unit}"


def facts_and_tables(title: str, tables: Mapping[str, pd.DataFrame]) -> str:
    """Return a title and tables with captions as HTML for a notebook; all text is escaped."""
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
    return text if len(text) <= LONGEST_CELL else f"{text[: LONGEST_CELL - 1]}…"
