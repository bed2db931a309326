"""The two steps of MAP-EM for the mixture, and its objective; symbols and shapes as in `crowdshot.model.mixture`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from crowdshot.model import spread
from crowdshot.model.priors import ConfusionPrior, as_number

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class Parameters:
    """What one M-step estimates. ``means`` are relative to the support's ``origin`` while EM runs."""

    means: Tensor
    class_probs: Tensor
    log_class_probs: Tensor
    confusion: Tensor
    pseudo_counts: Tensor
    covariance: Tensor | None


def soft_vote(votes: Tensor, K: int) -> tuple[Tensor, Tensor]:
    """Algorithm 1, line 7: each item's share of votes, (..., N, K), and whether it has any, (..., N, 1)."""
    counts = votes @ torch.eye(K, dtype=votes.dtype, device=votes.device).repeat(votes.shape[-1] // K, 1)
    total = counts.sum(-1, keepdim=True)
    weight = (total > 0).to(votes.dtype)
    return torch.where(total > 0, counts / total.clamp_min(1), 1 / K), weight


def ruled_out_by(truth: Tensor, K: int) -> Tensor:
    """(..., N) -> (..., N, K): the classes that an item cannot have, as another is known to be its own."""
    return (truth >= 0)[..., None] & (truth[..., None] != torch.arange(K, device=truth.device))


def m_step(
    u: Tensor,
    origin: Tensor,
    votes: Tensor,
    weighted: Tensor,
    tau: Tensor,
    b: Tensor,
    prior: ConfusionPrior,
    covariance: str,
    present: Tensor | None,
) -> Parameters:
    """(7), given weighted lambda. Around an origin o, mu_k - o = (sum lambda (u - o) - tau o) / (tau + n_k)."""
    tiny = torch.finfo(u.dtype).tiny
    K = weighted.shape[-1]
    n_k = weighted.sum(-2)  # (..., K)
    sums = weighted.mT @ u  # (..., K, D)
    means = (sums - tau[..., None, None] * origin) / (tau[..., None] + n_k).clamp_min(tiny)[..., None]

    class_probs = n_k + b[..., None] * (1 if present is None else present)
    class_probs = class_probs / class_probs.sum(-1, keepdim=True).clamp_min(tiny)
    log_class_probs = class_probs.clamp_min(tiny).log()
    if present is not None:
        log_class_probs = log_class_probs.masked_fill(present == 0, -torch.inf)

    counts = votes.mT @ weighted  # (..., R·K observed, K true)
    counts = counts.reshape(*counts.shape[:-2], -1, K, K).mT  # (..., R, K true, K observed)
    if present is None:
        pseudo_counts = prior(counts, K)
    else:  # no weight on what cannot be or cannot be said
        pseudo_counts = (
            prior(counts, present.sum(-1)) * (present[..., :, None] * present[..., None, :])[..., None, :, :]
        )
    confusion = counts + pseudo_counts
    confusion = confusion / confusion.sum(-1, keepdim=True).clamp_min(tiny)

    estimated = None
    if covariance != "identity":
        scatter = _scatter(u, means, origin, weighted, sums, n_k, tau, full=covariance == "full")
        estimated = spread.estimate(covariance, scatter, n_k.sum(-1) + K)
    return Parameters(means, class_probs, log_class_probs, confusion, pseudo_counts, estimated)


def _scatter(
    u: Tensor,
    means: Tensor,
    origin: Tensor,
    weighted: Tensor,
    sums: Tensor,
    n_k: Tensor,
    tau: Tensor,
    full: bool,
) -> Tensor:
    """sum_nk lambda (u - mu)(u - mu)' + tau sum_k mu mu'; its diagonal (..., D) unless ``full``.

    Written out, the first sum is sum_n w u u' - sum_k [mu s_k' + s_k mu' - n_k mu mu'], with s_k = sum_n lambda u.
    """
    weight = weighted.sum(-1, keepdim=True)
    around_zero = means + origin
    if full:
        within = (weight * u).mT @ u - means.mT @ sums - sums.mT @ means + (n_k[..., None] * means).mT @ means
        return within + tau[..., None, None] * around_zero.mT @ around_zero
    within = (weight * u.square()).sum(-2) - (means * (2 * sums - n_k[..., None] * means)).sum(-2)
    return within.clamp_min(0) + tau[..., None] * around_zero.square().sum(-2)


def e_step(
    u: Tensor, votes: Tensor, parameters: Parameters, scale: Tensor, covariance: str, ruled_out: Tensor | None
) -> tuple[Tensor, Tensor]:
    """(6): lambda, and each item's log-evidence, the logarithm of its factor in (1) (powered by ``scale``)."""
    tiny = torch.finfo(u.dtype).tiny
    log_confusion = parameters.confusion.clamp_min(tiny).log().mT.flatten(-3, -2)  # (..., R·K observed, K true)
    gaussian, common = log_gaussian(u, parameters.means, parameters.covariance, covariance)
    log_joint = scale[..., None, None] * gaussian + parameters.log_class_probs[..., None, :] + votes @ log_confusion
    if ruled_out is not None:
        log_joint = log_joint.masked_fill(ruled_out, -torch.inf)
    return log_joint.softmax(-1), log_joint.logsumexp(-1) + scale[..., None] * common


def log_gaussian(u: Tensor, means: Tensor, covariance: Tensor | None, kind: str) -> tuple[Tensor, Tensor]:
    """log N(u_n | mu_k, covariance), as the part that differs between classes (..., N, K) and the rest (..., N).

    Kept apart because |u|^2, common to all classes, would swallow the digits in which they differ.
    """
    D = u.shape[-1]
    u, means = spread.whiten(u, covariance, kind), spread.whiten(means, covariance, kind)
    differs = u @ means.mT - 0.5 * means.square().sum(-1)[..., None, :]
    log_det = as_number(spread.log_det_precision(covariance, kind, D), u)
    return differs, 0.5 * (log_det[..., None] - D * LOG_2PI - u.square().sum(-1))


def log_prior(parameters: Parameters, origin: Tensor, tau: Tensor, b: Tensor, scale: Tensor, covariance: str) -> Tensor:
    """(3) and (4), constants included; a flat prior (tau = 0) counts as zero."""
    D = parameters.means.shape[-1]
    K = parameters.class_probs.shape[-1]
    around_zero = parameters.means + origin
    squared = spread.whiten(around_zero, parameters.covariance, covariance).square().sum((-2, -1))
    log_det = spread.log_det_precision(parameters.covariance, covariance, D)
    safe_tau = torch.where(tau > 0, tau, 1)
    means = 0.5 * (K * (D * (safe_tau.log() - LOG_2PI) + log_det) - tau * squared)
    means = torch.where(tau > 0, means, 0) + spread.log_prior(parameters.covariance, covariance, D)
    class_probs = _log_dirichlet(parameters.class_probs, b[..., None].expand_as(parameters.class_probs))
    confusion = _log_dirichlet(parameters.confusion, parameters.pseudo_counts).sum((-2, -1))
    return scale * means + class_probs + confusion


def _log_dirichlet(p: Tensor, exponents: Tensor) -> Tensor:
    """log Dirichlet(p | exponents + 1), over the last axis."""
    a = exponents + 1
    return torch.xlogy(exponents, p).sum(-1) + torch.lgamma(a.sum(-1)) - torch.lgamma(a).sum(-1)


def hold(going: Tensor, new: Parameters, old: Parameters) -> Parameters:
    """The new parameters where ``going`` (...) is true, the old ones elsewhere."""
    vector, matrix, matrices = going[..., None], going[..., None, None], going[..., None, None, None]
    covariance = new.covariance
    if covariance is not None and old.covariance is not None:
        full = covariance.ndim > new.class_probs.ndim
        covariance = torch.where(matrix if full else vector, covariance, old.covariance)
    return Parameters(
        torch.where(matrix, new.means, old.means),
        torch.where(vector, new.class_probs, old.class_probs),
        torch.where(vector, new.log_class_probs, old.log_class_probs),
        torch.where(matrices, new.confusion, old.confusion),
        torch.where(matrices, new.pseudo_counts, old.pseudo_counts),
        covariance,
    )
