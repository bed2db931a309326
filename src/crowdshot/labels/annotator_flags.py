"""Flag annotators whose labels are suspicious, using significance tests.

A flag is a reason to check an annotator. It is raised only if chance is an unlikely explanation, so annotators with few
labels have none.

Two tests ask whether the labels depend on the items. They compare an annotator's labels with q (m, K), the class
probabilities of the items by the labels of the others: q[n, t] ∝ π[t] (Π C[t, label])^√w, a product over the other
labels of the item with their annotators' confusion matrices C and class probabilities π. Items with known truth have
q = 1 for it. The power √w tempers the product, because annotators share mistakes: w is the slope of the log-posterior
on the log of the whole product.

- **Better than guessing?** T = Σ_n q[n, label_n] is compared with randomly permuted labels, which covers annotators who
  always choose the same class. A small p-value means that the labels depend on the items.
- **Useful?** The null hypothesis is that a share `USEFUL` of the labels is drawn from q and the others are drawn
  from the annotator's own distribution b of labels: p(label k) = USEFUL q[n, k] + (1 - USEFUL) b[k]. A score test
  compares it with smaller shares. A small p-value means that the annotator is worse than that. With two equal classes,
  0.5 means an accuracy of 0.75.

The same model estimates the share of informed labels: its posterior mean under a uniform prior.

Flags:

- **spammer-like**: not useful (the false discovery rate over annotators is `ALPHA`, Benjamini and Hochberg 1995), and
  less than `NEAR_CHANCE` of the labels are informed.
- **one class only**: not useful by the same test, and nearly all labels are the same.
- **swaps two classes**: each of two classes is labelled as the other more often than correctly (binomial test).
- **systematically wrong**: agrees with others less than randomly permuted labels would (permutation test).

benchmarks/clickers.py measures how often annotators who guess, and others, are flagged.
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

ALPHA = 0.05  # significance level, and false discovery rate; swaps and wrong labels are tested with Bonferroni
USEFUL, NEAR_CHANCE = 0.5, 0.15  # shares of informed labels; chosen on real crowds (benchmarks/clickers.py)
SHARES = np.linspace(0, 1, 41)  # of informed labels
FEW, DRAWS = 30, 2_000  # with fewer labels, permutations are drawn
LEAST = 1e-6  # lower limit of probabilities
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


class Evidence(NamedTuple):
    """The evidence about an annotator's labels (see the module), and how many labels were tested.

    The p-value ``guessing`` is small if the labels are better than guesses, ``useless`` if they are worse than useful.
    """

    guessing: float
    useless: float
    informed: float
    n_labels: int


class Judged(NamedTuple):
    """The labels, expected counts and test results of one annotator."""

    rows: Positions  # of the annotator's labels
    counts: Floats  # (K true, K observed) expected labels
    guessing: float  # expected accuracy of randomly permuted labels
    agreement: Agreement | None
    evidence: Evidence | None  # None with few labels on items that others labelled too
    flag: Flag | None


def useful_questions(judged: Sequence[Judged | None]) -> NDArray[np.bool_]:
    """Return a mask (R,) of the annotators worth asking: those whose labels depend on the items, or all if none do."""
    useful = np.array([one is None or one.flag is None or not one.flag.says_nothing for one in judged], dtype=bool)
    return useful if useful.any() else np.ones_like(useful)


def judge_each(
    ann: Annotations, posterior: Floats, names: list[str], history: Floats | None = None
) -> list[Judged | None]:
    """Test every annotator; the result (R,) is None for annotators without labels. posterior (N, K)."""
    order = np.argsort(ann.annotator, kind="stable")
    ends = np.bincount(ann.annotator, minlength=ann.n_annotators).cumsum()
    each = [order[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    n_annotators = sum(len(rows) > 0 for rows in each)
    votes, others = ann.vote_counts(), OtherLabels(ann, posterior, history)
    evidence = [
        evidence_of(others.of(rows), ann.label[rows]) if len(rows) else None for rows in map(others.shared, each)
    ]
    useless = false_discovery([one.useless if one else None for one in evidence])
    accuracy = annotator_quality.judge(ann, posterior, history)[["accuracy", "low", "high"]].to_numpy()
    found: list[Judged | None] = []
    for annotator, rows in enumerate(each):
        if not len(rows):
            found.append(None)
            continue
        item, label = ann.item[rows], ann.label[rows]
        counts = np.zeros((posterior.shape[1], posterior.shape[1]))
        np.add.at(counts, label, posterior[item])
        counts = counts.T
        guessing = float(counts.sum(0) @ counts.sum(1)) / len(rows) ** 2
        agreement, tested = agree(votes[item], label), evidence[annotator]
        flag = swaps(counts, names, n_annotators) or wrong(agreement, n_annotators)
        if flag is None and tested is not None and useless[annotator]:
            flag = one_class(counts, names) or spammer(tuple(accuracy[annotator]), guessing, agreement, tested)
        found.append(Judged(rows, counts, guessing, agreement, tested, flag))
    return found


# ---- Do the labels depend on the items? ----------------------------------------------------------------------------


class OtherLabels:
    """Class probabilities of items by the labels of all annotators but one."""

    def __init__(self, ann: Annotations, posterior: Floats, history: Floats | None) -> None:
        K = posterior.shape[1]
        self.ann, self.posterior = ann, posterior
        self.n_labels = np.bincount(ann.item, minlength=ann.n_items)
        self.log_confusion = np.log(annotator_quality.expected_confusion(ann, posterior, history).clip(LEAST))
        self.evidence = np.empty((ann.n_items, K))
        for k in range(K):
            each = self.log_confusion[ann.annotator, k, ann.label]
            self.evidence[:, k] = np.bincount(ann.item, each, ann.n_items)
        self.log_prior = np.log(posterior[self.n_labels > 0].mean(0).clip(LEAST))
        self.power = self._weight() ** 0.5

    def shared(self, rows: Positions) -> Positions:
        """Return the rows of labels whose items others labelled too."""
        return rows[self.n_labels[self.ann.item[rows]] > 1]

    def testable(self, rows: Positions) -> Positions:
        """Return the rows of labels whose items others labelled too or have a known class."""
        item = self.ann.item[rows]
        tested: Positions = rows[(self.n_labels[item] > 1) | (self.posterior[item].max(1) == 1)]
        return tested

    def of(self, rows: Positions) -> Floats:
        """Return q (m, K) for labels of one annotator."""
        item = self.ann.item[rows]
        others = self.evidence[item] - self.log_confusion[self.ann.annotator[rows], :, self.ann.label[rows]]
        log_q = self.log_prior + self.power * others
        out: Floats = np.exp(log_q - log_q.max(1, keepdims=True))
        out /= out.sum(1, keepdims=True)
        known = self.posterior[item].max(1) == 1
        out[known] = self.posterior[item[known]]
        return out

    def _weight(self) -> float:
        """Return the slope of the log-posterior on the evidence of the labels, from 0 to 1."""
        use = (self.n_labels > 0) & (self.posterior.max(1) < 1)
        x, y = self.evidence[use], np.log(self.posterior[use].clip(LEAST)) - self.log_prior
        x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
        squares = float(np.square(x).sum())
        return float(np.clip((x * y).sum() / squares, 0, 1)) if squares > 0 else 1.0


def evidence_of(q: Floats, label: Positions) -> Evidence | None:
    """Test an annotator's labels (m,), given the class probabilities q (m, K) without them; None if m is small."""
    if len(label) < FEWEST_SHARED:
        return None
    return Evidence(better_than_guessing(q, label), worse_than_useful(q, label), informed_share(q, label), len(label))


def better_than_guessing(q: Floats, label: Positions) -> float:
    """Return the p-value of Σ_n q[n, label_n] under random permutations of the labels.

    By the normal approximation (see `agree`), or with fewer than `FEW` labels by `DRAWS` permutations.
    """
    mean, variance = _permuted(q, label)
    observed = float(q[np.arange(len(label)), label].sum())
    if variance < 1e-12:
        return 1.0
    if len(label) >= FEW:
        return float(norm.sf((observed - mean) / variance**0.5))
    permuted = np.random.default_rng(0).permuted(np.tile(label, (DRAWS, 1)), axis=1)
    drawn = q[np.arange(len(label)), permuted].sum(1)
    return float((1 + (drawn >= observed - 1e-9).sum()) / (DRAWS + 1))


def worse_than_useful(q: Floats, label: Positions) -> float:
    """Return the p-value of a score test: is the share of labels that are right for a reason below `USEFUL`?"""
    m = len(label)
    often = _distribution(label, q.shape[1])
    own = np.maximum(often - USEFUL * q.mean(0), 1e-3)
    expected = USEFUL * q + (1 - USEFUL) * own / own.sum()
    score = (q - own / own.sum()) / expected
    variance = float((expected * np.square(score)).sum() - np.square((expected * score).sum(1)).sum())
    return float(norm.cdf(score[np.arange(m), label].sum() / max(variance, 1e-12) ** 0.5))


def informed_share(q: Floats, label: Positions) -> float:
    """Return the posterior mean of the share of informed labels."""
    own = _distribution(label, q.shape[1])[label]
    right = q[np.arange(len(label)), label]
    log_likelihood = np.log((SHARES[:, None] * right + (1 - SHARES[:, None]) * own).clip(LEAST)).sum(1)
    weight = np.exp(log_likelihood - log_likelihood.max())
    return float(weight @ SHARES / weight.sum())


def _distribution(label: Positions, K: int) -> Floats:
    """Return the annotator's distribution of labels (K,), with one label divided over all classes added."""
    out: Floats = (np.bincount(label, minlength=K) + 1 / K) / (len(label) + 1)
    return out


def _permuted(a: Floats, label: Positions) -> tuple[float, float]:
    """Return the mean and variance of Σ_n a[n, label_n] over permutations of the labels (Hoeffding 1951).

    The mean is m · mean(A) and the variance Σ d² / (m - 1), with A[n, j] = a[n, label_j] and d the same after removing
    row and column means. Labels have only K values, so A need not be stored.
    """
    m, weight = len(label), np.bincount(label, minlength=a.shape[1])
    mean = float(a.mean(0) @ weight)
    d = a - (a @ weight / m)[:, None] - a.mean(0) + mean / m
    return mean, float((d**2 @ weight).sum()) / max(m - 1, 1)


def false_discovery(p_values: Sequence[float | None]) -> list[bool]:
    """Return which null hypotheses are rejected if a fraction `ALPHA` of the rejections may be false.

    This is the procedure of Benjamini and Hochberg; None is not tested.

    >>> false_discovery([0.01, None, 0.03, 0.6])
    [True, False, True, False]
    """
    tested = np.array([1.0 if p is None else p for p in p_values])
    n = sum(p is not None for p in p_values)
    ranked = np.sort(tested)
    passed = np.flatnonzero(ranked <= ALPHA * np.arange(1, len(ranked) + 1) / max(n, 1))
    limit = float(ranked[passed[-1]]) if len(passed) else -1.0
    return [p is not None and p <= limit for p in p_values]


# ---- Agreement with others, and flags ------------------------------------------------------------------------------


def agree(votes: Floats, label: Positions) -> Agreement | None:
    """Test whether an annotator's labels (m,) agree with the others' labels on the same items.

    ``votes`` (m, K) counts all labels of these items, including the annotator's. Let a[n, k] be the share of the
    others' labels on item n that are k. The statistic Σ_n a[n, label_n] is compared with randomly permuted labels. The
    p-value is two-sided, by the normal approximation.
    """
    shared = votes.sum(1) > 1
    label, others = label[shared], votes[shared].copy()
    m = len(label)
    if m == 0:
        return None
    others[np.arange(m), label] -= 1
    a = others / others.sum(1, keepdims=True)
    expected, variance = _permuted(a, label)
    deviation = float(a[np.arange(m), label].sum()) - expected
    p_value = 2 * norm.sf(abs(deviation) / variance**0.5) if variance > 1e-12 else 1.0
    return Agreement((expected + deviation) / m, expected / m, float(p_value), m)


def swaps(counts: Floats, names: list[str], n_annotators: int) -> Flag | None:
    """Return a flag for two swapped classes."""
    K, right = len(counts), np.diag(counts)
    if K < 2:
        return None
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


def wrong(agreement: Agreement | None, n_annotators: int) -> Flag | None:
    """Return a flag for labels that agree with others less than permuted labels would."""
    if agreement is None or agreement.n_labels < FEWEST_SHARED or agreement.share >= agreement.by_chance:
        return None
    return Flag("systematically wrong", _with_others(agreement)) if agreement.p_value < ALPHA / n_annotators else None


def one_class(counts: Floats, names: list[str]) -> Flag | None:
    """Return a flag if nearly all labels are the same; counts (K true, K observed)."""
    n_labels, observed = round(counts.sum()), counts.sum(0)
    top = int(observed.argmax())
    times = round(observed[top])
    if times < SAME * n_labels:
        return None
    which = "every label is" if times == n_labels else f"{times:,} of {n_labels:,} labels are"
    share = percent(counts[top].sum() / n_labels)
    return Flag(ONE_CLASS, f"{which} {names[top]}, the class of about {share} of the items")


def spammer(accuracy: tuple[float, ...], guessing: float, agreement: Agreement | None, tested: Evidence) -> Flag | None:
    """Return a flag if labels that are not useful are nearly all guesses; accuracy: estimate, low and high."""
    if tested.informed >= NEAR_CHANCE:
        return None
    right = f"accuracy {percent(accuracy[0])} ({spread(*accuracy[1:])}), guessing has {percent(guessing)}"
    return Flag(SPAMMER, right + (f"; {_with_others(agreement)}" if agreement else ""))


def _with_others(agreement: Agreement) -> str:
    return f"agrees with others {percent(agreement.share)} of the time, by chance {percent(agreement.by_chance)}"
