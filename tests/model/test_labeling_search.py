"""Test the labeling search against sums over all labelings, by hand, by properties and by gradients."""

import itertools
import math

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from crowdshot import CrowdshotError, labelings, mixture, simulate
from crowdshot.model import annotator_model, array_api, labeling_search, priors
from crowdshot.model.labeling_search import search
from plain_labelings import Problem, kinds_by_hand


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def problem(seed, B=3, N=4, R=3, K=3, D=2, missing=0.2):
    """Draw random embeddings and random labels, some of them missing."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(B, N, D, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, K, (B, N, R), generator=generator)
    gaps = torch.rand(B, N, R, generator=generator) < missing
    return u, labels.masked_fill(gaps, -1)


def clouds(seed=0, B=20, K=4, shots=3, R=5, D=8, crowd=simulate.PAPER_SOURCE, apart=4.0):
    """Draw separate clusters and a simulated crowd: embeddings, labels, truth, queries and their truth."""
    generator = torch.Generator().manual_seed(seed)
    means = apart * torch.randn(B, K, D, generator=generator)
    truth = torch.arange(K).repeat_interleave(shots).expand(B, -1)
    query_truth = torch.arange(K).repeat_interleave(5).expand(B, -1)
    u, q = (
        means.gather(1, t[..., None].expand(-1, -1, D)) + torch.randn(*t.shape, D, generator=generator)
        for t in (truth, query_truth)
    )
    confusion = simulate.draw_annotators(R, K, crowd, (B,), generator).confusion
    return u, simulate.draw_labels(truth, confusion, None, generator), truth, q, query_truth


# ---- annotators ---------------------------------------------------------------------------------------------------


WAYS = (array_api.NumPyApi(), array_api.TorchApi(torch.device("cpu")))


def as_counts(counts, ways):
    """(..., K, K) of one labeling -> (..., K, K, 1)"""
    return ways.array(torch.as_tensor(counts)[..., None])


@pytest.mark.parametrize("ways", WAYS)
@pytest.mark.parametrize(
    "counts", [[[2, 1, 0], [0, 3, 0], [1, 1, 0]], [[0] * 3] * 3, [[0, 4, 0], [0, 0, 4], [4, 0, 0]]]
)
def test_marginal_likelihood_equals_sums_by_hand(counts, ways):
    tables = annotator_model.tables_for(16, 3, ways)
    kinds, evidence = annotator_model.judge(as_counts(counts, ways), tables, ways)
    expected = torch.tensor(kinds_by_hand(tuple(map(tuple, counts))), dtype=torch.float64)
    expected = expected + torch.tensor(annotator_model.P_KIND, dtype=torch.float64).log()
    torch.testing.assert_close(torch.as_tensor(evidence)[0], expected.logsumexp(0))
    torch.testing.assert_close(torch.as_tensor(kinds)[:, 0], expected.softmax(0))


@given(st.integers(0, 10_000), st.integers(2, 4), st.sampled_from(WAYS))
@settings(max_examples=30, deadline=None)
def test_expected_confusion_is_the_predictive_probability(seed, K, ways):
    """Compare with the ratio of marginal likelihoods with and without one more label."""
    counts = torch.randint(0, 5, (4, K, K), generator=torch.Generator().manual_seed(seed))
    tables = annotator_model.tables_for(5 * K * K + 1, K, ways)

    def log_evidence(counts):
        return torch.as_tensor(annotator_model.judge(as_counts(counts, ways), tables, ways)[1])[..., 0]

    found = torch.as_tensor(annotator_model.expected_confusion(as_counts(counts, ways), tables, ways))[..., 0]
    torch.testing.assert_close(found.sum(-1), torch.ones(4, K, dtype=torch.float64))
    for true, said in itertools.product(range(K), range(K)):
        more = counts.clone()
        more[:, true, said] += 1
        torch.testing.assert_close(found[:, true, said].log(), log_evidence(more) - log_evidence(counts))


# ---- labelings ----------------------------------------------------------------------------------------------------


def written_out(u, labels, K, scale, tau):
    """Return every labeling of an episode's labelled items with its log-probability, by the documented formulas."""
    problem = Problem(u, labels, K, scale, tau)
    every = itertools.product(range(K), repeat=len(problem.seen))
    chosen = {classes: dict(zip(problem.seen, classes, strict=True)) for classes in every}
    return problem.seen, {classes: problem.log_probability(those) for classes, those in chosen.items()}


def test_a_search_that_keeps_all_finds_the_exact_posterior():
    u, labels = problem(seed=3)
    labels[1, 2] = -1  # an item without any label
    found = labelings.fit(u, labels, 3, scale=5.0, tau=0.4, width=3**4)
    for b in range(len(u)):
        seen, every = written_out(u[b], labels[b], 3, 5.0, 0.4)
        total = torch.tensor(list(every.values()), dtype=torch.float64).logsumexp(0)
        real = found.log_weights[b] > -torch.inf
        assert real.sum() == len(every)
        for labeling, log_weight in zip(found.labelings[b][real].tolist(), found.log_weights[b][real], strict=True):
            assert float(log_weight) == pytest.approx(every[tuple(labeling[n] for n in seen)] - float(total), abs=1e-9)
            assert all(labeling[n] == -1 for n in range(4) if n not in seen)


def test_class_frequencies_enter_the_posterior():
    """Class frequencies multiply the posterior; a class of frequency 0 gets no item."""
    (u,), (labels,) = problem(seed=4, B=1, N=4, missing=0.0)
    sizes = torch.tensor([0.7, 0.3, 0.0], dtype=torch.float64)
    found = labelings.fit(u, labels, 3, scale=5.0, tau=0.4, width=81, sizes=sizes)
    plain = Problem(u, labels, 3, 5.0, 0.4, sizes.log().expand(4, 3))
    every = {z: plain.log_probability(dict(enumerate(z))) for z in itertools.product(range(2), repeat=4)}
    real = found.log_weights > -torch.inf
    assert {tuple(z) for z in found.labelings[real].tolist()} == set(every)
    exact = torch.tensor([every[tuple(z)] for z in found.labelings[real].tolist()], dtype=torch.float64)
    torch.testing.assert_close(found.log_weights[real], exact.log_softmax(0))
    posteriors = torch.tensor(plain.item_posteriors(every), dtype=torch.float64)
    torch.testing.assert_close(labelings.item_posteriors(found, labels), posteriors)
    assert (found.log_proba(u)[:, 2] == -torch.inf).all()
    evenly = labelings.fit(u, labels, 3, scale=5.0, tau=0.4, width=81, sizes=torch.full((3,), 0.2).double())
    torch.testing.assert_close(
        evenly.log_proba(u), labelings.fit(u, labels, 3, scale=5.0, tau=0.4, width=81).log_proba(u)
    )


def marginals(u, labels, K, scale, tau):
    """Return exact posteriors (N, K) of labelled items, by sums over all labelings."""
    _, every = written_out(u, labels, K, scale, tau)
    weights = torch.tensor(list(every.values()), dtype=torch.float64).softmax(0)
    out = torch.zeros(len(u), K, dtype=torch.float64)
    for weight, classes in zip(weights, every, strict=True):
        out[torch.arange(len(u)), list(classes)] += weight
    return out


def test_item_posteriors_are_exact_if_all_labelings_are_kept():
    u, labels = problem(seed=3)
    labels[:, :, -1] = -1  # annotators without labels of some or all items
    labels[0, 0, 0] = -1
    for b in range(len(u)):
        found = labelings.fit(u[b], labels[b], 3, scale=5.0, tau=0.4, width=3**4)
        exact = marginals(u[b], labels[b], 3, 5.0, 0.4)
        torch.testing.assert_close(labelings.item_posteriors(found, labels[b]), exact)
        torch.testing.assert_close(found.responsibilities, exact)


def test_item_posteriors_are_better_than_shares_of_few_labelings():
    """Shares of two labelings are 0 or 1 for items on which both agree."""
    off, off_by_shares = 0.0, 0.0
    for seed in range(10):
        u, labels = (x[0] for x in problem(seed=seed, B=1, N=5))
        exact = marginals(u, labels, 3, 5.0, 0.4)
        found = labelings.fit(u, labels, 3, scale=5.0, tau=0.4, width=2)
        off += float((labelings.item_posteriors(found, labels) - exact).abs().sum())
        off_by_shares += float((found.responsibilities - exact).abs().sum())
    assert off < 0.8 * off_by_shares


def test_the_classifier_averages_the_papers_classifier_over_labelings():
    u, labels = problem(seed=5, B=1, N=5)
    q = torch.randn(6, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = labelings.fit(u[0], labels[0], 3, scale=5.0, tau=0.4, width=10)
    centre = u[0].mean(0)
    unit = ((u[0] - centre).square().sum() / 4).sqrt()
    x, y = (u[0] - centre) / unit, (q - centre) / unit
    expected = torch.zeros(6, 3, dtype=torch.float64)
    for labeling, log_weight in zip(found.labelings, found.log_weights, strict=True):
        members = [x[labeling == k] for k in range(3)]
        means = torch.stack([m.sum(0) / (0.4 + len(m)) for m in members])
        prior = torch.tensor([100.0 + 1 + len(m) for m in members]).double()
        expected += log_weight.exp() * (-2.5 * torch.cdist(y, means).square() + prior.log()).softmax(-1)
    torch.testing.assert_close(found.log_proba(q).exp(), expected)


@given(st.integers(0, 10_000), st.integers(1, 40), st.integers(2, 4), st.integers(1, 7))
@settings(max_examples=25, deadline=None)
def test_labelings_are_distinct_and_normalised(seed, width, K, N):
    u, labels = problem(seed, B=2, N=N, K=K, missing=0.5)
    found = labelings.fit(u, labels, K, width=width)
    assert found.labelings.shape[1] <= width
    torch.testing.assert_close(found.log_weights.exp().sum(-1), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(found.responsibilities.sum(-1), torch.ones(2, N, dtype=torch.float64))
    torch.testing.assert_close(found.confusion.sum(-1), torch.ones_like(found.confusion[..., 0]))
    torch.testing.assert_close(found.class_probs.sum(-1), torch.ones(2, dtype=torch.float64))
    torch.testing.assert_close(found.log_proba(u).exp().sum(-1), torch.ones(2, N, dtype=torch.float64))
    for b in range(2):
        real = [
            tuple(z) for z, w in zip(found.labelings[b].tolist(), found.log_weights[b], strict=True) if w > -math.inf
        ]
        assert len(set(real)) == len(real)


def test_a_wider_search_never_finds_less_of_the_posterior_on_clear_problems():
    u, labels, *_ = clouds(B=6)
    masses = []
    for width in (1, 8, 64):
        found = labelings.fit(u.double(), labels, 4, width=width)
        mass = 0.0
        for b in range(len(u)):
            plain = Problem(u[b], labels[b], 4, labelings.SCALE, labelings.TAU)
            log_p = [plain.log_probability(dict(enumerate(z))) for z in found.labelings[b].tolist()]
            mass += float(torch.tensor(log_p, dtype=torch.float64).logsumexp(0))
        masses.append(mass)
    assert masses[0] < masses[1] <= masses[2] + 1e-9


@pytest.fixture(params=[("cpu",), ()], ids=["NumPy", "torch"], scope="module")
def library(request):
    """Run both implementations of the search on the CPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(array_api, "BY_NUMPY", request.param)
        yield


SMALL = given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 4), st.integers(2, 4), st.integers(1, 12))


@SMALL
@settings(max_examples=60, deadline=None)
def test_the_search_equals_the_plain_implementation(library, seed, N, R, K, width):
    """Compare every episode of a ragged batch. Side information avoids ties between classes without labels."""
    u, labels = problem(seed, B=2, N=N, R=R, K=K, missing=0.4)
    taken = (labels >= 0).any(-1)
    known = torch.randn(2, N, K, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    order = torch.stack([torch.cat([x.nonzero(), (~x).nonzero()])[:, 0] for x in taken])
    plain = [Problem(*given, K, 5.0, 0.4, more) for *given, more in zip(u, labels, known, strict=True)]
    gram = torch.stack([torch.tensor(each.u, dtype=torch.float64) for each in plain]) * taken[..., None]
    found, log_p = search(gram @ gram.mT, labels, order, taken, K, 5.0, 0.4, labelings.B, width, known)
    for b in range(2):
        expected = plain[b].search(order[b].tolist(), width)
        real = log_p[b] > -torch.inf
        assert {tuple(z) for z in found[b][real].tolist()} == set(expected)
        exact = torch.tensor([expected[tuple(z)] for z in found[b][real].tolist()], dtype=torch.float64)
        torch.testing.assert_close(log_p[b][real].log_softmax(0), exact.log_softmax(0), atol=1e-6, rtol=0)
        assert (log_p[b, :-1] >= log_p[b, 1:]).all()  # the most probable first


@SMALL
@settings(max_examples=60, deadline=None)
def test_weights_and_item_posteriors_of_the_kept_labelings(library, seed, N, R, K, width):
    (u,), (labels,) = problem(seed, B=1, N=N, R=R, K=K, missing=0.4)
    seen = (labels >= 0).any(-1)
    assume(seen.any())
    u, labels = u[seen], labels[seen]
    found = labelings.fit(u, labels, K, scale=5.0, tau=0.4, width=width)
    plain = Problem(u, labels, K, 5.0, 0.4)
    every = {tuple(z): plain.log_probability(dict(enumerate(z))) for z in found.labelings.tolist()}
    exact = torch.tensor(list(every.values()), dtype=torch.float64)
    torch.testing.assert_close(found.log_weights, exact.log_softmax(0), atol=1e-6, rtol=0)
    posteriors = torch.tensor(plain.item_posteriors(every), dtype=torch.float64)
    torch.testing.assert_close(labelings.item_posteriors(found, labels), posteriors, atol=1e-6, rtol=0)


def test_items_are_ordered_by_confidence_alternating_classes(library):
    u, labels = problem(seed=2, B=4, N=12, R=4, K=3, missing=0.5)
    labels[0, 3] = -1
    truth = torch.full((4, 12), -1)
    truth[1, 5], truth[2, 0] = 2, 1
    seen = (labels >= 0).any(-1) | (truth >= 0)
    u = u * seen[..., None]
    u = (u - u.sum(1, keepdim=True) / seen.sum(1)[:, None, None]) * seen[..., None]
    ruled_out = (truth >= 0)[..., None] & (truth[..., None] != torch.arange(3))
    order = labeling_search.order_of(u @ u.mT, labels, 3, 2.0, 0.4, 100.0, ruled_out)
    fit = mixture.fit(u, labels, 3, steps=3, tau=0.4, scale=2.0, c=priors.OneCoin(), truth=truth)
    for b in range(4):
        sure, k = fit.responsibilities[b].max(-1)
        rank = {}
        for n in sorted(range(12), key=lambda n: -float(sure[n])):
            if seen[b, n]:
                rank[n] = sum(other in rank for other in range(12) if k[other] == k[n])
        expected = sorted(rank, key=lambda n: (rank[n], -float(sure[n])))
        assert order[b, : len(expected)].tolist() == expected


def test_known_confusion_matrices_give_bayes_rule():
    """With equal embeddings, an item's class depends only on its labels and the confusion matrices."""
    generator = torch.Generator().manual_seed(4)
    matrices = torch.rand(2, 3, 3, 3, generator=generator, dtype=torch.float64)
    matrices = matrices / matrices.sum(-1, keepdim=True)
    labels = torch.tensor([[[0, 1, -1], [2, 2, 2]], [[-1, -1, 0], [1, 0, 1]]])
    found = labelings.fit(torch.zeros(2, 2, 4, dtype=torch.float64), labels, 3, width=9, confusion=matrices)
    for b, n in itertools.product(range(2), range(2)):
        likelihood = torch.ones(3, dtype=torch.float64)
        for r in range(3):
            if labels[b, n, r] >= 0:
                likelihood = likelihood * matrices[b, r, :, labels[b, n, r]]
        # b = 100 makes classes nearly independent
        torch.testing.assert_close(found.responsibilities[b, n], likelihood / likelihood.sum(), atol=0.01, rtol=0)
    torch.testing.assert_close(found.confusion, matrices)


def test_the_search_is_more_robust_than_em():
    u, labels, _, q, query_truth = clouds(seed=1, B=100, shots=1, R=5)
    right = {
        "labelings": labelings.fit(u, labels, 4).log_proba(q),
        "em": mixture.fit(u, labels, 4, steps=5, tau=0.5, scale=0.2).log_proba(q),
    }
    right = {name: float((p.argmax(-1) == query_truth).float().mean()) for name, p in right.items()}
    assert right["labelings"] > right["em"] + 0.01, right


def test_batch_equals_loop_and_leading_axes_are_free():
    u, labels = problem(seed=7, B=6, N=5)
    together = labelings.fit(u.reshape(2, 3, 5, 2), labels.reshape(2, 3, 5, 3), 3)
    for b in range(6):
        alone = labelings.fit(u[b], labels[b], 3)
        torch.testing.assert_close(together.log_proba(u.reshape(2, 3, 5, 2)).reshape(6, 5, 3)[b], alone.log_proba(u[b]))
        torch.testing.assert_close(together.confusion.reshape(6, 3, 3, 3)[b], alone.confusion)


def test_many_queries_are_processed_in_pieces(monkeypatch):
    u, labels, _, q, _ = clouds(B=3)
    whole = labelings.fit(u, labels, 4).log_proba(q)
    monkeypatch.setattr(labelings, "AT_ONCE", 3 * 32 * 4 * 7)
    torch.testing.assert_close(labelings.fit(u, labels, 4).log_proba(q), whole)


def test_invariance_to_translation_rotation_and_scaling():
    u, labels, _, q, _ = clouds(seed=2, B=4, D=3)
    u, q = u.double(), q.double()
    turn = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))).Q
    before = labelings.fit(u, labels, 4).log_proba(q)
    after = labelings.fit(7 * u @ turn + 100, labels, 4).log_proba(7 * q @ turn + 100)
    torch.testing.assert_close(before, after, atol=1e-6, rtol=1e-6)


def test_gradient_through_weights_and_classifier():
    u, labels = problem(seed=13, B=2, N=4)
    q = torch.randn(2, 3, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(1))

    def loss(u, q, scale, tau):
        found = labelings.fit(u, labels, 3, scale=scale, tau=tau, width=81)
        return found.log_proba(q)[..., 0].sum()

    number = [torch.tensor(x, dtype=torch.float64, requires_grad=True) for x in (3.0, 0.7)]
    assert torch.autograd.gradcheck(loss, (u.requires_grad_(), q.requires_grad_(), *number))


def test_hundreds_of_labels_of_an_item_do_not_underflow():
    """Their probability underflows in float64."""
    labels = torch.randint(5, (3, 600), generator=torch.Generator().manual_seed(0))
    found = labelings.fit(torch.randn(3, 2, generator=torch.Generator().manual_seed(1)), labels, 5)
    assert found.log_weights.isfinite().all()
    assert labelings.item_posteriors(found, labels).isfinite().all()


def test_identical_items_and_no_labels_are_accepted():
    alike = torch.ones(5, 3)
    found = labelings.fit(alike, torch.tensor([[0, 0], [1, 1], [0, 1], [1, -1], [0, 0]]), 2)
    assert found.responsibilities.isfinite().all()
    assert found.log_proba(alike).isfinite().all()
    assert found.responsibilities[0].argmax() == 0
    assert found.responsibilities[1].argmax() == 1
    silent = labelings.fit(torch.randn(4, 3), torch.full((4, 2), -1), 3)
    torch.testing.assert_close(silent.responsibilities, torch.full((4, 3), 1 / 3))


@pytest.mark.parametrize(
    ("change", "argument", "found"),
    [
        ({"n_classes": 1}, "n_classes", 1),
        ({"width": 0}, "width", 0),
        ({"labels": torch.zeros(3, 2)}, "labels", (torch.float32, (3, 2))),
        ({"labels": torch.zeros(4, 2).long()}, "labels", (torch.int64, (4, 2))),
        ({"embeddings": torch.zeros(3, 2).long()}, "embeddings", (torch.int64, (3, 2))),
    ],
)
def test_bad_arguments_are_named(change, argument, found):
    good = {"embeddings": torch.zeros(3, 2), "labels": torch.zeros(3, 2).long(), "n_classes": 2, "width": 4}
    with pytest.raises(CrowdshotError) as error:
        labelings.fit(**{**good, **change})
    assert error.value.argument == argument
    assert error.value.found == found
    assert error.value.expected
    with pytest.raises(CrowdshotError) as error:
        labelings.fit(torch.zeros(3, 2), torch.zeros(3, 2).long(), 2).log_proba(torch.zeros(1, 5))
    assert (error.value.argument, error.value.found) == ("queries", (1, 5))
