"""What the service knows at one time: computed from all labels in a process of its own, then swapped in whole."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from torch import Tensor

from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.encoders.items import Items
from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import Ids
from crowdshot.labels import asking, gold_labels
from crowdshot.labels.aggregation import aggregate_labels
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_priors import AnnotatorPriors
from crowdshot.labels.annotator_quality import judge
from crowdshot.labels.columns import Columns
from crowdshot.labels.confidence import THRESHOLD, Floats
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.labels.indexing import Positions, positions, unique_ids
from crowdshot.labels.matching import file_finder, match_files, named_like
from crowdshot.service.journal import State

NOBODY = "\N{REPLACEMENT CHARACTER} somebody new"


@dataclass(frozen=True)
class Version:
    """``row``: of the journal, up to which its labels count. ``posterior`` (N, K) of the annotations' items.

    ``confusion`` (R + 1, K, K): what each `person` may be expected to answer and, last, somebody new. ``seen``: of how
    many items, the first ones, there is more than labels; ``files``: whether these are files. ``aliases``: where items
    stand by other names that labels have for them. ``several``: whether a class is a set of labels. ``history``: of
    annotators, elsewhere. ``names``: of annotators who are called otherwise than labels have it, {written: name}.
    ``page``: for people to read.
    """

    number: int
    row: int
    annotations: Annotations
    posterior: Floats
    confusion: Floats
    seen: int = 0
    several: bool = False
    history: AnnotatorPriors = field(default_factory=lambda: AnnotatorPriors({}))
    aliases: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    files: bool = False
    names: dict[str, str] = field(default_factory=dict)
    page: str = field(default="", repr=False)

    @cached_property
    def place(self) -> dict[str, int]:
        """Where an item stands, by all names that it was called."""
        return {str(name): row for row, name in enumerate(self.annotations.items)} | self.aliases

    def find(self, name: str) -> int | None:
        """Also by the name of a file, as a label tool writes it; None where it is nowhere."""
        row = self.place.get(name)
        if row is None and self.files and name:
            found = self._file_called(name)
            row = found if found >= 0 else None
        return row

    @cached_property
    def _file_called(self) -> Callable[[str], int]:
        return file_finder([PurePath(str(name)) for name in self.annotations.items[: self.seen]])

    @cached_property
    def person(self) -> dict[str, int]:
        """Where each stands who is known, by labels or by their history."""
        return {name: row for row, name in enumerate(known_people(self.annotations, self.history))}

    @cached_property
    def class_place(self) -> dict[str, int]:
        return {str(name): k for k, name in enumerate(self.annotations.classes)}

    @cached_property
    def n_labels(self) -> Any:
        """(N,)"""
        return np.bincount(self.annotations.item, minlength=self.annotations.n_items)

    @cached_property
    def confidence(self) -> Floats:
        return np.asarray(self.posterior.max(1))

    @property
    def n_labelled(self) -> int:
        return int((self.n_labels > 0).sum())

    @property
    def n_accepted(self) -> int:
        """Of the labelled items."""
        return int(((self.confidence >= THRESHOLD) & (self.n_labels > 0)).sum())

    def label(self, row: int) -> str:
        return str(self.annotations.classes[self.posterior[row].argmax()])

    @cached_property
    def consensus(self) -> list[str]:
        """A JSON object for each item."""
        votes = self.annotations.vote_counts()
        best = self.posterior.argmax(1)
        return [
            json.dumps(
                {
                    "item": str(item),
                    "label": str(self.annotations.classes[k]),
                    "confidence": float(self.posterior[row, k]),
                    "n_labels": int(self.n_labels[row]),
                    "agreement": float(votes[row, k] / self.n_labels[row]) if self.n_labels[row] else None,
                }
            )
            for row, (item, k) in enumerate(zip(self.annotations.items, best, strict=True))
        ]

    @cached_property
    def annotators(self) -> list[dict[str, Any]]:
        """A JSON object for each who gave a label."""
        names = ("n_labels", "accuracy", "low", "high")
        table = judge(self.annotations, self.posterior, self.history.of(self.annotations.annotators))
        rows = zip(self.annotations.annotators, *(table[name].tolist() for name in names), strict=True)
        return [{"annotator": str(who), **dict(zip(names, said, strict=True))} for who, *said in rows if said[0]]


def known_people(ann: Annotations, history: AnnotatorPriors) -> list[str]:
    """The annotators, then those who said nothing here but have a history."""
    return list(dict.fromkeys([*map(str, ann.annotators), *map(str, history)]))


def expected_answers(ann: Annotations, posterior: Floats, history: AnnotatorPriors) -> Floats:
    """(R + 1, K, K): `asking.expected_confusion`, and of somebody new; where there is one class, nobody errs."""
    people = known_people(ann, history)
    if not isinstance(posterior, np.ndarray):  # `Sizes.sparse`: no table holds what everybody may be expected to answer
        raise CrowdshotError(
            f"labels has {ann.n_annotators:,} annotators and {ann.n_classes:,} classes, expected fewer for a service; "
            "`crowdshot next` asks about as many as there are."
        )
    if ann.n_classes < 2:
        return np.ones((len(people) + 1, ann.n_classes, ann.n_classes))
    with_new = replace(ann, annotators=unique_ids([*people, NOBODY], "annotators"))
    expected: Floats = asking.expected_confusion(with_new, posterior, history.of(with_new.annotators))
    return expected


# ---- fitting ------------------------------------------------------------
#
# All labels and the items -> what is believed: by the classifier where an item was seen, else by labels alone.


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
    posterior: Floats
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
    ann, _ = gold_labels.hold(gold_labels.join(read.annotations, gold), gold)
    believed = aggregate_labels(read, ann, gold=gold)
    return Found(read, believed.annotations, believed.posterior, {}, 0, None)


def _with_items(sources: Sources, read: LabelsRead) -> Found:
    """Items that nobody saw come last, and what is believed of them is by labels alone."""
    items, embeddings, clf = sources.items, sources.embeddings, sources.clf
    assert items is not None
    assert embeddings is not None
    assert clf is not None
    ann, aliases = _joined(read.annotations, items)
    seen = ann.keep(ann.item < len(items))
    n_classes = len(np.unique(seen.label))
    gold, _ = gold_labels.some_of(read.gold, ann.items)
    posterior = aggregate_labels(read, ann, gold=gold).posterior
    if read.several:  # the classifier has the sets that somebody named
        posterior = posterior[:, : ann.n_classes] / posterior[:, : ann.n_classes].sum(1, keepdims=True)
    if n_classes < 2:
        return Found(read, ann, posterior, aliases, len(items), None, items.are_files)
    known = replace(seen, items=ann.items[: len(items)])
    there = {item: label for item, label in gold.items() if item in set(known.items)}
    clf.fit_embeddings(embeddings, known, items=known.items, gold=there, priors=read.history)
    posterior[: len(items)] = clf.label_proba_
    return Found(read, ann, posterior, aliases, len(items), clf, items.are_files)


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
