"""Which question to ask next: of which item, and of whom.

An item's belief p (K,) says how probable each class is; an annotator's confusion matrix C (K true, K observed) what
they will say of each. Before asking, the answer l has the probability m_l = sum_t p_t C[t, l]; after it, the belief is
p_t C[t, l] / m_l. An item's doubt is

    1 - sum_t p_t²

how often one is wrong who draws the label from the belief, and an answer's gain how much doubt it is expected to take
away:

    gain = sum_l sum_t (p_t C[t, l])² / m_l - sum_t p_t²

It is never negative, and zero only where no answer would change the belief: who guesses is never asked. (How often the
likeliest label is wrong would be the obvious doubt, but often no single answer can change which one that is, though two
could: then its gain is zero everywhere. Entropy gives nearly the same questions, yet counts doubt among many unlikely
classes for more. benchmarks/asking.py compares the three.)

Several questions are chosen one after the other, each for its gain, divided by what it costs, given those before it.
What will be answered to these is not known, so all that may be answered is kept: an item's ``cases`` (A, K) are
p(answers so far, class), a row for each way the answers can turn out, and gains are summed over them. That is exact for
answers that are independent given the class, until there are more than `MOST_CASES` ways.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.annotations import Annotations
from crowdshot.errors import CrowdshotError

Floats = NDArray[np.float64]
Gains = Callable[[Floats, Floats], Floats]

EXPECTED = 0.7  # how often people are right, before anything is known of them
WEIGHT = 5.0  # labels that a belief formed beforehand counts for, at each of the three levels of `confusion_of`
MOST_CASES = 512
WORTH = 1e-6  # a question that gains less is not asked
SAME = 1e-9  # gains that differ by less, relatively, are a tie
AT_ONCE = 2_000_000  # numbers computed together


class Question(NamedTuple):
    """``item`` and ``annotator`` are positions; ``gain`` is given the questions before this one."""

    item: int
    annotator: int
    gain: float


def confusion_of(ann: Annotations, belief: Floats, newcomers: int = 0) -> Floats:
    """(R + newcomers, K true, K observed): what annotators are expected to answer, judged by the belief (N, K).

    From the crowd to the cell: how often the crowd is right; from there, how often each annotator is; from there, what
    they say of each class. At each level the one before counts for `WEIGHT` labels, so that nobody is thought perfect,
    or a fool, for three labels, and somebody new is like the crowd.
    """
    K, R = ann.n_classes, ann.n_annotators + newcomers
    if K < 2:
        raise CrowdshotError(f"labels: all are {ann.classes[0]!r}, expected two classes or more.")
    said = np.zeros((R * K, K))  # [annotator and what they said, true]
    np.add.at(said, ann.annotator * K + ann.label, belief[ann.item])
    counts = said.reshape(R, K, K).transpose(0, 2, 1)
    hits, labels = counts.diagonal(axis1=1, axis2=2).sum(1), counts.sum((1, 2))
    crowd = (hits.sum() + WEIGHT * EXPECTED) / (labels.sum() + WEIGHT)
    right = ((hits + WEIGHT * crowd) / (labels + WEIGHT))[:, None, None]
    expected = np.where(np.eye(K, dtype=bool), right, (1 - right) / (K - 1))
    confusion: Floats = counts + WEIGHT * expected
    confusion /= confusion.sum(2, keepdims=True)
    return confusion


def doubt(belief: Floats) -> Floats:
    """(..., K) -> (...): how often one is wrong who draws the label from the belief."""
    out: Floats = 1 - np.square(belief).sum(-1)
    return out


def gains(cases: Floats, confusion: Floats) -> Floats:
    """(A, K) beliefs, or cases that sum to less than 1, and (R, K, K) -> (A, R): the doubt that an answer takes away.

    A case's gain counts by its probability: that of c p is c times that of p.
    """
    A, K = cases.shape
    columns = confusion.transpose(1, 0, 2).reshape(K, -1)  # [true, annotator and what they say]
    probable = cases @ columns
    squares = np.square(cases) @ np.square(columns)
    after = np.divide(squares, probable, out=np.zeros_like(squares), where=probable > 0).reshape(A, -1, K).sum(2)
    total = cases.sum(1)
    before = np.divide(np.square(cases).sum(1), total, out=np.zeros(A), where=total > 0)
    out: Floats = np.maximum(after - before[:, None], 0)
    return out


def choose(
    belief: Floats,
    confusion: Floats,
    taken: NDArray[np.bool_],
    budget: float,
    cost: Floats | None = None,
    most: int | None = None,
    labelled: NDArray[np.int64] | None = None,
    by: Gains = gains,
) -> list[Question]:
    """The questions to ask, the best first, until the budget is spent or no question is worth asking.

    ``belief`` (N, K), ``confusion`` (R, K, K). ``taken`` (N, R): pairs that must not be asked. ``cost`` (R,): of an
    answer, else 1 each. ``most``: questions for one annotator. No pair is asked twice. Of annotators whose answers are
    worth the same, the one with the fewest labels (``labelled``, (R,)) and questions gets the question.

    Every item waits in a queue by its best annotator's gain. A choice changes its own item alone; others can only lose
    annotators who have had enough or cost too much by now, which is noticed when their turn comes.
    """
    N, R = taken.shape
    price = np.ones(R) if cost is None else np.asarray(cost, dtype=np.float64)
    _check(belief, confusion, taken, budget, price, most)
    left, load = float(budget), np.zeros(R, dtype=np.int64) if labelled is None else labelled.copy()
    asked = np.zeros(R, dtype=np.int64)
    taken, cases = taken.copy(), dict[int, Floats]()
    everyone = np.arange(R)

    def open_to() -> NDArray[np.bool_]:
        return (price <= left * (1 + SAME)) & (asked < (N if most is None else most))

    queue = _first_places(belief, confusion, taken | ~open_to(), price, by)
    chosen: list[Question] = []
    while queue:
        place, item = heapq.heappop(queue)
        gain = by(cases.get(item, belief[item, None]), confusion).sum(0)
        value = np.where(taken[item] | ~open_to() | (gain < WORTH), -1.0, gain / price)
        best = float(value.max())
        if best < 0:
            continue
        if best < -place * (1 - SAME):
            heapq.heappush(queue, (-best, item))
            continue
        ties = everyone[value >= best * (1 - SAME)]
        annotator = int(ties[np.argmin(load[ties])])
        chosen.append(Question(item, annotator, float(gain[annotator])))
        left -= price[annotator]
        load[annotator] += 1
        asked[annotator] += 1
        taken[item, annotator] = True
        cases[item] = _after(cases.get(item, belief[item, None]), confusion[annotator])
        heapq.heappush(queue, (-math.inf, item))  # to be looked at again at once
    return chosen


def _first_places(
    belief: Floats, confusion: Floats, closed: NDArray[np.bool_], price: Floats, by: Gains
) -> list[tuple[float, int]]:
    """(-best gain for its price, item) of every item with a question worth asking, as a heap."""
    N, R = closed.shape
    best = np.empty(N)
    step = max(1, AT_ONCE // (R * belief.shape[1]))
    for start in range(0, N, step):
        part = slice(start, start + step)
        gain = by(belief[part], confusion)
        best[part] = np.where(closed[part] | (gain < WORTH), -1.0, gain / price).max(1)
    items = np.flatnonzero(best >= 0)
    queue = list(zip((-best[items]).tolist(), items.tolist(), strict=True))
    heapq.heapify(queue)
    return queue


def _after(cases: Floats, confusion: Floats) -> Floats:
    """(A, K) -> (A·K, K): each case, with each answer that one more annotator, of confusion (K, K), can give.

    Where that is too many, cases with the same likeliest class become one. They tell less so, never more.
    """
    K = len(confusion)
    split: Floats = (cases[:, None, :] * confusion.T).reshape(-1, K)
    if len(split) > max(MOST_CASES, K):
        merged = np.zeros((K, K))
        np.add.at(merged, split.argmax(1), split)
        split = merged
    return split[split.sum(1) > 0]


def _check(
    belief: Floats, confusion: Floats, taken: NDArray[np.bool_], budget: float, price: Floats, most: int | None
) -> None:
    N, K = belief.shape
    R = len(confusion)
    if confusion.shape != (R, K, K) or taken.shape != (N, R) or price.shape != (R,):
        raise CrowdshotError(
            f"belief {belief.shape}, confusion {confusion.shape}, taken {taken.shape} and cost {price.shape} do not go"
            " together, expected (N, K), (R, K, K), (N, R) and (R,)."
        )
    if not (math.isfinite(budget) and budget > 0):
        raise CrowdshotError(f"budget is {budget:g}, expected a number above 0.")
    if not (np.isfinite(price) & (price > 0)).all():
        raise CrowdshotError(f"cost has {price.min():g} in it, expected numbers above 0.")
    if most is not None and most < 1:
        raise CrowdshotError(f"most is {most}, expected 1 or more.")
