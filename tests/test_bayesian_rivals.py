"""Compare IBCC, EBCC and BWA of benchmarks/rivals_bayesian.py with plain loops over the papers' equations."""

import importlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.special import gammaln, psi

from crowdshot import Annotations, aggregate

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
bayesian = importlib.import_module("rivals_bayesian")


def crowd(seed: int, N: int = 12, R: int = 4, K: int = 3) -> Annotations:
    random = np.random.default_rng(seed)
    truth = random.integers(0, K, N)
    labels = np.where(random.random((N, R)) < 0.7, truth[:, None], random.integers(0, K, (N, R))).astype(object)
    labels[random.random((N, R)) < 0.2] = None
    return Annotations.from_matrix(labels)


def vb_by_loops(ann, joint, class_prior, steps):
    """Return rho and the bound: E[log p(labels, z, g, parameters)] plus the entropy of q, both by their definitions."""
    N, K, M = joint.shape
    labels = list(zip(ann.item, ann.annotator, ann.label, strict=True))
    beta = [[4.0 if k == l else 1.0 for l in range(K)] for k in range(K)]  # noqa: E741

    def log_mean(counts):
        return [psi(c) - psi(sum(counts)) for c in counts]

    for _ in range(steps):
        nu = [class_prior[k] + joint[:, k].sum() for k in range(K)]
        eta = [[0.1 / M + joint[:, k, m].sum() for m in range(M)] for k in range(K)]
        mu = [[[list(beta[k]) for m in range(M)] for k in range(K)] for r in range(ann.n_annotators)]
        for n, r, l in labels:  # noqa: E741
            for k in range(K):
                for m in range(M):
                    mu[r][k][m][l] += joint[n, k, m]
        tau, pi = log_mean(nu), [log_mean(row) for row in eta]
        v = [[[log_mean(mu[r][k][m]) for m in range(M)] for k in range(K)] for r in range(ann.n_annotators)]
        score = np.array([[[tau[k] + pi[k][m] for m in range(M)] for k in range(K)] for n in range(N)])
        for n, r, l in labels:  # noqa: E741
            for k in range(K):
                for m in range(M):
                    score[n, k, m] += v[r][k][m][l]
        joint = np.array([np.exp(s - s.max()) / np.exp(s - s.max()).sum() for s in score])
    bound = float((joint * score).sum() - (joint * np.log(joint)).sum())

    def dirichlet(posterior, prior, means):  # E[log prior density] + entropy of the posterior
        def log_density(counts):
            return (
                gammaln(sum(counts))
                - sum(gammaln(c) for c in counts)
                + sum((c - 1) * mean for c, mean in zip(counts, means, strict=True))
            )

        return log_density(prior) - log_density(posterior)

    bound += dirichlet(nu, class_prior, tau)
    for k in range(K):
        bound += dirichlet(eta[k], [0.1 / M] * M, pi[k])
        for r in range(ann.n_annotators):
            bound += sum(dirichlet(mu[r][k][m], beta[k], v[r][k][m]) for m in range(M))
    return joint, bound


@pytest.mark.parametrize("seed", range(3))
def test_variational_bayes_equals_plain_loops(seed):
    ann = crowd(seed)
    vote = aggregate.soft_vote(ann)
    start = vote[:, :, None] * np.random.default_rng(seed).dirichlet(np.ones(2), vote.shape)
    found = bayesian.variational_bayes(bayesian.label_matrix(ann), start, vote.sum(0), steps=4)
    joint, bound = vb_by_loops(ann, start, list(vote.sum(0)), 4)
    np.testing.assert_allclose(found.joint, joint, atol=1e-10)
    assert found.bound == pytest.approx(bound, abs=1e-8)


def test_the_bound_never_falls():
    ann = crowd(0, N=30)
    vote = aggregate.soft_vote(ann)
    start = vote[:, :, None] * np.random.default_rng(0).dirichlet(np.ones(3), vote.shape)
    bounds = [
        bayesian.variational_bayes(bayesian.label_matrix(ann), start, vote.sum(0), steps=steps).bound
        for steps in range(1, 15)
    ]
    assert (np.diff(bounds) > -1e-9).all()


def test_ibcc_equals_plain_loops_with_one_subtype():
    ann = crowd(5)
    vote = aggregate.soft_vote(ann)
    converged, _ = vb_by_loops(ann, vote[:, :, None], [1.0] * 3, 60)
    np.testing.assert_allclose(bayesian.ibcc(ann), converged[:, :, 0], atol=0.02)  # stops at changes below 0.001


def test_ebcc_keeps_the_start_with_the_highest_bound(monkeypatch):
    ann = crowd(1)
    fits = iter([bayesian.Fit(np.full((12, 3, 1), 1 / 3), bound) for bound in (-5.0, -3.0, -4.0)])
    given = []
    monkeypatch.setattr(bayesian, "variational_bayes", lambda *_: given.append(next(fits)) or given[-1])
    np.testing.assert_array_equal(bayesian.ebcc(ann, starts=3), given[1].posterior)
    assert len(given) == 3


def test_ebcc_finds_annotators_who_err_together():
    """Four of seven annotators err together on half of class 0; the vote is wrong for these items, EBCC is right."""
    random = np.random.default_rng(0)
    truth = np.repeat([0, 0, 1, 1], 100)
    hard = np.arange(400) < 100  # class 0, labelled 1 by annotators 0 to 3 and correctly by 4 to 6
    labels = np.where(random.random((400, 7)) < 0.9, truth[:, None], 1 - truth[:, None])
    labels[:100, :4] = (random.random((100, 4)) < 0.9).astype(int)
    found = bayesian.ebcc(Annotations.from_matrix(labels), subtypes=3, starts=5).argmax(1)
    voted = (labels.mean(1) > 0.5).astype(int)
    assert (found == truth)[hard].mean() > 0.9
    assert (voted == truth)[hard].mean() < 0.5


def test_bwa_equals_plain_loops():
    ann = crowd(2)
    N, K, R = ann.n_items, ann.n_classes, ann.n_annotators
    labels = list(zip(ann.item, ann.annotator, ann.label, strict=True))
    expected = np.zeros((N, K))
    for k in range(K):
        of_item = [[float(l == k) for n, _, l in labels if n == item] for item in range(N)]  # noqa: E741
        z = [sum(y) / len(y) for y in of_item]
        within = sum((y - z[n]) ** 2 for n in range(N) for y in of_item[n]) / len(labels)
        for _ in range(500):
            before, mean = list(z), sum(z) / N
            v = []
            for r in range(R):
                error = sum((float(l == k) - z[n]) ** 2 for n, who, l in labels if who == r)  # noqa: E741
                v.append((15 + sum(who == r for _, who, _ in labels)) / (15 * within * 4 * (1 - 1 / K) + error))
            for n in range(N):
                own = [(v[who], float(l == k)) for item, who, l in labels if item == n]  # noqa: E741
                z[n] = (mean + sum(w * y for w, y in own)) / (1 + sum(w for w, _ in own))
            if all(math.isclose(a, b, rel_tol=1e-3, abs_tol=1e-8) for a, b in zip(z, before, strict=True)):
                break
        expected[:, k] = z
    expected = expected.clip(1e-9, 1)
    np.testing.assert_allclose(bayesian.bwa(ann), expected / expected.sum(1, keepdims=True), atol=1e-3)


def test_large_crowds_get_fewer_starts():
    ann = crowd(0)
    assert bayesian.starts_of(ann) == 40
    assert bayesian.starts_of(Annotations.from_matrix(np.tile([0, 1], (60_000, 1)))) == 8
