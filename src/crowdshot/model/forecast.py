"""What features say of any item's class, after all ways to see them were judged (`looks`): a mixture of classifiers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.floating[Any]]
Positions = NDArray[np.int64]

SHARPNESS = np.array([0.25, 0.5, 0.7, 1.0, 1.4, 2.0])
SCALES = 2.0 ** np.arange(7)  # of distances from means
RARE = 0.3  # of an equal share: less frequent classes count as this frequent in the second link
AT_ONCE = 3_000_000  # numbers of a piece of queries, which stays near the processor


@dataclass(frozen=True)
class Standard:
    """Features centred and in units of their spread; one that never changes counts for nothing."""

    centre: Floats  # (D,)
    factor: Floats  # (D,)

    @classmethod
    def of(cls, x: Floats) -> Standard:
        centre, spread = x.mean(0), x.std(0)
        changes = spread > 1e-12 * np.abs(centre)
        return cls(centre, np.where(changes, 1 / np.where(changes, spread, 1), 0))

    def __call__(self, x: Floats) -> Floats:
        return (x - self.centre) * self.factor


def near(a: Floats, b: Floats) -> Floats:
    """(N, D), (M, D) standardised -> (N, M): 1 where two are the same, 1/e at the mean distance of two items."""
    squared = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
    out: Floats = np.exp(-0.5 * squared.clip(0) / max(1, a.shape[1]))
    return out


def linked(forecast: Floats, mean: Floats, size: Floats, link: int) -> Floats:
    """(..., K) -> (sharpness, ..., K) p(class | x). ``mean``, ``size`` (K,)."""
    K = len(mean)
    unit = np.full(K, 1 / K) if link == 0 else np.maximum(mean, RARE / K)
    score = np.log(size) + SHARPNESS.reshape(-1, *[1] * forecast.ndim) * ((forecast - mean) / unit)
    score -= score.max(-1, keepdims=True)
    np.exp(score, out=score)
    score /= score.sum(-1, keepdims=True)
    return score


@dataclass(frozen=True)
class Forecast:
    """p(class | x) for any x, as believed after all: regressions of both ways to see, linked, and their weights."""

    centre: Floats  # (D,)
    factor: Floats  # (D,)
    landmarks: Floats  # (M, D), standardised
    plain_slopes: Floats  # (c, D, K) of each regression on features, ridge or logistic
    plain_starts: Floats  # (c, K)
    plain_weights: Floats  # (c, links, sharpness)
    near_slopes: Floats  # (c, M, K) on nearness to landmarks
    near_starts: Floats
    near_weights: Floats
    means: Floats  # (2, K, D), in units of the whole spread, and each feature in its own
    unit: Floats  # () the whole spread
    mean_weights: Floats  # (2, scales)
    nothing: Floats  # () the weight of: features say nothing
    mean: Floats  # (K,)
    size: Floats  # (K,)
    foretold: Floats  # (2,) of labels: how probable they are by features of unmet items, and by class sizes
    counted: Floats  # () by how many items that was told

    def __call__(self, x: Numbers, rows: Positions | None = None) -> Floats:
        """(Q, D), or these rows of it -> (Q, K)"""
        rows = np.arange(len(x)) if rows is None else rows
        out = np.empty((len(rows), len(self.size)))
        at_once = max(1, AT_ONCE // (len(self.landmarks) + len(SHARPNESS) * len(self.size)))
        for start in range(0, len(rows), at_once):
            piece = slice(start, start + at_once)
            out[piece] = self._of(x[rows[piece]].astype(np.float64))
        return out

    def _of(self, x: Floats) -> Floats:
        z = Standard(self.centre, self.factor)(x)
        out = np.tile(self.nothing * self.size, (len(z), 1))
        seen = [(z, self.plain_slopes, self.plain_starts, self.plain_weights)]
        if len(self.near_slopes):
            seen.append((near(z, self.landmarks), self.near_slopes, self.near_starts, self.near_weights))
        for phi, slopes, starts, weights in seen:
            for slope, start, weight in zip(slopes, starts, weights, strict=True):
                out += mixed(phi @ slope + start, self.mean, self.size, weight)
        for u, means, weights in zip(
            in_units(x - self.centre, z, self.unit, self.factor), self.means, self.mean_weights, strict=True
        ):
            squared = (u * u).sum(1)[:, None] - 2 * u @ means.T + (means * means).sum(1)
            out += np.tensordot(weights, by_distance(squared, self.size), 1)
        out /= out.sum(1, keepdims=True)
        return out


def mixed(forecast: Floats, mean: Floats, size: Floats, weight: Floats) -> Floats:
    """(n, K) -> (n, K): the sum over links and sharpness (2, S) of what a forecast becomes, by their weights."""
    out = np.zeros_like(forecast)
    for link in np.flatnonzero(weight.any(1)):
        out += np.tensordot(weight[link], linked(forecast, mean, size, int(link)), 1)
    return out


def in_units(centred: Floats, z: Floats, unit: Floats | float, factor: Floats) -> tuple[Floats, Floats]:
    """Features for means: of squared norm 1 on average, in the unit of all together, and each in its own."""
    changing = np.count_nonzero(factor) or 1  # and not of z: one query must not depend on those beside it
    return centred / unit, z / np.sqrt(changing)


def by_distance(squared: Floats, size: Floats) -> Floats:
    """(n, K) squared distances from the means -> (scales, n, K) p(class | x)"""
    score = np.log(size) - 0.5 * SCALES[:, None, None] * squared
    score -= score.max(-1, keepdims=True)
    np.exp(score, out=score)
    score /= score.sum(-1, keepdims=True)
    return score
