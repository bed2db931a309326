"""Logistic regression on posteriors, against scikit-learn's and against leaving items out one by one."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from crowdshot import CrowdClassifier
from crowdshot.model.feature_model import FeatureModel, Logistic


def planes(n, D, K, seed=0):
    """Items, and the one of K planes above which each lies the furthest."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, D))
    return x, (x @ random.normal(size=(D, K))).argmax(1)


def soft(truth, K, sure=0.9):
    return np.eye(K)[truth] * (sure - (1 - sure) / (K - 1)) + (1 - sure) / (K - 1)


def test_it_is_the_regression_of_scikit_learn():
    x, truth = planes(150, 4, 3)
    q = soft(truth, 3)
    found = Logistic(x, np.arange(150))
    slope, start = found.weights(q, np.full(3, 1 / 3), 2.0)
    rows, classes = np.repeat(np.arange(150), 3), np.tile(np.arange(3), 150)  # a soft label is three weighted ones
    theirs = LogisticRegression(C=0.5, tol=1e-9, max_iter=5_000).fit(x[rows], classes, sample_weight=q.ravel())
    ours = x @ slope + start
    expected = theirs.decision_function(x)
    np.testing.assert_allclose(
        ours - ours.mean(1, keepdims=True), expected - expected.mean(1, keepdims=True), atol=2e-3
    )


def test_class_sizes_are_no_part_of_what_features_say():
    x, truth = planes(200, 3, 2)
    sizes = np.array([0.9, 0.1])
    found = Logistic(x, np.arange(200))
    even = found.weights(soft(truth, 2), np.full(2, 0.5), 1.0)[1]
    found.found.clear()
    uneven = found.weights(soft(truth, 2), sizes, 1.0)[1]
    moved = np.diff(uneven - even)[0]
    assert moved == pytest.approx(np.log(9), abs=0.01)  # what the first class is more frequent than it teaches


@pytest.mark.parametrize(("n", "D", "ridge"), [(120, 5, 1.0), (60, 40, 10.0), (80, 10, 100.0)])
def test_what_is_said_of_an_item_by_the_others(n, D, ridge):
    x, truth = planes(n, D, 3)
    q, size = soft(truth, 3), np.full(3, 1 / 3)
    found = Logistic(x, np.arange(n))
    quick = found.without_own(q, size, ridge)
    with_own = found.phi @ found.learn(q, size, ridge)

    def told_apart(z):
        return z - z.mean(1, keepdims=True)

    slow = np.empty_like(quick)
    for i in range(n):
        others = Logistic(x, np.delete(np.arange(n), i))
        slow[i] = others.phi[i] @ others.learn(q, size, ridge)
    near, far = (np.abs(told_apart(z) - told_apart(slow)).mean() for z in (quick, with_own))
    assert near < 0.5 * far


def test_it_learns_from_some_items_and_speaks_of_all():
    x, truth = planes(300, 3, 2)
    some = np.arange(0, 300, 3)
    found = Logistic(x, some)
    z = found.without_own(soft(truth, 2), np.full(2, 0.5), 1.0)
    others = np.setdiff1d(np.arange(300), some)
    np.testing.assert_array_equal(z[others], (found.phi @ found.found[1.0])[others])
    assert (z.argmax(1) == truth).mean() > 0.9


@pytest.mark.parametrize(("D", "K", "n", "right"), [(30, 6, 600, 0.85), (10, 3, 300, 0.88)])
def test_classes_that_planes_part(D, K, n, right):
    """Where ridge regressions and nearness are 0.05 to 0.1 below a plain regression on votes."""
    x, truth = planes(n + 500, D, K)
    random = np.random.default_rng(1)
    wrong = (truth[:n, None] + random.integers(1, K, (n, 3))) % K
    said = np.where(random.random((n, 3)) < 0.85, truth[:n, None], wrong)
    votes = np.array([np.bincount(row).argmax() for row in said])
    plain = LogisticRegression(max_iter=500).fit(x[:n], votes).score(x[n:], truth[n:])
    ours = CrowdClassifier().fit(x[:n], said).score(x[n:], truth[n:])
    assert ours > max(right, plain)


def test_ways_are_judged_before_beliefs_have_heard_the_features():
    """Noise that a later posterior follows is believed no more than before."""
    random = np.random.default_rng(0)
    x, evidence, size = random.normal(size=(80, 40)), 2 * random.random((80, 2)), np.full(2, 0.5)
    looks = FeatureModel(x)
    alone = np.exp(evidence) / np.exp(evidence).sum(1, keepdims=True)
    first, _ = looks.believed(alone, evidence, size)
    follows = np.eye(2)[(x @ random.normal(size=40) > 0).astype(int)]
    later, _ = looks.believed(follows, evidence, size)
    assert np.abs(first).mean() < 0.2
    assert np.abs(later).mean() < 0.4
