"""What is believed of an item, p(class | all that is known): when it is accepted, how much doubt is left."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv

from crowdshot.model.parts import PosteriorMatrix

Floats = NDArray[np.float64]

THRESHOLD = 0.9  # an item is accepted when its label is at least this probable
INTERVAL = 0.9  # how surely an annotator's accuracy lies between low and high


def uncertainty(posterior: PosteriorMatrix) -> Floats:
    """(..., K) -> (...): how often one is wrong who draws the label from the posterior; what a sure answer takes away."""
    squares = np.square(posterior) if isinstance(posterior, np.ndarray) else posterior.multiply(posterior)
    out: Floats = 1 - squares.sum(-1)
    return out


def interval(hits: Any, misses: Any) -> tuple[Any, Any]:
    """From low to high: where a share lies that has the distribution Beta(hits, misses); INTERVAL of it is there."""
    return betaincinv(hits, misses, (1 - INTERVAL) / 2), betaincinv(hits, misses, (1 + INTERVAL) / 2)


class Share(NamedTuple):
    """So many of so many, and the interval in which the true share lies (Jeffreys', as for annotators)."""

    hits: int  # rounded, where they are probabilities
    of: int
    low: float
    high: float

    share: float

    @classmethod
    def of_all(cls, right: NDArray[np.bool_] | NDArray[np.float64]) -> Share | None:
        """``right`` (n,): whether each is, or how probably."""
        hits, n = float(right.sum()), len(right)
        if n == 0:
            return None
        low, high = interval(hits + 0.5, n - hits + 0.5)
        return cls(round(hits), n, float(low), float(high), hits / n)
