"""Estimate how accurate annotators and single labels are, given the posteriors of the items.

A label is right with probability p, the posterior of the class it names. Of an annotator's n labels, h = Σ p are
expected to be right. The accuracy a is shrunk to the crowd's mean accuracy m, which counts as `PRIOR` labels:

    a = (h + PRIOR m) / (n + PRIOR)

The posterior of the default method leaves out an annotator's own labels when it weights them, so annotators do not
confirm themselves. The posteriors leave open which labels are right: u = mean of p (1 - p) / (a (1 - a)) is 0 if every
class is known and 1 if the labels say nothing about the classes. Then

    logit(accuracy) = logit(a) + `SHIFT` u⁸
    variance = s / (n + PRIOR + 1) + (`SHARED` u s)²,   s = accuracy (1 - accuracy)

`SHIFT` matters only if items have one or two labels: their posteriors
understate the accuracy of most crowds. The second part of the variance does not average out: if the posteriors of a
crowd are wrong, they are wrong for all its annotators. The interval from ``low`` to ``high`` is the central 90 % of the
Beta distribution with this mean and variance; ``p_below`` is its probability below a minimum accuracy. The three
constants were fitted to 20 real crowds, in full and thinned (benchmarks/intervals.py, which judges each crowd by
constants that were fitted without it).
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.special import betainc, expit, logit

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, listing, show
from crowdshot.io.cells import Ids, as_index
from crowdshot.io.dataframes import to_pandas
from crowdshot.io.tables import one_each, read_table
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import plain
from crowdshot.labels.consensus import interval
from crowdshot.model.parts import Keyed, PosteriorMatrix, Sizes
from crowdshot.model.posteriors import likeliest, posterior_at

Floats = NDArray[np.float64]

EXPECTED = 0.7  # accuracy assumed before any labels were seen
CROWD = 4.0  # labels: weight of the crowd's mean accuracy in confusion matrices, and of `EXPECTED` in that mean
PRIOR = 7.3  # labels: weight of the crowd's mean accuracy in each annotator's accuracy
SHIFT = 0.77  # logits that are added if the labels say nothing about the classes
SHARED = 0.62  # logits: standard deviation that all annotators of a crowd share, if the labels say nothing
MIN_ACCURACY = 0.7  # default accuracy that an annotator should have
ANNOTATOR = 20.0  # labels: weight of an annotator's accuracy in each row of their confusion matrix
LIKELY_WRONG = 0.5
LEAST = 5e-3  # lower limit of an accuracy, and of 1 - accuracy


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


def judge(
    ann: Annotations,
    posterior: PosteriorMatrix,
    history: Floats | None = None,
    min_accuracy: float = MIN_ACCURACY,
) -> pd.DataFrame:
    """Estimate the accuracy of every annotator, and the probability that it is below a minimum.

    Parameters
    ----------
    ann : Annotations
    posterior : array of shape (N, K)
        Class probabilities of the items.
    history : array of shape (R, 2), optional
        Numbers of right and wrong labels in earlier projects, which count as well.
    min_accuracy : float
        The accuracy that an annotator should have, between 0 and 1.

    Returns
    -------
    DataFrame
        annotator, n_labels, accuracy, low, high, most_confused, right, wrong, p_below. right and wrong are expected
        numbers of labels, including ``history``; p_below is the probability that the accuracy is below
        ``min_accuracy``.
    """
    sizes = Sizes(ann.n_items, ann.n_annotators, ann.n_classes)
    counts = tally(ann.item, ann.annotator, ann.label, posterior, sizes)
    return judged(counts, ann.annotators, ann.classes, ann.columns.annotator, history, min_accuracy)


def judged(
    counts: Tally,
    annotators: Ids,
    classes: Ids,
    column: str,
    history: Floats | None = None,
    min_accuracy: float = MIN_ACCURACY,
) -> pd.DataFrame:
    """Return the table of `judge` for a tally."""
    check_min_accuracy(min_accuracy)
    hits, all_labels = _with_history(counts, history)
    right, wrong = _beta(counts, hits, all_labels)
    low, high = interval(right, wrong)
    known = all_labels > 0
    return pd.DataFrame(
        {
            column: as_index(annotators),
            "n_labels": counts.labels.astype(np.int64),
            "accuracy": np.where(known, right / (right + wrong), np.nan),
            "low": np.where(known, low, 0.0),
            "high": np.where(known, high, 1.0),
            "most_confused": _most_confused(counts.confusion, len(annotators), classes),
            "right": hits,
            "wrong": all_labels - hits,
            "p_below": np.where(known, betainc(right, wrong, min_accuracy), np.nan),
        }
    )


def check_min_accuracy(min_accuracy: float) -> None:
    if not 0 < min_accuracy < 1:
        expected = "a number above 0 and below 1"
        raise CrowdshotError(f"is {min_accuracy:g}", argument="min_accuracy", found=min_accuracy, expected=expected)


def by_risk(people: pd.DataFrame) -> pd.DataFrame:
    """Sort the table of `judge` by the probability that the accuracy is too low, the highest first."""
    return people.sort_values(["p_below", "high"], ascending=[False, True], ignore_index=True)


def _beta(counts: Tally, hits: Floats, all_labels: Floats) -> tuple[Floats, Floats]:
    """Return the parameters of the Beta distribution of each annotator's accuracy, (R,) each."""
    crowd, weight = _crowd_accuracy(counts), all_labels + PRIOR
    mean = ((hits + PRIOR * crowd) / weight).clip(LEAST, 1 - LEAST)
    left_open = (counts.variance + PRIOR * counts.variance.sum() / counts.labels.sum()) / weight
    unknown = (left_open / (mean * (1 - mean))).clip(0, 1)
    mean = expit(logit(mean) + SHIFT * unknown**8)
    spread = mean * (1 - mean)
    variance = np.minimum(spread / (weight + 1) + np.square(SHARED * unknown * spread), 0.9 * spread)
    strength = spread / variance - 1
    return mean * strength, (1 - mean) * strength


def _crowd_accuracy(counts: Tally) -> float:
    return float((counts.right.sum() + CROWD * EXPECTED) / (counts.labels.sum() + CROWD))


def _with_history(counts: Tally, history: Floats | None) -> tuple[Floats, Floats]:
    """Return expected right labels and all labels of each annotator, (R,) each, with those of earlier projects."""
    if history is None:
        return counts.right, counts.labels
    return counts.right + history[:, 0], counts.labels + history.sum(1)


def _accuracy(counts: Tally, hits: Floats, all_labels: Floats) -> Floats:
    """Return the accuracy of each annotator for confusion matrices, (R,)."""
    mean: Floats = ((hits + CROWD * _crowd_accuracy(counts)) / (all_labels + CROWD)).clip(1e-3, 1 - 1e-3)
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


def label_quality(ann: Annotations, posterior: PosteriorMatrix) -> pd.DataFrame:
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
    best, confidence = likeliest(posterior)
    return ann.to_frame().assign(
        quality=posterior_at(posterior, ann.item, ann.label),
        consensus=as_index(ann.classes).take(best[ann.item]),
        confidence=confidence[ann.item],
    )


def likely_wrong(ann: Annotations, posterior: Floats, below: float = LIKELY_WRONG) -> pd.DataFrame:
    """Return the rows of `label_quality` with a quality below the limit, the lowest first."""
    table = label_quality(ann, posterior)
    return table[table["quality"] < below].sort_values("quality", kind="stable", ignore_index=True)


# ---- records of annotators from earlier projects ----

EXPERT = (19.0, 1.0)  # right and wrong labels of an "expert"
COUNTS = ("right", "wrong")


class AnnotatorPriors(Mapping[Any, tuple[float, float]]):
    """Numbers of right and wrong labels of annotators in earlier projects.

    Pass it to `CrowdClassifier.fit` as ``priors=`` or to `aggregate.learned` as ``history=``. Annotators without labels
    in the new project are ignored. Names are compared as text.

    Parameters
    ----------
    records : mapping
        ``{annotator: (right, wrong)}``, or ``{annotator: "expert"}``, which means (19, 1).

    Examples
    --------
    >>> from crowdshot import AnnotatorPriors
    >>> AnnotatorPriors({"ann": (12, 3), "bob": "expert"})
    AnnotatorPriors({'ann': (12.0, 3.0), 'bob': (19.0, 1.0)})
    """

    def __init__(self, records: Mapping[Any, tuple[float, float] | str]) -> None:
        self._records = {str(name): _counts(name, record) for name, record in records.items()}

    @classmethod
    def from_classifier(cls, classifier: Any) -> Self:
        """Return the counts of a fitted `CrowdClassifier`, including its own ``priors``."""
        return cls.from_frame(classifier.annotators_)

    @classmethod
    def from_frame(cls, table: pd.DataFrame) -> Self:
        """Convert a table with columns for the annotator, right and wrong, such as ``CrowdClassifier.annotators_``."""
        names, right, wrong = _columns([str(name) for name in table.columns], "the table")
        ids = as_index(table.iloc[:, names])
        if not ids.is_unique:
            repeated = ids[first(ids.duplicated())]
            raise CrowdshotError(
                f"names annotator {show(repeated)} more than once",
                where="the table",
                found=repeated,
                expected="each annotator once",
            )
        return cls(dict(zip(ids, zip(table.iloc[:, right], table.iloc[:, wrong], strict=True), strict=True)))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> Self:
        """Read such a table from a file, as ``aggregate --annotators`` and ``adapt`` write it."""
        table = read_table(Path(path))
        names, right, wrong = _columns(table.header, str(path))
        for column in (right, wrong):
            numbers = table.numbers(column)
            bad = ~(np.isfinite(numbers) & (numbers >= 0))
            if bad.any():
                row = first(bad)
                raise CrowdshotError(
                    f"is {numbers[row]:g}",
                    where=table.place(row, column),
                    found=float(numbers[row]),
                    expected="a number, 0 or more",
                )
        counts = zip(table.numbers(right), table.numbers(wrong), strict=True)
        return cls(dict(zip(one_each(table, names), counts, strict=True)))

    def to_frame(self) -> pd.DataFrame:
        """Return a table with the columns annotator, right and wrong."""
        counts = np.array(list(self._records.values())).reshape(-1, 2)
        return pd.DataFrame({"annotator": list(self._records), "right": counts[:, 0], "wrong": counts[:, 1]})

    def of(self, annotators: Ids) -> NDArray[np.float64]:
        """Return an array (R, 2) of right and wrong labels, 0 for unknown annotators."""
        found = [self._records.get(str(name), (0.0, 0.0)) for name in annotators]
        return np.array(found, dtype=np.float64).reshape(-1, 2)

    def __getitem__(self, annotator: Any) -> tuple[float, float]:
        return self._records[str(annotator)]

    def __contains__(self, annotator: object) -> bool:
        return str(annotator) in self._records

    def __iter__(self) -> Iterator[str]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __repr__(self) -> str:
        return f"AnnotatorPriors({self._records!r})"


PriorsInput: TypeAlias = "AnnotatorPriors | Mapping[Any, tuple[float, float] | str] | pd.DataFrame | None"


def as_priors(priors: PriorsInput) -> AnnotatorPriors:
    if priors is None:
        return AnnotatorPriors({})
    priors = to_pandas(priors, "priors")
    if isinstance(priors, AnnotatorPriors):
        return priors
    if isinstance(priors, pd.DataFrame):
        return AnnotatorPriors.from_frame(priors)
    if isinstance(priors, Mapping):
        return AnnotatorPriors(priors)
    raise CrowdshotError(
        f"is a {type(priors).__name__}", argument="priors", expected="{annotator: (right, wrong)} or a table"
    )


def _columns(header: list[str], source: str) -> tuple[int, int, int]:
    """Return the positions of the columns annotator, right and wrong; annotator is the first that is neither."""
    called = [plain(name) for name in header]
    names = [place for place, name in enumerate(called) if name not in COUNTS]
    if not names or any(name not in called for name in COUNTS):
        raise CrowdshotError(
            f"has the columns {listing(header)}",
            where=source,
            found=header[:10],
            expected="columns for the annotator, right and wrong",
        )
    return names[0], called.index("right"), called.index("wrong")


def _counts(name: Any, record: Any) -> tuple[float, float]:
    if isinstance(record, str) and record.strip().lower() == "expert":
        return EXPERT
    try:
        right, wrong = (float(number) for number in record)
    except (TypeError, ValueError):
        right = wrong = math.nan
    if not (0 <= right < math.inf and 0 <= wrong < math.inf):
        raise CrowdshotError(
            f"has {record!r} for annotator {show(name)}",
            argument="priors",
            found=record,
            expected="numbers (right, wrong) of labels, or 'expert'",
        )
    return right, wrong
