"""Check that features improve the consensus: real feature vectors with many simulated crowds."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits, load_wine
from sklearn.preprocessing import StandardScaler

from crowdshot import CrowdClassifier, simulate
from crowdshot.classifier import mixture_learners
from crowdshot.labels.annotations import Annotations

CROWDS = {
    "five label everything": (5, None, simulate.PAPER_SOURCE),
    "three, many spammers": (3, None, simulate.PAPER_TARGETS[3]),
    "two of twenty": (20, 2, simulate.PAPER_SOURCE),
    "three of eight, all kinds": (8, 3, dict.fromkeys(simulate.KINDS, 0.2)),
    "seven flippers": (7, None, {"flipper": 1.0}),
}


def features(name):
    data = load_digits() if name == "digits" else load_wine()
    X = data.data if name == "digits" else StandardScaler().fit_transform(data.data)
    return X, data.target


def soft_vote_and_prototypes(X, labels, K, queries):
    """Return the votes of items, and the nearest weighted prototype of each query."""
    votes = np.stack([(labels == k).sum(1) for k in range(K)], 1).astype(float)
    share = votes / votes.sum(1, keepdims=True)
    prototypes = share.T @ X / np.maximum(share.sum(0)[:, None], 1e-9)
    distance = ((queries[:, None] - prototypes) ** 2).sum(-1)
    distance[:, share.sum(0) == 0] = np.inf  # classes without votes
    return votes, distance.argmin(1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits", "wine"])
@pytest.mark.parametrize("crowd", sorted(CROWDS))
def test_consensus_beats_the_soft_vote_and_the_classifier_its_prototypes(name, crowd):
    """Compare means over many crowds with 3 and 8 shots; the consensus must be better by a point or more."""
    X, truth = features(name)
    K = int(truth.max()) + 1
    n_annotators, per_item, mixture = CROWDS[crowd]
    random, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    consensus_gain, classifier_gain = [], []
    for trial in range(30 if name == "digits" else 120):
        shots = 3 if trial % 2 else 8
        order = random.permutation(len(X))
        support = np.concatenate([order[truth[order] == k][:shots] for k in range(K)])
        query = np.setdiff1d(order, support)[:200]
        annotators = simulate.draw_annotators(n_annotators, K, mixture, (), generator)
        labels = simulate.draw_labels(torch.tensor(truth[support]), annotators.confusion, per_item, generator).numpy()
        clf = CrowdClassifier("identity", random_state=trial).fit(X[support], labels, classes=range(K))

        votes, nearest = soft_vote_and_prototypes(X[support], labels, K, X[query])
        winners = votes == votes.max(1, keepdims=True)
        vote_right = (winners[np.arange(len(support)), truth[support]] / winners.sum(1)).mean()
        consensus_gain.append((clf.consensus_["label"] == truth[support]).mean() - vote_right)
        classifier_gain.append(clf.score(X[query], truth[query]) - (nearest == truth[query]).mean())
    assert np.mean(consensus_gain) > 0.01, consensus_gain
    assert np.mean(classifier_gain) > 0, classifier_gain


def test_the_scale_does_not_depend_on_units_or_origin():
    X, truth = features("wine")
    labels = simulate.draw_labels(torch.tensor(truth[::4]), torch.eye(3).expand(4, 3, 3) * 0.6 + 0.4 / 3).numpy()
    plain = CrowdClassifier("identity").fit(X[::4], labels)
    moved = CrowdClassifier("identity").fit(1000 * X[::4] - 77, labels)
    assert plain.scale_ == moved.scale_
    np.testing.assert_allclose(plain.predict_proba(X), moved.predict_proba(1000 * X - 77), atol=1e-3)


def test_informative_features_get_more_weight_than_noise():
    """Compare two well-separated clusters with features that are independent of the class: ten crowds each."""
    random = np.random.default_rng(0)
    truth = np.repeat([0, 1], 30)
    chosen = {"told": [], "noise": []}
    for seed in range(10):
        labels = np.where(random.random((60, 5)) < 0.7, truth[:, None], 1 - truth[:, None])
        told, noise = np.eye(2)[truth] * 3 + random.normal(0, 1, (60, 2)), random.normal(0, 1, (60, 2))
        for name, x in (("told", told), ("noise", noise)):
            chosen[name].append(CrowdClassifier("identity", method="ours", random_state=seed).fit(x, labels).scale_)
    assert np.median(chosen["told"]) >= 8
    assert np.median(chosen["noise"]) <= 2


def test_a_crowd_too_large_for_the_search_is_sampled(monkeypatch):
    X, truth = features("wine")
    labels = simulate.draw_labels(torch.tensor(truth), torch.eye(3).expand(50, 3, 3) * 0.6 + 0.4 / 3, 2).numpy()
    monkeypatch.setattr(mixture_learners, "MOST_CELLS", 100_000)
    rows, few = mixture_learners._few_enough(
        Annotations.from_matrix(labels), np.arange(len(labels)), np.random.default_rng(0)
    )
    assert 20 <= len(rows) < len(truth)
    assert (few >= 0).sum() == 2 * len(rows)
    np.testing.assert_array_equal(np.sort(few.numpy(), 1)[:, -2:], np.sort(labels[rows.numpy()], 1)[:, -2:])
    assert CrowdClassifier("identity", method="ours").fit(X, labels).scale_ in mixture_learners.CANDIDATES


def test_constant_features_are_accepted():
    shift, factor = mixture_learners.standardise(torch.full((5, 3), 7.0))
    assert shift.tolist() == [7.0] * 3
    assert float(factor) == 1.0
    clf = CrowdClassifier("identity").fit(np.full((4, 3), 7.0), [[0, 0], [1, 1], [0, 1], [1, 1]])
    assert clf.consensus_["label"].tolist()[:2] == [0, 1]


def test_the_order_of_items_and_annotators_does_not_matter():
    """The choice of held-out labels must depend on items and annotators, not on the order of rows and columns."""
    for seed in range(8):
        random = np.random.default_rng(seed)
        truth = np.repeat(np.arange(5), 2)
        X = np.eye(5, 6)[truth] + random.normal(0, 0.6, (10, 6))
        labels = np.where(random.random((10, 5)) < 0.6, truth[:, None], random.integers(5, size=(10, 5)))
        labels[random.random((10, 5)) < 0.4] = -1
        labels[np.arange(10), random.integers(5, size=10)] = truth  # every item has a label
        plain = CrowdClassifier("identity").fit(X, labels, classes=range(5))
        rows, columns = random.permutation(10), random.permutation(5)
        moved = CrowdClassifier("identity").fit(X[rows], labels[rows][:, columns], classes=range(5))
        assert moved.scale_ == plain.scale_
        np.testing.assert_allclose(moved.predict_proba(X), plain.predict_proba(X), atol=1e-4)


def test_the_order_of_duplicate_items_does_not_matter():
    random = np.random.default_rng(0)
    truth = np.tile(np.repeat(np.arange(3), 10), 2)
    X = np.tile(np.eye(3, 4)[truth[:30]] + random.normal(0, 0.7, (30, 4)), (2, 1))
    labels = np.where(random.random((60, 4)) < 0.6, truth[:, None], random.integers(3, size=(60, 4)))
    plain = CrowdClassifier("identity").fit(X, labels)
    for _ in range(5):
        rows = random.permutation(60)
        assert CrowdClassifier("identity").fit(X[rows], labels[rows]).scale_ == plain.scale_


@pytest.mark.parametrize("factor", [1e-30, 1e18, 1e30])
def test_the_unit_of_features_does_not_matter(factor):
    X, truth = features("wine")
    some = np.concatenate([np.flatnonzero(truth == k)[:5] for k in range(3)])
    plain = CrowdClassifier("identity").fit(X[some], truth[some, None].repeat(3, 1))
    large = CrowdClassifier("identity").fit(X[some] * factor, truth[some, None].repeat(3, 1))
    np.testing.assert_allclose(large.predict_proba(X * factor), plain.predict_proba(X), atol=1e-3)
