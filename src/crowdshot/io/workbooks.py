"""Excel's workbooks (.xlsx) -> the cells of a sheet as text, as Excel itself would write them to CSV.

Read by openpyxl, the extra ``excel``. A formula counts with the value that was stored with it.
"""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, time
from functools import cached_property
from typing import Any

from crowdshot.errors import CrowdshotError

ZIP, OLD = b"PK\x03\x04", b"\xd0\xcf\x11\xe0"  # .xlsx; .xls, and .xlsx with a password
PARTS = {
    "xl/workbook.xml": "an Excel workbook",
    "content.xml": "an OpenDocument file",
    "Index/Document.iwa": "Numbers'",
}
MOST_BYTES = 2**29  # of XML, when unpacked
MOST_CELLS = 50_000_000
LAST_ROW = 2**20  # of any sheet
AS_CSV = 'save the sheet as "CSV UTF-8"'

Row = tuple[int, list[str]]  # its number, as a person counts, and its cells


class Workbook:
    """``name`` is what messages call the file. ``sheets``: those that people see (or all, where they see none)."""

    data: bytes
    name: str
    parts: list[str]

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name = data, name
        self.parts = _parts(data, name)
        try:
            from openpyxl import load_workbook  # here, because it is an extra
        except ImportError:
            raise CrowdshotError(
                f"{name} is an Excel workbook, expected CSV, as openpyxl (extra: excel) is not installed; {AS_CSV}."
            ) from None
        self._load = load_workbook

    @cached_property
    def _opened(self) -> Any:
        with _damage_told(self.name):
            return self._load(io.BytesIO(self.data), read_only=True, data_only=True)

    @property
    def sheets(self) -> list[str]:
        seen = [sheet.title for sheet in self._opened.worksheets if sheet.sheet_state == "visible"]
        return seen or [sheet.title for sheet in self._opened.worksheets]

    def rows(self, sheet: str) -> list[Row]:
        """The rows that hold something, without the empty cells at their ends."""
        with _damage_told(self.name):
            rows = [(n, [_text(cell) for cell in cells]) for n, cells in self._filled(self._opened, sheet)]
            if any(b"<f" in zipfile.ZipFile(io.BytesIO(self.data)).read(part) for part in self.parts):
                self._check_formulas(sheet, rows)
        return rows

    def _filled(self, opened: Any, sheet: str) -> Iterator[tuple[int, list[Any]]]:
        worksheet = opened[sheet]
        worksheet.reset_dimensions()  # what the file says of its size may be wrong
        n_rows, widest = 0, 0
        for number, row in enumerate(worksheet.iter_rows(), 1):
            n_rows, widest = n_rows + bool(row), max(widest, len(row))
            if number > LAST_ROW or n_rows * widest > MOST_CELLS:
                raise CrowdshotError(f"{self.name}, sheet {sheet!r} has a cell far off, expected a table; {AS_CSV}.")
            cells = list(row)
            while cells and cells[-1].value is None:
                cells.pop()
            if cells:
                yield number, cells

    def _check_formulas(self, sheet: str, rows: list[Row]) -> None:
        """A program other than a spreadsheet may have written formulas that nobody has worked out yet."""
        known = dict(rows)
        formulas = self._load(io.BytesIO(self.data), read_only=True)
        for number, cells in self._filled(formulas, sheet):
            for column, cell in enumerate(cells):
                if cell.data_type == "f" and not "".join(known.get(number, [])[column : column + 1]):
                    raise CrowdshotError(
                        f"{self.name}, sheet {sheet!r}, cell {cell.coordinate} is a formula without its value, expected"
                        " the value; open the file in a spreadsheet and save it."
                    )


def is_workbook(data: bytes) -> bool:
    """A zip archive may hold something else."""
    try:
        return data.startswith(ZIP) and "xl/workbook.xml" in zipfile.ZipFile(io.BytesIO(data)).namelist()
    except Exception:  # a damaged one is told where it is read
        return False


def _parts(data: bytes, name: str) -> list[str]:
    """The files in the archive that hold sheets; what is no workbook, or unpacks to too much, is refused."""
    with _damage_told(name):
        found = zipfile.ZipFile(io.BytesIO(data)).infolist()
    names = {part.filename for part in found}
    kind = next((kind for part, kind in PARTS.items() if part in names), "a zip archive")
    if "xl/workbook.xml" not in names:
        raise CrowdshotError(f"{name} is {kind}, expected CSV, JSON lines, Parquet or an Excel workbook (.xlsx).")
    size = sum(part.file_size for part in found if part.filename.endswith((".xml", ".rels")))
    if size > MOST_BYTES:
        raise CrowdshotError(
            f"{name} unpacks to {size / 2**20:,.0f} MB, expected {MOST_BYTES / 2**20:,.0f} MB at most; {AS_CSV}."
        )
    return [part for part in names if part.startswith("xl/worksheets/") and part.endswith(".xml")]


@contextmanager
def _damage_told(name: str) -> Iterator[None]:
    """openpyxl raises what it stumbles over, and warns of what it cannot show."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except CrowdshotError:
            raise
        except Exception as error:
            reason = next(iter(str(error).splitlines()), "") or type(error).__name__
            raise CrowdshotError(
                f"{name} is damaged ({reason}), expected an Excel workbook; open it in a spreadsheet and save it again."
            ) from None


def refuse_old(data: bytes, name: str) -> None:
    if data.startswith(OLD):
        raise CrowdshotError(
            f"{name} is an old Excel workbook (.xls), or one with a password, expected .xlsx without one; save it so,"
            ' or as "CSV UTF-8".'
        )


def _text(cell: Any) -> str:
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        whole = str(int(value)) if float(value).is_integer() else str(value)
        zeros = re.fullmatch("0{2,}", cell.number_format or "")  # 007, stored as a 7
        return whole.zfill(len(zeros[0])) if zeros else whole
    if isinstance(value, datetime):
        return str(value.date() if value.time() == time() else value.replace(microsecond=0))
    return str(value)
