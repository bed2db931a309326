"""From files of labels and items to a fitted classifier: what `adapt` and `next` begin with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from torch import Tensor

from crowdshot._cli.inputs import ItemFiles, LabelFiles, Report
from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.classifier.feature_learners import FEATURES, SEVERAL
from crowdshot.classifier.learners import AUTO
from crowdshot.classifier.side_information import check_classes, known_of
from crowdshot.encoders.items import Items, check_kind, find_readable
from crowdshot.errors import CrowdshotError
from crowdshot.io.embedding_store import embedding_cache
from crowdshot.labels import gold_labels
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.labels.formats.label_studio import UNLABELLED
from crowdshot.labels.indexing import Positions, positions
from crowdshot.labels.matching import named_like, rows_of
from crowdshot.methods import find
from crowdshot.progress import progress
from crowdshot.report.result_tables import check_columns

WHAT = {"images": "an image", "features": "features", "texts": "a text"}


@dataclass(frozen=True)
class FittedFromFiles:
    """A classifier with what it was fitted with: the labels as read, the items, their embeddings (N, D).

    ``left_out``: what was not used, by reason: how many, or which.
    """

    clf: CrowdClassifier
    labels: LabelsRead
    items: Items
    embeddings: Tensor
    left_out: dict[str, int | list[str]]


def fit(
    labels: LabelFiles,
    given: ItemFiles,
    method: str = AUTO,
    settings: Mapping[str, Any] | None = None,
    anonymous: bool = False,
) -> FittedFromFiles:
    """Whatever is wrong with the files is told before the work that it would spoil.

    ``anonymous``: annotators are called by numbers.
    """
    items = given.open(None if given.encoder in (None, "table") else False)
    clf = CrowdClassifier(given.encoder or "auto", method=method, settings=settings)
    if labels.multi_label:
        clf.set_params(**by_sets(method, settings))
    if given.encoder is not None:
        named = clf.choose_encoder(items.X)
        check_kind(named, items, f"encoder {given.encoder}")
        clf.set_params(encoder=named)
    read = labels.read().without_names() if anonymous else labels.read()
    check_columns(read.annotations.columns, str(labels))
    items = _as_called(items, read.annotations)
    annotations, unmatched = _match(read.annotations, items, given.skip_bad)
    with embedding_cache(), progress(f"checking {items.kind}") as tick:
        kept, unreadable = find_readable(items, given.skip_bad, tick)
    order = _as_labelled(read.annotations, annotations, kept)
    if not np.isin(order, annotations.item).any():
        raise CrowdshotError(f"{labels} has no label of an item that can be read, expected one at least.")
    items, annotations = items.take(order), annotations.select_items(annotations.items[order])
    files = [Path(name) for name in items.ids] if items.are_files else None
    gold, others = gold_labels.some_of(read.gold, annotations.items, files, labels.gold)
    check_classes(*known_of(annotations, gold))

    if items.kind == "images":  # an encoder that is learned from other items, by `embed`, is learned once
        given.embed_ahead(items.paths, clf.learner().reader(clf.choose_encoder(items.X)))
    with embedding_cache(), progress("embedding") as tick:
        embeddings = clf.embed(items.X, progress=tick)
    with progress("fitting"):
        besides: dict[str, Any] = {"gold": gold, "priors": read.history, "ordered": read.ordered and not read.several}
        clf.fit_embeddings(embeddings, annotations, items=annotations.items, **besides)
    left_out: dict[str, int | list[str]] = {
        **{reason: number for reason, number in read.left_out.items() if reason != UNLABELLED},  # they are predicted
        f"labelled items without {WHAT[items.kind]}": unmatched,
        f"unreadable {items.kind}": [image.name for image in unreadable],
        "gold labels of other items": others,
    }
    return FittedFromFiles(clf, read, items, embeddings, left_out)


def by_sets(method: str = AUTO, settings: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The parameters of a classifier where answers name several labels."""
    if method.lower() not in (AUTO, FEATURES.lower()):
        expected = f"{AUTO!r} or {FEATURES!r} with it, which ask yes or no of each label"
        raise CrowdshotError(f"multi_label is given with method {method!r}, expected {expected}.")
    return {"method": FEATURES, "settings": {**(settings or {}), SEVERAL: True}}


def _as_labelled(read: Annotations, matched: Annotations, kept: Positions) -> Positions:
    """The kept items in the order of the labels' table, so that results can be pasted beside it; the others last."""
    first = positions(matched.items, read.items)
    in_order = dict.fromkeys([*first[first >= 0].tolist(), *range(matched.n_items)])
    readable = set(kept.tolist())
    return np.array([row for row in in_order if row in readable], dtype=np.int64)


def method_of(clf: CrowdClassifier) -> Report:
    """Which one, and in a few words what it does; what it sees items by, where that is worth a word."""
    method, about = find(clf.learner_again().name), clf.encoder_.card.get("about")
    return {"method": method.name, "method_summary": method.summary} | ({"encoder_summary": about} if about else {})


def _match(annotations: Annotations, items: Items, skip_bad: bool) -> tuple[Annotations, list[str]]:
    """The labels about ``items``, all of them in their order; and the labelled items that are not among them."""
    lost: Literal["refuse", "leave out"] = "leave out" if skip_bad else "refuse"
    advice = "skip_bad=True leaves them out"
    what = WHAT[items.kind].removeprefix("a ").removeprefix("an ")
    if not items.are_files:
        return rows_of(annotations, items.ids, items.source, what, lost, advice)
    files = np.array([Path(name) for name in items.ids], dtype=object)
    matched, others = rows_of(annotations, files, items.source, what, lost, advice, Path(items.source).resolve())
    own = set(annotations.items)
    new = zip(matched.items, named_like(annotations.items, files), strict=True)  # of items that nobody labelled
    called = [name if name in own or like in own else like for name, like in new]
    return replace(matched, items=np.array(called, dtype=object)), others


def _as_called(items: Items, annotations: Annotations) -> Items:
    """Texts under the ids that they have or, where labels name an item by its text, under these."""
    if items.kind != "texts" or items.are_files or not set(annotations.items).isdisjoint(items.ids):
        return items
    ids = np.array(items.texts, dtype=object)
    if set(annotations.items).isdisjoint(ids):
        return items
    once = np.flatnonzero(~pd.Index(ids).duplicated())
    return replace(items, ids=ids).take(once)
