"""Test priors by hand, and as trainable parameters."""

import pytest
import torch
from torch.testing import assert_close

from crowdshot import mixture, priors
from crowdshot.errors import CrowdshotError
from crowdshot.model.priors import Diagonal, LearnedPriors, OneCoin, Symmetric

COUNTS = torch.tensor([[[3.0, 1.0], [2.0, 4.0]], [[0.0, 0.0], [0.0, 0.0]]], dtype=torch.float64)


def test_symmetric_and_diagonal_by_hand():
    assert_close(Symmetric(2.0)(COUNTS, 2), torch.full((1, 2, 2), 2.0, dtype=torch.float64))
    assert_close(Diagonal(3.0, 0.5)(COUNTS, 2), torch.tensor([[[3.0, 0.5], [0.5, 3.0]]], dtype=torch.float64))


def test_one_coin_by_hand():
    """Seven of ten correct labels and a prior of 3 to 1 give q = 10/14; no labels give q = 3/4."""
    pseudo = OneCoin(right=3.0, wrong=1.0, weight=5.0)(COUNTS, 2)
    assert_close(pseudo[0], 5 * torch.tensor([[10 / 14, 4 / 14], [4 / 14, 10 / 14]], dtype=torch.float64))
    assert_close(pseudo[1], 5 * torch.tensor([[3 / 4, 1 / 4], [1 / 4, 3 / 4]], dtype=torch.float64))
    three_classes = OneCoin(right=3.0, wrong=1.0, weight=4.0)(torch.zeros(1, 3, 3), 3)
    assert_close(three_classes[0, 0], torch.tensor([3.0, 0.5, 0.5]))


@pytest.mark.parametrize("prior", [Symmetric(torch.tensor([1.0, 2.0])), Diagonal(torch.tensor([1.0, 2.0]), 0.5)])
def test_numbers_may_differ_between_batch_elements(prior):
    pseudo = prior(torch.zeros(2, 5, 3, 3), 3)
    assert_close(pseudo[1].diagonal(dim1=-2, dim2=-1), 2 * torch.ones(1, 3))


@pytest.mark.parametrize("kind", sorted(priors.CONFUSION_PRIORS))
def test_learned_priors_are_trained_and_restored_from_their_card(kind):
    learned = LearnedPriors(kind)
    u, y = torch.randn(6, 2, generator=torch.Generator().manual_seed(0)), torch.tensor([[0, 1], [1, 1]]).repeat(3, 1)
    with torch.no_grad():
        for parameter in learned.parameters():
            parameter.add_(0.3)
    fit = mixture.fit(u, y, 2, steps=2, **learned())
    (fit.log_proba(u)[:, 0].sum() + fit.log_posterior.sum()).backward()
    for name, parameter in learned.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs() > 0, name
    again = mixture.fit(u, y, 2, steps=2, **priors.from_card(priors.to_card(learned())))
    assert_close(again.responsibilities, fit.responsibilities)


def test_the_weight_of_one_coin_is_bounded():
    learned = LearnedPriors("one-coin", max_weight=7.0)
    with torch.no_grad():
        learned.log_confusion["weight"].fill_(30.0)
    assert priors.to_card(learned())["confusion"]["weight"] == pytest.approx(7.0)


def test_constant_priors_as_cards():
    assert priors.to_card(priors.PAPER) == {"tau": 1.0, "b": 100.0, "confusion": {"kind": "symmetric", "c": 1.0}}
    ours = {"tau": 0.5, "b": 3.0, "c": Diagonal(2.0, 1.0)}
    assert priors.from_card(priors.to_card(ours)) == ours
    with pytest.raises(CrowdshotError, match="cannot be saved") as error:
        priors.to_card({"tau": 1.0, "b": 1.0, "c": lambda counts, n_classes: counts})
    assert (error.value.argument, error.value.found) == ("c", "function")
    with pytest.raises(CrowdshotError) as error:
        LearnedPriors("flat")
    assert (error.value.argument, error.value.found) == ("kind", "flat")
    assert "one-coin" in error.value.expected
