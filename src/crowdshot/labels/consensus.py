"""Define consensus labels, thresholds and intervals of probabilities, and the uncertainty of posteriors."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import betaincinv

from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import Ids, Positions, as_index
from crowdshot.labels.annotations import Annotations
from crowdshot.model.parts import PosteriorMatrix
from crowdshot.model.posteriors import likeliest

Floats = NDArray[np.float64]

THRESHOLD = 0.9  # an item is accepted when its label is at least this probable
INTERVAL = 0.9  # probability of the intervals from low to high
REVIEW_KINDS = {  # {kind of item that needs review: its name}
    "open": "Not accepted",
    "overruled": "Accepted against the majority",
    "unlabelled": "Unlabelled and not accepted",
}


def uncertainty(posterior: PosteriorMatrix) -> Floats:
    """Return 1 - Σ p² of each posterior, (..., K) -> (...).

    This is the error rate of a label that is drawn from the posterior (Gini impurity).
    """
    squares = np.square(posterior) if isinstance(posterior, np.ndarray) else posterior.multiply(posterior)
    out: Floats = 1 - squares.sum(-1)
    return out


# ---- accepted items, and items that need review ----


def is_accepted(confidence: Floats, threshold: float = THRESHOLD) -> NDArray[np.bool_]:
    """Return which items (N,) are accepted: their confidence is at least the threshold."""
    return np.asarray(confidence >= threshold)


def is_overruled(votes: Floats, label: Positions) -> NDArray[np.bool_]:
    """Return for which items (N,) another class has more of the ``votes`` (N, K) than the consensus ``label``."""
    return np.asarray(votes[np.arange(len(label)), label] < votes.max(1))


def review_kinds(
    confidence: Floats, labelled: NDArray[np.bool_], overruled: NDArray[np.bool_], threshold: float = THRESHOLD
) -> dict[str, NDArray[np.bool_]]:
    """Return which items (N,) need review, by kind: a key of `REVIEW_KINDS`. No item is of two kinds.

    - "open": it has labels and is not accepted;
    - "overruled": it has labels and is accepted, but another class has more labels;
    - "unlabelled": it has no labels and is not accepted.
    """
    accepted = is_accepted(confidence, threshold)
    return {
        "open": labelled & ~accepted,
        "overruled": labelled & accepted & overruled,
        "unlabelled": ~labelled & ~accepted,
    }


def kinds_in_words(kinds: Mapping[str, int]) -> str:
    """Return the numbers of items to review by kind.

    >>> kinds_in_words({"open": 13, "overruled": 1, "unlabelled": 0})
    '13 not accepted, 1 accepted against the majority'
    """
    named = {
        "open": "not accepted",
        "overruled": "accepted against the majority",
        "unlabelled": "unlabelled and not accepted",
    }
    return (
        ", ".join(f"{number:,} {named[kind]}" for kind, number in kinds.items() if number) or "every item is accepted"
    )


class Unanimous(NamedTuple):
    """Items whose ``n_labels`` labels all agree: their number, and the median of their confidence."""

    n_labels: int
    items: int
    confidence: float


def agreeing_labels(n_labels: Positions, unanimous: NDArray[np.bool_], confidence: Floats) -> list[Unanimous]:
    """Return the confidence that agreeing labels reach, by number of labels, ascending.

    Parameters
    ----------
    n_labels : array (N,)
        The number of labels of each item.
    unanimous : array (N,)
        Whether all labels of the item are its consensus label.
    confidence : array (N,)
    """
    unanimous = unanimous & (n_labels > 0)
    return [
        Unanimous(n, int(rows.sum()), float(np.median(confidence[rows])))
        for n in np.unique(n_labels[unanimous]).tolist()
        for rows in [unanimous & (n_labels == n)]
    ]


# ---- intervals ----


def interval(hits: Any, misses: Any) -> tuple[Any, Any]:
    """Return the limits of the central `INTERVAL` of Beta(hits, misses)."""
    return betaincinv(hits, misses, (1 - INTERVAL) / 2), betaincinv(hits, misses, (1 + INTERVAL) / 2)


class Share(NamedTuple):
    """A proportion with its Jeffreys interval."""

    hits: int  # rounded if hits are probabilities
    of: int
    low: float
    high: float

    share: float

    @classmethod
    def of_all(cls, right: NDArray[np.bool_] | NDArray[np.float64]) -> Share | None:
        """Return the share of ``right`` (n,), truth values or probabilities; None if n is 0."""
        hits, n = float(right.sum()), len(right)
        if n == 0:
            return None
        low, high = interval(hits + 0.5, n - hits + 0.5)
        return cls(round(hits), n, float(low), float(high), hits / n)


@dataclass(frozen=True, eq=False)
class Consensus:
    """Consensus labels and class probabilities, in the order of ``items`` and ``Annotations.classes``.

    With very many classes, ``probabilities`` is a SciPy sparse array with the classes that somebody named for an item,
    and ``confusion`` is None.

    Attributes
    ----------
    labels : array of shape (N,)
        The most probable class; of equally probable ones the first in the order of the classes.
    probabilities : array of shape (N, K)
    class_probs : array of shape (K,)
    confusion : array of shape (R, K true, K observed) or None
        None after a vote.
    log_posterior : array or None
        After each EM step, up to a constant; without priors it is the log-likelihood.
    annotations : Annotations or None
        The aggregated labels.
    """

    labels: NDArray[Any]
    probabilities: PosteriorMatrix
    class_probs: Floats
    confusion: Floats | None = None
    log_posterior: Floats | None = None
    annotations: Annotations | None = None

    @property
    def items(self) -> Ids:
        """Ids of the items, (N,)."""
        return np.arange(len(self.labels)) if self.annotations is None else self.annotations.items

    def to_frame(self, ann: Annotations | None = None) -> pd.DataFrame:
        """Return a table with one row per item: item, label, confidence, n_labels, agreement.

        The item and label columns keep the names of the input. ``agreement`` is the share of the item's labels that
        equal the consensus label, NaN for items without labels. ``ann`` is needed only if ``annotations`` is None.
        """
        ann = self.annotations if ann is None else ann
        if ann is None:
            raise CrowdshotError("is missing", argument="ann", expected="the aggregated labels")
        consensus, confidence = likeliest(self.probabilities)
        n_labels, agreement = agreed(ann.item, ann.label, consensus)
        return pd.DataFrame(
            {
                ann.columns.item: as_index(ann.items),
                ann.columns.label: self.labels,
                "confidence": confidence,
                "n_labels": n_labels,
                "agreement": agreement,
            }
        )


def agreed(item: Positions, label: NDArray[Any], consensus: Positions) -> tuple[Positions, Floats]:
    """Return two arrays (N,): each item's number of labels, and the share of them that equal the consensus label."""
    n_labels = np.bincount(item, minlength=len(consensus))
    agreement = np.full(len(consensus), np.nan)
    same = np.bincount(item, label == consensus[item], len(consensus))
    np.divide(same, n_labels, out=agreement, where=n_labels > 0)
    return n_labels, agreement


def check_numbers(steps: int, **numbers: float) -> None:
    """Raise an error unless ``steps`` is a positive integer and the other numbers are finite and not negative."""
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise CrowdshotError(f"is {steps!r}", argument="steps", found=steps, expected="a whole number, 1 or more")
    for name, value in numbers.items():
        if not (math.isfinite(value) and value >= 0):
            raise CrowdshotError(f"is {value!r}", argument=name, found=value, expected="a number, 0 or more")
