"""LRMV, LRDS: logistic regression on the raw items.

Authors: David R. Cox
Title: The Regression Analysis of Binary Sequences
Year: 1958
Link: https://doi.org/10.1111/j.2517-6161.1958.tb00292.x

A linear map from pixels (or features) to class scores is fitted to the support set alone, with aggregated labels
(majority vote or posterior of Dawid–Skene). It uses no source classes, so it shows how much they contribute.

Our choices where the paper is silent. The posteriors of Dawid–Skene are soft labels: an item counts once for every
class, weighted by its posterior. Inputs are scaled like the input of the network. The objective is that of
scikit-learn: C multiplies the loss, the intercept is not penalised, a class without weight has probability zero, and
with two remaining classes the penalty applies to one weight vector, not to two.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crowdshot.methods import Candidate, CrowdEpisodes
from crowdshot_paper.compared import prototypical

NEWTON_STEPS, HALVINGS, TOLERANCE = 50, 12, 1e-7
NUMBERS_AT_ONCE = 2**26  # in the Hessians of a batch


def logistic_regression(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    B, K = len(episodes.labels), episodes.n_classes
    support, query = (x.flatten(2).double() for x in (episodes.support, episodes.query))
    support, query = in_span(support, query)
    at_once = max(1, NUMBERS_AT_ONCE // ((support.shape[-1] + 1) * K) ** 2)
    out = []
    for candidate in candidates:
        targets = prototypical.aggregated(episodes.labels, K, candidate).double()
        parts = []
        for start in range(0, B, at_once):
            which = slice(start, start + at_once)
            weight, bias = fit(support[which], targets[which], float(candidate["C"]))
            parts.append((query[which] @ weight + bias[:, None]).softmax(-1))
        out.append(torch.cat(parts).float())
    return out


def in_span(support: Tensor, query: Tensor) -> tuple[Tensor, Tensor]:
    """Project support (B, N, D) and query (B, Q, D) to at most N dimensions.

    The penalised solution lies in the span of the centred support items, so coordinates in this span are sufficient.
    The rest of a query does not change its scores. The intercept absorbs the centre.
    """
    centre = support.mean(1, keepdim=True)
    support, query = support - centre, query - centre
    if support.shape[1] >= support.shape[2]:
        return support, query
    basis = torch.linalg.qr(support.mT).Q  # (B, D, N)
    return support @ basis, query @ basis


def fit(x: Tensor, targets: Tensor, C: float) -> tuple[Tensor, Tensor]:
    """Minimise C sum_nk t_nk (-log p_nk) + |W|^2 / 2 by damped Newton steps.

    Adding a constant to all intercepts has no effect; a penalty on their sum, which is zero at the solution, makes them
    unique.

    Returns
    -------
    weights : Tensor of shape (B, d, K)
    intercepts : Tensor of shape (B, K)
        -inf for classes without weight.
    """
    B, _, d = x.shape
    K = targets.shape[-1]
    present = targets.sum(1) > 0  # (B, K)
    unlabelled = ~present.any(-1, keepdim=True)  # all classes are then equally probable
    pinned = (~present | unlabelled).to(x)  # intercepts that the data do not determine: the Hessian would be singular
    present = present | unlabelled
    cost = torch.where(present.sum(-1) == 2, C / 2, C).to(x)  # (B,)
    x = torch.cat([x, torch.ones_like(x[..., :1])], -1)  # (B, N, d + 1)
    mass = targets.sum(-1)  # (B, N)
    penalty = torch.ones(d + 1, dtype=x.dtype, device=x.device)
    penalty[-1] = 0
    ridge = penalty[:, None].expand(d + 1, K).flatten().repeat(B, 1)  # (B, (d + 1) K)
    ridge[:, -K:] = pinned
    gauge = torch.zeros_like(ridge[:1])
    gauge[:, -K:] = 1
    hidden = torch.zeros(B, 1, K, dtype=x.dtype, device=x.device).masked_fill(~present[:, None], -torch.inf)

    def objective(theta: Tensor) -> Tensor:
        log_p = (x @ theta + hidden).log_softmax(-1)
        loss = -torch.where(targets > 0, targets * log_p, 0.0).sum((1, 2))
        flat = theta.flatten(1)
        return cost * loss + 0.5 * (ridge * flat.square()).sum(-1) + 0.5 * (flat * gauge).sum(-1).square()

    theta = torch.zeros(B, d + 1, K, dtype=x.dtype, device=x.device)
    value = objective(theta)
    eye = torch.eye(K, dtype=x.dtype, device=x.device)
    for _ in range(NEWTON_STEPS):
        p = (x @ theta + hidden).softmax(-1)
        flat = theta.flatten(1)
        gradient = cost[:, None, None] * x.mT @ (mass[..., None] * p - targets)
        gradient = gradient.flatten(1) + ridge * flat + (flat * gauge).sum(-1, keepdim=True) * gauge
        curvature = mass[..., None, None] * (p[..., :, None] * eye - p[..., :, None] * p[..., None, :])  # (B, N, K, K)
        hessian = torch.einsum("b,bni,bnkl,bnj->bikjl", cost, x, curvature, x).reshape(B, (d + 1) * K, (d + 1) * K)
        hessian = hessian + torch.diag_embed(ridge) + gauge.mT @ gauge
        step = torch.linalg.solve(hessian, gradient)
        descent = (gradient * step).sum(-1)
        size = torch.ones_like(value)
        for _ in range(HALVINGS):  # halve the step of each episode until its objective decreases
            good = objective((flat - size[:, None] * step).view_as(theta)) <= value - 1e-4 * size * descent + 1e-12
            if bool(good.all()):
                break
            size = torch.where(good, size, size / 2)
        theta = (flat - size[:, None] * step).view_as(theta)
        value = objective(theta)
        if bool((descent < TOLERANCE**2).all()):
            break
    return theta[:, :-1], theta[:, -1] + hidden[:, 0]
