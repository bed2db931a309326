"""Sheets of an Excel workbook come out as Excel would write them to CSV; what cannot be read is told in a sentence."""

import io
import re
import zipfile
from datetime import date, datetime
from unittest.mock import patch

import openpyxl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdshot.errors import CrowdshotError
from crowdshot.io import workbooks
from crowdshot.io.tables import only, parse_table, parse_workbook
from sheets import ThisProcess, packed, workbook


def with_part(data: bytes, name: str, change) -> bytes:
    """The archive with one of its files changed."""
    held = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as new:
        for part in old.namelist():
            content = old.read(part)
            new.writestr(part, change(content.decode()) if part == name else content)
    return held.getvalue()


SHEET = "xl/worksheets/sheet1.xml"


def cells(data: bytes) -> list[list[str]]:
    table = parse_table(data, "t.xlsx")
    return [table.header, *map(list, zip(*(table.text(i) for i in range(len(table.header))), strict=True))]


def test_cells_as_excel_would_write_them():
    rows = [
        ["item", "n", "x"],
        ["007", 1.0, 2.5],
        [" a ", 12345678901, True],
        ["b", date(2024, 3, 1), datetime(2024, 3, 1, 14, 30)],
        ["c", None, ""],
    ]
    assert cells(workbook(one=rows)) == [
        ["item", "n", "x"],
        ["007", "1", "2.5"],
        ["a", "12345678901", "TRUE"],
        ["b", "2024-03-01", "2024-03-01 14:30:00"],
        ["c", "", ""],
    ]


def test_a_number_that_is_shown_with_zeros():
    book = openpyxl.Workbook()
    for row in (["item", "label"], [7, "cat"], [12, "dog"]):
        book.active.append(row)
    book.active["A2"].number_format = book.active["A3"].number_format = "000"
    assert cells(packed(book))[1:] == [["007", "cat"], ["012", "dog"]]


def test_what_nothing_stands_in_is_left_out_and_rows_keep_their_numbers():
    book = openpyxl.Workbook()
    sheet = book.active
    for row in (["item", "label", None], ["a", "cat"], [], ["b", "dog"]):
        sheet.append(row)
    sheet.append([])
    sheet["F9"].number_format = "0.0"  # a cell with a format and nothing in it
    sheet["C3"] = ""
    table = parse_table(packed(book), "t.xlsx")
    assert table.header == ["item", "label"]
    assert table.rows.tolist() == [2, 4]
    assert table.place(1, 1) == "t.xlsx, row 4, column 'label'"


@pytest.mark.parametrize(
    "above",
    [
        [["Labels of March"]],
        [["Labels of March"], [], [None, "do not edit"]],
        [["Image", "Annotators", None, None, "Notes"], [None, "ann", "bob", "cyd", None]],
        [[None, "Team A", None, "Team B", None]],
    ],
)
def test_titles_and_groups_above_the_header(above):
    names = ["Image", "ann", "bob", "cyd", "Notes"]
    rows = [["a.png", "cat", "dog", "cat", ""], ["b.png", "dog", "dog", "cat", "?"]]
    header = [] if above[-1][-1:] == [None] and above[-1][1] == "ann" else [names]
    assert cells(workbook(one=[*above, *header, *rows])) == [names, *rows]


def test_the_first_name_may_be_missing_as_pandas_leaves_it():
    assert cells(workbook(one=[[None, "ann", "bob"], ["a", "cat", "dog"]])) == [["", "ann", "bob"], ["a", "cat", "dog"]]


def test_a_formula_counts_with_the_value_that_was_stored():
    data = workbook(one=[["item", "label"], ["a", 3], ["b", 4]])
    stored = with_part(data, SHEET, lambda xml: re.sub('(r="B2"[^>]*>)<v>3', r"\1<f>1+2</f><v>3", xml))
    assert stored != data
    assert cells(stored) == [["item", "label"], ["a", "3"], ["b", "4"]]
    with pytest.raises(
        CrowdshotError, match=r"t.xlsx, sheet 'one', cell B3 is a formula without its value, .* save it"
    ):
        cells(workbook(one=[["item", "label"], ["a", "cat"], ["b", '=LOWER("DOG")']]))


def test_sheets_that_hold_a_table():
    data = workbook(Labels=[["item", "label"], ["a", "cat"]], Empty=[], Legend=[["one column"], ["cat: a cat"]])
    assert list(parse_workbook(data, "t.xlsx")) == ["Labels"]
    labels = only(parse_workbook(data, "t.xlsx"), "t.xlsx")
    assert labels.place(0, 0) == "t.xlsx, sheet 'Labels', row 2, column 'item'"
    two = workbook(one=[["a", "b"], ["1", "2"]], two=[["a", "b"], ["3", "4"]])
    assert only(parse_workbook(two, "t.xlsx", "two"), "t.xlsx").text(0).tolist() == ["3"]
    with pytest.raises(CrowdshotError, match="has 2 sheets with a table, 'one', 'two', expected one"):
        parse_table(two, "t.xlsx")
    with pytest.raises(CrowdshotError, match=r"sheet is 'three', expected one of those in .*, 'one', 'two'"):
        parse_workbook(two, "t.xlsx", "three")
    with pytest.raises(CrowdshotError, match=r"t\.xlsx, sheet 'Empty' holds no table"):
        parse_workbook(data, "t.xlsx", "Empty")


def test_hidden_sheets_are_not_looked_at():
    book = openpyxl.Workbook()
    for name, state in (("shown", "visible"), ("lists", "hidden")):
        sheet = book.create_sheet(name)
        sheet.append(["item", "label"])
        sheet.append([name, "x"])
        sheet.sheet_state = state
    assert cells(packed(book))[1:] == [["shown", "x"]]


# ---- what cannot be read --------------------------------------------------------------------------------------------

GOOD = workbook(one=[["item", "label"], ["a", "cat"]])


def zipped(*names: str) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return held.getvalue()


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (GOOD[: len(GOOD) // 2], r"t.xlsx is damaged \(File is not a zip file\), expected an Excel workbook"),
        (with_part(GOOD, SHEET, lambda xml: xml[: len(xml) // 2]), "is damaged"),
        (with_part(GOOD, "xl/workbook.xml", lambda xml: "no XML"), "is damaged"),
        (with_part(GOOD, SHEET, lambda xml: xml.replace('r="2"', 'r="99999999"')), "has a cell far from the others"),
        (zipped("a.png"), "t.xlsx is a zip archive, expected CSV, JSON lines, Parquet or an Excel workbook"),
        (zipped("content.xml", "mimetype"), "t.xlsx is an OpenDocument file, expected CSV"),
        (workbook(one=[], two=[["title"]]), "t.xlsx holds no table, expected one with several columns"),
    ],
)
def test_workbooks_that_cannot_be_read(data, sentence):
    with pytest.raises(CrowdshotError, match=sentence) as told:
        parse_table(data, "t.xlsx")
    assert "\n" not in str(told.value)


def test_an_archive_that_unpacks_to_too_much_is_not_unpacked(monkeypatch):
    monkeypatch.setattr(workbooks, "MOST_BYTES", 2**20)
    monkeypatch.setattr(workbooks, "LimitedProcess", ThisProcess)
    bomb = with_part(GOOD, SHEET, lambda xml: xml + " " * 2**21)
    assert len(bomb) < 2**14
    with pytest.raises(CrowdshotError, match="unpacks to 2 MB, expected 1 MB at most"):
        parse_table(bomb, "t.xlsx")


def test_entities_are_not_expanded():
    lol = '<!DOCTYPE w [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>'
    with pytest.raises(CrowdshotError, match="is damaged"):
        parse_table(with_part(GOOD, SHEET, lambda xml: lol + xml.replace("cat", "&b;")), "t.xlsx")


@given(st.integers(0, len(GOOD) - 1), st.binary(min_size=1, max_size=8))
def test_any_bytes_are_a_workbook_or_told(at, noise):
    data = GOOD[:at] + noise + GOOD[at + len(noise) :]
    try:
        with patch.object(workbooks, "LimitedProcess", ThisProcess):
            parse_table(data, "t.xlsx")
    except CrowdshotError as error:
        assert str(error).startswith("t.xlsx")  # noqa: PT017
