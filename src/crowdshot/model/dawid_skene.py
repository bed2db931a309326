"""Expectation maximisation for labels alone: Dawid-Skene and the one-coin model, part by part.

Item n has an unseen class t_n with class probabilities pi; annotator r gives an item of class k the label l with
probability alpha[r, k, l]:

    t_n ~ pi,   y_n^r ~ alpha[r, t_n, :]

The posterior q_nk is p(t_n = k | labels). With q from the soft vote at first, each step is

    M-step   pi_k = (sum_n q_nk + b) / (N + K b)
             matrices: alpha[r, k, l] = (sum_n q_nk [r gave n the label l] + c) / (sum_n q_nk [r labelled n] + K c)
             one coin: alpha[r, k, k] = (sum_n q_n,y + c + right) / (labels of r + K c + right), y the label of r;
                       alpha[r, k, l] = (1 - alpha[r, k, k]) / (K - 1) for l other than k
    E-step   q_nk proportional to pi_k prod_(r labelled n) alpha[r, k, y_n^r]

where N counts the items that have labels or a known class. Steps end after ``steps``, or when
log p(labels) plus log-prior grows by less than ``tolerance`` for each label. Posteriors follow from counts, so nothing
else is kept from step to step.

Labels stay sparse. Let S be the (N, R K) matrix with a 1 where annotator r gave item n the label l. The counts of the
M-step are S^T q, and the scores of the E-step S log alpha. Where classes are many, an item has only the classes that
somebody named for it (`crowdshot.model.problem`), and alpha only the cells that these touch.

References: A. P. Dawid and A. M. Skene, Maximum likelihood estimation of observer error-rates using the EM algorithm,
Applied Statistics 28(1), 1979.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from crowdshot.model.parts import (
    Ask,
    Floats,
    Keyed,
    Part,
    PosteriorMatrix,
    Sizes,
    added,
    cell_matrix,
    label_matrix,
    ones,
)
from crowdshot.model.posteriors import as_matrix, hold, joined, normalise, votes, votes_named
from crowdshot.model.problem import Problem, problem_of, total

# Least count of a label that an annotator gave, so that without a prior its probability is never zero.
FLOOR = 1e-10
PIECE = 200_000  # labels processed at a time where classes are many


class Sums(NamedTuple):
    counts: Any  # of annotators, in the model's form
    sizes: Floats  # (K,) items of each class
    log_likelihood: float


class State(NamedTuple):
    counts: Any
    sizes: Floats
    log_posterior: Floats  # objective after each step, up to a constant
    done: bool


class Model(Protocol):
    """A model of annotators. Methods ``..._named`` serve sparse problems, the others dense ones."""

    def count(self, part: Part, posterior: Floats, sizes: Sizes) -> Any:
        """Return expected counts, from posteriors (N, K)."""

    def scores(self, part: Part, parameters: Any, sizes: Sizes) -> Floats:
        """Return log p(labels | class), (N, K)."""

    def parameters(self, counts: Any, sizes: Sizes) -> tuple[Any, float]:
        """Return parameters and their log-prior."""

    def confusion(self, counts: Any, sizes: Sizes) -> Floats:
        """Return alpha, (R, K observed, K true)."""

    def count_named(self, p: Problem, posterior: Floats, sizes: Sizes) -> Any: ...

    def scores_named(self, p: Problem, parameters: Any, sizes: Sizes) -> tuple[Floats, float]:
        """Return log p(labels | class), (P,), less a term that all classes share, and the sum of these terms."""

    def parameters_named(self, counts: Any, sizes: Sizes) -> tuple[Any, float]:
        """Return parameters and their log-prior."""


@dataclass(frozen=True)
class Em:
    """EM as an `Aggregator`.

    Parameters
    ----------
    sizes : Sizes
        Numbers of items, annotators and classes of the whole crowd.
    n_labels : int
        Labels of the whole crowd.
    model : Model
        `Matrices` or `Coins`.
    steps : int
        Most steps.
    b : float
        Pseudo-count of each class.
    tolerance : float
        The step that gains less than this for each label is the last; 0 to take all steps.
    """

    sizes: Sizes
    n_labels: int
    model: Model
    steps: int
    b: float
    tolerance: float

    def begin(self, ask: Ask) -> State:
        sums = ask(self.count_votes)
        return State(sums.counts, sums.sizes, np.empty(0), done=False)

    def is_done(self, state: State) -> bool:
        return state.done

    def advance(self, ask: Ask, state: State) -> State:
        log_class_probs = self.log_class_probs(state)
        parameters, log_prior = self._parameters(state)
        is_last = len(state.log_posterior) + 1 == self.steps  # its posteriors follow from the counts before it
        sums = ask(self.judge if is_last else self.step, log_class_probs, parameters)
        posterior = sums.log_likelihood + log_prior + self.b * float(log_class_probs.sum())
        history = np.append(state.log_posterior, posterior)
        gained_little = len(history) > 1 and history[-1] - history[-2] < self.tolerance * self.n_labels
        if is_last or (self.tolerance > 0 and gained_little):
            return State(state.counts, state.sizes, history, done=True)
        return State(sums.counts, sums.sizes, history, done=False)

    def believe(self, part: Part, state: State) -> PosteriorMatrix:
        parameters, _ = self._parameters(state)
        log_class_probs = self.log_class_probs(state)
        if not self.sizes.sparse:
            return self._e_step(part, log_class_probs, parameters)[0]
        found = [as_matrix(p, self._e_step_named(p, log_class_probs, parameters)[0]) for p in self._named(part)]
        return joined(found) if found else sparse.csr_array((0, self.sizes.classes))

    def class_probs(self, state: State) -> Floats:
        probs: Floats = (state.sizes + self.b) / (state.sizes.sum() + self.sizes.classes * self.b)
        return probs

    def log_class_probs(self, state: State) -> Floats:
        return np.log(np.maximum(self.class_probs(state), 0.0 if self.b else FLOOR))

    def confusion(self, state: State) -> Floats:
        """Return alpha, (R, K true, K observed); not available where classes are many."""
        return np.ascontiguousarray(self.model.confusion(state.counts, self.sizes).transpose(0, 2, 1))

    # ---- sums of a part

    def count_votes(self, part: Part) -> Sums:
        if not self.sizes.sparse:
            return self._count(part, votes(part, self.sizes.classes), 0.0)
        found = (self._count_named(p, votes_named(p), 0.0) for p in self._named(part))
        return added([self._empty(), *found])

    def step(self, part: Part, log_class_probs: Floats, parameters: Any) -> Sums:
        if not self.sizes.sparse:
            return self._count(part, *self._e_step(part, log_class_probs, parameters))
        named = self._named(part)
        found = (self._count_named(p, *self._e_step_named(p, log_class_probs, parameters)) for p in named)
        return added([self._empty(), *found])

    def judge(self, part: Part, log_class_probs: Floats, parameters: Any) -> Sums:
        """Return the log-likelihood of a part's labels, without counts."""
        if not self.sizes.sparse:
            return Sums(0.0, np.zeros(1), self._e_step(part, log_class_probs, parameters)[1])
        found = (self._e_step_named(p, log_class_probs, parameters)[1] for p in self._named(part))
        return Sums(0.0, np.zeros(1), sum(found, 0.0))

    def _parameters(self, state: State) -> tuple[Any, float]:
        """Return the model's parameters and their log-prior."""
        find = self.model.parameters_named if self.sizes.sparse else self.model.parameters
        return find(state.counts, self.sizes)

    # ---- dense: every item has all classes

    def _e_step(self, part: Part, log_class_probs: Floats, parameters: Any) -> tuple[Floats, float]:
        """Return posteriors, (N, K), and the log-likelihood.

        All scores come first, then all posteriors: block by block, log alpha would be pushed out of the cache.
        """
        scores = self.model.scores(part, parameters, self.sizes)
        hold(part, scores, -np.inf)
        return scores, normalise(scores, log_class_probs)

    def _count(self, part: Part, posterior: Floats, log_likelihood: float) -> Sums:
        items = np.einsum("n,nk->k", part.counted.astype(np.float64), posterior)  # BLAS would start its own threads
        return Sums(self.model.count(part, posterior, self.sizes), items, log_likelihood)

    # ---- sparse: an item has the classes that somebody named for it

    def _named(self, part: Part) -> Iterator[Problem]:
        _, R, K = self.sizes
        for _, piece in part.pieces(PIECE):
            labels = piece.item, piece.annotator.astype(np.int64), piece.label.astype(np.int64)
            yield problem_of(*labels, piece.n_items, R, K, known=piece.known, named_only=True)

    def _e_step_named(self, p: Problem, log_class_probs: Floats, parameters: Any) -> tuple[Floats, float]:
        scores, shared = self.model.scores_named(p, parameters, self.sizes)
        pair_item, pair_class = p.pairs()
        scores = scores + log_class_probs[pair_class]
        if p.known is not None:
            scores = np.where(p.known == 0, -np.inf, scores)
        starts = np.flatnonzero(np.diff(pair_item, prepend=-1))
        per_item = np.diff(np.append(starts, len(scores)))
        top = np.maximum.reduceat(scores, starts) if len(starts) else np.empty(0)
        weight = np.exp(scores - np.repeat(top, per_item))
        norm = total(weight, pair_item, p.n_items)
        return weight / norm[pair_item], shared + float(top.sum() + np.log(norm[pair_item[starts]]).sum())

    def _count_named(self, p: Problem, posterior: Floats, log_likelihood: float) -> Sums:
        items = p.sum_of_class(total, posterior)
        return Sums(self.model.count_named(p, posterior, self.sizes), items, log_likelihood)

    def _empty(self) -> Sums:
        problem = problem_of(*(np.empty(0, np.int64),) * 3, 0, *self.sizes[1:], named_only=True)
        return self._count_named(problem, np.empty(0), 0.0)


# ---- models of annotators --------------------------------------------------------------------------------------------


class MatrixCounts(NamedTuple):
    """Counts of a sparse problem."""

    cells: Keyed  # by annotator, label and class
    rows: Keyed  # by annotator and class


@dataclass(frozen=True)
class Matrices:
    """Dawid-Skene: a confusion matrix for each annotator, with ``c`` pseudo-counts in every cell."""

    c: float = 0.0

    def count(self, part: Part, posterior: Floats, sizes: Sizes) -> Floats:
        """Return counts by annotator and label, and by class: (R·K observed, K true)."""
        counts: Floats = cell_matrix(part, sizes).T @ posterior
        return counts

    def scores(self, part: Part, parameters: Floats, sizes: Sizes) -> Floats:
        scores: Floats = cell_matrix(part, sizes) @ parameters
        return scores

    def parameters(self, counts: Floats, sizes: Sizes) -> tuple[Floats, float]:
        """Return log alpha, (R·K observed, K true), and its log-prior."""
        alpha = self.confusion(counts, sizes).reshape(-1, sizes.classes)
        if self.c == 0:
            alpha[alpha == 0] = 1.0  # a label that an annotator never gave is never looked up
        log_alpha = np.log(alpha, out=alpha)
        return log_alpha, self.c * float(log_alpha.sum()) if self.c else 0.0

    def confusion(self, counts: Floats, sizes: Sizes) -> Floats:
        _, R, K = sizes
        alpha: Floats = counts.reshape(R, K, K) + self.c
        if self.c == 0:
            used = np.einsum("rlk->rl", alpha) > 0.5
            used |= ~used.any(axis=1, keepdims=True)
            np.maximum(alpha, FLOOR, out=alpha)
            alpha[~used] = 0.0
        alpha /= np.einsum("rlk->rk", alpha)[:, None]
        return alpha

    def count_named(self, p: Problem, posterior: Floats, sizes: Sizes) -> MatrixCounts:
        of_message, named = p.of_pair(posterior), p.named
        assert named is not None
        return MatrixCounts(total(of_message, named.cell, None), total(of_message, named.row, None))

    def scores_named(self, p: Problem, parameters: MatrixCounts, sizes: Sizes) -> tuple[Floats, float]:
        cells, rows = (np.maximum(counts, FLOOR) for counts in (p.at_cell(parameters.cells), p.at_row(parameters.rows)))
        log_alpha = np.log((cells + self.c) / (rows + self.c * sizes.classes))
        return p.sum_of_pair(total, log_alpha), 0.0

    def parameters_named(self, counts: MatrixCounts, sizes: Sizes) -> tuple[MatrixCounts, float]:
        return counts, 0.0


class CoinCounts(NamedTuple):
    """Expected right labels, and labels, (R,) each."""

    right: Floats
    labels: Floats


class Coin(NamedTuple):
    """Log-probability of the right label, and of each wrong one, (R,) each."""

    right: Floats
    wrong: Floats


@dataclass(frozen=True)
class Coins:
    """One coin: each annotator is right with one probability, and wrong labels are uniform over the other classes.

    ``c`` pseudo-counts of the right label and of each wrong one; ``right`` further ones of the right label.
    """

    c: float = 1.0
    right: float = 2.0

    def count(self, part: Part, posterior: Floats, sizes: Sizes) -> CoinCounts:
        R = sizes.annotators
        right = posterior.ravel().take(part.item * sizes.classes + part.label)
        return CoinCounts(total(right, part.annotator, R), total(ones(len(right)), part.annotator, R))

    def scores(self, part: Part, parameters: Coin, sizes: Sizes) -> Floats:
        gain = (parameters.right - parameters.wrong).take(part.annotator)
        scores: Floats = label_matrix(part, part.label, sizes.classes, gain).toarray()
        scores += (label_matrix(part, part.annotator, sizes.annotators) @ parameters.wrong)[:, None]
        return scores

    def parameters(self, counts: CoinCounts, sizes: Sizes) -> tuple[Coin, float]:
        return self.parameters_named(counts, sizes)

    def count_named(self, p: Problem, posterior: Floats, sizes: Sizes) -> CoinCounts:
        R = sizes.annotators
        return CoinCounts(total(p.at_label(posterior), p.annotator, R), total(p.weight, p.annotator, R))

    def scores_named(self, p: Problem, parameters: Coin, sizes: Sizes) -> tuple[Floats, float]:
        gain = (parameters.right - parameters.wrong)[p.annotator]
        return p.sum_at_label(total, gain), float(parameters.wrong[p.annotator].sum())

    def parameters_named(self, counts: CoinCounts, sizes: Sizes) -> tuple[Coin, float]:
        K = sizes.classes
        labels = counts.labels + K * self.c + self.right
        q = np.full(len(labels), 1.0 / K)
        np.divide(counts.right + self.c + self.right, labels, out=q, where=labels > 0)
        right, wrong = (np.log(np.clip(p, FLOOR, 1.0 - FLOOR)) for p in (q, (1.0 - q) / max(K - 1, 1)))
        return Coin(right, wrong), float(((self.c + self.right) * right + self.c * (K - 1) * wrong).sum())

    def confusion(self, counts: CoinCounts, sizes: Sizes) -> Floats:
        _, R, K = sizes
        coin, _ = self.parameters(counts, sizes)
        alpha = np.empty((R, K, K))
        alpha[:] = np.exp(coin.wrong)[:, None, None]
        alpha[:, np.arange(K), np.arange(K)] = np.exp(coin.right)[:, None]
        return alpha
