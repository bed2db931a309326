"""Test scores for cards, on pools with separate classes and with identical classes."""

import pytest
import torch

from crowdshot import mixture, priors
from crowdshot.encoders.encoder_files import build_encoder
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import ImageInput
from crowdshot.model import prototypes
from crowdshot.training import stack
from crowdshot.training.encoder_scores import best_labelings, by_mixture, embedded, score_table, unseen_scores
from crowdshot.training.pools import ClassPool
from crowdshot_paper.compared import maml

PAPER = {**priors.to_card(priors.PAPER), "steps": 2}


def pool_of(centres):
    g = torch.Generator().manual_seed(0)
    examples = centres[:, None] + torch.randn(len(centres), 16, centres.shape[1], generator=g)
    return ClassPool(examples, torch.full((len(centres),), 16), tuple(map(str, range(len(centres)))))


def test_separate_classes_are_recognised_and_equal_ones_are_not():
    far = score_table(pool_of(20 * torch.eye(8)), by_mixture(PAPER), episodes=20)
    same = score_table(pool_of(torch.zeros(8, 8)), by_mixture(PAPER), episodes=50)
    assert set(far) == {f"{s} shots, {r} annotators" for s in (1, 3, 5) for r in (3, 5, 7)} | {"average"}
    assert far["5 shots, 7 annotators"] > 0.97
    assert far["1 shots, 3 annotators"] < far["5 shots, 7 annotators"]
    assert 0.2 < same["average"] < 0.3
    assert far == score_table(pool_of(20 * torch.eye(8)), by_mixture(PAPER), episodes=20)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["mixture", "lnl", "maml"])
def test_an_encoder_is_tested_with_the_classifier_of_its_training(objective):
    pool = pool_of(2 * torch.eye(8))
    torch.manual_seed(0)
    encoder = build_encoder("mlp", {"n_features": 8, "hidden": [], "n_out": 6}, FeatureInput(8))
    encoder.card |= {"recipe": {"objective": objective, "step_size": 0.5}, "priors": PAPER}
    network = encoder.module

    def by_hand(batch, ways):
        support, query = network(batch.support), network(batch.query)
        if objective == "mixture":
            return mixture.fit(support, batch.labels, ways, steps=2, tau=1.0, b=100.0, c=1.0).log_proba(query)
        if objective == "lnl":
            named = (
                prototypes.vote_counts(batch.labels, ways).sum(1, keepdim=True) > 0
            )  # the others are never predicted
            return prototypes.log_proba(support, batch.labels, query, ways).masked_fill(~named, -torch.inf)
        copies = stack.pure_stack([network] * len(support))
        vote, sizes = prototypes.majority_vote(batch.labels, ways), torch.full((len(support),), 0.5)
        return maml.classify(copies, dict(copies.named_parameters()), batch.support, vote, batch.query, sizes)

    found = unseen_scores(encoder, pool)
    assert found == pytest.approx(score_table(pool, by_hand), abs=1e-4)
    assert found["average"] > 0.4


def test_embedding_a_pool_equals_embedding_its_images():
    torch.manual_seed(0)
    encoder = build_encoder("conv4", {"width": 4}, ImageInput((28, 28), ink=True))
    examples = torch.randint(0, 256, (3, 5, 28, 28), dtype=torch.uint8)
    examples[..., 0], examples[..., -1], examples[..., 0, :], examples[..., -1, :] = (
        0,
        0,
        0,
        0,
    )  # a dark border: bright ink
    pool = ClassPool(examples, torch.full((3,), 5), ("a", "b", "c"))
    whole = embedded(pool, encoder).examples
    torch.testing.assert_close(whole[1], encoder.embed(examples[1].numpy()), atol=1e-5, rtol=1e-4)


@pytest.mark.slow
def test_scale_and_tau_maximise_the_likelihood_of_queries():
    """Separate clusters need a larger scale than overlapping ones."""
    apart, touching = (best_labelings(pool_of(distance * torch.eye(8)), episodes=6) for distance in (12.0, 2.0))
    assert {**apart, **touching}.keys() == {"scale", "tau"}
    assert apart["scale"] > touching["scale"]
