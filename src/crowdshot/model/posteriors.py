"""Posteriors of items, and class sizes that are estimated from them.

Posteriors are matrices (N, K). They are dense, or sparse where an item has only the classes that somebody named for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from crowdshot.model.parts import (
    Aggregator,
    Ask,
    Floats,
    Part,
    Positions,
    PosteriorMatrix,
    Sizes,
    asked,
    each,
    ones,
    run,
)
from crowdshot.model.problem import Problem, hold_known, problem_of, total

BLOCK = 2048  # items normalised at a time, so that the block stays in the processor's cache
LEAST_TOTAL = 1e-270  # of an item's likelihoods; below, they are divided by the largest to avoid underflow


@dataclass(frozen=True)
class Votes:
    """Each class's share of the item's labels, as an `Aggregator` without steps."""

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
    """Return each class's share of the item's labels, (N, K), and 1/K where there is no label."""
    counts = sparse.csr_array((ones(len(part.label)), part.label, part.starts), shape=(part.n_items, K))
    shares: Floats = counts.toarray()
    shares /= np.maximum(part.per_item, 1)[:, None]
    shares[np.asarray(part.per_item) == 0] = 1.0 / K
    hold(part, shares, 0.0, 1.0)
    return shares


def votes_named(p: Problem) -> Floats:
    """Return the same for all pairs, (P,)."""
    shares: Floats = p.sum_at_label(total, p.weight)
    shares /= p.of_item(total(p.weight, p.item, p.n_items).clip(1))
    return shares if p.known is None else np.where(np.isnan(p.known), shares, p.known)


def hold(part: Part, values: Floats, elsewhere: float, there: float | None = None) -> None:
    """In the rows (N, K) of items whose class is known, set this class to ``there`` and the others to ``elsewhere``.

    If ``there`` is None, the known class keeps its value.
    """
    if part.known is None:
        return
    row = np.flatnonzero(np.asarray(part.known) >= 0)
    value = values[row, part.known[row]] if there is None else there
    values[row] = elsewhere
    values[row, part.known[row]] = value


def normalise(scores: Floats, log_class_probs: Floats) -> float:
    """Turn log p(labels | class), (N, K), into p(class | labels) in place, and return the log-likelihood."""
    log_likelihood = 0.0
    for start in range(0, len(scores), BLOCK):
        rows = scores[start : start + BLOCK]
        joint = rows + log_class_probs
        weight = np.exp(joint)
        total = np.einsum("nk->n", weight)
        if len(total) and total.min() < LEAST_TOTAL:
            top = joint.max(axis=1)
            log_likelihood += float(top.sum())
            np.exp(np.subtract(joint, top[:, None], out=joint), out=weight)
            total = np.einsum("nk->n", weight)
        np.divide(weight, total[:, None], out=rows)
        log_likelihood += float(np.log(total).sum())
    return log_likelihood


def as_matrix(p: Problem, posterior: Floats) -> sparse.csr_array:
    """Return the posteriors of pairs, (P,), as a sparse matrix (N, K)."""
    item, label = p.pairs()
    rows = np.append(0, np.cumsum(np.bincount(item, minlength=p.n_items)))
    return sparse.csr_array((posterior, label, rows), shape=(p.n_items, p.n_classes))


def posterior_at(posterior: PosteriorMatrix, item: Positions, label: Positions) -> Floats:
    """Return the posterior of each label's class, (L,)."""
    if isinstance(posterior, np.ndarray):
        found: Floats = posterior[item, label]
        return found
    K = posterior.shape[1]
    pairs = np.repeat(np.arange(posterior.shape[0], dtype=np.int64), np.diff(posterior.indptr)) * K + posterior.indices
    wanted = item.astype(np.int64) * K + label
    place = np.searchsorted(pairs, wanted).clip(max=max(len(pairs) - 1, 0))
    return np.where(pairs[place] == wanted, posterior.data[place], 0.0)


def likeliest(posterior: PosteriorMatrix) -> tuple[Positions, Floats]:
    """Return the most probable class of each item, the first of several, and its probability: (N,) each."""
    if isinstance(posterior, np.ndarray):
        best = posterior.argmax(axis=1)
        return best, posterior[np.arange(len(posterior)), best]
    best = np.asarray(posterior.argmax(axis=1), dtype=np.int64).ravel()
    return best, posterior_at(posterior, np.arange(len(best)), best)


def believe(aggregator: Aggregator, parts: Sequence[Part]) -> tuple[Any, PosteriorMatrix]:
    """Aggregate a crowd whose parts are in memory; return the last state and the posteriors, (N, K)."""
    state = run(aggregator, asked(parts))
    return state, joined(list(each(parts, lambda part: aggregator.believe(part, state))))


def dense(posterior: PosteriorMatrix) -> Floats:
    return posterior if isinstance(posterior, np.ndarray) else posterior.toarray()


def joined(posteriors: Sequence[PosteriorMatrix]) -> PosteriorMatrix:
    """Stack the posteriors of all parts."""
    if all(isinstance(posterior, np.ndarray) for posterior in posteriors):
        return posteriors[0] if len(posteriors) == 1 else np.concatenate(posteriors)
    return sparse.csr_array(sparse.vstack(posteriors))  # before SciPy 1.12, vstack turns arrays into a matrix


# ---- class sizes -----------------------------------------------------------------------------------------------------
#
# Posteriors from labels alone are cautious, because annotators share errors: an item that three of three annotators
# call common keeps much probability for the rare class. The mean posterior then takes one item in twenty for one in
# four. Class sizes are therefore counted with posteriors to the power `SHARPER`, and posteriors are moved from the
# sizes that they contain to these,
#
#     posterior_nk ∝ q_nk sharp_k / modest_k.
#
# For labels alone, posteriors move once, since iterating would let the frequent class take over. They move only between
# classes that somebody named for the item. So class sizes decide where annotators disagree, and never overrule a single
# or unanimous label, because annotators also give the frequent class to items of other classes.


SHARPER = 2.0
EQUAL = 8.0  # pseudo-items of each class


class Counted(NamedTuple):
    """Sums over items, (K,) each: class counts by the posteriors, and by the sharpened posteriors."""

    modest: Floats
    sharp: Floats


def class_sizes(posterior: Floats, power: float = SHARPER) -> Floats:
    """Return the share of each class, (K,), counted with sharpened posteriors (n, K) and `EQUAL` pseudo-items."""
    sharper = posterior**power
    return shares((sharper / sharper.sum(1, keepdims=True)).sum(0))


def shares(counts: Floats) -> Floats:
    out: Floats = (counts + EQUAL) / (counts + EQUAL).sum()
    return out


def count(p: Problem, posterior: Floats, power: float) -> Counted:
    """Count the classes of items that have labels or a known class, by their posterior."""
    observed = total(p.weight, p.item, p.n_items) > 0
    if p.known is not None:
        observed |= p.sum_of_item(np, total, ~np.isnan(p.known) * 1.0) > 0
    sharper = posterior**power
    sharper /= p.of_item(p.sum_of_item(np, total, sharper).clip(1e-300))
    return Counted(*(p.sum_of_class(total, values * p.of_item(observed)) for values in (posterior, sharper)))


def resized(p: Problem, posterior: Floats, counted: Counted) -> Floats:
    """Move posteriors from modest to sharp class sizes, between the classes that somebody named for the item.

    The total probability of an item's named classes does not change.
    """
    named = p.sum_at_label(total, p.weight) > 0
    moved = posterior * named * p.of_class(shares(counted.sharp) / shares(counted.modest))
    before, after = (p.sum_of_item(np, total, values) for values in (posterior * named, moved))
    moved *= p.of_item(before / after.clip(1e-300))
    out: Floats = hold_known(np, p, np.where(named, moved, posterior))
    return out


def expected_rank(probabilities: Floats) -> Floats:
    """Return the expected rank (N,) of ordered classes; the lowest class has rank 1."""
    ranks: Floats = probabilities @ np.arange(1, probabilities.shape[1] + 1)
    return ranks


def top_classes(posterior: PosteriorMatrix, most: int) -> tuple[Positions, Positions, Positions, Floats]:
    """Return item, rank (from 1), class and probability of the most probable classes of each item.

    An item has at most ``most`` rows; classes with probability 0 are left out.
    """
    if isinstance(posterior, np.ndarray):
        rows = np.arange(len(posterior))
        order = np.argsort(-posterior, axis=1, kind="stable")[:, :most]
        p = posterior[rows[:, None], order]
        item, rank = np.nonzero(p > 0)
        return item, rank + 1, order[item, rank], p[item, rank]
    item, label = posterior.nonzero()
    p = np.asarray(posterior[item, label], dtype=np.float64).ravel()
    order = np.lexsort((label, -p, item))
    item, label, p = item[order], label[order], p[order]
    first = np.searchsorted(item, item)
    rank = np.arange(1, len(item) + 1) - first
    kept = rank <= most
    return item[kept], rank[kept], label[kept], p[kept]
