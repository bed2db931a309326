"""Files with rows and columns -> tables whose cells are as they were written.

Nothing is guessed about what a cell means: "007" stays "007" and "NA" stays "NA"; only a blank cell is missing.
Which kind of file it is shows in its first bytes, not in its name: Parquet, JSON lines, else text with a separator.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.files import cells
from crowdshot.files.cells import Ids
from crowdshot.files.json_text import parse_json_lines
from crowdshot.wording import first

SEPARATORS = ",;\t|"
PARQUET, ZIP = b"PAR1", b"PK\x03\x04"
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
SAMPLE = 64 * 1024  # characters in which the separator is looked for
AROUND = " \t\ufeff"  # what may stand around a cell; files that were joined have a mark before each part
LARGEST_BLOCK = 2**30  # bytes; pyarrow counts them in 32 bits


@dataclass(frozen=True)
class Table:
    """``frame``: the cells. ``rows`` (n,): where in the file each of its rows stands, as a person counts.

    A CSV's header is row 1 and blank lines count; in JSON lines and Parquet the first record is row 1. Columns are
    asked for by position, because two may have the same name.
    """

    name: str
    frame: pd.DataFrame
    rows: NDArray[np.int64]

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
            parsed = pd.to_numeric(pd.Series(words), errors="coerce").to_numpy(np.float64)
            strange = np.isnan(parsed) & (words != "") & (np.char.lower(words.astype(str)) != "nan")
            if strange.any():
                row = first(strange)
                raise CrowdshotError(f"{self.place(row, column)} is {words[row]!r}, expected a number.") from None
        return np.asarray(parsed, dtype=np.float64)


def read_table(path: str | os.PathLike[str]) -> Table:
    return parse_table(read_bytes(path), os.fspath(path))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """The whole file, which must be a file and hold something."""
    source = Path(path)
    if source.is_dir():
        raise CrowdshotError(f"{source} is a folder, expected a file.")
    try:
        data = source.read_bytes()
    except FileNotFoundError:
        raise CrowdshotError(f"{source} does not exist, expected a file.") from None
    except (OSError, ValueError) as error:
        raise CrowdshotError(f"{source} could not be read ({getattr(error, 'strerror', None) or error}).") from None
    if not data.strip():
        raise CrowdshotError(f"{source} is empty, expected a table.")
    return data


def parse_table(data: bytes, name: str) -> Table:
    """The bytes of a file of any kind that this module knows; messages call it ``name``."""
    if data.startswith(PARQUET):
        return _parse_parquet(data, name)
    if data.startswith(ZIP):
        raise CrowdshotError(f"{name} is a zip archive (an Excel workbook?), expected CSV, JSON lines or Parquet.")
    text = decode(data, name)
    start = text[:SAMPLE].lstrip()[:1]
    if start == "{":
        return _parse_json_lines(text, name)
    if start == "[":
        raise CrowdshotError(f"{name} is a JSON array, expected CSV, JSON lines (a record a line) or Parquet.")
    return _parse_separated(text, name)


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


def _parse_separated(text: str, name: str) -> Table:
    """Rows of cells; the first row names the columns. A row with too many or too few cells is an error.

    Excel may have put a row before it that tells the separator, ``sep=;``.
    """
    told = re.match(r"\"?sep=.\"?(\r?\n|$)", text)
    before = 1 if told else 0  # rows above the header
    text = text[told.end() :] if told else text
    if not text.strip():
        raise CrowdshotError(f"{name} has no rows, expected a table.")
    separator, width = _sniff(text, name)
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
    frame = cells.slice(1).to_pandas()
    frame.columns = pd.Index([str(cells.column(i)[0]).strip() for i in range(width)])
    rows = np.setdiff1d(np.arange(2, 2 + len(frame) + len(blank)) + before, blank)
    first_cells = pa.compute.utf8_trim(cells.column(0).slice(1), characters=AROUND)
    maybe = np.flatnonzero(pa.compute.equal(first_cells, frame.columns[0]).to_numpy(zero_copy_only=False))
    again = maybe[[[cell.strip(AROUND) for cell in frame.iloc[row]] == list(frame.columns) for row in maybe]]
    if len(again):
        many = f" (and {len(again) - 1:,} more)" if len(again) > 1 else ""
        warnings.warn(
            f"{name}: row {rows[again[0]]} repeats the header{many}, and is left out.", UserWarning, stacklevel=2
        )
    useless = np.union1d(again, _empty_rows(frame))
    if len(useless) == 0:
        return Table(name, frame, rows)
    return Table(name, frame.drop(index=useless).reset_index(drop=True), np.delete(rows, useless))


def _empty_rows(frame: pd.DataFrame) -> NDArray[np.int64]:
    """Positions of the rows in which no cell holds anything."""
    empty = np.arange(len(frame))
    for column in range(frame.shape[1]):
        empty = empty[(frame.iloc[empty, column] == "").to_numpy(bool)]
    return empty


def _sniff(text: str, name: str) -> tuple[str, int]:
    """The separator, and how many columns it makes of the header.

    The one with which the rows that follow are as long as the header; of several, the one that makes most columns.
    """
    lines = list(io.StringIO(text[:SAMPLE], newline=""))
    if len(text) > SAMPLE and len(lines) > 1:
        lines.pop()  # it may be cut short
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


def _parse_json_lines(text: str, name: str) -> Table:
    rows, records = zip(*parse_json_lines(text, name), strict=True)  # it begins with one
    # as objects, because pandas would make 7.0 of a 7 above a missing value
    return Table(name, pd.DataFrame(list(records), dtype=object), np.array(rows))


def _parse_parquet(data: bytes, name: str) -> Table:
    try:
        frame = pa.parquet.read_table(pa.BufferReader(data)).to_pandas()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CrowdshotError(f"{name} is damaged ({str(error).splitlines()[0]}), expected a Parquet file.") from None
    if frame.index.name is not None or frame.index.dtype.kind not in "iu":
        frame = frame.reset_index()  # ids that a DataFrame had as its index
    return Table(name, frame, np.arange(1, 1 + len(frame)))


def one_each(table: Table, column: int) -> Ids:
    """The ids in a column, in which every row must have one and no two rows the same."""
    ids = table.text(column)
    if (ids == "").any():
        raise CrowdshotError(f"{table.place(first(ids == ''), column)} is empty, expected an id.")
    repeated = pd.Index(ids).duplicated()
    if repeated.any():
        row = first(repeated)
        earlier = table.rows[first(ids == ids[row])]
        raise CrowdshotError(
            f"{table.place(row, column)} is {ids[row]!r}, which row {earlier} has too ({repeated.sum()} ids are"
            " repeated), expected different ids."
        )
    return ids
