"""Names that people write in several ways."""

import pytest

from crowdshot import Annotations
from crowdshot.labels.spelling import Twins, fold, near_twins

LABELS = {
    "1": {"ann": "cat", "bob": "Cat"},
    "2": {"ann": "cat", "bob": "CAT"},
    "3": {"Ann": "dog", "bob": "Cat"},
    "4": {"ann": "cat", "bob": "hot dog"},
    "5": {"ann": "１", "bob": "hot  dog"},
    "6": {"ann": "1"},
}


def test_near_twins_are_named_by_how_often_they_occur():
    assert near_twins(Annotations.from_dict(LABELS)) == [
        Twins("labels", ("1", "１"), (1, 1)),
        Twins("labels", ("cat", "Cat", "CAT"), (3, 2, 1)),
        Twins("labels", ("hot  dog", "hot dog"), (1, 1)),
        Twins("annotators", ("ann", "Ann"), (5, 1)),
    ]
    assert str(near_twins(Annotations.from_dict(LABELS))[1]) == "the labels 'cat', 'Cat' and 'CAT'"


def test_names_that_differ_are_no_twins():
    labels = {"1": {"ann": "cat", "bob": "car"}, "2": {"ann": "10", "bob": "100"}, "3": {"ann": "1.5", "bob": "1"}}
    assert near_twins(Annotations.from_dict(labels)) == []
    numbers = Annotations.from_matrix([[0, 1], [1, 0]])
    assert near_twins(numbers) == []


@pytest.mark.parametrize(
    ("one", "two"),
    [("Cat", " cat "), ("7", "7.0"), ("-1", "-1.00"), ("Straße", "STRASSE"), ("e\u0301", "\u00c9"), ("ｃａｔ", "cat")],
)
def test_what_folds_to_the_same(one, two):
    assert fold(one) == fold(two)
