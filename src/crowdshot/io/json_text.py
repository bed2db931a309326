"""JSON and JSON lines as people's files hold them, with errors that say where."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from crowdshot.errors import CrowdshotError

ZERO = re.compile(r"(?<!\\)(?:\\\\)*\\u0000")


def parse_json(text: str, place: str) -> Any:
    """``place`` is what messages call it: "labels.json"."""
    try:
        return _loads(text)
    except json.JSONDecodeError as error:
        row = f", row {error.lineno}" if error.lineno > 1 else ""
        raise CrowdshotError(
            f"{place}{row}, character {error.colno} is not JSON ({error.msg}), expected JSON: is the file complete?"
        ) from None
    except (ValueError, RecursionError) as error:
        raise CrowdshotError(f"{place} is not JSON that can be read ({error}), expected some that can.") from None


def parse_json_lines(text: str, name: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The rows that hold something, counted from 1, and the record in each."""
    for row, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            record = _loads(line)
        except (ValueError, RecursionError) as error:
            raise CrowdshotError(f"{name}, row {row} is not JSON ({error}), expected a record a line.") from None
        yield row, as_record(record, f"{name}, row {row}")


def as_record(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CrowdshotError(f"{place} holds a {type(value).__name__}, expected a record {{…}}.")
    return value


def _loads(text: str) -> Any:
    value = json.loads(text)
    if ZERO.search(text):
        raise ValueError("it has the character \\u0000, which no table can hold")
    if "\\ud" in text.lower():
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    return value
