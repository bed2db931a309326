"""Small problems with known answers, and a plain second implementation of the model."""

from __future__ import annotations

import math

import numpy as np
import torch
from scipy.special import gammaln, logsumexp


def random_episode(seed, batch=(), N=12, R=5, K=4, D=6, missing=0.2, spread=2.0, dtype=torch.float64):
    """Draw embeddings around K centres, and labels of which 70 % copy the truth; ``missing`` is the share of -1."""
    g = torch.Generator().manual_seed(seed)
    truth = torch.randint(K, (*batch, N), generator=g)
    centres = spread * torch.randn(*batch, K, D, generator=g, dtype=dtype)
    u = centres.gather(-2, truth[..., None].expand(*batch, N, D)) + torch.randn(*batch, N, D, generator=g, dtype=dtype)
    wrong = torch.randint(K, (*batch, N, R), generator=g)
    right = torch.rand(*batch, N, R, generator=g) < 0.7
    y = torch.where(right, truth[..., None], wrong)
    y[torch.rand(*batch, N, R, generator=g) < missing] = -1
    return u, y, truth


def em_by_loops(u, y, K, steps, tau, b, c):
    """Run EM, equations (1) to (8), as NumPy loops over items, classes and annotators, for one episode.

    The covariance is the identity. Returns means (K, D), class probabilities (K,), confusion (R, K, K),
    responsibilities (N, K) and the MAP objective after every step.
    """
    N, D = u.shape
    R = y.shape[1]
    has_label = [any(y[n, r] >= 0 for r in range(R)) for n in range(N)]
    lam = np.full((N, K), 1 / K)
    for n in range(N):
        votes = [y[n, r] for r in range(R) if y[n, r] >= 0]
        for k in range(K):
            if votes:
                lam[n, k] = sum(v == k for v in votes) / len(votes)
    objective = []
    for _ in range(steps):
        mu, pi, alpha = np.zeros((K, D)), np.zeros(K), np.zeros((R, K, K))
        n_labelled = sum(has_label)
        for k in range(K):
            n_k = sum(lam[n, k] for n in range(N) if has_label[n])
            mu[k] = sum(lam[n, k] * u[n] for n in range(N) if has_label[n]) / (tau + n_k)
            pi[k] = (n_k + b) / (K * b + n_labelled)
            for r in range(R):
                seen = [n for n in range(N) if y[n, r] >= 0]
                for l in range(K):  # noqa: E741
                    hits = sum(lam[n, k] for n in seen if y[n, r] == l)
                    alpha[r, k, l] = (hits + c) / (sum(lam[n, k] for n in seen) + K * c)
        log_likelihood = 0.0
        for n in range(N):
            log_joint = np.zeros(K)
            for k in range(K):
                log_joint[k] = -D / 2 * math.log(2 * math.pi) - 0.5 * np.sum((u[n] - mu[k]) ** 2) + math.log(pi[k])
                log_joint[k] += sum(math.log(alpha[r, k, y[n, r]]) for r in range(R) if y[n, r] >= 0)
            lam[n] = np.exp(log_joint - logsumexp(log_joint))
            log_likelihood += logsumexp(log_joint) if has_label[n] else 0.0
        log_prior = gammaln(K * (b + 1)) - K * gammaln(b + 1) + b * np.log(pi).sum()
        for k in range(K):
            log_prior += D / 2 * math.log(tau / (2 * math.pi)) - tau / 2 * np.sum(mu[k] ** 2)
            for r in range(R):
                log_prior += gammaln(K * (c + 1)) - K * gammaln(c + 1) + c * np.log(alpha[r, k]).sum()
        objective.append(log_likelihood + log_prior)
    return mu, pi, alpha, lam, np.array(objective)
