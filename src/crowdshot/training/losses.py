"""What meta-training makes smaller."""

from __future__ import annotations

import torch
from torch import Tensor


def query_losses(log_p: Tensor, truth: Tensor) -> Tensor:
    """Equation (10), averaged over queries: (B, Q, K) and (B, Q), -1 = not asked -> (B,)."""
    picked = log_p.gather(-1, truth.clamp_min(0)[..., None])[..., 0]
    asked = (truth >= 0).to(log_p.dtype)
    return -(torch.where(truth >= 0, picked, 0.0)).sum(-1) / asked.sum(-1)


def only_in_use(log_p: Tensor, classes_in_use: Tensor | None) -> Tensor:
    """Log-probabilities (B, Q, K) of the first so many classes of each episode, normalised anew; None: of all."""
    if classes_in_use is None:
        return log_p
    beyond = torch.arange(log_p.shape[-1], device=log_p.device) >= classes_in_use[:, None, None]
    return log_p.masked_fill(beyond, -torch.inf).log_softmax(-1)
