"""Columns recognised by their content, and files with bad rows."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot import CrowdshotError, read_labels
from crowdshot.io.tables import Table
from crowdshot.labels.formats.diagnosis import diagnose, guess_columns, guess_wide


def crowd(seed: int, n_items: int = 15, accuracy: float = 0.8) -> pd.DataFrame:
    """Labels under names that say nothing, with a row number, a confidence, a category of the item and a remark."""
    random = np.random.default_rng(seed)
    rows = []
    for item in range(n_items):
        truth = random.integers(3)
        for who in random.permutation(5)[:3]:
            label = truth if random.random() < accuracy else random.integers(3)
            rows.append(
                [
                    f"x{item}",
                    f"p{who}",
                    "uvw"[label],
                    random.integers(1, 6),
                    "ab"[item % 2],
                    f"remark {random.random()}",
                ]
            )
    table = pd.DataFrame(rows, columns=["c1", "c2", "c3", "c4", "c5", "c6"]).astype(str)
    return table.assign(c0=np.arange(len(table)).astype(str))


def as_table(frame: pd.DataFrame) -> Table:
    return Table("labels.csv", frame, np.arange(2, 2 + len(frame)))


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000), st.permutations(["c0", "c1", "c2", "c3", "c4", "c5", "c6"]))
def test_columns_are_recognised_by_their_content_in_any_order(seed, order):
    assert guess_columns(as_table(crowd(seed)[list(order)])) in ({"item": "c1", "annotator": "c2", "label": "c3"}, None)


@pytest.mark.slow
def test_most_crowds_are_recognised():
    found = [guess_columns(as_table(crowd(seed))) for seed in range(20)]
    assert sum(each is not None for each in found) >= 19


def test_nothing_is_recognised_where_nobody_agrees():
    found = [guess_columns(as_table(crowd(seed, 40, accuracy=0.0))) for seed in range(10)]
    assert sum(each is None for each in found) >= 9


def test_wide_tables():
    frame = pd.DataFrame({"no": ["1", "2", "3"], "A": ["x", "y", "x"], "B": ["x", "x", "y"], "remark": ["m", "n", "o"]})
    assert guess_wide(as_table(frame)) == ("no", ["A", "B"])
    assert guess_wide(as_table(frame[["A", "B"]])) == (None, [])


BAD = ["3,,cat", ",bob,dog", "4,ann", "5,ann,cat,more", ",,"]
GOOD = ["1,ann,cat", "1,bob,dog", "2,ann,dog", "2,bob,dog"]


@settings(max_examples=20, deadline=None)
@given(st.permutations(GOOD + BAD))
def test_bad_rows_are_skipped_and_counted(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("bad") / "labels.csv"
    path.write_text("item,annotator,label\n" + "\n".join(rows) + "\n")
    with pytest.raises(CrowdshotError) as caught:
        read_labels(path)
    assert caught.value.hint.arguments == {"skip_bad": True}
    read = read_labels(path, skip_bad=True)
    labels = {",".join(row) for row in read.annotations.to_frame().astype(str).itertuples(index=False)}
    assert labels == set(GOOD)
    assert read.left_out == {"rows without an item or annotator": 2, "rows with too many or too few cells": 2}


def test_the_diagnosis_solves_what_it_can(tmp_path):
    crowd(1).to_csv(tmp_path / "labels.csv", index=False)
    found = diagnose([tmp_path / "labels.csv"], {})
    assert found.arguments == {"columns": {"item": "c1", "annotator": "c2", "label": "c3"}}
    assert found.read.annotations.n_labels == 45
    (tmp_path / "labels.csv").write_text("a,b\n1.5,x\n2.5,y\n")
    found = diagnose([tmp_path / "labels.csv"], {})
    assert (found.read, found.arguments) == (None, {})
    assert isinstance(found.error, CrowdshotError)


def test_totals_are_left_out_anywhere_but_items_with_such_names_stay(tmp_path):
    rows = [
        "mean girls.jpg,cat,dog",
        "1.jpg,cat,cat",
        "Subtotal week 1,2,2",
        "count,dog,cat",
        "2.jpg,dog,dog",
        "Total,4,4",
    ]
    (tmp_path / "wide.csv").write_text("item,Ann,Bob\n" + "\n".join(rows))
    read = read_labels(tmp_path / "wide.csv")
    assert read.left_out["rows of totals"] == ["Subtotal week 1", "Total"]
    assert read.annotations.items.tolist() == ["mean girls.jpg", "1.jpg", "count", "2.jpg"]
    (tmp_path / "long.csv").write_text(
        "item,annotator,label,note\n1,ann,cat,\n,,2,Total ann\ntotal,bob,cat,\nGrand total,,3,\n"
    )
    read = read_labels(tmp_path / "long.csv")
    assert read.left_out["rows of totals"] == ["Total ann", "Grand total"]
    assert "total" in read.annotations.items.tolist()


def test_measurements_are_not_proposed_as_classes(tmp_path):
    rows = [f"{n},{n % 7 / 8},{n % 5 / 8}" for n in range(20)]
    (tmp_path / "features.csv").write_text("item,f0,f1\n" + "\n".join(rows))
    found = diagnose([tmp_path / "features.csv"], {})
    assert (found.read, found.arguments) == (None, {})
    assert found.error is not None


def test_cells_with_records_do_not_hide_the_problem(tmp_path):
    cell = '[{"task": "T0"}]'
    rows = [[who, f"s{n}", cell] for n in range(6) for who in ("ann", "bob")]
    path = tmp_path / "records.csv"
    pd.DataFrame(rows, columns=["who", "thing", "annotations"]).to_csv(path, index=False)
    found = diagnose([path], {})
    assert "no column for the item" in found.error.message
    assert len(found.problems) == 1
