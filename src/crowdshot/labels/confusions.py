"""Confusion matrices of so many classes that no table holds them: a few classes at a time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from crowdshot.model.keyed import Keyed

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Confusions:
    """What annotators said of each class, and ``strength`` labels more, of which each has ``right`` (R,) right."""

    right: Floats
    strength: float
    n_classes: int
    said: Keyed  # labels, as many as are expected, by (true · K + said) · R + annotator
    shown: Keyed  # the same whatever was said, by true · R + annotator

    @classmethod
    def of(cls, said: Keyed, right: Floats, strength: float, n_classes: int) -> Self:
        """``said``: by (annotator · K + said) · K + true."""
        R, K = len(right), n_classes
        cells, times = said.items()
        annotator, label, true = cells // (K * K), cells // K % K, cells % K
        by_cell = Keyed.total(times, (true * K + label) * R + annotator)
        return cls(right, strength, K, by_cell, Keyed.total(times, true * R + annotator))

    def __len__(self) -> int:
        return len(self.right)

    def among(self, classes: NDArray[np.integer]) -> Floats:
        """(R, k true, k + 1 observed), of k classes; the last is any other answer."""
        R, K, k = len(self), self.n_classes, len(classes)
        counts = np.empty((R, k, k))
        counts[:] = (self.strength * (1 - self.right) / (K - 1))[:, None, None]
        counts[:, range(k), range(k)] = self.strength * self.right[:, None]
        whole = np.full((R, k), self.strength)
        for row, true in enumerate(classes.tolist()):
            who, times = self.shown.between(true * R, (true + 1) * R)
            whole[who, row] += times
            for column, label in enumerate(classes.tolist()):
                cell = true * K + label
                who, times = self.said.between(cell * R, (cell + 1) * R)
                counts[who, row, column] += times
        among = counts / whole[:, :, None]
        out: Floats = np.dstack([among, (1 - among.sum(2)).clip(0)]) if k else np.empty((R, 0, 1))
        return out
