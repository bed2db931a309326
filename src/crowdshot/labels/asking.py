"""Which question to ask next: about which item, and of whom.

An item's posterior p (K,) says how probable each class is; an annotator's confusion matrix C (K true, K observed) what
they will say of each. Before asking, the answer l has the probability m_l = sum_t p_t C[t, l]; after it, the posterior is
p_t C[t, l] / m_l. An item's doubt is

    1 - sum_t p_t²

how often one is wrong who draws the label from the posterior, and an answer's gain how much doubt it is expected to take
away:

    gain = sum_l sum_t (p_t C[t, l])² / m_l - sum_t p_t²

It is never negative, and zero only where no answer would change the posterior: who guesses is never asked. (How often the
likeliest label is wrong would be the obvious doubt, but often no single answer can change which one that is, though two
could; then its gain is zero everywhere. Entropy counts doubt among many unlikely classes for more.
benchmarks/asking.py compares the three.)

Several questions are chosen one after the other, each for its gain, divided by what it costs, given those before it.
What will be answered to these is not known, so all that may be answered is kept: an item's ``cases`` (A, K) are
p(answers so far, class), a row for each way the answers can turn out, and gains are summed over them. That is exact for
answers that are independent given the class, until there are more than `MOST_CASES` ways.

Where an answer names several labels, it answers a yes/no question for each of them at once: posteriors and confusion
matrices have one more axis in front, of these questions, and gains are summed over it.

>>> import numpy as np
>>> from crowdshot import asking
>>> posterior = np.array([[0.5, 0.5], [0.9, 0.1]])  # of two items
>>> confusion = np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.5, 0.5], [0.5, 0.5]]])  # of one who knows, and one who guesses
>>> nobody = np.array([], dtype=int)
>>> [(q.item, q.annotator) for q in asking.choose(posterior, confusion, closed=(nobody, nobody), budget=1)]
[(0, 0)]
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from scipy.sparse import csr_array
from scipy.special import ndtri

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import show
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import EXPECTED, Confusions, judge, shrunk_to
from crowdshot.labels.confidence import INTERVAL, Floats, uncertainty
from crowdshot.labels.indexing import Positions
from crowdshot.model.parts import PosteriorMatrix

Gains = Callable[[Floats, Floats], Floats]
# nothing is worth asking, all had enough, are too dear, or have answered
Stop = Literal["gain", "most", "cost", "nobody"]

BENEFIT = 1.0  # standard deviations that an annotator's accuracy is taken to lie above the middle
MOST_CASES = 512
WORTH = 1e-6  # a question that gains less is not asked
MENDED = 0.85  # of the errors that independent answers would mend: people share mistakes
SAME = 1e-9  # gains that differ by less, relatively, are a tie
AT_ONCE = 2_000_000  # numbers computed together
FEW = 8  # classes that are named for an item, or about so many


class Question(NamedTuple):
    """``item`` and ``annotator`` are positions; ``gain`` is given the questions before this one."""

    item: int
    annotator: int
    gain: float


def expected_confusion(ann: Annotations, posterior: PosteriorMatrix, history: Floats | None = None) -> Any:
    """(R, K true, K observed): what annotators may be expected to answer, judged by the posterior (N, K), and by (R, 2)
    labels that were right and wrong elsewhere. `Confusions`, where the posterior is sparse.

    From the crowd to the cell: how often the crowd is right; from there, how often each annotator is; from there, what
    they say of each class. At each level the one before counts for some labels, so that nobody is thought perfect, or
    a fool, for three of them.

    Annotators are taken for a little better than they seem: an accuracy counts as `BENEFIT` standard deviations above
    its mean. Who has said little is therefore tried, which tells what they are worth.
    Without it the first to look good gets all the questions, and if that is a spammer, their own labels go on to
    confirm them.
    """
    if ann.n_classes < 2:
        raise CrowdshotError(f"labels has {show(ann.classes[0])} alone, expected two classes or more.")
    people = judge(ann, posterior, history)
    better = (people["high"] - people["accuracy"]) * (BENEFIT / ndtri((1 + INTERVAL) / 2))  # of a standard deviation
    return shrunk_to((people["accuracy"] + better).fillna(EXPECTED).clip(0, 0.99).to_numpy(), ann, posterior)


def at_once(parts: Sequence[Any]) -> Any:
    """Beliefs or confusion matrices of the questions that an answer answers, as `choose` takes them."""
    return parts[0] if len(parts) == 1 else np.stack(parts)


def fair_share(questions: float, n_annotators: int) -> int:
    """What one annotator is asked at most, unless told: a tenth, or an equal share where that is more."""
    return max(1, math.ceil(questions / 10), math.ceil(questions / n_annotators))


def gains(cases: Floats, confusion: Floats) -> Floats:
    """(A, K) posteriors, or cases that sum to less than 1, and (R, K, l) -> (A, R): the doubt that an answer takes away.

    A case's gain counts by its probability: that of c p is c times that of p. There are l different answers.
    """
    (A, K), answers = cases.shape, confusion.shape[2]
    columns = confusion.transpose(1, 0, 2).reshape(K, -1)  # [true, annotator and what they say]
    probable = cases @ columns
    squares = np.square(cases) @ np.square(columns)
    after = np.divide(squares, probable, out=np.zeros_like(squares), where=probable > 0).reshape(A, -1, answers).sum(2)
    total = cases.sum(1)
    before = np.divide(np.square(cases).sum(1), total, out=np.zeros(A), where=total > 0)
    out: Floats = np.maximum(after - before[:, None], 0)
    return out


def seen(posterior: Any, confusion: Floats | Confusions, item: int) -> tuple[Floats, Floats]:
    """(1, k) what is believed of an item, and (R, k, l) what annotators may say of it.

    Where classes are many, k of them were named for it, and any answer but these is one and the same.
    """
    if not isinstance(confusion, Confusions):
        return posterior[item, None], confusion
    named = slice(posterior.indptr[item], posterior.indptr[item + 1])
    return posterior.data[None, named], confusion.among(posterior.indices[named])


def choose(
    posterior: PosteriorMatrix,
    confusion: Floats | Confusions,
    closed: tuple[Positions, Positions],
    budget: float,
    cost: Floats | None = None,
    most: int | Positions | None = None,
    by: Gains = gains,
) -> list[Question]:
    """The questions to ask, the best first, until the budget is spent or no question is worth asking.

    ``posterior`` (N, K), ``confusion`` (R, K, K), or sparse and `Confusions`, or both with an axis in front, of what is
    answered at once. ``closed``: items and annotators, (L,) each, of the pairs that must not be asked, as they were; no
    other is asked twice. ``cost`` (R,): of an answer, else 1 each. ``most``: questions for one annotator, or (R,) for
    each of them. Of annotators whose answers are worth the same, the one with the fewest questions gets it.

    Every item waits in a queue by its best annotator's gain. A choice changes its own item alone; others can only lose
    annotators who have had enough or cost too much by now, which is noticed when their turn comes. An answer takes away
    no more than an item's doubt, so items of little doubt wait together, and most are never looked at.
    """
    parts = _parts(posterior, confusion)
    (N, K), R = parts[0][0].shape, len(parts[0][1])
    price = np.ones(R) if cost is None else np.asarray(cost, dtype=np.float64)
    limit = np.broadcast_to(N if most is None else most, R)
    _check(*parts[0], budget, price, limit)
    left, asked = float(budget), np.zeros(R, dtype=np.int64)
    taken = csr_array((np.ones(len(closed[0]), dtype=np.int8), closed), (N, R))
    cases: dict[int, list[Floats]] = {}
    asked_of: dict[int, list[int]] = {}

    def values(gain: Floats) -> Floats:
        """(..., R) gain for its price, -1 of who may not be asked."""
        shut = (price > left * (1 + SAME)) | (asked >= limit) | (gain < WORTH)
        return np.where(shut, -1.0, gain / price)

    def value_of(item: int, gain: Floats) -> Floats:
        value = values(gain)
        value[taken.indices[taken.indptr[item] : taken.indptr[item + 1]]] = -1
        value[asked_of.get(item, [])] = -1
        return value

    def gain_of(now: Sequence[Floats], views: Sequence[tuple[Floats, Floats]]) -> Floats:
        each = [by(case, answers).sum(0) for case, (_, answers) in zip(now, views, strict=True)]
        return np.asarray(np.sum(each, 0))

    of_all = np.sum([uncertainty(p) for p, _ in parts], 0) if by is gains else np.full(N, np.inf)
    at_most = of_all * (1 + SAME) / price[limit > 0].min()
    together = max(1, AT_ONCE // (R * (K if isinstance(posterior, np.ndarray) else FEW)))
    waiting = np.split(np.argsort(-at_most, kind="stable"), range(together, N, together))
    queue = [(-float(at_most[rows[0]]), -1 - place) for place, rows in enumerate(waiting)]  # (-value, item or who wait)
    heapq.heapify(queue)

    chosen: list[Question] = []
    while queue and queue[0][0] <= 0 and (values(np.full(R, np.inf)) > 0).any():
        place, item = heapq.heappop(queue)
        if item < 0:
            rows = waiting[-1 - item]
            if isinstance(confusion, Confusions):
                gain = np.concatenate([by(*seen(posterior, confusion, row)) for row in rows.tolist()])
            else:
                gain = np.sum([by(p[rows], says) for p, says in parts], 0)
            worth = np.where(taken[rows].toarray(), -1, values(gain)).max(1)
            for row in np.flatnonzero(worth > 0):
                heapq.heappush(queue, (-float(worth[row]), int(rows[row])))
            continue
        views = [seen(p, says, item) for p, says in parts]
        now = cases.get(item) or [first for first, _ in views]
        gain = gain_of(now, views)
        value = value_of(item, gain)
        best = float(value.max())
        if best < -place * (1 - SAME):  # an annotator has gone since: back into the queue
            heapq.heappush(queue, (-best, item))
            continue
        ties = np.flatnonzero(value >= best * (1 - SAME))
        annotator = int(ties[np.argmin(asked[ties])])
        chosen.append(Question(item, annotator, float(gain[annotator])))
        left -= price[annotator]
        asked[annotator] += 1
        asked_of.setdefault(item, []).append(annotator)
        cases[item] = [answered(case, answers[annotator]) for case, (_, answers) in zip(now, views, strict=True)]
        heapq.heappush(queue, (-float(value_of(item, gain_of(cases[item], views)).max()), item))
    return chosen


def _parts(posterior: Any, confusion: Any) -> list[tuple[Any, Any]]:
    """(N, K) and (R, K, K) of each question that an answer answers."""
    return [(posterior, confusion)] if posterior.ndim == 2 else list(zip(posterior, confusion, strict=True))


def why_no_more(
    n_items: int,
    closed: tuple[Positions, Positions],
    questions: Sequence[Question],
    budget: float,
    price: Floats,
    limit: Positions,
) -> Stop | None:
    """Why no more questions were chosen; None where the budget is spent. ``limit`` (R,): `choose`'s ``most``."""
    asked = np.bincount([question.annotator for question in questions], minlength=len(price))
    left = budget - float(asked @ price)
    could = limit > 0
    if left < price[could].min() * (1 - SAME):
        return None
    open_ = could & (np.bincount(closed[1], minlength=len(price)) + asked < n_items)
    had_enough, too_dear = asked >= limit, price > left * (1 + SAME)
    if (open_ & ~had_enough & ~too_dear).any():
        return "gain"
    if (open_ & had_enough).any():
        return "most"
    return "cost" if open_.any() else "nobody"


def nobody_left(
    open_: Positions, closed: tuple[Positions, Positions], questions: Sequence[Question], limit: Positions
) -> int:
    """Of the items ``open_`` (n,), how many everybody who can be asked has labelled, or will."""
    item = np.append(closed[0], [question.item for question in questions]).astype(np.int64)
    annotator = np.append(closed[1], [question.annotator for question in questions]).astype(np.int64)
    said = np.bincount(item[limit[annotator] > 0], minlength=int(max(open_.max(initial=0), item.max(initial=0))) + 1)
    return int((said[open_] >= (limit > 0).sum()).sum())


def mended(posterior: PosteriorMatrix, confusion: Floats | Confusions, questions: Sequence[Question]) -> float:
    """How many more items, or labels of items, are expected to be right, by their likeliest class, after these answers.

    ``confusion`` takes annotators for no better than they seem (`annotators.expected_confusion`).
    Answers are not as independent as Bayes' rule takes them to be: what one gets wrong, others do too. So `MENDED` of
    it is expected, as was found on two real crowds and holds on three others (benchmarks/asking_crowds.py).
    """
    total = 0.0
    for p, says in _parts(posterior, confusion):
        before: dict[int, float] = {}
        cases: dict[int, Floats] = {}
        for item, annotator, _ in questions:
            first, answers = seen(p, says, item)
            before[item] = first.max()
            cases[item] = answered(cases.get(item, first), answers[annotator])
        total += float(sum(after.max(1).sum() - before[item] for item, after in cases.items()))
    return MENDED * total


def answered(cases: Floats, confusion: Floats) -> Floats:
    """(A, K) -> (A·l, K): each case, with each answer that one more annotator, of confusion (K, l), can give.

    Where that is too many, cases with the same likeliest class become one: which of them it was is forgotten.
    """
    K = len(confusion)
    split: Floats = (cases[:, None, :] * confusion.T).reshape(-1, K)
    if len(split) > max(MOST_CASES, K):
        merged = np.zeros((K, K))
        np.add.at(merged, split.argmax(1), split)
        split = merged
    possible: Floats = split[split.sum(1) > 0]
    return possible


def _check(
    posterior: PosteriorMatrix, confusion: Floats | Confusions, budget: float, price: Floats, limit: Positions
) -> None:
    R, K = len(confusion), posterior.shape[1]
    if not isinstance(confusion, Confusions) and confusion.shape != (R, K, K):
        raise CrowdshotError(f"confusion is of shape {confusion.shape}, expected (R, {K}, {K}) to go with posterior.")
    if price.shape != (R,):
        raise CrowdshotError(f"cost is of shape {price.shape}, expected ({R},), as many as confusion has annotators.")
    if not (math.isfinite(budget) and budget > 0):
        raise CrowdshotError(f"budget is {budget:g}, expected a number above 0.")
    if not (np.isfinite(price) & (price > 0)).all():
        raise CrowdshotError(f"cost has {price.min():g} in it, expected numbers above 0.")
    if not (limit > 0).any() or (limit < 0).any():
        raise CrowdshotError(f"most is {limit.min()}, expected 1 or more for somebody.")
