"""Run the label model (`crowdshot.model.label_model`) on a crowd in parts.

Each method that takes a `Part` returns sums over its items. `Rounds.begin` and `Rounds.advance` request them from all
parts, in this order: `see`, `count_votes`, then `count` in each round but the last, `count_classes` in the last. With
known classes, `gold_excess` precedes each round's counts. `Rounds.believe` then returns the posteriors of a part.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse

from crowdshot.model import label_model, posteriors
from crowdshot.model.label_model import (
    Counts,
    Crowd,
    CrowdSums,
    GoldExcess,
    ItemScores,
    LabelStatistics,
    Network,
    Round,
    crowd_sums,
    describe_crowd,
    label_statistics,
    n_rounds,
)
from crowdshot.model.parts import Ask, Floats, Part, PosteriorMatrix, Sizes, added, cell_matrix
from crowdshot.model.posteriors import Counted, as_matrix
from crowdshot.model.problem import Problem, posterior_from, posterior_of, problem_of, total

PIECE = 12_000  # labels processed at a time, so that intermediate arrays stay in the processor's cache
PIECE_NAMED = 30_000  # the same where classes are many, because sums by key cost more to add
LAST = "posterior"  # the key of the last round's posteriors in `Part.kept`


class State(NamedTuple):
    step: int  # rounds completed
    sums: CrowdSums
    counts: Counts
    gold: GoldExcess
    classes: Counted  # class counts by the posteriors of the last round; empty before


class Piece(NamedTuple):
    """Some items of a part."""

    problem: Problem
    pairs: slice


@dataclass(frozen=True)
class Rounds:
    """The label model as an `Aggregator`.

    Parameters
    ----------
    sizes : Sizes
        Numbers of items, annotators and classes of the whole crowd.
    network : mapping
        Tensors of `label_model.shapes`.
    ordered : bool
        Classes are numbered in order.
    right, wrong : (R,) arrays, optional
        Labels of each annotator that are known to be right and wrong, from earlier.
    gold : bool
        The classes of some items are known.
    power : float
        Exponent of the posteriors by which class sizes are counted in the end; 1 leaves the posteriors unchanged.
    """

    sizes: Sizes
    network: Network
    ordered: bool = False
    right: Floats | None = None
    wrong: Floats | None = None
    gold: bool = False
    power: float = posteriors.SHARPER

    def begin(self, ask: Ask) -> State:
        sums = ask(self.see)
        return self._state(ask, 0, sums, ask(self.count_votes, self._crowd(sums)))

    def is_done(self, state: State) -> bool:
        return len(state.classes.modest) > 0

    def advance(self, ask: Ask, state: State) -> State:
        if state.step == n_rounds(self.network) - 1:
            return state._replace(classes=ask(self.count_classes, self._round(state), state.gold))
        return self._state(ask, state.step + 1, state.sums, ask(self.count, self._round(state), state.gold))

    def believe(self, part: Part, state: State) -> PosteriorMatrix:
        K = self.sizes.classes
        pieces = [sparse.csr_array((0, K)) if self.sizes.sparse else np.empty((0, K))]
        for piece in self._pieces(part):
            p = piece.problem
            kept = np.asarray(part.kept[LAST][piece.pairs]).reshape(p.shape)
            posterior = posteriors.resized(p, kept, state.classes)
            pieces.append(as_matrix(p, posterior) if self.sizes.sparse else posterior)
        return sparse.vstack(pieces, format="csr") if self.sizes.sparse else np.concatenate(pieces)

    def _state(self, ask: Ask, step: int, sums: CrowdSums, counts: Counts) -> State:
        state = State(step, sums, counts, GoldExcess(np.zeros(1), np.zeros(1)), Counted(np.empty(0), np.empty(0)))
        return state._replace(gold=ask(self.gold_excess, self._round(state))) if self.gold else state

    def _crowd(self, sums: CrowdSums) -> Crowd:
        return describe_crowd(np, total, self._empty, sums)

    def _round(self, state: State) -> Round:
        crowd = self._crowd(state.sums)
        return label_model.round_of(np, total, self._empty, self.network, state.step, crowd, state.counts)

    # ---- sums of a part

    def see(self, part: Part) -> CrowdSums:
        if not self.sizes.sparse:
            return crowd_sums(total, self._problem(part))
        return added(crowd_sums(total, p) for p in (self._empty, *(piece.problem for piece in self._pieces(part))))

    def count_votes(self, part: Part, crowd: Crowd) -> Counts:
        def votes(piece: Piece) -> tuple[LabelStatistics, Floats]:
            statistics = label_statistics(np, total, piece.problem, crowd)
            return statistics, statistics.log_vote

        return self._count(part, 0, votes)

    def count(self, part: Part, this: Round, gold: GoldExcess) -> Counts:
        return self._count(part, this.step + 1, lambda piece: self._tempered(part, piece, this, gold))

    def gold_excess(self, part: Part, this: Round) -> GoldExcess:
        found = [GoldExcess(np.zeros(1), np.zeros(1))]
        for piece in self._pieces(part):
            if piece.problem.known is not None:
                items = self._scored(part, piece, this)[1]
                found.append(label_model.gold_excess(np, total, piece.problem, items))
        return added(found)

    def count_classes(self, part: Part, this: Round, gold: GoldExcess) -> Counted:
        """Count classes by the posteriors of the last round, and keep these posteriors."""
        K = self.sizes.classes
        counts, pieces = [Counted(np.zeros(K), np.zeros(K))], [np.empty(0)]
        for piece in self._pieces(part):
            p = piece.problem
            statistics, score = self._tempered(part, piece, this, gold)
            posterior = posterior_of(p, label_model.pool(np, total, p, statistics, score))
            pieces.append(posterior.ravel())
            counts.append(posteriors.count(p, posterior, self.power))
        part.kept[LAST] = np.concatenate(pieces)
        return added(counts)

    # ---- sums of a piece

    def _count(self, part: Part, step: int, scored: Callable[[Piece], tuple[LabelStatistics, Floats]]) -> Counts:
        """Count labels by the posteriors of the scores, and keep these posteriors under a name for each step.

        An interrupted step can be repeated, because it does not overwrite the posteriors that it starts from.
        """
        found: list[Floats] = [np.empty(0)]
        counts = [self._no_counts()] if self.sizes.sparse else []
        for piece in self._pieces(part):
            statistics, score = scored(piece)
            posterior = posterior_from(np, total, piece.problem, score)
            found.append(posterior.ravel())
            if self.sizes.sparse:
                counts[0] = added([counts[0], label_model.count(total, piece.problem, statistics, posterior)])
        part.kept[f"posterior-{step}"] = whole = np.concatenate(found)
        return counts[0] if counts else self._count_dense(part, whole.reshape(-1, self.sizes.classes))

    def _count_dense(self, part: Part, posterior: Floats) -> Counts:
        labelled = (np.asarray(part.per_item) > 0).astype(np.float64)
        cells: Floats = cell_matrix(part, self.sizes).T @ posterior
        return label_model.counts_of(total, self._empty, cells, np.einsum("n,nk->k", labelled, posterior))

    def _scored(self, part: Part, piece: Piece, this: Round) -> tuple[LabelStatistics, ItemScores]:
        p = piece.problem
        statistics = label_statistics(np, total, p, this.crowd)
        posterior = np.asarray(part.kept[f"posterior-{this.step}"][piece.pairs]).reshape(p.shape)
        return statistics, label_model.score_items(np, total, p, statistics, posterior, this)

    def _tempered(self, part: Part, piece: Piece, this: Round, gold: GoldExcess) -> tuple[LabelStatistics, Floats]:
        statistics, items = self._scored(part, piece, this)
        return statistics, label_model.temper(np, total, piece.problem, statistics, items, this, gold)

    def _pieces(self, part: Part) -> Iterator[Piece]:
        done = 0
        for _, piece in part.pieces(PIECE_NAMED if self.sizes.sparse else PIECE):
            p = self._problem(piece)
            yield Piece(p, slice(done, done + math.prod(p.shape)))
            done += math.prod(p.shape)

    def _problem(self, part: Part) -> Problem:
        _, R, K = self.sizes
        return problem_of(
            part.item,
            part.annotator.astype(np.int64),
            part.label.astype(np.int64),
            part.n_items,
            R,
            K,
            known=None if part.known is None else np.asarray(part.known, dtype=np.int64),
            named_only=self.sizes.sparse,
            right=self.right,
            wrong=self.wrong,
            ordered=self.ordered,
        )

    def _no_counts(self) -> Counts:
        statistics = label_statistics(np, total, self._empty, self._crowd(crowd_sums(total, self._empty)))
        return label_model.count(total, self._empty, statistics, np.empty(0))

    @cached_property
    def _empty(self) -> Problem:
        """The crowd without its labels."""
        _, R, K = self.sizes
        none = np.empty(0, dtype=np.int64)
        return problem_of(none, none, none, 0, R, K, named_only=self.sizes.sparse, ordered=self.ordered)
