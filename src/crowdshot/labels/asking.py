"""Choose the most informative questions: which item to ask about next, and whom.

An item has the posterior p (K,), an annotator the confusion matrix C (K true, K observed). The answer l has the
probability m_l = Σ_t p_t C[t, l], and the posterior after it is p_t C[t, l] / m_l. The uncertainty of an item is its
Gini impurity, the error rate of a label that is drawn from the posterior:

    1 - Σ_t p_t²

The gain of a question is the expected reduction of this uncertainty:

    gain = Σ_l Σ_t (p_t C[t, l])² / m_l - Σ_t p_t²

The gain is never negative. It is zero only if no answer would change the posterior, so annotators who guess are never
asked. The error rate of the likeliest label would be another measure of uncertainty, but often no single answer can
change which label is likeliest, although two answers could; then all gains are zero. Entropy weights uncertainty among
many unlikely classes more. benchmarks/asking.py compares the three.

Questions are chosen greedily by gain per cost, taking earlier questions into account. Their answers are unknown, so all
possible answers are kept: the ``cases`` (A, K) of an item are p(answers so far, class), a row for each combination of
answers. Gains are sums over cases. That is exact if answers are independent given the class, up to `MOST_CASES`
combinations.

An answer that names several labels answers one yes/no question per label. Posteriors and confusion matrices then have
an additional first axis for these questions, and gains are sums over it.

Examples
--------
>>> import numpy as np
>>> from crowdshot import asking
>>> posterior = np.array([[0.5, 0.5], [0.9, 0.1]])  # of two items
>>> confusion = np.array([[[0.9, 0.1], [0.1, 0.9]], [[0.5, 0.5], [0.5, 0.5]]])  # a good annotator, and a guesser
>>> closed = np.array([], dtype=int), np.array([], dtype=int)
>>> [(q.item, q.annotator) for q in asking.choose(posterior, confusion, closed, budget=1)]
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
from crowdshot.io.cells import Positions
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import EXPECTED, Confusions, judge, shrunk_to
from crowdshot.labels.consensus import INTERVAL, Floats, uncertainty
from crowdshot.model.parts import PosteriorMatrix

Gains = Callable[[Floats, Floats], Floats]
# Why no more questions are asked: no gain, annotators have their maximum, cost too much, or have answered everything.
Stop = Literal["gain", "most", "cost", "nobody"]

BENEFIT = 0.5  # standard deviations added to an annotator's accuracy when questions are chosen
MOST_CASES = 512
WORTH = 1e-6  # smallest gain for which a question is asked
MENDED = 0.85  # fraction of the predicted error reduction that is expected, as annotators share mistakes
SAME = 1e-9  # relative difference up to which gains are equal
AT_ONCE = 2_000_000  # numbers computed together
FEW = 8  # typical number of classes that are named for an item if there are very many classes


class Question(NamedTuple):
    """A question: positions of item and annotator, and the gain given the questions chosen before it."""

    item: int
    annotator: int
    gain: float


def expected_confusion(ann: Annotations, posterior: PosteriorMatrix, history: Floats | None = None) -> Any:
    """Return the confusion matrices (R, K true, K observed) that are expected of annotators' answers.

    Estimates are hierarchical: the crowd's accuracy, each annotator's accuracy, and their confusion matrix. Each level
    is shrunk towards the one above, so that a few labels make nobody perfect or useless.

    Accuracies are raised by `BENEFIT` standard deviations (optimism under uncertainty), so that annotators with few
    labels are tried. Otherwise the first annotator who seems good would get all questions; a spammer's own labels would
    then confirm them. `first_limits` bounds the risk that annotators with few labels are worse than they seem.

    Parameters
    ----------
    ann : Annotations
    posterior : array of shape (N, K)
    history : array of shape (R, 2), optional
        Numbers of right and wrong labels in earlier projects.

    Returns
    -------
    array or Confusions
        `Confusions` if the posterior is sparse.
    """
    if ann.n_classes < 2:
        raise CrowdshotError(
            f"has only the class {show(ann.classes[0])}", argument="labels", expected="two classes or more"
        )
    table = judge(ann, posterior, history)
    optimism = (table["high"] - table["accuracy"]) * (BENEFIT / ndtri((1 + INTERVAL) / 2))  # BENEFIT deviations
    return shrunk_to((table["accuracy"] + optimism).fillna(EXPECTED).clip(0, 0.99).to_numpy(), ann, posterior)


def at_once(parts: Sequence[Any]) -> Any:
    """Stack the posteriors or confusion matrices of several yes/no questions, as `choose` takes them."""
    return parts[0] if len(parts) == 1 else np.stack(parts)


def fair_share(questions: float, n_annotators: int) -> int:
    """Return the default maximum of questions for one annotator: a tenth, or an equal share if that is more."""
    return max(1, math.ceil(questions / 10), math.ceil(questions / n_annotators))


def first_limits(n_labels: Positions, most: int | Positions) -> Positions:
    """Return how many questions annotators (R,) may have as long as others can be asked instead.

    Annotators with few known labels may turn out to be poor, so nobody gets more questions than known labels plus one.
    """
    limits: Positions = np.minimum(most, np.asarray(n_labels, dtype=np.int64) + 1)
    return limits


def gains(cases: Floats, confusion: Floats) -> Floats:
    """Return the expected reduction of uncertainty (A, R) by one answer of each annotator.

    Parameters
    ----------
    cases : array of shape (A, K)
        Posteriors, or cases that sum to less than 1. The gain of c·p is c times the gain of p.
    confusion : array of shape (R, K, l)
        Confusion matrices with l different answers.
    """
    (A, K), answers = cases.shape, confusion.shape[2]
    columns = confusion.transpose(1, 0, 2).reshape(K, -1)  # [true, annotator and answer]
    probable = cases @ columns
    squares = np.square(cases) @ np.square(columns)
    after = np.divide(squares, probable, out=np.zeros_like(squares), where=probable > 0).reshape(A, -1, answers).sum(2)
    total = cases.sum(1)
    before = np.divide(np.square(cases).sum(1), total, out=np.zeros(A), where=total > 0)
    out: Floats = np.maximum(after - before[:, None], 0)
    return out


def seen(posterior: Any, confusion: Floats | Confusions, item: int) -> tuple[Floats, Floats]:
    """Return an item's posterior (1, k) and the annotators' confusion matrices (R, k, l) for its classes.

    With very many classes, these are the k classes named for the item, and one answer represents all other classes.
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
    first: Positions | None = None,
) -> list[Question]:
    """Choose questions greedily, the best first, until the budget is spent or no question has a gain.

    Parameters
    ----------
    posterior : array of shape (N, K)
        Class probabilities. Several yes/no questions have an additional first axis.
    confusion : array of shape (R, K, K) or Confusions
        Expected answers, from `expected_confusion`; `Confusions` with a sparse posterior.
    closed : pair of arrays of shape (L,)
        Items and annotators of pairs that must not be asked, such as those with a label. No pair is asked twice.
    budget : float
        Largest sum of costs.
    cost : array of shape (R,), optional
        Cost of each annotator's answers, 1 by default.
    most : int or array of shape (R,), optional
        Largest number of questions for each annotator.
    by : callable
        The gain, `gains` by default.
    first : array of shape (R,), optional
        Smaller limits, such as those of `first_limits`. ``most`` replaces them if the budget cannot be spent otherwise;
        these questions come last.

    Returns
    -------
    list of Question
        Of annotators with equal gains, the one with the fewest questions is asked.
    """
    parts = _parts(posterior, confusion)
    (N, _), R = parts[0][0].shape, len(parts[0][1])
    price = np.ones(R) if cost is None else np.asarray(cost, dtype=np.float64)
    limit = np.broadcast_to(N if most is None else most, R)
    _check(*parts[0], budget, price, limit)
    chooser = _Chooser(posterior, confusion, closed, float(budget), price, limit, by)
    if first is None:
        return chooser.run()
    chooser.limit = np.minimum(first, limit)
    return chooser.run() + chooser.run_again(limit)


class _Chooser:
    """The state of `choose`.

    Each item waits in a queue with the value of its best question. A choice changes only its own item; the values of
    other items can only fall, when annotators reach their limit or become too expensive. That is noticed when their
    turn comes. The value is at most uncertainty per cost, so items start in batches of similar uncertainty, and the
    gains of most items are never computed.
    """

    def __init__(
        self,
        posterior: PosteriorMatrix,
        confusion: Floats | Confusions,
        closed: tuple[Positions, Positions],
        budget: float,
        price: Floats,
        limit: Positions,
        by: Gains,
    ) -> None:
        self.posterior, self.confusion, self.by = posterior, confusion, by
        self.parts = _parts(posterior, confusion)
        (N, K), R = self.parts[0][0].shape, len(price)
        self.left, self.price, self.limit = budget, price, limit
        self.asked = np.zeros(R, dtype=np.int64)
        self.closed = csr_array((np.ones(len(closed[0]), dtype=np.int8), closed), (N, R))
        self.cases: dict[int, list[Floats]] = {}
        self.asked_about: dict[int, list[int]] = {}  # annotators by item
        bound = np.sum([uncertainty(p) for p, _ in self.parts], 0) if by is gains else np.full(N, np.inf)
        bound = bound * (1 + SAME) / price[limit > 0].min()
        size = max(1, AT_ONCE // (R * (K if isinstance(posterior, np.ndarray) else FEW)))
        self.batches = np.split(np.argsort(-bound, kind="stable"), range(size, N, size))
        # (-value, item), or (-bound, -1 - batch) for a batch of items
        self.queue = [(-float(bound[rows[0]]), -1 - batch) for batch, rows in enumerate(self.batches)]
        heapq.heapify(self.queue)

    def run(self) -> list[Question]:
        chosen: list[Question] = []
        anybody = np.full(len(self.price), np.inf)
        while self.queue and self.queue[0][0] <= 0 and (self._values(anybody) > 0).any():
            value, item = heapq.heappop(self.queue)
            if item < 0:
                self._open(self.batches[-1 - item])
            elif (question := self._ask(item, -value)) is not None:
                chosen.append(question)
        return chosen

    def run_again(self, limit: Positions) -> list[Question]:
        """Choose more questions with higher limits."""
        self.limit = limit
        self.queue = [(-math.inf, item) for item in self.cases]
        self.queue += [(-math.inf, -1 - batch) for batch in range(len(self.batches))]
        heapq.heapify(self.queue)
        return self.run()

    def _values(self, gain: Floats) -> Floats:
        """Return gains (..., R) per cost, -1 for annotators who cannot be asked."""
        excluded = (self.price > self.left * (1 + SAME)) | (self.asked >= self.limit) | (gain < WORTH)
        return np.where(excluded, -1.0, gain / self.price)

    def _values_of(self, item: int, gain: Floats) -> Floats:
        value = self._values(gain)
        value[self.closed.indices[self.closed.indptr[item] : self.closed.indptr[item + 1]]] = -1
        value[self.asked_about.get(item, [])] = -1
        return value

    def _gain_of(self, cases: Sequence[Floats], views: Sequence[tuple[Floats, Floats]]) -> Floats:
        each = [self.by(case, answers).sum(0) for case, (_, answers) in zip(cases, views, strict=True)]
        return np.asarray(np.sum(each, 0))

    def _open(self, rows: Positions) -> None:
        """Replace a batch by its items in the queue."""
        if isinstance(self.confusion, Confusions):
            gain = np.concatenate([self.by(*seen(self.posterior, self.confusion, row)) for row in rows.tolist()])
        else:
            gain = np.sum([self.by(p[rows], answers) for p, answers in self.parts], 0)
        value = np.where(self.closed[rows].toarray(), -1, self._values(gain)).max(1)
        for row in np.flatnonzero(value > 0):
            if int(rows[row]) not in self.cases:  # items that were asked about are in the queue themselves
                heapq.heappush(self.queue, (-float(value[row]), int(rows[row])))

    def _ask(self, item: int, expected: float) -> Question | None:
        """Choose the item's best question, unless its value has fallen below the ``expected`` one."""
        views = [seen(p, answers, item) for p, answers in self.parts]
        cases = self.cases.get(item) or [first for first, _ in views]
        gain = self._gain_of(cases, views)
        value = self._values_of(item, gain)
        best = float(value.max())
        if best < expected * (1 - SAME):  # an annotator has become unavailable since
            heapq.heappush(self.queue, (-best, item))
            return None
        ties = np.flatnonzero(value >= best * (1 - SAME))
        annotator = int(ties[np.argmin(self.asked[ties])])
        self.left -= self.price[annotator]
        self.asked[annotator] += 1
        self.asked_about.setdefault(item, []).append(annotator)
        cases = [answered(case, answers[annotator]) for case, (_, answers) in zip(cases, views, strict=True)]
        self.cases[item] = cases
        heapq.heappush(self.queue, (-float(self._values_of(item, self._gain_of(cases, views)).max()), item))
        return Question(item, annotator, float(gain[annotator]))


def _parts(posterior: Any, confusion: Any) -> list[tuple[Any, Any]]:
    """Return the posterior (N, K) and confusion matrices (R, K, K) of each yes/no question."""
    return [(posterior, confusion)] if posterior.ndim == 2 else list(zip(posterior, confusion, strict=True))


def why_no_more(
    n_items: int,
    closed: tuple[Positions, Positions],
    questions: Sequence[Question],
    budget: float,
    price: Floats,
    limit: Positions,
) -> Stop | None:
    """Return why `choose` chose no more questions, or None if the budget is spent.

    Parameters
    ----------
    n_items : int
    closed, budget
        As in `choose`.
    questions : sequence of Question
        The chosen questions.
    price, limit : arrays of shape (R,)
        ``cost`` and ``most`` of `choose`.
    """
    asked = np.bincount([question.annotator for question in questions], minlength=len(price))
    left = budget - float(asked @ price)
    available = limit > 0
    if left < price[available].min() * (1 - SAME):
        return None
    open_ = available & (np.bincount(closed[1], minlength=len(price)) + asked < n_items)
    full, too_expensive = asked >= limit, price > left * (1 + SAME)
    if (open_ & ~full & ~too_expensive).any():
        return "gain"
    if (open_ & full).any():
        return "most"
    return "cost" if open_.any() else "nobody"


def nobody_left(
    open_: Positions, closed: tuple[Positions, Positions], questions: Sequence[Question], limit: Positions
) -> int:
    """Return how many of the items ``open_`` (n,) every available annotator has labelled or is asked about."""
    item = np.append(closed[0], [question.item for question in questions]).astype(np.int64)
    annotator = np.append(closed[1], [question.annotator for question in questions]).astype(np.int64)
    n_labels = np.bincount(
        item[limit[annotator] > 0], minlength=int(max(open_.max(initial=0), item.max(initial=0))) + 1
    )
    return int((n_labels[open_] >= (limit > 0).sum()).sum())


def mended(posterior: PosteriorMatrix, confusion: Floats | Confusions, questions: Sequence[Question]) -> float:
    """Return the expected number of errors that the answers correct: items, or labels of items.

    Annotators share mistakes, so answers are less independent than Bayes' rule assumes. The prediction is multiplied by
    `MENDED`, which was tuned on two real crowds and holds on three others (benchmarks/asking_crowds.py).

    Parameters
    ----------
    posterior, confusion
        As in `choose`, but with confusion matrices without optimism (`annotator_quality.expected_confusion`).
    questions : sequence of Question
    """
    total = 0.0
    for p, matrices in _parts(posterior, confusion):
        before: dict[int, float] = {}
        cases: dict[int, Floats] = {}
        for item, annotator, _ in questions:
            first, answers = seen(p, matrices, item)
            before[item] = first.max()
            cases[item] = answered(cases.get(item, first), answers[annotator])
        total += float(sum(after.max(1).sum() - before[item] for item, after in cases.items()))
    return MENDED * total


def answered(cases: Floats, confusion: Floats) -> Floats:
    """Split cases (A, K) by the l answers of an annotator with the confusion matrix (K, l), into (A·l, K).

    If these are more than `MOST_CASES`, cases with the same likeliest class are merged.
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
        raise CrowdshotError(
            f"has shape {confusion.shape}",
            argument="confusion",
            found=confusion.shape,
            expected=f"(R, {K}, {K}) to match posterior",
        )
    if price.shape != (R,):
        raise CrowdshotError(
            f"has shape {price.shape}",
            argument="cost",
            found=price.shape,
            expected=f"({R},), one number for each annotator in confusion",
        )
    if not (math.isfinite(budget) and budget > 0):
        raise CrowdshotError(f"is {budget:g}", argument="budget", found=budget, expected="a number above 0")
    if not (np.isfinite(price) & (price > 0)).all():
        raise CrowdshotError(
            f"contains {price.min():g}", argument="cost", found=float(price.min()), expected="numbers above 0"
        )
    if not (limit > 0).any() or (limit < 0).any():
        raise CrowdshotError(
            f"is {limit.min()}",
            argument="most",
            found=int(limit.min()),
            expected="1 or more for at least one annotator",
        )
