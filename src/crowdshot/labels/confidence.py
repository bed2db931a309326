"""Thresholds, intervals and the uncertainty of class probabilities."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from crowdshot.model.parts import PosteriorMatrix

Floats = NDArray[np.float64]

THRESHOLD = 0.9  # an item is accepted when its label is at least this probable
INTERVAL = 0.9  # probability of the intervals from low to high


def uncertainty(posterior: PosteriorMatrix) -> Floats:
    """Return 1 - Σ p² of each posterior, (..., K) -> (...).

    This is the error rate of a label that is drawn from the posterior (Gini impurity).
    """
    squares = np.square(posterior) if isinstance(posterior, np.ndarray) else posterior.multiply(posterior)
    out: Floats = 1 - squares.sum(-1)
    return out


def interval(hits: Any, misses: Any) -> tuple[Any, Any]:
    """Return the limits of the central `INTERVAL` of Beta(hits, misses)."""
    return betaincinv(hits, misses, (1 - INTERVAL) / 2), betaincinv(hits, misses, (1 + INTERVAL) / 2)


class Share(NamedTuple):
    """A proportion with its Jeffreys interval."""

    hits: int  # rounded if hits are probabilities
    of: int
    low: float
    high: float

    share: float

    @classmethod
    def of_all(cls, right: NDArray[np.bool_] | NDArray[np.float64]) -> Share | None:
        """Return the share of ``right`` (n,), truth values or probabilities; None if n is 0."""
        hits, n = float(right.sum()), len(right)
        if n == 0:
            return None
        low, high = interval(hits + 0.5, n - hits + 0.5)
        return cls(round(hits), n, float(low), float(high), hits / n)
