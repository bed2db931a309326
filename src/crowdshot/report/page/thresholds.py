"""What is accepted from which confidence on: counted at every threshold that a reader can choose."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from crowdshot.classifier.diagnostics import Check
from crowdshot.formatting import percent
from crowdshot.labels import labels_needed
from crowdshot.labels.confidence import THRESHOLD, Share
from crowdshot.labels.labels_needed import ROUND, Forecast
from crowdshot.report.page.basis import Basis, Floats
from crowdshot.report.page.review_items import is_overruled

STEPS = tuple(step / 100 for step in range(50, 100))  # thresholds to choose from
LISTED = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)  # those in the table, and those from which on the classifier may be trusted


class Level(NamedTuple):
    """Of labelled and unlabelled items, how many are accepted, and how many of the labelled against most labels.

    ``check``: how often the classifier is right when it is so sure, by what is believed.
    """

    confidence: float
    labelled: int
    unlabelled: int
    overruled: int
    check: Share | None


class ByItself(NamedTuple):
    """What the classifier may label without anybody: where it is so confident, it is right as often as is wanted.

    ``of``: unlabelled items or, where there are none, items whose labels were hidden from it.
    """

    confidence: float
    number: int
    of: int


def count_levels(basis: Basis, check: Check | None) -> list[Level]:
    """One for each of the `STEPS`."""
    overruled = is_overruled(basis)
    sure = {
        name: np.sort(basis.confidence[mask])
        for name, mask in {
            "labelled": basis.labelled,
            "unlabelled": ~basis.labelled,
            "overruled": basis.labelled & overruled,
        }.items()
    }

    def above(name: str, confidence: float) -> int:
        return int(len(sure[name]) - np.searchsorted(sure[name], confidence, "left"))

    return [
        Level(
            step,
            above("labelled", step),
            above("unlabelled", step),
            above("overruled", step),
            check.when_sure(step) if check else None,
        )
        for step in STEPS
    ]


def listed(levels: Sequence[Level]) -> list[Level]:
    return [level for level in levels if level.confidence in LISTED]


def at(levels: Sequence[Level], confidence: float = THRESHOLD) -> Level:
    return levels[STEPS.index(confidence)]


def by_itself(levels: Sequence[Level], wanted: float, n_unlabelled: int, n_checked: int) -> ByItself | None:
    """What the classifier may label so that it is right in ``wanted`` of all cases, by the lower end of the interval.

    Only thresholds that are `LISTED` are tried, as one of many would pass by luck.
    """
    for level in listed(levels):
        if level.check and level.check.low >= wanted:
            number = level.unlabelled if n_unlabelled else level.check.of
            return ByItself(level.confidence, number, n_unlabelled or n_checked)
    return None


def verdict(found: ByItself | None, wanted: float, n_unlabelled: int) -> str:
    """Whether the classifier may label by itself, in a few words."""
    if found is None:
        return f"by the lower end too low to label by itself at {percent(wanted)}"
    if n_unlabelled:
        how_many = f"{found.number:,} of {found.of:,}"
    else:
        share = found.number / found.of
        how_many = f"{'nearly all' if share >= 0.995 else f'about {percent(share)} of'} new items"
    return f"good enough to label by itself at {percent(wanted)}: {how_many}"


# ---- more labels ------------------------------------------------------------
#
# How many more labels: the share of items that should be accepted after as many, as a curve with what it may be.


WANTED = 0.95  # of the items: how many labels settle so many
ENOUGH = 0.99  # of the items: beyond, a curve is no longer drawn
FEWEST, MOST = 6, 21  # points of a curve, at a tenth of a label for an item each: two labels are looked ahead
WIDTH, HEIGHT = 640, 240  # of the drawing, without its margins
MARGINS = 68, 14, 70, 34  # left, top, right, bottom


class Curve(NamedTuple):
    """From which confidence on items are accepted; after (n,) more labels, (n,) shares of them, as `settling` has it."""

    accepted_at: float
    labels: Floats
    expected: Floats
    best: Floats
    worst: Floats
    forecast: Forecast


def curves(basis: Basis) -> list[Curve]:
    """One for each of the thresholds that are `LISTED`."""
    n_items, start = basis.annotations.n_items, labels_needed.begin(basis.annotations, basis.posterior)
    out = []
    for accepted_at in LISTED:
        expected, best, worst = labels_needed.courses(start, accepted_at)
        n = int(np.clip((expected < ENOUGH).sum() + 1, FEWEST, MOST))
        labels = np.asarray(np.arange(n) * ROUND * n_items, dtype=np.float64)
        forecast = labels_needed.reached(WANTED, n_items, expected, best, worst)
        out.append(Curve(accepted_at, labels, expected[:n], best[:n], worst[:n], forecast))
    return out


def nearest(found: Sequence[Curve], confidence: float) -> Curve:
    return min(found, key=lambda curve: abs(curve.accepted_at - confidence))


class Plot:
    """A curve as paths for SVG; positions are in the units of the view box."""

    left, top, right, bottom = MARGINS
    width, height = WIDTH + left + right, HEIGHT + top + bottom

    def __init__(self, curve: Curve) -> None:
        self.curve = curve
        self.floor = float(np.floor(10 * min(curve.worst[0], 0.9)) / 10)
        self.most = float(curve.labels[-1])

    def x(self, labels: float) -> float:
        return round(self.left + WIDTH * labels / self.most, 1)

    def y(self, share: float) -> float:
        return round(self.top + HEIGHT * (1 - (share - self.floor) / (1 - self.floor)), 1)

    @property
    def line(self) -> str:
        return self._path(self.curve.expected)

    @property
    def band(self) -> str:
        """From the best case and back along the worst."""
        back = [f"L{self.x(n)} {self.y(share)}" for n, share in self._points(self.curve.worst)]
        return self._path(self.curve.best) + "".join(reversed(back)) + "Z"

    @property
    def shares(self) -> list[float]:
        """Where the axis has marks."""
        step = 0.1 if self.floor >= 0.5 else 0.2
        return [round(float(share), 1) for share in np.arange(1, self.floor - step / 2, -step)]

    @property
    def counts(self) -> list[int]:
        """Labels where the axis has marks: round numbers, four or five of them."""
        rough = self.most / 4
        size = 10 ** np.floor(np.log10(rough))
        step = max(1, int(size * max(factor for factor in (1, 2, 2.5, 5) if factor * size <= rough)))
        return list(range(0, int(self.most) + 1, step))

    def _points(self, shares: Floats) -> Iterator[tuple[float, float]]:
        return zip(self.curve.labels.tolist(), shares.tolist(), strict=True)

    def _path(self, shares: Floats) -> str:
        return "M" + "L".join(f"{self.x(n)} {self.y(share)}" for n, share in self._points(shares))
