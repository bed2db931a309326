"""One interface for the operations in which NumPy and torch differ.

`annotator_model` and `labeling_search` run on NumPy on the processor, where its small calls are faster, and on torch on
accelerators.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

Array = Any  # of NumPy or of torch
BY_NUMPY = ("cpu",)  # device types on which NumPy is used


class ArrayApi(Protocol):
    xp: Any

    def __hash__(self) -> int: ...

    def array(self, x: Tensor) -> Array: ...

    def full(self, shape: tuple[int, ...], value: float) -> Array:
        """Return an array of float64, or of int64 if the value is an int."""

    def numbers(self, *shape: int) -> Array:
        """Return 0, 1, 2, … in this shape."""

    def floats(self, x: Array) -> Array: ...

    def eye(self, K: int) -> Array:
        """Return the identity matrix in int64."""

    def filled(self, x: Array, shape: tuple[int, ...]) -> Array:
        """Broadcast to a shape, and make the result contiguous."""

    def rows(self, x: Array, places: Array) -> Array:
        """Index the first axis."""

    def pick(self, x: Array, places: Array) -> Array:
        """Index the last axis."""

    def along(self, x: Array, places: Array) -> Array:
        """Index each row (..., n) with its own places (..., m)."""

    def sorted_places(self, x: Array) -> Array:
        """Return the stable argsort of the last axis."""

    def top(self, x: Array, M: int) -> Array:
        """Return the places of the M largest values of each row, in any order: (B, n) -> (B, M)."""

    def sums_by_class(self, x: Array, classes: Array, as_class: Array, K: int) -> Array:
        """Sum items' numbers x (n, B) by class, with classes (n, B·M) of M labelings: (B, K, M).

        ``as_class`` (B, M): the flat index of each labeling's first class in the result.
        """


class NumPyApi:
    xp: Any = np

    def array(self, x: Tensor) -> Array:
        return x.numpy()

    def full(self, shape: tuple[int, ...], value: float) -> Array:
        return np.full(shape, value)

    def numbers(self, *shape: int) -> Array:
        return np.arange(math.prod(shape)).reshape(shape)

    def floats(self, x: Array) -> Array:
        return x.astype(np.float64)

    def eye(self, K: int) -> Array:
        return np.eye(K, dtype=np.int64)

    def filled(self, x: Array, shape: tuple[int, ...]) -> Array:
        return np.ascontiguousarray(np.broadcast_to(x, shape))

    def rows(self, x: Array, places: Array) -> Array:
        return x.take(places, 0)

    def pick(self, x: Array, places: Array) -> Array:
        return x.take(places, -1)

    def along(self, x: Array, places: Array) -> Array:
        n = x.shape[-1]
        first = np.arange(0, x.size, n).reshape(*x.shape[:-1], 1)
        return x.take(places + first)

    def sorted_places(self, x: Array) -> Array:
        return x.argsort(-1, kind="stable")

    def top(self, x: Array, M: int) -> Array:
        return x.argpartition(x.shape[1] - M, 1)[:, -M:]

    def sums_by_class(self, x: Array, classes: Array, as_class: Array, K: int) -> Array:
        B, M = as_class.shape
        at = classes * M
        at += as_class.reshape(-1)
        return np.bincount(at.reshape(-1), x.repeat(M), B * K * M).reshape(B, K, M)


class TorchApi:
    xp: Any = torch

    def __init__(self, device: torch.device) -> None:
        self.device = device

    def array(self, x: Tensor) -> Array:
        return x.to(self.device)

    def full(self, shape: tuple[int, ...], value: float) -> Array:
        dtype = torch.long if isinstance(value, int) else torch.float64
        return torch.full(shape, value, dtype=dtype, device=self.device)

    def numbers(self, *shape: int) -> Array:
        return torch.arange(math.prod(shape), device=self.device).reshape(shape)

    def floats(self, x: Array) -> Array:
        return x.double()

    def eye(self, K: int) -> Array:
        return torch.eye(K, dtype=torch.long, device=self.device)

    def filled(self, x: Array, shape: tuple[int, ...]) -> Array:
        return x.expand(shape).contiguous()

    def rows(self, x: Array, places: Array) -> Array:
        return x[places]

    def pick(self, x: Array, places: Array) -> Array:
        return x[..., places]

    def along(self, x: Array, places: Array) -> Array:
        return x.gather(-1, places)

    def sorted_places(self, x: Array) -> Array:
        return x.argsort(dim=-1, stable=True)

    def top(self, x: Array, M: int) -> Array:
        return x.topk(M, sorted=False).indices

    def sums_by_class(self, x: Array, classes: Array, as_class: Array, K: int) -> Array:
        (n, B), M = x.shape, as_class.shape[1]
        chosen = classes.reshape(n, B, 1, M) == self.numbers(K, 1)
        return (chosen * x[..., None, None]).sum(0)


def array_api_of(device: torch.device) -> ArrayApi:
    """Return the interface for a device; the same device gives the same object."""
    return NUMPY_API if device.type in BY_NUMPY else _torch_api(device)


NUMPY_API = NumPyApi()


@lru_cache
def _torch_api(device: torch.device) -> TorchApi:
    return TorchApi(device)
