"""What an item's features say of its class, without its own labels: regressions whose leave-one-out is a formula.

Features x (N, D) of any origin are seen in two ways: as they are, and by how near they are to one another (a Gaussian
kernel of half the mean squared distance). In each, a ridge regression foretells the belief q (N, K) in the items'
classes. With the singular values s of the centred features and their directions U, the forecast of ridge λ and what is
left of it when item n does not teach are

    f = mean(q) + U d Uᵀ (q - mean(q)),   d = s² / (s² + λ),   h_n = Σ_j U_nj² d_j + 1/N
    f_without_n = (f_n - h_n q_n) / (1 - h_n)

for all items at once, whatever q is. A forecast becomes p(class | x) by one of two links, with a sharpness β,

    p_k ∝ size_k exp(β (f_k - mean_k) / unit_k),   unit_k = 1/K or mean_k

of which the second takes f_k / mean_k for how much likelier the class has become, and the first is calmer where a class
is rare. Beside these stand the paper's means (7) and classifier (8), for features in units of their spread as a whole
and for features each in its own,

    m_k = Σ_n q_nk x_n / (TAU + Σ_n q_nk),   p_k ∝ size_k exp(-scale/2 |x - m_k|²)

which know best what few items say; there, too, an item is taken out of the means that judge it by a formula. Which way
to see, which λ, link, β or scale is not chosen: each is believed as far as it foretells labels of items that it has not
met (`believed`), "features say nothing" among them. So nothing depends on names, on order or on lots.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Numbers = NDArray[np.floating[Any]]
Positions = NDArray[np.int64]

RIDGES = 10.0 ** np.arange(-3, 3)  # of the mean squared norm of the items
SHARPNESS = np.array([0.25, 0.5, 0.7, 1.0, 1.4, 2.0])
USUAL_RIDGE, USUAL_SHARPNESS = 0.1, 1.0
UNUSUAL_RIDGE = 0.3  # what a tenfold ridge costs, in nats, and
UNUSUAL_SHARPNESS = 1.0  # a doubled sharpness: with few items nothing else decides
SCALES = 2.0 ** np.arange(7)  # of distances from means
USUAL_SCALE = 8.0
UNUSUAL_SCALE = 1.0  # what a doubled scale costs
TAU = 1.0
UNEVEN = 0.15  # of the features, where so few have the spread of all, one unit for all is half believed
MEANS = 0.5  # how far means are believed, before labels are foretold, against all regressions
NOTHING = 0.02  # how far it is believed that features say nothing
CAUTION = 0.3  # evidence of n items counts as that of n^(1 - this): items that look alike share their labels' mistakes
ALONE = 2.0  # others of its class at which an item's forecast has half its weight
RARE = 0.3  # of an equal share: less frequent classes count as this frequent in the second link
LANDMARKS = 1_200  # items that nearness is told by, at most
MOST = 20_000  # items that teach, at most
AT_ONCE = 3_000_000  # numbers of a piece of queries, which stays near the processor
FORGOTTEN = 1e-3  # ways that are believed less are left out
SMALL = 1e-9


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


class Regression:
    """Ridge regressions on ``phi`` (n, r), of every ridge at once."""

    def __init__(self, phi: Floats) -> None:
        self.centre = phi.mean(0)
        centred = phi - self.centre
        n, r = centred.shape
        if n <= r:
            squared, U = np.linalg.eigh(centred @ centred.T)
            kept = squared > max(squared.max(), SMALL) * SMALL
            self.squared, self.U = squared[kept], U[:, kept]
            self.back = centred.T @ self.U / self.squared  # (r, j): from directions to weights of phi
        else:
            squared, V = np.linalg.eigh(centred.T @ centred)
            kept = squared > max(squared.max(), SMALL) * SMALL
            self.squared, self.back = squared[kept], V[:, kept] / np.sqrt(squared[kept])
            self.U = centred @ self.back
        self.ridges = RIDGES * max(self.squared.sum() / n, SMALL)

    def without_own(self, q: Floats, ridge: float) -> Floats:
        """(n, K) -> (n, K): forecasts of each item by all others."""
        mean, d = q.mean(0), self.squared / (self.squared + ridge)
        forecast = mean + self.U @ (d[:, None] * (self.U.T @ (q - mean)))
        own = ((self.U * self.U) @ d + 1 / len(q))[:, None]
        out: Floats = (forecast - own * q) / (1 - own).clip(SMALL)
        return out

    def weights(self, q: Floats, ridge: float) -> tuple[Floats, Floats]:
        """(r, K) and (K,): a forecast is phi @ the first + the second."""
        mean, d = q.mean(0), self.squared / (self.squared + ridge)
        slope = self.back @ (d[:, None] * (self.U.T @ (q - mean)))
        return slope, mean - self.centre @ slope


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
    plain_slopes: Floats  # (c, D, K) of each regression on features
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


class Looks:
    """What can be said of items by their features ``x`` (n, D), for any belief in their classes."""

    def __init__(self, x: Floats) -> None:
        self.standard = Standard.of(x)
        z = self.standard(x)
        self.landmarks = z[spread_out(z, LANDMARKS)]
        size, V = np.linalg.eigh(near(self.landmarks, self.landmarks))
        kept = size > size.max() * 1e-8
        self.root = V[:, kept] / np.sqrt(size[kept])  # nearness to landmarks -> a space in which it is a product
        centred = x - self.standard.centre
        self.unit = np.sqrt((centred * centred).sum(1).mean()) or 1.0
        self.units = in_units(centred, z, self.unit, self.standard.factor)
        # features in units of their own (a price, an age) differ so much in spread that one or two would decide alone
        variance = (centred * centred).mean(0)
        shared = variance.sum() ** 2 / max((variance**2).sum() * np.count_nonzero(z.any(0)), 1e-300)
        one_unit = shared**2 / (shared**2 + UNEVEN**2)
        self.unit_priors = np.array([one_unit, 1 - one_unit])
        self.regressions = [Regression(z), Regression(near(z, self.landmarks) @ self.root)]

    def believed(self, q: Floats, evidence: Floats, size: Floats) -> tuple[Floats, Forecast]:
        """log p(class | features) - log(class size) of each item by all others, (n, K), weighted; and the forecast.

        ``q`` (n, K): what is believed of the items, which the regressions learn; ``size`` (K,) of the classes.
        ``evidence`` (n, K): log p(labels of an item | class), by which they are judged, as these labels they have not
        met:

            Σ_n log Σ_k p(k | x_n) p(labels of n | k)

        An item counts, there and in what is told of it, by how many others there are of its class.
        """
        n, K = q.shape
        mean = q.mean(0).clip(SMALL)
        others = (q * (q.sum(0) - q)).sum(1)
        counts = others / (others + ALONE)
        caution = max(counts.sum(), 1.0) ** -CAUTION
        likely = np.exp(evidence - evidence.max(1, keepdims=True))
        by_size = np.log(likely @ size)
        ways = list(product(range(len(self.regressions)), range(len(RIDGES))))

        def forecasts(way: tuple[int, int]) -> Floats:
            regression = self.regressions[way[0]]
            return regression.without_own(q, regression.ridges[way[1]])

        worth = np.empty((len(ways), 2, len(SHARPNESS)))
        for place, way in enumerate(ways):
            forecast = forecasts(way)
            for link in (0, 1):
                told = np.log((linked(forecast, mean, size, link) * likely).sum(-1)) - by_size  # (sharpness, n)
                worth[place, link] = caution * (told @ counts)
        distances, means = zip(*(self._distances(u, q) for u in self.units), strict=True)
        told = [np.log((by_distance(squared, size) * likely).sum(-1)) - by_size for squared in distances]
        mean_worth = caution * (np.stack(told) @ counts)  # (2, scales)
        usual = np.array([abs(np.log10(RIDGES[ridge] / USUAL_RIDGE)) * UNUSUAL_RIDGE for _, ridge in ways])
        sharp = UNUSUAL_SHARPNESS * np.abs(np.log2(SHARPNESS / USUAL_SHARPNESS))
        expected = np.exp(-(usual[:, None, None] + np.broadcast_to(sharp, (2, len(SHARPNESS)))))
        at_means = np.exp(-UNUSUAL_SCALE * np.abs(np.log2(SCALES / USUAL_SCALE)))
        top = max(worth.max(), mean_worth.max(), 0.0)
        weights = (1 - MEANS - NOTHING) * expected / expected.sum() * np.exp(worth - top)
        mean_weights = MEANS * self.unit_priors[:, None] * at_means / at_means.sum() * np.exp(mean_worth - top)
        nothing = NOTHING * np.exp(-top)
        total = weights.sum() + mean_weights.sum() + nothing
        weights[weights < FORGOTTEN * total] = 0
        total = weights.sum() + mean_weights.sum() + nothing
        weights, mean_weights, nothing = weights / total, mean_weights / total, nothing / total

        p = np.tile(nothing * size, (n, 1))
        for squared, weight in zip(distances, mean_weights, strict=True):
            p += np.tensordot(weight, by_distance(squared, size), 1)
        parts: list[list[tuple[Floats, Floats, Floats]]] = [[], []]
        for (view, ridge), weight in zip(ways, weights, strict=True):
            if not weight.any():
                continue
            p += mixed(forecasts((view, ridge)), mean, size, weight)
            regression = self.regressions[view]
            slope, start = regression.weights(q, regression.ridges[ridge])
            parts[view].append((self.root @ slope if view else slope, start, weight))
        label = likely / likely.sum(1, keepdims=True)  # nearly the share of the labels that name a class
        found = Forecast(
            self.standard.centre,
            self.standard.factor,
            self.landmarks if parts[1] else self.landmarks[:0],
            *self._stacked(parts[0], len(self.standard.centre), K),
            *self._stacked(parts[1], len(self.landmarks), K),
            np.stack(means),
            np.array(self.unit),
            mean_weights,
            np.array(nothing),
            mean,
            size,
            np.array([(p * label).sum() / n, (size * label).sum() / n]),
            np.array(counts.sum()),
        )
        return (np.log(p) - np.log(size)) * counts[:, None], found

    @staticmethod
    def _distances(u: Floats, q: Floats) -> tuple[Floats, Floats]:
        """(n, K) squared distances of each item from means that it is not part of; and (K, D) the means with all."""
        own = (u * u).sum(1)[:, None]
        sums, sizes = q.T @ u, q.sum(0)
        inner = u @ sums.T
        weight = TAU + sizes - q
        squared = (sums * sums).sum(1) - 2 * q * inner + q * q * own
        distance: Floats = own - 2 * (inner - q * own) / weight + squared / weight**2
        return distance, sums / (TAU + sizes)[:, None]

    @staticmethod
    def _stacked(parts: list[tuple[Floats, Floats, Floats]], r: int, K: int) -> tuple[Floats, Floats, Floats]:
        if not parts:
            return np.zeros((0, r, K)), np.zeros((0, K)), np.zeros((0, 2, len(SHARPNESS)))
        slopes, starts, weights = zip(*parts, strict=True)
        return np.stack(slopes), np.stack(starts), np.stack(weights)


def spread_out(z: Numbers, most: int) -> Positions:
    """Rows (at most so many) spread over z (n, D), whatever the order of its rows: evenly along one direction of it."""
    if len(z) <= most:
        return np.arange(len(z))
    direction = np.sin(np.arange(z.shape[1]) + 1.0)  # any that no feature is likely to follow
    along = np.concatenate([piece @ direction for piece in np.array_split(z, -(-z.size // AT_ONCE))])
    order = np.argsort(along, kind="stable")
    return np.sort(order[np.linspace(0, len(z) - 1, most).round().astype(np.int64)])
