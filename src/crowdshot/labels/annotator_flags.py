"""Which flags the evidence against an annotator supports.

All of it is judged by the consensus, in which an annotator's own labels have a part. A flag is a reason to look, so it
is raised only where chance is no good explanation; with few labels there is none.

- **one class only**: nearly all labels are the same, and far more than items of that class (binomial test).
- **swaps two classes**: of two classes each is called the other more often than not (binomial test).
- **systematically wrong**: agrees with others less than labels dealt at random would (permutation test).
- **spammer-like**: the interval of the accuracy ends near what guessing gives, and agreement with others cannot be told
  from that of labels dealt at random.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from crowdshot.formatting import percent, spread
from crowdshot.labels import annotator_quality
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.indexing import Positions

Floats = NDArray[np.float64]

ALPHA = 0.05  # divided by the number of annotators (and pairs of classes) where a flag claims a fault
NEAR_CHANCE = 0.25  # of the way from guessing to being always right
SAME = 0.95  # this part of all labels is "nearly all"
ONE_CLASS, SPAMMER = "one class only", "spammer-like"
FEWEST_SHARED = 10  # labels on items that others labelled too, below which agreement says nothing


class Agreement(NamedTuple):
    """Which part of the others' labels on the same items is the annotator's own, and what luck would give."""

    share: float
    by_chance: float
    p_value: float
    n_labels: int


class Flag(NamedTuple):
    name: str
    why: str

    @property
    def says_nothing(self) -> bool:
        """Whether labels of such a person are worth no question: they do not follow the items."""
        return self.name in (ONE_CLASS, SPAMMER)


class Judged(NamedTuple):
    """One annotator who gave labels: which, (K, K) [true, said] as believed, how often dealt labels would be right, and
    how often they agree with others."""

    rows: Positions
    counts: Floats
    guessing: float
    agreement: Agreement | None
    flag: Flag | None


def useful_questions(judged: Sequence[Judged | None]) -> NDArray[np.bool_]:
    """(R,) who is not flagged as saying nothing of the items; everybody, where that would leave nobody."""
    can = np.array([one is None or one.flag is None or not one.flag.says_nothing for one in judged], dtype=bool)
    return can if can.any() else np.ones_like(can)


def judge_each(
    ann: Annotations, posterior: Floats, names: list[str], history: Floats | None = None
) -> list[Judged | None]:
    """(R,), None for who gave no label; posterior (N, K)."""
    table, votes = (
        annotator_quality.judge(ann, posterior, history)[["accuracy", "low", "high"]].to_numpy(),
        ann.vote_counts(),
    )
    order = np.argsort(ann.annotator, kind="stable")
    ends = np.bincount(ann.annotator, minlength=ann.n_annotators).cumsum()
    n_people = int((np.diff(ends, prepend=0) > 0).sum())
    found: list[Judged | None] = []
    for person, (accuracy, low, high) in enumerate(table):
        rows = order[ends[person - 1] if person else 0 : ends[person]]
        if not len(rows):
            found.append(None)
            continue
        item, said = ann.item[rows], ann.label[rows]
        counts = np.zeros((posterior.shape[1], posterior.shape[1]))
        np.add.at(counts, said, posterior[item])
        counts = counts.T
        guessing = float(counts.sum(0) @ counts.sum(1)) / len(rows) ** 2
        agreement = agree(votes[item], said)
        flag = fault(counts, names, n_people) or noise(accuracy, low, high, guessing, agreement, n_people)
        found.append(Judged(rows, counts, guessing, agreement, flag))
    return found


def agree(votes: Floats, said: Positions) -> Agreement | None:
    """votes (m, K): all labels of the items, the annotator's own (said, (m,)) among them.

    Let a[n, k] be the part of the others' labels on item n that is k. The statistic is T = sum_n a[n, said_n]. If the
    annotator's labels were dealt to the items at random, T would have the mean m · mean(A) and the variance
    sum d² / (m - 1), with A[n, j] = a[n, said_j] and d the same less the means of its rows and columns (Hoeffding
    1951); the p-value is two-sided, by the normal approximation. Labels come in K kinds, so A need not be written out.
    """
    shared = votes.sum(1) > 1
    said, others = said[shared], votes[shared].copy()
    m = len(said)
    if m == 0:
        return None
    others[np.arange(m), said] -= 1
    a = others / others.sum(1, keepdims=True)
    weight = np.bincount(said, minlength=a.shape[1])
    d = a - (a @ weight / m)[:, None] - a.mean(0) + float(a.mean(0) @ weight) / m
    expected = float(a.mean(0) @ weight)
    deviation = float(a[np.arange(m), said].sum()) - expected
    variance = float((d**2 @ weight).sum()) / max(m - 1, 1)
    p_value = 2 * norm.sf(abs(deviation) / variance**0.5) if variance > 1e-12 else 1.0
    return Agreement((expected + deviation) / m, expected / m, float(p_value), m)


def fault(counts: Floats, names: list[str], n_people: int) -> Flag | None:
    """One class only, or two classes swapped."""
    n_labels, K = round(counts.sum()), len(counts)
    said = counts.sum(0)
    top = int(said.argmax())
    are = (counts[top].sum() + 0.5) / (n_labels + 1)
    times = round(said[top])
    if times >= SAME * n_labels and binom.sf(times - 1, n_labels, are) < ALPHA / n_people:
        what = "every label is" if times == n_labels else f"{times:,} of {n_labels:,} labels are"
        return Flag(ONE_CLASS, f"{what} {names[top]}, which is what about {percent(are)} of the items are")

    right = np.diag(counts)
    swapped = np.floor(counts + counts.T)
    n = np.ceil(counts + counts.T + right[:, None] + right)
    p_value = binom.sf(swapped - 1, n, 0.5)
    mostly = counts > counts.sum(1, keepdims=True) / 2
    np.fill_diagonal(mostly, False)
    p_value[~(mostly & mostly.T)] = 1.0
    i, j = divmod(int(p_value.argmin()), K)
    if p_value[i, j] < ALPHA / (n_people * K * (K - 1) / 2):
        how_often = f"{swapped[i, j]:.0f} of {n[i, j]:.0f} times"
        return Flag("swaps two classes", f"{names[i]} and {names[j]} called each other {how_often}")
    return None


def noise(
    accuracy: float, low: float, high: float, guessing: float, agreement: Agreement | None, n_people: int
) -> Flag | None:
    """Systematically wrong, or no better than guessing."""
    if agreement is None or agreement.n_labels < FEWEST_SHARED:
        return None
    right = f"right {percent(accuracy)} of the time ({spread(low, high)}) where guessing gives {percent(guessing)}"
    others = f"agrees with others {percent(agreement.share)} of the time, by chance {percent(agreement.by_chance)}"
    if agreement.share < agreement.by_chance and agreement.p_value < ALPHA / n_people:
        return Flag("systematically wrong", f"{others} (p = {agreement.p_value:.1g})")
    if agreement.p_value > ALPHA and high < guessing + NEAR_CHANCE * (1 - guessing):
        return Flag(SPAMMER, f"{right}; {others} (p = {agreement.p_value:.2f})")
    return None
