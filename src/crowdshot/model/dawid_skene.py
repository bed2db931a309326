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
from numpy.typing import NDArray
from scipy import sparse

from crowdshot.model.parts import Ask, Floats, Keyed, Part, PosteriorMatrix, Sizes, added
from crowdshot.model.posteriors import as_matrix, hold, joined, normalise, ones, votes, votes_named
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
    """A model of annotators. The first three methods serve sparse problems, `confusion` dense ones."""

    def count_named(self, p: Problem, posterior: Floats, sizes: Sizes) -> Any: ...

    def scores_named(self, p: Problem, parameters: Any, sizes: Sizes) -> tuple[Floats, float]:
        """Return log p(labels | class), (P,), less a term that all classes share, and the sum of these terms."""

    def parameters_named(self, counts: Any, sizes: Sizes) -> tuple[Any, float]:
        """Return parameters and their log-prior."""

    def confusion(self, counts: Floats, sizes: Sizes) -> tuple[Floats, float]:
        """Return alpha from counts, (R, K observed, K true) each, and its log-prior."""


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
        sums = ask(self.step, log_class_probs, parameters)
        posterior = sums.log_likelihood + log_prior + self.b * float(log_class_probs.sum())
        history = np.append(state.log_posterior, posterior)
        gained_little = len(history) > 1 and history[-1] - history[-2] < self.tolerance * self.n_labels
        if len(history) == self.steps or (self.tolerance > 0 and gained_little):
            return State(state.counts, state.sizes, history, done=True)  # the last posteriors follow from these counts
        return State(sums.counts, sums.sizes, history, done=False)

    def believe(self, part: Part, state: State) -> PosteriorMatrix:
        parameters, _ = self._parameters(state)
        log_class_probs = self.log_class_probs(state)
        if not self.sizes.sparse:
            return self._e_step(part, self._label_matrix(part), log_class_probs, parameters)[0]
        found = [as_matrix(p, self._e_step_named(p, log_class_probs, parameters)[0]) for p in self._named(part)]
        return joined(found) if found else sparse.csr_array((0, self.sizes.classes))

    def class_probs(self, state: State) -> Floats:
        probs: Floats = (state.sizes + self.b) / (state.sizes.sum() + self.sizes.classes * self.b)
        return probs

    def log_class_probs(self, state: State) -> Floats:
        return np.log(np.maximum(self.class_probs(state), 0.0 if self.b else FLOOR))

    def confusion(self, state: State) -> Floats:
        """Return alpha, (R, K true, K observed); not available where classes are many."""
        _, R, K = self.sizes
        alpha, _ = self.model.confusion(state.counts.reshape(R, K, K), self.sizes)
        return np.ascontiguousarray(alpha.transpose(0, 2, 1))

    # ---- sums of a part

    def count_votes(self, part: Part) -> Sums:
        if not self.sizes.sparse:
            return self._count(part, self._label_matrix(part), votes(part, self.sizes.classes), 0.0)
        found = (self._count_named(p, votes_named(p), 0.0) for p in self._named(part))
        return added([self._empty(), *found])

    def step(self, part: Part, log_class_probs: Floats, parameters: Any) -> Sums:
        if not self.sizes.sparse:
            matrix = self._label_matrix(part)
            return self._count(part, matrix, *self._e_step(part, matrix, log_class_probs, parameters))
        named = self._named(part)
        found = (self._count_named(p, *self._e_step_named(p, log_class_probs, parameters)) for p in named)
        return added([self._empty(), *found])

    def _parameters(self, state: State) -> tuple[Any, float]:
        """Return log alpha, (R·K observed, K true), or the parameters of a sparse problem; and their log-prior."""
        if self.sizes.sparse:
            return self.model.parameters_named(state.counts, self.sizes)
        _, R, K = self.sizes
        alpha, log_prior = self.model.confusion(state.counts.reshape(R, K, K), self.sizes)
        log_alpha = np.log(np.where(alpha > 0, alpha, 1.0))  # a label that an annotator never gave is never looked up
        return log_alpha.reshape(R * K, K), log_prior

    # ---- dense: every item has all classes

    def _e_step(
        self, part: Part, matrix: sparse.csr_array, log_class_probs: Floats, log_alpha: Floats
    ) -> tuple[Floats, float]:
        """Return posteriors, (N, K), and the log-likelihood.

        All scores come first, then all posteriors: block by block, log alpha would be pushed out of the cache.
        """
        scores: Floats = matrix @ log_alpha
        hold(part, scores, -np.inf)
        return scores, normalise(scores, log_class_probs)

    def _count(self, part: Part, matrix: sparse.csr_array, posterior: Floats, log_likelihood: float) -> Sums:
        items = part.counted.astype(np.float64) @ posterior
        return Sums(matrix.T @ posterior, items, log_likelihood)

    def _label_matrix(self, part: Part) -> sparse.csr_array:
        """Return S, (N, R·K), with a 1 at [item, annotator · K + label]."""
        (_, R, K), L = self.sizes, len(part.label)
        small = np.int32 if max(R * K, L) < 2**31 else np.int64
        if "cell" not in part.kept:
            cell: NDArray[Any] = np.multiply(part.annotator, small(K), dtype=small)
            part.kept["cell"] = np.add(cell, part.label, out=cell, casting="unsafe")
        starts = np.append(0, np.cumsum(part.per_item)).astype(small)
        matrix = sparse.csr_array((part.n_items, R * K))
        matrix.data, matrix.indices, matrix.indptr = ones(L), part.kept["cell"], starts  # the constructor would copy
        return matrix

    # ---- sparse: an item has the classes that somebody named for it

    def _named(self, part: Part) -> Iterator[Problem]:
        _, R, K = self.sizes
        for _, piece in part.pieces(PIECE):
            labels = piece.item, piece.annotator.astype(np.int64), piece.label.astype(np.int64)
            yield problem_of(*labels, piece.n_items, R, K, known=piece.known, named_only=True)

    def _e_step_named(self, p: Problem, log_class_probs: Floats, parameters: Any) -> tuple[Floats, float]:
        scores, shared = self.model.scores_named(p, parameters, self.sizes)
        scores = scores + log_class_probs[p.pair_class]
        if p.known is not None:
            scores = np.where(p.known == 0, -np.inf, scores)
        starts = np.flatnonzero(np.diff(p.pair_item, prepend=-1))
        per_item = np.diff(np.append(starts, len(scores)))
        top = np.maximum.reduceat(scores, starts) if len(starts) else np.empty(0)
        weight = np.exp(scores - np.repeat(top, per_item))
        norm = total(weight, p.pair_item, p.n_items)
        return weight / norm[p.pair_item], shared + float(top.sum() + np.log(norm[p.pair_item[starts]]).sum())

    def _count_named(self, p: Problem, posterior: Floats, log_likelihood: float) -> Sums:
        items = total(posterior, p.pair_class, self.sizes.classes)
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

    def count_named(self, p: Problem, posterior: Floats, sizes: Sizes) -> MatrixCounts:
        of_message = posterior[p.message_pair]
        return MatrixCounts(total(of_message, p.cell, None), total(of_message, p.row, None))

    def scores_named(self, p: Problem, parameters: MatrixCounts, sizes: Sizes) -> tuple[Floats, float]:
        cells, rows = (np.maximum(counts, FLOOR) for counts in (parameters.cells[p.cell], parameters.rows[p.row]))
        log_alpha = np.log((cells + self.c) / (rows + self.c * sizes.classes))
        return total(log_alpha, p.message_pair, len(p.pair_item)), 0.0

    def parameters_named(self, counts: MatrixCounts, sizes: Sizes) -> tuple[MatrixCounts, float]:
        return counts, 0.0

    def confusion(self, counts: Floats, sizes: Sizes) -> tuple[Floats, float]:
        alpha = counts + self.c
        if self.c == 0:
            used = np.einsum("rlk->rl", alpha) > 0.5
            used |= ~used.any(axis=1, keepdims=True)
            np.maximum(alpha, np.where(used, FLOOR, 0.0)[:, :, None], out=alpha)
        alpha /= np.einsum("rlk->rk", alpha)[:, None]
        return alpha, self.c * float(np.log(alpha).sum()) if self.c else 0.0


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

    def count_named(self, p: Problem, posterior: Floats, sizes: Sizes) -> CoinCounts:
        R = sizes.annotators
        return CoinCounts(total(posterior[p.label_pair], p.annotator, R), total(p.weight, p.annotator, R))

    def scores_named(self, p: Problem, parameters: Coin, sizes: Sizes) -> tuple[Floats, float]:
        gain = (parameters.right - parameters.wrong)[p.annotator]
        return total(gain, p.label_pair, len(p.pair_item)), float(parameters.wrong[p.annotator].sum())

    def parameters_named(self, counts: CoinCounts, sizes: Sizes) -> tuple[Coin, float]:
        K = sizes.classes
        labels = counts.labels + K * self.c + self.right
        q = np.full(len(labels), 1.0 / K)
        np.divide(counts.right + self.c + self.right, labels, out=q, where=labels > 0)
        right, wrong = (np.log(np.clip(p, FLOOR, 1.0 - FLOOR)) for p in (q, (1.0 - q) / max(K - 1, 1)))
        return Coin(right, wrong), float(((self.c + self.right) * right + self.c * (K - 1) * wrong).sum())

    def confusion(self, counts: Floats, sizes: Sizes) -> tuple[Floats, float]:
        """Return the confusion matrices of the coins."""
        K = sizes.classes
        right = np.trace(counts, axis1=1, axis2=2)
        coin, log_prior = self.parameters_named(CoinCounts(right, counts.sum(axis=(1, 2))), sizes)
        alpha = np.empty_like(counts)
        alpha[:] = np.exp(coin.wrong)[:, None, None]
        alpha[:, np.arange(K), np.arange(K)] = np.exp(coin.right)[:, None]
        return alpha, log_prior
