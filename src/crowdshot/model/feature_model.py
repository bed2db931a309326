"""Predict an item's class from its features, without using the item's own labels (the feature model).

The feature model averages classifiers that are fitted to the current class posteriors q (N, K):

- ridge regression on the features and on a Gaussian kernel (Nystroem approximation), for several ridges;
- nearest class mean (eqs 7 and 8 of the paper), with one scale for all features or one for each;
- multinomial logistic regression (`Logistic`), from `ENOUGH` items on;
- a constant classifier that predicts the class sizes: the features are uninformative.

Leave-one-out predictions are available in closed form, approximately so for the logistic regression
(`crowdshot.model.regressions`). Ridges are multiples (`RIDGES`) of the mean squared norm of the centred features. The
kernel is exp(-|z - z'|^2 / (2 D)) for standardised features z, which is 1/e at the root mean squared distance of two
items. A regression f becomes p(class | x) by one of two links, with a sharpness beta,

    p_k proportional to size_k exp(beta (f_k - mean_k) / unit_k),   unit_k = 1/K or max(mean_k, RARE/K)

For the class means m_k, features are centred and have a mean squared norm of 1,

    m_k = sum_n q_nk x_n / (TAU + sum_n q_nk),   p_k proportional to size_k exp(-scale/2 |x - m_k|^2)

and each item is left out of the means that it is compared with.

The weight of a classifier is its prior weight times its held-out likelihood of the labels, relative to class sizes
alone:

    prod_n [ sum_k p(k | x_n, other items) p(labels of n | k) / sum_k size_k p(labels of n | k) ] ^ (c_n / (sum_n
    c_n)^CAUTION)

Here c_n = o_n / (o_n + ALONE), and o_n is the expected number of other items in the item's class. The exponent makes n
items count as n^(1 - CAUTION), because similar items tend to share annotation errors. The predictions for items, as
log p(k | x_n, other items) - log size_k, are multiplied by c_n as well.

The weights that predict labelled items are computed once, from posteriors that used labels only. Later posteriors
already contain the features and would favour the most flexible classifier, because the labels of an item have reached
the posteriors of others. For new items, ridge regressions and means are weighted by the last posteriors. Logistic
regressions keep the lead over the best ridge regression that they had at first. Nothing depends on names, on the order
of items or on random numbers.

`trusted`, `weigh` and `together` weight predictions from other classifiers by the same held-out likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.model.regressions import (
    AT_ONCE,
    LOGISTIC_RIDGES,
    RIDGES,
    Floats,
    Logistic,
    Numbers,
    Positions,
    Regression,
    RidgeFit,
    chunks,
    kernel,
)

# ---- the averaged classifier -----------------------------------------------------------------------------------------

SHARPNESS = np.array([0.25, 0.5, 0.7, 1.0, 1.4, 2.0])
SCALES = 2.0 ** np.arange(7)  # of squared distances from class means
RARE = 0.3  # least unit of the second link, as a multiple of 1/K


@dataclass(frozen=True)
class Standard:
    """Standardise features to mean 0 and standard deviation 1; constant features become 0."""

    centre: Floats  # (D,)
    factor: Floats  # (D,)

    @classmethod
    def of(cls, x: Floats) -> Standard:
        return cls.from_moments(x.mean(0), x.var(0))

    @classmethod
    def from_moments(cls, centre: Floats, variance: Floats) -> Standard:
        spread = np.sqrt(variance)
        varies = spread > 1e-12 * np.abs(centre)
        return cls(centre, np.where(varies, 1 / np.where(varies, spread, 1), 0))

    def __call__(self, x: Floats) -> Floats:
        return (x - self.centre) * self.factor


def linked(f: Floats, mean: Floats, size: Floats, link: int) -> tuple[Floats, Floats]:
    """Apply a link (0 or 1) with each sharpness to regressions (K, n).

    Returns
    -------
    odds : (sharpness, K, n) array
        Proportional to p(class | x).
    total : (sharpness, n) array
        Their sums over classes.
    """
    K = len(mean)
    unit = np.full(K, 1 / K) if link == 0 else np.maximum(mean, RARE / K)
    return _odds(SHARPNESS[:, None, None] * ((f - mean[:, None]) / unit[:, None]), size)


def _odds(score: Floats, size: Floats) -> tuple[Floats, Floats]:
    """Return size exp(score), up to a factor of each item, and the sums over classes, of scores (..., K, n)."""
    score += np.log(size)[:, None]
    score -= score.max(-2, keepdims=True)
    np.exp(score, out=score)
    return score, score.sum(-2)


@dataclass(frozen=True)
class Forecast:
    """The averaged classifier for new items: regressions, class means, and their weights.

    "Plain" regressions (ridge and logistic) act on standardised features, "near" ones on the kernel. c is the number of
    regressions of non-zero weight.
    """

    centre: Floats  # (D,)
    factor: Floats  # (D,)
    landmarks: Floats  # (M, D), standardised; the columns of the kernel
    plain_slopes: Floats  # (c, D, K)
    plain_starts: Floats  # (c, K) intercepts
    plain_weights: Floats  # (c, links, sharpness)
    near_slopes: Floats  # (c, M, K)
    near_starts: Floats
    near_weights: Floats
    means: Floats  # (2, K, D), with one unit for all features and with one for each
    unit: Floats  # () root mean squared norm of the centred features
    mean_weights: Floats  # (2, scales)
    nothing: Floats  # () weight of the constant classifier
    mean: Floats  # (K,) mean of q
    size: Floats  # (K,) class sizes
    foretold: Floats  # (2,) mean held-out probability of labels, by the features and by class sizes alone
    counted: Floats  # () effective number of items in these means, sum_n c_n

    def __call__(self, x: Numbers, rows: Positions | None = None) -> Floats:
        """Return p(class | x), (Q, K), of features (Q, D) or of some of their rows."""
        rows = np.arange(len(x)) if rows is None else rows
        out = np.empty((len(rows), len(self.size)))
        for piece in chunks(len(rows), len(self.landmarks) + len(SHARPNESS) * len(self.size)):
            out[piece] = self._predict(x[rows[piece]].astype(np.float64))
        return out

    def _predict(self, x: Floats) -> Floats:
        centred = x - self.centre
        z = centred * self.factor
        out = np.tile((self.nothing * self.size)[:, None], len(z))
        views = [(z, self.plain_slopes, self.plain_starts, self.plain_weights)]
        if len(self.near_slopes):
            views.append((kernel(z, self.landmarks), self.near_slopes, self.near_starts, self.near_weights))
        for phi, slopes, starts, weights in views:
            for slope, start, weight in zip(slopes, starts, weights, strict=True):
                out += mixed(slope.T @ phi.T + start[:, None], self.mean, self.size, weight)
        scales = (1 / self.unit, self.factor / np.sqrt(np.count_nonzero(self.factor) or 1))
        for scale, means, weights in zip(scales, self.means, self.mean_weights, strict=True):
            u = centred * scale
            squared = (u * u).sum(1) - 2 * means @ u.T + (means * means).sum(1)[:, None]
            out += _averaged(*by_distance(squared, self.size), weights)
        p: Floats = (out / out.sum(0)).T
        return p


def mixed(f: Floats, mean: Floats, size: Floats, weight: Floats) -> Floats:
    """Return the sum of a regression's p(class | x), (K, n), over links and sharpness with ``weight`` (2, S)."""
    out = np.zeros_like(f)
    for link in np.flatnonzero(weight.any(1)):
        out += _averaged(*linked(f, mean, size, int(link)), weight[link])
    return out


def _averaged(odds: Floats, total: Floats, weight: Floats) -> Floats:
    """Return the sum of the probabilities odds / total, (S, K, n), with weights (S,)."""
    odds *= (weight[:, None] / total)[:, None]
    out: Floats = odds.sum(0)
    return out


def by_distance(squared: Floats, size: Floats) -> tuple[Floats, Floats]:
    """Return odds and total as `linked` for each scale, from squared distances to class means (K, n)."""
    return _odds(-0.5 * SCALES[:, None, None] * squared, size)


# ---- feature model ---------------------------------------------------------------------------------------------------


USUAL_RIDGE, USUAL_LOGISTIC_RIDGE, USUAL_SHARPNESS = 0.1, 10.0, 1.0  # of the largest prior weight
UNUSUAL_RIDGE = 0.3  # log prior weight, in nats, lost by each tenfold change of the ridge,
UNUSUAL_SHARPNESS = 1.0  # and by each doubling or halving of the sharpness. With few items the prior weights decide.
USUAL_SCALE = 8.0
UNUSUAL_SCALE = 1.0  # log prior weight lost by each doubling or halving of the scale
TAU = 1.0  # pseudo-items at the origin of class means
UNEVEN = 0.15  # effective share of features in the total variance at which one unit for all has prior weight 1/2
MEANS = 0.5  # prior weight of class means,
LOGISTIC = 0.1  # of logistic regressions,
NOTHING = 0.02  # of the constant classifier; the ridge regressions have the rest
SHARPER = 2.0  # power of the posteriors that logistic regressions are fitted to; label-only posteriors are cautious
ENOUGH = 50  # least items,
MOST_CLASSES = 40  # and most classes, for which logistic regressions are fitted
TAUGHT = 2_000  # most items that logistic regressions are fitted to
CAUTION = 0.3  # held-out evidence from n items counts as n ** (1 - CAUTION): similar items share annotation errors
ALONE = 2.0  # other items of its class for which an item has half weight
LANDMARKS = 1_200  # most columns of the kernel
MOST = 20_000  # most items that the feature model is fitted to
FORGOTTEN = 1e-3  # regressions of less weight are dropped
SMALL = 1e-9


class FeatureModel:
    """The feature model of items with features ``x`` (n, D), for any posteriors of their classes.

    The decompositions of the features are computed once. `fit` fits the classifiers to posteriors.
    """

    def __init__(self, x: Numbers) -> None:
        z = x.astype(np.float64)
        centre = z.mean(0)
        z -= centre
        variance = np.einsum("nd,nd->d", z, z) / len(z)
        self.standard = Standard.from_moments(centre, variance)
        z *= self.standard.factor
        self.z: Floats = z
        self.landmarks = spread_rows(z, LANDMARKS)
        self.unit = np.sqrt(variance.sum()) or 1.0
        self.units = in_units(self.unit, self.standard.factor)
        self.squared_norms = [np.einsum("nd,nd,d->n", z, z, unit * unit) for unit in self.units]
        # Features of different kinds (a price, an age) can differ so much in variance that one or two would dominate.
        effective = variance.sum() ** 2 / max((variance**2).sum() * np.count_nonzero(z.any(0)), 1e-300)
        one_unit = effective**2 / (effective**2 + UNEVEN**2)
        self.unit_priors = np.array([one_unit, 1 - one_unit])
        self.regressions = [Regression.on_features(z), Regression.on_kernel(z, self.landmarks)]
        train = spread_rows(z, TAUGHT)
        self.logistic = Logistic(z, train, self.regressions[0]) if len(z) >= ENOUGH else None
        self.first: HeldOutScore | None = None

    def fit(self, q: Floats, evidence: Floats, size: Floats) -> FeatureModelFit:
        """Fit all classifiers to posteriors, and predict each item from the other items.

        Parameters
        ----------
        q : (n, K) array
            Posteriors that the classifiers are fitted to. Those of the first call must come from labels only.
        evidence : (n, K) array
            log p(labels of the item | class), by which classifiers are weighted.
        size : (K,) array
            Class sizes.
        """
        fit = FeatureModelFit(self, q, evidence, size)
        if self.first is None:
            self.first = fit.score
        return fit

    def weights(self, score: HeldOutScore) -> Weights:
        """Return the weights of all classifiers: prior weight times held-out likelihood, normalised."""
        sharp = UNUSUAL_SHARPNESS * np.abs(np.log2(SHARPNESS / USUAL_SHARPNESS))
        ridge = UNUSUAL_RIDGE * np.abs(np.log10(RIDGES / USUAL_RIDGE))
        logistic = UNUSUAL_RIDGE * np.abs(np.log10(LOGISTIC_RIDGES / USUAL_LOGISTIC_RIDGE))
        scale = UNUSUAL_SCALE * np.abs(np.log2(SCALES / USUAL_SCALE))
        priors = [
            np.exp(-np.broadcast_to(ridge[:, None, None] + sharp, score.ridges.shape)),
            np.exp(-(logistic[:, None] + sharp)),
            self.unit_priors[:, None] * np.exp(-scale),
        ]
        top = max(0.0, *(part.max() for part in score))
        shares = (1 - MEANS - LOGISTIC - NOTHING, LOGISTIC, MEANS)
        parts = [share * p / p.sum() * np.exp(s - top) for share, p, s in zip(shares, priors, score, strict=True)]
        nothing = NOTHING * np.exp(-top)
        total = sum(part.sum() for part in parts) + nothing
        for part in parts[:2]:
            part[part < FORGOTTEN * total] = 0
        total = sum(part.sum() for part in parts) + nothing
        ridges, logistic, means = (part / total for part in parts)
        return Weights(ridges, logistic, means, nothing / total)


class HeldOutScore(NamedTuple):
    """Held-out log-likelihood of the labels less that of class sizes, in nats; -inf for missing classifiers."""

    ridges: Floats  # (views, ridges, links, sharpness)
    logistic: Floats  # (ridges, sharpness)
    means: Floats  # (2, scales)


class Weights(NamedTuple):
    """Weights of the same classifiers and of the constant one. They sum to 1."""

    ridges: Floats
    logistic: Floats
    means: Floats
    nothing: float


class FeatureModelFit:
    """All classifiers of a `FeatureModel`, fitted to posteriors ``q`` (n, K) with class sizes ``size`` (K,)."""

    def __init__(self, model: FeatureModel, q: Floats, evidence: Floats, size: Floats) -> None:
        self.model, self.q, self.size = model, q, size
        self.mean = q.mean(0).clip(SMALL)
        sharper = q**SHARPER
        self.sharper = sharper / sharper.sum(1, keepdims=True)
        others = (q * (q.sum(0) - q)).sum(1)
        self.counts = others / (others + ALONE)
        self.likelihood = np.exp(evidence - evidence.max(1, keepdims=True))
        self.logistic_found: dict[int, tuple[Floats, Floats]] = {}

    @cached_property
    def log_ratio(self) -> Floats:
        """c_n (log p(class | features, other items) - log class size), (n, K)."""
        out: Floats = (np.log(self.held_out) - np.log(self.size)) * self.counts[:, None]
        return out

    @cached_property
    def held_out(self) -> Floats:
        """p(class | features, other items) of each item, (n, K), by the weights of the first posteriors."""
        first = self.model.first or self.score
        weights = self.model.weights(first)
        p = np.tile((weights.nothing * self.size)[:, None], len(self.q))
        for distance, weight in zip(self.distances, weights.means, strict=True):
            for rows in chunks(len(self.q), distance.squared.shape[0] * len(SCALES)):
                p[:, rows] += _averaged(*by_distance(distance.squared[:, rows], self.size), weight)
        for fit, weight in zip(self.ridges, weights.ridges, strict=True):
            places = np.flatnonzero(weight.any((1, 2))).tolist()
            for rows, f in fit.leave_one_out(places, len(SHARPNESS)):
                for place, one in zip(places, f, strict=True):
                    p[:, rows] += mixed(one, self.mean, self.size, weight[place])
        for place in np.flatnonzero(weights.logistic.any(1)).tolist():
            p += mixed(self.logistic(place)[1], self.mean, self.size, _in_first_link(weights.logistic[place]))
        return p.T

    @cached_property
    def ridges(self) -> list[RidgeFit]:
        return [regression.fit(self.q) for regression in self.model.regressions]

    @cached_property
    def distances(self) -> list[Distances]:
        norms = self.model.squared_norms
        return [distances(self.model.z, unit, norm, self.q) for unit, norm in zip(self.model.units, norms, strict=True)]

    def logistic(self, place: int) -> tuple[Floats, Floats]:
        """Return W and the leave-one-out predictions (K, n) of a logistic regression.

        They are shifted and scaled so that the first link with sharpness 1 gives p.
        """
        if place not in self.logistic_found:
            assert self.model.logistic is not None
            W, z = self.model.logistic.leave_one_out(self.sharper, self.size, LOGISTIC_RIDGES[place])
            self.logistic_found[place] = W, self.mean[:, None] + z.T / len(self.mean)
        return self.logistic_found[place]

    @cached_property
    def score(self) -> HeldOutScore:
        """The held-out log-likelihood of each classifier; the first posteriors score logistic regressions."""
        K = len(self.mean)
        caution = max(self.counts.sum(), 1.0) ** -CAUTION
        likelihood = np.ascontiguousarray(self.likelihood.T)
        by_size = np.log(self.size @ likelihood)

        def gain(odds: Floats, total: Floats, rows: slice = slice(None)) -> Floats:
            """(..., K, n) -> (...)"""
            odds *= likelihood[:, rows]
            p = odds.sum(-2)
            p /= total
            out: Floats = caution * ((np.log(p, out=p) - by_size[rows]) @ self.counts[rows])
            return out

        ridges = np.zeros((len(self.model.regressions), len(RIDGES), 2, len(SHARPNESS)))
        for fit, of_view in zip(self.ridges, ridges, strict=True):
            for rows, f in fit.leave_one_out(range(len(RIDGES)), len(SHARPNESS)):
                for place, link in product(range(len(RIDGES)), (0, 1)):
                    of_view[place, link] += gain(*linked(f[place], self.mean, self.size, link), rows)
        logistic = np.full((len(LOGISTIC_RIDGES), len(SHARPNESS)), -np.inf)
        if self.model.first is not None:
            logistic = self.model.first.logistic  # scored once: later posteriors would favour them
        elif self.model.logistic is not None and K <= MOST_CLASSES:
            for place in range(len(logistic)):
                logistic[place] = gain(*linked(self.logistic(place)[1], self.mean, self.size, 0))
        means = np.zeros((len(self.distances), len(SCALES)))
        for distance, of_unit in zip(self.distances, means, strict=True):
            for rows in chunks(len(self.q), K * len(SCALES)):
                of_unit += gain(*by_distance(distance.squared[:, rows], self.size), rows)
        return HeldOutScore(ridges, logistic, means)

    @cached_property
    def forecast(self) -> Forecast:
        """The weighted average of all classifiers, for new items."""
        model, K = self.model, len(self.mean)
        first = model.first or self.score
        lead = first.logistic - first.ridges.max()
        weights = model.weights(self.score._replace(logistic=lead + self.score.ridges.max()))
        parts: list[list[tuple[Floats, Floats, Floats]]] = [[], []]
        for view, place in zip(*np.nonzero(weights.ridges.any((2, 3))), strict=True):
            slope, start = self.ridges[view].weights(place)
            parts[view].append((slope, start, weights.ridges[view, place]))
        for place in np.flatnonzero(weights.logistic.any(1)).tolist():
            assert model.logistic is not None
            slope, start = model.logistic.weights(self.logistic(place)[0])
            parts[0].append((slope / K, self.mean + start / K, _in_first_link(weights.logistic[place])))
        label = self.likelihood / self.likelihood.sum(1, keepdims=True)  # about the share of labels that name a class
        return Forecast(
            model.standard.centre,
            model.standard.factor,
            model.z[model.landmarks] if parts[1] else model.z[:0],
            *_stacked(parts[0], len(model.standard.centre), K),
            *_stacked(parts[1], len(model.landmarks), K),
            np.stack([distance.means for distance in self.distances]),
            np.array(model.unit),
            weights.means,
            np.array(weights.nothing),
            self.mean,
            self.size,
            np.array([(self.held_out * label).sum(), (self.size * label).sum()]) / len(self.q),
            np.array(self.counts.sum()),
        )


def _in_first_link(weight: Floats) -> Floats:
    return np.stack([weight, np.zeros_like(weight)])


class Distances(NamedTuple):
    """Squared distances of items to class means without the item, and the class means of all items."""

    squared: Floats  # (K, n)
    means: Floats  # (K, D)


def in_units(unit: float, factor: Floats) -> tuple[Floats, Floats]:
    """Return factors (D,) that scale standardised features to a mean squared norm of 1, in one unit or one for each."""
    spread = np.where(factor > 0, 1 / np.where(factor > 0, factor, 1), 0)
    return spread / unit, (factor > 0) / np.sqrt(np.count_nonzero(factor) or 1)


def distances(z: Floats, unit: Floats, norm: Floats, q: Floats) -> Distances:
    """Return the distances of items z * unit, (n, D), whose squared norms are ``norm`` (n,)."""
    p = np.ascontiguousarray(q.T)
    sums, sizes = (p @ z) * unit, p.sum(1)[:, None]
    inner = (sums * unit) @ z.T
    weight = TAU + sizes - p
    squared = (sums * sums).sum(1)[:, None] - 2 * p * inner + p * p * norm
    return Distances(norm - 2 * (inner - p * norm) / weight + squared / weight**2, sums / (TAU + sizes))


def _stacked(parts: list[tuple[Floats, Floats, Floats]], r: int, K: int) -> tuple[Floats, Floats, Floats]:
    if not parts:
        return np.zeros((0, r, K)), np.zeros((0, K)), np.zeros((0, 2, len(SHARPNESS)))
    slopes, starts, weights = zip(*parts, strict=True)
    return np.stack(slopes), np.stack(starts), np.stack(weights)


def spread_rows(z: Numbers, most: int) -> Positions:
    """Return at most ``most`` rows of z (n, D), evenly spaced along a fixed direction; row order does not matter."""
    if len(z) <= most:
        return np.arange(len(z))
    direction = np.sin(np.arange(z.shape[1]) + 1.0)  # arbitrary, but not aligned with a feature
    along = np.concatenate([piece @ direction for piece in np.array_split(z, -(-z.size // AT_ONCE))])
    order = np.argsort(along, kind="stable")
    return np.sort(order[np.linspace(0, len(z) - 1, most).round().astype(np.int64)])


# ---- predictions of other classifiers --------------------------------------------------------------------------------


GUESS_SHARPNESS = np.array([0.0, 0.25, 0.5, 0.75, 1.0])  # exponents of a classifier's log-ratios; 0 ignores it
GUESS_PRIOR = np.array([0.5, 0.075, 0.1, 0.125, 0.2])  # their prior weights
LEAST = 1e-6  # lower bound of a classifier's probabilities
GUESS_CAUTION = 0.3  # in weighting sources, held-out evidence from n items counts as n ** (1 - GUESS_CAUTION)
BESIDE_LABELS = 0.6  # exponent of predictions beside labels: annotators and classifiers err on the same items


def trusted(p: Floats, evidence: Floats, counted: NDArray[np.bool_]) -> Floats:
    """Temper a classifier's predictions by how well they predict labels.

    With tilt t = log p - log size, each sharpness beta gives q proportional to size exp(beta t). The result averages
    the q with weights

        prior weight * prod_n sum_k q_nk p(labels of n | k).

    Parameters
    ----------
    p : (N, K) array
        Predictions.
    evidence : (N, K) array
        log p(labels of the item | class).
    counted : (N,) bool array
        Items whose labels determine the weights.

    Returns
    -------
    (N, K) array
        log p(class | classifier) - log class size.
    """
    p = p.clip(LEAST)
    size = p.mean(0) / p.mean(0).sum()
    tilt = np.log(p) - np.log(size)
    likelihood = np.exp(evidence - evidence.max(1, keepdims=True))[counted]
    q = np.exp(GUESS_SHARPNESS[:, None, None] * tilt) * size
    q /= q.sum(-1, keepdims=True)
    score = np.log((q[:, counted] * likelihood).sum(-1)).sum(-1)
    weight = GUESS_PRIOR * np.exp(score - score.max())
    out: Floats = np.log(np.tensordot(weight / weight.sum(), q, 1)) - np.log(size)
    return out


def weigh(sources: Sequence[Floats], evidence: Floats, size: Floats) -> Floats:
    """Weight sources by their held-out likelihood of the labels.

    A source is log p(class | source) - log class size, (n, K); ``evidence`` is log p(labels of the item | class).
    """
    likelihood = np.exp(evidence - evidence.max(1, keepdims=True))
    score = np.array([np.log((_probabilities(ratio, size) * likelihood).sum(1)).sum() for ratio in sources])
    weight = np.exp((score - score.max()) * max(len(evidence), 1) ** -GUESS_CAUTION)
    out: Floats = weight / weight.sum()
    return out


def together(sources: Sequence[Floats], weights: Floats, size: Floats) -> Floats:
    """Average sources. They may share their information, so they are averaged rather than multiplied."""
    p = sum(weight * _probabilities(ratio, size) for ratio, weight in zip(sources, weights, strict=True))
    out: Floats = np.log(p) - np.log(size)
    return out


def _probabilities(log_ratio: Floats, size: Floats) -> Floats:
    p: Floats = np.exp(log_ratio) * size
    p /= p.sum(1, keepdims=True)
    return p
