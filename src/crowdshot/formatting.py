"""Names, counts, numbers and command lines, as sentences and pages show them."""

from __future__ import annotations

import os
import re
import shlex
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

LONGEST = 160  # characters of a name; tables in CSV files have all of it


def clean(name: Any, longest: int = LONGEST) -> str:
    """A name without what no page can hold (control characters, half characters), and not without end."""
    text = str(name)
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return "".join("\N{REPLACEMENT CHARACTER}" if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)


def ending(path: str, longest: int = 24) -> str:
    """The end of a path that is longer than there is room for: many begin alike.

    >>> ending("data/upload/3/8f2c1a77-kitchen-04.jpg")
    '…8f2c1a77-kitchen-04.jpg'
    """
    return f"…{path[1 - longest :]}" if "/" in path and len(path) > longest else path


def apart(name: Any, longest: int = 60) -> str:
    """A name within a sentence, kept from turning the text around it when it runs from right to left."""
    return f"\N{FIRST STRONG ISOLATE}{clean(name, longest)}\N{POP DIRECTIONAL ISOLATE}"


def in_a_terminal(text: str) -> str:
    """Without the marks of `apart`, which terminals show as boxes."""
    return text.replace("\N{FIRST STRONG ISOLATE}", "").replace("\N{POP DIRECTIONAL ISOLATE}", "")


def percent(share: float) -> str:
    """Never "100 %" or "0 %" of what is not all or nothing."""
    if 0.995 <= share < 1:
        return ">99\N{NO-BREAK SPACE}%"
    if 0 < share < 0.005:
        return "<1\N{NO-BREAK SPACE}%"
    return f"{100 * share:.0f}\N{NO-BREAK SPACE}%"


def probability(p: float) -> str:
    """Of a posterior: never certain."""
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


def shown(path: str | os.PathLike[str]) -> str:
    """A path that can be printed even where its name is not valid text."""
    return str(path).encode("utf-8", "backslashreplace").decode()


def described(X: Any) -> str:
    """What someone passed: 'an array of shape (3, 4)', 'a list of 5 str'."""
    if hasattr(X, "shape"):
        return f"{'a tensor' if hasattr(X, 'requires_grad') else 'an array'} of shape {tuple(X.shape)}"
    if isinstance(X, (list, tuple)) and X:
        return f"a {type(X).__name__} of {len(X)} {type(X[0]).__name__}"
    return f"a {type(X).__name__}"


def first_line(error: Exception) -> str:
    """What another library says, as a part of a sentence."""
    return next(iter(str(error).splitlines()), "").rstrip(".")


def first(mask: Any) -> int:
    """Return the position of the first true value of an array."""
    return int(mask.argmax())


def show(value: Any) -> str:
    is_scalar = type(value).__module__ == "numpy" and hasattr(value, "item")
    return repr(value.item() if is_scalar else value)


def counted(n: int, things: str) -> str:
    """ "1 row without a label", "2,000 rows without a label": the first plural is what is counted."""
    return f"{n:,} " + (re.sub(r"s\b", "", things, count=1) if n == 1 else things)


def listing(values: Iterable[Any], most: int = 10) -> str:
    """'cat', 'dog', 'owl' and 7 more"""
    values = list(values)
    tail = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(show(value) for value in values[:most]) + tail


SMALL = 1e-4  # below which numbers would be written as 1e-05


def digits(x: float) -> str:
    """Six significant ones, and no more than six decimals of a small number: a probability of 3.7e-41 is 0."""
    if abs(x) >= SMALL:
        return f"{x:.6g}"
    text = f"{x:.6f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def command(name: str, arguments: Iterable[Any], options: Mapping[str, Any]) -> str:
    """The line for a shell. Options that are None, False or as by default are left out; mappings become ``a=1,b=2``."""
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
    """A command as it was typed, but of files and folders, which lie elsewhere on other machines, the names alone.

    ``places``: the options that name one; else it is told by its separators.
    """
    told, is_place = ["crowdshot"], False
    for word in typed:
        option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
        here = os.sep in value if places is None else is_place or bool(equals and option in places)
        told.append(f"{option}{equals}{Path(value).name}" if here else word)
        is_place = places is not None and not equals and word in places
    return shlex.join(told)


UNITS = {"days": 86_400, "h": 3_600, "min": 60, "s": 1}


def about_duration(seconds: float) -> str:
    """Return a rough duration in the unit that fits: "about 3 h"."""
    if seconds < 10:
        return "some seconds"
    unit, size = next((unit, size) for unit, size in UNITS.items() if seconds >= 2 * size or size == 1)
    return f"about {seconds / size:.0f} {unit}"
