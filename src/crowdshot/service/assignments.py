"""Choose the next questions for one annotator while others answer, in milliseconds (see `labels.asking`).

Two kinds of information are newer than the current version. Labels that arrived since update the posterior by Bayes'
rule. Questions that others received recently count as if they were answered, so that two annotators do not get the same
item while another item needs a label more.
"""

from __future__ import annotations

import time
from collections import deque
from typing import NamedTuple

import numpy as np

from crowdshot.io.cells import Positions
from crowdshot.labels import asking
from crowdshot.labels.consensus import Floats
from crowdshot.service.journal import Answer
from crowdshot.service.snapshot import Version

PATIENCE = 120.0  # seconds after which an unanswered question no longer counts
MOST_WAITING = 500  # open questions that are kept
LEAST = 100  # items that are considered, however many classes there are
MOST_WORK = 20_000_000  # multiplications of a request, so that others need not wait


class OpenQuestion(NamedTuple):
    item: str
    annotator: str
    until: float


class Waiting:
    """Labels that are newer than the current version, and open questions."""

    def __init__(self) -> None:
        self.since: dict[str, dict[str, str | None]] = {}  # {item: {annotator: label}}
        self.asked: deque[OpenQuestion] = deque(maxlen=MOST_WAITING)
        self._version: Version | None = None  # the version that `_posterior` belongs to
        self._posterior: Floats = np.zeros((0, 0))

    def add(self, answers: list[Answer]) -> None:
        """Add new labels and close the questions that they answer."""
        for each in answers:
            self.since.setdefault(each.item, {})[each.annotator] = each.label
        if self._version is not None:
            for item in {each.item for each in answers}:
                self._update(self._version, item)
        answered = {(each.item, each.annotator) for each in answers}
        self.asked = deque((question for question in self.asked if question[:2] not in answered), MOST_WAITING)

    def reset(self, later: list[Answer]) -> None:
        """Start from a new version that contains all labels but the later ones."""
        self.since, self._version = {}, None
        self.add(later)

    def questions(self, version: Version, annotator: str, n: int) -> list[dict[str, object]]:
        """Return at most ``n`` questions for an annotator, the best first, and keep them as open questions.

        Items that the annotator has labelled, or has an open question about, are left out.
        """
        now = time.monotonic()
        annotator = version.names.get(annotator, annotator)
        open_questions = [each for each in self.asked if each.until > now]
        ann, posterior = version.annotations, self._posterior_now(version)
        gain = self._gains(version, posterior, annotator, open_questions)
        best = np.argsort(-gain, kind="stable")[:n] if n * 20 > len(gain) else _largest(gain, n)
        chosen = [int(row) for row in best if gain[row] >= asking.WORTH]
        names = [str(ann.items[row]) for row in chosen]
        self.asked.extend(OpenQuestion(name, annotator, now + PATIENCE) for name in names)
        return [
            self.question(version, row) | {"gain": float(gain[row]), "n_labels": int(version.n_labels[row])}
            for row in chosen
        ]

    def question(self, version: Version, row: int) -> dict[str, object]:
        """Return a question about an item with its current answer."""
        ann, posterior = version.annotations, self._posterior_now(version)
        return {
            "item": str(ann.items[row]),
            "consensus": str(ann.classes[posterior[row].argmax()]),
            "confidence": float(posterior[row].max()),
        }

    def forget(self, version: Version, annotator: str, item: str) -> None:
        """Remove an open question."""
        gone = (item, version.names.get(annotator, annotator))
        self.asked = deque((question for question in self.asked if question[:2] != gone), MOST_WAITING)

    def answered_by(self, version: Version, annotator: str) -> set[int]:
        """Return the rows that the annotator has labelled."""
        annotator = version.names.get(annotator, annotator)
        return set(self._labelled(version, annotator, version.person.get(annotator, -1)))

    def _gains(self, version: Version, posterior: Floats, annotator: str, open_questions: list[OpenQuestion]) -> Floats:
        """Return the expected gain (N,) of asking the annotator about each item; -1 for items that are left out."""
        ann, position = version.annotations, version.person.get(annotator, -1)  # -1: a new annotator
        confusion = version.confusion[position, None]
        gain = np.full(ann.n_items, -1.0)
        may_be_asked = np.ones(ann.n_items, dtype=bool)
        may_be_asked[self._closed(version, annotator, position, open_questions)] = False
        rows = np.flatnonzero(may_be_asked)
        if not len(rows):
            return gain
        rows = _most_uncertain(rows, posterior, MOST_WORK // ann.n_classes**2)
        gain[rows] = (
            asking.gains(posterior[rows], confusion)[:, 0] if ann.n_classes > 1 else _fewest_labels(version)[rows]
        )
        others = {row: people for row, people in _by_row(version, open_questions, annotator).items() if gain[row] > 0}
        if others and ann.n_classes**3 * len(open_questions) <= MOST_WORK:
            cases = [_answered(version, posterior[row], people) for row, people in others.items()]
            starts = np.cumsum([0, *map(len, cases[:-1])])
            gain[list(others)] = np.add.reduceat(asking.gains(np.concatenate(cases), confusion)[:, 0], starts)
        else:  # too many cases with many classes: each open question halves the gain instead
            for row, people in others.items():
                gain[row] /= 2 ** len(people)
        return gain

    def _posterior_now(self, version: Version) -> Floats:
        """Return the posterior with newer labels; new classes and items have to wait for the next version."""
        if version is not self._version:
            self._version, self._posterior = version, version.posterior.copy()
            for item in self.since:
                self._update(version, item)
        return self._posterior

    def _update(self, version: Version, item: str) -> None:
        """Update the posterior of an item by its newer labels."""
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

    def _closed(self, version: Version, annotator: str, position: int, open_questions: list[OpenQuestion]) -> list[int]:
        """Return the rows that the annotator has labelled or has an open question about, and gold items."""
        asked = [each.item for each in open_questions if each.annotator == annotator]
        rows = [version.place[item] for item in asked if item in version.place]
        return [*self._labelled(version, annotator, position), *rows, *version.known]

    def _labelled(self, version: Version, annotator: str, position: int) -> list[int]:
        ann = version.annotations
        labelled: list[int] = ann.item[ann.annotator == position].tolist() if position >= 0 else []
        newer = [item for item, labels in self.since.items() if labels.get(annotator) is not None]
        return labelled + [version.place[item] for item in newer if item in version.place]


def _answered(version: Version, posterior: Floats, people: list[str]) -> Floats:
    """Return the posterior for each combination of answers by these annotators, weighted by its probability."""
    cases = posterior[None]
    for person in people:
        cases = asking.answered(cases, version.confusion[version.person.get(person, -1)])
    return cases


def _by_row(version: Version, open_questions: list[OpenQuestion], annotator: str) -> dict[int, list[str]]:
    """Return {row: other annotators with an open question about it}."""
    others: dict[int, list[str]] = {}
    for each in open_questions:
        if each.annotator != annotator and each.item in version.place:
            others.setdefault(version.place[each.item], []).append(each.annotator)
    return others


def _most_uncertain(rows: Positions, posterior: Floats, most: int) -> Positions:
    """Return the ``most`` rows with the lowest confidence, or `LEAST` if that is more."""
    most = max(most, LEAST)
    if len(rows) <= most:
        return rows
    return rows[np.argpartition(posterior[rows].max(1), most)[:most]]


def _fewest_labels(version: Version) -> Floats:
    """Return scores that prefer items with few labels, for data with a single class."""
    out: Floats = 1.0 / (1.0 + version.n_labels)
    return out


def _largest(values: Floats, n: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the positions of the n largest values, the largest first; the first of equal ones."""
    edge = np.partition(values, len(values) - n)[len(values) - n]
    above = np.flatnonzero(values >= edge)
    return above[np.argsort(-values[above], kind="stable")][:n]
