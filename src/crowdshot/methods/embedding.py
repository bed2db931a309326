"""Items of many episodes through an encoder's network."""

from __future__ import annotations

import torch
from torch import Tensor, nn

EMBEDDED_AT_ONCE = 2**24  # numbers of input


@torch.no_grad()
def embed(encoder: nn.Module, items: Tensor) -> Tensor:
    """(B, n, *shape) -> (B, n, D), in evaluation mode; the module's mode is put back."""
    flat, training = items.flatten(0, 1), encoder.training
    at_once = max(1, EMBEDDED_AT_ONCE // max(1, flat[0].numel()))
    encoder.eval()
    try:
        parts = [encoder(part).flatten(1).float() for part in torch.split(flat, at_once)]
    finally:
        encoder.train(training)
    return torch.cat(parts).reshape(*items.shape[:2], -1)
