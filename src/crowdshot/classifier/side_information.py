"""What is known beside items and their labels, and whether all that leaves something to learn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, listing, show
from crowdshot.labels import gold_labels
from crowdshot.labels.aggregation import check_probabilities
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_priors import PriorsInput, as_priors
from crowdshot.labels.confidence import Floats
from crowdshot.labels.gold_labels import Gold
from crowdshot.labels.indexing import Positions

MOST_CELLS = 200_000_000  # of a table, which is 1.6 GB


@dataclass(frozen=True)
class Known:
    """What is known beside items and their labels.

    ``gold`` (N,): the class of items whose class is known, labelled or not; -1 elsewhere. ``history`` (R, 2): how many
    labels of each annotator were right and wrong in earlier projects; None where nothing is known of anybody.
    ``weight`` (N,): what each item teaches; None where all count once. ``pred_probs`` (N, K): what another classifier
    says of the items, NaN where it says nothing. ``ordered``: classes are in order, so that a neighbour is the likelier
    mistake.
    """

    gold: Positions
    history: Floats | None = None
    weight: Floats | None = None
    pred_probs: Floats | None = None
    ordered: bool = False

    @classmethod
    def nothing(cls, n_items: int) -> Known:
        return cls(np.full(n_items, -1, dtype=np.int64))

    def without_gold(self) -> Known:
        return replace(self, gold=np.full_like(self.gold, -1))

    def hide(self, rows: Positions) -> Known:
        """All but what is known of these items."""
        gold, said = self.gold.copy(), None if self.pred_probs is None else self.pred_probs.copy()
        gold[rows] = -1
        if said is not None:
            said[rows] = np.nan
        return replace(self, gold=gold, pred_probs=said)

    def refuse(self, method: str, expected: str, name: str) -> None:
        """For a way to learn that has no use for it."""
        if getattr(self, name) is not None:
            called = "sample_weight" if name == "weight" else name
            raise CrowdshotError(f"{called} is given with method {method!r}, expected {expected} with it.")

    def of(self, rows: Positions) -> Known:
        """Of these items alone."""
        weight, said = (None if each is None else each[rows] for each in (self.weight, self.pred_probs))
        return replace(self, gold=self.gold[rows], weight=weight, pred_probs=said)

    def rows_of(self, annotations: Annotations) -> Positions:
        """(n,) the items that somebody labelled, or gold did."""
        out: Positions = np.union1d(annotations.item, np.flatnonzero(self.gold >= 0))
        return out

    def classes_of(self, annotations: Annotations) -> Positions:
        """(k,) the classes that somebody named, of items that count, or gold did."""
        said = annotations.label
        if self.weight is not None:
            said = said[self.weight[annotations.item] > 0]
        out: Positions = np.unique(np.concatenate([said, self.gold[self.gold >= 0]]))
        return out

    def among(self, place: Positions) -> Known:
        """The same with what was class k called ``place[k]``, -1 where it is not there any more."""
        gold = np.where(self.gold < 0, -1, place[self.gold])
        if self.pred_probs is None:
            return replace(self, gold=gold)
        said = self.pred_probs[:, np.argsort(place)[(place < 0).sum() :]]
        total = said.sum(1, keepdims=True)
        return replace(self, gold=gold, pred_probs=np.divide(said, total, np.full_like(said, np.nan), where=total > 0))


def known_of(
    annotations: Annotations,
    gold: Gold,
    priors: PriorsInput = None,
    items: Sequence[Any] | None = None,
    closed: bool = False,
    sample_weight: Any = None,
    pred_probs: Any = None,
    ordered: bool = False,
) -> tuple[Annotations, Known]:
    """The annotations, with gold's classes unless ``closed``, and what is known besides; arguments as in fit."""
    given = gold_labels.as_mapping(gold, annotations)
    rows = gold_labels.find_items(list(given), annotations.items, items)
    if (rows < 0).any():
        stranger = show(list(given)[first(rows < 0)])
        raise CrowdshotError(f"gold names item {stranger}, expected items of X, {listing(annotations.items, 1)}.")
    gold = dict(zip(annotations.items[rows].tolist(), given.values(), strict=True))
    held, known = gold_labels.hold(annotations, gold)
    if closed and held.n_classes > annotations.n_classes:
        strange = next(label for label in held.classes if label not in annotations.classes)
        raise CrowdshotError(
            f"gold has {show(strange)}, expected one of the classes given, {listing(annotations.classes)}."
        )
    history = as_priors(priors).of(annotations.annotators)
    weight = weights_of(in_order_of(sample_weight, items), annotations.n_items)
    said = None if pred_probs is None else check_probabilities(held, pred_probs, items)
    return held, Known(known, history if history.any() else None, weight, said, ordered)


def in_order_of(given: Any, items: Sequence[Any] | None) -> Any:
    """A Series that names its rows as X does, in X's order; anything else as it is."""
    if items is None or not isinstance(given, pd.Series) or not given.index.is_unique:
        return given
    names = pd.Index(list(items))
    return given.loc[names] if len(given) == len(names) and names.isin(given.index).all() else given


def weights_of(sample_weight: Any, n_items: int) -> Floats | None:
    """(N,), checked; None where all items count once."""
    if sample_weight is None:
        return None
    try:
        weight = np.array(sample_weight, dtype=np.float64)
    except (TypeError, ValueError):
        raise CrowdshotError("sample_weight is no list of numbers, expected one for each item.") from None
    if weight.ndim == 0:
        weight = np.full(n_items, float(weight))
    if weight.shape != (n_items,):
        raise CrowdshotError(
            f"sample_weight is of shape {weight.shape}, expected ({n_items},), a number for each item."
        )
    bad = ~(np.isfinite(weight) & (weight >= 0))
    if bad.any():
        raise CrowdshotError(f"sample_weight has {weight[first(bad)]:g} in it, expected numbers, 0 or more.")
    if not weight.any():
        raise CrowdshotError("sample_weight is zero for every item, expected one at least that counts.")
    return None if (weight == 1).all() else weight


def check_classes(annotations: Annotations, known: Known, listed: bool = True) -> None:
    """There must be something to tell apart, in tables that memory holds.

    ``listed``: somebody said that these are classes.
    """
    classes, numbers = annotations.classes, annotations.classes.dtype.kind in "iu"
    if classes.dtype.kind == "f" and not listed:
        odd = next(value for value in classes.tolist() if not value.is_integer())
        raise CrowdshotError(
            f"labels holds {odd!r}, expected names or whole numbers (Unknown label type: continuous); classes= lists"
            " numbers that are classes."
        )
    N, R, K = annotations.n_items, annotations.n_annotators, annotations.n_classes
    if max(R * K, N) * K > MOST_CELLS:
        raise CrowdshotError(
            f"labels has {K:,} classes of {R:,} annotators and {N:,} items, expected at most {MOST_CELLS:,} cells in a"
            " table of annotators by classes by classes and in one of items by classes; aggregate has no such tables."
        )
    named = known.classes_of(annotations)
    if len(named) == 1:
        missing = "; -1 means no label, unless missing=None" if numbers else ""
        only = show(classes[named[0]])
        raise CrowdshotError(f"labels has {only} alone (only one class), expected two classes or more{missing}.")


# ---- weights ------------------------------------------------------------
#
# Items that count more than once, or not at all (``sample_weight``).
#
# An item that counts twice is taken twice: what is learned then is what two such items teach. One that counts nothing
# teaches nothing, and is judged by what the others taught.


POWER = 0.55  # n labels of an item count as n^POWER, as in `model.inference` before anything is known of a crowd
LEAST = 1e-12


def repeated(annotations: Annotations, known: Known) -> tuple[Positions, Annotations, Known]:
    """Which item each of those is that are learned from, (n,), and what is said and known of these."""
    assert known.weight is not None
    if (known.weight != np.round(known.weight)).any():
        row = first(known.weight != np.round(known.weight))
        raise CrowdshotError(
            f"sample_weight has {known.weight[row]:g} for item {show(annotations.items[row])}, expected whole numbers,"
            " as an item that counts twice is taken twice; method='ours' takes any."
        )
    times = known.weight.astype(np.int64)
    rows = np.repeat(np.arange(len(times)), times)
    start = np.cumsum(times) - times
    label = np.repeat(np.arange(len(annotations)), times[annotations.item])
    begin = np.cumsum(times[annotations.item]) - times[annotations.item]
    copy = np.arange(len(label)) - begin[label]
    taught = replace(
        annotations,
        item=start[annotations.item[label]] + copy,
        annotator=annotations.annotator[label],
        label=annotations.label[label],
        items=np.arange(len(rows)),
    )
    said = None if known.pred_probs is None else known.pred_probs[rows]
    return rows, taught, replace(known, gold=known.gold[rows], weight=None, pred_probs=said)


def judged(ann: Annotations, predicted: Floats, confusion: Floats, known: Known) -> Floats:
    """What is believed of items that taught nothing, (N, K): by a classifier (N, K), and labels by (R, K, K)."""
    score = np.log(predicted.clip(LEAST))
    said = np.zeros_like(score)
    np.add.at(said, ann.item, np.log(confusion.clip(LEAST))[ann.annotator, :, ann.label])
    score += said * np.bincount(ann.item, minlength=ann.n_items).clip(1)[:, None] ** (POWER - 1)
    posterior: Floats = np.exp(score - score.max(1, keepdims=True))
    posterior /= posterior.sum(1, keepdims=True)
    told = known.gold >= 0
    posterior[told] = np.eye(posterior.shape[1])[known.gold[told]]
    return posterior
