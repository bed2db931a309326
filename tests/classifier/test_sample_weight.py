"""`fit(…, sample_weight=…)`: an item of 2 is two items, one of 0 is judged and teaches nothing."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from crowdshot import Annotations, CrowdClassifier, CrowdshotError, mixture
from crowdshot.classifier.learner_contract import SideInformation, whole_weights

RANDOM = np.random.default_rng(0)
TRUTH = np.arange(30) % 3
X = 2 * np.eye(3)[TRUTH] + RANDOM.normal(size=(30, 3))
SAID = np.where(RANDOM.random((30, 4)) < 0.75, TRUTH[:, None], RANDOM.integers(3, size=(30, 4)))
SAID[RANDOM.random((30, 4)) < 0.2] = -1
SAID[3] = -1
WEIGHT = RANDOM.integers(0, 4, size=30)
METHODS = ["auto", "features"]


@pytest.mark.parametrize("method", METHODS)
def test_an_item_counts_as_often_as_its_weight_says(method):
    weighted = CrowdClassifier("identity", method=method).fit(X, SAID, sample_weight=WEIGHT)
    rows = np.repeat(np.arange(30), WEIGHT)
    repeated = CrowdClassifier("identity", method=method).fit(X[rows], SAID[rows])
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=1e-9)
    np.testing.assert_allclose(weighted.label_proba_[rows], repeated.label_proba_, atol=1e-9)
    np.testing.assert_allclose(weighted.confusion_, repeated.confusion_, atol=1e-9)


@pytest.mark.parametrize("method", [*METHODS, "ours"])
def test_what_counts_nothing_teaches_nothing_and_is_judged(method):
    weight = np.where(np.arange(30) < 20, 1, 0)
    spoilt, labels = X.copy(), SAID.copy()
    spoilt[20:25], labels[20:25] = 50, 2  # nonsense that must not be learned from
    clf = CrowdClassifier("identity", method=method, settings={"scale": 4.0} if method == "ours" else None)
    clf.fit(X, SAID, sample_weight=weight)
    without = CrowdClassifier("identity", method=method, settings={"scale": 4.0} if method == "ours" else None).fit(
        X[:20], SAID[:20]
    )
    np.testing.assert_allclose(clf.label_proba_[:20], without.label_proba_, atol=1e-6 if method == "ours" else 1e-9)
    right = (clf.label_proba_[20:].argmax(1) == TRUTH[20:]).mean()
    assert right >= 0.7
    np.testing.assert_allclose(clf.label_proba_.sum(1), 1)
    again = CrowdClassifier("identity", method=method, settings={"scale": 4.0} if method == "ours" else None)
    again.fit(spoilt, labels, sample_weight=weight)
    np.testing.assert_allclose(again.predict_proba(X), clf.predict_proba(X), atol=1e-6 if method == "ours" else 1e-9)


def test_labels_count_where_an_item_is_judged_without_teaching():
    """Its features say nothing in particular; four good annotators do."""
    x = np.vstack([X, np.full((1, 3), 2 / 3)])
    for k in range(3):
        labels = np.vstack([SAID, np.full((1, 4), k)])
        clf = CrowdClassifier("identity").fit(x, labels, sample_weight=[1] * 30 + [0])
        assert clf.label_proba_[30].argmax() == k
        assert clf.label_proba_[30, k] > 0.75


def test_the_mixture_takes_any_weight():
    votes = Annotations.from_matrix(SAID).to_tensor()
    import torch

    u = torch.from_numpy(X)
    rows = np.repeat(np.arange(30), WEIGHT)
    weighted = mixture.fit(u, votes, 3, steps=4, item_weight=torch.from_numpy(WEIGHT))
    repeated = mixture.fit(u[rows], votes[rows], 3, steps=4)
    for name in ("means", "class_probs", "confusion"):
        np.testing.assert_allclose(getattr(weighted, name), getattr(repeated, name), atol=1e-9)
    half = CrowdClassifier("identity", method="ours").fit(X, SAID, sample_weight=np.full(30, 0.5))
    assert np.isfinite(half.label_proba_).all()


@pytest.mark.parametrize("method", METHODS)
def test_fractions_are_rounded_right_on_average(method):
    side = SideInformation.nothing(400)
    weight = np.tile([0.25, 1.5, 0.0, 3.0], 100)
    found = np.array([whole_weights(replace(side, weight=weight), seed).weight for seed in range(200)])
    assert set(np.unique(found)) == {0, 1, 2, 3}
    assert np.abs(found - weight).max() < 1
    np.testing.assert_allclose(found.mean(0), weight, atol=0.15)  # four standard errors
    assert np.ptp(found.sum(1)) <= 1
    half = CrowdClassifier("identity", method=method).fit(X, SAID, sample_weight=np.full(30, 0.5))
    assert half._known.weight.sum() == 15
    again = CrowdClassifier("identity", method=method).fit(X, SAID, sample_weight=half._known.weight)
    np.testing.assert_array_equal(half.label_proba_, again.label_proba_)


@pytest.mark.parametrize("method", [*METHODS, "labeling-search", "ours", "LRDS"])
def test_ones_change_nothing(method):
    plain = CrowdClassifier("identity", method=method).fit(X, SAID)
    ones = CrowdClassifier("identity", method=method).fit(X, SAID, sample_weight=np.ones(30))
    np.testing.assert_array_equal(plain.label_proba_, ones.label_proba_)


def test_gold_classes_and_weights_stay_with_updates_and_files(tmp_path):
    gold = {20: 0, 3: 1}
    weight = np.where(np.arange(30) % 5 == 0, 0, 1)
    clf = CrowdClassifier("identity").fit(X, SAID, gold=gold, sample_weight=weight)
    assert clf.consensus_["confidence"][[20, 3]].tolist() == [1, 1]
    assert clf.consensus_["label"][[20, 3]].tolist() == [0, 1]
    first = CrowdClassifier("identity").fit(X[:21], SAID[:21], gold=gold, sample_weight=weight[:21])
    first.save(tmp_path / "model.safetensors")
    again = CrowdClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.label_proba_, first.label_proba_)
    expected = CrowdClassifier("identity").fit(X, SAID, gold=gold, sample_weight=np.append(weight[:21], np.ones(9)))
    np.testing.assert_allclose(again.update(SAID[21:], X[21:]).label_proba_, expected.label_proba_, atol=1e-6)


def test_a_class_that_only_idle_items_have_is_not_learned():
    labels = SAID.copy()
    labels[29] = 7
    clf = CrowdClassifier("identity").fit(X, labels, sample_weight=[1] * 29 + [0])
    assert clf.classes_.tolist() == [0, 1, 2, 7]
    assert (clf.label_proba_[:, 3] == 0).all()


@pytest.mark.parametrize(
    ("method", "weight", "message"),
    [
        ("auto", [1, 2], "sample_weight has shape (2,), expected (30,), a number for each item."),
        ("auto", [-1] * 30, "sample_weight contains -1, expected numbers, 0 or more."),
        ("auto", [np.nan] * 30, "sample_weight contains nan, expected numbers, 0 or more."),
        ("auto", [0] * 30, "sample_weight is zero for every item, expected one positive weight at least."),
        ("auto", ["a"] * 30, "sample_weight is not a list of numbers, expected one for each item."),
        ("auto", [0.01] * 30, "sample_weight sums to 0.3, less than one item"),
        (
            "labeling-search",
            [2] * 30,
            "sample_weight is given with method 'labeling-search', expected the method 'auto', 'features' or 'ours'",
        ),
        ("LRDS", [2] * 30, "sample_weight is given with method 'LRDS', expected the method 'auto', 'features'"),
    ],
)
def test_what_is_wrong_with_weights_is_told(method, weight, message):
    with pytest.raises(CrowdshotError) as error:
        CrowdClassifier("identity", method=method).fit(X, SAID, sample_weight=weight)
    assert message in str(error.value)


def test_images_with_weights_are_not_searched_which_is_told():
    images = np.zeros((6, 28, 28), dtype=np.uint8)
    images[3:, 8:20] = 255
    labels = np.repeat([[0, 0], [1, 1]], 3, axis=0)
    with pytest.warns(UserWarning, match="sample_weight is not supported by the labeling search"):
        weighted = CrowdClassifier().fit(images, labels, sample_weight=[0, 1, 1, 1, 1, 1])
    assert weighted.learner_ == "features"


def test_weights_may_be_a_series():
    series = pd.Series(WEIGHT, index=[f"i{i}" for i in range(30)])
    one, two = (CrowdClassifier("identity").fit(X, SAID, sample_weight=w) for w in (series, WEIGHT.tolist()))
    np.testing.assert_array_equal(one.label_proba_, two.label_proba_)
