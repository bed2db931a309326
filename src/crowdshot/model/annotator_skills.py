"""What annotators are like, integrated over: how probable a crowd's labels are if the true classes were known.

An annotator has a skill rho, from 0 (guesses) to 1 (never wrong): right with probability q = 1/K + (1 - 1/K) rho. On
the grid `SKILLS` any belief about skills is integrated by a sum:

    coin(right, labels) = log sum_rho p(rho) q^right (1 - q)^(labels - right)

Annotators come in three kinds, and are summed over these too:

    one coin    one skill for all classes; a wrong label is any other class, all alike
    by class    a skill for every class, drawn apart
    flips       one skill; for every true class, wrong labels have a distribution of their own, ~ Dirichlet(alpha)

Everything is a function of counts (..., K true, K observed): how often the annotator called what by what.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

SKILLS = tuple(i / 11 for i in range(12))
NEVER_WRONG = 0.995  # nobody is
KINDS = ("one coin", "by class", "flips")

# Learned by gradient on episodes whose crowds mix experts, hammers, spammers, flippers and class-wise spammers, through
# the loss of the queries, on embeddings of characters and of photographs, which agree to about 0.03 (docs/beyond.md).
P_SKILL = (0.12, 0.10, 0.07, 0.06, 0.06, 0.08, 0.10, 0.11, 0.10, 0.08, 0.06, 0.06)
P_KIND = (0.45, 0.37, 0.18)
ALPHA = 0.5


def _log(probabilities: tuple[float, ...], like: Tensor) -> Tensor:
    return torch.tensor(probabilities, dtype=like.dtype, device=like.device).log()


def _joint(right: Tensor, labels: Tensor, K: int) -> tuple[Tensor, Tensor]:
    """log p(skill, right, labels), (..., skills), and q, (skills,)."""
    skill = torch.tensor(SKILLS, dtype=right.dtype, device=right.device)
    q = (1 / K + (1 - 1 / K) * skill).clamp_max(NEVER_WRONG)
    chances = right[..., None] * q.log() + (labels - right)[..., None] * (1 - q).log()
    return chances + _log(P_SKILL, right), q


def coin_table(most: int, K: int, like: Tensor) -> Tensor:
    """The coin for all numbers up to ``most``, [right, labels]; where right > labels it means nothing."""
    number = torch.arange(most + 1, dtype=like.dtype, device=like.device)
    return torch.logsumexp(_joint(number[:, None].expand(most + 1, -1), number.expand(most + 1, -1), K)[0], -1)


def _log_rising(alpha: float, table: Tensor) -> Tensor:
    """log Γ(alpha + n) / Γ(alpha) for as many n as the table has, to be looked up."""
    start = torch.full((), alpha, dtype=table.dtype, device=table.device)
    number = torch.arange(len(table), dtype=table.dtype, device=table.device)
    return torch.lgamma(start + number) - torch.lgamma(start)


def log_marginals(counts: Tensor, table: Tensor) -> Tensor:
    """log p(an annotator's labels | true classes, kind), int counts (..., K, K) -> (..., kinds)."""
    K = counts.shape[-1]
    right, labels = counts.diagonal(dim1=-2, dim2=-1), counts.sum(-1)  # (..., K)
    wrong = labels - right
    coin = table[right.sum(-1), labels.sum(-1)]
    coins = table[right, labels].sum(-1)
    alike = -math.log(K - 1) * wrong.sum(-1).to(table.dtype)
    off = ~torch.eye(K, dtype=torch.bool, device=counts.device)
    flips = (off * _log_rising(ALPHA, table)[counts]).sum((-2, -1))
    flips = flips - _log_rising((K - 1) * ALPHA, table)[wrong].sum(-1)
    return torch.stack([coin + alike, coins + alike, coin + flips], -1)


def log_evidence(counts: Tensor, table: Tensor) -> Tensor:
    """log p(an annotator's labels | true classes): (..., K, K) -> (...)."""
    return torch.logsumexp(log_marginals(counts, table) + _log(P_KIND, table), -1)


def gain(counts: Tensor, label: Tensor, table: Tensor) -> Tensor:
    """What one more label adds to `log_evidence`, for every class its item may be of.

    ``counts`` (..., K, K) of the annotator so far, ``label`` (...) what they say now, -1 for nothing: -> (..., K).
    """
    K = counts.shape[-1]
    right, labels = counts.diagonal(dim1=-2, dim2=-1), counts.sum(-1)  # (..., K)
    all_right, all_labels = right.sum(-1, keepdim=True), labels.sum(-1, keepdim=True)
    hit = label[..., None] == torch.arange(K, device=label.device)  # (..., K)
    coin = table[all_right + hit, all_labels + 1] - table[all_right, all_labels]
    coins = table[right + hit, labels + 1] - table[right, labels]
    missed = (~hit).to(table.dtype)
    alike = -math.log(K - 1) * missed
    observed = counts.gather(-1, label.clamp_min(0)[..., None, None].expand(*counts.shape[:-1], 1))[..., 0]
    wrong = (labels - right).to(table.dtype)
    flips = missed * ((ALPHA + observed) / ((K - 1) * ALPHA + wrong)).log()
    step = torch.stack([coin + alike, coins + alike, coin + flips], -1)  # (..., K, kinds)
    before = log_marginals(counts, table) + _log(P_KIND, table)  # (..., kinds)
    added = torch.logsumexp(before[..., None, :] + step, -1) - torch.logsumexp(before, -1)[..., None]
    return added * (label >= 0)[..., None]


def expected_confusion(counts: Tensor, table: Tensor) -> Tensor:
    """The annotator's confusion matrix, averaged over skills and kinds given the counts: (..., K, K)."""
    K = counts.shape[-1]
    number = counts.to(table.dtype)
    right, labels = number.diagonal(dim1=-2, dim2=-1), number.sum(-1)
    eye = torch.eye(K, dtype=table.dtype, device=table.device)

    def expected_q(right: Tensor, labels: Tensor) -> Tensor:
        log_joint, q = _joint(right, labels, K)
        return (log_joint.softmax(-1) * q).sum(-1)

    coin = expected_q(right.sum(-1), labels.sum(-1))[..., None, None]
    coins = expected_q(right, labels)[..., None]
    alike = (1 - eye) / (K - 1)
    errors = (number + ALPHA) * (1 - eye)
    errors = errors / errors.sum(-1, keepdim=True)
    matrices = [coin * eye + (1 - coin) * alike, coins * eye + (1 - coins) * alike, coin * eye + (1 - coin) * errors]
    kind = (log_marginals(counts, table) + _log(P_KIND, table)).softmax(-1)
    return (torch.stack(matrices, -1) * kind[..., None, None, :]).sum(-1)


# ---- a crowd, as the search sees it ---------------------------------------------------------------------------------


class AnnotatorModel(Protocol):
    """Counts are (B, M, R, K, K), of M labelings."""

    def gain(self, counts: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        """Of the annotators (B, L) who label one item, counts (B, M, L, K, K) and labels (B, L): -> (B, M, L, K)."""

    def log_evidence(self, counts: Tensor) -> Tensor:
        """(B, M, R)"""

    def confusion(self, counts: Tensor) -> Tensor:
        """(B, M, R, K, K)"""


@dataclass(frozen=True)
class Unknown:
    """Annotators of whom nothing is known but their labels."""

    table: Tensor

    def gain(self, counts: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        return gain(counts, label[:, None].expand(counts.shape[:3]), self.table)

    def log_evidence(self, counts: Tensor) -> Tensor:
        return log_evidence(counts, self.table)

    def confusion(self, counts: Tensor) -> Tensor:
        return expected_confusion(counts, self.table)


@dataclass(frozen=True)
class Known:
    """Annotators whose confusion matrices (B, R, K, K) are known."""

    matrices: Tensor

    @property
    def log_matrices(self) -> Tensor:
        return self.matrices.clamp_min(torch.finfo(self.matrices.dtype).tiny).log()

    def gain(self, counts: Tensor, annotator: Tensor, label: Tensor) -> Tensor:
        episode = torch.arange(len(label), device=label.device)[:, None]
        found = self.log_matrices[episode, annotator, :, label.clamp_min(0)]  # (B, L, K)
        return (found * (label >= 0)[..., None])[:, None].expand(*counts.shape[:4])

    def log_evidence(self, counts: Tensor) -> Tensor:
        return (counts * self.log_matrices[:, None]).sum((-2, -1))

    def confusion(self, counts: Tensor) -> Tensor:
        return self.matrices[:, None].expand(counts.shape)
