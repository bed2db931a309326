"""The learned inference (`crowdshot.model.label_model`) of a crowd in parts: what each part is asked, in which order."""

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
    Looked,
    Network,
    Seen,
    Surprise,
    Turn,
    describe,
    look,
    n_rounds,
    see,
)
from crowdshot.model.parts import Ask, Floats, Part, Positions, PosteriorMatrix, Sizes, added
from crowdshot.model.posteriors import Counted, as_matrix
from crowdshot.model.problem import Problem, posterior_of, problem_of, total

PIECE = 30_000  # labels that are taken at a time, so that what is computed of them stays in the processor's cache
LAST = "posterior"  # of the last round, as parts keep it
BY_ANNOTATOR: dict[type, tuple[str, ...]] = {  # of sums: what has a row for each annotator
    Seen: ("labels", "paired", "share", "share_squared", "named"),
    Counts: ("cells", "rows", "hits"),
}

T = TypeVar("T", Seen, Counts)


class State(NamedTuple):
    step: int  # rounds done
    seen: Seen
    counts: Counts
    surprise: Surprise
    classes: Counted  # by the posteriors of the last round; empty before


class Piece(NamedTuple):
    """Some items of a part; ``who`` (r,): its annotators, where its tables have rows for them alone."""

    problem: Problem
    pairs: slice
    who: Positions | None


@dataclass(frozen=True)
class Rounds:
    """``right``, ``wrong`` (R,): how often annotators were that before. ``gold``: whether any class is known.

    ``power``: of the posteriors by which class sizes are counted in the end; 1 where these are as posteriors have them.
    """

    sizes: Sizes
    network: Network
    ordered: bool = False
    right: Floats | None = None
    wrong: Floats | None = None
    gold: bool = False
    power: float = posteriors.SHARPER

    def begin(self, ask: Ask) -> State:
        seen = ask(self.see)
        return self._state(ask, 0, seen, ask(self.count_votes, self._crowd(seen)))

    def is_done(self, state: State) -> bool:
        return len(state.classes.modest) > 0

    def advance(self, ask: Ask, state: State) -> State:
        if state.step == n_rounds(self.network) - 1:
            return state._replace(classes=ask(self.count_classes, self._turn(state), state.surprise))
        return self._state(ask, state.step + 1, state.seen, ask(self.count, self._turn(state), state.surprise))

    def believe(self, part: Part, state: State) -> PosteriorMatrix:
        K = self.sizes.classes
        pieces = [sparse.csr_array((0, K)) if self.sizes.sparse else np.empty((0, K))]
        for piece in self._pieces(part):
            p = piece.problem
            posterior = posteriors.resized(p, np.asarray(part.kept[LAST][piece.pairs]), state.classes)
            pieces.append(as_matrix(p, posterior) if self.sizes.sparse else posterior.reshape(-1, K))
        return sparse.vstack(pieces, format="csr") if self.sizes.sparse else np.concatenate(pieces)

    def _state(self, ask: Ask, step: int, seen: Seen, counts: Counts) -> State:
        state = State(step, seen, counts, Surprise(np.zeros(1), np.zeros(1)), Counted(np.empty(0), np.empty(0)))
        return state._replace(surprise=ask(self.surprise, self._turn(state))) if self.gold else state

    def _crowd(self, seen: Seen) -> Crowd:
        return describe(np, total, self._nothing, seen)

    def _turn(self, state: State) -> Turn:
        crowd = self._crowd(state.seen)
        return label_model.turn_of(np, total, self._nothing, self.network, state.step, crowd, state.counts)

    # ---- asked of each part

    def see(self, part: Part) -> Seen:
        return self._add(part, lambda piece: see(np, total, piece.problem))

    def count_votes(self, part: Part, crowd: Crowd) -> Counts:
        def votes(piece: Piece) -> tuple[Looked, Floats]:
            looked = look(np, total, piece.problem, _of_crowd(crowd, piece.who))
            return looked, looked.log_vote

        return self._count(part, 0, votes)

    def count(self, part: Part, turn: Turn, surprise: Surprise) -> Counts:
        return self._count(part, turn.step + 1, lambda piece: self._scored(part, piece, turn, surprise))

    def surprise(self, part: Part, turn: Turn) -> Surprise:
        found = [Surprise(np.zeros(1), np.zeros(1))]
        for piece in self._pieces(part):
            if piece.problem.known is not None:
                weighed = self._weighed(part, piece, turn)[1]
                found.append(label_model.surprise(np, total, piece.problem, weighed))
        return added(found)

    def count_classes(self, part: Part, turn: Turn, surprise: Surprise) -> Counted:
        """By the posteriors of the last round, which are kept."""
        K = self.sizes.classes
        counts, pieces = [Counted(np.zeros(K), np.zeros(K))], [np.empty(0)]
        for piece in self._pieces(part):
            p = piece.problem
            looked, score = self._scored(part, piece, turn, surprise)
            pieces.append(posterior_of(p, label_model.pool(np, total, p, looked, score)))
            counts.append(posteriors.count(p, pieces[-1], self.power))
        part.kept[LAST] = np.concatenate(pieces)
        return added(counts)

    # ---- of each piece of it

    def _count(self, part: Part, step: int, scored: Callable[[Piece], tuple[Looked, Floats]]) -> Counts:
        """By the posteriors that follow from scores; these are kept, as who was interrupted may begin with any anew."""
        pieces: list[Floats] = []

        def counts(piece: Piece) -> Counts:
            looked, score = scored(piece)
            pieces.append(label_model.believe(np, total, piece.problem, score))
            return label_model.count(np, total, piece.problem, looked, pieces[-1])

        out = self._add(part, counts)
        part.kept[f"posterior-{step}"] = np.concatenate([np.empty(0), *pieces])
        return out

    def _weighed(self, part: Part, piece: Piece, turn: Turn) -> tuple[Looked, label_model.Weighed, Turn]:
        crowd = _of_crowd(turn.crowd, piece.who)
        own = turn._replace(crowd=crowd, counts=_of(turn.counts, piece.who, self.sizes.annotators))
        looked = look(np, total, piece.problem, crowd)
        posterior = np.asarray(part.kept[f"posterior-{turn.step}"][piece.pairs])
        return looked, label_model.weigh(np, total, piece.problem, looked, posterior, own), own

    def _scored(self, part: Part, piece: Piece, turn: Turn, surprise: Surprise) -> tuple[Looked, Floats]:
        looked, weighed, own = self._weighed(part, piece, turn)
        return looked, label_model.temper(np, total, piece.problem, looked, weighed, own, surprise)

    def _pieces(self, part: Part) -> Iterator[Piece]:
        _, R, K = self.sizes
        done = 0
        for _, piece in part.pieces(PIECE):
            annotator, who, right, wrong = piece.annotator.astype(np.int64), None, self.right, self.wrong
            if 0 < len(annotator) < 4 * R and not self.sizes.sparse:  # else tables would be most of the work
                who, annotator = np.unique(annotator, return_inverse=True)
                right, wrong = (None if before is None else before[who] for before in (right, wrong))
            p = problem_of(
                piece.item,
                annotator,
                piece.label.astype(np.int64),
                piece.n_items,
                R if who is None else len(who),
                K,
                known=piece.known,
                named_only=self.sizes.sparse,
                right=right,
                wrong=wrong,
                ordered=self.ordered,
            )
            yield Piece(p, slice(done, done + len(p.pair_item)), who)
            done += len(p.pair_item)

    def _add(self, part: Part, sums_of: Callable[[Piece], T]) -> T:
        """Over the pieces; a table of the whole crowd is made but once."""
        R = self.sizes.annotators
        whole = sums_of(Piece(self._nothing, slice(0, 0), None))
        for piece in self._pieces(part):
            found = sums_of(piece)
            if piece.who is not None:
                rows = BY_ANNOTATOR[type(whole)]
                for name in rows:
                    getattr(whole, name).reshape(R, -1)[piece.who] += getattr(found, name).reshape(len(piece.who), -1)
                found = found._replace(**dict.fromkeys(rows, 0.0))  # type: ignore[arg-type]
            whole = added([whole, found])
        return whole

    @cached_property
    def _nothing(self) -> Problem:
        """The crowd without its labels."""
        _, R, K = self.sizes
        none = np.empty(0, dtype=np.int64)
        return problem_of(none, none, none, 0, R, K, named_only=self.sizes.sparse, ordered=self.ordered)


def _of_crowd(crowd: Crowd, who: Positions | None) -> Crowd:
    return crowd._replace(seen=_of(crowd.seen, who, len(crowd.seen.labels)))


def _of(sums: T, who: Positions | None, R: int) -> T:
    """The same with rows for these annotators alone."""
    if who is None:
        return sums
    return sums._replace(**{name: getattr(sums, name).reshape(R, -1)[who].ravel() for name in BY_ANNOTATOR[type(sums)]})
