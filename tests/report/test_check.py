"""What the classifier can be expected to get right on new items."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from crowdshot import CrowdClassifier
from crowdshot.classifier import diagnostics
from crowdshot.classifier.diagnostics import _parts, leave_out, why_not
from crowdshot.labels.consensus import Share

from .made import coin, crowd


def test_share_has_jeffreys_interval():
    share = Share.of_all(np.array([True] * 7 + [False] * 3))
    assert (share.hits, share.of, share.share) == (7, 10, 0.7)
    np.testing.assert_allclose((share.low, share.high), stats.beta(7.5, 3.5).ppf([0.05, 0.95]))
    assert Share.of_all(np.array([], dtype=bool)) is None


@given(st.lists(st.integers(0, 3), min_size=10, max_size=60))
def test_every_class_is_spread_over_all_parts(consensus):
    consensus = np.array(consensus)
    part = _parts(consensus, np.random.default_rng(0))
    assert set(part) == set(range(10))
    for k in set(consensus.tolist()):
        sizes = np.bincount(part[consensus == k], minlength=10)
        assert sizes.max() - sizes.min() <= 1


@pytest.mark.parametrize("method", ["ours", "LRDS"])
def test_leaving_out_is_fitting_without_the_labels_of_a_part(method):
    said, truth = crowd([coin(0.9, 3), coin(0.7, 3), coin(0.6, 3)], 36, per_item=2)
    said[30:] = -1  # six items that nobody labelled
    x = np.random.default_rng(1).normal(size=(36, 4)).astype(np.float32) + np.eye(3, 4)[truth].astype(np.float32)
    clf = CrowdClassifier("identity", method=method).fit(x, said)
    embeddings = clf.embed(x)
    assert why_not(clf, embeddings) == ""
    check = leave_out(clf, embeddings)
    assert check.rows.tolist() == list(range(30))
    assert clf.classes_[check.consensus].tolist() == clf.consensus_["label"][:30].tolist()
    part = _parts(check.consensus, np.random.default_rng(0))
    for number in (0, 7):
        hidden = np.flatnonzero(part == number)
        rest = said.copy()
        rest[hidden] = -1
        again = CrowdClassifier("identity", method=method, settings=clf.settings_).fit(x, rest, classes=range(3))
        np.testing.assert_allclose(again.predict_proba(x[hidden]), check.probabilities[hidden], atol=1e-5)
    right = clf.label_proba_[
        np.arange(30), check.said
    ]  # what it says counts as far as that is believed with the labels
    sure = check.probabilities.max(1) >= 0.6
    assert check.when_sure().share == pytest.approx(right.mean())
    assert check.when_sure(0.6) == Share.of_all(right[sure])
    assert check.when_sure(1.1) is None


def test_of_many_items_some_are_hidden_and_those_that_are_shown(monkeypatch):
    """Twelve of sixty, by the first two lots; three others, which do not count; six nobody labelled."""
    monkeypatch.setattr(diagnostics, "MOST", 12)
    said, truth = crowd([coin(0.9, 3)] * 3, 66)
    said[:6] = -1
    x = (np.eye(3, 4)[truth] + np.random.default_rng(1).normal(size=(66, 4))).astype(np.float32)
    clf = CrowdClassifier("identity").fit(x, said)
    part = np.append(np.full(6, -1), _parts(clf.label_proba_[6:].argmax(1), np.random.default_rng(0)))
    first, besides = int(np.flatnonzero(part == 0)[0]), np.flatnonzero(part == 7)[:3].tolist()
    check = leave_out(clf, clf.embed(x), [2, first, *besides])
    assert check.rows.tolist() == np.flatnonzero((part == 0) | (part == 1)).tolist()
    assert check.when_sure().of == 12
    assert list(check.besides) == besides
    said[(part == 0) | np.isin(np.arange(66), besides)] = -1
    again = CrowdClassifier("identity").fit(x, said, classes=range(3))
    for row in (*besides, first):
        told = check.besides.get(row, check.probabilities[check.rows == row].sum(0))
        np.testing.assert_allclose(again.predict_proba(x[[row]])[0], told, atol=1e-9)


def test_where_a_part_has_all_there_is_of_a_class_the_other_is_all_one_knows():
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    said = np.zeros((20, 3), dtype=int)
    said[4] = 1
    clf = CrowdClassifier("identity", method="ours", settings={"scale": 0.001}).fit(x, said)
    check = leave_out(clf, clf.embed(x))
    assert check.consensus[4] == 1
    assert check.probabilities[4].tolist() == [1, 0]


def test_features_that_say_nothing_promise_nothing():
    said, _ = crowd([coin(0.9, 2)] * 5, 200)
    x = np.random.default_rng(5).normal(size=(200, 6)).astype(np.float32)
    clf = CrowdClassifier("identity").fit(x, said)
    share = leave_out(clf, clf.embed(x)).when_sure()
    assert share.low < 0.5 < share.high


def test_where_there_can_be_no_estimate():
    x = np.random.default_rng(0).normal(size=(9, 2)).astype(np.float32)
    clf = CrowdClassifier("identity").fit(x, np.arange(9)[:, None] % 2)
    assert why_not(clf, clf.embed(x)) == "9 labelled items are too few for cross-validation"
    x = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    clf = CrowdClassifier("identity", method="MCL", settings={"iterations": 1}).fit(x, np.arange(20)[:, None] % 2)
    assert why_not(clf, clf.embed(x)) == "MCL takes too long to fit 10 times"
