"""Fit a classifier to files of labels and items, for `adapt` and `next`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import pandas as pd
from torch import Tensor

from crowdshot._cli.inputs import ItemFiles, LabelFiles
from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.classifier.feature_learners import FEATURES, SEVERAL
from crowdshot.classifier.learner_contract import check_classes, known_of
from crowdshot.classifier.learners import AUTO
from crowdshot.encoders.items import Items, check_kind, find_readable
from crowdshot.errors import CrowdshotError, Use
from crowdshot.io.cells import Positions, positions
from crowdshot.io.embedding_store import embedding_cache
from crowdshot.labels import gold_labels
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.formats.label_file import UNLABELLED_TASKS, LabelsRead
from crowdshot.labels.matching import named_like, rows_of
from crowdshot.labels.working_times import working_table
from crowdshot.methods import MethodName, find
from crowdshot.progress import progress
from crowdshot.report.result_tables import check_columns
from crowdshot.report.summary import MethodUsed

NOUNS = {"images": "an image", "features": "features", "texts": "a text"}


@dataclass(frozen=True)
class FittedFromFiles:
    """A fitted classifier with its labels, its items and their embeddings (N, D).

    ``left_out`` maps a reason to the number or the names of what was not used.
    """

    clf: CrowdClassifier
    labels: LabelsRead
    items: Items
    embeddings: Tensor
    left_out: dict[str, int | list[str]]

    @cached_property
    def working(self) -> pd.DataFrame:
        """When, how fast and how evenly annotators work (`labels.working_times`)."""
        return working_table(self.labels, self.clf.annotations_, self.clf.label_proba_)


def fit(
    labels: LabelFiles,
    item_files: ItemFiles,
    method: str = AUTO,
    settings: Mapping[str, Any] | None = None,
    anonymous: bool = False,
) -> FittedFromFiles:
    """Fit a classifier; check all files before the slow work begins.

    Parameters
    ----------
    labels : LabelFiles
        The labels.
    item_files : ItemFiles
        The items.
    method : str
        The name of the method.
    settings : mapping, optional
        The settings of the method.
    anonymous : bool
        Whether to replace the names of annotators by numbers.
    """
    items = item_files.open(None if item_files.encoder in (None, "table") else False)
    clf = CrowdClassifier(item_files.encoder or "auto", method=cast(MethodName, method), settings=settings)
    if labels.multi_label:
        clf.set_params(**by_sets(method, settings))
    if item_files.encoder is not None:
        named = clf._choose_encoder(items.X)
        check_kind(named, items, f"encoder {item_files.encoder}")
        clf.set_params(encoder=named)
    read = labels.read().without_names() if anonymous else labels.read()
    check_columns(read.annotations.columns, str(labels))
    items = _named_as_in_labels(items, read.annotations)
    annotations, unmatched = _match(read.annotations, items, item_files.skip_bad)
    with embedding_cache(), progress(f"checking {items.kind}") as tick:
        kept, unreadable = find_readable(items, item_files.skip_bad, tick)
    order = _in_label_order(read.annotations, annotations, kept)
    if not np.isin(order, annotations.item).any():
        raise CrowdshotError("No labelled item can be read", argument="labels", where=str(labels))
    items, annotations = items.take(order), annotations.select_items(annotations.items[order])
    files = [Path(name) for name in items.ids] if items.are_files else None
    gold, others = gold_labels.some_of(read.gold, annotations.items, files, labels.gold)
    check_classes(*known_of(annotations, gold))

    if items.kind == "images":  # embedding ahead first learns encoders that depend on the items, and only once
        item_files.embed_ahead(items.paths, clf._learner().reader(clf._choose_encoder(items.X)))
    with embedding_cache(), progress("embedding") as tick:
        embeddings = clf.embed(items.X, progress=tick)
    with progress("fitting"):
        known: dict[str, Any] = {"gold": gold, "priors": read.history, "ordered": read.ordered and not read.several}
        clf.fit_embeddings(embeddings, annotations, items=annotations.items, **known)
    left_out: dict[str, int | list[str]] = {
        **{
            reason: number for reason, number in read.left_out.items() if reason != UNLABELLED_TASKS
        },  # these items are predicted
        f"labelled items without {NOUNS[items.kind]}": unmatched,
        f"unreadable {items.kind}": [image.name for image in unreadable],
        "gold labels of other items": others,
    }
    return FittedFromFiles(clf, read, items, embeddings, left_out)


def by_sets(method: str = AUTO, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the parameters of a classifier for answers with several labels."""
    if method.lower() not in (AUTO, FEATURES.lower()):
        message = f"is {method!r}, which does not support several labels per answer"
        raise CrowdshotError(message, argument="method", found=method, expected=f"{AUTO!r} or {FEATURES!r}")
    return {"method": FEATURES, "settings": {**(settings or {}), SEVERAL: True}}


def _in_label_order(read: Annotations, matched: Annotations, kept: Positions) -> Positions:
    """Return the kept items in the order of the label table, so that results line up with it; the others last."""
    first = positions(matched.items, read.items)
    in_order = dict.fromkeys([*first[first >= 0].tolist(), *range(matched.n_items)])
    readable = set(kept.tolist())
    return np.array([row for row in in_order if row in readable], dtype=np.int64)


def method_of(clf: CrowdClassifier) -> MethodUsed:
    method = find(clf._learner_again().name)
    return MethodUsed(method.name, method.summary, clf.encoder_.card.get("about"))


def _match(annotations: Annotations, items: Items, skip_bad: bool) -> tuple[Annotations, list[str]]:
    """Return the labels with ``items`` as their items, and the labelled items that are not among these."""
    lost: Literal["refuse", "leave out"] = "leave out" if skip_bad else "refuse"
    advice = Use("to leave them out", skip_bad=True)
    what = NOUNS[items.kind].removeprefix("a ").removeprefix("an ")
    if not items.are_files:
        return rows_of(annotations, items.ids, items.source, what, lost, advice)
    files = np.array([Path(name) for name in items.ids], dtype=object)
    matched, others = rows_of(annotations, files, items.source, what, lost, advice, Path(items.source).resolve())
    labelled = set(annotations.items)
    styled = zip(matched.items, named_like(annotations.items, files), strict=True)  # unlabelled items: the same style
    names = [name if name in labelled or like in labelled else like for name, like in styled]
    return replace(matched, items=np.array(names, dtype=object)), others


def _named_as_in_labels(items: Items, annotations: Annotations) -> Items:
    """Name texts by their content if the labels do so, else leave their ids."""
    if items.kind != "texts" or items.are_files or not set(annotations.items).isdisjoint(items.ids):
        return items
    ids = np.array(items.texts, dtype=object)
    if set(annotations.items).isdisjoint(ids):
        return items
    once = np.flatnonzero(~pd.Index(ids).duplicated())
    return replace(items, ids=ids).take(once)
