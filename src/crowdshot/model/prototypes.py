"""Class averages of embeddings, weighted by a crowd's verdict or by LNL's similarities, and distances to them."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from crowdshot.model import mixture

# ---- votes ------------------------------------------------------------
#
# From what annotators said to one posterior an item: majority vote, soft vote, Dawid–Skene; (B, N, R) -> (B, N, K).
#
# What follows takes these as soft labels, cross-entropy targets or weights. An item without a label has a row of zeros
# and so no say in anything. Ties of a majority vote go to the first class, as in `aggregate.majority_vote`.


B, C = 100.0, 1.0  # Dawid-Skene's priors, "as in the proposed method"


def vote_counts(labels: Tensor, n_classes: int) -> Tensor:
    """How many annotators gave each item each label, (B, N, K) float."""
    said = mixture.dense_votes(labels, n_classes, torch.float32)
    return said.reshape(*labels.shape, n_classes).sum(-2)


def majority_vote(labels: Tensor, n_classes: int) -> Tensor:
    """One-hot."""
    votes = vote_counts(labels, n_classes)
    return F.one_hot(votes.argmax(-1), n_classes).to(votes.dtype) * (votes.sum(-1, keepdim=True) > 0)


def soft_vote(labels: Tensor, n_classes: int) -> Tensor:
    """Each class's share of the item's labels."""
    votes = vote_counts(labels, n_classes)
    return votes / votes.sum(-1, keepdim=True).clamp_min(1)


def dawid_skene(labels: Tensor, n_classes: int, steps: int) -> Tensor:
    """Dawid and Skene 1979 with the paper's priors: the mixture of items that show nothing.

    ``steps`` is the paper's J. A classifier learns from the responsibilities that go into the last M-step, so that
    with J = 1 it learns from the soft votes, as the paper says, and with J from those after J - 1 full steps.
    """
    nothing = torch.zeros(*labels.shape[:2], 0, device=labels.device)
    fit = mixture.fit(nothing, labels, n_classes, steps=steps, b=B, c=C, track=False, classifier_only=True)
    return fit.responsibilities * (labels >= 0).any(-1, keepdim=True)


# ---- prototypes ------------------------------------------------------------


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
    counts = vote_counts(labels, n_classes).to(support.dtype)
    centred = support - support.mean(-2, keepdim=True)
    norms = centred.square().sum(-1)
    distances = (norms[..., :, None] + norms[..., None, :] - 2 * centred @ centred.mT).clamp_min(0)
    others = (counts.sum(-2, keepdim=True) - 1).clamp_min(1)
    far = distances @ counts / others  # (..., N, K)
    scores = torch.where(counts > 0, counts.clamp_min(1).log() - sharpness * far, -1e9)
    return scores.softmax(-2) * (counts.sum(-2, keepdim=True) > 0)


def log_proba(support: Tensor, labels: Tensor, query: Tensor, n_classes: int, sharpness: float = 1.0) -> Tensor:
    return classify(support, weights(support, labels, n_classes, sharpness), query)
