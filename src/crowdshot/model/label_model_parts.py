"""Run the label model (`crowdshot.model.label_model`) on a crowd in parts.

Each method that takes a `Part` returns sums over its items. `Rounds.begin` and `Rounds.advance` request them from all
parts, in this order: `see`, `count_votes`, then `count` in each round but the last, `count_classes` in the last. With
known classes, `gold_excess` precedes each round's counts. `Rounds.believe` then returns the posteriors of a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, TypeVar

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
from crowdshot.model.parts import Ask, Floats, Part, Positions, PosteriorMatrix, Sizes, added
from crowdshot.model.posteriors import Counted, as_matrix
from crowdshot.model.problem import Problem, posterior_of, problem_of, total

PIECE = 30_000  # labels processed at a time, so that intermediate arrays stay in the processor's cache
LAST = "posterior"  # the key of the last round's posteriors in `Part.kept`
BY_ANNOTATOR: dict[type, tuple[str, ...]] = {  # fields of sums that have rows for each annotator
    CrowdSums: ("labels", "paired", "share", "share_squared", "named"),
    Counts: ("cells", "rows", "hits"),
}

T = TypeVar("T", CrowdSums, Counts)


class State(NamedTuple):
    step: int  # rounds completed
    sums: CrowdSums
    counts: Counts
    gold: GoldExcess
    classes: Counted  # class counts by the posteriors of the last round; empty before


class Piece(NamedTuple):
    """Some items of a part; ``annotators`` (r,) are those that have rows in its tables, None if all have."""

    problem: Problem
    pairs: slice
    annotators: Positions | None


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
            posterior = posteriors.resized(p, np.asarray(part.kept[LAST][piece.pairs]), state.classes)
            pieces.append(as_matrix(p, posterior) if self.sizes.sparse else posterior.reshape(-1, K))
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
        return self._add(part, lambda piece: crowd_sums(np, total, piece.problem))

    def count_votes(self, part: Part, crowd: Crowd) -> Counts:
        def votes(piece: Piece) -> tuple[LabelStatistics, Floats]:
            statistics = label_statistics(np, total, piece.problem, _restrict_crowd(crowd, piece.annotators))
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
            pieces.append(posterior_of(p, label_model.pool(np, total, p, statistics, score)))
            counts.append(posteriors.count(p, pieces[-1], self.power))
        part.kept[LAST] = np.concatenate(pieces)
        return added(counts)

    # ---- sums of a piece

    def _count(self, part: Part, step: int, scored: Callable[[Piece], tuple[LabelStatistics, Floats]]) -> Counts:
        """Count labels by the posteriors of the scores, and keep these posteriors under a name for each step.

        An interrupted step can be repeated, because it does not overwrite the posteriors that it starts from.
        """
        pieces: list[Floats] = []

        def counts(piece: Piece) -> Counts:
            statistics, score = scored(piece)
            pieces.append(label_model.posterior_from(np, total, piece.problem, score))
            return label_model.count(np, total, piece.problem, statistics, pieces[-1])

        out = self._add(part, counts)
        part.kept[f"posterior-{step}"] = np.concatenate([np.empty(0), *pieces])
        return out

    def _scored(self, part: Part, piece: Piece, this: Round) -> tuple[LabelStatistics, ItemScores, Round]:
        crowd = _restrict_crowd(this.crowd, piece.annotators)
        restricted = this._replace(crowd=crowd, counts=_restrict(this.counts, piece.annotators, self.sizes.annotators))
        statistics = label_statistics(np, total, piece.problem, crowd)
        posterior = np.asarray(part.kept[f"posterior-{this.step}"][piece.pairs])
        items = label_model.score_items(np, total, piece.problem, statistics, posterior, restricted)
        return statistics, items, restricted

    def _tempered(self, part: Part, piece: Piece, this: Round, gold: GoldExcess) -> tuple[LabelStatistics, Floats]:
        statistics, items, restricted = self._scored(part, piece, this)
        return statistics, label_model.temper(np, total, piece.problem, statistics, items, restricted, gold)

    def _pieces(self, part: Part) -> Iterator[Piece]:
        _, R, K = self.sizes
        done = 0
        for _, piece in part.pieces(PIECE):
            annotator, present, right, wrong = piece.annotator.astype(np.int64), None, self.right, self.wrong
            if 0 < len(annotator) < 4 * R and not self.sizes.sparse:  # else most of the time would go to empty rows
                present, annotator = np.unique(annotator, return_inverse=True)
                right, wrong = (None if earlier is None else earlier[present] for earlier in (right, wrong))
            p = problem_of(
                piece.item,
                annotator,
                piece.label.astype(np.int64),
                piece.n_items,
                R if present is None else len(present),
                K,
                known=piece.known,
                named_only=self.sizes.sparse,
                right=right,
                wrong=wrong,
                ordered=self.ordered,
            )
            yield Piece(p, slice(done, done + len(p.pair_item)), present)
            done += len(p.pair_item)

    def _add(self, part: Part, sums_of: Callable[[Piece], T]) -> T:
        """Add the sums of all pieces; tables of the whole crowd are allocated once."""
        R = self.sizes.annotators
        whole = sums_of(Piece(self._empty, slice(0, 0), None))
        for piece in self._pieces(part):
            found = sums_of(piece)
            present = piece.annotators
            if present is not None:
                rows = BY_ANNOTATOR[type(whole)]
                for name in rows:
                    getattr(whole, name).reshape(R, -1)[present] += getattr(found, name).reshape(len(present), -1)
                found = found._replace(**dict.fromkeys(rows, 0.0))  # type: ignore[arg-type]
            whole = added([whole, found])
        return whole

    @cached_property
    def _empty(self) -> Problem:
        """The crowd without its labels."""
        _, R, K = self.sizes
        none = np.empty(0, dtype=np.int64)
        return problem_of(none, none, none, 0, R, K, named_only=self.sizes.sparse, ordered=self.ordered)


def _restrict_crowd(crowd: Crowd, annotators: Positions | None) -> Crowd:
    return crowd._replace(sums=_restrict(crowd.sums, annotators, len(crowd.sums.labels)))


def _restrict(sums: T, annotators: Positions | None, R: int) -> T:
    """Keep the rows of some annotators."""
    if annotators is None:
        return sums
    rows = {name: getattr(sums, name).reshape(R, -1)[annotators].ravel() for name in BY_ANNOTATOR[type(sums)]}
    return sums._replace(**rows)
