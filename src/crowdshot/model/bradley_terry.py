"""Fit scores of items to pairwise preferences: the Bradley–Terry model with a reliability of each annotator.

Annotator r compares items i and j. With the score s of an item, the reliability γ of an annotator, u = γ_r (s_i − s_j)
and the annotator's tendency θ_r to ties (Davidson 1970):

    p(i better) ∝ exp(u/2),   p(j better) ∝ exp(−u/2),   p(tie) ∝ exp(θ_r)

Without ties this is p(i better) = σ(γ_r (s_i − s_j)), the model of Bradley and Terry (1952) if γ = 1. An annotator who
guesses has γ = 0, and one who reverses the scale has γ < 0. The estimate is the maximum of the posterior with the
priors s ~ N(0, `SCORE_SD`²), γ ~ N(1, `RELIABILITY_SD`²) and θ ~ N(θ₀, `TIE_SD`²), where θ₀ fits the share of ties of
all annotators. Without ties, θ is not part of the model.

Only γ (s_i − s_j) enters the likelihood. Two conditions make the estimate unique: the scores of connected items have
the sum 0, and the mean reliability of a comparison is 1. Standard errors come from the observed information at the
estimate, with the delta method for the second condition.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.sparse import block_array, csr_array, diags_array
from scipy.special import logsumexp
from scipy.stats import chi2

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]

SCORE_SD = 2.0  # in logits: 95 % of items between odds of 1:50 and 50:1 against an average item
RELIABILITY_SD = (
    0.5  # around 1; of 0.35, 0.5, 0.7 and 1, chosen on simulated crowds (benchmarks/ranking.py, seeds 0 to 59)
)
TIE_SD = 1.0
MOST_STEPS = 50  # Newton steps after L-BFGS
SMALLEST_MEAN = 0.1  # of the reliability, by which scores are multiplied


@dataclass(frozen=True)
class Comparisons:
    """Distinct comparisons (L,), with the position of both items and of the annotator, and how often each occurs.

    ``outcome`` is 1 if the first item is better, 0 if the second is, and 0.5 for a tie.
    """

    first: Positions
    second: Positions
    annotator: Positions
    outcome: Floats
    count: Floats
    n_items: int
    n_annotators: int

    @classmethod
    def of(cls, first: Any, second: Any, annotator: Any, outcome: Any, n_items: int, n_annotators: int) -> Comparisons:
        """Count comparisons; the order of the rows and the sides of the items make no difference."""
        one, other = np.minimum(first, second), np.maximum(first, second)
        won = np.where(np.asarray(first) <= second, outcome, 1 - np.asarray(outcome, dtype=np.float64))
        rows = np.stack([one, other, np.asarray(annotator), np.rint(2 * won).astype(np.int64)])
        found, count = np.unique(rows, axis=1, return_counts=True)
        return cls(found[0], found[1], found[2], found[3] / 2, count.astype(np.float64), n_items, n_annotators)

    @property
    def is_tie(self) -> NDArray[np.bool_]:
        return np.asarray(self.outcome == 0.5)

    def per_item(self, of: Floats, other: Floats) -> Floats:
        """Return sums (N,) of values (L,) of the first items and of the second items."""
        n = self.n_items
        return np.asarray(np.bincount(self.first, of, n) + np.bincount(self.second, other, n))

    def per_annotator(self, of: Floats) -> Floats:
        return np.asarray(np.bincount(self.annotator, of, self.n_annotators))


@dataclass(frozen=True)
class Fitted:
    """The estimate.

    Attributes
    ----------
    score : (N,) array
    covariance : (N, N) array
        Of the scores.
    reliability, reliability_sd : (R,) arrays
        With one annotator, the reliability is 1 and its standard error 0.
    """

    score: Floats
    covariance: Floats
    reliability: Floats
    reliability_sd: Floats

    def differences(self) -> tuple[Floats, Floats]:
        """Return s_i − s_j (N, N) and its standard error."""
        var = np.diag(self.covariance)
        return self.score[:, None] - self.score, np.sqrt(np.maximum(var[:, None] + var - 2 * self.covariance, 0))


def fit(data: Comparisons, component: Positions, plain: bool = False) -> Fitted:
    """Return the scores and reliabilities with the highest posterior density.

    Parameters
    ----------
    data : Comparisons
    component : (N,) array
        The connected component of each item in the graph of comparisons.
    plain : bool
        Whether all annotators have the reliability 1, as in the plain model.
    """
    posterior = _Posterior(data, plain)
    x = minimize(posterior.value, posterior.start(), jac=True, method="L-BFGS-B", options={"maxiter": 5_000}).x
    x, parts = posterior.polished(x)
    N, R = data.n_items, data.n_annotators
    score, reliability = x[:N], posterior.split(x)[1]
    inverse = cho_solve(cho_factor(parts.schur), np.eye(N))
    inverse = _centred(_centred(inverse, component).T, component)
    if plain:
        return Fitted(score, inverse, reliability, np.zeros(R))
    gain = parts.gain[:R]  # −dγ/ds (R, N)
    share = data.per_annotator(data.count) / data.count.sum()
    mean = float(share @ reliability)
    along = gain.T @ share  # (N,)
    with_scores = -inverse @ along
    with_mean = parts.own[:R, :R] @ share + gain @ (inverse @ along)
    of_mean = float(share @ with_mean)
    variance = parts.own.diagonal()[:R] + _quadratic(gain, inverse)
    if mean < SMALLEST_MEAN:  # annotators contradict each other: the scale stays that of the priors
        return Fitted(score, inverse, reliability, np.sqrt(variance))
    crossed = np.outer(with_scores, score)
    covariance = mean**2 * inverse + mean * (crossed + crossed.T) + of_mean * np.outer(score, score)
    scaled = variance / mean**2 - 2 * reliability * with_mean / mean**3 + reliability**2 * of_mean / mean**4
    return Fitted(mean * score, covariance, reliability / mean, np.sqrt(np.maximum(scaled, 0)))


def random_answers_p(data: Comparisons) -> float:
    """Return the p value of the hypothesis that all items are equally good, or all answers random (score test).

    Under the hypothesis, each item's wins minus losses have the mean 0, given which comparisons are ties.
    """
    sign = 2 * data.outcome - 1
    gained = data.per_item(data.count * sign, -data.count * sign)
    weight = data.count * sign**2
    N = data.n_items
    information = np.zeros((N, N))
    np.add.at(information, (data.first, data.second), -weight)
    information += information.T
    information -= np.diag(information.sum(1))
    values, vectors = np.linalg.eigh(information)
    kept = values > 1e-9 * max(values[-1], 1)
    statistic = float((((gained @ vectors[:, kept]) ** 2) / values[kept]).sum())
    return float(chi2.sf(statistic, int(kept.sum()))) if kept.any() else 1.0


# ---- the posterior ----


@dataclass(frozen=True)
class _Parts:
    """The negative Hessian in blocks: scores without the annotators' parameters, and these given the scores.

    ``schur`` is (N, N); ``own`` (M, M) is the inverse of the annotators' block, ``gain`` (M, N) is ``own`` times the
    block that links both.
    """

    gradient: Floats
    schur: Floats
    own: csr_array
    gain: csr_array


class _Posterior:
    """The negative logarithm of the posterior density of x = (scores, reliabilities, tendencies to ties)."""

    def __init__(self, data: Comparisons, plain: bool) -> None:
        self.data = data
        self.has_ties = bool(data.is_tie.any())
        self.reliability_sd = 1e-6 if plain else RELIABILITY_SD
        ties = float(data.count @ data.is_tie)
        self.tie_mean = float(np.log(2 * (ties + 0.5) / (data.count.sum() - ties + 0.5)))

    def start(self) -> Floats:
        N, R = self.data.n_items, self.data.n_annotators
        return np.concatenate([np.zeros(N), np.ones(R), np.full(R if self.has_ties else 0, self.tie_mean)])

    def split(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        N, R = self.data.n_items, self.data.n_annotators
        return x[:N], x[N : N + R], x[N + R :]

    def _likelihood(self, x: Floats) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
        """Return, for each comparison (L,): γ, s_i − s_j, log-likelihood, p(i better), p(j better), p(tie)."""
        data = self.data
        score, reliability, tendency = self.split(x)
        gamma, d = reliability[data.annotator], score[data.first] - score[data.second]
        half = gamma * d / 2
        tie = tendency[data.annotator] if self.has_ties else np.full(len(d), -np.inf)
        total = logsumexp(np.stack([half, -half, tie]), axis=0)
        chosen = np.where(data.is_tie, tie if self.has_ties else 0.0, (2 * data.outcome - 1) * half) - total
        return gamma, d, chosen, np.exp(half - total), np.exp(-half - total), np.exp(tie - total)

    def value(self, x: Floats) -> tuple[float, Floats]:
        """Return the negative log density and its gradient."""
        data = self.data
        score, reliability, tendency = self.split(x)
        gamma, d, chosen, first, second, tie = self._likelihood(x)
        slope = data.count * (data.outcome - 0.5 - (first - second) / 2)  # by u
        off = reliability - 1
        value = -data.count @ chosen + score @ score / SCORE_SD**2 / 2 + off @ off / self.reliability_sd**2 / 2
        gradient = [
            score / SCORE_SD**2 - data.per_item(slope * gamma, -slope * gamma),
            off / self.reliability_sd**2 - data.per_annotator(slope * d),
        ]
        if self.has_ties:
            away = tendency - self.tie_mean
            value += away @ away / TIE_SD**2 / 2
            gradient.append(away / TIE_SD**2 - data.per_annotator(data.count * (data.is_tie - tie)))
        return float(value), np.concatenate(gradient)

    def parts(self, x: Floats) -> _Parts:
        data, N = self.data, self.data.n_items
        gamma, d, _, first, second, tie = self._likelihood(x)
        q = (first - second) / 2
        slope = data.count * (data.outcome - 0.5 - q)
        v = data.count * ((first + second) / 4 - q**2)  # variance of ±1/2, 0 for ties
        w = v * gamma**2
        scores = np.zeros((N, N))
        np.add.at(scores, (data.first, data.second), -w)
        scores += scores.T
        scores += np.diag(data.per_item(w, w) + 1 / SCORE_SD**2)
        own = data.per_annotator(v * d**2) + 1 / self.reliability_sd**2
        link = self._link(v * gamma * d - slope)
        if self.has_ties:
            crossed = -data.count * q * tie  # −Cov(u, tie)
            b, c = data.per_annotator(crossed * d), data.per_annotator(data.count * tie * (1 - tie)) + 1 / TIE_SD**2
            det = own * c - b**2
            blocks = [[diags_array(c / det), diags_array(-b / det)], [diags_array(-b / det), diags_array(own / det)]]
            inverse = csr_array(block_array(blocks))
            link = csr_array(block_array([[link], [self._link(crossed * gamma)]]))
        else:
            inverse = csr_array(diags_array(1 / own))
        gain = csr_array(inverse @ link)
        return _Parts(self.value(x)[1], scores - (link.T @ gain).toarray(), inverse, gain)

    def _link(self, of: Floats) -> csr_array:
        """Return the sparse matrix (R, N) with values (L,) at the first items, and minus these at the second ones."""
        data = self.data
        rows = np.concatenate([data.annotator, data.annotator])
        columns = np.concatenate([data.first, data.second])
        return csr_array((np.concatenate([of, -of]), (rows, columns)), (data.n_annotators, data.n_items))

    def polished(self, x: Floats) -> tuple[Floats, _Parts]:
        """Return the maximum after Newton steps from near it, and the Hessian there."""
        N = self.data.n_items
        value, parts = self.value(x)[0], self.parts(x)
        for _ in range(MOST_STEPS):
            if np.abs(parts.gradient).max() < 1e-9:
                break
            g, h = parts.gradient[:N], parts.gradient[N:]
            step = cho_solve(cho_factor(parts.schur), g - parts.gain.T @ h)
            change = np.concatenate([step, parts.own @ h - parts.gain @ step])
            new = self.value(x - change)[0]
            if not new <= value + 1e-12 * abs(value):
                break
            x, value, parts = x - change, new, self.parts(x - change)
        return x, parts


def _centred(matrix: Floats, component: Positions) -> Floats:
    """Subtract from each row the mean row of its component."""
    member = np.eye(component.max() + 1)[component]
    return np.asarray(matrix - member @ ((member.T @ matrix) / member.sum(0)[:, None]))


def _quadratic(left: csr_array, matrix: Floats) -> Floats:
    """Return the diagonal of ``left @ matrix @ left.T``, in pieces that fit into memory."""
    pieces = [left[at : at + 10_000] for at in range(0, left.shape[0], 10_000)]
    return np.concatenate([np.asarray(piece.multiply(piece @ matrix).sum(1)).ravel() for piece in pieces])
