"""What every way from labels to a consensus gives back, and what it may be given besides."""

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
    """What the crowd says about each item, in the order of ``Annotations.items`` and ``.classes``.

    ``labels`` (N,): the most probable class, the first in the order of the classes where several are.
    ``probabilities`` (N, K). ``class_probs`` (K,). ``confusion`` (R, K true, K observed), None after a vote. Where
    classes are many, ``probabilities`` are a SciPy sparse array, in which an item has the classes that somebody named
    for it, and ``confusion`` is None.
    ``log_posterior``: after each EM step, up to a constant; the log-likelihood itself where there is no prior.
    """

    labels: NDArray[Any]
    probabilities: PosteriorMatrix
    class_probs: Floats
    confusion: Floats | None = None
    log_posterior: Floats | None = None

    def to_frame(self, ann: Annotations) -> pd.DataFrame:
        """One row an item, under the names that came in: item, label, confidence, n_labels, agreement.

        ``agreement``: which part of the item's labels is the consensus label, NaN where there is no label.
        """
        chosen, confidence = likeliest(self.probabilities)
        n_labels, agreement = agreed(ann.item, ann.label, chosen)
        return pd.DataFrame(
            {
                ann.columns.item: as_index(ann.items),
                ann.columns.label: self.labels,
                "confidence": confidence,
                "n_labels": n_labels,
                "agreement": agreement,
            }
        )


def agreed(item: Positions, label: NDArray[Any], chosen: Positions) -> tuple[Positions, Floats]:
    """(N,), (N,): how many labels items have, and which part of them is the one chosen, NaN of none."""
    n_labels = np.bincount(item, minlength=len(chosen))
    agreement = np.full(len(chosen), np.nan)
    same = np.bincount(item, label == chosen[item], len(chosen))
    np.divide(same, n_labels, out=agreement, where=n_labels > 0)
    return n_labels, agreement


class InParts(NamedTuple):
    """A crowd in memory (`crowdshot.model.parts`)."""

    sizes: Sizes
    parts: list[Part]
    known: Positions  # (N,) the class of items whose truth is known, else -1

    def believe(self, way: Aggregator) -> tuple[Any, PosteriorMatrix]:
        """What is known of the crowd in the end, and (N, K)."""
        return believe(way, self.parts)


def in_parts(ann: Annotations, gold: Gold = None) -> InParts:
    sizes = Sizes(ann.n_items, ann.n_annotators, ann.n_classes)
    known = np.full(ann.n_items, -1)
    item, label = gold_positions(ann, gold)
    known[item] = label
    held = known if len(item) else None
    return InParts(sizes, parts_of(ann.item, ann.annotator, ann.label, sizes, held), known)


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
