"""Test forecasts of needed labels: by hand for certain answers, and properties otherwise."""

import numpy as np
import pytest

from crowdshot import Annotations
from crowdshot.labels import labels_needed

SURE = np.array([[[0.95, 0.05], [0.05, 0.95]]])
GUESS = np.full((1, 2, 2), 0.5)


def test_one_certain_answer_accepts_an_undecided_item():
    """Ten items have probability 1/2; each label raises one item to 0.95."""
    shares = labels_needed._simulate(np.full((10, 2), 0.5), SURE, np.ones(1), 1.0, 0.9, seed=0)
    np.testing.assert_allclose(shares[:12], [*np.arange(0, 1.01, 0.1), 1.0])
    assert labels_needed.until(shares, 0.95) == pytest.approx(0.95)  # interpolated between two rounds
    assert labels_needed.until(shares, 0.3) == pytest.approx(0.3)


def test_half_of_the_evidence_takes_at_least_two_answers():
    """The square roots of 0.95 and 0.05 normalise to 0.81 and 0.19, so two equal labels are needed."""
    shares = labels_needed._simulate(np.full((10, 2), 0.5), SURE, np.ones(1), 0.5, 0.9, seed=0)
    assert labels_needed.until(shares, 0.1) > 1.0
    assert 2.0 <= labels_needed.until(shares, 1.0) < 5.0


def test_guessers_change_nothing_and_accepted_items_need_no_labels():
    assert (
        labels_needed.until(labels_needed._simulate(np.full((10, 2), 0.5), GUESS, np.ones(1), 1.0, 0.9, 0), 0.1) is None
    )
    accepted = labels_needed._simulate(np.array([[0.95, 0.05]]), GUESS, np.ones(1), 1.0, 0.9, 0)
    assert labels_needed.until(accepted, 1.0) == 0


def test_order_and_number_of_items_do_not_matter():
    random = np.random.default_rng(0)
    truth = random.integers(2, size=400)
    ann = Annotations.from_matrix(np.where(random.random((400, 3)) < 0.8, truth[:, None], 1 - truth[:, None]))
    p = random.uniform(0.5, 0.99, 400)
    posterior = np.where((truth == 0)[:, None], np.stack([p, 1 - p], 1), np.stack([1 - p, p], 1))
    found = labels_needed.forecast(ann, posterior, 0.9)
    assert 0 < found.at_best < found.labels
    order = random.permutation(400)
    again = labels_needed.forecast(ann.select_items(ann.items[order]), posterior[order], 0.9)
    assert again == found
    twelve = Annotations.from_matrix(np.tile(ann.to_matrix(), (12, 1)))  # the simulation samples from 4,800 items
    many = labels_needed.forecast(twelve, np.tile(posterior, (12, 1)), 0.9)
    assert many.labels == pytest.approx(12 * found.labels, rel=0.2)


@pytest.mark.slow
def test_random_draws_keep_the_order_of_the_curves():
    """With few items, random draws must not make the best case worse than the expected one."""
    for seed in range(12):
        random = np.random.default_rng(seed)
        ann = Annotations.from_matrix(random.integers(2, size=(6, 3)))
        found = labels_needed.forecast(ann, random.dirichlet([1, 1], 6), 0.95)
        at_best, labels, at_worst = (np.inf if n is None else n for n in (found.at_best, found.labels, found.at_worst))
        assert at_best <= labels <= at_worst
