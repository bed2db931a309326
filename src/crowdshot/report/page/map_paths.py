"""The map as paths for SVG: a path for each class and mark, so that ten thousand points are a few elements."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from crowdshot.report.page.map import Map
from crowdshot.wording import probability

WIDTH, HEIGHT, MARGIN = 720, 460, 16
SIZES = (400, 2_500)  # points from which marks are smaller
MOST_LABELS = 15  # classes named on the map itself
LONGEST = 18  # letters of such a name
LETTER, LINE = 13.5, 36  # the size of a letter and of a line, as on a phone, where they are largest
MOST_THUMBNAILS, THUMBNAIL = 60, 38  # pictures on the map itself, and their size

Paths = list[tuple[int, list[tuple[int, str]]]]


class Drawing:
    """What the template needs to draw a `Map`; positions are in the units of the view box."""

    width, height, longest, side = WIDTH, HEIGHT, LONGEST, THUMBNAIL

    def __init__(self, found: Map, classes: list[str], pictured: Sequence[int] = ()) -> None:
        """``pictured``: the items of which there are pictures, the best first."""
        self.map, self.classes, self.pictured = found, classes, pictured
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
    def thumbnails(self) -> list[tuple[int, float, float]]:
        """(item, x, y) of the middle: pictures that do not overlap, those that show a class best first."""
        place = {int(row): self.xy[i] for i, row in enumerate(self.map.rows)}
        chosen: list[tuple[int, float, float]] = []
        for row in self.pictured:
            if row not in place or len(chosen) == MOST_THUMBNAILS:
                continue
            x, y = (
                float(np.clip(p, THUMBNAIL / 2, most - THUMBNAIL / 2))
                for p, most in zip(place[row], (WIDTH, HEIGHT), strict=True)
            )
            if all(max(abs(x - a), abs(y - b)) > THUMBNAIL * 1.1 for _, a, b in chosen):
                chosen.append((row, round(x, 1), round(y, 1)))
        return chosen

    @property
    def labels(self) -> list[tuple[int, float, float, str]]:
        """(class, x, y, which end of the text is there): its name amid its items or, where another is, beside them.

        The largest classes are placed first; none where classes are many, and a name that finds no room is left out.
        """
        found, sizes = np.unique(self.map.labels, return_counts=True)
        if len(found) > MOST_LABELS:
            return []
        placed: list[Box] = []
        out: list[tuple[int, float, float, str]] = []
        for k in found[np.argsort(-sizes, kind="stable")].tolist():
            x, y = np.median(self.xy[self.map.labels == k], axis=0)
            half = LETTER * min(len(self.classes[k]), LONGEST) / 2
            for down in sorted(range(-6, 7), key=abs):
                anchor, at = _anchor(float(x), half), float(y) + down * LINE
                left = {"start": x, "middle": x - half, "end": x - 2 * half}[anchor]
                box = Box(left, at - LINE / 2, left + 2 * half, at + LINE / 2)
                if box.top >= 0 and box.bottom <= HEIGHT and not any(box.meets(other) for other in placed):
                    placed.append(box)
                    out.append((k, round(float(x)), round(at), anchor))
                    break
        return out

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


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: Box) -> bool:
        apart = self.right <= other.left or other.right <= self.left
        return not (apart or self.bottom <= other.top or other.bottom <= self.top)


def _anchor(x: float, half: float) -> str:
    """Text near an edge grows away from it."""
    return "start" if x < half else "end" if x > WIDTH - half else "middle"
