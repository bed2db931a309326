"""From what annotators said to one belief an item: majority vote, soft vote, Dawid–Skene; (B, N, R) -> (B, N, K).

What follows takes these as soft labels, cross-entropy targets or weights. An item without a label has a row of zeros
and so no say in anything. Ties of a majority vote go to the first class, as in `aggregate.majority_vote`.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from crowdshot.model import mixture

B, C = 100.0, 1.0  # Dawid-Skene's priors, "as in the proposed method"


def counts(labels: Tensor, n_classes: int) -> Tensor:
    """How many annotators gave each item each label, (B, N, K) float."""
    said = mixture.dense_votes(labels, n_classes, torch.float32)
    return said.reshape(*labels.shape, n_classes).sum(-2)


def majority_vote(labels: Tensor, n_classes: int) -> Tensor:
    """One-hot."""
    votes = counts(labels, n_classes)
    return F.one_hot(votes.argmax(-1), n_classes).to(votes.dtype) * (votes.sum(-1, keepdim=True) > 0)


def soft_vote(labels: Tensor, n_classes: int) -> Tensor:
    """Each class's share of the item's labels."""
    votes = counts(labels, n_classes)
    return votes / votes.sum(-1, keepdim=True).clamp_min(1)


def dawid_skene(labels: Tensor, n_classes: int, steps: int) -> Tensor:
    """Dawid and Skene 1979 with the paper's priors: the mixture of items that show nothing.

    ``steps`` is the paper's J. A classifier learns from the responsibilities that go into the last M-step, so that
    with J = 1 it learns from the soft votes, as the paper says, and with J from those after J - 1 full steps.
    """
    nothing = torch.zeros(*labels.shape[:2], 0, device=labels.device)
    fit = mixture.fit(nothing, labels, n_classes, steps=steps, b=B, c=C, track=False, classifier_only=True)
    return fit.responsibilities * (labels >= 0).any(-1, keepdim=True)
