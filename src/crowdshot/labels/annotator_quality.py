"""How good each annotator is, judged by what is believed of the items.

A label is right with probability p, the posterior in the class it names. Of n labels h = sum p are expected to be right,
and the crowd's mean accuracy m counts for `CROWD` labels more:

    accuracy = (h + CROWD m) / (n + CROWD)

so that of someone of whom little is known, little else is said than how good the crowd is. Nobody confirms themselves:
the default's posterior takes each label for what its annotator is worth without it. The variance is that of a Beta with so
many labels, plus that of the posteriors, of which `SHARED` does not average out, as people share mistakes; ``low`` to
``high`` is the middle 90 % of the Beta with that mean and variance. `SHARED` was set so that on
real crowds, in full and with 1, 2, 3 and 5 labels an item, it holds the true accuracy of 90 % of the annotators
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

# ---- confusions ------------------------------------------------------------
#
# Confusion matrices of so many classes that no table holds them: a few classes at a time.


Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Confusions:
    """What annotators said of each class, and ``strength`` labels more, of which each has ``right`` (R,) right."""

    right: Floats
    strength: float
    n_classes: int
    said: Keyed  # labels, as many as are expected, by (true · K + said) · R + annotator
    shown: Keyed  # the same whatever was said, by true · R + annotator

    @classmethod
    def of(cls, said: Keyed, right: Floats, strength: float, n_classes: int) -> Self:
        """``said``: by (annotator · K + said) · K + true."""
        R, K = len(right), n_classes
        cells, times = said.items()
        annotator, label, true = cells // (K * K), cells // K % K, cells % K
        by_cell = Keyed.total(times, (true * K + label) * R + annotator)
        return cls(right, strength, K, by_cell, Keyed.total(times, true * R + annotator))

    def __len__(self) -> int:
        return len(self.right)

    def among(self, classes: NDArray[np.integer]) -> Floats:
        """(R, k true, k + 1 observed), of k classes; the last is any other answer."""
        R, K, k = len(self), self.n_classes, len(classes)
        counts = np.empty((R, k, k))
        counts[:] = (self.strength * (1 - self.right) / (K - 1))[:, None, None]
        counts[:, range(k), range(k)] = self.strength * self.right[:, None]
        whole = np.full((R, k), self.strength)
        for row, true in enumerate(classes.tolist()):
            who, times = self.shown.between(true * R, (true + 1) * R)
            whole[who, row] += times
            for column, label in enumerate(classes.tolist()):
                cell = true * K + label
                who, times = self.said.between(cell * R, (cell + 1) * R)
                counts[who, row, column] += times
        among = counts / whole[:, :, None]
        out: Floats = np.dstack([among, (1 - among.sum(2)).clip(0)]) if k else np.empty((R, 0, 1))
        return out


# ---- annotators ------------------------------------------------------------


EXPECTED = 0.7  # how often people are right, before anything is known of them
CROWD = 4.0  # labels that the crowd's accuracy counts for in what is thought of each annotator
SHARED = 0.06  # of the variance of a posterior: what all labels of an annotator have in common
ANNOTATOR = 20.0  # labels that an annotator's accuracy counts for in what they are thought to say of each class


class Tally(NamedTuple):
    """Sums over the labels of annotators, which may be added up."""

    labels: Floats  # (R,)
    right: Floats  # (R,) as expected
    doubt: Floats  # (R,) its variance
    said: Any  # (R·K said, K true); where classes are many a `Keyed` sum by (annotator · K + said) · K + true


def tally(
    item: NDArray[Any], annotator: NDArray[Any], label: NDArray[Any], posterior: PosteriorMatrix, sizes: Sizes
) -> Tally:
    """Of these labels; posterior (N, K) in the classes of their items."""
    R = sizes.annotators
    right = posterior_at(posterior, item, label)

    def total(values: NDArray[Any] | None) -> Floats:
        return np.bincount(annotator, values, R).astype(np.float64)

    said = said_of(item, annotator, label, posterior, sizes)
    return Tally(total(None), total(right), total(right * (1 - right)), said)


def judge(ann: Annotations, posterior: PosteriorMatrix, history: Floats | None = None) -> pd.DataFrame:
    """annotator, n_labels, accuracy, low, high, most_confused, right, wrong; posterior (N, K) in the items' classes.

    ``right``, ``wrong``: of how many labels that is expected, those of earlier projects included, which ``history``
    (R, 2) tells; accuracy is by all of them.
    """
    sizes = Sizes(ann.n_items, ann.n_annotators, ann.n_classes)
    counts = tally(ann.item, ann.annotator, ann.label, posterior, sizes)
    return judged(counts, ann.annotators, ann.classes, ann.columns.annotator, history)


def judged(counts: Tally, annotators: Ids, classes: Ids, column: str, history: Floats | None = None) -> pd.DataFrame:
    """The table that `judge` gives, of a tally."""
    before = np.zeros((len(annotators), 2)) if history is None else history
    n = counts.labels.sum()
    crowd = (counts.right.sum() + CROWD * EXPECTED) / (n + CROWD)
    hits, all_labels = counts.right + before[:, 0], counts.labels + before.sum(1)
    weight = all_labels + CROWD
    mean = ((hits + CROWD * crowd) / weight).clip(1e-3, 1 - 1e-3)
    spread = mean * (1 - mean)
    typical = (counts.doubt + CROWD * counts.doubt.sum() / n) / weight
    variance = np.minimum(spread / (weight + 1) + counts.doubt / weight**2 + SHARED * typical, 0.9 * spread)
    strength = spread / variance - 1
    low, high = interval(mean * strength, (1 - mean) * strength)
    return pd.DataFrame(
        {
            column: as_index(annotators),
            "n_labels": counts.labels.astype(np.int64),
            "accuracy": np.where(all_labels > 0, mean, np.nan),  # of one who said nothing nothing is known
            "low": np.where(all_labels > 0, low, 0.0),
            "high": np.where(all_labels > 0, high, 1.0),
            "most_confused": _most_confused(counts.said, len(annotators), classes),
            "right": hits,
            "wrong": all_labels - hits,
        }
    )


def expected_confusion(ann: Annotations, posterior: PosteriorMatrix, history: Floats | None = None) -> Any:
    """(R, K true, K observed): what annotators said of each class, shrunk to how often they are right at all.

    `Confusions`, where the posterior is sparse, as classes are many.
    """
    return shrunk_to(judge(ann, posterior, history)["accuracy"].fillna(EXPECTED).to_numpy(), ann, posterior)


def shrunk_to(right: Floats, ann: Annotations, posterior: PosteriorMatrix) -> Any:
    """The same to any accuracies (R,), which count for `ANNOTATOR` labels of each class."""
    K = ann.n_classes
    sizes = Sizes(ann.n_items, ann.n_annotators, K)
    counts = said_of(ann.item, ann.annotator, ann.label, posterior, sizes)
    if isinstance(counts, Keyed):
        return Confusions.of(counts, right, ANNOTATOR, K)
    wrong = (1 - right) / max(K - 1, 1)
    even = np.where(np.eye(K, dtype=bool), right[:, None, None], wrong[:, None, None])
    out: Floats = counts.reshape(-1, K, K).transpose(0, 2, 1) + ANNOTATOR * even
    out /= out.sum(2, keepdims=True)
    return out


def said(ann: Annotations, posterior: Floats) -> Floats:
    """(R, K said, K true) labels, as many as are expected"""
    sizes = Sizes(ann.n_items, ann.n_annotators, ann.n_classes)
    out: Floats = said_of(ann.item, ann.annotator, ann.label, posterior, sizes)
    return out.reshape(ann.n_annotators, ann.n_classes, ann.n_classes)


def said_of(
    item: NDArray[Any], annotator: NDArray[Any], label: NDArray[Any], posterior: PosteriorMatrix, sizes: Sizes
) -> Any:
    """As `Tally.said` has it."""
    _, R, K = sizes
    cell = annotator.astype(np.int64) * K + label
    if isinstance(posterior, np.ndarray):
        return csr_array((np.ones(len(cell)), (cell, item)), (R * K, len(posterior))) @ posterior
    found, place = np.unique(cell, return_inverse=True)
    counts = (csr_array((np.ones(len(cell)), (place, item)), (len(found), posterior.shape[0])) @ posterior).tocoo()
    return Keyed.total(counts.data, found[counts.row] * K + counts.col)


def _most_confused(said: Any, R: int, classes: Ids) -> list[str]:
    """For each annotator the likeliest mistake, "true → said (how often, as expected)"; "" if there is hardly any."""
    K = len(classes)
    if isinstance(said, Keyed):
        cells, counts = said.items()
        wrong = cells // K % K != cells % K
        cells, counts = cells[wrong], counts[wrong]
        order = np.lexsort((-cells, counts))  # the largest last, and of several the first
        worst, times = np.zeros(R, dtype=np.int64), np.zeros(R)
        worst[cells[order] // (K * K)], times[cells[order] // (K * K)] = cells[order] % (K * K), counts[order]
    else:
        mistakes = (said.reshape(R, K, K) * (1 - np.eye(K))).reshape(R, -1)
        worst, times = mistakes.argmax(1), mistakes.max(1)
    return [
        f"{classes[cell % K]} → {classes[cell // K]} ({_times(n)})" if n >= 0.5 else ""
        for cell, n in zip(worst, times, strict=True)
    ]


def _times(n: float) -> str:
    return "once" if n < 1.5 else f"{n:.0f} times"


# ---- quality ------------------------------------------------------------
#
# How probably each label is right, and which are likely wrong: what to look at again, label by label.


LIKELY_WRONG = 0.5


def label_quality(ann: Annotations, posterior: Floats) -> pd.DataFrame:
    """A row for each label: item, annotator, label, quality, believed, confidence; posterior (N, K) in the items' classes.

    ``quality`` is how probable it is that the label is right; ``believed`` the likeliest class, with its confidence.

    >>> from crowdshot import Annotations, aggregate
    >>> ann = Annotations.from_dict({"a": {"ann": "cat", "bob": "cat", "cy": "dog"}, "b": {"ann": "dog", "cy": "dog"}})
    >>> table = label_quality(ann, aggregate.majority_vote(ann).probabilities)
    >>> table["label"].tolist(), table["quality"].round(2).tolist()
    (['cat', 'cat', 'dog', 'dog', 'dog'], [0.67, 0.67, 0.33, 1.0, 1.0])
    """
    best = posterior.argmax(1)
    return ann.to_frame().assign(
        quality=posterior[ann.item, ann.label],
        believed=as_index(ann.classes).take(best[ann.item]),
        confidence=posterior.max(1)[ann.item],
    )


def likely_wrong(ann: Annotations, posterior: Floats, below: float = LIKELY_WRONG) -> pd.DataFrame:
    """Those rows of `label_quality` whose quality is lower, the worst first."""
    table = label_quality(ann, posterior)
    return table[table["quality"] < below].sort_values("quality", kind="stable", ignore_index=True)
