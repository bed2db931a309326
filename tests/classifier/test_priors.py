"""Test `fit(…, priors=…)`: annotators' history in earlier projects counts, with every method."""

import numpy as np
import pandas as pd
import pytest

from crowdshot import AnnotatorPriors, CrowdClassifier

RANDOM = np.random.default_rng(0)
TRUTH = RANDOM.integers(2, size=24)
X = RANDOM.normal(size=(24, 2))  # uninformative
SAID = pd.DataFrame({"ann": TRUTH, "bob": 1 - TRUTH, "cy": np.where(np.arange(24) < 12, TRUTH, 1 - TRUTH)})
METHODS = ["auto", "features", "labeling-search", "ours", "LRDS"]


@pytest.mark.parametrize("method", METHODS)
def test_annotators_with_better_history_decide(method):
    """Ann and Bob always disagree, and only their history shows who is right."""
    for good, bad in (("ann", "bob"), ("bob", "ann")):
        priors = {good: (60, 3), bad: (10, 50), "zoe": (5, 5)}
        settings = {"scale": 0.1} if method == "labeling-search" else None  # otherwise it trusts any features
        clf = CrowdClassifier("identity", method=method, settings=settings).fit(X, SAID, priors=priors)
        label = clf.consensus_["label"].to_numpy()
        assert (label == SAID[good]).mean() > 0.9
        people = clf.annotators_.set_index("annotator")
        assert people.loc[good, "accuracy"] > 0.8 > 0.4 > people.loc[bad, "accuracy"]
        assert people.loc[good, "right"] > 75
        assert list(people.index) == ["ann", "bob", "cy"]


@pytest.mark.parametrize("method", METHODS)
def test_no_history_changes_nothing(method):
    plain = CrowdClassifier("identity", method=method).fit(X, SAID)
    for priors in ({}, {"zoe": "expert"}, {"ann": (0, 0)}):
        with_priors = CrowdClassifier("identity", method=method).fit(X, SAID, priors=priors)
        np.testing.assert_array_equal(plain.label_proba_, with_priors.label_proba_)


def test_records_are_carried_from_one_project_to_the_next(tmp_path):
    first = CrowdClassifier("identity").fit(X, SAID, gold=dict(enumerate(TRUTH)))
    records = AnnotatorPriors.from_classifier(first)
    assert records["ann"] == pytest.approx((24, 0))
    assert records["bob"] == pytest.approx((0, 24))
    second = CrowdClassifier("identity").fit(X, SAID, priors=records)
    right, wrong = AnnotatorPriors.from_classifier(second)["ann"]
    assert right + wrong == pytest.approx(48)
    assert right > 40
    second.save(tmp_path / "model.safetensors")
    again = CrowdClassifier.load(tmp_path / "model.safetensors")
    pd.testing.assert_frame_equal(again.annotators_, second.annotators_)
