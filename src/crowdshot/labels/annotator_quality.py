"""Estimate how accurate annotators and single labels are, given the posteriors of the items.

A label is right with probability p, the posterior of the class it names. Of an annotator's n labels, h = Σ p are
expected to be right. The accuracy is shrunk to the crowd's mean accuracy m, which counts as `CROWD` labels:

    accuracy = (h + CROWD m) / (n + CROWD)

The posterior of the default method leaves out an annotator's own labels when it weights them, so annotators do not
confirm themselves. The interval from ``low`` to ``high`` is the central 90 % of a Beta distribution with this mean. Its
variance has two parts: that of a Beta with so many labels, and that of the posteriors. Annotators share mistakes, so
the fraction `SHARED` of the posteriors' variance does not average out. `SHARED` was tuned on real crowds, in full and
with 1, 2, 3 and 5 labels per item, so that the intervals contain the true accuracy of 90 % of the annotators
(benchmarks/intervals.py).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array

from crowdshot.io.cells import Ids
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.confidence import interval
from crowdshot.labels.indexing import as_index
from crowdshot.model.parts import Keyed, PosteriorMatrix, Sizes
from crowdshot.model.posteriors import posterior_at

Floats = NDArray[np.float64]

EXPECTED = 0.7  # accuracy assumed before any labels were seen
CROWD = 4.0  # labels: weight of the crowd's mean accuracy in each annotator's accuracy
SHARED = 0.06  # fraction of a posterior's variance that all labels of an annotator share
ANNOTATOR = 20.0  # labels: weight of an annotator's accuracy in each row of their confusion matrix
LIKELY_WRONG = 0.5


# ---- Confusion matrices with very many classes ---------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Confusions:
    """Confusion matrices of too many classes for a dense array; `among` returns those of a few classes.

    They are expected counts of labels, plus ``strength`` labels per class, of which a fraction ``right`` (R,) is right.
    """

    right: Floats
    strength: float
    n_classes: int
    counts: Keyed  # expected labels by (true · K + observed) · R + annotator
    totals: Keyed  # their sums over observed, by true · R + annotator

    @classmethod
    def of(cls, counts: Keyed, right: Floats, strength: float, n_classes: int) -> Self:
        """Build them from expected counts by (annotator · K + observed) · K + true."""
        R, K = len(right), n_classes
        cells, times = counts.items()
        annotator, label, true = cells // (K * K), cells // K % K, cells % K
        by_cell = Keyed.total(times, (true * K + label) * R + annotator)
        return cls(right, strength, K, by_cell, Keyed.total(times, true * R + annotator))

    def __len__(self) -> int:
        return len(self.right)

    def among(self, classes: NDArray[np.integer]) -> Floats:
        """Return the rows of k classes as an array (R, k true, k + 1 observed); the last column is any other answer."""
        R, K, k = len(self), self.n_classes, len(classes)
        counts = np.empty((R, k, k))
        counts[:] = (self.strength * (1 - self.right) / (K - 1))[:, None, None]
        counts[:, range(k), range(k)] = self.strength * self.right[:, None]
        total = np.full((R, k), self.strength)
        for row, true in enumerate(classes.tolist()):
            annotator, times = self.totals.between(true * R, (true + 1) * R)
            total[annotator, row] += times
            for column, label in enumerate(classes.tolist()):
                cell = true * K + label
                annotator, times = self.counts.between(cell * R, (cell + 1) * R)
                counts[annotator, row, column] += times
        among = counts / total[:, :, None]
        out: Floats = np.dstack([among, (1 - among.sum(2)).clip(0)]) if k else np.empty((R, 0, 1))
        return out


# ---- Annotators ----------------------------------------------------------------------------------------------------


class Tally(NamedTuple):
    """Sums over the labels of each annotator; tallies of several parts can be added."""

    labels: Floats  # (R,)
    right: Floats  # (R,) expected number of right labels
    variance: Floats  # (R,) variance of that number
    confusion: Any  # (R·K observed, K true); a `Keyed` sum by (annotator · K + observed) · K + true with many classes


def tally(
    item: NDArray[Any], annotator: NDArray[Any], label: NDArray[Any], posterior: PosteriorMatrix, sizes: Sizes
) -> Tally:
    """Return the tally of these labels (L,), given the posteriors (N, K) of their items."""
    R = sizes.annotators
    right = posterior_at(posterior, item, label)

    def total(values: NDArray[Any] | None) -> Floats:
        return np.bincount(annotator, values, R).astype(np.float64)

    confusion = _confusion_counts(item, annotator, label, posterior, sizes)
    return Tally(total(None), total(right), total(right * (1 - right)), confusion)


def judge(ann: Annotations, posterior: PosteriorMatrix, history: Floats | None = None) -> pd.DataFrame:
    """Estimate the accuracy of every annotator.

    Parameters
    ----------
    ann : Annotations
    posterior : array of shape (N, K)
        Class probabilities of the items.
    history : array of shape (R, 2), optional
        Numbers of right and wrong labels in earlier projects, which count as well.

    Returns
    -------
    DataFrame
        annotator, n_labels, accuracy, low, high, most_confused, right, wrong. The last two are expected numbers of
        labels, including ``history``.
    """
    sizes = Sizes(ann.n_items, ann.n_annotators, ann.n_classes)
    counts = tally(ann.item, ann.annotator, ann.label, posterior, sizes)
    return judged(counts, ann.annotators, ann.classes, ann.columns.annotator, history)


def judged(counts: Tally, annotators: Ids, classes: Ids, column: str, history: Floats | None = None) -> pd.DataFrame:
    """Return the table of `judge` for a tally."""
    hits, all_labels = _with_history(counts, history)
    weight = all_labels + CROWD
    mean = _accuracy(counts, hits, all_labels)
    spread = mean * (1 - mean)
    typical = (counts.variance + CROWD * counts.variance.sum() / counts.labels.sum()) / weight
    variance = np.minimum(spread / (weight + 1) + counts.variance / weight**2 + SHARED * typical, 0.9 * spread)
    strength = spread / variance - 1
    low, high = interval(mean * strength, (1 - mean) * strength)
    return pd.DataFrame(
        {
            column: as_index(annotators),
            "n_labels": counts.labels.astype(np.int64),
            "accuracy": np.where(all_labels > 0, mean, np.nan),  # unknown without labels
            "low": np.where(all_labels > 0, low, 0.0),
            "high": np.where(all_labels > 0, high, 1.0),
            "most_confused": _most_confused(counts.confusion, len(annotators), classes),
            "right": hits,
            "wrong": all_labels - hits,
        }
    )


def _with_history(counts: Tally, history: Floats | None) -> tuple[Floats, Floats]:
    """Return expected right labels and all labels of each annotator, (R,) each, with those of earlier projects."""
    if history is None:
        return counts.right, counts.labels
    return counts.right + history[:, 0], counts.labels + history.sum(1)


def _accuracy(counts: Tally, hits: Floats, all_labels: Floats) -> Floats:
    """Return the accuracy of each annotator, (R,)."""
    crowd = (counts.right.sum() + CROWD * EXPECTED) / (counts.labels.sum() + CROWD)
    mean: Floats = ((hits + CROWD * crowd) / (all_labels + CROWD)).clip(1e-3, 1 - 1e-3)
    return mean


def expected_confusion(ann: Annotations, posterior: PosteriorMatrix, history: Floats | None = None) -> Any:
    """Return confusion matrices (R, K true, K observed), shrunk to each annotator's accuracy.

    With a sparse posterior, which means very many classes, the result is `Confusions`.
    """
    sizes = Sizes(ann.n_items, ann.n_annotators, ann.n_classes)
    counts = tally(ann.item, ann.annotator, ann.label, posterior, sizes)
    hits, all_labels = _with_history(counts, history)
    accuracy = np.where(all_labels > 0, _accuracy(counts, hits, all_labels), EXPECTED)
    return _shrunk_to(accuracy, counts.confusion, ann.n_classes)


def shrunk_to(right: Floats, ann: Annotations, posterior: PosteriorMatrix) -> Any:
    """Return confusion matrices shrunk to accuracies ``right`` (R,), which count as `ANNOTATOR` labels per class."""
    sizes = Sizes(ann.n_items, ann.n_annotators, ann.n_classes)
    counts = _confusion_counts(ann.item, ann.annotator, ann.label, posterior, sizes)
    return _shrunk_to(right, counts, ann.n_classes)


def _shrunk_to(right: Floats, counts: Any, K: int) -> Any:
    if isinstance(counts, Keyed):
        return Confusions.of(counts, right, ANNOTATOR, K)
    wrong = (1 - right) / max(K - 1, 1)
    prior = np.where(np.eye(K, dtype=bool), right[:, None, None], wrong[:, None, None])
    out: Floats = counts.reshape(-1, K, K).transpose(0, 2, 1) + ANNOTATOR * prior
    out /= out.sum(2, keepdims=True)
    return out


def confusion_counts(ann: Annotations, posterior: Floats) -> Floats:
    """Return the expected numbers of labels, (R, K observed, K true)."""
    sizes = Sizes(ann.n_items, ann.n_annotators, ann.n_classes)
    out: Floats = _confusion_counts(ann.item, ann.annotator, ann.label, posterior, sizes)
    return out.reshape(ann.n_annotators, ann.n_classes, ann.n_classes)


def _confusion_counts(
    item: NDArray[Any], annotator: NDArray[Any], label: NDArray[Any], posterior: PosteriorMatrix, sizes: Sizes
) -> Any:
    """Return ``Tally.confusion``."""
    _, R, K = sizes
    cell = annotator.astype(np.int64) * K + label
    if isinstance(posterior, np.ndarray):
        return csr_array((np.ones(len(cell)), (cell, item)), (R * K, len(posterior))) @ posterior
    found, place = np.unique(cell, return_inverse=True)
    counts = (csr_array((np.ones(len(cell)), (place, item)), (len(found), posterior.shape[0])) @ posterior).tocoo()
    return Keyed.total(counts.data, found[counts.row] * K + counts.col)


def _most_confused(counts: Any, R: int, classes: Ids) -> list[str]:
    """Return each annotator's most frequent mistake as "true → observed (expected times)"; "" if below 0.5 times."""
    K = len(classes)
    if isinstance(counts, Keyed):
        cells, expected = counts.items()
        wrong = cells // K % K != cells % K
        cells, expected = cells[wrong], expected[wrong]
        order = np.lexsort((-cells, expected))  # the last assignment wins: the largest count, the first of equal ones
        worst, times = np.zeros(R, dtype=np.int64), np.zeros(R)
        worst[cells[order] // (K * K)], times[cells[order] // (K * K)] = cells[order] % (K * K), expected[order]
    else:
        mistakes = (counts.reshape(R, K, K) * (1 - np.eye(K))).reshape(R, -1)
        worst, times = mistakes.argmax(1), mistakes.max(1)
    return [
        f"{classes[cell % K]} → {classes[cell // K]} ({_times(n)})" if n >= 0.5 else ""
        for cell, n in zip(worst, times, strict=True)
    ]


def _times(n: float) -> str:
    return "once" if n < 1.5 else f"{n:.0f} times"


# ---- Single labels -------------------------------------------------------------------------------------------------


def label_quality(ann: Annotations, posterior: Floats) -> pd.DataFrame:
    """Return the probability that each label is right.

    Parameters
    ----------
    ann : Annotations
    posterior : array of shape (N, K)
        Class probabilities of the items.

    Returns
    -------
    DataFrame
        A row for each label: item, annotator, label, quality (the probability that the label is right), consensus (the
        likeliest class) and confidence (its probability).

    Examples
    --------
    >>> from crowdshot import Annotations, aggregate
    >>> ann = Annotations.from_dict({"a": {"ann": "cat", "bob": "cat", "cy": "dog"}, "b": {"ann": "dog", "cy": "dog"}})
    >>> table = label_quality(ann, aggregate.majority_vote(ann).probabilities)
    >>> table["label"].tolist(), table["quality"].round(2).tolist()
    (['cat', 'cat', 'dog', 'dog', 'dog'], [0.67, 0.67, 0.33, 1.0, 1.0])
    """
    best = posterior.argmax(1)
    return ann.to_frame().assign(
        quality=posterior[ann.item, ann.label],
        consensus=as_index(ann.classes).take(best[ann.item]),
        confidence=posterior.max(1)[ann.item],
    )


def likely_wrong(ann: Annotations, posterior: Floats, below: float = LIKELY_WRONG) -> pd.DataFrame:
    """Return the rows of `label_quality` with a quality below the limit, the lowest first."""
    table = label_quality(ann, posterior)
    return table[table["quality"] < below].sort_values("quality", kind="stable", ignore_index=True)
