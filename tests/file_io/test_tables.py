"""Test that tables are read exactly in every encoding and dialect, and that other files are refused."""

import csv
import io
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import trim
from crowdshot.io.tables import SEPARATORS, parse_table, read_table

PLAIN = "item,annotator,label\n007,ann,cat\n"


def cells(data: bytes | str) -> list[list[str]]:
    table = parse_table(data.encode() if isinstance(data, str) else data, "t.csv")
    return [table.header, *map(list, zip(*(table.text(i) for i in range(len(table.header))), strict=True))]


WRITTEN = [["item", "annotator", "label"], ["007", "ann", "cat"]]


@pytest.mark.parametrize(
    "data",
    [
        PLAIN.encode(),
        PLAIN.encode("utf-8-sig"),
        PLAIN.encode("utf-16"),
        PLAIN.replace(",", ";").encode(),
        PLAIN.replace(",", "\t").encode(),
        PLAIN.replace(",", "|").encode(),
        PLAIN.replace("\n", "\r\n").encode(),
        PLAIN.replace("\n", "\r").encode(),
        PLAIN.rstrip("\n").encode(),
        PLAIN.replace(",", " , ").encode(),
        b'"item","annotator","label"\n"007","ann","cat"\n',
        b'{"item": "007", "annotator": "ann", "label": "cat"}\n',
    ],
)
def test_a_table_in_many_encodings_and_dialects(data: bytes) -> None:
    assert cells(data) == WRITTEN


def test_the_separator_makes_rows_as_long_as_the_header() -> None:
    header = "item;who;label (cat, dog, owl, or other)\n"
    assert cells(header + "1;a;cat\n")[0] == ["item", "who", "label (cat, dog, owl, or other)"]
    assert cells("item\tannotator\tsaid: a,b,c,d\n1\ta\tb\n")[1] == ["1", "a", "b"]


def test_cells_are_not_converted() -> None:
    assert cells("a,b,c\n1e3,NA,true\n0x1F,null,-0\n")[1:] == [["1e3", "NA", "true"], ["0x1F", "null", "-0"]]


def test_row_numbers_count_records_from_the_header() -> None:
    table = parse_table(b'a,b\n1,2\n\n   \n"x\ny",3\n', "t.csv")
    assert table.rows.tolist() == [2, 5]
    assert table.place(1, 1) == "t.csv, row 5, column 'b'"
    assert parse_table(b'{"a": 1}\n\n{"a": 2}\n', "t").rows.tolist() == [1, 3]


def test_json_lines_keep_numbers_and_missing_values() -> None:
    lines = [{"a": 7, "b": "x"}, {"a": None, "b": 2.5}, {"b": True}, {"a": 12345678901234567890, "b": 3.0}]
    table = parse_table("\n".join(map(json.dumps, lines)).encode(), "t.jsonl")
    assert table.text(0).tolist() == ["7", "", "", "12345678901234567890"]
    assert table.text(1).tolist() == ["x", "2.5", "true", "3"]


def test_parquet_as_text_and_numbers(tmp_path) -> None:
    frame = pd.DataFrame({"id": ["007", "8"], "n": [1.0, np.nan], "when": pd.to_datetime(["2024-01-02", None])})
    frame.to_parquet(tmp_path / "t.parquet")
    table = read_table(tmp_path / "t.parquet")
    assert [table.text(i).tolist() for i in range(3)] == [["007", "8"], ["1", ""], ["2024-01-02 00:00:00", ""]]
    np.testing.assert_array_equal(table.numbers(1), [1.0, np.nan])
    frame.set_index("id").to_parquet(tmp_path / "i.parquet")
    assert read_table(tmp_path / "i.parquet").text(0).tolist() == ["007", "8"]


@pytest.mark.parametrize(
    "data", [b"id,x\na, 1.5 \nb,\nc,1e-3\n", b'{"id":"a","x":1.5}\n{"id":"b"}\n{"id":"c","x":"1e-3"}']
)
def test_numbers(data: bytes) -> None:
    np.testing.assert_array_equal(parse_table(data, "t").numbers(1), [1.5, np.nan, 0.001])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"item,label\n\xe9t\xe9,cat\n", "t.csv, row 2 has the byte 0xe9, which is not UTF-8 text"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\1\x02\x03\x1f", "t.csv holds binary data, expected a table as text"),
        (PLAIN.encode("utf-16-le"), "t.csv, row 1 has zero bytes, as UTF-16"),
        (b"\xff\xfe\x00\xd8x", "t.csv, row 1 has the byte .* which is not UTF-16 text"),
        (bytes(range(256)), "t.csv holds binary data"),
        (b"PK\x03\x04 and so on", r"t.csv is damaged \(File is not a zip file\), expected an Excel workbook"),
        (b"\xd0\xcf\x11\xe0 and so on", r"t.csv is an old Excel workbook \(.xls\) or has a password"),
        (b";;\n;;\n", "t.csv has only empty cells"),
        (b"PAR1 and so on", "t.csv is damaged"),
        (b"[1, 2]", "JSON array"),
        (b"<html><table><tr><td>item", "t.csv is HTML or XML, expected a table. Save the sheet"),
        (b'<?xml version="1.0"?>\n<annotations>', "t.csv is HTML or XML, expected a table. Export labels .* COCO"),
        (b"\n\na,b\n1,2\n", "t.csv, row 1 is blank, expected the names"),
        (b"only one column\n1\n2\n", "t.csv has one column, 'only one column'"),
        (
            b"a,b,c\n1,2,3\n1,2\n1,2\n",
            r"t.csv, row 3 has 2 cells, expected 3 as in the header \(2 rows are like that\)\.$",
        ),
        (b"a,b,c\n1,2,3,4\n", "t.csv, row 2 has 4 cells, expected 3"),
        (b'a,b,c\n1,2,3\n1,"2,3\n4,5,6\n', "row 3 has 2 cells, .* Is a quotation mark left open"),
        (b'{"a": 1}\n{"a": \n', "t.csv, row 2 is not JSON"),
        (rb'{"a": "\ud83d\ude00"}' + b"\n" + rb'{"a": "\ud83d"}', "t.csv, row 2 is not JSON .*surrogates not allowed"),
        (b'{"a": 1}\n3\n', "t.csv, row 2 holds a int, expected a record"),
        (b'{"a": 1' + b"[" * 100_000, "row 1 is not JSON"),
    ],
)
def test_other_content_is_refused(data: bytes, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        parse_table(data, "t.csv")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"id,x\na,1\n\nb,one\n", "t, row 4, column 'x' is 'one', expected a number"),
        (b'{"id": 1, "x": 1}\n{"id": 2, "x": [1]}', "t, row 2, column 'x' holds a list, expected text or a number"),
    ],
)
def test_a_cell_that_is_not_a_number_is_named(data: bytes, message: str) -> None:
    with pytest.raises(CrowdshotError, match=message):
        parse_table(data, "t").numbers(1)


def test_missing_and_empty_files_are_refused(tmp_path) -> None:
    (tmp_path / "empty.csv").write_bytes(b" \n ")
    for name, message in (
        ("no.csv", "does not exist"),
        ("empty.csv", "is empty"),
        (".", "is a folder"),
        ("\0", "read"),
    ):
        with pytest.raises(CrowdshotError, match=message):
            read_table(tmp_path / name)


words = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)


@example([("", " a\u200b", "\u200b")], ",", False)  # invisible characters are removed as spaces are
@given(st.lists(st.tuples(words, words, words), min_size=1, max_size=8), st.sampled_from(SEPARATORS), st.booleans())
def test_output_of_the_csv_module_is_read_back(rows, separator: str, quote: bool) -> None:
    text = io.StringIO(newline="")
    writer = csv.writer(text, delimiter=separator, quoting=csv.QUOTE_ALL if quote else csv.QUOTE_MINIMAL)
    writer.writerows([("item", "annotator", "label"), *rows])
    found = cells(text.getvalue())
    assert found[1:] == [[trim(word) for word in row] for row in rows if any(row)]


@given(st.binary(max_size=200) | st.text('a,;\t|"\n\r{}[]:0', max_size=60).map(str.encode))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    message = ""
    try:
        table = parse_table(data or b"?", "t")
        assert all(len(table.text(column)) == len(table.rows) for column in range(len(table.header)))
    except CrowdshotError as error:
        message = str(error)
    assert not message or message.startswith("t")


def test_excels_separator_row_is_skipped(tmp_path):
    file = tmp_path / "excel.csv"
    file.write_text("sep=;\r\nitem;label\r\n1;a,b\r\n2;c\r\n")
    table = read_table(file)
    assert table.header == ["item", "label"]
    assert table.text(1).tolist() == ["a,b", "c"]
    assert table.place(0, 0) == f"{file}, row 3, column 'item'"
    file.write_text("sep=;\nitem;label\n1;a\n2;b;c\n")
    with pytest.raises(CrowdshotError, match="row 4 has 3 cells, expected 2"):
        read_table(file)
    file.write_text("sep=;\n")
    with pytest.raises(CrowdshotError, match="has no rows, expected a table"):
        read_table(file)


@pytest.mark.parametrize(
    ("separator", "n"), [(",", 2048), (";", 2048), ("\t", 2048), pytest.param(";", 20_000, marks=pytest.mark.slow)]
)
def test_a_header_longer_than_the_sample_for_the_separator(tmp_path, separator, n):
    """Every column must be read, although only the start of the file is used to find the separator."""
    names = ["item", *(f"a_feature_with_a_rather_long_name_{i}" for i in range(n))]
    row = separator.join(["1.png", *["0.5"] * n])
    (tmp_path / "f.csv").write_text("\n".join([separator.join(names), row, row.replace("1.png", "2.png")]))
    table = read_table(tmp_path / "f.csv")
    assert table.header == names
    assert table.frame.shape == (2, n + 1)
