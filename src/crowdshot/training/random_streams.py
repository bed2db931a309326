"""Random numbers for many models at once, the same for each as if it were alone.

A step draws one block of uniform numbers for every model, each from that model's own generator; whatever needs
randomness takes its share of the block. So a model that is trained among others sees the very episodes that it would
see alone, a step has one random operation a model, and a checkpoint needs nothing but the generators' states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from crowdshot.errors import CrowdshotError


class Uniforms:
    """A block (G, m) of numbers in [0, 1), handed out in order."""

    taken: int

    def __init__(self, block: Tensor) -> None:
        self.block = block
        self.taken = 0

    def take(self, shape: Sequence[int]) -> Tensor:
        """The next numbers, shaped (G, ...)."""
        size = math.prod(shape[1:])
        if shape[0] != self.block.shape[0] or self.taken + size > self.block.shape[1]:
            raise CrowdshotError(
                f"shape is {tuple(shape)}, expected {self.block.shape[0]} first and {self.block.shape[1] - self.taken} "
                "numbers at most for each, as many as are left."
            )
        self.taken += size
        return self.block[:, self.taken - size : self.taken].reshape(tuple(shape))


Randomness = torch.Generator | Uniforms


def uniform(shape: Sequence[int], randomness: Randomness | None, device: torch.device | None = None) -> Tensor:
    """Numbers in [0, 1), on the device of the randomness; ``device`` is where the caller's other tensors are."""
    if randomness is None:
        return torch.rand(tuple(shape), device=device)
    found = randomness.block.device if isinstance(randomness, Uniforms) else randomness.device
    if device is not None and device.type != found.type:
        raise CrowdshotError(f"generator is on {found}, expected {device}, where the other tensors are.")
    if isinstance(randomness, Uniforms):
        return randomness.take(shape)
    return torch.rand(tuple(shape), generator=randomness, device=found)


def whole_numbers(bounds: tuple[int, int], shape: Sequence[int], randomness: Randomness) -> Tensor:
    """Whole numbers from bounds[0] to bounds[1], both included, all alike."""
    low, high = bounds
    return (low + (uniform(shape, randomness) * (high - low + 1)).long()).clamp(max=high)
