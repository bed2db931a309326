"""The correction for subtypes of classes, against plain loops, and where it applies."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

from crowdshot import Annotations, aggregate
from crowdshot.labels.gold_labels import crowd_of
from crowdshot.model import subtypes
from crowdshot.model.label_model import shipped_network
from crowdshot.model.label_model_parts import Rounds
from crowdshot.model.parts import asked, run
from crowdshot.model.posteriors import believe

sys.path.append(str(Path(__file__).parents[2] / "benchmarks"))
bayesian = importlib.import_module("rivals_bayesian")  # tested against plain loops in test_bayesian_rivals.py


def independent(seed=0, N=200):
    """Draw seven annotators who err independently."""
    random = np.random.default_rng(seed)
    truth = random.integers(0, 2, N)
    return np.where(random.random((N, 7)) < 0.8, truth[:, None], 1 - truth[:, None]), truth


RIGHT = [0.95, 0.9, 0.95, 0.75, 0.75, 0.7]


def erring_together(seed=0):
    """Draw six annotators, two of whom choose class 1 for the same third of class 0."""
    random = np.random.default_rng(seed)
    truth = np.repeat([0, 1], [450, 150])
    labels = np.where(random.random((600, 6)) < RIGHT, truth[:, None], 1 - truth[:, None])
    labels[:150, :2] = (random.random((150, 2)) < 0.95).astype(int)
    return labels, truth


def run_corrected(labels, gold=None):
    annotations = Annotations.from_matrix(labels)
    crowd = crowd_of(annotations, gold)
    rounds = Rounds(crowd.sizes, shipped_network(), gold=gold is not None)
    corrected = subtypes.Corrected(rounds)
    state, posterior = crowd.run(corrected)
    return annotations, corrected, state, believe(rounds, crowd_of(annotations, gold).parts)[1], posterior


@pytest.mark.parametrize("seed", range(2))
def test_both_models_equal_the_variational_bayes_of_ebcc(seed):
    labels, _ = erring_together(seed)
    annotations, corrected, state, plain, posterior = run_corrected(labels)
    vote, n = aggregate.soft_vote(annotations), labels.shape[1]
    w = (vote * n + vote.mean(0)) / (n + 1)
    matrix, steps = bayesian.label_matrix(annotations), len(state.bounds)
    fits = []
    for start in (w[:, :, None], np.stack([w**2, w * (1 - w)], axis=2)):
        fit = bayesian.Fit(start, 0.0)
        for _ in range(steps):  # one step at a time, so that it does not stop early
            fit = bayesian.variational_bayes(matrix, fit.joint, vote.sum(0), steps=1)
        fits.append(fit)
    np.testing.assert_allclose(state.bounds[-1], [fit.bound for fit in fits], atol=0.02)  # LEAST in the prior of tau
    one, two = (np.log(fit.posterior.clip(subtypes.LEAST)) for fit in fits)
    expected = plain * np.exp(subtypes.WEIGHT / np.sqrt(n) * (two - one))
    assert corrected.evidence(state) > subtypes.EVIDENCE
    np.testing.assert_allclose(posterior, expected / expected.sum(1, keepdims=True), atol=1e-3)


def test_the_correction_helps_if_some_annotators_err_together():
    labels, truth = erring_together()
    _, _, _, plain, posterior = run_corrected(labels)
    assert (posterior.argmax(1) == truth).mean() > (plain.argmax(1) == truth).mean() + 0.03


def test_posteriors_stay_if_annotators_err_independently():
    _, corrected, state, plain, posterior = run_corrected(independent()[0])
    assert corrected.evidence(state) < 0
    np.testing.assert_array_equal(posterior, plain)


def test_bounds_never_fall():
    _, _, state, _, _ = run_corrected(erring_together()[0])
    assert (np.diff(state.bounds, axis=0) > -1e-9).all()


def test_known_classes_stay_and_count():
    labels, truth = erring_together()
    gold = dict.fromkeys(range(0, 150, 5), 0)
    _, corrected, state, _, posterior = run_corrected(labels, gold)
    assert (posterior[list(gold)] == [1, 0]).all()
    assert corrected.evidence(state) > subtypes.EVIDENCE
    assert (posterior.argmax(1) == truth).mean() > 0.85


def test_items_without_labels_change_nothing():
    labels, _ = erring_together()
    more = np.vstack([labels.astype(object), np.full((20, 6), None)])
    with_empty = Annotations.from_matrix(more)
    assert with_empty.n_items == 620
    found = aggregate.learned(with_empty).probabilities
    np.testing.assert_allclose(found[:600], aggregate.learned(Annotations.from_matrix(labels)).probabilities, atol=1e-9)


def test_names_and_order_do_not_matter():
    labels, _ = erring_together()
    found = aggregate.learned(Annotations.from_matrix(labels)).probabilities
    order = np.random.default_rng(0).permutation(600)
    turned = aggregate.learned(Annotations.from_matrix(1 - labels[order][:, ::-1])).probabilities
    np.testing.assert_allclose(turned[:, ::-1], found[order], atol=1e-9)


def test_parts_give_the_same():
    labels, _ = erring_together()
    annotations = Annotations.from_matrix(labels)
    crowd = crowd_of(annotations)
    corrected = subtypes.Corrected(Rounds(crowd.sizes, shipped_network()))
    parts = [part for whole in crowd.parts for _, part in whole.pieces(700)]
    assert len(parts) > 3
    state = run(corrected, asked(parts))
    found = np.concatenate([corrected.believe(part, state) for part in parts])
    np.testing.assert_allclose(found, aggregate.learned(annotations).probabilities, atol=1e-9)


def test_large_crowds_are_not_corrected():
    rounds = Rounds(crowd_of(Annotations.from_matrix(independent()[0])).sizes, shipped_network())
    assert isinstance(subtypes.corrected(rounds, 1000), subtypes.Corrected)
    assert subtypes.corrected(rounds, subtypes.MOST_LABELS + 1) is rounds
