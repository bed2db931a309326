"""Files of records -> dicts, each with the place where it stands, whatever the file's dress.

A JSON array of objects, JSON lines, Parquet, or text with a separator (whose cells stay text as it was written).
"""

from __future__ import annotations

import codecs
import io
import json
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError, NoLabelError
from crowdshot.files.tables import PARQUET, SAMPLE, UTF16, Table, decode


class Record(NamedTuple):
    """``place`` is what messages call it: "labels.json, record 3"."""

    place: str
    fields: dict[str, Any]


def starts_with(data: bytes, *starts: bytes) -> bool:
    """Does the text start so, spaces and the mark of its encoding aside?"""
    head = data[:SAMPLE]
    if head.startswith(UTF16):
        head = head.decode("utf-16", "ignore").encode(errors="ignore")
    return head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(starts)


def parse_json(text: str, place: str) -> Any:
    try:
        value = json.loads(text)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair is no text
    except json.JSONDecodeError as error:
        row = f", row {error.lineno}" if error.lineno > 1 else ""
        raise CrowdshotError(
            f"{place}{row}, character {error.colno} is not JSON ({error.msg}): is the file complete?"
        ) from None
    except (ValueError, RecursionError) as error:
        raise CrowdshotError(f"{place} is not JSON that can be read ({error}).") from None
    return value


def parse_array(data: bytes, name: str) -> list[Record]:
    values = parse_json(decode(data, name), name)
    if not isinstance(values, list):
        raise CrowdshotError(f"{name} holds a {type(values).__name__}, expected a list of records.")
    if not values:
        raise NoLabelError(f"{name} holds an empty list, expected a list of records.")
    return [_record(f"{name}, record {n}", value) for n, value in enumerate(values, 1)]


def parse_lines(data: bytes, name: str, most: int | None = None) -> list[Record]:
    """JSON lines, all of them or the first few."""
    found: list[Record] = []
    for row, line in enumerate(io.StringIO(decode(data, name), newline="\n"), 1):
        if len(found) == most:
            break
        if line.strip():
            place = f"{name}, row {row}"
            found.append(_record(place, parse_json(line, place)))
    return found


def _record(place: str, value: Any) -> Record:
    if not isinstance(value, dict):
        raise CrowdshotError(f"{place} holds a {type(value).__name__}, expected a record {{…}}.")
    return Record(place, value)


def rows_of(table: Table, data: bytes) -> list[Record]:
    """The rows of a table: values as Parquet has them, of other files text."""
    places = [f"{table.name}, row {row}" for row in table.rows]
    if data.startswith(PARQUET):
        columns = [[_plain(value) for value in table.frame.iloc[:, i]] for i in range(len(table.header))]
    else:
        columns = [table.text(i).tolist() for i in range(len(table.header))]
    values = zip(*columns, strict=True) if columns else ()
    return [
        Record(place, dict(zip(table.header, row, strict=True))) for place, row in zip(places, values, strict=False)
    ]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain(part) for part in value.tolist()]
    if isinstance(value, np.generic):
        return value.item()
    return None if value is pd.NA or value is pd.NaT else value
