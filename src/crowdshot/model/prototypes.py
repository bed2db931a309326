"""Class averages of embeddings, weighted by a crowd's verdict or by LNL's similarities, and distances to them."""

from __future__ import annotations

import torch
from torch import Tensor

from crowdshot.model import votes


def classify(support: Tensor, weights: Tensor, query: Tensor) -> Tensor:
    """Log-probabilities (..., Q, K) from embeddings (..., N, D), their weights (..., N, K) and queries (..., Q, D).

    mu_k = sum_n w_nk u_n / sum_n w_nk, and log p(k | u) = -|u - mu_k|^2 / 2 up to a constant.
    """
    everything = weights.sum(-1, keepdim=True)
    centre = (everything * support).sum(-2, keepdim=True) / everything.sum(-2, keepdim=True).clamp_min(1e-12)
    total = weights.sum(-2)[..., None]  # (..., K, 1)
    means = weights.mT @ (support - centre) / total.clamp_min(1e-12)  # around the centre; zero where there is no weight
    return ((query - centre) @ means.mT - 0.5 * means.square().sum(-1)[..., None, :]).log_softmax(-1)


def known_classes(log_p: Tensor, weights: Tensor) -> Tensor:
    """Probabilities (..., Q, K) of the classes that have weight; where none has, all stay as they are."""
    known = weights.sum(-2, keepdim=True) > 0  # (..., 1, K)
    return log_p.masked_fill(~known & known.any(-1, keepdim=True), -torch.inf).softmax(-1)


def weights(support: Tensor, labels: Tensor, n_classes: int, sharpness: float = 1.0) -> Tensor:
    """(..., N, D) and (..., N, R) -> (..., N, K), columns sum to 1; zero for a class that nobody named.

    With c_nk labels k on item n: d_nk = sum_m c_mk |u_n - u_m|^2 / (sum_m c_mk - 1), w_nk ~ c_nk exp(-sharpness d_nk).
    """
    counts = votes.counts(labels, n_classes).to(support.dtype)
    centred = support - support.mean(-2, keepdim=True)
    norms = centred.square().sum(-1)
    distances = (norms[..., :, None] + norms[..., None, :] - 2 * centred @ centred.mT).clamp_min(0)
    others = (counts.sum(-2, keepdim=True) - 1).clamp_min(1)
    far = distances @ counts / others  # (..., N, K)
    scores = torch.where(counts > 0, counts.clamp_min(1).log() - sharpness * far, -1e9)
    return scores.softmax(-2) * (counts.sum(-2, keepdim=True) > 0)


def log_proba(support: Tensor, labels: Tensor, query: Tensor, n_classes: int, sharpness: float = 1.0) -> Tensor:
    return classify(support, weights(support, labels, n_classes, sharpness), query)
