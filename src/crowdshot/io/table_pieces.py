"""Read large tables, as text or Parquet, in pieces, so that memory holds one piece at a time.

Text is cut between records, and each piece is parsed with the header before it.
"""

from __future__ import annotations

import codecs
import os
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crowdshot.errors import CrowdshotError
from crowdshot.io import parquet_files
from crowdshot.io.archive_limits import ZIP
from crowdshot.io.parquet_files import ParquetTable
from crowdshot.io.tables import UTF16, Table, parse_table, read_table

ROWS = 20_000  # of Parquet, in a piece
SIZE = 2 * 2**20  # bytes of text, in a piece
STREAM_SAMPLE = 4_096  # bytes from which the kind of a file is recognised
LONGEST = 10_000  # lines of a record


class Piece(NamedTuple):
    """Some rows of a file; ``done`` of ``total`` rows or bytes have been read."""

    table: Table
    done: int
    total: int


def can_be_cut(path: Path) -> bool:
    """Return whether a file is a table as text or Parquet, not a folder, an archive or a JSON array."""
    try:
        with path.open("rb") as file:
            start = file.read(STREAM_SAMPLE).removeprefix(codecs.BOM_UTF8).lstrip()
    except OSError:
        return False
    return bool(start) and not start.startswith((ZIP, b"[", *UTF16))


def table_pieces(path: str | os.PathLike[str]) -> Iterator[Piece]:
    """Yield the pieces of a file that `can_be_cut`; together they are the table of `read_table`."""
    source = Path(path)
    with source.open("rb") as file:
        if file.peek(STREAM_SAMPLE).startswith(parquet_files.MAGIC):
            yield from _parquet_pieces(source)
        elif source.stat().st_size <= SIZE:
            table = read_table(path)
            yield Piece(table, len(table.frame), len(table.frame))
        else:
            yield from _text_pieces(file, os.fspath(path), source.stat().st_size)


def _parquet_pieces(source: Path) -> Iterator[Piece]:
    opened, done = ParquetTable(source, str(source)), 0
    for frame in opened.frames(ROWS):
        rows = np.arange(done + 1, done + 1 + len(frame))
        done += len(frame)
        yield Piece(Table(str(source), frame, rows), done, opened.n_rows)


def _text_pieces(file: BufferedReader, name: str, total: int) -> Iterator[Piece]:
    is_json = file.peek(STREAM_SAMPLE).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")  # has no header
    records = iter(file) if is_json else _records(file)
    header = b"" if is_json else next(records)
    header_rows, done, columns = len(header.splitlines()), 0, None
    for batch in _batches(records):
        table = parse_table(header + b"".join(batch), name, rows_before=done)
        if columns not in (None, table.header) and header:
            raise CrowdshotError(
                f"has {len(table.header)} columns from row {done + header_rows + 1} on",
                where=name,
                found=len(table.header),
                expected=f"{len(columns or [])} as above",
            )
        columns = table.header
        yield Piece(table, file.tell(), total)
        done += len(batch)


def _records(file: BufferedReader) -> Iterator[bytes]:
    """Yield lines, joined while a quotation mark is open, but at most `LONGEST` because a mark may be a mistake."""
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


def _batches(records: Iterator[bytes]) -> Iterator[list[bytes]]:
    """Yield records in batches of about `SIZE` bytes."""
    batch: list[bytes] = []
    size = 0
    for record in records:
        batch.append(record)
        size += len(record)
        if size >= SIZE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
