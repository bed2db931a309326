"""Test the mixture by hand, against independent loops, in the limits of the paper, and by its symmetries."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from crowdshot import mixture
from crowdshot.errors import CrowdshotError
from crowdshot.model.priors import Diagonal, OneCoin
from problems import em_by_loops, random_episode

CONFUSION_PRIORS = [1.0, Diagonal(3.0, 0.5), OneCoin(3.0, 1.0, 5.0)]


# --- known answers -------------------------------------------------------------------------------------------------


def test_two_items_two_annotators_by_hand():
    """u = 2, -2; the first item has votes 0, 0, the second 1, 0; tau = b = c = 1. All fractions worked out on paper."""
    u = torch.tensor([[2.0], [-2.0]], dtype=torch.float64)
    y = torch.tensor([[0, 0], [1, 0]])
    fit = mixture.fit(u, y, 2, steps=1, tau=1.0, b=1.0, c=1.0)
    # soft votes (1, 0), (1/2, 1/2), so n = (3/2, 1/2)
    assert_close(fit.means, torch.tensor([[2 / 5], [-2 / 3]], dtype=torch.float64))
    assert_close(fit.class_probs, torch.tensor([5 / 8, 3 / 8], dtype=torch.float64))
    first, second = [[4 / 7, 3 / 7], [2 / 5, 3 / 5]], [[5 / 7, 2 / 7], [3 / 5, 2 / 5]]
    assert_close(fit.confusion, torch.tensor([first, second], dtype=torch.float64))
    joint = [
        [math.exp(-1.28) * 5 / 8 * 20 / 49, math.exp(-32 / 9) * 3 / 8 * 6 / 25],
        [math.exp(-2.88) * 5 / 8 * 15 / 49, math.exp(-8 / 9) * 3 / 8 * 9 / 25],
    ]
    lam = [[a / (a + b), b / (a + b)] for a, b in joint]
    assert_close(fit.responsibilities, torch.tensor(lam, dtype=torch.float64))

    log_likelihood = sum(math.log((a + b) / math.sqrt(2 * math.pi)) for a, b in joint)
    log_means = sum(0.5 * math.log(1 / (2 * math.pi)) - m * m / 2 for m in (2 / 5, -2 / 3))
    dirichlet = math.log(math.gamma(4))  # Gamma(K (c + 1)) / Gamma(c + 1)^K = 3!
    log_probs = dirichlet + math.log(5 / 8 * 3 / 8)
    log_rows = sum(dirichlet + math.log(p * q) for p, q in first + second)
    assert_close(fit.log_posterior, torch.tensor([log_likelihood + log_means + log_probs + log_rows]).double())

    at_one = [5 / 8 * math.exp(-0.5 * 0.6**2), 3 / 8 * math.exp(-0.5 * (5 / 3) ** 2)]
    expected = torch.tensor([[math.log(p / sum(at_one)) for p in at_one]], dtype=torch.float64)
    assert_close(fit.log_proba(torch.tensor([[1.0]], dtype=torch.float64)), expected)


@given(
    seed=st.integers(0, 10_000),
    shape=st.tuples(st.integers(1, 9), st.integers(1, 5), st.integers(2, 5), st.integers(0, 4)),
    missing=st.sampled_from([0.0, 0.3, 0.8, 1.0]),
    steps=st.integers(1, 4),
)
def test_equals_the_loop_written_from_the_equations(seed, shape, missing, steps):
    N, R, K, D = shape
    u, y, _ = random_episode(seed, N=N, R=R, K=K, D=D, missing=missing)
    tau, b, c = 0.7, 2.5, 1.3
    fit = mixture.fit(u, y, K, steps=steps, tau=tau, b=b, c=c)
    means, class_probs, confusion, responsibilities, objective = em_by_loops(u.numpy(), y.numpy(), K, steps, tau, b, c)
    for ours, theirs in [
        (fit.means, means),
        (fit.class_probs, class_probs),
        (fit.confusion, confusion),
        (fit.responsibilities, responsibilities),
        (fit.log_posterior, objective),
    ]:
        np.testing.assert_allclose(ours.numpy(), theirs, rtol=1e-9, atol=1e-9)


def test_limit_prototypical_network():
    """tau = 0, uniform class prior, clean labels: distances to class averages, as in Snell et al. 2017."""
    u, _, truth = random_episode(0, N=20)
    fit = mixture.fit(u, truth[:, None].expand(-1, 3), 4, steps=1, tau=0.0, b=1e12)
    prototypes = torch.stack([u[truth == k].mean(0) for k in range(4)])
    queries = torch.randn(7, 6, dtype=torch.float64)
    assert_close(fit.log_proba(queries), (-0.5 * torch.cdist(queries, prototypes).square()).log_softmax(-1))


def test_limit_gaussian_mixture():
    """If confusion matrices are uniform, labels are uninformative: plain EM for a Gaussian mixture."""
    u, y, _ = random_episode(1, N=30, missing=0.0)
    fit = mixture.fit(u, y, 4, steps=6, tau=1e-12, b=1.0, c=1e12)
    lam = torch.nn.functional.one_hot(y, 4).double().mean(1)
    for _ in range(6):
        means = (lam.T @ u) / lam.sum(0)[:, None]
        pi = (lam.sum(0) + 1) / (30 + 4)
        lam = (pi.log() - 0.5 * torch.cdist(u, means).square()).softmax(-1)
    assert_close(fit.responsibilities, lam, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("embeddings", [torch.full((15, 3), 7.0, dtype=torch.float64), torch.zeros(15, 0).double()])
def test_limit_dawid_skene(embeddings):
    """If all embeddings are equal (or there are none), only labels count: Dawid-Skene with Dirichlet priors.

    With tau = 0 all means are equal; with the paper's tau they would depend on class sizes.
    """
    _, y, _ = random_episode(2, N=15, missing=0.3)
    y[:, 0] = y[:, 0].clamp_min(0)
    fit = mixture.fit(embeddings, y, 4, steps=5, tau=0.0, b=2.0, c=0.5)
    votes = (y[..., None] == torch.arange(4)).double()  # (N, R, K)
    lam = votes.sum(1) / votes.sum((1, 2))[:, None]
    for _ in range(5):
        pi = (lam.sum(0) + 2) / (15 + 8)
        alpha = torch.einsum("nk,nrl->rkl", lam, votes) + 0.5
        alpha = alpha / alpha.sum(-1, keepdim=True)
        lam = (pi.log() + torch.einsum("nrl,rkl->nk", votes, alpha.log())).softmax(-1)
    assert_close(fit.responsibilities, lam)
    assert_close(fit.confusion, alpha)


def test_an_annotator_without_labels_keeps_the_prior_and_an_item_without_labels_changes_nothing():
    u, y, _ = random_episode(3, N=10, missing=0.0)
    y[:, 2] = -1
    y[4] = -1
    fit = mixture.fit(u, y, 4, steps=3, c=Diagonal(3.0, 1.0))
    expected = torch.full((4, 4), 1 / 6, dtype=torch.float64).fill_diagonal_(0.5)
    assert_close(fit.confusion[2], expected)
    rest = [n for n in range(10) if n != 4]
    without = mixture.fit(u[rest], y[rest], 4, steps=3, c=Diagonal(3.0, 1.0))
    assert_close(fit.means, without.means)
    assert_close(fit.log_posterior, without.log_posterior)
    assert_close(fit.responsibilities[4:5], fit.log_proba(u[4:5]).exp())  # only its embedding is known


# --- the objective -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("covariance", ["identity", "isotropic", "diagonal", "full"])
@given(
    seed=st.integers(0, 10_000),
    missing=st.sampled_from([0.0, 0.5]),
    scale=st.sampled_from([1.0, 0.2]),
    tau=st.sampled_from([0.1, 1.0, 10.0]),
    spread=st.sampled_from([0.0, 1.0, 20.0]),
)
def test_the_map_objective_never_falls(covariance, seed, missing, scale, tau, spread):
    u, y, _ = random_episode(seed, N=9, D=3, missing=missing, spread=spread)
    objective = mixture.fit(u, y, 4, steps=8, tau=tau, b=1.0, scale=scale, covariance=covariance).log_posterior
    assert (objective.diff() >= -1e-8 * (1 + objective[1:].abs())).all(), objective


@pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
def test_estimated_covariance_is_the_maximum(covariance):
    """Changes of the covariance from the M-step must lower the complete-data objective."""
    from crowdshot.model import mixture as spread

    u, y, _ = random_episode(5, N=12, D=3, missing=0.0)
    tau, K = 0.8, 4
    fit = mixture.fit(u, y, K, steps=1, tau=tau, covariance=covariance)
    lam = (y[..., None] == torch.arange(K)).double().mean(1)
    apart = u[:, None] - fit.means
    scatter = torch.einsum("nk,nki,nkj->ij", lam, apart, apart) + tau * fit.means.T @ fit.means

    def q(estimate):
        precision = estimate.inverse() if covariance == "full" else torch.diag((1 / estimate).expand(3))
        fitted = 0.5 * (16 * torch.logdet(precision) - torch.trace(precision @ scatter))
        return fitted + spread.covariance_log_prior(estimate, covariance, 3)

    best = fit.covariance
    shapes = {"isotropic": (1,), "diagonal": (3,), "full": (3, 3)}
    assert best.shape == shapes[covariance]
    for factor in (0.97, 1.03):
        assert q(best * factor) < q(best)
    bump = torch.zeros_like(best)
    bump.flatten()[0] = 0.02
    assert q(best + bump) < q(best)
    assert q(best - bump) < q(best)


@pytest.mark.parametrize("covariance", ["isotropic", "diagonal", "full"])
def test_covariance_prior_is_normalised_and_peaks_at_the_identity(covariance):
    from crowdshot.model import mixture as spread

    if covariance == "isotropic":
        p = torch.linspace(1e-4, 60, 400_001, dtype=torch.float64)
        density = spread.covariance_log_prior(1 / p[:, None], "isotropic", 2, weight=1.5).exp()
        assert_close(torch.trapezoid(density, p), torch.tensor(1.0).double(), rtol=1e-4, atol=1e-4)
    if covariance == "full":
        from scipy.stats import wishart

        matrix = np.array([[1.4, 0.3], [0.3, 0.8]])
        expected = wishart(df=1.5 + 3, scale=np.eye(2) / 1.5).logpdf(matrix)
        ours = spread.covariance_log_prior(torch.tensor(np.linalg.inv(matrix)), "full", 2, weight=1.5)
        assert float(ours) == pytest.approx(expected)
    if covariance == "diagonal":
        from scipy.stats import gamma

        expected = gamma(1.5 / 2 + 1, scale=2 / 1.5).logpdf([1.4, 0.8]).sum()
        ours = spread.covariance_log_prior(1 / torch.tensor([1.4, 0.8], dtype=torch.float64), "diagonal", 2, weight=1.5)
        assert float(ours) == pytest.approx(expected)


# --- gradients -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("covariance", ["identity", "isotropic", "diagonal", "full"])
def test_gradients_through_three_steps(covariance):
    u, y, _ = random_episode(4, batch=(2,), N=5, R=3, K=3, D=2)
    q = torch.randn(2, 3, 2, dtype=torch.float64)
    tau, b, c = (torch.tensor(v, dtype=torch.float64) for v in ([1.0, 0.5], [2.0, 1.0], [1.0, 0.3]))
    scale = torch.tensor([1.0, 0.4], dtype=torch.float64)

    def run(u, tau, b, c, scale):
        fit = mixture.fit(u, y, 3, steps=3, tau=tau, b=b, c=c, scale=scale, covariance=covariance)
        return fit.log_proba(q), fit.confusion, fit.responsibilities, fit.log_posterior

    inputs = [x.requires_grad_() for x in (u, tau, b, c, scale)]
    assert torch.autograd.gradcheck(run, inputs)


@pytest.mark.parametrize("prior", [Diagonal, OneCoin])
def test_gradients_of_learned_priors(prior):
    u, y, _ = random_episode(4, N=5, R=3, K=3, D=2)
    numbers = [torch.tensor(float(i + 1), dtype=torch.float64, requires_grad=True) for i in range(len(vars(prior())))]

    def run(*numbers):
        return mixture.fit(u, y, 3, steps=3, c=prior(*numbers)).confusion

    assert torch.autograd.gradcheck(run, numbers)


# --- symmetries ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("c", CONFUSION_PRIORS, ids=["symmetric", "diagonal", "one-coin"])
@given(seed=st.integers(0, 10_000), covariance=st.sampled_from(["identity", "isotropic", "diagonal", "full"]))
def test_permuting_items_annotators_and_classes_permutes_the_answer(c, seed, covariance):
    u, y, _ = random_episode(seed, N=8, D=3)
    g = torch.Generator().manual_seed(seed)
    items, annotators, classes = (torch.randperm(n, generator=g) for n in (8, 5, 4))
    settings = {"steps": 3, "c": c, "covariance": covariance, "b": 1.0}
    plain = mixture.fit(u, y, 4, **settings)
    renamed = torch.where(y >= 0, classes[y], -1)
    moved = mixture.fit(u[items], renamed[items][:, annotators], 4, **settings)
    back = classes  # class k is now called classes[k]
    assert_close(moved.means[back], plain.means)
    assert_close(moved.class_probs[back], plain.class_probs)
    assert_close(moved.confusion[:, back][..., back], plain.confusion[annotators])
    assert_close(moved.responsibilities[:, back], plain.responsibilities[items])
    assert_close(moved.log_posterior, plain.log_posterior)


@pytest.mark.parametrize("c", CONFUSION_PRIORS, ids=["symmetric", "diagonal", "one-coin"])
@pytest.mark.parametrize("covariance", ["identity", "isotropic", "diagonal", "full"])
def test_batch_equals_loop_with_settings_of_their_own(c, covariance):
    u, y, _ = random_episode(6, batch=(2, 3), N=7, D=3)
    g = torch.Generator().manual_seed(0)
    tau, b, scale = (torch.rand(2, 3, generator=g, dtype=torch.float64) + 0.2 for _ in range(3))
    steps = torch.tensor([[1, 2, 3], [4, 1, 2]])
    queries = torch.randn(2, 3, 4, 3, generator=g, dtype=torch.float64)
    whole = mixture.fit(u, y, 4, steps=steps, tau=tau, b=b, c=c, scale=scale, covariance=covariance)
    assert whole.log_posterior.shape == (2, 3, 4)
    for i in range(2):
        for j in range(3):
            own = {"tau": tau[i, j], "b": b[i, j], "scale": scale[i, j], "steps": int(steps[i, j])}
            one = mixture.fit(u[i, j], y[i, j], 4, c=c, covariance=covariance, **own)
            assert_close(whole.means[i, j], one.means)
            assert_close(whole.confusion[i, j], one.confusion)
            assert_close(whole.responsibilities[i, j], one.responsibilities)
            assert_close(whole.log_posterior[i, j, : steps[i, j]], one.log_posterior)
            assert_close(whole.log_posterior[i, j, steps[i, j] :].diff().abs().sum(), torch.tensor(0.0).double())
            assert_close(whole.log_proba(queries)[i, j], one.log_proba(queries[i, j]))


def test_one_support_set_with_many_settings():
    u, y, _ = random_episode(7)
    scales = torch.tensor([1.0, 0.1, 0.01], dtype=torch.float64)
    many = mixture.fit(u, y, 4, steps=torch.tensor([3, 2, 1]), c=torch.tensor([1.0, 2.0, 3.0]), scale=scales)
    for i in range(3):
        one = mixture.fit(u, y, 4, steps=3 - i, c=i + 1.0, scale=scales[i])
        assert_close(many.responsibilities[i], one.responsibilities)
        assert_close(many.log_proba(u)[i], one.log_proba(u))


@pytest.mark.parametrize("c", CONFUSION_PRIORS, ids=["symmetric", "diagonal", "one-coin"])
def test_episodes_of_different_numbers_of_classes_share_a_batch(c):
    """Use two, three and five of five classes: each episode equals a single one, and gradients are finite."""
    u = torch.randn(3, 9, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    y = torch.randint(-1, 2, (3, 9, 4), generator=torch.Generator().manual_seed(1))
    in_use = torch.tensor([2, 3, 5])
    whole = mixture.fit(u, y, 5, steps=3, c=c, classes_in_use=in_use)
    for i, K in enumerate(in_use.tolist()):
        one = mixture.fit(u[i], y[i], K, steps=3, c=c)
        assert_close(whole.responsibilities[i, :, :K], one.responsibilities)
        assert_close(whole.confusion[i, :, :K, :K], one.confusion)
        assert_close(whole.log_proba(u)[i, :, :K], one.log_proba(u[i]))
        assert (whole.responsibilities[i, :, K:] == 0).all()
    whole.log_proba(u)[:, :, :2].sum().backward()
    assert u.grad.isfinite().all()


def test_sparse_votes_give_the_same_fit():
    u, y, _ = random_episode(8, N=15, missing=0.6)
    item, annotator = (y >= 0).nonzero(as_tuple=True)
    votes = mixture.sparse_votes(item, annotator, y[item, annotator], (15, 5, 4), dtype=torch.float64)
    dense, sparse = mixture.fit(u, y, 4, steps=3), mixture.fit(u, votes, 4, steps=3)
    assert_close(sparse.responsibilities, dense.responsibilities)
    assert_close(sparse.confusion, dense.confusion)
    assert_close(sparse.log_posterior, dense.log_posterior)


def test_only_the_prior_depends_on_the_origin():
    """With tau = 0 a shift of all embeddings changes nothing; with tau > 0 the prior pulls towards zero."""
    u, y, _ = random_episode(9)
    here, there = (mixture.fit(x, y, 4, steps=3, tau=0.0) for x in (u, u + 100))
    assert_close(here.responsibilities, there.responsibilities)
    pulled = mixture.fit(u + 100, y, 4, steps=1, tau=1.0)
    assert (pulled.means.norm(dim=-1) < there.means.norm(dim=-1)).all()


# --- single precision ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("N", "R", "K", "D"),
    [(20, 5, 4, 64), (1, 1, 2, 3), (6, 1000, 3, 8), (1, 2000, 4, 8), (30, 4, 200, 16), (2, 2000, 20, 4)],
)
@pytest.mark.parametrize("norm", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("covariance", ["identity", "isotropic", "diagonal"])
def test_float32_stays_finite(N, R, K, D, norm, covariance):
    g = torch.Generator().manual_seed(0)
    u = torch.randn(N, D, generator=g)
    u = (u / u.norm(dim=-1, keepdim=True) * norm).requires_grad_()
    y = torch.randint(0, max(2, K - 1), (N, R), generator=g)  # the last class has no votes
    fit = mixture.fit(u, y, K, steps=5, covariance=covariance)
    log_proba = fit.log_proba(-u)
    log_proba.mean().backward()
    for x in (
        fit.means,
        fit.class_probs,
        fit.confusion,
        fit.responsibilities,
        fit.log_posterior,
        log_proba,
        u.grad,
    ):
        assert x.isfinite().all()
    assert_close(fit.responsibilities.sum(-1), torch.ones(N))


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("place", ["around the origin", "far from it", "in all directions"])
def test_float32_is_close_to_float64_for_norms_up_to_100(seed, place):
    """Clusters overlap, so that responsibilities are not all 0 or 1; those with norm 100 are separate."""
    u, y, _ = random_episode(seed, N=30, D=16, spread=0.5)
    if place == "far from it":
        u = u + 20
        assert 75 < u.norm(dim=-1).max() < 100
    if place == "in all directions":
        u = 100 * u / u.norm(dim=-1, keepdim=True)
    for prior in CONFUSION_PRIORS:
        exact = mixture.fit(u, y, 4, steps=5, c=prior)
        single = mixture.fit(u.float(), y, 4, steps=5, c=prior)
        assert_close(single.responsibilities.double(), exact.responsibilities, atol=1e-3, rtol=0)


# --- refusals ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "argument", "found"),
    [
        ({"labels": torch.zeros(3, 2, dtype=torch.long)}, "labels", (torch.int64, (3, 2))),
        ({"labels": torch.full((4, 2), 3)}, "labels", (3, 3)),
        ({"labels": torch.zeros(4, 2)}, "labels", (torch.float32, (4, 2))),
        ({"labels": torch.zeros(4, 5).to_sparse()}, "labels", (4, 5)),
        ({"embeddings": torch.zeros(4, 2, dtype=torch.long)}, "embeddings", (torch.int64, (4, 2))),
        ({"n_classes": 1}, "n_classes", 1),
        ({"steps": 0}, "steps", 0),
        ({"covariance": "round"}, "covariance", "round"),
    ],
)
def test_bad_arguments_are_named(change, argument, found):
    good = {"embeddings": torch.zeros(4, 2), "labels": torch.zeros(4, 2, dtype=torch.long), "n_classes": 3}
    with pytest.raises(CrowdshotError) as error:
        mixture.fit(**{**good, **change})
    assert error.value.argument == argument
    assert error.value.found == found
    assert error.value.expected


def test_queries_of_another_width_are_refused():
    fit = mixture.fit(torch.zeros(4, 2), torch.zeros(4, 2, dtype=torch.long), 3)
    with pytest.raises(CrowdshotError) as error:
        fit.log_proba(torch.zeros(5, 3))
    assert (error.value.argument, error.value.found) == ("queries", (5, 3))
    assert "(..., Q, 2)" in error.value.expected


@pytest.mark.parametrize("size", [1e-3, 1.0, 1e3, 1e5, 1e8])
@pytest.mark.parametrize("twice", [False, True])
def test_a_full_covariance_always_has_a_cholesky_factor(size, twice):
    """Items are far from each other or have a duplicate feature, for which single precision is not enough."""
    for seed in range(20):
        draw = torch.Generator().manual_seed(seed)
        x = size * torch.randn(8, 5, generator=draw)
        x = torch.cat([x, x], -1) if twice else x
        labels = torch.randint(0, 2, (8, 3), generator=draw)
        fit = mixture.fit(x, labels, 2, steps=8, covariance="full")
        assert torch.isfinite(fit.log_proba(x)).all()
        assert torch.isfinite(fit.log_posterior).all()
        climbs = fit.log_posterior.diff() / fit.log_posterior.abs().amax()
        assert climbs.min() > (-1e-6 if size < 1e8 else -1e-3)  # here the prior is lost even in double precision
