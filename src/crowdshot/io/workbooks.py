"""Read the sheets of Excel workbooks (.xlsx) as text, in the form in which Excel would save them as CSV.

openpyxl reads the files, in a process with limits. A formula has the value that is stored with it.
"""

from __future__ import annotations

import io
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, time
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first_line, listing
from crowdshot.io.archive_limits import MOST_CELLS, check_elements, open_archive
from crowdshot.io.cells import text
from crowdshot.io.limited_process import LimitedProcess, as_facts

PARTS = {
    "xl/workbook.xml": "an Excel workbook",
    "content.xml": "an OpenDocument file",
    "Index/Document.iwa": "a Numbers file",
}
MOST_BYTES = 2**29  # of all members, when unpacked
LAST_ROW = 2**20  # of any sheet
AS_CSV = 'Save the sheet as "CSV UTF-8"'

Row = tuple[int, list[str]]  # number, counted from 1, and cells


SECONDS = 30  # of computing, for a file without data
SECONDS_PER_MB = 20  # 1.2 million cells take 6 MB and 21 seconds
SLOWDOWN = 10  # by other processes
ELEMENTS_PER_BYTE = 4  # of XML; a table that repeats its cells has two
MEMORY = 3 * 2**29  # bytes for a file without data
MEMORY_TIMES = 50  # the size of the file


def read_sheets(
    data: bytes, name: str, sheet: str | None = None
) -> tuple[list[str], dict[str, list[Row] | CrowdshotError]]:
    """Return the names of the visible sheets, and the rows of each or only of ``sheet``, without empty rows and cells.

    A sheet that cannot be read has its error in place of rows.
    """
    seconds = SECONDS + SECONDS_PER_MB * len(data) // 2**20
    memory = MEMORY + MEMORY_TIMES * len(data)
    with LimitedProcess("io.workbooks:sheets_in_process", name, memory, seconds) as process:
        answer, _ = process.ask(SLOWDOWN * seconds, {"name": name, "sheet": sheet}, [np.frombuffer(data, np.uint8)])
    rows: dict[str, list[Row] | CrowdshotError] = {
        title: [(n, cells) for n, cells in found] if isinstance(found, list) else CrowdshotError(**found)
        for title, found in answer["rows"]
    }
    return answer["sheets"], rows


def sheets_in_process(facts: dict[str, Any], arrays: Sequence[NDArray[Any]]) -> tuple[dict[str, Any], list[Any]]:
    """Return names and rows of sheets, or the fields of errors, as JSON."""
    workbook = Workbook(arrays[0].tobytes(), facts["name"])
    sheets, wanted = workbook.sheets, facts["sheet"]
    if wanted is not None and wanted not in sheets:
        raise CrowdshotError(
            f"is {wanted!r}",
            argument="sheet",
            found=wanted,
            expected=f"one of those in {workbook.name}, {listing(sheets)}",
            among=sheets,
        )
    rows: list[tuple[str, Any]] = []
    for title in sheets if wanted is None else [wanted]:
        try:
            rows.append((title, workbook.rows(title)))
        except CrowdshotError as error:
            rows.append((title, as_facts(error)))
    return {"sheets": sheets, "rows": rows}, []


class Workbook:
    """An Excel workbook; messages call it ``name``.

    ``sheets`` are the visible sheets, or all sheets if none is visible.
    """

    data: bytes
    name: str
    parts: list[str]

    def __init__(self, data: bytes, name: str) -> None:
        self.data, self.name = data, name
        self.parts = check_workbook(data, name)
        from openpyxl import load_workbook  # imported here because it is slow

        self._load = load_workbook

    @cached_property
    def _opened(self) -> Any:
        with _errors_named(self.name):
            return self._load(io.BytesIO(self.data), read_only=True, data_only=True)

    @property
    def sheets(self) -> list[str]:
        visible = [sheet.title for sheet in self._opened.worksheets if sheet.sheet_state == "visible"]
        return visible or [sheet.title for sheet in self._opened.worksheets]

    def rows(self, sheet: str) -> list[Row]:
        """Return the rows that are not empty, without trailing empty cells."""
        with _errors_named(self.name):
            rows = [(n, [_text(cell) for cell in cells]) for n, cells in self._filled(self._opened, sheet)]
            if any(b"<f" in zipfile.ZipFile(io.BytesIO(self.data)).read(part) for part in self.parts):
                self._check_formulas(sheet, rows)
        return rows

    def _filled(self, opened: Any, sheet: str) -> Iterator[tuple[int, list[Any]]]:
        worksheet = opened[sheet]
        worksheet.reset_dimensions()  # the size that the file declares may be wrong
        n_rows, widest = 0, 0
        for number, row in enumerate(worksheet.iter_rows(), 1):
            n_rows, widest = n_rows + bool(row), max(widest, len(row))
            if number > LAST_ROW or n_rows * widest > MOST_CELLS:
                raise CrowdshotError(
                    "has a cell far from the others",
                    where=f"{self.name}, sheet {sheet!r}",
                    found=number,
                    expected=f"a table of at most {LAST_ROW:,} rows and {MOST_CELLS:,} cells",
                    hint=AS_CSV,
                )
            cells = list(row)
            while cells and cells[-1].value is None:
                cells.pop()
            if cells:
                yield number, cells

    def _check_formulas(self, sheet: str, rows: list[Row]) -> None:
        """Refuse formulas without a stored value, as programs other than spreadsheets write them."""
        known = dict(rows)
        formulas = self._load(io.BytesIO(self.data), read_only=True)
        for number, cells in self._filled(formulas, sheet):
            for column, cell in enumerate(cells):
                if cell.data_type == "f" and not "".join(known.get(number, [])[column : column + 1]):
                    raise CrowdshotError(
                        "is a formula without its value",
                        where=f"{self.name}, sheet {sheet!r}, cell {cell.coordinate}",
                        found=cell.value,
                        expected="the value",
                        hint="Open the file in a spreadsheet and save it",
                    )


def is_workbook(data: bytes) -> bool:
    """Return whether the bytes are a zip archive with an Excel workbook."""
    archive = open_archive(data)  # damage is reported when the file is read
    return archive is not None and "xl/workbook.xml" in archive.namelist()


def check_workbook(data: bytes, name: str) -> list[str]:
    """Return the members of the archive that hold sheets; refuse other archives and too large ones."""
    with _errors_named(name):
        archive = zipfile.ZipFile(io.BytesIO(data))
        found = archive.infolist()
    names = {part.filename for part in found}
    kind = next((kind for part, kind in PARTS.items() if part in names), "a zip archive")
    if "xl/workbook.xml" not in names:
        raise CrowdshotError(
            f"is {kind}", where=name, found=kind, expected="CSV, JSON lines, Parquet or an Excel workbook (.xlsx)"
        )
    size = sum(part.file_size for part in found)  # a member of any name may hold the texts of the cells
    if size > max(MOST_BYTES, 2 * len(data)):  # pictures are not packed further
        raise CrowdshotError(
            f"unpacks to {size / 2**20:,.0f} MB",
            where=name,
            found=size,
            expected=f"{MOST_BYTES / 2**20:,.0f} MB at most",
            hint=AS_CSV,
        )
    with _errors_named(name):
        check_elements(name, archive, len(data), ELEMENTS_PER_BYTE)
    return [part for part in names if part.startswith("xl/worksheets/") and part.endswith(".xml")]


@contextmanager
def _errors_named(name: str) -> Iterator[None]:
    """Report any error of openpyxl as damage of this file, and silence its warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        except (CrowdshotError, MemoryError):
            raise
        except Exception as error:
            reason = first_line(error) or type(error).__name__
            raise CrowdshotError(
                f"is damaged ({reason})",
                where=name,
                expected="an Excel workbook",
                hint="Open it in a spreadsheet and save it again",
            ) from None


def _text(cell: Any) -> str:
    value = cell.value
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, int | float):
        whole = text(value) or ""
        zeros = re.fullmatch("0{2,}", cell.number_format or "")  # shown as 007, stored as 7
        return whole.zfill(len(zeros[0])) if zeros else whole
    if isinstance(value, datetime):
        return str(value.date() if value.time() == time() else value.replace(microsecond=0))
    return str(value)
