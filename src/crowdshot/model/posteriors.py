"""Beliefs of a part's items, (N, K): dense, or sparse where an item has only the classes that somebody named for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from crowdshot.model.parts import Aggregator, Ask, Floats, Part, Positions, PosteriorMatrix, Sizes, asked, run
from crowdshot.model.problem import Problem, problem_of, settle, total

BLOCK = 4096  # items normalised at a time, so that the working set stays in the processor's cache


@dataclass(frozen=True)
class Votes:
    """The share of an item's labels that each class has: nothing to learn, no step to do."""

    sizes: Sizes

    def begin(self, ask: Ask) -> tuple[()]:
        return ()

    def is_done(self, state: tuple[()]) -> bool:
        return True

    def advance(self, ask: Ask, state: tuple[()]) -> tuple[()]:
        return state

    def believe(self, part: Part, state: tuple[()]) -> PosteriorMatrix:
        N, K = part.n_items, self.sizes.classes
        if not self.sizes.sparse:
            return votes(part, K)
        labels = part.item, part.annotator.astype(np.int64), part.label.astype(np.int64)
        p = problem_of(*labels, N, self.sizes.annotators, K, known=part.known, named_only=True)
        return as_matrix(p, votes_named(p))


def votes(part: Part, K: int) -> Floats:
    """(N, K): each class's part of the item's labels, so that ties share evenly; 1/K where there is no label."""
    rows = np.append(0, np.cumsum(part.per_item))
    said = sparse.csr_array((ones(len(part.label)), part.label, rows), shape=(part.n_items, K))
    shares: Floats = said.toarray()
    shares /= np.maximum(part.per_item, 1)[:, None]
    shares[np.asarray(part.per_item) == 0] = 1.0 / K
    hold(part, shares, 0.0, 1.0)
    return shares


def votes_named(p: Problem) -> Floats:
    """(P,) the same."""
    shares: Floats = total(p.weight, p.label_pair, len(p.pair_item))
    shares /= total(p.weight, p.item, p.n_items).clip(1)[p.pair_item]
    return shares if p.known is None else np.where(np.isnan(p.known), shares, p.known)


def hold(part: Part, values: Floats, elsewhere: float, there: float | None = None) -> None:
    """In rows (N, K) of items whose class is known, all classes but this have the value ``elsewhere``."""
    if part.known is None:
        return
    row = np.flatnonzero(np.asarray(part.known) >= 0)
    own = values[row, part.known[row]] if there is None else there
    values[row] = elsewhere
    values[row, part.known[row]] = own


def normalise(scores: Floats, log_class_probs: Floats) -> float:
    """(N, K) log p(labels | class) -> p(class | labels), in place; returns the log-likelihood.

    Works on (K, block) transposes, because NumPy is slow along a short last axis.
    """
    log_likelihood = 0.0
    for start in range(0, len(scores), BLOCK):
        rows = scores[start : start + BLOCK]
        block = np.add(rows.T, log_class_probs[:, None], order="C")
        top = block.max(axis=0)
        np.exp(np.subtract(block, top, out=block), out=block)
        total = block.sum(axis=0)
        rows[:] = np.divide(block, total, out=block).T
        log_likelihood += float(top.sum() + np.log(total).sum())
    return log_likelihood


def as_matrix(p: Problem, posterior: Floats) -> sparse.csr_array:
    """(P,) -> (N, K), sparse."""
    rows = np.append(0, np.cumsum(np.bincount(p.pair_item, minlength=p.n_items)))
    return sparse.csr_array((posterior, p.pair_class, rows), shape=(p.n_items, p.n_classes))


_ones: Floats = np.ones(0)


def ones(n: int) -> Floats:
    """(n,), of one array for all, which nobody writes to."""
    global _ones
    if len(_ones) < n:
        _ones = np.ones(n)
        _ones.flags.writeable = False
    return _ones[:n]


def posterior_at(posterior: PosteriorMatrix, item: Positions, label: Positions) -> Floats:
    """(L,): of the class that each label names."""
    if isinstance(posterior, np.ndarray):
        found: Floats = posterior[item, label]
        return found
    K = posterior.shape[1]
    pairs = np.repeat(np.arange(posterior.shape[0], dtype=np.int64), np.diff(posterior.indptr)) * K + posterior.indices
    wanted = item.astype(np.int64) * K + label
    place = np.searchsorted(pairs, wanted).clip(max=max(len(pairs) - 1, 0))
    return np.where(pairs[place] == wanted, posterior.data[place], 0.0)


def likeliest(posterior: PosteriorMatrix) -> tuple[Positions, Floats]:
    """(N,), (N,): the likeliest class, the first of several, and its probability."""
    if isinstance(posterior, np.ndarray):
        best = posterior.argmax(axis=1)
        return best, posterior[np.arange(len(posterior)), best]
    best = np.asarray(posterior.argmax(axis=1), dtype=np.int64).ravel()
    return best, posterior_at(posterior, np.arange(len(best)), best)


def top_classes(posterior: PosteriorMatrix, most: int) -> tuple[Positions, Positions, Positions, Floats]:
    """Return item, rank from 1, class and probability of each item's likeliest classes, without zeros."""
    item, label = posterior.nonzero()
    p = np.asarray(posterior[item, label], dtype=np.float64).ravel()
    order = np.lexsort((label, -p, item))
    item, label, p = item[order], label[order], p[order]
    first = np.searchsorted(item, item)
    rank = np.arange(1, len(item) + 1) - first
    kept = rank <= most
    return item[kept], rank[kept], label[kept], p[kept]


def expected_rank(probabilities: Floats) -> Floats:
    """Return (N,) mean ranks of classes that are ordered from the lowest, 1, to the highest."""
    ranks: Floats = probabilities @ np.arange(1, probabilities.shape[1] + 1)
    return ranks


def believe(way: Aggregator, parts: Sequence[Part]) -> tuple[Any, PosteriorMatrix]:
    """What is known in the end of a crowd whose parts are in memory, and (N, K)."""
    state = run(way, asked(parts))
    return state, joined([way.believe(part, state) for part in parts])


def dense(posterior: PosteriorMatrix) -> Floats:
    """(N, K)"""
    return posterior if isinstance(posterior, np.ndarray) else posterior.toarray()


def joined(posteriors: Sequence[PosteriorMatrix]) -> PosteriorMatrix:
    """Of all parts, one below the other."""
    if all(isinstance(posterior, np.ndarray) for posterior in posteriors):
        return posteriors[0] if len(posteriors) == 1 else np.concatenate(posteriors)
    return sparse.csr_array(sparse.vstack(posteriors))  # which makes a matrix of arrays before SciPy 1.12


# ---- class sizes ------------------------------------------------------------
#
# How many items each class has, by what is believed of them.
#
# A posterior by labels alone is modest, as people share mistakes: of an item that three of three call common it leaves a
# good part to the rare class, and the mean of such posteriors takes one item in twenty for one in four. So sizes are counted
# by posteriors to the power of `SHARPER`, and what labels say, which has the modest sizes in it, is moved to them,
#
#     posterior_nk ∝ believed_nk · sharp_k / modest_k
#
# By labels alone that is done once, as again and again it would run away with the frequent class, and between the classes
# that somebody named for the item: sizes decide where people disagree, and speak against nobody who is alone or agreed
# with, because people are also wrong in that they say the frequent class where it is not.


SHARPER = 2.0
EQUAL = 8.0  # items that each class has more, before any was seen


class Counted(NamedTuple):
    """(K,), (K,): items of each class, by posteriors as they are and by sharper ones; sums over items."""

    modest: Floats
    sharp: Floats


def class_sizes(posterior: Floats, power: float = SHARPER) -> Floats:
    """(n, K) -> (K,) the share of items that are of each class, a little of every class added."""
    sharper = posterior**power
    return shares((sharper / sharper.sum(1, keepdims=True)).sum(0))


def shares(counts: Floats) -> Floats:
    out: Floats = (counts + EQUAL) / (counts + EQUAL).sum()
    return out


def count(p: Problem, posterior: Floats, power: float) -> Counted:
    """Of items that somebody labelled, or whose class is known. ``posterior`` (P,)"""
    told = total(p.weight, p.item, p.n_items) > 0
    if p.known is not None:
        told |= total(~np.isnan(p.known), p.pair_item, p.n_items) > 0
    sharper = posterior**power
    sharper /= total(sharper, p.pair_item, p.n_items).clip(1e-300)[p.pair_item]
    counts = (total(values * told[p.pair_item], p.pair_class, p.n_classes) for values in (posterior, sharper))
    return Counted(*counts)


def resized(p: Problem, posterior: Floats, counted: Counted) -> Floats:
    """(P,) -> (P,), of classes that somebody named; what these have together stays."""
    named = total(p.weight, p.label_pair, len(posterior)) > 0
    moved = posterior * named * (shares(counted.sharp) / shares(counted.modest))[p.pair_class]
    before, after = (total(values, p.pair_item, p.n_items) for values in (posterior * named, moved))
    moved *= (before / after.clip(1e-300))[p.pair_item]
    out: Floats = settle(np, p, np.where(named, moved, posterior))
    return out
