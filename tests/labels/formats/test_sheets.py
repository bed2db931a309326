"""Test labels from an Excel workbook: the choice of its sheet, and sheets per annotator."""

import warnings

import pytest

from crowdshot import CrowdshotError, read_labels
from sheets import workbook

LONG = [["item", "annotator", "label"], ["1", "ann", 1.0], ["1", "bob", 2.0], ["2", "ann", 2.0]]
WIDE = [["image", "ann", "bob"], ["a.png", "cat", "dog"], ["b.png", "dog", "dog"]]
OWN = [["image", "label"], ["a.png", "cat"], ["b.png", "dog"]]
LEGEND = [["label", "meaning"], ["cat", "has whiskers"], ["dog", "barks"]]


@pytest.fixture
def read(tmp_path):
    def write_and_read(sheets, **given):
        (tmp_path / "labels.xlsx").write_bytes(workbook(**sheets))
        return read_labels(tmp_path / "labels.xlsx", **given)

    return write_and_read


def triples(labels):
    return sorted(labels.annotations.to_frame().itertuples(index=False, name=None))


def test_a_workbook_is_read_like_other_tables(read):
    assert triples(read({"Sheet1": LONG})) == [("1", "ann", "1"), ("1", "bob", "2"), ("2", "ann", "2")]
    assert read({"Sheet1": WIDE}).annotations.annotators.tolist() == ["ann", "bob"]


def test_the_only_suitable_sheet_is_read_and_reported(read):
    with pytest.warns(UserWarning, match="Labels are read from the sheet 'Labels', not from 'Legend'"):
        labels = read({"Legend": LEGEND, "Labels": WIDE})
    assert labels.annotations.n_labels == 4


def test_one_of_several_suitable_sheets_must_be_named(read):
    sheets = {"March": WIDE, "April": [WIDE[0], ["c.png", "cat", "cat"]], "Legend": LEGEND}
    with pytest.raises(
        CrowdshotError, match=r"has 2 sheets that could .* 'March', 'April', expected one\. Use sheet='NAME'"
    ):
        read(sheets)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read(sheets, sheet="April").annotations.items.tolist() == ["c.png"]


def test_sheets_without_annotators_are_one_annotator_each(read):
    with pytest.warns(UserWarning, match="Each of the sheets 'Ann', 'Bob' is read as the labels of one annotator"):
        labels = read({"Ann": OWN, "Bob": [OWN[0], ["a.png", "dog"]], "Legend": LEGEND})
    assert triples(labels) == [("a.png", "Ann", "cat"), ("a.png", "Bob", "dog"), ("b.png", "Ann", "dog")]
    with pytest.warns(
        UserWarning, match=r"labels\.xlsx: The labels 'Cat' and 'cat' are read as two|Each of the sheets"
    ):
        read({"Ann": OWN, "Bob": [OWN[0], ["a.png", "Cat"]]})


def test_sheets_of_truth_and_results_are_not_annotators(read):
    others = ["Gold", "Truth", "Final", "Final label", "Consensus"]
    rest = f"nothing is read from {str(others)[1:-1]}"
    message = f"Each of the sheets 'Ann', 'Bob' is read as the labels of one annotator; {rest}"
    with pytest.warns(UserWarning, match=message):
        labels = read(dict.fromkeys(("Ann", *others[:2], "Bob", *others[2:]), OWN))
    assert labels.annotations.annotators.tolist() == ["Ann", "Bob"]
    with pytest.warns(
        UserWarning, match="Each of the sheets 'Ann' is read as the labels of one annotator; nothing is read from"
    ):
        assert read({"Ann": OWN, "Gold": OWN}).annotations.annotators.tolist() == ["Ann"]
    with pytest.warns(UserWarning, match="Each of the sheets 'Gold', 'Final' is read as the labels of one annotator"):
        assert read({"Gold": OWN, "Final": OWN}).annotations.n_annotators == 2  # there are no other sheets


def test_without_a_suitable_sheet_all_are_named(read):
    with pytest.raises(CrowdshotError, match=r"has 2 sheets, 'a', 'b', expected one\. Use sheet='NAME'"):
        read({"a": LEGEND, "b": LEGEND})


def test_a_sheet_of_another_kind_of_file_is_refused(tmp_path):
    (tmp_path / "labels.csv").write_text("item,annotator,label\n1,a,x\n")
    with pytest.raises(CrowdshotError, match=r"sheet is 'one', but .* is not an Excel workbook"):
        read_labels(tmp_path / "labels.csv", sheet="one")


def test_a_formula_without_a_value_is_refused_in_the_sheet_that_is_read(read):
    sums = [["label", "number"], ["cat", '=COUNTIF(Labels!B:B,"cat")']]
    with pytest.warns(UserWarning, match="Labels are read from the sheet 'Labels', not from 'Sums'"):
        assert read({"Labels": WIDE, "Sums": sums}).annotations.n_labels == 4
    with pytest.raises(CrowdshotError, match="sheet 'Sums', cell B2 is a formula without its value"):
        read({"Labels": WIDE, "Sums": sums}, sheet="Sums")
    broken = [WIDE[0], ["a.png", '=LOWER("CAT")', "dog"]]
    with pytest.raises(CrowdshotError, match="sheet 'Labels', cell B2 is a formula without its value"):
        read({"Labels": broken, "Legend": LEGEND})


def test_every_table_may_be_a_workbook(tmp_path):
    (tmp_path / "a.xlsx").write_bytes(workbook(one=LONG))
    (tmp_path / "b.csv").write_text("item,annotator,label\n3,ann,1\n")
    (tmp_path / "names.xlsx").write_bytes(workbook(one=[["annotator", "name"], ["ann", "Ann B."]]))
    (tmp_path / "rename.xlsx").write_bytes(workbook(one=[["old", "new"], [1, "yes"], [2, "no"]]))
    labels = read_labels(
        [tmp_path / "a.xlsx", tmp_path / "b.csv"], names=tmp_path / "names.xlsx", rename=tmp_path / "rename.xlsx"
    )
    assert triples(labels) == [
        ("1", "Ann B.", "yes"),
        ("1", "bob", "no"),
        ("2", "Ann B.", "no"),
        ("3", "Ann B.", "yes"),
    ]
