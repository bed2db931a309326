"""Bayesian rivals on labels: IBCC, EBCC and the Bayesian weighted average, from the equations of their papers.

**EBCC** (Li, Rubinstein and Cohn 2019) gives every class M subtypes. Item n has a class z_n and a subtype g_n;
annotator r has a row of a confusion matrix for each class and subtype:

    z_n ~ tau,   tau ~ Dirichlet(a);   g_n ~ pi_k if z_n = k,   pi_k ~ Dirichlet(a_pi / M)
    y_n^r ~ v_rkm,   v_rkm ~ Dirichlet(beta_k),   beta_kl = 4 if k = l, else 1

so that annotators are right or wrong together on the items of a subtype. Mean-field variational Bayes repeats, with
rho_nkm = q(z_n = k, g_n = m) and psi the digamma function,

    nu_k = a_k + sum_nm rho_nkm,   eta_km = a_pi / M + sum_n rho_nkm,
    mu_rkml = beta_kl + sum of rho_nkm over the items n that r labelled l,
    rho_nkm proportional to exp(psi(nu_k) - psi(sum nu) + psi(eta_km) - psi(sum_m eta_km)
                                + sum_r psi(mu_rkm,y) - psi(sum_l mu_rkml)).

As in the paper: M = 10, a_pi = 0.1, a_k the number of votes of class k, and of 40 random starts the one with the
highest evidence lower bound. The bound after an update of rho is sum_n log(normaliser of rho_n) less the
Kullback-Leibler divergences of the Dirichlet posteriors from their priors. Large crowds get fewer starts (`starts_of`).

**IBCC** (Kim and Ghahramani 2012) is the same with one subtype and a = 1.

**BWA** (Li, Rubinstein and Cohn 2019) takes each class by itself: y is 1 where a label names it, else 0, and

    y_n^r ~ Normal(z_n, 1 / v_r),   z_n ~ Normal(mean of z, 1 / lambda),   v_r ~ Gamma(a_v / 2, b_v / 2)

with lambda = 1, a_v = 15 and b_v / a_v the labels' variance within items, times 4 (1 - 1 / K). Updates of z and v are
repeated from the vote.

References: Y. Li, B. Rubinstein and T. Cohn, Exploiting worker correlation for label aggregation in crowdsourcing,
ICML 2019, and Truth inference at scale: a Bayesian model for adjudicating highly redundant crowd annotations, WWW 2019.
H.-C. Kim and Z. Ghahramani, Bayesian classifier combination, AISTATS 2012.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.special import gammaln, logsumexp, psi

from crowdshot import Annotations, aggregate

Floats = NDArray[np.float64]

SUBTYPES, STARTS = 10, 40
SUBTYPE_PRIOR = 0.1  # a_pi
RIGHT, WRONG = 4.0, 1.0  # beta
STEPS, TOLERANCE = 500, 1e-3
MOST_WORK = 2e6  # of all starts: for each, labels times classes, and LOGARITHM for each cell of a confusion matrix
LOGARITHM = 30  # time of a digamma function, in multiplications


class Fit(NamedTuple):
    joint: Floats  # (N, K, M) rho
    bound: float  # the evidence lower bound

    @property
    def posterior(self) -> Floats:
        found: Floats = self.joint.sum(2)
        return found


def starts_of(annotations: Annotations) -> int:
    K = annotations.n_classes
    work = len(annotations) * K + LOGARITHM * annotations.n_annotators * K**2
    return int(np.clip(MOST_WORK / max(work, 1), 1, STARTS))


def ebcc(annotations: Annotations, subtypes: int = SUBTYPES, starts: int | None = None) -> Floats:
    """Return the posteriors of the start with the highest evidence lower bound."""
    vote = aggregate.soft_vote(annotations)
    matrix, class_prior = label_matrix(annotations), vote.sum(0)
    best: Fit | None = None
    for seed in range(starts or starts_of(annotations)):
        split = np.random.default_rng(seed).dirichlet(np.ones(subtypes), vote.shape)
        fit = variational_bayes(matrix, vote[:, :, None] * split, class_prior)
        if best is None or fit.bound > best.bound:
            best = fit
    assert best is not None
    return best.posterior


def ibcc(annotations: Annotations) -> Floats:
    vote = aggregate.soft_vote(annotations)
    return variational_bayes(label_matrix(annotations), vote[:, :, None], np.ones(annotations.n_classes)).posterior


def label_matrix(annotations: Annotations) -> sparse.csr_array:
    """Return (N, R·K) with a 1 at [item, annotator · K + label]."""
    shape = (annotations.n_items, annotations.n_annotators * annotations.n_classes)
    cells = (annotations.item, annotations.annotator * annotations.n_classes + annotations.label)
    return sparse.coo_array((np.ones(len(annotations)), cells), shape=shape).tocsr()


def variational_bayes(matrix: sparse.csr_array, joint: Floats, class_prior: Floats, steps: int = STEPS) -> Fit:
    """Repeat the updates from ``joint`` (N, K, M) until no posterior of a class changes by more than TOLERANCE."""
    N, K, M = joint.shape
    beta = WRONG + (RIGHT - WRONG) * np.eye(K)[:, :, None]  # (K observed, K true, 1)
    transposed, bound = matrix.T.tocsr(), -np.inf
    for _ in range(steps):
        before = joint.sum(2)
        nu, eta = class_prior + before.sum(0), SUBTYPE_PRIOR / M + joint.sum(0)
        mu = (transposed @ joint.reshape(N, -1)).reshape(-1, K, K, M) + beta  # (R, observed, true, M)
        log_tau, log_pi, log_v = expected_log(nu, 0), expected_log(eta, 1), expected_log(mu, 1)
        scores = matrix @ log_v.reshape(-1, K * M) + (log_tau[:, None] + log_pi).ravel()
        normaliser = logsumexp(scores, axis=1, keepdims=True)
        joint = np.exp(scores - normaliser).reshape(N, K, M)
        bound = float(normaliser.sum()) - sum(
            divergence(posterior, prior, mean, axis)
            for posterior, prior, mean, axis in (
                (nu, class_prior, log_tau, 0),
                (eta, np.full_like(eta, SUBTYPE_PRIOR / M), log_pi, 1),
                (mu, np.broadcast_to(beta, mu.shape), log_v, 1),
            )
        )
        if np.abs(joint.sum(2) - before).max() < TOLERANCE:
            break
    return Fit(joint, bound)


def expected_log(counts: Floats, axis: int) -> Floats:
    """Return E[log p] for p ~ Dirichlet(counts) along an axis."""
    found: Floats = psi(counts) - psi(counts.sum(axis, keepdims=True))
    return found


def divergence(posterior: Floats, prior: Floats, mean_log: Floats, axis: int) -> float:
    """Return the summed Kullback-Leibler divergences of Dirichlet posteriors from their priors."""
    total = gammaln(posterior.sum(axis)) - gammaln(posterior).sum(axis)
    total = total - gammaln(prior.sum(axis)) + gammaln(prior).sum(axis)
    return float((total + ((posterior - prior) * mean_log).sum(axis)).sum())


def bwa(annotations: Annotations, strength: float = 15.0, pull: float = 1.0) -> Floats:
    """Return the estimates z of all classes, clipped and normalised; ``strength`` is a_v, ``pull`` lambda."""
    K, N, R = annotations.n_classes, annotations.n_items, annotations.n_annotators
    item, annotator = annotations.item, annotations.annotator
    per_item, per_annotator = np.bincount(item, minlength=N), np.bincount(annotator, minlength=R)
    labelled, found = per_item > 0, np.empty((N, K))
    for k in range(K):
        y = (annotations.label == k).astype(np.float64)
        z = np.bincount(item, y, N) / per_item.clip(1)
        scale = strength * (per_item @ (z * (1 - z))) / per_item.sum() * 4 * (1 - 1 / K)
        for _ in range(STEPS):
            before, mean = z, z[labelled].mean()
            v = (strength + per_annotator) / np.maximum(
                scale + np.bincount(annotator, (y - z[item]) ** 2, R), 1e-12
            )  # without any disagreement on the class, scale is 0
            z = (pull * mean + np.bincount(item, y * v[annotator], N)) / (pull + np.bincount(item, v[annotator], N))
            if np.allclose(z, before, rtol=1e-3):
                break
        found[:, k] = z
    found = found.clip(1e-9, 1)
    shares: Floats = found / found.sum(1, keepdims=True)
    return shares
