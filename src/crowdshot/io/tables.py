"""Files with rows and columns -> tables whose cells are as they were written.

Nothing is guessed about what a cell means: "007" stays "007" and "NA" stays "NA"; only a blank cell is missing.
Which kind of file it is shows in its first bytes, not in its name: Parquet, an Excel workbook, JSON lines, else text
with a separator.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import BufferedReader
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, listing
from crowdshot.io import cells, parquet
from crowdshot.io.cells import AROUND, Ids, trim
from crowdshot.io.formulas import unguarded
from crowdshot.io.json_text import parse_json_lines
from crowdshot.io.parquet import ParquetTable
from crowdshot.io.workbooks import ZIP, Workbook, refuse_old

# ---- separated ------------------------------------------------------------
#
# Text with a separator -> rows of cells.


SEPARATORS = ",;\t|"
SAMPLE = 64 * 1024  # characters in which the separator is looked for
LARGEST_BLOCK = 2**30  # bytes; pyarrow counts them in 32 bits


def parse_separated(text: str, name: str) -> tuple[pd.DataFrame, NDArray[np.int64], str]:
    """All rows, the header's too, where in the file they stand, and the separator.

    A row with too many or too few cells is an error.

    Excel may have put a row before them that tells the separator, ``sep=;``.
    """
    told = re.match(r"\"?sep=.\"?(\r?\n|$)", text)
    before = 1 if told else 0  # rows above the header
    text = text[told.end() :] if told else text
    if not text.strip():
        raise CrowdshotError(f"{name} has no rows, expected a table.")
    separator, width = sniff(text, name)
    blank: list[int] = []
    ragged: list[tuple[int, int]] = []

    def odd_row(row: Any) -> str:
        if row.text.strip():
            ragged.append((row.number + before, row.actual_columns))
        else:
            blank.append(row.number + before)
        return "skip"

    data = text.encode()
    names = [str(column) for column in range(width)]
    try:
        cells = pa.csv.read_csv(
            pa.BufferReader(data),
            pa.csv.ReadOptions(use_threads=False, column_names=names, block_size=min(len(data) + 1, LARGEST_BLOCK)),
            pa.csv.ParseOptions(
                delimiter=separator, newlines_in_values=True, ignore_empty_lines=False, invalid_row_handler=odd_row
            ),
            pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string())),
        )
    except pa.ArrowInvalid as error:
        raise CrowdshotError(f"{name} could not be read as a table ({error}).") from None
    if ragged:
        row, found = ragged[0]
        others = f" ({len(ragged)} rows are like that)" if len(ragged) > 1 else ""
        hint = ": is a quotation mark left open?" if found < width and '"' in text else "."
        raise CrowdshotError(f"{name}, row {row} has {found} cells, expected {width} as in the header{others}{hint}")
    rows = np.arange(1, 1 + cells.num_rows + len(blank)) + before
    return cells.to_pandas(), np.setdiff1d(rows, blank) if blank else rows, separator


def sniff(text: str, name: str) -> tuple[str, int]:
    """The separator, and how many columns it makes of the header.

    The one with which the rows that follow are as long as the header; of several, the one that makes most columns.
    """
    end = text.find("\n", SAMPLE)  # the header, which may be longer than that, is never cut short
    lines = list(io.StringIO(text if end < 0 else text[:end], newline=""))
    if not lines[0].strip():
        raise CrowdshotError(f"{name}, row 1 is blank, expected the names of the columns.")
    best = (False, 1, "")
    for separator in SEPARATORS:
        try:
            widths = [len(row) for row in csv.reader(lines[:50], delimiter=separator) if row]
        except csv.Error:
            continue
        if widths[0] > 1:
            best = max(best, (set(widths) == {widths[0]}, widths[0], separator), key=lambda found: found[:2])
    _, width, separator = best
    if width == 1:
        raise CrowdshotError(
            f"{name} has one column, {lines[0].strip()[:80]!r}, expected several, separated by commas, semicolons,"
            " tabs or bars."
        )
    return separator, width


# ---- tables ------------------------------------------------------------


UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
DECIMAL_COMMA = r"[-+]?(\d+|\d{1,3}(\.\d{3})+)?,\d+([eE][-+]?\d+)?"  # 1,5 and 1.234,5, as in German or French sheets
MOST_ABOVE = 20  # rows in which the header is looked for


@dataclass(frozen=True)
class Table:
    """``frame``: the cells. ``rows`` (n,): where in the file each of its rows stands, as a person counts.

    A CSV's first line is row 1 and blank ones count; in JSON lines and Parquet the first record is row 1. Columns are
    asked for by position, because two may have the same name. ``decimal_comma``: numbers may have one, as the separator
    is something else.
    """

    name: str
    frame: pd.DataFrame
    rows: NDArray[np.int64]
    decimal_comma: bool = False

    def __post_init__(self) -> None:
        if self.frame.shape[1] == 0:  # records without a field
            raise CrowdshotError(f"{self.name} has no column, expected a table.")

    @property
    def header(self) -> list[str]:
        return [str(column) for column in self.frame.columns]

    def place(self, position: int, column: int) -> str:
        return f"{self.name}, row {self.rows[position]}, column {self.header[column]!r}"

    def text(self, column: int) -> Ids:
        """(n,) the cells of a column as text, without the spaces around it; "" where blank."""
        values = self.frame.iloc[:, column]
        try:
            code, distinct = pd.factorize(values)
        except TypeError:  # JSON lines and Parquet may hold lists, which cannot be factorized
            code, distinct = np.arange(len(values)), pd.Index(values, tupleize_cols=False)
        words = [cells.text(value) for value in distinct]
        if None in words:
            strange = words.index(None)
            found = type(distinct[strange]).__name__
            raise CrowdshotError(
                f"{self.place(first(code == strange), column)} holds a {found}, expected text or a number."
            )
        text: Ids = np.array([*words, ""], dtype=object)[code]
        return text

    def numbers(self, column: int) -> NDArray[np.float64]:
        """(n,) the cells of a column as numbers; NaN where blank."""
        values = self.frame.iloc[:, column]
        if values.dtype.kind in "buif":
            return np.asarray(values, dtype=np.float64)
        try:
            cells = pa.compute.utf8_trim_whitespace(pa.array(values, pa.string()))
            parsed = pa.compute.cast(cells, pa.float64()).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # slower, but it tells which cell is not a number
            words = self.text(column)
            parsed = self.parsed(words)
            strange = np.isnan(parsed) & (words != "") & (np.char.lower(words.astype(str)) != "nan")
            if strange.any():
                row = first(strange)
                raise CrowdshotError(f"{self.place(row, column)} is {words[row]!r}, expected a number.") from None
        return np.asarray(parsed, dtype=np.float64)

    def parsed(self, words: Ids) -> NDArray[np.float64]:
        """(n,) the cells of a column, as `text` gives them, as numbers; NaN where one is none.

        A point and no comma, in a column with decimal commas, may be a decimal point or not: that is no number.
        """
        found = pd.Series(words, dtype=object)
        with_comma = found.str.fullmatch(DECIMAL_COMMA)
        if self.decimal_comma and with_comma.any():
            english = found.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
            found = english.where(with_comma, found.mask(found.str.contains(".", regex=False)))
        numbers: NDArray[np.float64] = pd.to_numeric(found, errors="coerce").to_numpy(np.float64)
        return numbers


def read_table(path: str | os.PathLike[str]) -> Table:
    return parse_table(read_bytes(path), os.fspath(path))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The whole file, which must be a file and hold something."""
    source = Path(path)
    try:
        if source.is_dir():
            raise CrowdshotError(f"{source} is a folder, expected a file.")
        data = source.read_bytes()
    except FileNotFoundError:
        raise CrowdshotError(f"{source} does not exist, expected a file.") from None
    except CrowdshotError:
        raise
    except (OSError, ValueError) as error:
        raise CrowdshotError(f"{source} could not be read ({getattr(error, 'strerror', None) or error}).") from None
    if not data.strip():
        raise CrowdshotError(f"{source} is empty, expected a table.")
    return data


def parse_workbook(data: bytes, name: str, sheet: str | None = None) -> dict[str, Table | CrowdshotError]:
    """The tables in the sheets of a workbook by the sheets' names, or the one in the sheet that is named.

    What is wrong with a sheet stands in its place: others may be meant.
    """
    workbook = Workbook(data, name)
    sheets = workbook.sheets
    if sheet is not None and sheet not in sheets:
        raise CrowdshotError(f"sheet is {sheet!r}, expected one of those in {name}, {listing(sheets)}.")
    tables: dict[str, Table | CrowdshotError] = {}
    for title in sheets if sheet is None else [sheet]:
        try:
            rows = workbook.rows(title)
        except CrowdshotError as error:
            tables[title] = error
            continue
        if any(len(cells) > 1 for _, cells in rows):
            columns = zip_longest(*(cells for _, cells in rows), fillvalue="")
            cells = pd.DataFrame(dict(enumerate(columns)), dtype=object)
            called = name if len(sheets) == 1 else f"{name}, sheet {title!r}"
            tables[title] = _with_header(called, cells, np.array([number for number, _ in rows]))
    if not tables:
        where = f"{name}, sheet {sheet!r}" if sheet else name
        raise CrowdshotError(f"{where} holds no table, expected one with several columns.")
    return tables


def only(tables: dict[str, Table | CrowdshotError], name: str) -> Table:
    """The one table of a workbook."""
    if len(tables) > 1:
        raise CrowdshotError(f"{name} has {len(tables)} sheets with a table, {listing(tables)}, expected one.")
    (table,) = tables.values()
    if isinstance(table, CrowdshotError):
        raise table
    return table


def parse_table(data: bytes, name: str) -> Table:
    """The bytes of a file of any kind that this module knows; messages call it ``name``."""
    if data.startswith(parquet.MAGIC):
        (frame,) = ParquetTable(data, name).frames()
        return Table(name, frame, np.arange(1, 1 + len(frame)))
    if data.startswith(ZIP):
        return only(parse_workbook(data, name), name)
    refuse_old(data, name)
    text = decode(data, name)
    start = text[:SAMPLE].lstrip()[:1]
    if start == "{":
        return _parse_json_lines(text, name)
    if re.match(r"\s*<(!doctype|html|table|\?xml)", text[:SAMPLE], re.IGNORECASE):
        raise CrowdshotError(f'{name} is HTML or XML, expected a table; save the sheet as .xlsx or "CSV UTF-8".')
    if start == "[":
        raise CrowdshotError(f"{name} is a JSON array, expected CSV, JSON lines (a record a line) or Parquet.")
    cells, rows, separator = parse_separated(text, name)
    return replace(_with_header(name, cells, rows), decimal_comma=separator != ",")


def decode(data: bytes, name: str) -> str:
    """UTF-8, with or without its mark, or UTF-16 with one."""
    encoding, called = ("utf-16", "UTF-16") if data.startswith(UTF16) else ("utf-8-sig", "UTF-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        _refuse_binary(data, name)
        row = data.count(b"\n", 0, error.start) + 1
        found = f"the byte 0x{data[error.start]:02x}, which is not {called} text"
        raise CrowdshotError(
            f'{name}, row {row} has {found}, expected text; save the file as UTF-8 (in Excel, "CSV UTF-8").'
        ) from None
    if "\0" in text:
        _refuse_binary(data, name)
        row = text.count("\n", 0, text.index("\0")) + 1
        raise CrowdshotError(
            f"{name}, row {row} has zero bytes, as UTF-16 without a mark has, expected text; save the file as UTF-8."
        )
    return text


def _refuse_binary(data: bytes, name: str) -> None:
    """Of what is no text, that it is none; told by control characters (zero bytes may be UTF-16's)."""
    if sum(0 < byte < 9 or 13 < byte < 32 for byte in data[:4096]) > 2:
        raise CrowdshotError(f"{name} holds binary data, expected a table as text or Parquet.") from None


def _with_header(name: str, frame: pd.DataFrame, rows: NDArray[np.int64]) -> Table:
    """Rows of text, of which the first names the columns, but for what a sheet may have above it (`_header`).

    Left out are rows in which nothing stands, columns in which nothing stands, not even a name, and, as is told, a
    header that is repeated.
    """
    frame = unguarded(frame)
    start, names = _header(frame.head(MOST_ABOVE).to_numpy())
    frame, rows = frame.iloc[start:].reset_index(drop=True), rows[start:]
    useful = [column for column, word in enumerate(names) if word or (frame.iloc[:, column] != "").any()]
    if not useful:
        raise CrowdshotError(f"{name} has no cell that holds anything, expected a table.")
    frame = frame.iloc[:, useful].set_axis([names[column] for column in useful], axis=1)
    first_cells = pa.compute.utf8_trim(pa.array(frame.iloc[:, 0], pa.string()), characters=AROUND)
    maybe = np.flatnonzero(pa.compute.equal(first_cells, frame.columns[0]).to_numpy(zero_copy_only=False))
    again = maybe[[[trim(cell) for cell in frame.iloc[row]] == list(frame.columns) for row in maybe]]
    if len(again):
        many = f" (and {len(again) - 1:,} more)" if len(again) > 1 else ""
        warnings.warn(
            f"{name}: row {rows[again[0]]} repeats the header{many}, and is left out.", UserWarning, stacklevel=2
        )
    useless = np.union1d(again, _empty_rows(frame))
    if len(useless) == 0:
        return Table(name, frame, rows)
    return Table(name, frame.drop(index=useless).reset_index(drop=True), np.delete(rows, useless))


def _header(top: NDArray[Any]) -> tuple[int, list[str]]:
    """How many rows it takes, titles above it included, and the names of the columns.

    A title is a row with one cell filled of three or more. A sheet may group its columns, in a row of names over
    several of them each, above the row with their own: then a column has the lower of its names.
    """
    words = [[trim(str(cell)) for cell in row] for row in top]
    filled = [sum(map(bool, row)) for row in words]
    start = next((row for row, n in enumerate(filled) if n > 1 or (n == 1 and len(words[row]) < 3)), 0)
    if start + 1 == len(words):
        return start + 1, words[start]
    upper, lower = words[start : start + 2]
    nameless = [column for column, word in enumerate(upper) if not word]
    below = any(word and not lower[column] for column, word in enumerate(upper))  # a name that takes both rows
    grouped = nameless and all(lower[column] for column in nameless) and (below or (0 in nameless and nameless[1:]))
    return (start + 2, [low or up for up, low in zip(upper, lower, strict=True)]) if grouped else (start + 1, upper)


def _empty_rows(frame: pd.DataFrame) -> NDArray[np.int64]:
    """Positions of the rows in which no cell holds anything."""
    empty = np.arange(len(frame))
    for column in range(frame.shape[1]):
        empty = empty[(frame.iloc[empty, column] == "").to_numpy(bool)]
    return empty


def _parse_json_lines(text: str, name: str) -> Table:
    rows, records = zip(*parse_json_lines(text, name), strict=True)  # it begins with one
    # as objects, because pandas would make 7.0 of a 7 above a missing value
    return Table(name, pd.DataFrame(list(records), dtype=object), np.array(rows))


def ids_of(table: Table, column: int) -> Ids:
    """The ids in a column, in which every row must have one."""
    ids = table.text(column)
    if (ids == "").any():
        raise CrowdshotError(f"{table.place(first(ids == ''), column)} is empty, expected an id.")
    return ids


def one_each(table: Table, column: int) -> Ids:
    """The same, where no two rows may have the same."""
    ids = ids_of(table, column)
    repeated = pd.Index(ids).duplicated()
    if repeated.any():
        row = first(repeated)
        earlier = table.rows[first(ids == ids[row])]
        raise CrowdshotError(
            f"{table.place(row, column)} is {ids[row]!r}, which row {earlier} has too ({repeated.sum()} ids are"
            " repeated), expected different ids."
        )
    return ids


# ---- streams ------------------------------------------------------------
#
# Tables of any length, a piece at a time: memory holds a piece, however long the file is.
#
# Parquet comes by rows. Text is cut between records, and each piece is parsed with the header before it, as `tables`
# parses a whole file.


ROWS = 20_000  # of Parquet, in a piece
SIZE = 2 * 2**20  # bytes of text, in a piece
STREAM_SAMPLE = 4_096  # bytes that tell JSON lines
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
            start = file.read(STREAM_SAMPLE).removeprefix(codecs.BOM_UTF8).lstrip()
    except OSError:
        return False
    return bool(start) and not start.startswith((ZIP, b"[", *UTF16))


def table_pieces(path: str | os.PathLike[str]) -> Iterator[Piece]:
    """The pieces of a file that `can_be_cut`, and that `read_table` would read whole."""
    source = Path(path)
    with source.open("rb") as file:
        if file.peek(STREAM_SAMPLE).startswith(parquet.MAGIC):
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
    is_json = file.peek(STREAM_SAMPLE).removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"{")  # has no header
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
