"""Sums by a number that may be anything up to 2^63: for tables with far more cells than any crowd fills."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Keys = NDArray[np.int64]


class Keyed:
    """A sum for each key that occurs, 0 for all others. What is added waits until it is worth sorting."""

    def __init__(self, keys: Keys, values: Floats) -> None:
        self._keys, self._values = keys, values
        self._waiting: list[tuple[Keys, Floats]] = []

    @classmethod
    def total(cls, values: Floats, keys: Keys) -> Keyed:
        found, place = np.unique(keys, return_inverse=True)
        return cls(found, np.bincount(place, values, len(found)).astype(np.float64))

    def __iadd__(self, other: Keyed) -> Keyed:
        self._waiting += [(other._keys, other._values), *other._waiting]
        if sum(len(keys) for keys, _ in self._waiting) > len(self._keys):
            self._settle()
        return self

    def __getitem__(self, keys: Keys) -> Floats:
        self._settle()
        if len(self._keys) == 0:
            return np.zeros(len(keys))
        place = np.searchsorted(self._keys, keys).clip(max=len(self._keys) - 1)
        return np.where(self._keys[place] == keys, self._values[place], 0.0)

    def between(self, first: int, after: int) -> tuple[Keys, Floats]:
        """Keys from ``first`` on and below ``after``, less ``first``, and their sums."""
        self._settle()
        found = slice(*np.searchsorted(self._keys, (first, after)).tolist())
        return self._keys[found] - first, self._values[found]

    def items(self) -> tuple[Keys, Floats]:
        """Keys in order, and their sums."""
        self._settle()
        return self._keys, self._values

    def _settle(self) -> None:
        if self._waiting:
            own = self._keys, self._values
            keys, values = (np.concatenate(both) for both in zip(own, *self._waiting, strict=True))
            whole = Keyed.total(values, keys)
            self._keys, self._values, self._waiting = whole._keys, whole._values, []

    def __reduce__(self) -> Any:
        return Keyed, self.items()
