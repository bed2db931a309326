"""Accuracies of annotators, their intervals, and the probability of a low accuracy: by hand and by simulation."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crowdshot import CrowdAggregator
from crowdshot._cli import options
from crowdshot.errors import CrowdshotError
from crowdshot.labels import annotator_quality
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import CROWD, EXPECTED, PRIOR, SHARED, SHIFT, by_risk, judge


def people(right: list[int], of: int, sure: float = 1.0):
    """Return the table of annotators who gave ``of`` labels each, and whose items have a posterior of ``sure``."""
    labels = np.array([[1] * hits + [0] * (of - hits) for hits in right]).T
    posterior = np.tile([1 - sure, sure], (of, 1))
    return judge(Annotations.from_matrix(labels, classes=range(2)), posterior, min_accuracy=0.8)


def test_with_known_classes_by_hand():
    table = people([9, 5], 10)
    crowd = (14 + CROWD * EXPECTED) / (20 + CROWD)
    mean = (9 + PRIOR * crowd) / (10 + PRIOR)
    beta = stats.beta(mean * (10 + PRIOR), (1 - mean) * (10 + PRIOR))
    first = table.iloc[0]
    assert first["accuracy"] == pytest.approx(mean)
    assert (first["low"], first["high"]) == pytest.approx((beta.ppf(0.05), beta.ppf(0.95)))
    assert first["p_below"] == pytest.approx(beta.cdf(0.8))
    assert by_risk(table)["annotator"].tolist() == [1, 0]


def test_with_uncertain_classes_by_hand():
    """Every label is right with probability 0.75, so nothing is known but that: u is 1."""
    (row,) = people([10], 10, sure=0.75).itertuples()
    crowd = (7.5 + CROWD * EXPECTED) / (10 + CROWD)
    start = (7.5 + PRIOR * crowd) / (10 + PRIOR)
    u = 0.75 * 0.25 / (start * (1 - start))
    mean = 1 / (1 + (1 / start - 1) * np.exp(-SHIFT * min(u, 1) ** 8))
    s = mean * (1 - mean)
    variance = s / (11 + PRIOR) + (SHARED * min(u, 1) * s) ** 2
    assert row.accuracy == pytest.approx(mean)
    beta = stats.beta(mean * (s / variance - 1), (1 - mean) * (s / variance - 1))
    assert (row.low, row.high) == pytest.approx((beta.ppf(0.05), beta.ppf(0.95)))


@given(st.integers(0, 10_000))
def test_intervals_contain_the_accuracy_and_shrink_with_labels(seed):
    random = np.random.default_rng(seed)
    posterior = random.dirichlet(np.ones(3), 40)
    labels = random.integers(-1, 3, (40, 4))
    labels[0], labels[1:, 3] = 0, -1
    table = judge(Annotations.from_matrix(labels, classes=range(3)), posterior)
    assert (table["low"] < table["accuracy"]).all()
    assert (table["accuracy"] < table["high"]).all()
    assert table["p_below"].between(0, 1).all()
    twice = Annotations.from_matrix(np.vstack([labels, labels]), classes=range(3))
    wide, narrow = (t["high"] - t["low"] for t in (table, judge(twice, np.vstack([posterior, posterior]))))
    assert (narrow[:3] < wide[:3] + 1e-12).all()


def test_nothing_is_known_without_labels():
    ann = Annotations.from_matrix([["x", None], ["y", None]], annotators=["ann", "zoe"])
    table = judge(ann, np.eye(2))
    assert table.loc[1, ["low", "high"]].tolist() == [0, 1]
    assert table.loc[1, ["accuracy", "p_below"]].isna().all()
    assert by_risk(table)["annotator"].tolist() == ["ann", "zoe"]


@pytest.mark.parametrize("bar", [0, 1, -0.5, float("nan")])
def test_minimum_accuracies_that_make_no_sense(bar):
    crowd = CrowdAggregator().fit([["a", "a"], ["b", "b"]])
    with pytest.raises(CrowdshotError) as error:
        crowd.judge_annotators(bar)
    assert error.value.argument == "min_accuracy"


def test_a_higher_minimum_is_missed_more_often():
    crowd = CrowdAggregator().fit([["a", "a", "b"], ["b", "b", "b"], ["a", "a", "a"]] * 5)
    low, high = crowd.judge_annotators(0.5), crowd.judge_annotators(0.9)
    assert (low["p_below"] < high["p_below"]).all()
    assert options.MIN_ACCURACY == annotator_quality.MIN_ACCURACY
