"""Test gold labels in a column next to annotators' labels, and in separate files."""

import json
import warnings

import pytest

from crowdshot import CrowdshotError, read_labels
from crowdshot.labels import gold_labels
from crowdshot.labels.columns import Columns
from forked import crowdshot

ROWS = ["1,ann,cat", "1,bob,cat", "2,ann,cat", "2,bob,dog", "3,ann,dog"]


def write(path, header, cells, rows=ROWS):
    path.write_text("\n".join([header, *(f"{row},{cell}" for row, cell in zip(rows, cells, strict=True))]) + "\n")
    return path


@pytest.mark.parametrize("column", ["truth", "Correct Answer", "gold_answer", "expected answer", "Correct"])
def test_gold_column_of_a_long_table_is_used_and_reported(tmp_path, column):
    path = write(tmp_path / "l.csv", f"item,annotator,label,{column}", ["cat", "cat", "dog", "", ""])
    with pytest.warns(UserWarning, match=f"{column!r} is read as the true labels"):
        found = read_labels(path)
    assert found.gold == {"1": "cat", "2": "dog"}
    assert found.annotations.n_labels == 5


@pytest.mark.parametrize(
    ("column", "cells", "reason"),
    [
        ("truth", ["cat", "owl", "dog", "", ""], "no annotator chose the label 'owl'"),
        ("gold", ["cat", "dog", "dog", "", ""], "item '1' has several"),
        ("correct", ["1", "1", "0", "1", "1"], "no annotator chose the label '1'"),
        ("truth,gold", ["cat,cat"] * 2 + [","] * 3, "there are 2 such columns, 'truth', 'gold'"),
    ],
)
def test_an_ambiguous_gold_column_is_not_used_and_reported(tmp_path, column, cells, reason):
    path = write(tmp_path / "l.csv", f"item,annotator,label,{column}", cells)
    with pytest.warns(UserWarning, match=f"is not read as true labels, because {reason}"):
        assert read_labels(path).gold == {}


def test_a_column_of_correctness_is_not_gold(tmp_path):
    rows = ["1,ann,yes", "2,ann,no", "3,bob,no"]
    path = write(tmp_path / "l.csv", "item,annotator,label,correct", ["yes", "no", "yes"], rows)
    with pytest.warns(UserWarning, match="because it may say whether a label is right"):
        assert read_labels(path).gold == {}
    path = write(tmp_path / "l.csv", "item,annotator,label,truth", ["yes", "no", "yes"], rows)
    with pytest.warns(UserWarning, match="is read as the true labels"):
        assert read_labels(path).gold == {"1": "yes", "2": "no", "3": "yes"}


def test_no_note_on_empty_or_chosen_columns(tmp_path):
    path = write(tmp_path / "l.csv", "item,annotator,label,truth", ["", "-1", "", "", ""])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_labels(path).gold == {}
        path = write(tmp_path / "l.csv", "item,annotator,note,truth", ["cat", "cat", "dog", "dog", "dog"])
        assert read_labels(path, columns={"label": "truth"}).gold == {}


def test_gold_sets_may_combine_labels(tmp_path):
    rows = ["1,ann,cat;dog", "2,ann,owl"]
    path = write(tmp_path / "l.csv", "item,annotator,label,truth", ["cat;owl", ""], rows)
    with pytest.warns(UserWarning, match="is read as the true labels"):
        assert read_labels(path, multi_label=True).gold == {"1": "cat;owl"}


@pytest.mark.parametrize(
    ("naming", "gold"),
    [
        ({}, None),
        ({"merge_case": True}, {"1": "cat", "2": "dog"}),
        ({"rename": {"cat": "Cat", "dog": "DOG"}}, {"1": "Cat", "2": "DOG"}),
        ({"rename": {"cat": "Cat", "dog": "owl"}}, None),
    ],
)
def test_gold_is_compared_with_renamed_labels(tmp_path, naming, gold):
    path = write(tmp_path / "l.csv", "item,annotator,label,gold", ["Cat", "Cat", "DOG", "DOG", ""])
    unknown = "DOG" if "rename" in naming else "Cat"
    message = (
        "is read as the true"
        if gold
        else f"is not read as true labels, because no annotator chose the label {unknown!r}"
    )
    with pytest.warns(UserWarning, match=message):
        assert read_labels(path, **naming).gold == (gold or {})


def test_gold_spellings_are_merged(tmp_path):
    rows = ["1,ann,cat;Dog", "1,bob,dog", "2,ann,dog"]
    path = write(tmp_path / "l.csv", "item,annotator,label,gold", ["dog;CAT", "cat;dog", ""], rows)
    with pytest.warns(UserWarning, match="is read as the true"):
        assert read_labels(path, multi_label=True, merge_case=True).gold == {"1": "cat;dog"}


def test_gold_labels_that_no_annotator_chose_are_reported(tmp_path):
    path = tmp_path / "w.csv"
    path.write_text("item,ann,bob,cyd,gold\n1,cat,dog,cat,Cat\n2,cat,dog,dog,\n3,dog,dog,dog,Dog\n")
    with pytest.warns(UserWarning) as notes:  # noqa: PT030 there are two
        assert read_labels(path).gold == {"1": "Cat", "3": "Dog"}
    new = notes[-1].message
    assert len(notes) == 2
    assert new.found == ["Cat", "Dog"]
    assert new.hint.arguments == {"rename": {"Cat": "cat", "Dog": "dog"}}
    with pytest.warns(UserWarning, match="is read as the true") as notes:
        assert read_labels(path, merge_case=True).gold == {"1": "cat", "3": "dog"}
    assert len(notes) == 1


@pytest.mark.slow
def test_new_names_apply_to_gold_labels(tmp_path):
    """`caat` occurs in gold alone, and is renamed, also by the engine."""
    answers = "".join(f"{n},{who},{'cat' if n % 2 else 'dog'}\n" for n in range(6) for who in ("ann", "bob", "cyd"))
    (tmp_path / "l.csv").write_text(f"item,annotator,label\n{answers}")
    (tmp_path / "g.csv").write_text("item,truth\n1,caat\n3,cat\n2,dog\n")
    words = ["aggregate", "l.csv", "--gold", "g.csv", "--rename"]
    for more in (["--json"], ["--json", "--engine", "local", "--memory", "2GB", "--out", "o"]):
        done = crowdshot(tmp_path, *words, "caat=cat", *more)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["classes"] == ["cat", "dog"]
        assert json.loads(done.stdout)["gold"] == 3
    done = crowdshot(tmp_path, *words, "coot=cat")
    assert done.returncode == 2
    assert "'coot'" in done.stderr


def test_a_gold_file_may_repeat_items_without_contradictions(tmp_path):
    path = write(tmp_path / "g.csv", "item,annotator,label,truth", ["cat", "cat", "", "dog", "dog"])
    assert gold_labels.read(path, Columns()) == {"1": "cat", "2": "dog", "3": "dog"}
    write(path, "item,annotator,label,truth", ["cat", "dog", "", "dog", "dog"])
    with pytest.raises(CrowdshotError, match=r"row 3, column 'truth' is 'dog' for '1', .* 'cat'"):
        gold_labels.read(path, Columns())
