"""Expectation maximisation for labels alone, part by part: Dawid–Skene's matrices and the one-coin model.

Item n has a true class t, drawn from the class probabilities; annotator r, shown an item of class t, says l with
probability α[r, t, l]. A step is an M-step (class probabilities and α from counts) and then an E-step (posteriors from
these), of which a part gives back the next counts and the log-likelihood; the first counts are those of the soft vote.
Beliefs follow from counts, so nothing else is kept from step to step.

Labels stay sparse: with the (N, R·K) matrix that holds a 1 where annotator r gave item n the label l, the M-step's
counts are (its transpose) @ posterior and the E-step's scores are (it) @ log α. Where classes are many, an item has only
those that somebody named for it (`crowdshot.model.problem`), and α only the cells that these touch.
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

# Without a prior, a label that an annotator did give never gets probability zero: its count is at least this.
FLOOR = 1e-10
PIECE = 200_000  # labels taken at a time where classes are many


class Sums(NamedTuple):
    counts: Any  # whatever the model counts of annotators
    sizes: Floats  # (K,) items of each class
    log_likelihood: float


class State(NamedTuple):
    counts: Any
    sizes: Floats
    log_posterior: Floats  # after each step, up to a constant
    done: bool


class Model(Protocol):
    """What follows from counts of what annotators said; the first three where classes are many."""

    def count_named(self, p: Problem, posterior: Floats, sizes: Sizes) -> Any: ...

    def scores_named(self, p: Problem, says: Any, sizes: Sizes) -> tuple[Floats, float]:
        """(P,) log p(labels | class), but for a sum that all classes share, and that sum."""

    def says_named(self, counts: Any, sizes: Sizes) -> tuple[Any, float]: ...

    def confusion(self, counts: Floats, sizes: Sizes) -> tuple[Floats, float]:
        """Counts of labels as α, (R, K observed, K true) each, and its log-prior."""


@dataclass(frozen=True)
class Em:
    """``b``: pseudo-counts of each class. ``tolerance``: a step that gains less than this a label is the last."""

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
        says, log_prior = self._says(state)
        sums = ask(self.step, log_class_probs, says)
        posterior = sums.log_likelihood + log_prior + self.b * float(log_class_probs.sum())
        history = np.append(state.log_posterior, posterior)
        gained_little = len(history) > 1 and history[-1] - history[-2] < self.tolerance * self.n_labels
        if len(history) == self.steps or (self.tolerance > 0 and gained_little):
            return State(state.counts, state.sizes, history, done=True)  # from which the last posteriors follow
        return State(sums.counts, sums.sizes, history, done=False)

    def believe(self, part: Part, state: State) -> PosteriorMatrix:
        says, _ = self._says(state)
        log_class_probs = self.log_class_probs(state)
        if not self.sizes.sparse:
            return self._believe(part, self._said(part), log_class_probs, says)[0]
        found = [as_matrix(p, self._believe_named(p, log_class_probs, says)[0]) for p in self._named(part)]
        return joined(found) if found else sparse.csr_array((0, self.sizes.classes))

    def class_probs(self, state: State) -> Floats:
        # π[k] = (Σₙ λₙₖ + b) / (N + K b)
        probs: Floats = (state.sizes + self.b) / (state.sizes.sum() + self.sizes.classes * self.b)
        return probs

    def log_class_probs(self, state: State) -> Floats:
        return np.log(np.maximum(self.class_probs(state), 0.0 if self.b else FLOOR))

    def confusion(self, state: State) -> Floats:
        """(R, K true, K observed), unless classes are many."""
        _, R, K = self.sizes
        alpha, _ = self.model.confusion(state.counts.reshape(R, K, K), self.sizes)
        return np.ascontiguousarray(alpha.transpose(0, 2, 1))

    # ---- asked of each part

    def count_votes(self, part: Part) -> Sums:
        if not self.sizes.sparse:
            return self._count(part, self._said(part), votes(part, self.sizes.classes), 0.0)
        found = (self._count_named(p, votes_named(p), 0.0) for p in self._named(part))
        return added([self._nothing(), *found])

    def step(self, part: Part, log_class_probs: Floats, says: Any) -> Sums:
        if not self.sizes.sparse:
            said = self._said(part)
            return self._count(part, said, *self._believe(part, said, log_class_probs, says))
        named = self._named(part)
        found = (self._count_named(p, *self._believe_named(p, log_class_probs, says)) for p in named)
        return added([self._nothing(), *found])

    def _says(self, state: State) -> tuple[Any, float]:
        """What annotators are thought to say, log α (R·K observed, K true) or as the model has it; its log-prior."""
        if self.sizes.sparse:
            return self.model.says_named(state.counts, self.sizes)
        _, R, K = self.sizes
        alpha, log_prior = self.model.confusion(state.counts.reshape(R, K, K), self.sizes)
        log_alpha = np.log(np.where(alpha > 0, alpha, 1.0))  # of what was never said nothing is asked
        return log_alpha.reshape(R * K, K), log_prior

    # ---- every item has all classes

    def _believe(
        self, part: Part, said: sparse.csr_array, log_class_probs: Floats, log_alpha: Floats
    ) -> tuple[Floats, float]:
        """All scores first and then all posteriors, as the table of annotators would else have to share the cache."""
        scores: Floats = said @ log_alpha
        hold(part, scores, -np.inf)
        return scores, normalise(scores, log_class_probs)

    def _count(self, part: Part, said: sparse.csr_array, posterior: Floats, log_likelihood: float) -> Sums:
        items = part.counted.astype(np.float64) @ posterior
        return Sums(said.T @ posterior, items, log_likelihood)

    def _said(self, part: Part) -> sparse.csr_array:
        """(N, R·K) with a 1 at [item, annotator · K + label]."""
        (_, R, K), L = self.sizes, len(part.label)
        small = np.int32 if max(R * K, L) < 2**31 else np.int64
        if "cell" not in part.kept:
            cell: NDArray[Any] = np.multiply(part.annotator, small(K), dtype=small)
            part.kept["cell"] = np.add(cell, part.label, out=cell, casting="unsafe")
        starts = np.append(0, np.cumsum(part.per_item)).astype(small)
        matrix = sparse.csr_array((part.n_items, R * K))
        matrix.data, matrix.indices, matrix.indptr = ones(L), part.kept["cell"], starts  # its constructor would copy
        return matrix

    # ---- or those that somebody named for it

    def _named(self, part: Part) -> Iterator[Problem]:
        _, R, K = self.sizes
        for _, piece in part.pieces(PIECE):
            labels = piece.item, piece.annotator.astype(np.int64), piece.label.astype(np.int64)
            yield problem_of(*labels, piece.n_items, R, K, known=piece.known, named_only=True)

    def _believe_named(self, p: Problem, log_class_probs: Floats, says: Any) -> tuple[Floats, float]:
        scores, shared = self.model.scores_named(p, says, self.sizes)
        scores = scores + log_class_probs[p.pair_class]
        if p.known is not None:
            scores = np.where(p.known == 0, -np.inf, scores)
        starts = np.flatnonzero(np.diff(p.pair_item, prepend=-1))
        many = np.diff(np.append(starts, len(scores)))
        top = np.maximum.reduceat(scores, starts) if len(starts) else np.empty(0)
        weight = np.exp(scores - np.repeat(top, many))
        whole = total(weight, p.pair_item, p.n_items)
        return weight / whole[p.pair_item], shared + float(top.sum() + np.log(whole[p.pair_item[starts]]).sum())

    def _count_named(self, p: Problem, posterior: Floats, log_likelihood: float) -> Sums:
        items = total(posterior, p.pair_class, self.sizes.classes)
        return Sums(self.model.count_named(p, posterior, self.sizes), items, log_likelihood)

    def _nothing(self) -> Sums:
        nothing = problem_of(*(np.empty(0, np.int64),) * 3, 0, *self.sizes[1:], named_only=True)
        return self._count_named(nothing, np.empty(0), 0.0)


# ---- what is thought of annotators ----------------------------------------------------------------------------------


class MatrixCounts(NamedTuple):
    """Where an item has only the classes named for it."""

    cells: Keyed  # of annotator, label and class
    rows: Keyed  # of annotator and class


@dataclass(frozen=True)
class Matrices:
    """A confusion matrix an annotator. ``c``: pseudo-counts of each of its cells."""

    c: float = 0.0

    def count_named(self, p: Problem, posterior: Floats, sizes: Sizes) -> MatrixCounts:
        own = posterior[p.message_pair]
        return MatrixCounts(total(own, p.cell, None), total(own, p.row, None))

    def scores_named(self, p: Problem, says: MatrixCounts, sizes: Sizes) -> tuple[Floats, float]:
        cells, rows = (np.maximum(counts, FLOOR) for counts in (says.cells[p.cell], says.rows[p.row]))
        log_alpha = np.log((cells + self.c) / (rows + self.c * sizes.classes))
        return total(log_alpha, p.message_pair, len(p.pair_item)), 0.0

    def says_named(self, counts: MatrixCounts, sizes: Sizes) -> tuple[MatrixCounts, float]:
        return counts, 0.0

    def confusion(self, counts: Floats, sizes: Sizes) -> tuple[Floats, float]:
        # α[r, l, k] = (Σₙ λₙₖ [r said l of n] + c) / (Σₙ λₙₖ [r labelled n] + K c)
        alpha = counts + self.c
        if self.c == 0:
            used = np.einsum("rlk->rl", alpha) > 0.5
            used |= ~used.any(axis=1, keepdims=True)
            np.maximum(alpha, np.where(used, FLOOR, 0.0)[:, :, None], out=alpha)
        alpha /= np.einsum("rlk->rk", alpha)[:, None]
        return alpha, self.c * float(np.log(alpha).sum()) if self.c else 0.0


class CoinCounts(NamedTuple):
    """Where an item has only the classes named for it, (R,) each."""

    right: Floats
    labels: Floats


class Coin(NamedTuple):
    """(R,) each: log-probability of the right label, and of each wrong one."""

    right: Floats
    wrong: Floats


@dataclass(frozen=True)
class Coins:
    """One number an annotator: right with probability q, wrong evenly over the other classes.

    ``c``: pseudo-counts of the right label and of each wrong one, ``right``: further ones of the right label.
    """

    c: float = 1.0
    right: float = 2.0

    def count_named(self, p: Problem, posterior: Floats, sizes: Sizes) -> CoinCounts:
        R = sizes.annotators
        return CoinCounts(total(posterior[p.label_pair], p.annotator, R), total(p.weight, p.annotator, R))

    def scores_named(self, p: Problem, says: Coin, sizes: Sizes) -> tuple[Floats, float]:
        gain = (says.right - says.wrong)[p.annotator]
        return total(gain, p.label_pair, len(p.pair_item)), float(says.wrong[p.annotator].sum())

    def says_named(self, counts: CoinCounts, sizes: Sizes) -> tuple[Coin, float]:
        # q[r] = (Σₙ λₙₗ [r said l of n] + c + right) / (labels of r + K c + right)
        K = sizes.classes
        whole = counts.labels + K * self.c + self.right
        q = np.full(len(whole), 1.0 / K)
        np.divide(counts.right + self.c + self.right, whole, out=q, where=whole > 0)
        right, wrong = (np.log(np.clip(p, FLOOR, 1.0 - FLOOR)) for p in (q, (1.0 - q) / max(K - 1, 1)))
        return Coin(right, wrong), float(((self.c + self.right) * right + self.c * (K - 1) * wrong).sum())

    def confusion(self, counts: Floats, sizes: Sizes) -> tuple[Floats, float]:
        """The matrices that q implies."""
        K = sizes.classes
        right = np.trace(counts, axis1=1, axis2=2)
        coin, log_prior = self.says_named(CoinCounts(right, counts.sum(axis=(1, 2))), sizes)
        alpha = np.empty_like(counts)
        alpha[:] = np.exp(coin.wrong)[:, None, None]
        alpha[:, np.arange(K), np.arange(K)] = np.exp(coin.right)[:, None]
        return alpha, log_prior
