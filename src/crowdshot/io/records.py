"""Files of records -> dicts, each with the place where it stands, whatever the file's dress.

A JSON array of objects, JSON lines, Parquet, or text with a separator (whose cells stay text as it was written).
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
    """``place`` is what messages call it: "labels.json, record 3"."""

    place: str
    fields: dict[str, Any]


def starts_with(data: bytes, *starts: bytes) -> bool:
    """Does the text start so, spaces and the mark of its encoding aside?"""
    head = data[:SAMPLE]
    if head.startswith(UTF16):
        head = head.decode("utf-16", "ignore").encode(errors="ignore")
    return head.removeprefix(codecs.BOM_UTF8).lstrip().startswith(starts)


def parse_array(data: bytes, name: str) -> list[Record]:
    values = parse_json(decode(data, name), name)
    if not isinstance(values, list):
        raise CrowdshotError(f"{name} holds a {type(values).__name__}, expected a list of records.")
    if not values:
        raise NoLabelError(f"{name} holds an empty list, expected a list of records.")
    places = [f"{name}, record {n}" for n in range(1, len(values) + 1)]
    return [Record(place, as_record(value, place)) for place, value in zip(places, values, strict=True)]


def parse_lines(data: bytes, name: str, most: int | None = None) -> list[Record]:
    """JSON lines, all of them or the first few."""
    lines = islice(parse_json_lines(decode(data, name), name), most)
    return [Record(f"{name}, row {row}", record) for row, record in lines]


def rows_of(table: Table, data: bytes) -> list[Record]:
    """The rows of a table: values as Parquet has them, of other files text."""
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
