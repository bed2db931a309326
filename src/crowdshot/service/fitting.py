"""All labels and the items -> what is believed: by the classifier where an item was seen, else by labels alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import NamedTuple

import numpy as np
import pandas as pd
from torch import Tensor

from crowdshot.classifier.classifier import CrowdClassifier
from crowdshot.encoders.items import Items
from crowdshot.files.cells import Ids
from crowdshot.labels import known_truth
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.belief import Floats
from crowdshot.labels.believed import believe
from crowdshot.labels.columns import Columns
from crowdshot.labels.formats.labels import LabelsRead
from crowdshot.labels.matching import match_files, named_like
from crowdshot.labels.positions import Positions, positions
from crowdshot.service.journal import State

Reading = Callable[[Sequence[LabelsRead]], LabelsRead]


@dataclass(frozen=True)
class Sources:
    """What the service was started with. ``parts``: of files, as they have them; ``read`` joins them with others.

    ``items`` and their ``embeddings`` (N, D) with the classifier that is to learn from them, or none of the three.
    """

    parts: Sequence[LabelsRead]
    read: Reading
    items: Items | None = None
    embeddings: Tensor | None = None
    clf: CrowdClassifier | None = None


class Found(NamedTuple):
    """``clf``: the classifier that was fitted, None where labels are all there is to learn from, or have one class."""

    read: LabelsRead
    annotations: Annotations
    belief: Floats
    aliases: dict[str, int]
    seen: int
    clf: CrowdClassifier | None
    files: bool = False


def fit(sources: Sources, later: State) -> Found | None:
    """None where there is no label at all."""
    parts = [part for part in (_without(part, later.withdrawn) for part in sources.parts) if part.annotations.n_labels]
    if later.labels:
        frame = pd.DataFrame([said[:3] for said in later.labels], columns=list(Columns()), dtype=object)
        parts.append(LabelsRead(Annotations.from_frame(frame, Columns(), source="the journal")))
    if not parts:
        return None
    read = sources.read(parts)
    if sources.items is None:
        return _by_labels(read)
    return _with_items(sources, read)


def _without(part: LabelsRead, withdrawn: set[tuple[str, str]]) -> LabelsRead:
    ann = part.annotations
    pairs = zip(ann.items[ann.item], ann.annotators[ann.annotator], strict=True)
    kept = np.array([(str(item), str(who)) not in withdrawn for item, who in pairs], dtype=bool)
    return part if kept.all() else part.keep(kept)


def _by_labels(read: LabelsRead) -> Found:
    gold = read.gold
    ann, _ = known_truth.hold(known_truth.join(read.annotations, gold), gold)
    believed = believe(read, ann, gold=gold)
    return Found(read, believed.annotations, believed.belief, {}, 0, None)


def _with_items(sources: Sources, read: LabelsRead) -> Found:
    """Items that nobody saw come last, and what is believed of them is by labels alone."""
    items, embeddings, clf = sources.items, sources.embeddings, sources.clf
    assert items is not None
    assert embeddings is not None
    assert clf is not None
    ann, aliases = _joined(read.annotations, items)
    seen = ann.keep(ann.item < len(items))
    n_classes = len(np.unique(seen.label))
    gold, _ = known_truth.some_of(read.gold, ann.items)
    belief = believe(read, ann, gold=gold).belief
    if read.several:  # the classifier has the sets that somebody named
        belief = belief[:, : ann.n_classes] / belief[:, : ann.n_classes].sum(1, keepdims=True)
    if n_classes < 2:
        return Found(read, ann, belief, aliases, len(items), None, items.are_files)
    known = replace(seen, items=ann.items[: len(items)])
    there = {item: label for item, label in gold.items() if item in set(known.items)}
    clf.fit_embeddings(embeddings, known, items=known.items, gold=there, priors=read.history)
    belief[: len(items)] = clf.belief_
    return Found(read, ann, belief, aliases, len(items), clf, items.are_files)


def _joined(ann: Annotations, items: Items) -> tuple[Annotations, dict[str, int]]:
    """The labels about all items, then about others; and where items stand that labels have another name for."""
    row = rows_of(ann.items, items)
    names = np.array(named_like(ann.items, [PurePath(name) for name in items.ids]) if items.are_files else items.ids)
    names = names.astype(object)
    names[row[row >= 0][::-1]] = ann.items[row >= 0][::-1]  # as labels call them, by the first of several names
    others = ann.items[row < 0]
    place = row.copy()
    place[row < 0] = len(items) + np.arange(len(others))
    aliases = {str(name): int(at) for name, at in zip(ann.items, place, strict=True)}
    whole = np.concatenate([names, others])
    frame = replace(ann, item=place[ann.item], items=whole).to_frame()
    columns, classes, people = ann.columns, ann.classes, ann.annotators
    return Annotations.from_frame(frame, columns, classes=classes, items=whole, annotators=people), aliases


def rows_of(names: Ids, items: Items) -> Positions:
    """Which of the items each name means, -1 for none."""
    return (
        match_files(names, [PurePath(name) for name in items.ids]) if items.are_files else positions(items.ids, names)
    )
