"""Test long tables with a column for the question that a row answers."""

import pytest

from crowdshot import CrowdshotError, read_labels

ANSWERS = [
    *("i1,ann,{0},cat", "i1,ann,{1},no", "i1,bob,{0},cat", "i1,bob,{1},no"),
    *("i2,ann,{0},dog", "i2,ann,{1},yes", "i2,bob,{0},cat"),
]


def write(tmp_path, header, rows):
    path = tmp_path / "q.csv"
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


def write_questions(tmp_path, column, names=("animal", "blurred"), more=()):
    return write(tmp_path, f"item,annotator,{column},answer", [row.format(*names) for row in [*ANSWERS, *more]])


def labels_of(path, **options):
    return {tuple(row) for row in read_labels(path, **options).annotations.to_frame().itertuples(index=False)}


@pytest.mark.parametrize("column", ["question", "Question ID", "Frage", "field_name", "Critère", "part"])
def test_several_questions_are_refused(tmp_path, column):
    with pytest.raises(CrowdshotError) as error:
        read_labels(write_questions(tmp_path, column))
    assert error.value.where.endswith("q.csv")
    assert error.value.message == f"has several questions in column {column!r}, 'animal' and 'blurred'"
    assert error.value.found == ["animal", "blurred"]
    assert error.value.hint.arguments == {"columns": {"label": "QUESTION"}}


@pytest.mark.parametrize("column", ["question", "part"])
def test_the_named_question_is_read(tmp_path, column):
    path = write_questions(tmp_path, column)
    animals = {("i1", "ann", "cat"), ("i1", "bob", "cat"), ("i2", "ann", "dog"), ("i2", "bob", "cat")}
    assert labels_of(path, columns={"label": "animal"}) == animals
    assert labels_of(path, columns=("item", "annotator", "blurred")) == {
        *(("i1", "ann", "no"), ("i1", "bob", "no"), ("i2", "ann", "yes"))
    }
    found = read_labels(path, columns={"label": "animal"})
    assert found.annotations.columns == ("item", "annotator", "answer")
    assert found.left_out == {"rows of other questions": 3}
    with pytest.raises(CrowdshotError, match="has no column 'size' for the label among"):
        read_labels(path, columns={"label": "size"})


def test_questions_without_common_annotators_per_item(tmp_path):
    path = write(
        tmp_path, "item,annotator,question,answer", ["1,ann,animal,cat", "1,bob,blurred,no", "2,bob,animal,dog"]
    )
    assert labels_of(path, columns={"label": "animal"}) == {("1", "ann", "cat"), ("2", "bob", "dog")}


def test_a_correction_does_not_hide_the_questions(tmp_path):
    with pytest.raises(CrowdshotError, match="several questions in column 'question'"):
        read_labels(write_questions(tmp_path, "question", more=["i2,bob,{1},no", "i1,ann,{0},dog"]))


@pytest.mark.parametrize(
    ("column", "cells"),
    [
        ("label_id", ["0", "1", "0", "1", "0", "1"]),  # a code of the label: only ann on 1 chose two labels
        ("attempt", ["1", "2", "1", "1", "1", "1"]),
        ("created_at", ["9:01", "9:02", "9:01", "9:02", "9:01", "9:02"]),
        ("comment", ["", "a slip", "", "", "", ""]),
        ("question", ["what is it?"] * 6),
    ],
)
def test_corrections_are_not_questions(tmp_path, column, cells):
    rows = ["1,ann,cat", "1,ann,dog", "1,bob,cat", "2,bob,dog", "2,ann,cat", "3,ann,dog"]
    path = write(
        tmp_path, f"item,annotator,label,{column}", [f"{row},{cell}" for row, cell in zip(rows, cells, strict=True)]
    )
    with pytest.warns(UserWarning, match="labelled the same item more than once"):
        assert read_labels(path).annotations.n_labels == 5


def test_rounds_with_the_same_labels_are_not_questions(tmp_path):
    rows = [f"{item},ann,{label},{n}" for n in (1, 2) for item, label in (("a", "cat"), ("b", "dog"))]
    with pytest.warns(UserWarning, match="labelled the same item more than once"):
        assert read_labels(write(tmp_path, "item,annotator,label,round", rows)).annotations.n_labels == 2
