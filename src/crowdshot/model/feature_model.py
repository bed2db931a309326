"""Predict an item's class from its features, without using the item's own labels (the feature model).

The feature model averages classifiers that are fitted to the current class posteriors q (N, K):

- ridge regression on the features and on a Gaussian kernel (Nystroem approximation), for several ridges;
- nearest class mean (eqs 7 and 8 of the paper), with one scale for all features or one for each;
- multinomial logistic regression (`Logistic`), from `ENOUGH` items on;
- a constant classifier that predicts the class sizes: the features are uninformative.

Leave-one-out predictions are available in closed form, approximately so for the logistic regression. For ridge
regression on centred features U diag(s) V^T with ridge lambda,

    f = mean(q) + U diag(d) U^T (q - mean(q)),   d = s^2 / (s^2 + lambda),   h_n = sum_j U_nj^2 d_j + 1/N
    f_n without item n = (f_n - h_n q_n) / (1 - h_n)

Ridges are multiples (`RIDGES`) of the mean squared norm of the centred features. The kernel is exp(-|z - z'|^2 / (2 D))
for standardised features z, which is 1/e at the root mean squared distance of two items. A regression becomes p(class |
x) by one of two links, with a sharpness beta,

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
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax

Floats = NDArray[np.float64]
Numbers = NDArray[np.floating[Any]]
Positions = NDArray[np.int64]


# ---- the averaged classifier -----------------------------------------------------------------------------------------

SHARPNESS = np.array([0.25, 0.5, 0.7, 1.0, 1.4, 2.0])
SCALES = 2.0 ** np.arange(7)  # of squared distances from class means
RARE = 0.3  # least unit of the second link, as a multiple of 1/K
AT_ONCE = 3_000_000  # numbers processed at a time, so that intermediate arrays stay in the cache


@dataclass(frozen=True)
class Standard:
    """Standardise features to mean 0 and standard deviation 1; constant features become 0."""

    centre: Floats  # (D,)
    factor: Floats  # (D,)

    @classmethod
    def of(cls, x: Floats) -> Standard:
        centre, spread = x.mean(0), x.std(0)
        varies = spread > 1e-12 * np.abs(centre)
        return cls(centre, np.where(varies, 1 / np.where(varies, spread, 1), 0))

    def __call__(self, x: Floats) -> Floats:
        return (x - self.centre) * self.factor


def kernel(a: Floats, b: Floats) -> Floats:
    """Return exp(-|a - b|^2 / (2 D)), (N, M), of standardised features (N, D) and (M, D)."""
    squared = (a * a).sum(1)[:, None] + (b * b).sum(1) - 2 * a @ b.T
    out: Floats = np.exp(-0.5 * squared.clip(0) / max(1, a.shape[1]))
    return out


def linked(f: Floats, mean: Floats, size: Floats, link: int) -> Floats:
    """Apply a link (0 or 1) with each sharpness to regressions (..., K): p(class | x), (sharpness, ..., K)."""
    K = len(mean)
    unit = np.full(K, 1 / K) if link == 0 else np.maximum(mean, RARE / K)
    score = np.log(size) + SHARPNESS.reshape(-1, *[1] * f.ndim) * ((f - mean) / unit)
    score -= score.max(-1, keepdims=True)
    np.exp(score, out=score)
    score /= score.sum(-1, keepdims=True)
    return score


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
        at_once = max(1, AT_ONCE // (len(self.landmarks) + len(SHARPNESS) * len(self.size)))
        for start in range(0, len(rows), at_once):
            piece = slice(start, start + at_once)
            out[piece] = self._predict(x[rows[piece]].astype(np.float64))
        return out

    def _predict(self, x: Floats) -> Floats:
        z = Standard(self.centre, self.factor)(x)
        out = np.tile(self.nothing * self.size, (len(z), 1))
        views = [(z, self.plain_slopes, self.plain_starts, self.plain_weights)]
        if len(self.near_slopes):
            views.append((kernel(z, self.landmarks), self.near_slopes, self.near_starts, self.near_weights))
        for phi, slopes, starts, weights in views:
            for slope, start, weight in zip(slopes, starts, weights, strict=True):
                out += mixed(phi @ slope + start, self.mean, self.size, weight)
        for u, means, weights in zip(
            in_units(x - self.centre, z, self.unit, self.factor), self.means, self.mean_weights, strict=True
        ):
            squared = (u * u).sum(1)[:, None] - 2 * u @ means.T + (means * means).sum(1)
            out += np.tensordot(weights, by_distance(squared, self.size), 1)
        out /= out.sum(1, keepdims=True)
        return out


def mixed(f: Floats, mean: Floats, size: Floats, weight: Floats) -> Floats:
    """Return the sum of a regression's p(class | x), (n, K), over links and sharpness with ``weight`` (2, S)."""
    out = np.zeros_like(f)
    for link in np.flatnonzero(weight.any(1)):
        out += np.tensordot(weight[link], linked(f, mean, size, int(link)), 1)
    return out


def in_units(centred: Floats, z: Floats, unit: Floats | float, factor: Floats) -> tuple[Floats, Floats]:
    """Scale features to a mean squared norm of 1, with one unit for all features and with one for each."""
    varying = np.count_nonzero(factor) or 1  # counted in factor, not in z, so that a query does not depend on others
    return centred / unit, z / np.sqrt(varying)


def by_distance(squared: Floats, size: Floats) -> Floats:
    """Return p(class | x) for each scale, (scales, n, K), from squared distances to class means (n, K)."""
    score = np.log(size) - 0.5 * SCALES[:, None, None] * squared
    score -= score.max(-1, keepdims=True)
    np.exp(score, out=score)
    score /= score.sum(-1, keepdims=True)
    return score


# ---- logistic regression ---------------------------------------------------------------------------------------------


LOGISTIC_RIDGES = np.array([1.0, 10.0, 100.0])
USUAL_LOGISTIC_RIDGE = 10.0
DIRECTIONS = 128  # most principal directions of the features
LEVEL = 1e-3  # penalty of the intercept, relative to the ridge
STEPS = 60  # most iterations of L-BFGS
LOGISTIC_SMALL = 1e-9


class Logistic:
    """Multinomial logistic regression on posteriors, with approximate leave-one-out predictions.

    Features are projected on their first principal directions, phi (n, r), with a constant column. With class sizes s
    and posteriors q (n, K),

        p_k proportional to s_k exp(z_k),   z = phi W,   W = argmin -sum_n sum_k q_nk log p_nk + lambda/2 |W|^2

    is a convex problem (the intercept's penalty is `LEVEL` lambda). Leaving out item n changes its own z by about one
    Newton step, taken for each class on its own:

        z_n without item n = z_n + h / (1 - a h) (p_n - q_n)
        a = p (1 - p),   h = phi_n^T (Phi^T diag(a) Phi + lambda)^-1 phi_n

    Ridge regression has both in closed form. But where several classes lie side by side, it masks those in the middle:
    where planes separate the classes, a plain regression on votes had up to 0.08 more new items right.

    Parameters
    ----------
    z : (N, D) array
        Standardised features.
    train : (n,) int array
        Rows that the regression is fitted to.
    """

    def __init__(self, z: Floats, train: Positions) -> None:
        x = z[train]
        n, D = x.shape
        if n < D:
            squared, U = np.linalg.eigh(x @ x.T)
            V = x.T @ U / np.sqrt(squared.clip(LOGISTIC_SMALL))
        else:
            squared, V = np.linalg.eigh(x.T @ x)
        kept = np.flatnonzero(squared > max(squared.max(), LOGISTIC_SMALL) * LOGISTIC_SMALL)[-DIRECTIONS:]
        self.train = train
        self.directions = V[:, kept]  # (D, r)
        self.phi = np.column_stack([z @ self.directions, np.ones(len(z))])
        self.penalty = np.append(np.ones(len(kept)), LEVEL)[:, None]
        self.curved = (
            np.append(squared[kept], n)[:, None] / 2
        )  # upper bound of the curvature in each direction (Böhning 1992)
        self.found: dict[float, Floats] = {}

    def fit(self, q: Floats, size: Floats, ridge: float) -> Floats:
        """Return W, (r + 1, K). The optimisation starts from the result of the last call with this ridge."""
        phi, q, offset = self.phi[self.train], q[self.train], np.log(size)
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

    def leave_one_out(self, q: Floats, size: Floats, ridge: float) -> Floats:
        """Return z of all items, (N, K); that of an item in ``train`` without the item."""
        z: Floats = self.phi @ self.fit(q, size, ridge)
        p, phi = softmax(z + np.log(size), axis=1)[self.train], self.phi[self.train]
        curvature, excess = p * (1 - p), p - q[self.train]
        for k in range(q.shape[1]):
            a = curvature[:, k]
            hessian = phi.T @ (a[:, None] * phi) + ridge * np.diag(self.penalty[:, 0])
            whitened = solve_triangular(cholesky(hessian, lower=True), phi.T, lower=True)
            h = (whitened * whitened).sum(0)
            z[self.train, k] += h / (1 - a * h).clip(LOGISTIC_SMALL) * excess[:, k]
        return z

    def weights(self, q: Floats, size: Floats, ridge: float) -> tuple[Floats, Floats]:
        """Return the slopes (D, K) and intercepts (K,) of z as a function of the standardised features."""
        W = self.fit(q, size, ridge)
        return self.directions @ W[:-1], W[-1]


# ---- feature model ---------------------------------------------------------------------------------------------------


RIDGES = 10.0 ** np.arange(-3, 3)  # multiples of the mean squared norm of the centred features
USUAL_RIDGE, USUAL_SHARPNESS = 0.1, 1.0  # of the largest prior weight
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


class Regression:
    """Ridge regressions on ``phi`` (n, r), for all ridges by one eigendecomposition."""

    def __init__(self, phi: Floats) -> None:
        self.centre = phi.mean(0)
        centred = phi - self.centre
        n, r = centred.shape
        if n <= r:
            squared, U = np.linalg.eigh(centred @ centred.T)
            kept = squared > max(squared.max(), SMALL) * SMALL
            self.squared, self.U = squared[kept], U[:, kept]
            self.back = centred.T @ self.U / self.squared  # (r, j) U -> coefficients of phi
        else:
            squared, V = np.linalg.eigh(centred.T @ centred)
            kept = squared > max(squared.max(), SMALL) * SMALL
            self.squared, self.back = squared[kept], V[:, kept] / np.sqrt(squared[kept])
            self.U = centred @ self.back
        self.ridges = RIDGES * max(self.squared.sum() / n, SMALL)

    def leave_one_out(self, q: Floats, ridge: float) -> Floats:
        """Return the regression on q, (n, K), at each item, without this item."""
        mean, d = q.mean(0), self.squared / (self.squared + ridge)
        f = mean + self.U @ (d[:, None] * (self.U.T @ (q - mean)))
        h = ((self.U * self.U) @ d + 1 / len(q))[:, None]
        out: Floats = (f - h * q) / (1 - h).clip(SMALL)
        return out

    def weights(self, q: Floats, ridge: float) -> tuple[Floats, Floats]:
        """Return the slopes (r, K) and intercepts (K,) of the regression."""
        mean, d = q.mean(0), self.squared / (self.squared + ridge)
        slope = self.back @ (d[:, None] * (self.U.T @ (q - mean)))
        return slope, mean - self.centre @ slope


class FeatureModel:
    """The feature model of items with features ``x`` (n, D), for any posteriors of their classes.

    The decompositions of the features are computed once. `held_out` fits the classifiers to posteriors.
    """

    def __init__(self, x: Floats) -> None:
        self.standard = Standard.of(x)
        z = self.standard(x)
        self.landmarks = z[spread_rows(z, LANDMARKS)]
        size, V = np.linalg.eigh(kernel(self.landmarks, self.landmarks))
        kept = size > size.max() * 1e-8
        self.root = V[:, kept] / np.sqrt(
            size[kept]
        )  # kernel columns -> Nyström features, whose inner products are the kernel
        centred = x - self.standard.centre
        self.unit = np.sqrt((centred * centred).sum(1).mean()) or 1.0
        self.units = in_units(centred, z, self.unit, self.standard.factor)
        # Features of different kinds (a price, an age) can differ so much in variance that one or two would dominate.
        variance = (centred * centred).mean(0)
        effective = variance.sum() ** 2 / max((variance**2).sum() * np.count_nonzero(z.any(0)), 1e-300)
        one_unit = effective**2 / (effective**2 + UNEVEN**2)
        self.unit_priors = np.array([one_unit, 1 - one_unit])
        self.regressions = [Regression(z), Regression(kernel(z, self.landmarks) @ self.root)]
        self.logistic = Logistic(z, spread_rows(z, TAUGHT)) if len(z) >= ENOUGH else None
        self.first: HeldOutScore | None = None

    def held_out(self, q: Floats, evidence: Floats, size: Floats) -> tuple[Floats, Forecast]:
        """Predict each item from the other items, and return the classifier for new items.

        Parameters
        ----------
        q : (n, K) array
            Posteriors that the classifiers are fitted to. Those of the first call must come from labels only.
        evidence : (n, K) array
            log p(labels of the item | class), by which classifiers are weighted.
        size : (K,) array
            Class sizes.

        Returns
        -------
        log_ratio : (n, K) array
            c_n (log p(class | features, other items) - log class size).
        forecast : Forecast
            The classifier for new items.
        """
        others = (q * (q.sum(0) - q)).sum(1)
        counts = others / (others + ALONE)
        likelihood = np.exp(evidence - evidence.max(1, keepdims=True))
        fits = CandidateFits(self, q, size)
        score = fits.held_out_score(likelihood, counts)
        if self.first is None:
            self.first = score
        p = fits.predict_items(self._weights(self.first))
        lead = self.first.logistic - self.first.ridges.max()
        weights = self._weights(score._replace(logistic=lead + score.ridges.max()))
        label = likelihood / likelihood.sum(1, keepdims=True)  # about the share of the labels that name a class
        foretold = np.array([(p * label).sum(), (size * label).sum()]) / len(q)
        forecast = fits.forecast(weights, foretold, np.array(counts.sum()))
        return (np.log(p) - np.log(size)) * counts[:, None], forecast

    def _weights(self, score: HeldOutScore) -> Weights:
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


class CandidateFits:
    """All classifiers of a `FeatureModel`, fitted to posteriors ``q`` (n, K) with class sizes ``size`` (K,)."""

    def __init__(self, model: FeatureModel, q: Floats, size: Floats) -> None:
        self.model, self.q, self.size = model, q, size
        self.mean = q.mean(0).clip(SMALL)
        self.sharper = q**SHARPER / (q**SHARPER).sum(1, keepdims=True)
        self.distances, self.means = zip(*(distances(u, q) for u in model.units), strict=True)

    def ridge(self, view: int, place: int) -> Floats:
        regression = self.model.regressions[view]
        return regression.leave_one_out(self.q, regression.ridges[place])

    def logistic(self, place: int) -> Floats:
        """Return the logistic regression, shifted and scaled so that the first link with sharpness 1 gives p."""
        assert self.model.logistic is not None
        z = self.model.logistic.leave_one_out(self.sharper, self.size, LOGISTIC_RIDGES[place])
        out: Floats = self.mean + z / len(self.mean)
        return out

    def held_out_score(self, likelihood: Floats, counts: Floats) -> HeldOutScore:
        caution = max(counts.sum(), 1.0) ** -CAUTION
        by_size = np.log(likelihood @ self.size)

        def gain(p: Floats) -> Floats:
            """(..., n, K) -> (...)"""
            out: Floats = caution * ((np.log((p * likelihood).sum(-1)) - by_size) @ counts)
            return out

        ridges = np.empty((len(self.model.regressions), len(RIDGES), 2, len(SHARPNESS)))
        for view, place in product(*map(range, ridges.shape[:2])):
            f = self.ridge(view, place)
            for link in (0, 1):
                ridges[view, place, link] = gain(linked(f, self.mean, self.size, link))
        logistic = np.full((len(LOGISTIC_RIDGES), len(SHARPNESS)), -np.inf)
        if self.model.first is not None:
            logistic = self.model.first.logistic  # scored once: later posteriors would favour them
        elif self.model.logistic is not None and len(self.mean) <= MOST_CLASSES:
            for place in range(len(logistic)):
                logistic[place] = gain(linked(self.logistic(place), self.mean, self.size, 0))
        return HeldOutScore(ridges, logistic, np.stack([gain(by_distance(d, self.size)) for d in self.distances]))

    def predict_items(self, weights: Weights) -> Floats:
        """Return p(class | features, other items) of each item, (n, K)."""
        p = np.tile(weights.nothing * self.size, (len(self.q), 1))
        for squared, weight in zip(self.distances, weights.means, strict=True):
            p += np.tensordot(weight, by_distance(squared, self.size), 1)
        for view, place in zip(*np.nonzero(weights.ridges.any((2, 3))), strict=True):
            p += mixed(self.ridge(view, place), self.mean, self.size, weights.ridges[view, place])
        for place in np.flatnonzero(weights.logistic.any(1)).tolist():
            p += mixed(self.logistic(place), self.mean, self.size, _in_first_link(weights.logistic[place]))
        return p

    def forecast(self, weights: Weights, foretold: Floats, counted: Floats) -> Forecast:
        """Return the weighted average of all classifiers, for new items."""
        model, K = self.model, len(self.mean)
        parts: list[list[tuple[Floats, Floats, Floats]]] = [[], []]
        for view, place in zip(*np.nonzero(weights.ridges.any((2, 3))), strict=True):
            regression = model.regressions[view]
            slope, start = regression.weights(self.q, regression.ridges[place])
            parts[view].append((model.root @ slope if view else slope, start, weights.ridges[view, place]))
        for place in np.flatnonzero(weights.logistic.any(1)).tolist():
            assert model.logistic is not None
            slope, start = model.logistic.weights(self.sharper, self.size, LOGISTIC_RIDGES[place])
            parts[0].append((slope / K, self.mean + start / K, _in_first_link(weights.logistic[place])))
        return Forecast(
            model.standard.centre,
            model.standard.factor,
            model.landmarks if parts[1] else model.landmarks[:0],
            *_stacked(parts[0], len(model.standard.centre), K),
            *_stacked(parts[1], len(model.landmarks), K),
            np.stack(self.means),
            np.array(model.unit),
            weights.means,
            np.array(weights.nothing),
            self.mean,
            self.size,
            foretold,
            counted,
        )


def _in_first_link(weight: Floats) -> Floats:
    return np.stack([weight, np.zeros_like(weight)])


def distances(u: Floats, q: Floats) -> tuple[Floats, Floats]:
    """Return squared distances (n, K) of items to class means without the item, and class means (K, D) of all items."""
    norm = (u * u).sum(1)[:, None]
    sums, sizes = q.T @ u, q.sum(0)
    inner = u @ sums.T
    weight = TAU + sizes - q
    squared = (sums * sums).sum(1) - 2 * q * inner + q * q * norm
    distance: Floats = norm - 2 * (inner - q * norm) / weight + squared / weight**2
    return distance, sums / (TAU + sizes)[:, None]


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
