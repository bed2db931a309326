"""What an item's features say of its class, without its own labels: regressions whose leave-one-out is a formula.

Features x (N, D) of any origin are seen in two ways: as they are, and by how near they are to one another (a Gaussian
kernel of half the mean squared distance). In each, a ridge regression foretells the posterior q (N, K) in the items'
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

Once posteriors have heard the features, an item's labels have passed through them into the posteriors of others, and a
forecast "by others" has met these labels after all; the more a regression can bend, the more it gains by that. So ways
are judged by what they make of the first posteriors, which are of labels alone. What is said of new items, where the
better posteriors of the end tell means and ridges apart better than that costs, is judged by these; logistic regressions
are still judged by the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

# ---- forecast ------------------------------------------------------------
#
# What features say of any item's class, after all ways to see them were judged (`looks`): a mixture of classifiers.


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


# ---- logistic ------------------------------------------------------------
#
# Multinomial logistic regression on posteriors, and what it says of each item without that item's own labels.
#
# Features are seen along their first principal directions, φ (n, r). With class sizes s and a posterior q (n, K),
#
#     p_k ∝ s_k exp(z_k),   z = φ W + w₀,   W = argmin -Σ_n Σ_k q_nk log p_nk + λ/2 |W|²
#
# is convex. That item n had not taught changes its own z by one Newton step, taken class by class (`without_own`):
#
#     z_without_n = z_n + h / (1 - a h) (p_n - q_n),   a = p (1 - p),   h = φ_nᵀ (Φᵀ diag(a) Φ + λ)⁻¹ φ_n
#
# Ridge regression (`looks`) has both in closed form, but of several classes that lie side by side those in the middle are
# hidden behind the others: where planes part the classes, regression on votes had up to 0.08 more new items right.


LOGISTIC_RIDGES = np.array([1.0, 10.0, 100.0])
USUAL = 10.0
DIRECTIONS = 128  # of features, at most
LEVEL = 1e-3  # of the ridge, for w₀
STEPS = 60
LOGISTIC_SMALL = 1e-9


class Logistic:
    """Of items ``z`` (n, D) in units of their spread; ``teach``: rows that are learned from."""

    def __init__(self, z: Floats, teach: Positions) -> None:
        taught = z[teach]
        n, D = taught.shape
        if n < D:
            squared, U = np.linalg.eigh(taught @ taught.T)
            V = taught.T @ U / np.sqrt(squared.clip(LOGISTIC_SMALL))
        else:
            squared, V = np.linalg.eigh(taught.T @ taught)
        kept = np.flatnonzero(squared > max(squared.max(), LOGISTIC_SMALL) * LOGISTIC_SMALL)[-DIRECTIONS:]
        self.teach = teach
        self.directions = V[:, kept]  # (D, r)
        self.phi = np.column_stack([z @ self.directions, np.ones(len(z))])
        self.penalty = np.append(np.ones(len(kept)), LEVEL)[:, None]
        self.curved = np.append(squared[kept], n)[:, None] / 2  # no more than this in any direction (Böhning 1992)
        self.found: dict[float, Floats] = {}

    def learn(self, q: Floats, size: Floats, ridge: float) -> Floats:
        """(r + 1, K), beginning where the last call with this ridge ended."""
        phi, q, offset = self.phi[self.teach], q[self.teach], np.log(size)
        penalty = ridge * self.penalty
        unit = 1 / np.sqrt(self.curved + penalty)
        start = self.found.get(ridge, np.zeros((phi.shape[1], q.shape[1])))

        def loss(flat: Floats) -> tuple[float, Floats]:
            W = flat.reshape(start.shape) * unit
            score = phi @ W + offset
            p = softmax(score, axis=1)
            value = (q * (logsumexp(score, axis=1, keepdims=True) - score)).sum() + 0.5 * (penalty * W * W).sum()
            return float(value), ((phi.T @ (p - q) + penalty * W) * unit).ravel()

        options = {"maxiter": STEPS, "gtol": 1e-7, "ftol": 1e-12}
        end = minimize(loss, (start / unit).ravel(), jac=True, method="L-BFGS-B", options=options)
        self.found[ridge] = end.x.reshape(start.shape) * unit
        return self.found[ridge]

    def without_own(self, q: Floats, size: Floats, ridge: float) -> Floats:
        """(n, K) -> (n, K): z of each item by all others."""
        z: Floats = self.phi @ self.learn(q, size, ridge)
        p, phi = softmax(z + np.log(size), axis=1)[self.teach], self.phi[self.teach]
        curvature, excess = p * (1 - p), p - q[self.teach]
        for k in range(q.shape[1]):
            a = curvature[:, k]
            hessian = phi.T @ (a[:, None] * phi) + ridge * np.diag(self.penalty[:, 0])
            whitened = solve_triangular(cholesky(hessian, lower=True), phi.T, lower=True)
            h = (whitened * whitened).sum(0)
            z[self.teach, k] += h / (1 - a * h).clip(LOGISTIC_SMALL) * excess[:, k]
        return z

    def weights(self, q: Floats, size: Floats, ridge: float) -> tuple[Floats, Floats]:
        """(D, K) and (K,): z of any item is its features @ the first + the second."""
        W = self.learn(q, size, ridge)
        return self.directions @ W[:-1], W[-1]


# ---- looks ------------------------------------------------------------


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
SHARPER = 2.0  # power of posteriors that they learn, as what is believed of labels alone is modest
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


class FeatureModel:
    """What can be said of items by their features ``x`` (n, D), for any posterior in their classes."""

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
        self.logistic = Logistic(z, spread_out(z, TAUGHT)) if len(z) >= ENOUGH else None
        self.first: HeldOutScore | None = None

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

    def _weights(self, worth: HeldOutScore) -> Weights:
        """How far each way is believed: as far as before labels are foretold, times how it foretells them."""
        sharp = UNUSUAL_SHARPNESS * np.abs(np.log2(SHARPNESS / USUAL_SHARPNESS))
        ridge = UNUSUAL_RIDGE * np.abs(np.log10(RIDGES / USUAL_RIDGE))
        curve = UNUSUAL_RIDGE * np.abs(np.log10(LOGISTIC_RIDGES / USUAL))
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


class HeldOutScore(NamedTuple):
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
    """What each way makes of one posterior ``q`` (n, K) in the items, and class sizes (K,)."""

    def __init__(self, looks: FeatureModel, q: Floats, size: Floats) -> None:
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
        z = self.looks.logistic.without_own(self.sharper, self.size, LOGISTIC_RIDGES[place])
        out: Floats = self.mean + z / len(self.mean)
        return out

    def worth(self, likely: Floats, counts: Floats) -> HeldOutScore:
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
        curves = np.full((len(LOGISTIC_RIDGES), len(SHARPNESS)), -np.inf)
        if self.looks.first is not None:
            curves = self.looks.first.logistic  # judged once
        elif self.looks.logistic is not None and len(self.mean) <= MOST_CLASSES:
            for place in range(len(curves)):
                curves[place] = foretold(linked(self.curve(place), self.mean, self.size, 0))
        return HeldOutScore(ridges, curves, np.stack([foretold(by_distance(d, self.size)) for d in self.distances]))

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
            slope, start = looks.logistic.weights(self.sharper, self.size, LOGISTIC_RIDGES[place])
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


# ---- guesses ------------------------------------------------------------
#
# What any classifier says of items, trusted as far as it foretells the labels that it never met.


GUESS_SHARPNESS = np.array([0.0, 0.25, 0.5, 0.75, 1.0])  # of what it claims; 0: it says nothing
BEFORE = np.array([0.5, 0.075, 0.1, 0.125, 0.2])  # how far each is believed, before labels are foretold
LEAST = 1e-6  # no classifier is surer than this
GUESS_CAUTION = 0.3  # of several witnesses: evidence of n items counts as that of n^(1 - this)
BESIDE_LABELS = 0.6  # what is said counts for so much: people and classifiers err on the same items


def trusted(p: Floats, evidence: Floats, counted: NDArray[np.bool_]) -> Floats:
    """log p(class | the classifier) - log(class size), (N, K).

    ``p`` (N, K): what it says. ``evidence`` (N, K): log p(labels | class), by which it is judged on the items that are
    ``counted``, (N,). With its tilt t = log p - log size, each sharpness β says q ∝ size exp(β t), is believed by

        Σ_n log Σ_k q_nk p(labels of n | k)

    and what they say is averaged.
    """
    p = p.clip(LEAST)
    size = p.mean(0) / p.mean(0).sum()
    tilt = np.log(p) - np.log(size)
    likely = np.exp(evidence - evidence.max(1, keepdims=True))[counted]
    said = np.exp(GUESS_SHARPNESS[:, None, None] * tilt) * size
    said /= said.sum(-1, keepdims=True)
    worth = np.log((said[:, counted] * likely).sum(-1)).sum(-1)
    weight = BEFORE * np.exp(worth - worth.max())
    out: Floats = np.log(np.tensordot(weight / weight.sum(), said, 1)) - np.log(size)
    return out


def weigh(witnesses: Sequence[Floats], evidence: Floats, size: Floats) -> Floats:
    """How far each is believed, by how well it foretells labels: log p(class | witness) - log(size), (n, K) each."""
    likely = np.exp(evidence - evidence.max(1, keepdims=True))
    worth = np.array([np.log((_claims(told, size) * likely).sum(1)).sum() for told in witnesses])
    weight = np.exp((worth - worth.max()) * max(len(evidence), 1) ** -GUESS_CAUTION)
    out: Floats = weight / weight.sum()
    return out


def together(witnesses: Sequence[Floats], weights: Floats, size: Floats) -> Floats:
    """What witnesses say that may all have it from the same source: their average, never their product."""
    p = sum(weight * _claims(told, size) for told, weight in zip(witnesses, weights, strict=True))
    out: Floats = np.log(p) - np.log(size)
    return out


def _claims(told: Floats, size: Floats) -> Floats:
    p: Floats = np.exp(told) * size
    p /= p.sum(1, keepdims=True)
    return p
