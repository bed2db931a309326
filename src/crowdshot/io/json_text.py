"""Parse JSON with errors that name the file and the row, and convert results of commands to JSON values."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from crowdshot.errors import CrowdshotError

ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def parse_json(text: str, place: str) -> Any:
    """Parse JSON text; messages call it ``place``, such as "labels.json"."""
    try:
        return _loads(text)
    except json.JSONDecodeError as error:
        row = f", row {error.lineno}" if error.lineno > 1 else ""
        raise CrowdshotError(
            f"is not JSON ({error.msg})",
            where=f"{place}{row}, character {error.colno}",
            hint="Is the file complete?",
        ) from None
    except (ValueError, RecursionError) as error:
        raise CrowdshotError(f"is not JSON that can be read ({error})", where=place) from None


def parse_json_lines(text: str, name: str, rows_before: int = 0) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the number of each row that is not blank, counted from 1, and the record in it.

    ``rows_before`` is the number of rows of the file that precede the text.
    """
    for row, line in enumerate(text.split("\n"), 1 + rows_before):
        if not line.strip():
            continue
        try:
            record = _loads(line)
        except (ValueError, RecursionError) as error:
            raise CrowdshotError(
                f"is not JSON ({error})", where=f"{name}, row {row}", expected="one record per line"
            ) from None
        yield row, as_record(record, f"{name}, row {row}")


def as_record(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CrowdshotError(f"holds a {type(value).__name__}", where=place, expected="a record {…}")
    return value


def as_list(value: Any, place: str) -> list[Any]:
    """Return a list, which is empty for None."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise CrowdshotError(f"holds a {type(value).__name__}", where=place, expected="a list")
    return value


def as_records(value: Any, place: str) -> list[dict[str, Any]]:
    """Return a list of records, which is empty for None."""
    return [as_record(each, place) for each in as_list(value, place)]


def _loads(text: str) -> Any:
    value = json.loads(text)
    if ZERO.search(text):
        raise ValueError("it has the character \\u0000, which tables cannot hold")
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()  # raises an error for half a surrogate pair
    return value


# ---- results as JSON values ----


# metadata of fields
INLINE = {"inline": True}  # the keys of the value, a dataclass, are keys of the whole; None has no keys
OPTIONAL = {"optional": True}  # no key if the value is None
OMITTED = {"omitted": True}  # no key


def to_json(value: Any) -> Any:
    """Convert dataclasses and named tuples to dicts, paths to text, and NaN and infinity to None.

    >>> from dataclasses import dataclass, field
    >>> @dataclass
    ... class Result:
    ...     kind: str
    ...     files: list[Path]
    ...     gain: float | None = field(default=None, metadata=OPTIONAL)
    >>> to_json(Result("images", [Path("a.csv")]))
    {'kind': 'images', 'files': ['a.csv']}
    """
    if is_dataclass(value) and not isinstance(value, type):
        found: dict[str, Any] = {}
        for each in fields(value):
            rule, content = each.metadata, getattr(value, each.name)
            if rule.get("inline"):
                found |= {} if content is None else to_json(content)
            elif not rule.get("omitted") and (content is not None or not rule.get("optional")):
                found[each.name] = to_json(content)
        return found
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_json(value._asdict())
    if isinstance(value, Mapping):
        return {key: to_json(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
