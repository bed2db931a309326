"""Tests of annotators' labels: p-values by brute force, and who is flagged in simulated crowds."""

import doctest
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdshot import Annotations, aggregate
from crowdshot.labels import annotator_flags
from crowdshot.labels.annotator_flags import (
    USEFUL,
    better_than_guessing,
    evidence_of,
    false_discovery,
    informed_share,
    judge_each,
    worse_than_useful,
)


def test_the_examples():
    assert doctest.testmod(annotator_flags).failed == 0


@given(st.integers(0, 10_000))
def test_better_than_guessing_compares_with_all_permutations(seed):
    random = np.random.default_rng(seed)
    q, label = random.dirichlet(np.ones(3), 6), random.integers(3, size=6)
    sums = np.array([q[np.arange(6), list(order)].sum() for order in itertools.permutations(label)])
    exact = (sums >= q[np.arange(6), label].sum() - 1e-9).mean()
    if len(set(label.tolist())) > 1:
        assert better_than_guessing(q, label) == pytest.approx(exact, abs=0.06)


def drawn(random, q, informed, own):
    """Return labels of which a share is drawn from q (m, K) and the others from ``own`` (K,)."""
    p = informed * q + (1 - informed) * own
    return np.array([random.choice(len(own), p=row) for row in p])


@pytest.mark.slow
@pytest.mark.parametrize("own", [[0.5, 0.5], [0.85, 0.15]])
def test_p_values_of_the_test_of_use(own):
    """At the limit a p-value below 0.05 has at most about this probability; guesses have nearly always one."""
    random = np.random.default_rng(0)
    q = random.dirichlet(np.full(2, 0.2), 150)
    at_the_limit = [worse_than_useful(q, drawn(random, q, USEFUL, np.array(own))) for _ in range(400)]
    assert 0 < np.mean(np.array(at_the_limit) < 0.05) < 0.08
    guesses = [drawn(random, q, 0, np.array(own)) for _ in range(100)]
    assert np.mean([worse_than_useful(q, label) < 0.01 for label in guesses]) > 0.9
    assert np.mean([informed_share(q, label) for label in guesses]) < 0.15
    assert 0.02 < np.mean([better_than_guessing(q, label) < 0.1 for label in guesses]) < 0.2


def test_few_labels_are_not_tested():
    assert evidence_of(np.full((9, 2), 0.5), np.zeros(9, dtype=int)) is None
    assert evidence_of(np.full((10, 2), 0.5), np.zeros(10, dtype=int)).n_labels == 10


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_false_discovery_is_that_of_benjamini_and_hochberg(p_values):
    ranked, n = sorted(p_values), len(p_values)
    k = max((i + 1 for i in range(n) if ranked[i] <= 0.05 * (i + 1) / n), default=0)
    expected = [k > 0 and p <= ranked[k - 1] for p in p_values]
    assert false_discovery(p_values) == expected
    assert false_discovery([*p_values, None]) == [*expected, False]


def crowd(seed, accuracy, n_items=300, per_item=5, K=2):
    random = np.random.default_rng(seed)
    truth = random.integers(K, size=n_items)
    right = random.random((n_items, len(accuracy))) < accuracy
    labels = np.where(right, truth[:, None], (truth[:, None] + random.integers(1, K, (n_items, len(accuracy)))) % K)
    labels[random.random(labels.shape).argsort(1).argsort(1) >= per_item] = -1
    return Annotations.from_matrix(labels, classes=range(K))


def flagged(ann):
    judged = judge_each(ann, aggregate.learned(ann).probabilities, [str(name) for name in ann.classes])
    return [one is not None and one.flag is not None for one in judged]


@pytest.mark.slow
def test_who_guesses_is_flagged_among_two_classes_and_nobody_else():
    """One of 12 annotators guesses, with about 125 labels."""
    accuracy = np.array([0.5, *np.linspace(0.7, 0.95, 11)])
    found = np.array([flagged(crowd(seed, accuracy)) for seed in range(10)])
    assert found[:, 0].mean() >= 0.5
    assert found[:, 1:].sum() <= 1
