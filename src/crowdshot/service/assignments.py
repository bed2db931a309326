"""What to ask somebody next, while others answer: `labels.asking` for one annotator at a time, in milliseconds.

What a version does not know yet counts too: labels that came since, by Bayes' rule, and questions that others were
given a short while ago, whose answers are taken for given as `asking` does, so that two people are not sent to the same
item where another needs them more.
"""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

import numpy as np

from crowdshot.labels import asking
from crowdshot.labels.confidence import Floats
from crowdshot.labels.indexing import Positions
from crowdshot.service.journal import Said
from crowdshot.service.snapshot import Version

PATIENCE = 120.0  # seconds after which a question that was not answered is asked of others
MOST_WAITING = 500  # questions that are remembered
LEAST = 100  # items that are looked at, however many classes
MOST_WORK = 20_000_000  # products of numbers for one request, so that the others need not wait


class Asked(NamedTuple):
    item: str
    annotator: str
    until: float


class Waiting:
    """Labels that came after the version, and questions that are out."""

    def __init__(self) -> None:
        self.since: dict[str, dict[str, str | None]] = {}  # {item: {annotator: label}}
        self.asked: deque[Asked] = deque(maxlen=MOST_WAITING)
        self._version: Version | None = None  # of which `_posterior` is, with what came since
        self._posterior: Floats = np.zeros((0, 0))

    def heard(self, said: list[Said]) -> None:
        for each in said:
            self.since.setdefault(each.item, {})[each.annotator] = each.label
        if self._version is not None:
            for item in {each.item for each in said}:
                self._hear(self._version, item)
        answered = {(each.item, each.annotator) for each in said}
        self.asked = deque((out for out in self.asked if out[:2] not in answered), MOST_WAITING)

    def swapped(self, later: list[Said]) -> None:
        """A new version knows all labels but these."""
        self.since, self._version = {}, None
        self.heard(later)

    def questions(self, version: Version, annotator: str, n: int) -> list[dict[str, object]]:
        """The best first. Items that the annotator labelled, or was given already, are not asked."""
        now = time.monotonic()
        annotator = version.names.get(annotator, annotator)
        who = version.person.get(annotator, -1)  # the last is somebody new
        ann, posterior, answers = version.annotations, self._posterior_now(version), version.confusion[who, None]
        out = [each for each in self.asked if each.until > now]
        gain = np.full(ann.n_items, -1.0)
        may_be_asked = np.ones(ann.n_items, dtype=bool)
        may_be_asked[self._closed(version, annotator, who, out)] = False
        rows = np.flatnonzero(may_be_asked)
        if not len(rows):
            return []
        rows = _most_doubtful(rows, posterior, MOST_WORK // ann.n_classes**2)
        gain[rows] = asking.gains(posterior[rows], answers)[:, 0] if ann.n_classes > 1 else _unlabelled(version)[rows]
        others = {row: people for row, people in _by_row(version, out, annotator).items() if gain[row] > 0}
        if others and ann.n_classes**3 * len(out) <= MOST_WORK:
            cases = [_answered(version, posterior[row], people) for row, people in others.items()]
            starts = np.cumsum([0, *map(len, cases[:-1])])
            gain[list(others)] = np.add.reduceat(asking.gains(np.concatenate(cases), answers)[:, 0], starts)
        else:  # of many classes there are too many cases: each who was asked leaves half of it
            for row, people in others.items():
                gain[row] /= 2 ** len(people)
        best = np.argsort(-gain, kind="stable")[:n] if n * 20 > len(gain) else _largest(gain, n)
        chosen = [int(row) for row in best if gain[row] >= asking.WORTH]
        names = [str(ann.items[row]) for row in chosen]
        self.asked.extend(Asked(name, annotator, now + PATIENCE) for name in names)
        return [
            {
                "item": name,
                "gain": float(gain[row]),
                "consensus": str(ann.classes[posterior[row].argmax()]),
                "confidence": float(posterior[row].max()),
                "n_labels": int(version.n_labels[row]),
            }
            for name, row in zip(names, chosen, strict=True)
        ]

    def _posterior_now(self, version: Version) -> Floats:
        """With the labels that came since; those of other classes or items wait for the next version."""
        if version is not self._version:
            self._version, self._posterior = version, version.posterior.copy()
            for item in self.since:
                self._hear(version, item)
        return self._posterior

    def _hear(self, version: Version, item: str) -> None:
        """What is believed of an item, by all that was said of it since."""
        row = version.place.get(item)
        if row is None:
            return
        now = version.posterior[row]
        for annotator, label in self.since[item].items():
            k = version.class_place.get(label or "")
            if k is not None:
                after = now * version.confusion[version.person.get(annotator, -1)][:, k]
                now = after / after.sum() if after.sum() > 0 else now
        self._posterior[row] = now

    def _closed(self, version: Version, annotator: str, who: int, out: list[Asked]) -> list[int]:
        ann = version.annotations
        labelled = ann.item[ann.annotator == who].tolist() if who >= 0 else []
        said = [item for item, labels in self.since.items() if labels.get(annotator) is not None]
        given = [each.item for each in out if each.annotator == annotator]
        return labelled + [version.place[item] for item in (*said, *given) if item in version.place]


def _answered(version: Version, posterior: Floats, people: list[str]) -> Floats:
    """The cases that there will be when these people have answered."""
    cases = posterior[None]
    for person in people:
        cases = asking.answered(cases, version.confusion[version.person.get(person, -1)])
    return cases


def _by_row(version: Version, out: list[Asked], annotator: str) -> dict[int, list[str]]:
    """{row: others who were asked about it}"""
    others: dict[int, list[str]] = {}
    for each in out:
        if each.annotator != annotator and each.item in version.place:
            others.setdefault(version.place[each.item], []).append(each.annotator)
    return others


def _most_doubtful(rows: Positions, posterior: Floats, most: int) -> Positions:
    """At most so many of these rows, or LEAST."""
    most = max(most, LEAST)
    if len(rows) <= most:
        return rows
    return rows[np.argpartition(posterior[rows].max(1), most)[:most]]


def _unlabelled(version: Version) -> Floats:
    """Where all labels say the same, those items first that have the fewest."""
    out: Floats = 1.0 / (1.0 + version.n_labels)
    return out


def _largest(values: Floats, n: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions of the n largest, in their order; of equal ones the first."""
    edge = np.partition(values, len(values) - n)[len(values) - n]
    above = np.flatnonzero(values >= edge)
    return above[np.argsort(-values[above], kind="stable")][:n]
