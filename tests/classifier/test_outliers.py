"""Test label quality and outliers: values by hand, and planted mistakes and outliers."""

import doctest

import numpy as np
import pandas as pd
import pytest

from crowdshot import Annotations, CrowdClassifier
from crowdshot.classifier.fit_results import find_outliers
from crowdshot.labels import annotator_quality

RANDOM = np.random.default_rng(0)
TRUTH = np.arange(60) % 3
X = 4 * np.eye(3)[TRUTH] + RANDOM.normal(size=(60, 3))
SAID = np.tile(TRUTH[:, None], 3)
MISTAKES = [(0, 1), (7, 0), (20, 2), (33, 1)]
for item, who in MISTAKES:
    SAID[item, who] = (TRUTH[item] + 1) % 3


def test_examples():
    assert doctest.testmod(annotator_quality).failed == 0


def test_quality_is_the_posterior_of_the_chosen_label():
    ann = Annotations.from_matrix([["x", "y"], ["y", None]], items=["a", "b"], annotators=["ann", "bob"])
    posterior = np.array([[0.8, 0.2], [0.3, 0.7]])
    table = annotator_quality.label_quality(ann, posterior)
    assert table.columns.tolist() == ["item", "annotator", "label", "quality", "consensus", "confidence"]
    assert table.to_numpy().tolist() == [
        ["a", "ann", "x", 0.8, "x", 0.8],
        ["a", "bob", "y", 0.2, "x", 0.8],
        ["b", "ann", "y", 0.7, "y", 0.7],
    ]
    assert annotator_quality.likely_wrong(ann, posterior)["annotator"].tolist() == ["bob"]
    assert annotator_quality.likely_wrong(ann, posterior, below=0.75)["quality"].tolist() == [0.2, 0.7]


@pytest.mark.parametrize("method", ["auto", "labeling-search", "ours"])
def test_planted_mistakes_are_found(method):
    clf = CrowdClassifier("identity", method=method).fit(X, SAID)
    wrong = clf.likely_wrong_
    assert sorted(zip(wrong["item"], wrong["annotator"], strict=True)) == MISTAKES
    assert (wrong["consensus"] == TRUTH[wrong["item"]]).all()
    assert (clf.label_quality_["quality"].to_numpy() > 0.5).sum() == SAID.size - len(MISTAKES)


def test_planted_outliers_are_found():
    x = X.copy()
    x[[5, 40]] = [[30, -30, 30], [-20, 25, -20]]
    clf = CrowdClassifier("identity").fit(x, SAID)
    table = clf.outliers_
    assert set(table["item"][:2]) == {5, 40}
    assert table["outlier"].tolist() == [True, True, *[False] * 58]
    assert table["oddness"].is_monotonic_decreasing
    assert np.median(table["oddness"]) == pytest.approx(1)


def test_distances_by_hand():
    """Items at 0, 1, 2 and 10 on a line: with three neighbours, mean distances are (13, 11, 11, 27) / 3."""
    ann = Annotations.from_matrix([0, 1, 0, 1])
    table = find_outliers(np.array([[0.0], [1.0], [2.0], [10.0]]), ann, np.full((4, 2), 0.5)).set_index("item")
    means = np.array([13, 11, 11, 27]) / 3
    np.testing.assert_allclose(table["oddness"][[0, 1, 2, 3]], means / np.median(means))
    assert table["nearest"][[0, 2, 3]].tolist() == [1, 1, 2]


def test_identical_items_and_a_single_item_are_no_outliers():
    ann = Annotations.from_matrix([0, 1, 0, 1, 0, 1])
    assert not find_outliers(np.ones((6, 2)), ann, np.full((6, 2), 0.5))["outlier"].any()
    one = Annotations.from_matrix([0])
    assert find_outliers(np.ones((1, 2)), one, np.ones((1, 1)))["outlier"].tolist() == [False]


def test_tables_use_the_names_of_the_input():
    table = pd.DataFrame(
        [(f"i{i}", f"w{r}", f"c{SAID[i, r]}") for i in range(60) for r in range(3)],
        columns=["image", "worker", "answer"],
    )
    clf = CrowdClassifier("identity").fit(pd.DataFrame(X, index=[f"i{i}" for i in range(60)]), table)
    assert clf.label_quality_.columns.tolist()[:3] == ["image", "worker", "answer"]
    assert clf.outliers_.columns[0] == "image"
