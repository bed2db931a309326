"""The version of the service: everything that requests read, computed from all labels in a separate process."""

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
from crowdshot.io.cells import Ids, Positions, positions, unique_ids
from crowdshot.labels import asking, gold_labels
from crowdshot.labels.aggregation import aggregate_labels
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import AnnotatorPriors, judge
from crowdshot.labels.columns import Columns
from crowdshot.labels.consensus import THRESHOLD, Floats
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.labels.matching import file_finder, match_files, named_like
from crowdshot.service.journal import State
from crowdshot.service.schemas import Annotator

NEW_ANNOTATOR = "\N{REPLACEMENT CHARACTER} somebody new"


@dataclass(frozen=True)
class Version:
    """The results of a fit.

    Attributes
    ----------
    row : int
        The last row of the journal that the fit used.
    posterior : array (N, K)
        Class probabilities of the items of the annotations.
    confusion : array (R + 1, K, K)
        Expected confusion matrices of each `person` and, last, of a new annotator.
    seen : int
        The first ``seen`` items have images, texts or features; the others have only labels.
    several : bool
        Whether a class is a set of labels.
    history : AnnotatorPriors
        Records of the annotators from other projects.
    aliases : dict
        Positions of items by other names that labels use.
    files : bool
        Whether the items are files.
    names : dict
        {written name: merged name} of annotators.
    page : str
        The live page as HTML.
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
        """Positions of the items by all their names."""
        return {str(name): row for row, name in enumerate(self.annotations.items)} | self.aliases

    def find(self, name: str) -> int | None:
        """Return the position of an item by any of its names or by its file name in a label tool; None if unknown."""
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
        """Positions of the annotators with labels or a history."""
        return {name: row for row, name in enumerate(known_people(self.annotations, self.history))}

    @cached_property
    def class_place(self) -> dict[str, int]:
        return {str(name): k for k, name in enumerate(self.annotations.classes)}

    @cached_property
    def n_labels(self) -> Any:
        """Number of labels of each item (N,)."""
        return np.bincount(self.annotations.item, minlength=self.annotations.n_items)

    @cached_property
    def confidence(self) -> Floats:
        return np.asarray(self.posterior.max(1))

    @property
    def n_labelled(self) -> int:
        return int((self.n_labels > 0).sum())

    @property
    def n_accepted(self) -> int:
        """Number of labelled items that are accepted."""
        return int(((self.confidence >= THRESHOLD) & (self.n_labels > 0)).sum())

    def label(self, row: int) -> str:
        return str(self.annotations.classes[self.posterior[row].argmax()])

    @cached_property
    def consensus(self) -> list[str]:
        """A JSON object for each item, as text."""
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
    def annotators(self) -> list[Annotator]:
        """The quality of each annotator with labels."""
        names = ("n_labels", "accuracy", "low", "high")
        table = judge(self.annotations, self.posterior, self.history.of(self.annotations.annotators))
        rows = zip(self.annotations.annotators, *(table[name].tolist() for name in names), strict=True)
        return [
            Annotator(annotator=str(name), n_labels=n, accuracy=accuracy, low=low, high=high)
            for name, n, accuracy, low, high in rows
            if n
        ]


def known_people(ann: Annotations, history: AnnotatorPriors) -> list[str]:
    """Return the annotators, followed by those without labels here but with a history."""
    return list(dict.fromkeys([*map(str, ann.annotators), *map(str, history)]))


def expected_answers(ann: Annotations, posterior: Floats, history: AnnotatorPriors) -> Floats:
    """Return expected confusion matrices (R + 1, K, K) of all annotators and of a new one (the last)."""
    people = known_people(ann, history)
    if not isinstance(posterior, np.ndarray):  # sparse: the confusion matrices would not fit into memory
        raise CrowdshotError(
            f"has {ann.n_annotators:,} annotators and {ann.n_classes:,} classes, too many for a service",
            argument="labels",
            hint="`crowdshot next` can choose questions for labels of any size.",
        )
    if ann.n_classes < 2:  # with one class, every answer is correct
        return np.ones((len(people) + 1, ann.n_classes, ann.n_classes))
    with_new = replace(ann, annotators=unique_ids([*people, NEW_ANNOTATOR], "annotators"))
    expected: Floats = asking.expected_confusion(with_new, posterior, history.of(with_new.annotators))
    return expected


# ---- fitting ----

Reading = Callable[[Sequence[LabelsRead]], LabelsRead]


@dataclass(frozen=True)
class Sources:
    """The inputs of the service.

    ``parts`` are the label files as they were read, and ``read`` joins them with other labels. ``items``, their
    ``embeddings`` (N, D) and the unfitted classifier are either all set or all None.
    """

    parts: Sequence[LabelsRead]
    read: Reading
    items: Items | None = None
    embeddings: Tensor | None = None
    clf: CrowdClassifier | None = None


class Fitted(NamedTuple):
    """The result of a fit; ``clf`` is None without items, or if all labels are of one class."""

    read: LabelsRead
    annotations: Annotations
    posterior: Floats
    aliases: dict[str, int]
    seen: int
    clf: CrowdClassifier | None
    files: bool = False


def fit(sources: Sources, later: State) -> Fitted | None:
    """Aggregate all labels and fit the classifier; None if there are no labels."""
    parts = [part for part in (_without(part, later.withdrawn) for part in sources.parts) if part.annotations.n_labels]
    if later.labels:
        frame = pd.DataFrame([answer[:3] for answer in later.labels], columns=list(Columns()), dtype=object)
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
    kept = np.array([(str(item), str(annotator)) not in withdrawn for item, annotator in pairs], dtype=bool)
    return part if kept.all() else part.keep(kept)


def _by_labels(read: LabelsRead) -> Fitted:
    gold = read.gold
    ann, _ = gold_labels.hold(gold_labels.join(read.annotations, gold), gold)
    result = aggregate_labels(read, ann, gold=gold)
    return Fitted(read, result.annotations, result.posterior, {}, 0, None)


def _with_items(sources: Sources, read: LabelsRead) -> Fitted:
    """Fit the classifier to the items; labelled items without image, text or features come last and use labels only."""
    items, embeddings, clf = sources.items, sources.embeddings, sources.clf
    assert items is not None
    assert embeddings is not None
    assert clf is not None
    ann, aliases = _joined(read.annotations, items)
    seen = ann.keep(ann.item < len(items))
    n_classes = len(np.unique(seen.label))
    gold, _ = gold_labels.some_of(read.gold, ann.items)
    posterior = aggregate_labels(read, ann, gold=gold).posterior
    if read.several:  # the classifier knows only the sets that an annotator chose
        posterior = posterior[:, : ann.n_classes] / posterior[:, : ann.n_classes].sum(1, keepdims=True)
    if n_classes < 2:
        return Fitted(read, ann, posterior, aliases, len(items), None, items.are_files)
    known = replace(seen, items=ann.items[: len(items)])
    known_gold = {item: label for item, label in gold.items() if item in set(known.items)}
    clf.fit_embeddings(embeddings, known, items=known.items, gold=known_gold, priors=read.history)
    posterior[: len(items)] = clf.label_proba_
    return Fitted(read, ann, posterior, aliases, len(items), clf, items.are_files)


def _joined(ann: Annotations, items: Items) -> tuple[Annotations, dict[str, int]]:
    """Return the labels with all items, then other labelled items; and the positions of items by other names."""
    row = rows_of(ann.items, items)
    names = np.array(named_like(ann.items, [PurePath(name) for name in items.ids]) if items.are_files else items.ids)
    names = names.astype(object)
    names[row[row >= 0][::-1]] = ann.items[row >= 0][::-1]  # the first name that the labels use
    others = ann.items[row < 0]
    place = row.copy()
    place[row < 0] = len(items) + np.arange(len(others))
    aliases = {str(name): int(at) for name, at in zip(ann.items, place, strict=True)}
    whole = np.concatenate([names, others])
    frame = replace(ann, item=place[ann.item], items=whole).to_frame()
    columns, classes, people = ann.columns, ann.classes, ann.annotators
    return Annotations.from_frame(frame, columns, classes=classes, items=whole, annotators=people), aliases


def rows_of(names: Ids, items: Items) -> Positions:
    """Return the position of the item that each name refers to, -1 for none."""
    return (
        match_files(names, [PurePath(name) for name in items.ids]) if items.are_files else positions(items.ids, names)
    )
