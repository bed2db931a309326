"""Test cells that a spreadsheet would execute: unchanged, or guarded by an apostrophe that is removed again."""

import re

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdshot.io.atomic import write_file
from crowdshot.io.cells import excel_safe, guarded, unguarded
from crowdshot.io.tables import read_table

CELLS = ["=1+1", "+49", "-1", "@home", "'=1", "''-1", "'quoted'", "plain", "a=b", "'", ""]
GUARDED = ["'=1+1", "'+49", "'-1", "'@home", "''=1", "'''-1", "'quoted'", "plain", "a=b", "'", ""]


def test_which_cells_get_an_apostrophe():
    table = pd.DataFrame({"item": CELLS, "=name": -1.5, "n": -1}).astype({"item": object})
    assert guarded(table) is table, "nothing is changed unless asked for"
    with excel_safe():
        safe = guarded(table)
        assert safe["item"].tolist() == GUARDED
        assert safe.columns.tolist() == ["item", "'=name", "n"]
        assert (safe["'=name"] == -1.5).all()
        assert (safe["n"] == -1).all(), "numbers are no formulas"
        pd.testing.assert_frame_equal(unguarded(safe), table)


@given(st.lists(st.text("'=+-@a", max_size=5), min_size=1))
def test_guarded_cells_are_restored(cells):
    table = pd.DataFrame({"item": pd.Series(cells, dtype=object)})
    with excel_safe():
        assert not guarded(table)["item"].str.match(r"[=+\-@]").any()
        assert unguarded(guarded(table))["item"].tolist() == cells


def test_guarded_cells_are_restored_from_a_file(tmp_path):
    table = pd.DataFrame({"item": CELLS[:-1], "label": "-1"})
    with excel_safe():
        write_file(tmp_path / "t.csv", table)
        assert read_table(tmp_path / "t.csv").text(0).tolist() == CELLS[:-1]
    assert read_table(tmp_path / "t.csv").text(0).tolist() == GUARDED[:-1]
    assert set(read_table(tmp_path / "t.csv").text(1)) == {"'-1"}


LABELS = "item,annotator,label\n=A1,@ann,-1\n=A1,bob,-1\n-B2,@ann,+2\n-B2,bob,+2\n=A1,cyd,+2\n"
FEATURES = "item,x\n=A1,0\n-B2,9\n"


@pytest.mark.slow
@pytest.mark.parametrize("command", ["aggregate", "next", "adapt", "predict"])
def test_commands_with_and_without_the_option(tmp_path, call, command):
    """Guarded files are read back, and a later run without the option writes no apostrophes."""
    for name, text in {"exact.csv": LABELS, "exact-x.csv": FEATURES}.items():
        (tmp_path / name).write_text(text)
        safe = re.sub(r"(^|,)(?=[=+\-@])", r"\1'", text, flags=re.MULTILINE)
        (tmp_path / name.replace("exact", "safe")).write_text(safe)
    adapt = ("adapt", tmp_path / "exact.csv", "--features", tmp_path / "exact-x.csv", "--out", tmp_path / "fit")
    assert call(*adapt).code == 0
    lines = {
        "aggregate": "aggregate {0}.csv --out {0}/out.csv --annotators {0}/people.csv",
        "next": "next {0}.csv --out {0}/out.csv",
        "adapt": "adapt {0}.csv --features {0}-x.csv --out {0}/out",
        "predict": "predict fit/model.safetensors --features {0}-x.csv --out {0}/out.csv",
    }
    for name, option in (("safe", ["--excel-safe"]), ("exact", [])):
        (tmp_path / name).mkdir()
        line = lines[command].replace("{0}", str(tmp_path / name)).replace("fit/", f"{tmp_path}/fit/")
        done = call(*line.split(), *option)
        assert done.code == 0, done.err
    files = [path for path in (tmp_path / "exact").rglob("*.csv") if path.name != "confusion.csv"]
    assert files
    for exact in files:
        safe = tmp_path / "safe" / exact.relative_to(tmp_path / "exact")
        assert re.search(r"^'[=\-@]", safe.read_text(), re.MULTILINE)
        assert re.sub(r"(^|,)'(?=[=+\-@])", r"\1", safe.read_text(), flags=re.MULTILINE) == exact.read_text()
