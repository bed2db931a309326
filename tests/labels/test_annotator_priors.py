"""Test priors of annotators: their formats, and their effect on accuracies."""

import doctest

import numpy as np
import pandas as pd
import pytest

from crowdshot import Annotations, AnnotatorPriors, CrowdshotError
from crowdshot.labels import annotator_quality

RECORDS = {"ann": (12.0, 3.0), "bob": (0.5, 9.5)}


def test_examples():
    assert doctest.testmod(annotator_quality).failed == 0


def test_conversions_and_back(tmp_path):
    table = pd.DataFrame({"who": ["ann", "bob"], "wrong": [3, 9.5], "right": [12, 0.5], "city": ["x", "y"]})
    table.to_csv(tmp_path / "people.csv", index=False)
    for found in (
        AnnotatorPriors(RECORDS),
        AnnotatorPriors.from_frame(table),
        AnnotatorPriors.read(tmp_path / "people.csv"),
        AnnotatorPriors.from_frame(AnnotatorPriors(RECORDS).to_frame()),
    ):
        assert dict(found) == RECORDS
        np.testing.assert_array_equal(found.of(np.array(["bob", "zoe", "ann"])), [[0.5, 9.5], [0, 0], [12, 3]])
    assert AnnotatorPriors({7: "expert"})["7"] == annotator_quality.EXPERT  # a table has 7 as text
    assert 7 in AnnotatorPriors({"7": (1, 1)})


def test_accuracy_includes_history():
    """Four labels here, half of them right; sixteen elsewhere, all right: (2 + 16 + PRIOR m) / (20 + PRIOR)."""
    ann = Annotations.from_matrix([["x"], ["x"], ["y"], ["y"]], annotators=["ann"])
    posterior = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    alone = annotator_quality.judge(ann, posterior).iloc[0]
    told = annotator_quality.judge(ann, posterior, np.array([[16.0, 0.0]])).iloc[0]
    crowd = (2 + annotator_quality.CROWD * annotator_quality.EXPECTED) / (4 + annotator_quality.CROWD)
    prior = annotator_quality.PRIOR
    assert alone["accuracy"] == pytest.approx((2 + prior * crowd) / (4 + prior))
    assert told["accuracy"] == pytest.approx((18 + prior * crowd) / (20 + prior))
    assert (alone["right"], alone["wrong"]) == (2, 2)
    assert (told["right"], told["wrong"], told["n_labels"]) == (18, 2, 4)
    assert told["high"] - told["low"] < alone["high"] - alone["low"]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: AnnotatorPriors({"ann": (1, -1)}),
            "priors has (1, -1) for annotator 'ann', expected numbers (right, wr",
        ),
        (lambda: AnnotatorPriors({"ann": "good"}), "priors has 'good' for annotator 'ann', expected numbers"),
        (lambda: AnnotatorPriors({"ann": (1,)}), "priors has (1,) for annotator 'ann'"),
        (
            lambda: AnnotatorPriors({"ann": (1, float("nan"))}),
            "expected numbers (right, wrong) of labels, or 'expert'.",
        ),
        (
            lambda: AnnotatorPriors.from_frame(pd.DataFrame({"a": ["x"], "right": [1]})),
            "the table has the columns 'a', 'right', expected",
        ),
        (
            lambda: annotator_quality.as_priors([1]),
            "priors is a list, expected {annotator: (right, wrong)} or a table.",
        ),
        (
            lambda: AnnotatorPriors.from_frame(pd.DataFrame({"a": ["x", "x"], "right": [1, 1], "wrong": [0, 0]})),
            "the table names annotator 'x' more than once, expected each annotator once.",
        ),
    ],
)
def test_invalid_priors(make, message):
    with pytest.raises(CrowdshotError) as error:
        make()
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("who,right,wrong\nann,1,-2\n", "people.csv, row 2, column 'wrong' is -2, expected a number, 0 or more."),
        ("who,right,wrong\nann,much,2\n", "people.csv, row 2, column 'right' is 'much'"),
        ("who,right,wrong\nann,1,2\nann,1,2\n", "'ann'"),
        ("who,n_labels,accuracy\nann,1,2\n", "annotator, right and wrong."),
    ],
)
def test_invalid_files_of_priors(tmp_path, text, message):
    (tmp_path / "people.csv").write_text(text)
    with pytest.raises(CrowdshotError) as error:
        AnnotatorPriors.read(tmp_path / "people.csv")
    assert message in str(error.value)
