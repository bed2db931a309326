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

which know best what few items say; there, too, an item is taken out of the means that judge it by a formula. And from
`ENOUGH` items on, logistic regressions (`logistic`) on the features as they are, in the first link. Which way to see,
which λ, link, β or scale is not chosen: each is believed as far as it foretells labels of items that it has not met
(`believed`), "features say nothing" among them. So nothing depends on names, on order or on lots.

Once beliefs have heard the features, an item's labels have passed through them into the beliefs of others, and a
forecast "by others" has met these labels after all; the more a regression can bend, the more it gains by that. So ways
are judged by what they make of the first beliefs, which are of labels alone. What is said of new items, where the
better beliefs of the end tell means and ridges apart better than that costs, is judged by these; logistic regressions
are still judged by the first.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import numpy as np

from crowdshot.model import logistic
from crowdshot.model.forecast import (
    AT_ONCE,
    SCALES,
    SHARPNESS,
    Floats,
    Forecast,
    Numbers,
    Positions,
    Standard,
    by_distance,
    in_units,
    linked,
    mixed,
    near,
)

RIDGES = 10.0 ** np.arange(-3, 3)  # of the mean squared norm of the items
USUAL_RIDGE, USUAL_SHARPNESS = 0.1, 1.0
UNUSUAL_RIDGE = 0.3  # what a tenfold ridge costs, in nats, and
UNUSUAL_SHARPNESS = 1.0  # a doubled sharpness: with few items nothing else decides
USUAL_SCALE = 8.0
UNUSUAL_SCALE = 1.0  # what a doubled scale costs
TAU = 1.0
UNEVEN = 0.15  # of the features, where so few have the spread of all, one unit for all is half believed
MEANS = 0.5  # how far means are believed, before labels are foretold, against all regressions
LOGISTIC = 0.1  # how far logistic regressions are
SHARPER = 2.0  # power of beliefs that they learn, as what is believed of labels alone is modest
ENOUGH = 50  # items from which on these are tried,
MOST_CLASSES = 40  # classes up to which they are, and
TAUGHT = 2_000  # items that they learn from, at most
NOTHING = 0.02  # how far it is believed that features say nothing
CAUTION = 0.3  # evidence of n items counts as that of n^(1 - this): items that look alike share their labels' mistakes
ALONE = 2.0  # others of its class at which an item's forecast has half its weight
LANDMARKS = 1_200  # items that nearness is told by, at most
MOST = 20_000  # items that teach, at most
FORGOTTEN = 1e-3  # ways that are believed less are left out
SMALL = 1e-9


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
        self.logistic = logistic.Logistic(z, spread_out(z, TAUGHT)) if len(z) >= ENOUGH else None
        self.first: Worth | None = None

    def believed(self, q: Floats, evidence: Floats, size: Floats) -> tuple[Floats, Forecast]:
        """log p(class | features) - log(class size) of each item by all others, (n, K), weighted; and the forecast.

        ``q`` (n, K): what is believed of the items, which the regressions learn; ``size`` (K,) of the classes. The
        first call's must be of labels alone. ``evidence`` (n, K): log p(labels of an item | class), by which they are
        judged, as these labels they have not met:

            Σ_n log Σ_k p(k | x_n) p(labels of n | k)

        An item counts, there and in what is told of it, by how many others there are of its class.
        """
        others = (q * (q.sum(0) - q)).sum(1)
        counts = others / (others + ALONE)
        likely = np.exp(evidence - evidence.max(1, keepdims=True))
        seen = Seen(self, q, size)
        worth = seen.worth(likely, counts)
        if self.first is None:
            self.first = worth
        told = seen.told(self._weights(self.first))
        lead = self.first.logistic - self.first.ridges.max()
        weights = self._weights(worth._replace(logistic=lead + worth.ridges.max()))
        label = likely / likely.sum(1, keepdims=True)  # nearly the share of the labels that name a class
        foretold = np.array([(told * label).sum(), (size * label).sum()]) / len(q)
        found = seen.forecast(weights, foretold, np.array(counts.sum()))
        return (np.log(told) - np.log(size)) * counts[:, None], found

    def _weights(self, worth: Worth) -> Weights:
        """How far each way is believed: as far as before labels are foretold, times how it foretells them."""
        sharp = UNUSUAL_SHARPNESS * np.abs(np.log2(SHARPNESS / USUAL_SHARPNESS))
        ridge = UNUSUAL_RIDGE * np.abs(np.log10(RIDGES / USUAL_RIDGE))
        curve = UNUSUAL_RIDGE * np.abs(np.log10(logistic.RIDGES / logistic.USUAL))
        scale = UNUSUAL_SCALE * np.abs(np.log2(SCALES / USUAL_SCALE))
        usual = [
            np.exp(-np.broadcast_to(ridge[:, None, None] + sharp, worth.ridges.shape)),
            np.exp(-(curve[:, None] + sharp)),
            self.unit_priors[:, None] * np.exp(-scale),
        ]
        top = max(0.0, *(part.max() for part in worth))
        shares = (1 - MEANS - LOGISTIC - NOTHING, LOGISTIC, MEANS)
        parts = [share * u / u.sum() * np.exp(w - top) for share, u, w in zip(shares, usual, worth, strict=True)]
        nothing = NOTHING * np.exp(-top)
        total = sum(part.sum() for part in parts) + nothing
        for part in parts[:2]:
            part[part < FORGOTTEN * total] = 0
        total = sum(part.sum() for part in parts) + nothing
        ridges, curves, means = (part / total for part in parts)
        return Weights(ridges, curves, means, nothing / total)


class Worth(NamedTuple):
    """How much better labels are foretold than by class sizes, in nats, for each way; -inf where one was not tried."""

    ridges: Floats  # (views, ridges, links, sharpness)
    logistic: Floats  # (ridges, sharpness)
    means: Floats  # (2, scales)


class Weights(NamedTuple):
    """Of the same ways, and of: features say nothing. They sum to 1."""

    ridges: Floats
    logistic: Floats
    means: Floats
    nothing: float


class Seen:
    """What each way makes of one belief ``q`` (n, K) in the items, and class sizes (K,)."""

    def __init__(self, looks: Looks, q: Floats, size: Floats) -> None:
        self.looks, self.q, self.size = looks, q, size
        self.mean = q.mean(0).clip(SMALL)
        self.sharper = q**SHARPER / (q**SHARPER).sum(1, keepdims=True)
        self.distances, self.means = zip(*(distances(u, q) for u in looks.units), strict=True)

    def ridge(self, view: int, place: int) -> Floats:
        regression = self.looks.regressions[view]
        return regression.without_own(self.q, regression.ridges[place])

    def curve(self, place: int) -> Floats:
        """Such that the first link, with sharpness 1, makes p of it."""
        assert self.looks.logistic is not None
        z = self.looks.logistic.without_own(self.sharper, self.size, logistic.RIDGES[place])
        out: Floats = self.mean + z / len(self.mean)
        return out

    def worth(self, likely: Floats, counts: Floats) -> Worth:
        caution = max(counts.sum(), 1.0) ** -CAUTION
        by_size = np.log(likely @ self.size)

        def foretold(p: Floats) -> Floats:
            """(..., n, K) -> (...)"""
            out: Floats = caution * ((np.log((p * likely).sum(-1)) - by_size) @ counts)
            return out

        ridges = np.empty((len(self.looks.regressions), len(RIDGES), 2, len(SHARPNESS)))
        for view, place in product(*map(range, ridges.shape[:2])):
            forecast = self.ridge(view, place)
            for link in (0, 1):
                ridges[view, place, link] = foretold(linked(forecast, self.mean, self.size, link))
        curves = np.full((len(logistic.RIDGES), len(SHARPNESS)), -np.inf)
        if self.looks.first is not None:
            curves = self.looks.first.logistic  # judged once
        elif self.looks.logistic is not None and len(self.mean) <= MOST_CLASSES:
            for place in range(len(curves)):
                curves[place] = foretold(linked(self.curve(place), self.mean, self.size, 0))
        return Worth(ridges, curves, np.stack([foretold(by_distance(d, self.size)) for d in self.distances]))

    def told(self, weights: Weights) -> Floats:
        """(n, K): p(class | features) of each item by all others."""
        p = np.tile(weights.nothing * self.size, (len(self.q), 1))
        for squared, weight in zip(self.distances, weights.means, strict=True):
            p += np.tensordot(weight, by_distance(squared, self.size), 1)
        for view, place in zip(*np.nonzero(weights.ridges.any((2, 3))), strict=True):
            p += mixed(self.ridge(view, place), self.mean, self.size, weights.ridges[view, place])
        for place in np.flatnonzero(weights.logistic.any(1)).tolist():
            p += mixed(self.curve(place), self.mean, self.size, _in_first_link(weights.logistic[place]))
        return p

    def forecast(self, weights: Weights, foretold: Floats, counted: Floats) -> Forecast:
        looks, K = self.looks, len(self.mean)
        parts: list[list[tuple[Floats, Floats, Floats]]] = [[], []]
        for view, place in zip(*np.nonzero(weights.ridges.any((2, 3))), strict=True):
            regression = looks.regressions[view]
            slope, start = regression.weights(self.q, regression.ridges[place])
            parts[view].append((looks.root @ slope if view else slope, start, weights.ridges[view, place]))
        for place in np.flatnonzero(weights.logistic.any(1)).tolist():
            assert looks.logistic is not None
            slope, start = looks.logistic.weights(self.sharper, self.size, logistic.RIDGES[place])
            parts[0].append((slope / K, self.mean + start / K, _in_first_link(weights.logistic[place])))
        return Forecast(
            looks.standard.centre,
            looks.standard.factor,
            looks.landmarks if parts[1] else looks.landmarks[:0],
            *_stacked(parts[0], len(looks.standard.centre), K),
            *_stacked(parts[1], len(looks.landmarks), K),
            np.stack(self.means),
            np.array(looks.unit),
            weights.means,
            np.array(weights.nothing),
            self.mean,
            self.size,
            foretold,
            counted,
        )


def _in_first_link(weight: Floats) -> Floats:
    """(sharpness,) -> (2, sharpness)"""
    return np.stack([weight, np.zeros_like(weight)])


def distances(u: Floats, q: Floats) -> tuple[Floats, Floats]:
    """(n, K) squared distances of each item from means that it is not part of; and (K, D) the means with all."""
    own = (u * u).sum(1)[:, None]
    sums, sizes = q.T @ u, q.sum(0)
    inner = u @ sums.T
    weight = TAU + sizes - q
    squared = (sums * sums).sum(1) - 2 * q * inner + q * q * own
    distance: Floats = own - 2 * (inner - q * own) / weight + squared / weight**2
    return distance, sums / (TAU + sizes)[:, None]


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
