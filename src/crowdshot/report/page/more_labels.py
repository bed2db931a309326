"""How many more labels: the share of items that should be settled after as many, as a curve with what it may be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from crowdshot.labels import settling
from crowdshot.labels.settling import ROUND, Forecast
from crowdshot.report.page.basis import Basis, Floats
from crowdshot.report.page.levels import LISTED

WANTED = 0.95  # of the items: how many labels settle so many
ENOUGH = 0.99  # of the items: beyond, a curve is no longer drawn
FEWEST, MOST = 6, 21  # points of a curve, at a tenth of a label for an item each: two labels are looked ahead
WIDTH, HEIGHT = 640, 240  # of the drawing, without its margins
MARGINS = 68, 14, 70, 34  # left, top, right, bottom


class Curve(NamedTuple):
    """From which confidence on items are settled; after (n,) more labels, (n,) shares of them, as `settling` has it."""

    settled_at: float
    labels: Floats
    expected: Floats
    best: Floats
    worst: Floats
    forecast: Forecast


def curves(basis: Basis) -> list[Curve]:
    """One for each of the thresholds that are `LISTED`."""
    n_items, start = basis.annotations.n_items, settling.begin(basis.annotations, basis.belief)
    out = []
    for settled_at in LISTED:
        expected, best, worst = settling.courses(start, settled_at)
        n = int(np.clip((expected < ENOUGH).sum() + 1, FEWEST, MOST))
        labels = np.asarray(np.arange(n) * ROUND * n_items, dtype=np.float64)
        forecast = settling.reached(WANTED, n_items, expected, best, worst)
        out.append(Curve(settled_at, labels, expected[:n], best[:n], worst[:n], forecast))
    return out


def nearest(found: Sequence[Curve], confidence: float) -> Curve:
    return min(found, key=lambda curve: abs(curve.settled_at - confidence))


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
