"""Compare tables read in pieces with whole tables: the same rows, positions and errors."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdshot.errors import CrowdshotError
from crowdshot.io import table_pieces as pieces_module
from crowdshot.io.table_pieces import can_be_cut, table_pieces
from crowdshot.io.tables import read_table


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(pieces_module, "SIZE", 40)
    monkeypatch.setattr(pieces_module, "ROWS", 3)


def joined(path):
    pieces = list(table_pieces(path))
    assert pieces[-1].done == pieces[-1].total
    frames = [piece.table.frame.set_index(piece.table.rows) for piece in pieces]
    return pd.concat(frames), len(pieces)


def same_as_whole(path):
    found, n_pieces = joined(path)
    whole = read_table(path)
    pd.testing.assert_frame_equal(found, whole.frame.set_index(whole.rows), check_dtype=False)
    return n_pieces


def test_csv_with_line_breaks_and_blank_lines(tmp_path):
    rows = [f'r{i},"line one\nline ""two"" of {i}",{i}' for i in range(9)]
    (tmp_path / "a.csv").write_text("item,text,n\n" + "\n".join(rows[:4]) + "\n\n\n" + "\n".join(rows[4:]))
    assert same_as_whole(tmp_path / "a.csv") > 3


def test_json_lines_and_parquet(tmp_path):
    frame = pd.DataFrame({"item": [f'say "{i}' for i in range(10)], "n": np.arange(10.0)})
    frame.to_json(tmp_path / "a.jsonl", orient="records", lines=True)
    frame.to_parquet(tmp_path / "a.parquet")
    frame.set_index("item").to_parquet(tmp_path / "b.parquet")
    for name in ("a.jsonl", "a.parquet", "b.parquet"):
        assert same_as_whole(tmp_path / name) > 3, name


cell = st.text(st.characters(codec="utf-8", exclude_characters="\0\r"), min_size=1, max_size=8).filter(str.strip)


@given(st.lists(st.tuples(cell, cell), min_size=1, max_size=12))
def test_any_quoted_csv(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("any") / "a.csv"
    pd.DataFrame(rows, columns=["first", "second"]).to_csv(path, index=False, quoting=1)
    try:
        whole = read_table(path)
    except CrowdshotError:
        return
    found, _ = joined(path)
    assert found.to_numpy().tolist() == whole.frame.to_numpy().tolist()
    assert found.index.tolist() == whole.rows.tolist()


def test_a_stray_quotation_mark_affects_one_row_only(tmp_path, monkeypatch):
    monkeypatch.setattr(pieces_module, "LONGEST", 3)
    (tmp_path / "a.csv").write_text("item,size\n" + "".join(f"r{i},{i} inch\n" for i in range(5)) + 'r5,5" pipe\n' * 1
                                    + "".join(f"r{i},{i} inch\n" for i in range(6, 30)))  # fmt: skip
    assert len(joined(tmp_path / "a.csv")[0]) == 30


def test_rows_are_counted_in_the_whole_file(tmp_path):
    lines = ["item,x", *(f"a{i},{i}" for i in range(30)), "b,1,2"]
    (tmp_path / "a.csv").write_text("\n".join(lines))
    with pytest.raises(CrowdshotError, match=r"a\.csv, row 32 has 3 cells, expected 2 as in the header"):
        list(table_pieces(tmp_path / "a.csv"))
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"item": i, "x": i}) for i in range(20)) + "\n{oops")
    with pytest.raises(CrowdshotError, match=r"row 21"):
        list(table_pieces(tmp_path / "a.jsonl"))


def test_a_damaged_parquet(tmp_path):
    pd.DataFrame({"a": range(10)}).to_parquet(tmp_path / "a.parquet")
    (tmp_path / "a.parquet").write_bytes((tmp_path / "a.parquet").read_bytes()[:-20])
    with pytest.raises(CrowdshotError, match=r"a\.parquet is damaged \(.*\), expected a Parquet file"):
        list(table_pieces(tmp_path / "a.parquet"))


def test_which_files_are_read_in_pieces(tmp_path):
    for name, content, cut in [
        ("a.csv", b"a,b\n1,2", True),
        ("a.jsonl", b'\xef\xbb\xbf{"a": 1}', True),
        ("a.json", b' [{"a": 1}]', False),
        ("a.npz", b"PK\x03\x04", False),
        ("a.txt", "a,b".encode("utf-16"), False),
        ("empty", b"", False),
    ]:
        (tmp_path / name).write_bytes(content)
        assert can_be_cut(tmp_path / name) is cut, name
    assert not can_be_cut(tmp_path)
    assert not can_be_cut(tmp_path / "nothing")
