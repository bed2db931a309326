"""Prototypical classifiers: class means of embeddings, weighted by votes, Dawid-Skene posteriors or LNL's similarities.

With weights w_nk of support items u_n, the classifier of queries u is

    mu_k = sum_n w_nk u_n / sum_n w_nk,   log p(k | u) = -|u - mu_k|^2 / 2 + constant

`majority_vote`, `soft_vote` and `dawid_skene` turn labels (B, N, R) into weights (B, N, K); `weights` adds similarities
between items, as LNL does. An item without a label has zero weights.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from crowdshot.model import mixture

# ---- votes -----------------------------------------------------------------------------------------------------------


B, C = 100.0, 1.0  # pseudo-counts of Dawid-Skene; the paper uses those of its own method


def vote_counts(labels: Tensor, n_classes: int) -> Tensor:
    """Count the labels of each item and class, (B, N, K) float."""
    votes = mixture.dense_votes(labels, n_classes, torch.float32)
    return votes.reshape(*labels.shape, n_classes).sum(-2)


def majority_vote(labels: Tensor, n_classes: int) -> Tensor:
    """Return one-hot rows; ties go to the first class, as in `aggregate.majority_vote`."""
    votes = vote_counts(labels, n_classes)
    return F.one_hot(votes.argmax(-1), n_classes).to(votes.dtype) * (votes.sum(-1, keepdim=True) > 0)


def soft_vote(labels: Tensor, n_classes: int) -> Tensor:
    """Return each class's share of the item's labels."""
    votes = vote_counts(labels, n_classes)
    return votes / votes.sum(-1, keepdim=True).clamp_min(1)


def dawid_skene(labels: Tensor, n_classes: int, steps: int) -> Tensor:
    """Return Dawid-Skene posteriors with the paper's priors: the mixture model with embeddings of dimension zero.

    ``steps`` is the paper's J. The result is what goes into the last M-step. With J = 1 these are the soft votes, as in
    the paper; in general they are the responsibilities after J - 1 full steps.
    """
    no_embeddings = torch.zeros(*labels.shape[:2], 0, device=labels.device)
    fit = mixture.fit(no_embeddings, labels, n_classes, steps=steps, b=B, c=C, track=False, classifier_only=True)
    return fit.responsibilities * (labels >= 0).any(-1, keepdim=True)


# ---- prototypes ------------------------------------------------------------------------------------------------------


def classify(support: Tensor, weights: Tensor, query: Tensor) -> Tensor:
    """Return log p(k | u), (..., Q, K), from embeddings (..., N, D), weights (..., N, K) and queries (..., Q, D)."""
    item_weight = weights.sum(-1, keepdim=True)
    centre = (item_weight * support).sum(-2, keepdim=True) / item_weight.sum(-2, keepdim=True).clamp_min(1e-12)
    total = weights.sum(-2)[..., None]  # (..., K, 1)
    means = weights.mT @ (support - centre) / total.clamp_min(1e-12)  # around the centre; zero where there is no weight
    return ((query - centre) @ means.mT - 0.5 * means.square().sum(-1)[..., None, :]).log_softmax(-1)


def known_classes(log_p: Tensor, weights: Tensor) -> Tensor:
    """Return probabilities (..., Q, K), zero for classes without weight; where no class has weight, all are kept."""
    known = weights.sum(-2, keepdim=True) > 0  # (..., 1, K)
    return log_p.masked_fill(~known & known.any(-1, keepdim=True), -torch.inf).softmax(-1)


def weights(support: Tensor, labels: Tensor, n_classes: int, sharpness: float = 1.0) -> Tensor:
    """Return LNL's weights (..., N, K) from embeddings (..., N, D) and labels (..., N, R).

    With c_nk labels of class k on item n,

        d_nk = sum_m c_mk |u_n - u_m|^2 / (sum_m c_mk - 1),   w_nk proportional to c_nk exp(-sharpness d_nk).

    Columns sum to 1; those of classes that nobody named are zero.
    """
    counts = vote_counts(labels, n_classes).to(support.dtype)
    centred = support - support.mean(-2, keepdim=True)
    norms = centred.square().sum(-1)
    distances = (norms[..., :, None] + norms[..., None, :] - 2 * centred @ centred.mT).clamp_min(0)
    others = (counts.sum(-2, keepdim=True) - 1).clamp_min(1)
    mean_distance = distances @ counts / others  # (..., N, K)
    scores = torch.where(counts > 0, counts.clamp_min(1).log() - sharpness * mean_distance, -1e9)
    return scores.softmax(-2) * (counts.sum(-2, keepdim=True) > 0)


def log_proba(support: Tensor, labels: Tensor, query: Tensor, n_classes: int, sharpness: float = 1.0) -> Tensor:
    return classify(support, weights(support, labels, n_classes, sharpness), query)
