"""The result of an aggregator, and the checks of its arguments."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, listing, show
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.gold_labels import Gold, as_mapping
from crowdshot.labels.indexing import Positions, as_index, positions
from crowdshot.model.parts import Aggregator, Part, PosteriorMatrix, Sizes, parts_of
from crowdshot.model.posteriors import believe, likeliest

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Consensus:
    """Consensus labels and class probabilities, in the order of ``Annotations.items`` and ``.classes``.

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
    """

    labels: NDArray[Any]
    probabilities: PosteriorMatrix
    class_probs: Floats
    confusion: Floats | None = None
    log_posterior: Floats | None = None

    def to_frame(self, ann: Annotations) -> pd.DataFrame:
        """Return a table with one row per item: item, label, confidence, n_labels, agreement.

        The item and label columns keep the names of the input. ``agreement`` is the share of the item's labels that
        equal the consensus label, NaN for items without labels.
        """
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


class Crowd(NamedTuple):
    """A crowd in memory, in parts as aggregators take it (`crowdshot.model.parts`)."""

    sizes: Sizes
    parts: list[Part]
    known: Positions  # (N,) known classes, -1 for items without gold

    def run(self, aggregator: Aggregator) -> tuple[Any, PosteriorMatrix]:
        """Return the aggregator's final state and the posteriors (N, K)."""
        return believe(aggregator, self.parts)


def crowd_of(ann: Annotations, gold: Gold = None) -> Crowd:
    sizes = Sizes(ann.n_items, ann.n_annotators, ann.n_classes)
    known = np.full(ann.n_items, -1)
    item, label = gold_positions(ann, gold)
    known[item] = label
    fixed = known if len(item) else None
    return Crowd(sizes, parts_of(ann.item, ann.annotator, ann.label, sizes, fixed), known)


def gold_positions(ann: Annotations, gold: Gold) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return two arrays (G,): positions of the items with gold, and of their classes."""
    known = as_mapping(gold, ann)
    items, labels = list(known), list(known.values())
    item, label = positions(ann.items, items), positions(ann.classes, labels)
    if (item < 0).any():
        unknown = items[first(item < 0)]
        raise CrowdshotError(
            f"names item {show(unknown)}, which nobody labelled",
            argument="gold",
            found=unknown,
            expected="labelled items only",
        )
    if (label < 0).any():
        row = first(label < 0)
        raise CrowdshotError(
            f"has label {show(labels[row])} for item {show(items[row])}",
            argument="gold",
            found=labels[row],
            expected=f"one of {listing(ann.classes)}",
        )
    return item, label


def check_numbers(steps: int, **numbers: float) -> None:
    """Raise an error unless ``steps`` is a positive integer and the other numbers are finite and not negative."""
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise CrowdshotError(f"is {steps!r}", argument="steps", found=steps, expected="a whole number, 1 or more")
    for name, value in numbers.items():
        if not (math.isfinite(value) and value >= 0):
            raise CrowdshotError(f"is {value!r}", argument=name, found=value, expected="a number, 0 or more")
