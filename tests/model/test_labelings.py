"""The integrated mixture: against every labeling written out, by hand, by property, by gradient."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot import CrowdshotError, labelings, mixture, simulate
from crowdshot.model import annotator_skills
from crowdshot.model.labeling_search import search


@pytest.fixture(autouse=True)
def _one_thread():
    torch.set_num_threads(1)


def problem(seed, B=3, N=4, R=3, K=3, D=2, missing=0.2):
    """Embeddings and labels of no particular sense, with gaps."""
    generator = torch.Generator().manual_seed(seed)
    u = torch.randn(B, N, D, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, K, (B, N, R), generator=generator)
    gaps = torch.rand(B, N, R, generator=generator) < missing
    return u, labels.masked_fill(gaps, -1)


def clouds(seed=0, B=20, K=4, shots=3, R=5, D=8, crowd=simulate.PAPER_SOURCE, apart=4.0):
    """Clear clouds with a simulated crowd: embeddings, labels, truth, queries, their truth."""
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


def by_hand(counts, K):
    """log p(labels | kind) for the three kinds, by plain sums and factorials."""
    q = [min(1 / K + (1 - 1 / K) * rho, annotator_skills.NEVER_WRONG) for rho in annotator_skills.SKILLS]

    def coin(right, labels):
        return sum(p * x**right * (1 - x) ** (labels - right) for p, x in zip(annotator_skills.P_SKILL, q, strict=True))

    right = [counts[k][k] for k in range(K)]
    labels = [sum(counts[k]) for k in range(K)]
    one = coin(sum(right), sum(labels)) / (K - 1) ** (sum(labels) - sum(right))
    each = math.prod(coin(r, n) for r, n in zip(right, labels, strict=True)) / (K - 1) ** (sum(labels) - sum(right))
    flips = coin(sum(right), sum(labels))
    for k in range(K):  # an urn that remembers: each wrong label makes the next one like it likelier
        seen = {other: annotator_skills.ALPHA for other in range(K) if other != k}
        for other in seen:
            for _ in range(counts[k][other]):
                flips *= seen[other] / sum(seen.values())
                seen[other] += 1
    return [math.log(one), math.log(each), math.log(flips)]


@pytest.mark.parametrize(
    "counts", [[[2, 1, 0], [0, 3, 0], [1, 1, 0]], [[0] * 3] * 3, [[0, 4, 0], [0, 0, 4], [4, 0, 0]]]
)
def test_labels_are_as_probable_as_sums_by_hand_say(counts):
    table = annotator_skills.coin_table(16, 3, torch.zeros((), dtype=torch.float64))
    found = annotator_skills.log_marginals(torch.tensor(counts), table)
    torch.testing.assert_close(found, torch.tensor(by_hand(counts, 3), dtype=torch.float64))


@given(st.integers(0, 10_000), st.integers(2, 4))
@settings(max_examples=30, deadline=None)
def test_gain_is_the_difference_one_label_makes(seed, K):
    generator = torch.Generator().manual_seed(seed)
    counts = torch.randint(0, 4, (5, K, K), generator=generator)
    label = torch.randint(0, K, (5,), generator=generator)
    table = annotator_skills.coin_table(70, K, torch.zeros((), dtype=torch.float64))
    gain = annotator_skills.gain(counts, label, table)
    for k in range(K):
        more = counts.clone()
        more[torch.arange(5), k, label] += 1
        torch.testing.assert_close(
            gain[:, k], annotator_skills.log_evidence(more, table) - annotator_skills.log_evidence(counts, table)
        )
    # all that an annotator may say of an item of class k has probability 1
    every = torch.stack([annotator_skills.gain(counts, torch.full((5,), said), table) for said in range(K)], -1)
    torch.testing.assert_close(every.logsumexp(-1), torch.zeros(5, K, dtype=torch.float64), atol=1e-9, rtol=0)
    assert (annotator_skills.gain(counts, torch.full((5,), -1), table) == 0).all()


@given(st.integers(0, 10_000), st.integers(2, 4))
@settings(max_examples=30, deadline=None)
def test_expected_confusion_is_what_the_next_label_is_expected_to_be(seed, K):
    counts = torch.randint(0, 6, (4, K, K), generator=torch.Generator().manual_seed(seed))
    table = annotator_skills.coin_table(150, K, torch.zeros((), dtype=torch.float64))
    found = annotator_skills.expected_confusion(counts, table)
    for said in range(K):
        next_label = annotator_skills.gain(counts, torch.full((4,), said), table).exp()
        torch.testing.assert_close(found[..., said], next_label, atol=1e-9, rtol=0)


# ---- labelings ----------------------------------------------------------------------------------------------------


def written_out(u, labels, K, scale, tau):
    """Every labeling of one episode's labelled items and its log-probability, by the formulas of the docstrings."""
    seen = [n for n in range(len(u)) if (labels[n] >= 0).any()]
    centre = u[seen].mean(0)
    spread = (u[seen] - centre).square().sum() / max(len(seen) - 1, 1)
    u = (u - centre) / spread.sqrt()
    out = {}
    for classes in itertools.product(range(K), repeat=len(seen)):
        log_p = 0.0
        for k in range(K):
            mine = u[[n for n, c in zip(seen, classes, strict=True) if c == k]]
            log_p -= 0.5 * scale * float(mine.square().sum() - mine.sum(0).square().sum() / (tau + len(mine)))
            log_p += math.lgamma(labelings.B + 1 + len(mine))
        for r in range(labels.shape[1]):
            counts = [[0] * K for _ in range(K)]
            for n, c in zip(seen, classes, strict=True):
                if labels[n, r] >= 0:
                    counts[c][int(labels[n, r])] += 1
            kinds = by_hand(counts, K)
            log_p += math.log(sum(p * math.exp(x) for p, x in zip(annotator_skills.P_KIND, kinds, strict=True)))
        out[classes] = log_p
    return seen, out


def test_a_search_that_keeps_all_finds_the_posterior_written_out():
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


def marginals(u, labels, K, scale, tau):
    """(N, K), of items that all have labels: sums over all labelings."""
    _, every = written_out(u, labels, K, scale, tau)
    weights = torch.tensor(list(every.values()), dtype=torch.float64).softmax(0)
    out = torch.zeros(len(u), K, dtype=torch.float64)
    for weight, classes in zip(weights, every, strict=True):
        out[torch.arange(len(u)), list(classes)] += weight
    return out


def test_beliefs_about_items_are_exact_where_all_labelings_are_kept():
    u, labels = problem(seed=3)
    labels[:, :, -1] = -1  # annotators who say nothing of some items, or of all
    labels[0, 0, 0] = -1
    for b in range(len(u)):
        found = labelings.fit(u[b], labels[b], 3, scale=5.0, tau=0.4, width=3**4)
        exact = marginals(u[b], labels[b], 3, 5.0, 0.4)
        torch.testing.assert_close(labelings.item_beliefs(found, labels[b]), exact)
        torch.testing.assert_close(found.responsibilities, exact)


def test_beliefs_about_items_keep_their_doubt_where_few_labelings_are_kept():
    """The share of labelings calls everything certain that two labelings agree on."""
    off, off_by_shares = 0.0, 0.0
    for seed in range(10):
        u, labels = (x[0] for x in problem(seed=seed, B=1, N=5))
        exact = marginals(u, labels, 3, 5.0, 0.4)
        found = labelings.fit(u, labels, 3, scale=5.0, tau=0.4, width=2)
        off += float((labelings.item_beliefs(found, labels) - exact).abs().sum())
        off_by_shares += float((found.responsibilities - exact).abs().sum())
    assert off < 0.8 * off_by_shares


def test_the_classifier_averages_the_papers_over_labelings():
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
def test_what_is_found_is_distinct_and_normalised(seed, width, K, N):
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
    u, labels, *_ = clouds()
    u = u.double()
    masses = []
    for width in (1, 8, 64):
        found = labelings.fit(u, labels, 4, width=width)
        centred = (u - found.centre) / found.unit
        counts = labelings._counts(found.labelings, labels, 4)
        table = annotator_skills.coin_table(13, 4, u)
        log_p = labelings.log_probability(
            found.labelings, centred @ centred.mT, counts, annotator_skills.Unknown(table), found.scale, found.tau
        )
        masses.append(log_p.logsumexp(-1).mean())
    assert masses[0] < masses[1] <= masses[2] + 1e-9


def test_scores_of_the_search_are_the_probabilities_themselves(monkeypatch):
    """The beam adds up gains; `log_probability` judges whole labelings. They must agree on which is the best."""
    u, labels = problem(seed=11, B=8, N=6, R=4)
    found = labelings.fit(u, labels, 3, width=20)
    log_weights = found.log_weights
    assert (log_weights[:, :-1] >= log_weights[:, 1:] - 1e-9).all()  # the beam's own order is by probability


def test_known_annotators_are_bayes_rule():
    """With all items at one place, an item's class depends on its own labels and the matrices alone."""
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
        # b = 100 keeps classes all but independent
        torch.testing.assert_close(found.responsibilities[b, n], likelihood / likelihood.sum(), atol=0.01, rtol=0)
    torch.testing.assert_close(found.confusion, matrices)


def test_outlier_labels_are_seen_through_where_em_is_not():
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


def test_queries_come_in_pieces_where_they_are_many(monkeypatch):
    u, labels, _, q, _ = clouds(B=3)
    whole = labelings.fit(u, labels, 4).log_proba(q)
    monkeypatch.setattr(labelings, "AT_ONCE", 3 * 32 * 4 * 7)
    torch.testing.assert_close(labelings.fit(u, labels, 4).log_proba(q), whole)


def test_moving_turning_and_stretching_the_embeddings_changes_nothing():
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


def test_identical_items_and_nobody_labelling_are_no_trouble():
    alike = torch.ones(5, 3)
    found = labelings.fit(alike, torch.tensor([[0, 0], [1, 1], [0, 1], [1, -1], [0, 0]]), 2)
    assert found.responsibilities.isfinite().all()
    assert found.log_proba(alike).isfinite().all()
    assert found.responsibilities[0].argmax() == 0
    assert found.responsibilities[1].argmax() == 1
    silent = labelings.fit(torch.randn(4, 3), torch.full((4, 2), -1), 3)
    torch.testing.assert_close(silent.responsibilities, torch.full((4, 3), 1 / 3))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"n_classes": 1}, "n_classes is 1, expected 2 or more"),
        ({"width": 0}, "width is 0, expected 1 or more"),
        ({"labels": torch.zeros(3, 2)}, "labels is torch.float32"),
        ({"labels": torch.zeros(4, 2).long()}, r"labels is torch.int64 of shape \(4, 2\)"),
        ({"embeddings": torch.zeros(3, 2).long()}, "embeddings is torch.int64"),
    ],
)
def test_bad_input_is_told(change, said):
    given = {"embeddings": torch.zeros(3, 2), "labels": torch.zeros(3, 2).long(), "n_classes": 2, "width": 4} | change
    with pytest.raises(CrowdshotError, match=said):
        labelings.fit(given["embeddings"], given["labels"], given["n_classes"], width=given["width"])
    with pytest.raises(CrowdshotError, match="queries is of shape"):
        labelings.fit(torch.zeros(3, 2), torch.zeros(3, 2).long(), 2).log_proba(torch.zeros(1, 5))


def test_the_search_takes_any_order():
    """Which labelings are found with room for all does not depend on the order of items."""
    u, labels = problem(seed=17, B=1, N=4, missing=0.0)
    gram = u @ u.mT
    crowd = annotator_skills.Unknown(annotator_skills.coin_table(5, 3, u))
    number = torch.tensor(5.0, dtype=torch.float64)
    found = []
    for order in ([0, 1, 2, 3], [3, 1, 0, 2]):
        z, real = search(
            gram,
            labels,
            torch.tensor([order]),
            crowd,
            labelings.log_class_probs,
            3,
            number,
            number / 10,
            81,
            torch.full((1, 4), -1),
        )
        assert real.all()
        found.append([tuple(x) for x in z[0].tolist()])
    assert set(found[0]) == set(found[1])
    assert found[0][0] == found[1][0]
