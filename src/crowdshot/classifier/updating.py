"""What a classifier was fitted with, and more of it: labels, items, annotators."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import PurePath
from typing import Any

import numpy as np
import pandas as pd

from crowdshot.classifier.known import Known
from crowdshot.errors import CrowdshotError
from crowdshot.files.cells import Ids
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.class_order import categories_order
from crowdshot.labels.matching import annotations_of, mark_of
from crowdshot.labels.positions import ordered, positions, unique_ids
from crowdshot.labels.wide import wide_table
from crowdshot.wording import counted, listing, show


def updated(old: Annotations, labels: Any, n_added: int, names: Iterable[Any] | None, missing: Any = -1) -> Annotations:
    """All labels, about the old items and then the added ones; of an annotator's labels of an item the last.

    ``names``: of the added items, else they are counted on. A matrix of labels is about the added items or, where there
    are none, the old ones, row by row; labels that name their items may speak of all. Columns without names are the
    annotators that are known, in their order. ``missing``: as in the fit.
    """
    added = list(range(old.n_items, old.n_items + n_added)) if names is None else list(names)
    if len(added) != n_added:
        raise CrowdshotError(f"items has {len(added)} ids, expected {n_added}, one for each row of X.")
    known = list(old.items)
    there = set(known)
    twice = next((name for name in added if name in there), None)
    if twice is not None:
        raise CrowdshotError(f"X has item {show(twice)}, which is known already, expected new ones alone.")
    if any(isinstance(name, PurePath) for name in added) and all(isinstance(name, str) for name in known):
        known = [PurePath(name) for name in known]  # files: labels may call them by less than their whole path
    named = isinstance(labels, dict | Annotations) or (isinstance(labels, pd.DataFrame) and wide_table(labels) is None)
    about = [*known, *added] if named or not n_added else added
    new = annotations_of(labels, len(about), about, None, mark_of(missing, old.classes))
    if not named:
        new = _by_the_same_people(old, new)
    called = [*old.items.tolist(), *new.items[len(about) - n_added :].tolist()]
    items = unique_ids(called, "items")
    new = new.with_items(np.arange(len(items) - len(about), len(items)), items)
    frames = [part.to_frame().set_axis(list(old.columns), axis=1) for part in (old, new)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # labels that were given again are what an update is for
        return Annotations.from_frame(
            pd.concat(frames, ignore_index=True),
            old.columns,
            items=items,
            annotators=dict.fromkeys([*old.annotators.tolist(), *new.annotators.tolist()]),
            classes=_together(old.classes, new.classes, labels),
        )


def _by_the_same_people(old: Annotations, new: Annotations) -> Annotations:
    """A matrix whose columns are counted by annotators who have names; one that names numbered annotators is refused.

    Where the known annotators are numbered themselves, columns without names go by number, and more are new people.
    """
    R, width = old.n_annotators, new.n_annotators
    known, called = old.annotators.tolist(), new.annotators.tolist()
    if called == list(range(width)) and not set(range(min(R, width))) <= set(known):
        if width != R:
            columns = counted(width, "columns without names")
            raise CrowdshotError(
                f"labels has {columns}, expected {R}, one for each of {listing(known, 3)}; a DataFrame can name others."
            )
        return replace(new, annotators=old.annotators)
    if known == list(range(R)) and width == R and not set(called) & set(known):
        raise CrowdshotError(
            f"labels has columns {listing(called, 3)}, expected {listing(known, 3)} as in fit; labels.to_numpy() has"
            " them in this order, and a table with a row for each label may add annotators."
        )
    return new


def _together(old: Ids, new: Ids, labels: Any) -> Ids:
    """Old and new classes: as an ordered dtype of the labels has both, sorted if the old ones are, else new ones last.

    An order in which the old ones stand otherwise is none.
    """
    classes = unique_ids(dict.fromkeys([*old.tolist(), *new.tolist()]), "classes")
    said = categories_order(labels, classes)
    if said is not None and (said[np.sort(positions(said, old))] == old).all():
        return said
    return ordered(classes) if (ordered(old) == old).all() else classes


def gold_of(ann: Annotations, known: Known) -> dict[Any, Any]:
    rows = (known.gold >= 0).nonzero()[0]
    return dict(zip(ann.items[rows].tolist(), ann.classes[known.gold[rows]].tolist(), strict=True))


def carried(old: Annotations, before: Known, new: Annotations, known: Known) -> Known:
    """What was known besides, of old items and annotators; new ones count once, and no classifier spoke of them."""
    added = new.n_items - old.n_items
    history = weight = said = None
    if before.history is not None:
        history = np.zeros((new.n_annotators, 2))
        history[positions(new.annotators, old.annotators)] = before.history
    if before.weight is not None:
        weight = np.append(before.weight, np.ones(added))
    if before.pred_probs is not None:
        said = np.zeros((new.n_items, new.n_classes))
        said[: old.n_items, positions(new.classes, old.classes)] = before.pred_probs
        said[old.n_items :] = np.nan
    return replace(known, history=history, weight=weight, pred_probs=said, ordered=before.ordered)
