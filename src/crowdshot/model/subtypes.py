"""Correct the posteriors of the label model where annotators are right or wrong together on some items of a class.

Dawid-Skene models take the labels of an item as independent, given its class. On some crowds they are not: several
annotators name class B for the same items of class A. A model of classes alone explains these labels by more items of
class B. The remedy is to divide each class into subtypes with own confusion matrices, as EBCC does (Li, Rubinstein and
Cohn 2019): item n has a class z_n and a subtype g_n, and annotator r gives it the label y with

    z_n ~ tau,  tau ~ Dirichlet(a);    g_n ~ pi_k if z_n = k,  pi_k ~ Dirichlet(a_pi / M)
    y ~ v_rkm,  v_rkm ~ Dirichlet(beta_k),   beta_kl = 4 if k = l, else 1,   a_k = the number of votes of class k.

Two models are fitted by mean-field variational Bayes: M = 1, without subtypes, and M = 2. With rho_nkm the posterior
of class and subtype and psi the digamma function, a step is

    eta_km = a_pi / M + sum_n rho_nkm,   nu_k = a_k + sum_nm rho_nkm,   mu_rkml = beta_kl + sum of rho_nkm, y_n^r = l
    rho_nkm proportional to exp(E log tau_k + E log pi_km + sum_r E log v_rkm,y),   E log p_i = psi(c_i) - psi(sum c)

from w_nk, the smoothed vote: rho_nk1 = w_nk^2, rho_nk2 = w_nk (1 - w_nk), so the second subtype of a class has the
items whose labels disagree. The evidence lower bound is the sum of the log-normalisers of rho, less the divergence of
each Dirichlet posterior from its prior.

If M = 2 has the higher bound by `EVIDENCE`, the posteriors q of the label model are moved by the difference,

    q_nk proportional to q_nk (rho^(2)_nk / rho^(1)_nk)^(WEIGHT / sqrt(N_n)),

where N_n is the number of labels. Otherwise they stay as they are. All sums over items are sums over parts
(`crowdshot.model.parts`).

References: Y. Li, B. Rubinstein and T. Cohn, Exploiting worker correlation for label aggregation in crowdsourcing,
ICML 2019.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy.special import gammaln, logsumexp, psi

from crowdshot.model.parts import Aggregator, Ask, Floats, Part, PosteriorMatrix, Sizes, cell_matrix
from crowdshot.model.posteriors import dense, hold, normalise, votes

EVIDENCE = 10.0  # nats
WEIGHT = 0.5
LEAST = 1e-4  # lower limit of rho, summed over subtypes, before its logarithm is taken
STEPS = 50
TOLERANCE = 0.05  # nats; the step that raises neither bound by more is the last
MOST_LABELS = 250_000  # or cells of confusion matrices; larger crowds are not corrected, to save time
RIGHT, WRONG = 4.0, 1.0  # beta
SUBTYPE_PRIOR = 0.1  # a_pi


class Counts(NamedTuple):
    """Sums over items by their posteriors, of one model."""

    labels: Floats  # (R·K observed, K·M)
    items: Floats  # (K·M,)
    log_normaliser: float  # of the posteriors


class Models(NamedTuple):
    plain: Counts  # one subtype of each class
    split: Counts  # two


class Votes(NamedTuple):
    classes: Floats  # (K,) votes
    items: float


class State(NamedTuple):
    base: Any  # the state of the label model
    votes: Votes
    models: Models | None  # before the first step None
    bounds: Floats  # (steps, 2)
    done: bool


class Expected(NamedTuple):
    """Expected log-probabilities under the Dirichlet posteriors of a model."""

    prior: Floats  # (K·M,)
    labels: Floats  # (R·K observed, K·M)
    divergence: float  # of the posteriors from their priors


def corrected(label_model: Aggregator, n_labels: int) -> Aggregator:
    """Return the label model with correction; without it where there are too many labels or classes."""
    sizes = label_model.sizes
    large = max(n_labels, sizes.annotators * sizes.classes**2) > MOST_LABELS
    return label_model if sizes.sparse or large else Corrected(label_model)


@dataclass(frozen=True)
class Corrected:
    """An aggregator whose posteriors are corrected for subtypes of classes."""

    label_model: Aggregator

    @property
    def sizes(self) -> Sizes:
        return self.label_model.sizes

    def begin(self, ask: Ask) -> State:
        none = Votes(np.zeros(self.sizes.classes), 0.0)
        return State(self.label_model.begin(ask), none, None, np.empty((0, 2)), done=False)

    def is_done(self, state: State) -> bool:
        return state.done

    def advance(self, ask: Ask, state: State) -> State:
        if not self.label_model.is_done(state.base):
            return state._replace(base=self.label_model.advance(ask, state.base))
        if state.models is None:
            found = ask(self.count_votes)
            return state._replace(votes=found, models=ask(self.split_votes, found))
        expected = tuple(self._expected(counts, state.votes.classes) for counts in state.models)
        counted = ask(self.step, expected)
        bound = [new.log_normaliser - log.divergence for new, log in zip(counted, expected, strict=True)]
        bounds = np.vstack([state.bounds, bound])
        small = len(bounds) > 1 and (bounds[-1] - bounds[-2] < TOLERANCE).all()
        if len(bounds) == STEPS or small:
            return state._replace(bounds=bounds, done=True)
        return state._replace(models=counted, bounds=bounds)

    def evidence(self, state: State) -> float:
        """Return by how many nats subtypes raise the evidence lower bound."""
        return float(state.bounds[-1, 1] - state.bounds[-1, 0])

    def believe(self, part: Part, state: State) -> PosteriorMatrix:
        posterior = self.label_model.believe(part, state.base)
        if state.models is None or self.evidence(state) <= EVIDENCE:
            return posterior
        one, two = (
            np.log(self._posterior(part, self._expected(counts, state.votes.classes))[0].sum(axis=2).clip(LEAST))
            for counts in state.models
        )
        power = np.where(part.per_item > 0, WEIGHT / np.sqrt(np.maximum(part.per_item, 1)), 0.0)
        moved: Floats = dense(posterior) * np.exp(power[:, None] * (two - one))
        hold(part, moved, 0.0)
        moved /= moved.sum(axis=1, keepdims=True)
        return moved

    # ---- sums of a part

    def count_votes(self, part: Part) -> Votes:
        counted = part.counted.astype(np.float64)
        return Votes(counted @ votes(part, self.sizes.classes), float(counted.sum()))

    def split_votes(self, part: Part, found: Votes) -> Models:
        """Count with posteriors from the smoothed vote, of which each class is divided into easy and hard items."""
        n = np.asarray(part.per_item)[:, None]
        w = (votes(part, self.sizes.classes) * n + found.classes / max(found.items, 1.0)) / (n + 1)
        hold(part, w, 0.0, 1.0)
        easy_and_hard = np.stack([w**2, w * (1 - w)], axis=2)
        return Models(self._count(part, w[:, :, None], 0.0), self._count(part, easy_and_hard, 0.0))

    def step(self, part: Part, expected: tuple[Expected, ...]) -> Models:
        return Models(*(self._count(part, *self._posterior(part, log)) for log in expected))

    # ---- one model

    def _posterior(self, part: Part, log: Expected) -> tuple[Floats, float]:
        """Return rho, (N, K, M), and the sum of its log-normalisers."""
        K = self.sizes.classes
        scores: Floats = cell_matrix(part, self.sizes) @ log.labels
        rho = scores.reshape(len(scores), K, len(log.prior) // K)
        if part.known is not None:
            gold = np.flatnonzero(np.asarray(part.known) >= 0)
            other = np.asarray(part.known)[gold, None] != np.arange(K)
            rho[gold] = np.where(other[:, :, None], -np.inf, rho[gold])
        log_normaliser = normalise(scores, log.prior)  # in place
        empty = len(scores) - int(part.counted.sum())
        return scores.reshape(rho.shape), log_normaliser - empty * float(logsumexp(log.prior))

    def _count(self, part: Part, rho: Floats, log_normaliser: float) -> Counts:
        flat = rho.reshape(len(rho), rho.shape[1] * rho.shape[2])
        items = part.counted.astype(np.float64) @ flat
        return Counts(cell_matrix(part, self.sizes).T @ flat, items, log_normaliser)

    def _expected(self, counts: Counts, class_prior: Floats) -> Expected:
        """Return the expected log-probabilities of the Dirichlet posteriors, and their divergence from the priors."""
        _, R, K = self.sizes
        items = counts.items.reshape(K, -1).T  # (M, K)
        labels = counts.labels.reshape(R, K, K, -1).swapaxes(0, 1)  # (K observed, R, K, M)
        tau_prior = class_prior[:, None] + LEAST  # a class that nobody named has no votes
        beta = (WRONG + (RIGHT - WRONG) * np.eye(K))[:, None, :, None]
        tau, of_tau = dirichlet(items.sum(axis=0)[:, None], tau_prior)
        pi, of_pi = dirichlet(items, np.full_like(items, SUBTYPE_PRIOR / len(items)))
        v, of_v = dirichlet(labels, np.broadcast_to(beta, labels.shape))
        log_labels = np.ascontiguousarray(v.swapaxes(0, 1)).reshape(counts.labels.shape)
        return Expected((tau + pi.T).ravel(), log_labels, of_tau + of_pi + of_v)


def dirichlet(counts: Floats, prior: Floats) -> tuple[Floats, float]:
    """Return E log p under Dirichlet(counts + prior), along the first axis, and its divergence from the prior."""
    posterior = counts + prior
    sums, prior_sums = posterior.sum(axis=0), prior.sum(axis=0)
    means: Floats = psi(posterior) - psi(sums)
    divergence = (gammaln(sums) - gammaln(prior_sums)).sum() - (gammaln(posterior) - gammaln(prior)).sum()
    return means, float(divergence + (counts * means).sum())
