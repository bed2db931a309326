"""Test scores without true labels: by hand, against known truth, and in scikit-learn's searches."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from crowdshot import Annotations, CrowdClassifier, CrowdshotError, aggregate, metrics

SCORERS = (metrics.held_back_labels_scorer, metrics.consensus_accuracy_scorer, metrics.calibration_scorer)


def problem(n=120, R=5, skill=0.8, seed=0, apart=3.0, missing=0.0):
    random = np.random.default_rng(seed)
    truth = np.arange(n) % 3
    X = np.eye(3)[truth] * apart + random.normal(size=(n, 3))
    labels = np.where(random.random((n, R)) < skill, truth[:, None], random.integers(3, size=(n, R)))
    labels[random.random((n, R)) < missing] = -1
    return X, labels, truth


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda scorer: scorer.__name__)
def test_scikit_learn_takes_them(scorer):
    X, labels, _ = problem(60, missing=0.3)
    folds = KFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(CrowdClassifier("identity"), X, labels, scoring=scorer, cv=folds)
    assert np.isfinite(scores).all()
    search = GridSearchCV(CrowdClassifier("identity"), {"steps": [2, 5]}, scoring=scorer, cv=folds).fit(X, labels)
    assert np.isfinite(search.best_score_)
    pipeline = make_pipeline(StandardScaler(), CrowdClassifier("identity"))
    assert np.isfinite(cross_val_score(pipeline, X, labels, scoring=scorer, cv=folds)).all()
    texts = [f"{'good' if row[0] else 'bad'} {place}" for place, row in enumerate(labels)]
    assert np.isfinite(cross_val_score(CrowdClassifier(), texts, labels, scoring=scorer, cv=folds)).all()


@pytest.mark.parametrize("scorer", SCORERS, ids=lambda scorer: scorer.__name__)
def test_missing_labels_are_as_in_the_fit(scorer):
    X, labels, _ = problem(60, missing=0.3)
    folds = KFold(3, shuffle=True, random_state=0)

    def scores(said, params, clf):
        return cross_val_score(clf, X, said, scoring=scorer, cv=folds, params=params)

    one, piped = CrowdClassifier("identity"), make_pipeline(StandardScaler(), CrowdClassifier("identity"))
    expected = scores(labels, None, one)
    np.testing.assert_allclose(scores(np.where(labels < 0, 99, labels), {"missing": 99}, one), expected)
    lower = np.where(labels < 0, np.nan, labels - 1.0)
    np.testing.assert_allclose(scores(lower, {"missing": None}, one), expected)
    np.testing.assert_allclose(scores(lower, {"classes": [-1, 0, 1]}, one), expected)
    in_pipe = scores(lower, {"crowdclassifier__missing": None}, piped)
    np.testing.assert_allclose(in_pipe, scores(labels, None, piped))


class Fixed:
    """Says the same of items, whatever they are."""

    def __init__(self, p, classes=("a", "b")):
        self.p, self.classes_ = np.array(p), np.array(classes, dtype=object)

    def predict_proba(self, X):
        return self.p[: len(X)]

    def predict(self, X):
        return self.classes_[self.predict_proba(X).argmax(1)]


class Knowing(Fixed):
    """And of annotators."""

    def __init__(self, p, confusion, annotators):
        super().__init__(p)
        self.confusion_ = np.array(confusion)
        self.annotations_ = Annotations.from_matrix(
            [["a"] * len(annotators), ["b"] * len(annotators)], annotators=annotators
        )


def test_held_back_labels_by_hand():
    p = [[0.9, 0.1], [0.2, 0.8]]
    confusion = [[[0.8, 0.2], [0.3, 0.7]], [[0.6, 0.4], [0.5, 0.5]]]
    clf = Knowing(p, confusion, ["ann", "bob"])
    labels = pd.DataFrame([["a", None, "b"], ["b", "a", None]], columns=["ann", "bob", "new"])
    by_new = np.mean(confusion, axis=0)  # as the others on average
    expected = [
        0.9 * 0.8 + 0.1 * 0.3,  # ann says a of the first
        0.9 * by_new[0][1] + 0.1 * by_new[1][1],
        0.2 * 0.2 + 0.8 * 0.7,
        0.2 * 0.6 + 0.8 * 0.5,
    ]
    found = metrics.held_back_labels_scorer(clf, np.zeros((2, 1)), labels)
    assert found == pytest.approx(np.log(expected).mean())
    strange = pd.DataFrame([["c", "a"], ["a", "b"]], columns=["ann", "bob"])  # a class that nobody had named
    expected = [metrics.FLOOR, 0.9 * 0.6 + 0.1 * 0.5, 0.2 * 0.8 + 0.8 * 0.3, 0.2 * 0.4 + 0.8 * 0.5]
    found = metrics.held_back_labels_scorer(clf, np.zeros((2, 1)), strange)
    assert found == pytest.approx(np.log(expected).mean())
    with pytest.raises(CrowdshotError, match="estimator is Fixed, expected a fitted CrowdClassifier"):
        metrics.held_back_labels_scorer(Fixed(p), np.zeros((2, 1)), labels)


def test_accuracy_by_hand(monkeypatch):
    posterior = np.array([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]])
    labels = Annotations.from_matrix([["a"], ["b"], ["a"]])
    monkeypatch.setattr(aggregate, "learned", lambda ann: aggregate.Consensus(None, posterior, None))
    s = np.mean([0.82, 0.52, 0.5])
    for predicted, hit in [(["a", "b", "a"], (0.9 + 0.6 + 0.5) / 3), (["a", "a", "b"], (0.9 + 0.4 + 0.5) / 3)]:
        expected = (hit - (1 - s)) / (s - (1 - s))
        assert metrics.consensus_accuracy(predicted, labels) == pytest.approx(min(max(expected, 0), 1))
    assert metrics.consensus_accuracy(["c", "c", "c"], labels) == 0  # a class that is none
    monkeypatch.setattr(aggregate, "learned", lambda ann: aggregate.Consensus(None, np.full((3, 2), 0.5), None))
    assert np.isnan(metrics.consensus_accuracy(["a", "b", "a"], labels))  # labels that say nothing


@pytest.mark.parametrize("errs", [0.0, 0.15, 0.4])
@pytest.mark.parametrize("doubt", [0.3, 3.0])
def test_accuracy_is_right_however_uncertain_a_calibrated_consensus_is(errs, doubt, monkeypatch):
    """Truths are drawn from the posterior itself, so that it is as sure as it is right."""
    random = np.random.default_rng(0)
    posterior = random.dirichlet([doubt] * 3, 20_000)
    truth = (random.random(20_000)[:, None] > posterior.cumsum(1)).sum(1)
    predicted = np.where(random.random(20_000) < errs, (truth + random.integers(1, 3, 20_000)) % 3, truth)
    labels = Annotations.from_matrix(np.resize([0, 1, 2], (20_000, 1)))
    monkeypatch.setattr(aggregate, "learned", lambda ann: aggregate.Consensus(None, posterior, None))
    found = metrics.consensus_accuracy(predicted, labels)
    assert found == pytest.approx(1 - errs, abs=0.03)
    assert (predicted == posterior.argmax(1)).mean() < 1 - errs - 0.03  # what agreement alone would say


def test_a_better_classifier_has_better_scores():
    X, labels, _ = problem(200, apart=4.0)
    noise = np.random.default_rng(1).normal(size=X.shape)
    folds = KFold(4, shuffle=True, random_state=0)
    for scorer in SCORERS[:2]:
        good, bad = (
            cross_val_score(CrowdClassifier("identity"), features, labels, scoring=scorer, cv=folds).mean()
            for features in (X, noise)
        )
        assert good > bad + 0.05, scorer.__name__


def test_calibration():
    truth = np.array(["a", "b"] * 100, dtype=object)
    labels = Annotations.from_matrix(np.tile(truth[:, None], 7))  # everybody agrees
    sure = np.where(truth[:, None] == ["a", "b"], 0.95, 0.05)
    curve = metrics.calibration_curve(sure, ["a", "b"], labels)
    assert curve["items"].tolist() == [200]
    assert curve["confidence"].tolist() == pytest.approx([0.95])
    assert curve["accuracy"][0] == pytest.approx(1, abs=0.02)
    wrong = Fixed(1 - sure)
    matrix = np.tile(truth[:, None], 7)
    assert metrics.calibration_scorer(wrong, np.zeros((200, 1)), matrix) == pytest.approx(-0.95, abs=0.02)
    assert metrics.calibration_scorer(Fixed(sure), np.zeros((200, 1)), matrix) == pytest.approx(-0.05, abs=0.02)


def test_any_classifier_can_be_scored_by_a_crowd():
    X, labels, truth = problem(150)
    voted = np.array([np.bincount(row).argmax() for row in labels])
    other = LogisticRegression().fit(X, voted)
    assert metrics.consensus_accuracy_scorer(other, X, labels) == pytest.approx(
        (other.predict(X) == truth).mean(), abs=0.06
    )


def test_agreement_statistics_are_here_too():
    ann = Annotations.from_matrix([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
    assert metrics.pairwise_agreement(ann).value == pytest.approx(0.75)
    assert metrics.krippendorff_alpha(ann).value == pytest.approx(8 / 15)
    assert metrics.fleiss_kappa(ann).value == pytest.approx((0.75 - 34 / 64) / (1 - 34 / 64))


def test_what_is_refused():
    with pytest.raises(CrowdshotError, match="labels is None, expected the labels of X's items"):
        metrics.consensus_accuracy_scorer(Fixed([[0.5, 0.5]]), np.zeros((1, 1)), None)
    with pytest.raises(CrowdshotError, match="labels has 2 rows, expected 1 rows as in X"):
        metrics.consensus_accuracy_scorer(Fixed([[0.5, 0.5]]), np.zeros((1, 1)), [["a"], ["b"]])
    with pytest.raises(CrowdshotError, match=r"estimator has an array of shape \(1,\) as probabilities"):
        metrics.calibration_scorer(Fixed([0.5]), np.zeros((1, 1)), [["a"]])
