"""The map as paths for SVG: a path for each class and mark, so that ten thousand points are a few elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from crowdshot.report.page.map import Map
from crowdshot.wording import probability

WIDTH, HEIGHT, MARGIN = 720, 460, 16
SIZES = (400, 2_500)  # points from which marks are smaller
MOST_LABELS = 15  # classes named on the map itself

Paths = list[tuple[int, list[tuple[int, str]]]]


class Drawing:
    """What the template needs to draw a `Map`; positions are in the units of the view box."""

    width, height = WIDTH, HEIGHT

    def __init__(self, found: Map, classes: list[str]) -> None:
        self.map, self.classes = found, classes
        self.xy = MARGIN + found.xy * (WIDTH - 2 * MARGIN, HEIGHT - 2 * MARGIN)
        self.size = sum(len(self.xy) > most for most in SIZES)

    @property
    def paths(self) -> Paths:
        """For each class its marks: (mark, path)."""
        return [(k, list(self._marks(k))) for k in np.unique(self.map.labels).tolist()]

    def _marks(self, k: int) -> Iterator[tuple[int, str]]:
        r = (4, 3, 2)[self.size]
        shapes = (
            "M{0:.1f} {1:.1f}h0",
            f"M{{2:.1f}} {{3:.1f}}l{2 * r} {2 * r}m{-2 * r} 0l{2 * r} {-2 * r}",
            f"M{{2:.1f}} {{1:.1f}}a{r} {r} 0 1 0 {2 * r} 0a{r} {r} 0 1 0 {-2 * r} 0",
        )
        for mark, shape in enumerate(shapes):
            rows = np.flatnonzero((self.map.labels == k) & (self.map.marks == mark))
            if len(rows):
                yield mark, "".join(shape.format(x, y, x - r, y - r) for x, y in self.xy[rows])

    @property
    def labels(self) -> list[tuple[int, float, float, str]]:
        """(class, x, y, which end of the text is there): a class's name amid its items, none where classes are many."""
        found = np.unique(self.map.labels).tolist()
        if len(found) > MOST_LABELS:
            return []
        middles = [np.median(self.xy[self.map.labels == k], axis=0) for k in found]
        return [
            (k, round(float(x)), round(float(y)), _anchor(float(x))) for k, (x, y) in zip(found, middles, strict=True)
        ]

    @property
    def data(self) -> dict[str, Any]:
        """For the script: columns of equal length, one entry a point."""
        return {
            "width": WIDTH,
            "height": HEIGHT,
            "tile": self.map.sheet.tile,
            "columns": self.map.sheet.columns,
            "classes": [name[:40] for name in self.classes],
            "x": [round(float(x), 1) for x in self.xy[:, 0]],
            "y": [round(float(y), 1) for y in self.xy[:, 1]],
            "label": self.map.labels.tolist(),
            "confidence": [probability(p) for p in self.map.confidence],
            "name": self.map.names,
            "votes": self.map.votes,
        }


def _anchor(x: float) -> str:
    """Text near an edge grows away from it."""
    return "start" if x < WIDTH / 6 else "end" if x > WIDTH * 5 / 6 else "middle"
