"""How embeddings spread around their class mean: the paper's identity, or estimated and shared by the classes.

The paper sets the covariance to I and allows others. With a conjugate prior the M-step stays closed: class means
get the prior N(0, (tau P)^-1), where P is the precision (inverse covariance), so that their own update does not
change, and P gets a prior whose mode is the identity and that weighs as much as ``weight`` items:

    isotropic, P = p I            p ~ Gamma(weight D / 2 + 1, weight D / 2)
    diagonal,  P = diag(p_1..D)   p_d ~ Gamma(weight / 2 + 1, weight / 2)
    full                          P ~ Wishart(weight + D + 1, I / weight)

In each case log p(P) = weight/2 (log|P| - trace P) + constant, and the M-step is

    covariance = (weight I + scatter) / (weight + N + K),

averaged over dimensions when isotropic, its diagonal when diagonal. As ``weight`` grows the paper's model returns.
A covariance is stored as variances (..., 1) or (..., D), as a matrix (..., D, D), or as None for the identity.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

KINDS = ("identity", "isotropic", "diagonal", "full")
WEIGHT = 1.0


def whiten(x: Tensor, covariance: Tensor | None, kind: str) -> Tensor:
    """Coordinates in which the covariance is I: (..., N, D) -> (..., N, D)."""
    if covariance is None:
        return x
    if kind == "full":
        root = torch.linalg.cholesky(covariance)
        white: Tensor = torch.linalg.solve_triangular(root, x.mT, upper=False).mT
        return white
    return x * covariance.rsqrt()[..., None, :]


def log_det_precision(covariance: Tensor | None, kind: str, D: int) -> Tensor | float:
    """log|P|, shaped (...)."""
    if covariance is None:
        return 0.0
    if kind == "full":
        log_det: Tensor = torch.linalg.slogdet(covariance).logabsdet
        return -log_det
    return -covariance.log().sum(-1) * (D / covariance.shape[-1])


def estimate(kind: str, scatter: Tensor, n: Tensor, weight: float = WEIGHT) -> Tensor:
    """The M-step above. ``scatter`` is (..., D, D) for full, else its diagonal (..., D); ``n`` = N + K, (...).

    Of a full one no direction falls below the rounding of all variance, so that it has a root.
    """
    if kind == "full":
        eye = torch.eye(scatter.shape[-1], dtype=scatter.dtype, device=scatter.device)
        least = 4 * torch.finfo(scatter.dtype).eps * scatter.diagonal(dim1=-2, dim2=-1).sum(-1).clamp_min(0)
        return ((weight + least[..., None, None]) * eye + (scatter + scatter.mT) / 2) / (weight + n)[..., None, None]
    variances = (weight + scatter) / (weight + n)[..., None]
    return variances.mean(-1, keepdim=True) if kind == "isotropic" else variances


def log_prior(covariance: Tensor | None, kind: str, D: int, weight: float = WEIGHT) -> Tensor | float:
    """log p(P) with its constant, shaped (...)."""
    if covariance is None:
        return 0.0
    if kind == "full":
        trace: Tensor = torch.linalg.inv(covariance).diagonal(dim1=-2, dim2=-1).sum(-1)
        dof = weight + D + 1
        multigamma = D * (D - 1) / 4 * math.log(math.pi) + sum(math.lgamma((dof - d) / 2) for d in range(D))
        constant = dof * D / 2 * math.log(weight / 2) - multigamma
    else:
        trace = covariance.reciprocal().sum(-1) * (D / covariance.shape[-1])
        n_free = covariance.shape[-1]
        half = weight * (D / n_free) / 2
        constant = n_free * ((half + 1) * math.log(half) - math.lgamma(half + 1))
    return weight / 2 * (log_det_precision(covariance, kind, D) - trace) + constant
