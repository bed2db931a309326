"""Read tables from separated text, Excel workbooks, JSON lines and Parquet, with the cells as they are in the file.

Cells are not interpreted: "007" stays "007" and "NA" stays "NA"; only a blank cell is missing. The kind of a file is
recognised from its first bytes, not from its name. `table_pieces` reads large files in pieces.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
import re
import warnings
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError, CrowdshotWarning, NoLabelError
from crowdshot.formatting import first, listing
from crowdshot.io import cells, parquet_files
from crowdshot.io.archive_limits import MOST_CELLS, OLD_WORKBOOK, ZIP
from crowdshot.io.cells import AROUND, Ids, trim, unguarded
from crowdshot.io.json_text import as_record, parse_json, parse_json_lines
from crowdshot.io.parquet_files import ParquetTable

SEPARATORS = ",;\t|"
SAMPLE = 64 * 1024  # characters from which the separator is detected
LARGEST_BLOCK = 2**30  # bytes; pyarrow counts them in 32 bits
UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
DECIMAL_COMMA = r"[-+]?(\d+|\d{1,3}(\.\d{3})+)?,\d+([eE][-+]?\d+)?"  # 1,5 and 1.234,5, as in German or French sheets
MOST_ABOVE = 20  # rows among which the header is searched


class RaggedError(CrowdshotError):
    """Report a row with more or fewer cells than the header."""


class Separated(NamedTuple):
    """All rows of separated text with the header, their numbers in the file from 1, and what was found about them."""

    cells: pd.DataFrame
    rows: NDArray[np.int64]
    separator: str
    n_ragged: int = 0


def parse_separated(text: str, name: str, rows_before: int = 0, skip_bad: bool = False) -> Separated:
    """Parse separated text; a row with too many or too few cells is an error.

    Excel may write a row ``sep=;`` above the header, which is skipped, and so are titles above it.

    Parameters
    ----------
    text : str
    name : str
        Name of the file in messages.
    rows_before : int
        Number of rows of the file that precede the text.
    skip_bad : bool
        Whether to leave out rows with too many or too few cells.
    """
    sep_row = re.match(r"\"?sep=.\"?(\r?\n|$)", text)
    before = rows_before + (1 if sep_row else 0)
    text = text[sep_row.end() :] if sep_row else text
    if not text.strip():
        raise CrowdshotError("has no rows", where=name, expected="a table")
    titles = _title_lines(text) if rows_before == 0 else 0
    before += titles
    text = "".join(text.splitlines(keepends=True)[titles:]) if titles else text
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
        raise CrowdshotError(f"could not be read as a table ({error})", where=name) from None
    if ragged and not skip_bad:
        row, found = ragged[0]
        others = f" ({len(ragged)} rows are like that)" if len(ragged) > 1 else ""
        raise RaggedError(
            f"has {found} cells",
            where=f"{name}, row {row}",
            found=found,
            expected=f"{width} as in the header{others}",
            hint=f"If row {1 + before} is a title, remove it."
            if cells.num_rows <= 1  # no row fits the header
            else "Is a quotation mark left open?"
            if found < width and text.count('"') % 2
            else None,
        )
    dropped = [*blank, *(row for row, _ in ragged)]
    rows = np.arange(1, 1 + cells.num_rows + len(dropped)) + before
    rows = np.setdiff1d(rows, dropped) if dropped else rows
    return Separated(cells.to_pandas(), rows, separator, len(ragged))


def _title_lines(text: str) -> int:
    """Return the number of lines above the header that are titles: shorter than all rows that follow."""
    end = text.find("\n", SAMPLE)
    lines = (text if end < 0 else text[:end]).splitlines(keepends=True)[:50]
    best = 0
    for separator in SEPARATORS:
        reader = csv.reader(lines, delimiter=separator)
        try:
            records = [(len(row), reader.line_num) for row in reader]
        except csv.Error:
            continue
        widths = [width for width, _ in records]
        widest = max(widths)
        top = widths.index(widest)
        rest = [width for width in widths[top:] if width]
        full = sum(width == widest for width in rest) >= max(2, 0.8 * len(rest))
        if full and 0 < top <= MOST_ABOVE and widest > max(2, 2 * max(widths[:top]) - 1):
            best = max(best, records[top - 1][1])
    return best


def sniff(text: str, name: str) -> tuple[str, int]:
    """Return the separator and the number of columns in the header.

    Separators that split all rows into as many cells as the header are preferred, then those with the most columns.
    """
    end = text.find("\n", SAMPLE)  # a header longer than the sample is not cut
    lines = list(io.StringIO(text if end < 0 else text[:end], newline=""))
    if not lines[0].strip():
        raise CrowdshotError("is blank", where=f"{name}, row 1", expected="the names of the columns")
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
        column = lines[0].strip()[:80]
        raise CrowdshotError(
            f"has one column, {column!r}",
            where=name,
            found=column,
            expected="several, separated by commas, semicolons, tabs or bars",
        )
    return separator, width


@dataclass(frozen=True)
class Table:
    """A table and the row numbers in its file. Columns are addressed by position, because names may be repeated.

    Attributes
    ----------
    name : str
        Name of the file in messages.
    frame : DataFrame
        The cells.
    rows : (n,) array
        The row number of each row in the file. The first line of a CSV file is row 1, and blank lines count; in JSON
        lines and Parquet the first record is row 1.
    decimal_comma : bool
        Whether numbers may have a decimal comma, because the separator is not a comma.
    n_ragged : int
        The number of rows with too many or too few cells, which were left out.
    """

    name: str
    frame: pd.DataFrame
    rows: NDArray[np.int64]
    decimal_comma: bool = False
    n_ragged: int = 0

    def __post_init__(self) -> None:
        if self.frame.shape[1] == 0:  # records without a field
            raise CrowdshotError("has no column", where=self.name, expected="a table")

    @cached_property
    def header(self) -> list[str]:
        return [str(column) for column in self.frame.columns]

    def place(self, position: int, column: int) -> str:
        return f"{self.name}, row {self.rows[position]}, column {self.header[column]!r}"

    def text(self, column: int) -> Ids:
        """Return the cells (n,) of a column as trimmed text, "" where blank."""
        values = self.frame.iloc[:, column]
        try:
            code, distinct = pd.factorize(values)
        except TypeError:  # JSON lines and Parquet may hold lists, which cannot be factorized
            code, distinct = np.arange(len(values)), pd.Index(values, tupleize_cols=False)
        words = [cells.text(value) for value in distinct]
        if None in words:
            odd = words.index(None)
            found = type(distinct[odd]).__name__
            raise CrowdshotError(
                f"holds a {found}",
                where=self.place(first(code == odd), column),
                found=found,
                expected="text or a number",
            )
        text: Ids = np.array([*words, ""], dtype=object)[code]
        return text

    def numbers(self, column: int) -> NDArray[np.float64]:
        """Return the cells (n,) of a column as numbers, NaN where blank."""
        values = self.frame.iloc[:, column]
        if values.dtype.kind in "buif":
            return np.asarray(values, dtype=np.float64)
        try:
            cells = pa.compute.utf8_trim_whitespace(pa.array(values, pa.string()))
            parsed = pa.compute.cast(cells, pa.float64()).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError):  # the slower way finds the cell that is not a number
            words = self.text(column)
            parsed = self.parsed(words)
            odd = np.isnan(parsed) & (words != "") & (np.char.lower(words.astype(str)) != "nan")
            if odd.any():
                row = first(odd)
                raise CrowdshotError(
                    f"is {words[row]!r}", where=self.place(row, column), found=words[row], expected="a number"
                ) from None
        return np.asarray(parsed, dtype=np.float64)

    def parsed(self, words: Ids) -> NDArray[np.float64]:
        """Return the cells (n,) of a column, as `text` returns them, as numbers; NaN where a cell is not a number.

        In a column with decimal commas, a cell with a point and no comma is ambiguous and becomes NaN.
        """
        found = pd.Series(words, dtype=object)
        with_comma = found.str.fullmatch(DECIMAL_COMMA)
        if self.decimal_comma and with_comma.any():
            english = found.str.replace(".", "", regex=False).str.replace(",", ".", regex=False)
            found = english.where(with_comma, found.mask(found.str.contains(".", regex=False)))
        numbers: NDArray[np.float64] = pd.to_numeric(found, errors="coerce").to_numpy(np.float64)
        return numbers


def read_table(path: str | os.PathLike[str]) -> Table:
    """Read a file as `parse_table` does."""
    return parse_table(read_bytes(path), os.fspath(path))


def read_bytes(path: str | os.PathLike[str]) -> bytes:
    """Return the content of a file that is not blank."""
    source = Path(path)
    try:
        if source.is_dir():
            raise CrowdshotError("is a folder", where=source, expected="a file")
        data = source.read_bytes()
    except FileNotFoundError:
        raise CrowdshotError("does not exist", where=source, expected="a file") from None
    except CrowdshotError:
        raise
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise CrowdshotError(f"could not be read ({reason})", where=source) from None
    if not data.strip():
        raise CrowdshotError("is empty", where=source, expected="a table")
    return data


def parse_workbook(data: bytes, name: str, sheet: str | None = None) -> dict[str, Table | CrowdshotError]:
    """Return the tables of a workbook by sheet, or only the one in the named sheet.

    A sheet that cannot be read has its error in place of a table, because the caller may need another sheet.
    """
    from crowdshot.io.workbooks import read_sheets

    sheets, found = read_sheets(data, name, sheet)
    tables: dict[str, Table | CrowdshotError] = {}
    for title, rows in found.items():
        if isinstance(rows, CrowdshotError):
            tables[title] = rows
            continue
        if any(len(cells) > 1 for _, cells in rows):
            columns = zip_longest(*(cells for _, cells in rows), fillvalue="")
            cells = pd.DataFrame(dict(enumerate(columns)), dtype=object)
            place = name if len(sheets) == 1 else f"{name}, sheet {title!r}"
            tables[title] = _with_header(place, cells, np.array([number for number, _ in rows]))
    if not tables:
        where = f"{name}, sheet {sheet!r}" if sheet else name
        raise CrowdshotError("holds no table", where=where, expected="one with several columns")
    return tables


def only(tables: dict[str, Table | CrowdshotError], name: str) -> Table:
    """Return the single table of a workbook; refuse workbooks with several."""
    if len(tables) > 1:
        raise CrowdshotError(
            f"has {len(tables)} sheets with a table, {listing(tables)}",
            where=name,
            found=list(tables),
            expected="one",
        )
    (table,) = tables.values()
    if isinstance(table, CrowdshotError):
        raise table
    return table


def parse_table(data: bytes, name: str, rows_before: int = 0, skip_bad: bool = False) -> Table:
    """Parse the content of a file of any kind that this module reads.

    Parameters
    ----------
    data : bytes
    name : str
        Name of the file in messages.
    rows_before : int
        Number of rows of the file that precede the data, if the data are a piece of a text file.
    skip_bad : bool
        Whether to leave out rows of separated text with too many or too few cells.

    Returns
    -------
    Table
    """
    if data.startswith(parquet_files.MAGIC):
        (frame,) = ParquetTable(data, name).frames()
        return Table(name, frame, np.arange(1, 1 + len(frame)))
    if data.startswith(ZIP):
        return only(parse_workbook(data, name), name)
    if data.startswith(OLD_WORKBOOK):
        raise CrowdshotError(
            "is an old Excel workbook (.xls) or has a password",
            where=name,
            expected="an .xlsx file without a password",
            hint='Save it as .xlsx or as "CSV UTF-8"',
        )
    text = decode(data, name, rows_before)
    start = text[:SAMPLE].lstrip()[:1]
    if start == "{":
        return _parse_json_lines(text, name, rows_before)
    if markup := re.match(r"\s*<(!doctype|html|table|\?xml)", text[:SAMPLE], re.IGNORECASE):
        page = 'Save the sheet as .xlsx or "CSV UTF-8"'
        hint = "Export labels as a table, and boxes as COCO" if markup[1] == "?xml" else page
        raise CrowdshotError("is HTML or XML", where=name, expected="a table", hint=hint)
    if start == "[":
        raise CrowdshotError("is a JSON array", where=name, expected="CSV, JSON lines (one record per line) or Parquet")
    cells, rows, separator, n_ragged = parse_separated(text, name, rows_before, skip_bad)
    return replace(_with_header(name, cells, rows), decimal_comma=separator != ",", n_ragged=n_ragged)


def decode(data: bytes, name: str, rows_before: int = 0) -> str:
    """Decode UTF-8, with or without a byte order mark, or UTF-16 with one."""
    encoding, encoding_name = ("utf-16", "UTF-16") if data.startswith(UTF16) else ("utf-8-sig", "UTF-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        _refuse_binary(data, name)
        row = data.count(b"\n", 0, error.start) + 1 + rows_before
        raise CrowdshotError(
            f"has the byte 0x{data[error.start]:02x}, which is not {encoding_name} text",
            where=f"{name}, row {row}",
            found=data[error.start],
            hint='Save the file as UTF-8 (in Excel, "CSV UTF-8")',
        ) from None
    if "\0" in text:
        _refuse_binary(data, name)
        row = text.count("\n", 0, text.index("\0")) + 1 + rows_before
        raise CrowdshotError(
            "has zero bytes, as UTF-16 without a byte order mark has",
            where=f"{name}, row {row}",
            hint="Save the file as UTF-8",
        )
    return text


def _refuse_binary(data: bytes, name: str) -> None:
    """Refuse data with control characters; zero bytes do not count, because UTF-16 text has them."""
    if sum(0 < byte < 9 or 13 < byte < 32 for byte in data[:4096]) > 2:
        raise CrowdshotError("holds binary data", where=name, expected="a table as text or Parquet") from None


def _with_header(name: str, frame: pd.DataFrame, rows: NDArray[np.int64]) -> Table:
    """Return a table with the column names from the header (see `_header`).

    Empty rows, columns without a name and without cells, and repetitions of the header (with a warning) are left out.
    """
    frame = unguarded(frame)
    start, names = _header(frame.head(MOST_ABOVE).to_numpy())
    frame, rows = frame.iloc[start:].reset_index(drop=True), rows[start:]
    useful = [column for column, word in enumerate(names) if word or (frame.iloc[:, column] != "").any()]
    if not useful:
        raise CrowdshotError("has only empty cells", where=name, expected="a table")
    frame = frame.iloc[:, useful].set_axis([names[column] for column in useful], axis=1)
    first_cells = pa.compute.utf8_trim(pa.array(frame.iloc[:, 0], pa.string()), characters=AROUND)
    candidates = np.flatnonzero(pa.compute.equal(first_cells, frame.columns[0]).to_numpy(zero_copy_only=False))
    repeats = candidates[[[trim(cell) for cell in frame.iloc[row]] == list(frame.columns) for row in candidates]]
    if len(repeats):
        more = f" (and {len(repeats) - 1:,} more)" if len(repeats) > 1 else ""
        warnings.warn(
            CrowdshotWarning(
                f"Row {rows[repeats[0]]} repeats the header{more} and is left out",
                where=name,
                found=len(repeats),
            ),
            stacklevel=2,
        )
    dropped = np.union1d(repeats, _empty_rows(frame))
    if len(dropped) == 0:
        return Table(name, frame, rows)
    return Table(name, frame.drop(index=dropped).reset_index(drop=True), np.delete(rows, dropped))


def _header(top: NDArray[Any]) -> tuple[int, list[str]]:
    """Return the number of rows up to the end of the header, and the names of the columns.

    Rows above the header with a single filled cell of three or more are titles, and so are rows such as "Date:" and a
    date that are at most half as full as the table. If a row with names of groups of columns stands above the column
    names, the lower names are used.
    """
    words = [[trim(str(cell)) for cell in row] for row in top]
    filled = [sum(map(bool, row)) for row in words]
    usual = sorted(filled)[len(filled) // 2]

    def is_title(row: int) -> bool:
        if filled[row] == 1:
            return len(words[row]) > 2
        short = len(words[row]) > 3 and 2 * filled[row] <= usual
        return short and any(word.endswith(":") for word in words[row])

    start = next((row for row, n in enumerate(filled) if n and not is_title(row)), 0)
    if start + 1 == len(words):
        return start + 1, words[start]
    upper, lower = words[start : start + 2]
    nameless = [column for column, word in enumerate(upper) if not word]
    below = any(word and not lower[column] for column, word in enumerate(upper))  # a name that spans both rows
    grouped = nameless and all(lower[column] for column in nameless) and (below or (0 in nameless and nameless[1:]))
    return (start + 2, [low or up for up, low in zip(upper, lower, strict=True)]) if grouped else (start + 1, upper)


def _empty_rows(frame: pd.DataFrame) -> NDArray[np.int64]:
    """Return the positions of rows with only blank cells."""
    empty = np.arange(len(frame))
    for column in range(frame.shape[1]):
        if not len(empty):  # soon, except in a table without a filled column
            break
        empty = empty[(frame.iloc[empty, column] == "").to_numpy(bool)]
    return empty


def _parse_json_lines(text: str, name: str, rows_before: int) -> Table:
    rows, records = zip(*parse_json_lines(text, name, rows_before), strict=True)
    n_fields = len(set().union(*records))
    if n_fields * len(records) > MOST_CELLS:
        raise CrowdshotError(
            f"has {n_fields:,} different fields in {len(records):,} records",
            where=name,
            found=n_fields,
            expected="the same fields in all records",
        )
    # objects, because pandas would turn a 7 in a column with missing values into 7.0
    return Table(name, pd.DataFrame(list(records), dtype=object), np.array(rows))


def ids_of(table: Table, column: int) -> Ids:
    """Return the ids in a column; every row must have one."""
    ids = table.text(column)
    if (ids == "").any():
        raise CrowdshotError("is empty", where=table.place(first(ids == ""), column), expected="an id")
    return ids


def one_each(table: Table, column: int) -> Ids:
    """Return the ids in a column; every row must have a different one."""
    ids = ids_of(table, column)
    repeated = pd.Index(ids).duplicated()
    if repeated.any():
        row = first(repeated)
        earlier = table.rows[first(ids == ids[row])]
        raise CrowdshotError(
            f"is {ids[row]!r}, as in row {earlier} ({repeated.sum()} ids are repeated)",
            where=table.place(row, column),
            found=ids[row],
            expected="different ids",
        )
    return ids


# ---- records (dicts) with their position, from JSON, JSON lines or rows of a table ----


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
    """Return the records of JSON lines, or the first ``most`` of them; indented JSON is one record."""
    text = decode(data, name)
    if text[:SAMPLE].lstrip().partition("\n")[0].strip() == "{":
        return [Record(f"{name}, record 1", as_record(parse_json(text, name), name))]
    lines = islice(parse_json_lines(text, name), most)
    return [Record(f"{name}, row {row}", record) for row, record in lines]


def rows_of(table: Table, data: bytes) -> list[Record]:
    """Return the rows of a table as records: typed values for Parquet, text for other files."""
    places = [f"{table.name}, row {row}" for row in table.rows]
    if data.startswith(parquet_files.MAGIC):
        columns = [[_plain_value(value) for value in table.frame.iloc[:, i]] for i in range(len(table.header))]
    else:
        columns = [table.text(i).tolist() for i in range(len(table.header))]
    values = zip(*columns, strict=True) if columns else ()
    return [
        Record(place, dict(zip(table.header, row, strict=True))) for place, row in zip(places, values, strict=False)
    ]


def _plain_value(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return [_plain_value(part) for part in value.tolist()]
    if isinstance(value, np.generic):
        return value.item()
    return None if value is pd.NA or value is pd.NaT else value
