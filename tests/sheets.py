"""Excel workbooks for tests."""

import io

import openpyxl


def packed(book: openpyxl.Workbook) -> bytes:
    held = io.BytesIO()
    book.save(held)
    return held.getvalue()


def workbook(**sheets: list[list[object]]) -> bytes:
    """Return a workbook with the rows of each sheet."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    return packed(book)
