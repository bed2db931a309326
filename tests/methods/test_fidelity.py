"""Compare each method with reference implementations, hand calculations and finite differences."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn
from torch.nn import functional as F  # noqa: N812

from crowdshot import aggregate, mixture
from crowdshot.encoders.encoder_files import build_encoder
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.networks import MLP, Conv4, Identity
from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations
from crowdshot.methods import CrowdEpisodes
from crowdshot.model import prototypes
from crowdshot.training import stack
from crowdshot.training.loop import train
from crowdshot.training.pools import ClassPool
from crowdshot.training.recipe import Job, Recipe
from crowdshot_paper.compared import fine_tuning, forest, maml, prototypical, regression
from crowdshot_paper.compared.conal import CommonNoise
from crowdshot_paper.compared.crowd_layer import CrowdLayer
from crowdshot_paper.compared.fine_tuning import Sizes
from crowdshot_paper.compared.label_fusion import LabelFusion
from crowdshot_paper.registry import METHODS


def crowd_labels(seed, shape, n_classes, missing=0.2):
    g = torch.Generator().manual_seed(seed)
    labels = torch.randint(n_classes, shape, generator=g)
    return torch.where(torch.rand(shape, generator=g) < missing, -1, labels)


def sizes(G=2, D=5, R=3, K=4, seed=0):
    return Sizes(G, D, R, K, seed, torch.device("cpu"))


# ---- votes ----------------------------------------------------------------------------------------------------------


def test_votes_by_hand():
    labels = torch.tensor([[[0, 1, 1], [2, 0, -1], [-1, -1, -1]]])
    expected = torch.tensor([[[1 / 3, 2 / 3, 0], [0.5, 0, 0.5], [0, 0, 0]]])
    torch.testing.assert_close(prototypes.soft_vote(labels, 3), expected)
    hard = torch.tensor([[[0.0, 1, 0], [1, 0, 0], [0, 0, 0]]])
    assert torch.equal(prototypes.majority_vote(labels, 3), hard)


@pytest.mark.parametrize("steps", [2, 3, 6])
def test_dawid_skene_equals_aggregate(steps):
    labels = crowd_labels(1, (3, 12, 5), 4)
    found = prototypes.dawid_skene(labels, 4, steps)
    for episode, posterior in zip(labels, found, strict=True):
        matrix = np.where(episode.numpy() < 0, None, episode.numpy().astype(object))
        ann = Annotations.from_matrix(matrix, classes=range(4))
        peer = aggregate.dawid_skene(ann, steps=steps - 1, b=prototypes.B, c=prototypes.C, tolerance=0)
        has_label = (episode >= 0).any(-1)
        np.testing.assert_allclose(posterior[has_label].numpy(), peer.probabilities[has_label.numpy()], atol=1e-5)


def test_one_step_of_dawid_skene_equals_the_soft_vote():
    labels = crowd_labels(2, (2, 9, 4), 3)
    torch.testing.assert_close(prototypes.dawid_skene(labels, 3, 1), prototypes.soft_vote(labels, 3))


# ---- on raw inputs --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("N", "D", "K", "steps"), [(12, 40, 4, None), (12, 40, 4, 3), (15, 3, 2, 2), (6, 9, 4, None)])
@pytest.mark.parametrize("C", [1e-4, 1e-2, 1.0])
def test_logistic_regression_equals_scikit_learns(N, D, K, steps, C):
    g = torch.Generator().manual_seed(N)
    support, query = torch.randn(4, N, D, generator=g), torch.randn(4, 5, D, generator=g)
    labels = crowd_labels(3, (4, N, 3), K)
    labels[3][labels[3] > 1] = 0  # two classes only
    targets = prototypical.aggregated(labels, K, {"steps": steps}).double().numpy()
    settings = {"C": C} | ({} if steps is None else {"steps": steps})
    name = "LRMV" if steps is None else "LRDS"
    found = METHODS[name].predict(CrowdEpisodes(support, labels, query, K), **settings)
    for x, t, q, p in zip(support.double().numpy(), targets, query.double().numpy(), found.numpy(), strict=True):
        item, label = np.nonzero(t > 0)
        peer = LogisticRegression(C=C, tol=1e-9, max_iter=10_000).fit(x[item], label, sample_weight=t[item, label])
        expected = np.zeros_like(p)
        expected[:, peer.classes_] = peer.predict_proba(q)
        np.testing.assert_allclose(p, expected, atol=1e-4)


def test_coordinates_in_the_span_keep_inner_products():
    g = torch.Generator().manual_seed(0)
    support, query = torch.randn(2, 5, 30, generator=g).double(), torch.randn(2, 3, 30, generator=g).double()
    s, q = regression.in_span(support, query)
    centre = support.mean(1, keepdim=True)
    assert s.shape[-1] == 5
    torch.testing.assert_close(q @ s.mT, (query - centre) @ (support - centre).mT)


@pytest.mark.slow
@pytest.mark.parametrize("soft", [False, True])
def test_forests_of_many_trees_agree_with_scikit_learns(soft):
    """Two forests of 1,500 trees differ by chance; ours must not differ more than two of scikit-learn's.

    Small whole numbers make many ties and constant features, as pixels do.
    """
    g = torch.Generator().manual_seed(0)
    support = torch.randint(0, 3, (1, 12, 30), generator=g).float() * (torch.rand(30, generator=g) < 0.4)
    query, trees = torch.randint(0, 3, (1, 8, 30), generator=g).float(), 1500
    posterior = torch.rand(1, 12, 3, generator=g).square() if soft else torch.eye(3)[torch.arange(12) % 3][None]
    posterior = posterior / posterior.sum(-1, keepdim=True)
    (ours,) = forest.grow(support, posterior, query, [trees], seed=1)
    item, label = np.nonzero(posterior[0].numpy())
    weight = posterior[0].numpy()[item, label] if soft else None
    theirs = [
        RandomForestClassifier(trees, random_state=i, max_samples=12)
        .fit(support[0].numpy()[item], label, sample_weight=weight)
        .predict_proba(query[0].numpy())
        for i in range(2)
    ]
    chance = np.abs(theirs[0] - theirs[1]).mean()
    assert np.abs(ours[0].numpy() - theirs[0]).mean() < 1.6 * chance < 0.03


def test_a_forest_by_hand():
    """With one feature and two items, a tree that draws both items splits midway; other trees know one class only."""
    support, query = torch.tensor([[[0.0], [1.0]]]), torch.tensor([[[0.4], [0.6]]])
    small, large = forest.grow(support, torch.eye(2)[None], query, [3, 3000], seed=0)
    torch.testing.assert_close(large[0], torch.tensor([[0.75, 0.25], [0.25, 0.75]]), atol=0.03, rtol=0)
    assert all(float(p) * 3 == pytest.approx(round(float(p) * 3)) for p in small.flatten())


def test_a_small_forest_is_the_start_of_a_large_one():
    g = torch.Generator().manual_seed(0)
    x, q, posterior = torch.randn(2, 9, 5, generator=g), torch.randn(2, 4, 5, generator=g), torch.eye(3).repeat(2, 3, 1)
    small, large = forest.grow(x, posterior, q, [4, 9], seed=3)
    torch.testing.assert_close(forest.grow(x, posterior, q, [4], seed=3)[0], small)
    assert ((large * 9 - small * 4) > -1e-5).all()  # votes of nine trees include those of the first four


def test_hard_labels_are_the_mode_of_the_posterior():
    labels = torch.tensor([[[0, 0, 1], [1, 1, 1], [-1, -1, -1]]])
    soft = prototypical.aggregated(labels, 2, {"steps": 2, "hard": False})
    hard = prototypical.aggregated(labels, 2, {"steps": 2, "hard": True})
    assert 0.5 < float(soft[0, 0, 0]) < 1
    assert hard[0].tolist() == [[1, 0], [0, 1], [0, 0]]


# ---- prototypes -----------------------------------------------------------------------------------------------------


def test_prototypes_equal_the_mixture_without_priors():
    g = torch.Generator().manual_seed(0)
    u, q, labels = torch.randn(2, 9, 5, generator=g), torch.randn(2, 4, 5, generator=g), crowd_labels(4, (2, 9, 3), 3)
    peer = mixture.fit(u, labels, 3, steps=1, tau=0.0, b=1e8).log_proba(q).exp()
    episodes = CrowdEpisodes(u, labels, q, 3)
    torch.testing.assert_close(METHODS["PrSV"].predict(episodes, Identity()), peer, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(METHODS["PrDS"].predict(episodes, Identity(), steps=1), peer, atol=1e-5, rtol=1e-5)


def test_the_prototype_of_an_empty_class_is_the_centre():
    support = torch.tensor([[0.0, 0.0], [2.0, 0.0]])
    found = prototypes.classify(support, torch.tensor([[1.0, 0, 0], [0, 1, 0]]), torch.tensor([[1.0, 0.0]]))
    expected = torch.tensor([[-0.5, -0.5, 0.0]]).log_softmax(-1)
    torch.testing.assert_close(found, expected)


def test_ours_equals_the_mixture():
    g = torch.Generator().manual_seed(0)
    u, q, labels = torch.randn(2, 9, 5, generator=g), torch.randn(2, 4, 5, generator=g), crowd_labels(4, (2, 9, 3), 3)
    found = METHODS["Ours"].predict(CrowdEpisodes(u, labels, q, 3), Identity(), steps=3, b=10.0)
    peer = mixture.fit(u, labels, 3, steps=3, tau=1.0, b=10.0, c=1.0).log_proba(q).exp()
    torch.testing.assert_close(found, peer)


def test_a_variance_of_four_is_that_of_embeddings_at_half_the_distance():
    """With embeddings and prior measured in standard deviations, the variance is 1, as in the paper."""
    g = torch.Generator().manual_seed(0)
    u, q, labels = torch.randn(2, 9, 5, generator=g), torch.randn(2, 4, 5, generator=g), crowd_labels(4, (2, 9, 3), 3)
    ours = METHODS["Ours"]
    found = ours.predict(CrowdEpisodes(u, labels, q, 3), Identity(), steps=3, variance=4.0)
    peer = ours.predict(CrowdEpisodes(u / 2, labels, q / 2, 3), Identity(), steps=3)
    torch.testing.assert_close(found, peer)
    assert (found - ours.predict(CrowdEpisodes(u, labels, q, 3), Identity(), steps=3)).abs().max() > 0.01


def test_the_centred_mixture_is_invariant_to_translation():
    """Only labelled items define the centre; without centring, tau shrinks the means to a distant origin."""
    g = torch.Generator().manual_seed(0)
    u, q, labels = torch.randn(2, 9, 5, generator=g), torch.randn(2, 4, 5, generator=g), crowd_labels(4, (2, 9, 3), 3)
    labels[:, -1] = -1
    stray = torch.zeros(9, 1)
    stray[-1] = 1000.0

    def found(shift, **settings):
        episodes = CrowdEpisodes(u + shift * (1 + stray), labels, q + shift, 3)
        return METHODS["Ours"].predict(episodes, Identity(), steps=3, tau=5.0, **settings)

    torch.testing.assert_close(found(10.0, centred=True), found(0.0, centred=True), atol=1e-3, rtol=1e-3)
    assert (found(10.0) - found(0.0)).abs().max() > 0.1


def test_lnl_weights_by_hand():
    """Class 0 has three items, one of them with two labels; their squared distances are 1, 9 and 4."""
    u = torch.tensor([[0.0], [1.0], [3.0], [10.0]])
    labels = torch.tensor([[0, 0], [0, -1], [0, -1], [1, -1]])
    far = torch.tensor([(1 + 9) / 3, (2 * 1 + 4) / 3, (2 * 9 + 4) / 3])
    expected = torch.tensor([2.0, 1, 1]) * (-far).exp()
    found = prototypes.weights(u, labels, 3)
    torch.testing.assert_close(found[:3, 0], expected / expected.sum())
    assert found[3].tolist() == [0, 1, 0]
    assert found[:, 2].tolist() == [0, 0, 0, 0]
    sharper = torch.tensor([2.0, 1, 1]) * (-2 * far).exp()
    torch.testing.assert_close(prototypes.weights(u, labels, 3, sharpness=2.0)[:3, 0], sharper / sharper.sum())


# ---- MAML -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalised", [False, True])
def test_maml_meta_gradient_against_finite_differences(normalised):
    """d(query loss after three inner steps)/d(weights), second derivatives included, in float64."""
    torch.manual_seed(0)
    layers = [nn.Linear(3, 4), *([nn.BatchNorm1d(4)] if normalised else []), nn.Tanh(), nn.Linear(4, 3), nn.Tanh()]
    module = nn.Sequential(*layers).double()
    network = stack.pure_stack([module], twice=True)
    g = torch.Generator().manual_seed(1)
    support, query = torch.randn(1, 6, 3, generator=g).double(), torch.randn(1, 5, 3, generator=g).double()
    targets = torch.rand(1, 6, 3, generator=g).double()
    truth, size = torch.tensor([0, 1, 2, 0, 1]), torch.tensor([0.7]).double()
    weights = {name: value.detach().clone() for name, value in network.named_parameters()}

    def meta_loss(weights):
        return F.nll_loss(maml.classify(network, weights, support, targets, query, size, twice=True)[0], truth)

    found = torch.func.grad(meta_loss)(weights)
    largest = 0.0
    for name, value in weights.items():
        numeric = torch.zeros_like(value)
        for i in range(value.numel()):
            for sign in (1, -1):
                moved = value.clone()
                moved.view(-1)[i] += sign * 1e-5
                numeric.view(-1)[i] += sign * meta_loss({**weights, name: moved}) / 2e-5
        torch.testing.assert_close(found[name], numeric, atol=1e-8, rtol=1e-6)
        largest = max(largest, float(numeric.abs().max()))
    assert largest > 1e-2

    def first_order(weights):  # treats inner gradients as constants, like an implementation without second derivatives
        adapted = maml.start(network, weights, support, 3)
        for _ in range(3):
            slope = torch.func.grad(maml.inner_loss)(
                {k: v.detach() for k, v in adapted.items()}, network, support, targets
            )
            adapted = {name: value - 0.7 * slope[name].detach() for name, value in adapted.items()}
        found = maml.logits(network, adapted, torch.cat([support, query], 1))[0, 6:]
        return F.nll_loss(found.log_softmax(-1), truth)

    loose = [value.clone().requires_grad_() for value in weights.values()]
    cheap = torch.autograd.grad(first_order(dict(zip(weights, loose, strict=True))), loose)
    gap = max(float((a - b).abs().max()) for a, b in zip(cheap, found.values(), strict=True))
    assert gap > 1e-3


def test_maml_inner_step_by_hand():
    """With identity features and a zero head, a step moves only the head, by step · mean (target - 1/K) x."""
    module = MLP(2, (), 2)
    with torch.no_grad():
        module.layers[0].weight.copy_(torch.eye(2))
        module.layers[0].bias.zero_()
    networks = stack.pure_stack([module])
    weights = {name: value.detach() for name, value in networks.named_parameters()}
    support, query = torch.tensor([[1.0, 0.0], [0.0, 2.0]]), torch.tensor([[3.0, 1.0]])
    targets, size = torch.eye(2), torch.tensor([0.5])
    found = maml.classify(networks, weights, support[None], targets[None], query[None], size, gradient_steps=1)
    head, bias = 0.5 * support.T @ (targets - 0.5) / 2, 0.5 * (targets - 0.5).mean(0)
    torch.testing.assert_close(found[0], (query @ head + bias).log_softmax(-1))


@pytest.mark.parametrize("twice", [False, True])
def test_maml_on_stacked_convolutions_equals_maml_on_each(twice):
    """Compare two stacked Conv4 with different weights and step sizes with single modules."""
    torch.manual_seed(0)
    modules = [Conv4(1, 3).double() for _ in range(2)]
    for module in modules:
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                nn.init.normal_(part.weight), nn.init.normal_(part.bias)
    support, query = torch.randn(2, 4, 1, 16, 16).double(), torch.randn(2, 3, 1, 16, 16).double()
    targets, sizes = torch.rand(2, 4, 3).double(), torch.tensor([0.1, 0.8]).double()
    together = stack.pure_stack(modules, twice)
    found = maml.classify(together, dict(together.named_parameters()), support, targets, query, sizes, twice=twice)
    for g, module in enumerate(modules):
        alone = stack.pure_stack([nn.Sequential(module)])
        one = slice(g, g + 1)
        expected = maml.classify(
            alone, dict(alone.named_parameters()), support[one], targets[one], query[one], sizes[one]
        )
        torch.testing.assert_close(found[one], expected)


def blobs(C=8, M=12, D=6, seed=0):
    g = torch.Generator().manual_seed(seed)
    x = 2 * torch.randn(C, 1, D, generator=g) + torch.randn(C, M, D, generator=g)
    return ClassPool(x, torch.full((C,), M), tuple(map(str, range(C))))


def jobs(n, iterations, **recipe):
    settings = {"ways": (2, 3), "shots": (1, 2), "annotators": (2, 3), "queries": 3, "validate_every": iterations}
    made = []
    for i in range(n):
        torch.manual_seed(i)
        encoder = build_encoder("mlp", {"n_features": 6, "hidden": [8], "n_out": 4}, FeatureInput(6))
        recipe_i = Recipe(**settings, iterations=iterations, validation_episodes=20, seed=i, **recipe)
        made.append(Job(encoder, range(5), range(5, 8), recipe_i))
    return made


def test_maml_training_together_equals_training_alone():
    sizes_, pool = [0.1, 0.5], blobs()

    def made():
        settings = {"learning_rate": 1e-2, "objective": "maml"}
        return [
            replace(job, recipe=replace(job.recipe, step_size=size))
            for job, size in zip(jobs(2, 6, **settings), sizes_, strict=True)
        ]

    for i, encoder in enumerate(train(made(), pool)):
        (alone,) = train([made()[i]], pool)
        for mine, theirs in zip(encoder.module.parameters(), alone.module.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)
        assert encoder.card["recipe"]["objective"] == "maml"
        assert encoder.card["recipe"]["step_size"] == sizes_[i]


def test_lnl_training_with_the_mixture_equals_training_alone():
    """The models share a stack; only the objectives on the embeddings differ."""
    pool = blobs()

    def made():
        kinds = ["lnl", "mixture", "lnl"]
        return [
            replace(job, recipe=replace(job.recipe, objective=kind))
            for job, kind in zip(jobs(3, 6, learning_rate=1e-2), kinds, strict=True)
        ]

    for i, encoder in enumerate(train(made(), pool)):
        (alone,) = train([made()[i]], pool)
        for mine, theirs in zip(encoder.module.parameters(), alone.module.parameters(), strict=True):
            torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)
        assert encoder.card["scores"] == alone.card["scores"]


def test_maml_needs_a_separate_stack():
    first, second = jobs(2, 6)
    with pytest.raises(CrowdshotError, match="maml in a stack of its own"):
        train([first, replace(second, recipe=replace(second.recipe, objective="maml"))], blobs())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["maml", "lnl"])
def test_meta_training_lowers_the_loss(kind):
    losses = []
    settings = {"objective": kind, "step_size": 0.3, "learning_rate": 3e-3, "pseudo_annotation": False}
    (job,) = jobs(1, 120, **settings)
    train(
        [replace(job, recipe=replace(job.recipe, validate_every=20))],
        blobs(),
        report=lambda progress: losses.append(progress.loss[0]),
    )
    assert len(losses) == 6
    assert losses[-1] < 0.7 * losses[0]


@pytest.mark.parametrize("kind", ["maml", "lnl"])
def test_meta_training_can_be_interrupted(kind, tmp_path):
    def made():
        return jobs(2, 6, learning_rate=1e-2, objective=kind)

    steps = []
    checkpoint = tmp_path / "run.checkpoint"
    stopped = train(
        made(), blobs(), checkpoint=checkpoint, tick=lambda done, _: steps.append(done), stop=lambda: len(steps) == 3
    )
    assert stopped is None
    for mine, theirs in zip(train(made(), blobs(), checkpoint=checkpoint), train(made(), blobs()), strict=True):
        for a, b in zip(mine.module.parameters(), theirs.module.parameters(), strict=True):
            assert torch.equal(a, b)


# ---- fine-tuned networks --------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_crowd_layer_starts_at_the_identity_and_scores_like_crowd_kits():
    crowdkit = pytest.importorskip("crowdkit.learning")
    layer = CrowdLayer(sizes(), {})
    assert torch.equal(layer.matrices, torch.eye(4).expand(2, 3, 4, 4))
    with torch.no_grad():
        layer.matrices.copy_(torch.randn(2, 3, 4, 4))
    logits = torch.randn(2, 6, 4)
    for g in range(2):
        peer = crowdkit.CrowdLayer(4, 3, conn_type="mw")
        peer.weight.data = layer.matrices[g].detach().mT.contiguous()  # crowd-kit's are [observed, true]
        for r in range(3):
            expected = peer(logits[g].softmax(-1), torch.full((6,), r))
            torch.testing.assert_close(layer.scores(logits)[g, :, r], expected)


def test_crowd_layer_does_not_see_missing_labels():
    layer = CrowdLayer(sizes(), {})
    logits = torch.randn(2, 6, 4, generator=torch.Generator().manual_seed(0))
    labels = crowd_labels(0, (2, 6, 3), 4, missing=0.0)
    labels[:, 2:, 1] = -1
    labels[:, :, 2] = -1
    loss = layer(torch.zeros(2, 6, 5), logits, labels)
    log_p = logits.softmax(-1).log_softmax(-1)  # the identity's scores are the probabilities
    by_hand = [
        torch.stack([-log_p[g, n, labels[g, n, r]] for n in range(6) for r in range(3) if labels[g, n, r] >= 0]).mean()
        for g in range(2)
    ]
    torch.testing.assert_close(loss.detach(), torch.stack(by_hand))
    loss.sum().backward()
    assert bool((layer.matrices.grad[:, 2] == 0).all())
    assert bool((layer.matrices.grad[:, 1] != 0).any())


@pytest.mark.slow
def test_conal_weights_equal_crowd_kits():
    crowdkit = pytest.importorskip("crowdkit.learning")
    noise = CommonNoise(sizes(), {})
    embeddings = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(0))
    start = noise.mixing_weight(embeddings)
    torch.testing.assert_close(start, start[..., :1].expand_as(start))  # annotators start equal
    with torch.no_grad():
        noise.annotator.copy_(torch.randn(2, 3, 20, generator=torch.Generator().manual_seed(1)))
    weight = noise.mixing_weight(embeddings).detach()
    assert weight.shape == (2, 6, 3)
    assert bool(((weight > 0) & (weight < 1)).all())
    assert float(weight.std(1).min()) > 1e-3  # over items
    assert float(weight.std(2).min()) > 1e-3  # over annotators
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        peer = crowdkit.CoNAL(4, 3, com_emb_size=20)
        peer.simple_common_module(embeddings[0], torch.zeros(6, dtype=torch.long))  # creates its lazy layer
    pairs = {
        peer.diff_linear_1: (noise.hidden, noise.hidden_bias),
        peer.diff_linear_2: (noise.item, noise.item_bias),
    }
    for layer, (matrix, bias) in pairs.items():
        layer.weight.data, layer.bias.data = matrix[0].detach().T, bias[0, 0].detach()
    peer.user_feature_1.weight.data = noise.annotator[0].detach().T
    peer.user_feature_1.bias.data = noise.annotator_bias[0, 0].detach()
    for r in range(3):
        expected = peer.simple_common_module(embeddings[0], torch.full((6,), r))
        torch.testing.assert_close(weight[0, :, r], expected[:, 0])


def test_conal_mixture_and_regulariser():
    noise = CommonNoise(sizes(), {})
    torch.testing.assert_close(noise.separation(), torch.zeros(2))
    g = torch.Generator().manual_seed(0)
    with torch.no_grad():
        noise.individual.add_(torch.randn(2, 3, 4, 4, generator=g))
    embeddings, logits = torch.randn(2, 6, 5, generator=g), torch.randn(2, 6, 4, generator=g)
    w, p, scores = noise.mixing_weight(embeddings), logits.softmax(-1), noise.scores(embeddings, logits)
    n, r = 3, 1
    expected = w[0, n, r] * (p[0, n] @ noise.common[0]) + (1 - w[0, n, r]) * (p[0, n] @ noise.individual[0, r])
    torch.testing.assert_close(scores[0, n, r], expected)

    silent = torch.full((2, 6, 3), -1)
    loss = noise(embeddings, logits, silent)  # only the regulariser is left
    norms = [(noise.individual[0, r] - noise.common[0]).norm() for r in range(3)]
    torch.testing.assert_close(loss[0], -1e-5 * torch.stack(norms).sum())
    before = noise.separation().detach()
    optimizer = torch.optim.SGD(noise.parameters(), lr=1e4)
    loss.sum().backward()
    optimizer.step()
    assert bool((noise.separation() > before).all())


@pytest.mark.parametrize("bases", [1, 5, 20])
def test_label_fusion_confusion_is_valid_for_every_item(bases):
    fusion = LabelFusion(sizes(), {"bases": bases})
    assert torch.equal(fusion.bases[0], torch.eye(4))
    assert torch.equal(fusion.bases.sum(-1), torch.ones(bases, 4))
    with torch.no_grad():
        fusion.mixture.copy_(torch.randn(fusion.mixture.shape, generator=torch.Generator().manual_seed(0)))
    embeddings = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(1))
    confusion = fusion.confusion(embeddings).detach()
    assert confusion.shape == (2, 6, 3, 4, 4)
    assert bool((confusion >= 0).all())
    for axis in (-1, -2):
        torch.testing.assert_close(confusion.sum(axis), torch.ones(2, 6, 3, 4))
    if bases > 1:
        assert float((confusion[:, 0] - confusion[:, 1]).abs().max()) > 0.1  # depends on the item
        assert float((confusion[:, :, 0] - confusion[:, :, 1]).abs().max()) > 0.1  # and on the annotator


def test_label_fusion_by_hand():
    """With the identity as only basis, the target is the weighted vote, and the loss its divergence divided by N K."""
    fusion = LabelFusion(sizes(G=1, R=3, K=2), {"bases": 1})
    embeddings = torch.randn(1, 2, 5, generator=torch.Generator().manual_seed(0))
    labels = torch.tensor([[[0, 1, 1], [0, -1, -1]]])
    weights = fusion.weights(embeddings, labels)
    torch.testing.assert_close(weights, torch.tensor([[[1 / 3, 1 / 3, 1 / 3], [1, 0, 0]]]))
    logits = torch.tensor([[[0.0, 1.0], [2.0, 0.0]]])
    q = logits[0].log_softmax(-1)
    first = 1 / 3 * (np.log(1 / 3) - q[0, 0]) + 2 / 3 * (np.log(2 / 3) - q[0, 1])
    torch.testing.assert_close(fusion(embeddings, logits, labels), ((first - q[1, 0]) / 4)[None].float())


def test_fine_tuning_changes_the_encoder_unless_frozen():
    """Fine-tuning must change the encoder; a frozen encoder must give the same as training on its embeddings."""
    torch.manual_seed(0)
    encoder = Conv4(1, width=4)
    g = torch.Generator().manual_seed(0)
    episodes = CrowdEpisodes(
        torch.randn(1, 4, 1, 16, 16, generator=g), crowd_labels(0, (1, 4, 2), 2, 0.0), torch.randn(1, 2, 1, 16, 16), 2
    )
    found = {}
    for frozen in (False, True):
        (found[frozen],) = fine_tuning.fine_tune(
            episodes, encoder, lambda sizes: CrowdLayer(sizes, {}), [30], 0, frozen=frozen
        )
    assert float((found[True] - found[False]).abs().max()) > 1e-3

    # with a frozen encoder, the run equals one on its embeddings
    features = episodes._replace(
        support=encoder.eval()(episodes.support[0]).detach()[None], query=encoder(episodes.query[0]).detach()[None]
    )
    (alone,) = fine_tuning.fine_tune(features, Identity(), lambda sizes: CrowdLayer(sizes, {}), [30], 0)
    torch.testing.assert_close(found[True], alone)


def test_fine_tuning_is_plain_adam_on_the_masked_loss():
    """Compare the stacked run of one episode with a plain run of torch's layers."""
    torch.manual_seed(0)
    encoder = MLP(3, (4,), 5)
    g = torch.Generator().manual_seed(0)
    support, query, labels = torch.randn(1, 6, 3, generator=g), torch.randn(1, 2, 3), crowd_labels(0, (1, 6, 2), 3)
    (found,) = fine_tuning.fine_tune(
        CrowdEpisodes(support, labels, query, 3), encoder, lambda sizes: CrowdLayer(sizes, {}), [7], 5
    )
    weight, bias = sizes(G=1, D=5, R=2, K=3, seed=5).linear(5, 3)
    peer, head, matrices = MLP(3, (4,), 5), nn.Linear(5, 3), nn.Parameter(torch.eye(3).repeat(2, 1, 1))
    peer.load_state_dict(encoder.state_dict())
    head.weight.data, head.bias.data = weight[0].detach().T.clone(), bias[0, 0].detach().clone()
    optimizer = torch.optim.Adam([*peer.parameters(), *head.parameters(), matrices], lr=1e-3)
    for _ in range(7):
        p = head(peer(support[0])).softmax(-1)
        losses = [
            F.cross_entropy(p[n] @ matrices[r], labels[0, n, r])
            for n in range(6)
            for r in range(2)
            if labels[0, n, r] >= 0
        ]
        optimizer.zero_grad()
        torch.stack(losses).mean().backward()
        optimizer.step()
    torch.testing.assert_close(found[0], head(peer(query[0])).softmax(-1), atol=1e-5, rtol=1e-5)


def test_a_class_without_weight_is_never_predicted():
    """Two classes are at 0 and 4; the query 2.1 is close to the centre, where an empty class has its prototype."""
    support, query = torch.tensor([[[0.0], [4.0]]]), torch.tensor([[[2.1], [-1.0]]])
    labels = torch.tensor([[[0], [1]]])
    for name in ("PrMV", "PrDS", "PrSV", "LNL"):
        found = METHODS[name].predict(CrowdEpisodes(support, labels, query, 3), torch.nn.Identity())
        if name != "PrDS":  # its posterior gives every class some weight
            assert found[..., 2].tolist() == [[0.0, 0.0]]
            assert found.argmax(-1).tolist() == [[1, 0]]
        torch.testing.assert_close(found.sum(-1), torch.ones(1, 2))
        nobody = METHODS[name].predict(CrowdEpisodes(support, labels * 0 - 1, query, 3), torch.nn.Identity())
        torch.testing.assert_close(nobody, torch.full((1, 2, 3), 1 / 3))
