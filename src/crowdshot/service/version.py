"""What the service knows at one time: computed from all labels in a process of its own, then swapped in whole."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any

import numpy as np

from crowdshot.errors import CrowdshotError
from crowdshot.labels import asking
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_priors import AnnotatorPriors
from crowdshot.labels.annotators import judge
from crowdshot.labels.belief import SETTLED, Floats
from crowdshot.labels.matching import file_finder
from crowdshot.labels.positions import unique_ids

NOBODY = "\N{REPLACEMENT CHARACTER} somebody new"


@dataclass(frozen=True)
class Version:
    """``row``: of the journal, up to which its labels count. ``belief`` (N, K) of the annotations' items.

    ``confusion`` (R + 1, K, K): what each `person` may be expected to answer and, last, somebody new. ``seen``: of how
    many items, the first ones, there is more than labels; ``files``: whether these are files. ``aliases``: where items
    stand by other names that labels have for them. ``several``: whether a class is a set of labels. ``history``: of
    annotators, elsewhere. ``names``: of annotators who are called otherwise than labels have it, {written: name}.
    ``page``: for people to read.
    """

    number: int
    row: int
    annotations: Annotations
    belief: Floats
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
        return np.asarray(self.belief.max(1))

    @property
    def n_labelled(self) -> int:
        return int((self.n_labels > 0).sum())

    @property
    def n_settled(self) -> int:
        """Of the labelled items."""
        return int(((self.confidence >= SETTLED) & (self.n_labels > 0)).sum())

    def label(self, row: int) -> str:
        return str(self.annotations.classes[self.belief[row].argmax()])

    @cached_property
    def consensus(self) -> list[str]:
        """A JSON object for each item."""
        votes = self.annotations.vote_counts()
        best = self.belief.argmax(1)
        return [
            json.dumps(
                {
                    "item": str(item),
                    "label": str(self.annotations.classes[k]),
                    "confidence": float(self.belief[row, k]),
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
        table = judge(self.annotations, self.belief, self.history.of(self.annotations.annotators))
        rows = zip(self.annotations.annotators, *(table[name].tolist() for name in names), strict=True)
        return [{"annotator": str(who), **dict(zip(names, said, strict=True))} for who, *said in rows if said[0]]


def known_people(ann: Annotations, history: AnnotatorPriors) -> list[str]:
    """The annotators, then those who said nothing here but have a history."""
    return list(dict.fromkeys([*map(str, ann.annotators), *map(str, history)]))


def expected_answers(ann: Annotations, belief: Floats, history: AnnotatorPriors) -> Floats:
    """(R + 1, K, K): `asking.expected_confusion`, and of somebody new; where there is one class, nobody errs."""
    people = known_people(ann, history)
    if not isinstance(belief, np.ndarray):  # `Sizes.sparse`: no table holds what everybody may be expected to answer
        raise CrowdshotError(
            f"labels has {ann.n_annotators:,} annotators and {ann.n_classes:,} classes, expected fewer for a service; "
            "`crowdshot next` asks about as many as there are."
        )
    if ann.n_classes < 2:
        return np.ones((len(people) + 1, ann.n_classes, ann.n_classes))
    with_new = replace(ann, annotators=unique_ids([*people, NOBODY], "annotators"))
    expected: Floats = asking.expected_confusion(with_new, belief, history.of(with_new.annotators))
    return expected
