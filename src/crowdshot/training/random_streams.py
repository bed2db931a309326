"""Draw random numbers for many models at once, such that each model gets the numbers that it would get alone.

Each step draws one block of uniform numbers per model, from the model's own generator. All random choices of the step
then take numbers from this block. A model therefore sees the same episodes alone and in a stack, a step has one random
operation per model, and a checkpoint only has to save the generators' states.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from crowdshot.errors import CrowdshotError


class Uniforms:
    """A block (G, m) of uniform numbers in [0, 1), which are used in order."""

    taken: int

    def __init__(self, block: Tensor) -> None:
        self.block = block
        self.taken = 0

    def take(self, shape: Sequence[int]) -> Tensor:
        """Return the next unused numbers, shaped (G, ...)."""
        size = math.prod(shape[1:])
        if shape[0] != self.block.shape[0] or self.taken + size > self.block.shape[1]:
            raise CrowdshotError(
                f"is {tuple(shape)}",
                argument="shape",
                found=tuple(shape),
                expected=f"{len(self.block)} models and at most {self.block.shape[1] - self.taken} numbers for each",
            )
        self.taken += size
        return self.block[:, self.taken - size : self.taken].reshape(tuple(shape))


Randomness = torch.Generator | Uniforms


def uniform(shape: Sequence[int], randomness: Randomness | None, device: torch.device | None = None) -> Tensor:
    """Return uniform numbers in [0, 1); ``device`` must be the device of ``randomness``, if there is one."""
    if randomness is None:
        return torch.rand(tuple(shape), device=device)
    found = randomness.block.device if isinstance(randomness, Uniforms) else randomness.device
    if device is not None and device.type != found.type:
        raise CrowdshotError(
            f"is on the device {found}",
            argument="generator",
            found=str(found),
            expected=f"{device} as the other tensors",
        )
    if isinstance(randomness, Uniforms):
        return randomness.take(shape)
    return torch.rand(tuple(shape), generator=randomness, device=found)


def whole_numbers(bounds: tuple[int, int], shape: Sequence[int], randomness: Randomness) -> Tensor:
    """Return integers that are uniform on bounds[0] to bounds[1], both included."""
    low, high = bounds
    return (low + (uniform(shape, randomness) * (high - low + 1)).long()).clamp(max=high)
