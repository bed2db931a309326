"""Read records (dicts) with their position from a JSON array, JSON lines, Parquet or separated text.

Cells of separated text stay text.
"""

from __future__ import annotations

import codecs
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError, NoLabelError
from crowdshot.io import parquet
from crowdshot.io.json_text import as_record, parse_json, parse_json_lines
from crowdshot.io.tables import SAMPLE, UTF16, Table, decode


class Record(NamedTuple):
    """The fields of a record and its place in messages, such as "labels.json, record 3"."""

    place: str
    fields: dict[str, Any]


def starts_with(data: bytes, *starts: bytes) -> bool:
    """Return whether the text starts with one of these, ignoring spaces and a byte order mark."""
    head = data[:SAMPLE]
    if head.startswith(UTF16):
        head = head.decode("utf-16", "ignore").encode(errors="ignore")
    return head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(starts)


def parse_array(data: bytes, name: str) -> list[Record]:
    values = parse_json(decode(data, name), name)
    if not isinstance(values, list):
        raise CrowdshotError(f"holds a {type(values).__name__}", where=name, expected="a list of records")
    if not values:
        raise NoLabelError("holds an empty list", where=name, expected="a list of records")
    places = [f"{name}, record {n}" for n in range(1, len(values) + 1)]
    return [Record(place, as_record(value, place)) for place, value in zip(places, values, strict=True)]


def parse_lines(data: bytes, name: str, most: int | None = None) -> list[Record]:
    """Return the records of JSON lines, or the first ``most`` of them."""
    lines = islice(parse_json_lines(decode(data, name), name), most)
    return [Record(f"{name}, row {row}", record) for row, record in lines]


def rows_of(table: Table, data: bytes) -> list[Record]:
    """Return the rows of a table as records: typed values for Parquet, text for other files."""
    places = [f"{table.name}, row {row}" for row in table.rows]
    if data.startswith(parquet.MAGIC):
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
