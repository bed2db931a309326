"""Flag annotators whose labels are suspicious, using significance tests.

The tests compare an annotator's labels with the consensus, to which these labels contributed. A flag is a reason to
check an annotator. It is raised only if chance is an unlikely explanation, so annotators with few labels have none.

- **one class only**: nearly all labels are the same, far more than items of that class (binomial test).
- **swaps two classes**: each of two classes is labelled as the other more often than correctly (binomial test).
- **systematically wrong**: agrees with others less than randomly permuted labels would (permutation test).
- **spammer-like**: the upper limit of the accuracy is close to guessing, and the agreement with others is not
  distinguishable from that of permuted labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom, norm

from crowdshot.formatting import percent, spread
from crowdshot.io.cells import Positions
from crowdshot.labels import annotator_quality
from crowdshot.labels.annotations import Annotations

Floats = NDArray[np.float64]

ALPHA = 0.05  # significance level; divided by the number of annotators (and of pairs of classes) for faults
NEAR_CHANCE = 0.25  # fraction of the distance from guessing to perfect accuracy
SAME = 0.95  # fraction of labels that counts as nearly all
ONE_CLASS, SPAMMER = "one class only", "spammer-like"
FEWEST_SHARED = 10  # labels on items that others labelled too; with fewer, agreement is not tested


class Agreement(NamedTuple):
    """Mean share of the others' labels that equal the annotator's, its expectation under chance, and a p-value."""

    share: float
    by_chance: float
    p_value: float
    n_labels: int


class Flag(NamedTuple):
    name: str
    why: str

    @property
    def says_nothing(self) -> bool:
        """Return whether the labels are independent of the items, so that further labels have no value."""
        return self.name in (ONE_CLASS, SPAMMER)


class Judged(NamedTuple):
    """The evidence about one annotator with labels."""

    rows: Positions  # of the annotator's labels
    counts: Floats  # (K true, K observed) expected labels
    guessing: float  # expected accuracy of randomly permuted labels
    agreement: Agreement | None
    flag: Flag | None


def useful_questions(judged: Sequence[Judged | None]) -> NDArray[np.bool_]:
    """Return a mask (R,) of the annotators worth asking: those whose labels depend on the items, or all if none do."""
    useful = np.array([one is None or one.flag is None or not one.flag.says_nothing for one in judged], dtype=bool)
    return useful if useful.any() else np.ones_like(useful)


def judge_each(
    ann: Annotations, posterior: Floats, names: list[str], history: Floats | None = None
) -> list[Judged | None]:
    """Test every annotator; the result (R,) is None for annotators without labels. posterior (N, K)."""
    table = annotator_quality.judge(ann, posterior, history)[["accuracy", "low", "high"]].to_numpy()
    votes = ann.vote_counts()
    order = np.argsort(ann.annotator, kind="stable")
    ends = np.bincount(ann.annotator, minlength=ann.n_annotators).cumsum()
    n_annotators = int((np.diff(ends, prepend=0) > 0).sum())
    found: list[Judged | None] = []
    for row, (accuracy, low, high) in enumerate(table):
        rows = order[ends[row - 1] if row else 0 : ends[row]]
        if not len(rows):
            found.append(None)
            continue
        item, label = ann.item[rows], ann.label[rows]
        counts = np.zeros((posterior.shape[1], posterior.shape[1]))
        np.add.at(counts, label, posterior[item])
        counts = counts.T
        guessing = float(counts.sum(0) @ counts.sum(1)) / len(rows) ** 2
        agreement = agree(votes[item], label)
        flag = fault(counts, names, n_annotators) or noise(accuracy, low, high, guessing, agreement, n_annotators)
        found.append(Judged(rows, counts, guessing, agreement, flag))
    return found


def agree(votes: Floats, label: Positions) -> Agreement | None:
    """Test whether an annotator's labels (m,) agree with the others' labels on the same items.

    ``votes`` (m, K) counts all labels of these items, including the annotator's. Let a[n, k] be the share of the
    others' labels on item n that are k. The statistic is T = Σ_n a[n, label_n]. If the annotator's labels were randomly
    permuted, T would have the mean m · mean(A) and the variance Σ d² / (m - 1), with A[n, j] = a[n, label_j] and d the
    same after removing row and column means (Hoeffding 1951). The p-value is two-sided, by the normal approximation.
    Labels have only K values, so A need not be stored.
    """
    shared = votes.sum(1) > 1
    label, others = label[shared], votes[shared].copy()
    m = len(label)
    if m == 0:
        return None
    others[np.arange(m), label] -= 1
    a = others / others.sum(1, keepdims=True)
    weight = np.bincount(label, minlength=a.shape[1])
    d = a - (a @ weight / m)[:, None] - a.mean(0) + float(a.mean(0) @ weight) / m
    expected = float(a.mean(0) @ weight)
    deviation = float(a[np.arange(m), label].sum()) - expected
    variance = float((d**2 @ weight).sum()) / max(m - 1, 1)
    p_value = 2 * norm.sf(abs(deviation) / variance**0.5) if variance > 1e-12 else 1.0
    return Agreement((expected + deviation) / m, expected / m, float(p_value), m)


def fault(counts: Floats, names: list[str], n_annotators: int) -> Flag | None:
    """Return a flag for labels of one class only, or for two swapped classes."""
    n_labels, K = round(counts.sum()), len(counts)
    observed = counts.sum(0)
    top = int(observed.argmax())
    share = (counts[top].sum() + 0.5) / (n_labels + 1)
    times = round(observed[top])
    if times >= SAME * n_labels and binom.sf(times - 1, n_labels, share) < ALPHA / n_annotators:
        which = "every label is" if times == n_labels else f"{times:,} of {n_labels:,} labels are"
        return Flag(ONE_CLASS, f"{which} {names[top]}, the class of about {percent(share)} of the items")

    right = np.diag(counts)
    swapped = np.floor(counts + counts.T)
    n = np.ceil(counts + counts.T + right[:, None] + right)
    p_value = binom.sf(swapped - 1, n, 0.5)
    mostly = counts > counts.sum(1, keepdims=True) / 2
    np.fill_diagonal(mostly, False)
    p_value[~(mostly & mostly.T)] = 1.0
    i, j = divmod(int(p_value.argmin()), K)
    if p_value[i, j] < ALPHA / (n_annotators * K * (K - 1) / 2):
        how_often = f"{swapped[i, j]:.0f} of {n[i, j]:.0f} times"
        return Flag("swaps two classes", f"{names[i]} and {names[j]} labelled as each other {how_often}")
    return None


def noise(
    accuracy: float, low: float, high: float, guessing: float, agreement: Agreement | None, n_annotators: int
) -> Flag | None:
    """Return a flag for labels that are systematically wrong, or no better than guessing."""
    if agreement is None or agreement.n_labels < FEWEST_SHARED:
        return None
    right = f"accuracy {percent(accuracy)} ({spread(low, high)}), guessing has {percent(guessing)}"
    others = f"agrees with others {percent(agreement.share)} of the time, by chance {percent(agreement.by_chance)}"
    if agreement.share < agreement.by_chance and agreement.p_value < ALPHA / n_annotators:
        return Flag("systematically wrong", f"{others} (p = {agreement.p_value:.1g})")
    if agreement.p_value > ALPHA and high < guessing + NEAR_CHANCE * (1 - guessing):
        return Flag(SPAMMER, f"{right}; {others} (p = {agreement.p_value:.2f})")
    return None
