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
    search = GridSearchCV(
        CrowdClassifier("identity"), {"settings": [{"steps": 2}, {"steps": 5}]}, scoring=scorer, cv=folds
    ).fit(X, labels)
    assert np.isfinite(search.best_score_)
    pipeline = make_pipeline(StandardScaler(), CrowdClassifier("identity"))
    assert np.isfinite(cross_val_score(pipeline, X, labels, scoring=scorer, cv=folds)).all()


@pytest.mark.slow
def test_scikit_learn_takes_them_for_texts():
    _, labels, _ = problem(60, missing=0.3)
    texts = [f"{'good' if row[0] else 'bad'} {place}" for place, row in enumerate(labels)]
    folds = KFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(CrowdClassifier(), texts, labels, scoring=SCORERS[0], cv=folds)
    assert np.isfinite(scores).all()


@pytest.mark.slow
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
    alone = np.tile([[0.9, 0.1], [0.4, 0.6], [0.5, 0.5]], (20, 1))
    both = np.tile([[0.95, 0.05], [0.3, 0.7], [0.5, 0.5]], (20, 1))
    labels, predicted = Annotations.from_matrix([["a"], ["b"], ["a"]] * 20), ["a", "b", "b"] * 20

    def learned(ann, pred_probs=None):
        return aggregate.Consensus(None, alone if pred_probs is None else both, None)

    monkeypatch.setattr(aggregate, "learned", learned)
    found = metrics.estimate_accuracy(predicted, labels, z=0)
    assert found.estimate == pytest.approx((0.95 + 0.7 + 0.5) / 3)
    assert found.low == pytest.approx((0.9 + 0.6 + 0.5) / 3)
    p, a = np.array([0.9, 0.6, 0.5]), found.high
    right = 20 * (a * p / (a * p + (1 - a) * (1 - p))).sum()
    assert a == pytest.approx((right + 1) / (60 + 2), abs=1e-3)  # a fixed point of EM
    error = 1.645 * np.sqrt(found.estimate * (1 - found.estimate) / 60)
    assert metrics.estimate_accuracy(predicted, labels).low == pytest.approx(found.low - error)
    assert metrics.consensus_accuracy(["c"] * 60, labels) == 0  # a class that no annotator chose


@pytest.mark.parametrize("error_rate", [0.0, 0.15, 0.4])
@pytest.mark.parametrize("spread", [0.3, 3.0])
def test_the_upper_limit_is_right_for_independent_mistakes(error_rate, spread, monkeypatch):
    """Truths are drawn from the posterior itself, which is therefore calibrated."""
    random = np.random.default_rng(0)
    posterior = random.dirichlet([spread] * 3, 20_000)
    truth = (random.random(20_000)[:, None] > posterior.cumsum(1)).sum(1)
    wrong = (truth + random.integers(1, 3, 20_000)) % 3
    predicted = np.where(random.random(20_000) < error_rate, wrong, truth)
    labels = Annotations.from_matrix(np.resize([0, 1, 2], (20_000, 1)))
    monkeypatch.setattr(aggregate, "learned", lambda ann, pred_probs=None: aggregate.Consensus(None, posterior, None))
    assert metrics.estimate_accuracy(predicted, labels, z=0).high == pytest.approx(1 - error_rate, abs=0.02)


@pytest.mark.parametrize("pull", [0.0, 0.5])
def test_accuracy_of_a_classifier_fitted_to_the_same_crowd(pull):
    """Annotators call a share of one class by another name; the classifier repeats it."""
    found, true = [], []
    for seed in range(4):
        random = np.random.default_rng(seed)
        truth = np.arange(240) % 4
        X = np.eye(4)[truth] * 2.5 + random.normal(size=(240, 4))
        labels = np.where(random.random((240, 3)) < 0.75, truth[:, None], random.integers(4, size=(240, 3)))
        labels = np.where((truth == 0)[:, None] & (random.random((240, 3)) < pull), 1, labels)
        clf = LogisticRegression(C=0.1).fit(X[:160], labels[:160, 0])
        ann, p = Annotations.from_matrix(labels[160:]), clf.predict_proba(X[160:])
        accuracy = (p.argmax(1) == truth[160:]).mean()
        interval = metrics.estimate_accuracy(clf.predict(X[160:]), ann, p)
        assert interval.low <= accuracy <= interval.high
        found.append(metrics.consensus_accuracy_scorer(clf, X[160:], labels[160:]))
        true.append(accuracy)
        assert found[-1] == pytest.approx(interval.estimate)
    assert -0.13 < np.mean(found) - np.mean(true) < 0.05


def test_accuracy_of_estimators_without_probabilities_or_with_other_classes():
    X, labels, truth = problem(90)
    named = np.array(["a", "b", "c"])[labels]

    class Predicting:
        def predict(self, X):
            return np.array(["a", "b", "c"])[truth]

    class Narrow(Predicting):
        classes_ = np.array(["b", "a"])  # does not know c; its columns are in another order

        def predict_proba(self, X):
            return np.where(truth[:, None] == [1, 0], 0.9, 0.1) / np.where(truth[:, None] == 2, 0.2, 1.0)

    assert metrics.consensus_accuracy_scorer(Predicting(), X, named) > 0.85
    assert metrics.consensus_accuracy_scorer(Narrow(), X, named) > 0.85


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
