"""Count accepted items at each threshold that a reader can choose, and forecast the effect of more labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from crowdshot.formatting import percent, plural
from crowdshot.labels import labels_needed
from crowdshot.labels.consensus import THRESHOLD, Floats, Share
from crowdshot.labels.labels_needed import ROUND, Forecast
from crowdshot.report.page.basis import Basis

if TYPE_CHECKING:
    from crowdshot.classifier.diagnostics import Check

STEPS = tuple(step / 100 for step in range(50, 100))  # thresholds to choose from
LISTED = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)  # thresholds in the table, and tried for automatic labelling


class Level(NamedTuple):
    """Numbers of accepted items at a threshold.

    ``overruled`` counts labelled items that are accepted against the majority. ``check`` is the estimated accuracy of
    cross-validated predictions with at least this confidence.
    """

    confidence: float
    labelled: int
    unlabelled: int
    overruled: int
    check: Share | None


class Automatic(NamedTuple):
    """The items that the classifier may label automatically: ``number`` of ``of`` have at least this confidence.

    ``of`` counts the unlabelled items or, if there are none, the cross-validated ones.
    """

    confidence: float
    number: int
    of: int


def count_levels(basis: Basis, check: Check | None) -> list[Level]:
    """Return the counts at each of the `STEPS`."""
    masks = {
        "labelled": basis.labelled,
        "unlabelled": ~basis.labelled,
        "overruled": basis.labelled & basis.overruled,
    }
    confidences = {name: np.sort(basis.confidence[mask]) for name, mask in masks.items()}

    def above(name: str, threshold: float) -> int:
        return int(len(confidences[name]) - np.searchsorted(confidences[name], threshold, "left"))

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


def automatic(levels: Sequence[Level], wanted: float, n_unlabelled: int, n_checked: int) -> Automatic | None:
    """Return the lowest listed threshold at which the lower bound of the accuracy is at least ``wanted``.

    Only the `LISTED` thresholds are tried: among many, one would pass by chance.
    """
    for level in listed(levels):
        if level.check and level.check.low >= wanted:
            number = level.unlabelled if n_unlabelled else level.check.of
            return Automatic(level.confidence, number, n_unlabelled or n_checked)
    return None


def verdict(found: Automatic | None, wanted: float, n_unlabelled: int) -> str:
    """Return whether the classifier is accurate enough to label automatically, in a few words."""
    if found is None:
        return f"not accurate enough to label automatically (lower bound below {percent(wanted)})"
    return f"may label automatically: {describe_automatic(found, wanted, n_unlabelled)}"


def describe_automatic(found: Automatic, wanted: float, n_unlabelled: int) -> str:
    """Return which items the classifier may label automatically.

    >>> describe_automatic(Automatic(0.8, 15, 20), 0.9, 20)
    '15 of 20 unlabelled items, those with a confidence of 80\xa0% or more, which is right at least 90\xa0% of the time'
    """
    if n_unlabelled:
        how_many = f"{found.number:,} of {plural(found.of, 'unlabelled item')}"
    else:
        share = found.number / found.of
        how_many = f"{'nearly all' if share >= 0.995 else f'about {percent(share)} of'} new items"
    limit = f"a confidence of {percent(found.confidence)} or more"
    return f"{how_many}, those with {limit}, which is right at least {percent(wanted)} of the time"


# ---- forecast of more labels ----

WANTED = 0.95  # share of items whose acceptance the forecast is about
ENOUGH = 0.99  # share of accepted items at which a curve ends
FEWEST, MOST = 6, 21  # points of a curve, one per 0.1 labels an item: it reaches two labels an item at most
WIDTH, HEIGHT = 640, 240  # of the plot without margins, in units of the view box
MARGINS = 68, 14, 70, 34  # left, top, right, bottom


class Curve(NamedTuple):
    """Shares of accepted items (n,) after numbers of more labels (n,), at one threshold (see `labels_needed`)."""

    accepted_at: float
    labels: Floats
    expected: Floats
    best: Floats
    worst: Floats
    forecast: Forecast


def curves(basis: Basis) -> list[Curve]:
    """Return a curve for each of the `LISTED` thresholds."""
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
    """A curve as SVG paths, in units of the view box."""

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
        """The area between the best and the worst case."""
        back = [f"L{self.x(n)} {self.y(share)}" for n, share in self._points(self.curve.worst)]
        return self._path(self.curve.best) + "".join(reversed(back)) + "Z"

    @property
    def shares(self) -> list[float]:
        """Ticks of the vertical axis."""
        step = 0.1 if self.floor >= 0.5 else 0.2
        return [round(float(share), 1) for share in np.arange(1, self.floor - step / 2, -step)]

    @property
    def counts(self) -> list[int]:
        """Ticks of the horizontal axis: four or five round numbers of labels."""
        rough = self.most / 4
        size = 10 ** np.floor(np.log10(rough))
        step = max(1, int(size * max(factor for factor in (1, 2, 2.5, 5) if factor * size <= rough)))
        return list(range(0, int(self.most) + 1, step))

    def _points(self, shares: Floats) -> Iterator[tuple[float, float]]:
        return zip(self.curve.labels.tolist(), shares.tolist(), strict=True)

    def _path(self, shares: Floats) -> str:
        return "M" + "L".join(f"{self.x(n)} {self.y(share)}" for n, share in self._points(shares))
