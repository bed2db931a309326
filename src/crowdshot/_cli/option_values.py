"""Convert the text that users type for options: pairs such as "ann=2,bob=0.5", lists of names, numbers and files."""

import csv
import math
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeVar

from crowdshot.errors import CrowdshotError

OTHERS = "others"  # in a list of costs, as in labels.label_costs, which would load numpy

T = TypeVar("T")


def as_pairs(
    argument: str, text: str, expected: str = "", keys: Sequence[str] = (), allow_empty: bool = False
) -> dict[str, str]:
    """Split pairs: "a=1,b=2" becomes {"a": "1", "b": "2"}.

    Parameters
    ----------
    argument : str
        The parameter of the command, for messages.
    text : str
        The pairs.
    expected : str
        A description of the format, for messages.
    keys : sequence of str
        The possible keys. If they are known, a comma separates pairs only before a key, so values may contain commas.
        Otherwise keys may contain equals signs.
    allow_empty : bool
        Whether values may be missing, as in "a=".
    """
    known = "|".join(keys)
    parts = re.split(rf",(?=\s*(?:{known})\s*=)", text) if keys else text.split(",")
    pairs = [part.partition("=") if keys else part.rpartition("=") for part in parts]
    if not all((value.strip() or allow_empty) and re.fullmatch(known or ".+", key.strip()) for key, _, value in pairs):
        expected = expected or f"{'=…,'.join(keys)}=…, or some of these"
        raise CrowdshotError(f"is {text!r}", argument=argument, found=text, expected=expected)
    names = [key.strip() for key, _, _ in pairs]
    repeated = next((name for name in names if names.count(name) > 1), None)
    if repeated is not None:
        message = f"is {text!r}, which has {repeated!r} more than once"
        raise CrowdshotError(message, argument=argument, found=text, expected="it once")
    return {key.strip(): value.strip() for key, _, value in pairs}


def as_values(
    argument: str, text: str, expected: str, convert: Callable[[str], T], keys: Sequence[str] = ()
) -> dict[str, T]:
    """Split pairs and convert their values; ``convert`` raises ValueError for a bad value."""
    pairs = as_pairs(argument, text, "" if keys else expected, keys)
    try:
        return {key: convert(value) for key, value in pairs.items()}
    except ValueError:
        raise CrowdshotError(f"is {text!r}", argument=argument, found=text, expected=expected) from None


def as_columns(text: str) -> dict[str, str]:
    """Convert "item=file,label=animal"."""
    return as_pairs("columns", text, keys=("item", "annotator", "label", "time"))


def as_batch(text: str) -> dict[str, str | None]:
    """Convert "week=3,language=en"; a column without a value becomes {"week": None}."""
    if "=" not in text and text.strip():
        return {text.strip(): None}
    return {**as_pairs("batch", text, "a column and a value, like week=3")}


def as_shares(argument: str, text: str, kinds: Iterable[str]) -> dict[str, float]:
    """Convert "hammer=0.8,spammer=0.2"."""
    return as_values(argument, text, "kinds and numbers, like hammer=0.8,spammer=0.2", float, list(kinds))


def as_names(argument: str, text: str, alternative: str = "", like: str = "ann,bob") -> list[str]:
    """Split names: "ann, bob" becomes ["ann", "bob"]; quotation marks protect a name with a comma."""
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [""])]
    if not all(names) or len(set(names)) < len(names):
        expected = f"{alternative}different names, like {like}"
        raise CrowdshotError(f"is {text!r}", argument=argument, found=text, expected=expected)
    return names


def as_file(text: str) -> Path | None:
    """Return the path if the text names an existing file or cannot be pairs."""
    return Path(text) if "=" not in text or _is_file(text) else None


def _is_file(text: str) -> bool:
    """Return whether a file has this name; a text may be longer than any name."""
    return os.path.isfile(text)  # Path.is_file raises OSError for a long text


def as_new_names(text: str, argument: str = "rename") -> dict[str, str] | Path:
    """Convert "Catt=cat,n/a=", or return the path of a file."""
    like = "Catt=cat,unsure=" if argument == "rename" else "aisha.b=Aisha"
    return as_file(text) or as_pairs(argument, text, f"a file, or old and new names, like {like}", allow_empty=True)


def as_costs(text: str) -> dict[str, float] | Path:
    """Convert "ann=2,bob=0.5", or return the path of a file."""
    expected = "a file, or annotators and numbers above 0, like ann=2,bob=0.5"
    return as_file(text) or as_values("cost", text, expected, _as_cost)


def as_prices(text: str) -> dict[str, float] | Path:
    """Convert "0.1" or "ann=2,others=0.5", or return the path of a file."""
    if not re.fullmatch(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", text):
        return as_costs(text)
    if not 0 < float(text) < math.inf:
        raise CrowdshotError(f"is {text}", argument="cost", found=text, expected="a number above 0")
    return {OTHERS: float(text)}


def as_available(text: str) -> list[str] | Path:
    """Convert "ann,bob", or return the path of a file."""
    if _is_file(text) or re.search(r"\.(csv|tsv|txt|xlsx|json|parquet)$", text, re.IGNORECASE):
        return Path(text)  # if the file is missing, reading it reports that
    return as_names("available", text, "a file, or ")


def _as_cost(text: str) -> float:
    cost = float(text)
    if not 0 < cost < math.inf:
        raise ValueError
    return cost


def as_settings(text: str) -> dict[str, bool | int | float]:
    """Convert "C=0.1,steps=3"."""
    return as_values("settings", text, "names and numbers, like C=0.1,steps=3", _as_value) if text else {}


def _as_value(text: str) -> bool | int | float:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return float(text) if not re.fullmatch(r"[-+]?\d+", text) else int(text)
