"""What every way from labels to a consensus gives back, and what it may be given besides."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.known_truth import Gold, as_mapping
from crowdshot.labels.positions import as_index, positions
from crowdshot.wording import first, listing, show

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Consensus:
    """What the crowd says about each item, in the order of ``Annotations.items`` and ``.classes``.

    ``labels`` (N,): the most probable class, the first in the order of the classes where several are.
    ``probabilities`` (N, K). ``class_probs`` (K,). ``confusion`` (R, K true, K observed), None after a vote.
    ``log_posterior``: after each EM step, up to a constant; the log-likelihood itself where there is no prior.
    """

    labels: NDArray[Any]
    probabilities: Floats
    class_probs: Floats
    confusion: Floats | None = None
    log_posterior: Floats | None = None

    def to_frame(self, ann: Annotations) -> pd.DataFrame:
        """One row an item, under the names that came in: item, label, confidence, n_labels, agreement.

        ``agreement``: which part of the item's labels is the consensus label, NaN where there is no label.
        """
        votes = ann.vote_counts()
        chosen = self.probabilities.argmax(axis=1)
        every = np.arange(ann.n_items)
        n_labels = votes.sum(axis=1)
        agreement = np.full(ann.n_items, np.nan)
        np.divide(votes[every, chosen], n_labels, out=agreement, where=n_labels > 0)
        return pd.DataFrame(
            {
                ann.columns.item: as_index(ann.items),
                ann.columns.label: self.labels,
                "confidence": self.probabilities[every, chosen],
                "n_labels": n_labels.astype(np.int64),
                "agreement": agreement,
            }
        )


def gold_positions(ann: Annotations, gold: Gold) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions of the items whose class is known, and of that class; two (G,) arrays."""
    known = as_mapping(gold, ann)
    items, labels = list(known), list(known.values())
    item, label = positions(ann.items, items), positions(ann.classes, labels)
    if (item < 0).any():
        raise CrowdshotError(f"gold names item {show(items[first(item < 0)])}, expected labelled items alone.")
    if (label < 0).any():
        row = first(label < 0)
        raise CrowdshotError(
            f"gold has item {show(items[row])} as {show(labels[row])}, expected one of {listing(ann.classes)}."
        )
    return item, label


def check_numbers(steps: int, **numbers: float) -> None:
    if isinstance(steps, bool) or not isinstance(steps, int | np.integer) or steps < 1:
        raise CrowdshotError(f"steps is {steps!r}, expected a whole number, 1 or more.")
    for name, value in numbers.items():
        if not (math.isfinite(value) and value >= 0):
            raise CrowdshotError(f"{name} is {value!r}, expected a number, 0 or more.")
