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
from crowdshot.labels.belief import Floats
from crowdshot.service.journal import Said
from crowdshot.service.version import Version

PATIENCE = 120.0  # seconds after which a question that was not answered is asked of others
MOST_WAITING = 2_000  # questions that are remembered


class Asked(NamedTuple):
    item: str
    annotator: str
    until: float


class Waiting:
    """Labels that came after the version, and questions that are out."""

    def __init__(self) -> None:
        self.since: dict[tuple[str, str], str | None] = {}
        self.asked: deque[Asked] = deque(maxlen=MOST_WAITING)

    def heard(self, said: list[Said]) -> None:
        self.since |= {(each.item, each.annotator): each.label for each in said}
        answered = {(each.item, each.annotator) for each in said}
        self.asked = deque((out for out in self.asked if out[:2] not in answered), MOST_WAITING)

    def swapped(self, later: list[Said]) -> None:
        """A new version knows all labels but these."""
        self.since = {(each.item, each.annotator): each.label for each in later}

    def questions(self, version: Version, annotator: str, n: int) -> list[dict[str, object]]:
        """The best first. Items that the annotator labelled, or was given already, are not asked."""
        now = time.monotonic()
        who = version.person.get(annotator, -1)  # the last is somebody new
        ann, belief = version.annotations, self._belief_now(version)
        out = [each for each in self.asked if each.until > now]
        gain = asking.gains(belief, version.confusion[who, None])[:, 0] if ann.n_classes > 1 else _unlabelled(version)
        for row, people in _by_row(version, out, annotator).items():
            cases = belief[row, None]
            for other in people:
                cases = asking.answered(cases, version.confusion[version.person.get(other, -1)])
            gain[row] = asking.gains(cases, version.confusion[who, None]).sum()
        gain[self._closed(version, annotator, who, out)] = -1
        best = np.argsort(-gain, kind="stable")[:n] if n * 20 > len(gain) else _largest(gain, n)
        chosen = [int(row) for row in best if gain[row] >= asking.WORTH]
        names = [str(ann.items[row]) for row in chosen]
        self.asked.extend(Asked(name, annotator, now + PATIENCE) for name in names)
        return [
            {
                "item": name,
                "gain": float(gain[row]),
                "believed": str(ann.classes[belief[row].argmax()]),
                "confidence": float(belief[row].max()),
                "n_labels": int(version.n_labels[row]),
            }
            for name, row in zip(names, chosen, strict=True)
        ]

    def _belief_now(self, version: Version) -> Floats:
        """With the labels that came since; those of other classes or items wait for the next version."""
        classes = {str(name): k for k, name in enumerate(version.annotations.classes)}
        belief = version.belief
        fresh: dict[int, Floats] = {}
        for (item, annotator), label in self.since.items():
            row, k = version.place.get(item), classes.get(label or "")
            if row is not None and k is not None:
                says = version.confusion[version.person.get(annotator, -1)][:, k]
                after = fresh.get(row, belief[row]) * says
                fresh[row] = after / after.sum() if after.sum() > 0 else belief[row]
        if fresh:
            belief = belief.copy()
            for row, after in fresh.items():
                belief[row] = after
        return belief

    def _closed(self, version: Version, annotator: str, who: int, out: list[Asked]) -> list[int]:
        ann = version.annotations
        labelled = ann.item[ann.annotator == who].tolist() if who >= 0 else []
        said = [item for (item, other), label in self.since.items() if other == annotator and label is not None]
        given = [each.item for each in out if each.annotator == annotator]
        return labelled + [version.place[item] for item in (*said, *given) if item in version.place]


def _by_row(version: Version, out: list[Asked], annotator: str) -> dict[int, list[str]]:
    """{row: others who were asked about it}"""
    others: dict[int, list[str]] = {}
    for each in out:
        if each.annotator != annotator and each.item in version.place:
            others.setdefault(version.place[each.item], []).append(each.annotator)
    return others


def _unlabelled(version: Version) -> Floats:
    """Where all labels say the same, those items first that have the fewest."""
    out: Floats = 1.0 / (1.0 + version.n_labels)
    return out


def _largest(values: Floats, n: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions of the n largest, in their order; of equal ones the first."""
    edge = np.partition(values, len(values) - n)[len(values) - n]
    above = np.flatnonzero(values >= edge)
    return above[np.argsort(-values[above], kind="stable")][:n]
