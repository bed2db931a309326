"""Items changed in ways that leave their class alone, so that a network does not learn them by heart."""

from __future__ import annotations

import torch
from torch import Tensor

from crowdshot.episodes.randomness import Randomness, uniform
from crowdshot.errors import CrowdshotError

AUGMENTATIONS = ("none", "photo")
SHIFT = 0.1  # of the side, at most, each way


def augment(items: Tensor, kind: str, randomness: Randomness) -> Tensor:
    """Images (B, n, [C,] H, W) as the pool stores them -> the same, each changed in its own way.

    "photo": mirrored or not, and moved by up to a tenth of its side; its edge is drawn out where nothing is left.
    One look-up a pixel, no waiting for the device.
    """
    if items.ndim not in (4, 5):
        raise CrowdshotError(f"augment is {kind!r}, expected 'none', as the source holds feature vectors.")
    B, n, H, W = *items.shape[:2], *items.shape[-2:]
    mirrored, down, right = uniform((B, n, 3), randomness, items.device).unbind(-1)

    def places(lot: Tensor, side: int) -> Tensor:
        """(B, n, side): where in the stored image each row or column comes from."""
        reach = round(SHIFT * side)
        shift = (lot * (2 * reach + 1)).long().clamp(max=2 * reach) - reach
        return (torch.arange(side, device=items.device) + shift[..., None]).clamp(0, side - 1)

    rows, columns = places(down, H), places(right, W)
    columns = torch.where(mirrored[..., None] < 0.5, W - 1 - columns, columns)
    pixel = (rows[..., :, None] * W + columns[..., None, :]).flatten(-2)  # (B, n, H·W)
    flat = items.flatten(-2)
    if items.ndim == 5:
        pixel = pixel[:, :, None]
    return flat.gather(-1, pixel.expand_as(flat)).view_as(items)
