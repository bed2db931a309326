"""Tables of any length, a piece at a time: memory holds a piece, however long the file is.

Parquet comes by rows. Text is cut between records, and each piece is parsed with the header before it, as `tables`
parses a whole file.
"""

from __future__ import annotations

import codecs
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crowdshot.errors import CrowdshotError
from crowdshot.files import parquet
from crowdshot.files.parquet import ParquetTable
from crowdshot.files.tables import UTF16, Table, parse_table, read_table
from crowdshot.files.workbooks import ZIP

ROWS = 20_000  # of Parquet, in a piece
SIZE = 2 * 2**20  # bytes of text, in a piece
SAMPLE = 4_096  # bytes that tell JSON lines
LONGEST = 10_000  # lines of a record


class Piece(NamedTuple):
    """``done`` of ``total``: how far the file is read, in rows or in bytes."""

    table: Table
    done: int
    total: int


def can_be_cut(path: Path) -> bool:
    """Whether it is a table as text, or Parquet: no folder, archive or JSON array."""
    try:
        with path.open("rb") as file:
            start = file.read(SAMPLE).removeprefix(codecs.BOM_UTF8).lstrip()
    except OSError:
        return False
    return bool(start) and not start.startswith((ZIP, b"[", *UTF16))


def table_pieces(path: str | os.PathLike[str]) -> Iterator[Piece]:
    """The pieces of a file that `can_be_cut`, and that `read_table` would read whole."""
    source = Path(path)
    with source.open("rb") as file:
        if file.peek(SAMPLE).startswith(parquet.MAGIC):
            yield from _of_parquet(source)
        elif source.stat().st_size <= SIZE:
            table = read_table(path)
            yield Piece(table, len(table.frame), len(table.frame))
        else:
            yield from _of_text(file, os.fspath(path), source.stat().st_size)


def _of_parquet(source: Path) -> Iterator[Piece]:
    opened, done = ParquetTable(source, str(source)), 0
    for frame in opened.frames(ROWS):
        rows = np.arange(done + 1, done + 1 + len(frame))
        done += len(frame)
        yield Piece(Table(str(source), frame, rows), done, opened.n_rows)


def _of_text(file: BufferedReader, name: str, total: int) -> Iterator[Piece]:
    is_json = file.peek(SAMPLE).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")  # has no header
    records = iter(file) if is_json else _records(file)
    header = b"" if is_json else next(records)
    above, done, columns = len(header.splitlines()), 0, None
    for part in _together(records):
        whole = header + b"".join(part)
        try:
            table = parse_table(whole, name)
        except CrowdshotError as error:
            raise CrowdshotError(_further_down(str(error), done)) from None
        if columns not in (None, table.header) and header:
            found = f"{len(table.header)} columns from row {done + above + 1} on"
            raise CrowdshotError(f"{name} has {found}, expected {len(columns or [])} as above.")
        columns = table.header
        yield Piece(replace(table, rows=table.rows + done), file.tell(), total)
        done += len(part)


def _records(file: BufferedReader) -> Iterator[bytes]:
    """Lines, joined where a quotation mark is open at the end of one, which a stray one may be for long."""
    pending: list[bytes] = []
    is_open = False
    for line in file:
        pending.append(line)
        is_open ^= line.count(b'"') % 2 == 1
        if not is_open or len(pending) > LONGEST:
            yield b"".join(pending)
            pending, is_open = [], False
    if pending:
        yield b"".join(pending)


def _together(records: Iterator[bytes]) -> Iterator[list[bytes]]:
    """As many as make a piece."""
    part: list[bytes] = []
    size = 0
    for record in records:
        part.append(record)
        size += len(record)
        if size >= SIZE:
            yield part
            part, size = [], 0
    if part:
        yield part


def _further_down(sentence: str, rows: int) -> str:
    """An error about a piece, with rows as they are counted in the file."""
    return re.sub(r"(?<=\brow )\d+", lambda found: str(int(found[0]) + rows), sentence)
