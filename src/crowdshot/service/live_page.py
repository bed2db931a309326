"""Render the live page: the first screen of the report for the current version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crowdshot.formatting import clean, percent, plural, spread
from crowdshot.labels import labels_needed
from crowdshot.labels.annotator_quality import confusion_counts
from crowdshot.labels.consensus import THRESHOLD, Floats, is_overruled, kinds_in_words, review_kinds, uncertainty
from crowdshot.labels.gold_questions import PAUSED
from crowdshot.labels.working_times import describe_trends, describe_working, warning_signs
from crowdshot.report.page.item_map import thumbnails
from crowdshot.report.page.templates import STYLES, Inline, fill, inline
from crowdshot.service.journal import Point
from crowdshot.service.schemas import KnownAnswers
from crowdshot.service.snapshot import Held, Version

HERE = Path(__file__).parent / "page"
THUMBNAIL = 96  # pixels
MOST_HELD = 20
AHEAD = 100  # labels that the forecast covers
RECENT = 600.0  # seconds for which an annotator counts as active after a label
FIRST_PEOPLE, MOST_PEOPLE, MOST_ITEMS, MOST_CLASSES = 10, 200, 12, 12


class Person(NamedTuple):
    """An annotator; ``recent`` counts the labels of the last minutes. Flags take too long to compute here.

    ``signs`` and ``sentences`` say when, how fast and how evenly the annotator works.
    """

    name: str
    n_labels: int
    accuracy: float
    low: float
    high: float
    recent: int
    flag: None = None
    signs: Sequence[str] = ()
    sentences: Sequence[str] = ()
    working: Mapping[str, Any] = {}


class Item(NamedTuple):
    """An item to review; ``picture`` is a data URI and ``link`` the address of its task in Label Studio, or ""."""

    name: str
    n_labels: int
    label: int
    confidence: float
    picture: str = ""
    link: str = ""


class Course(NamedTuple):
    """The progress curves as SVG points (labels, items) in a box of 100 x 30.

    The left edge is ``first`` labels, the right edge ``last``, and the top is ``most`` items. ``took`` is the time from
    left to right.
    """

    labelled: str
    accepted: str
    most: int
    first: int
    last: int
    took: str


@dataclass(frozen=True)
class Facts:
    """The content of the page.

    ``people`` are sorted by the upper bound of their accuracy. ``crowd`` (K, K) [true, observed] counts all labels;
    it is None if there are too many classes.
    """

    classes: list[str]
    n_labelled: int
    n_labels: int
    people: list[Person]
    items: list[Item]
    crowd: Floats | None
    course: Course | None
    will_accept: float | None
    held: list[Held]
    n_held: int
    ahead: int = AHEAD
    recent_minutes: int = round(RECENT / 60)


def style() -> Inline:
    return inline(*STYLES, HERE / "live.css")


def script() -> Inline:
    return inline(HERE / "live.js")


def policy() -> str:
    """Return the page's content security policy: its own style and script, and connections to the service."""
    sources = f"style-src '{style().hash}'; script-src '{script().hash}'; connect-src 'self'; img-src data:"
    return f"default-src 'none'; {sources}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"


class Surroundings(NamedTuple):
    """Where the items are: image files by position, and the addresses of tasks by item."""

    files: Sequence[Path] = ()
    links: Mapping[str, str] = {}


ALONE = Surroundings()


def render(
    version: Version | None,
    history: Sequence[Point] = (),
    recent: Mapping[str, int] | None = None,
    around: Surroundings = ALONE,
) -> str:
    """Return the page as HTML; ``recent`` counts the labels of the last minutes by annotator."""
    found = None if version is None else gather(version, history, recent or {}, around)
    return fill(
        "live.html",
        HERE,
        f=found,
        now={} if version is None else tile_texts(version),
        version=0 if version is None else version.number,
        first_people=FIRST_PEOPLE,
        most_people=MOST_PEOPLE,
        style=style(),
        script=script(),
    )


def gather(
    version: Version, history: Sequence[Point], recent: Mapping[str, int], around: Surroundings = ALONE
) -> Facts:
    ann, posterior = version.annotations, version.posterior
    rows = np.flatnonzero((version.n_labels > 0) & (version.confidence < THRESHOLD))
    rows = rows[np.argsort(-uncertainty(posterior[rows]), kind="stable")][:MOST_ITEMS]
    pictures = thumbnails({i: around.files[i] for i in rows.tolist() if i < len(around.files)}, THUMBNAIL)
    people = [
        Person(
            clean(row.annotator),
            row.n_labels,
            row.accuracy,
            row.low,
            row.high,
            recent.get(row.annotator, 0),
            signs=[*warning_signs(row.working), *([PAUSED] if row.gold and row.gold.status == PAUSED else [])],
            sentences=[describe_working(row.working), *describe_trends(row.working), *describe_gold(row.gold)],
            working=row.working,
        )
        for row in sorted(version.annotators, key=lambda row: row.high)
    ]
    return Facts(
        classes=[clean(name) for name in ann.classes],
        n_labelled=version.n_labelled,
        n_labels=ann.n_labels,
        people=people,
        items=[
            Item(
                clean(ann.items[i]),
                int(version.n_labels[i]),
                int(posterior[i].argmax()),
                float(version.confidence[i]),
                pictures[i].uri if i in pictures else "",
                around.links.get(str(ann.items[i]), ""),
            )
            for i in rows.tolist()
        ],
        crowd=confusion_counts(ann, posterior).sum(0).T if ann.n_classes <= MOST_CLASSES else None,
        course=draw(history),
        will_accept=will_accept(version) if ann.n_classes > 1 else None,
        held=list(version.held[:MOST_HELD]),
        n_held=len(version.held),
    )


def describe_gold(found: KnownAnswers | None) -> list[str]:
    """Return a sentence on an annotator's results in questions with known answers."""
    if found is None:
        return []
    if not found.tests:
        return ["Not tested with a known answer yet."]
    share = f"{percent(found.passed / found.tests)} ({spread(found.low, found.high)})"
    return [f"{found.passed} of {plural(found.tests, 'known answer')} right: {share}."]


def tile_texts(version: Version) -> dict[str, str]:
    """Return the texts of the report's tiles at the default threshold."""
    ann = version.annotations
    overruled = is_overruled(ann.vote_counts(), version.posterior.argmax(1))
    kinds = review_kinds(version.confidence, version.n_labels > 0, overruled)
    counts = {kind: int(mask.sum()) for kind, mask in kinds.items()}
    return {
        "threshold": percent(THRESHOLD),
        "accepted": f"{version.n_accepted:,}",
        "accepted_bar": f"{100 * version.n_accepted / max(1, version.n_labelled):.1f}",
        "person": f"{sum(counts.values()):,}",
        "person_kinds": kinds_in_words(counts),
    }


def will_accept(version: Version, labels: int = AHEAD) -> float:
    """Return the expected number of newly accepted items if annotators label the most uncertain items."""
    shares = labels_needed.course(labels_needed.begin(version.annotations, version.posterior))
    at = labels / version.annotations.n_items / labels_needed.ROUND
    after = float(np.interp(at, np.arange(len(shares)), shares))
    return max(0.0, (after - float(shares[0])) * version.annotations.n_items)


def draw(history: Sequence[Point]) -> Course | None:
    """Return the progress curves, or None if all versions have the same number of labels."""
    if len({point.labels for point in history}) < 2:
        return None
    first, last = min(point.labels for point in history), max(point.labels for point in history)
    most = max(1, *(point.items for point in history))

    def line(values: Sequence[int]) -> str:
        pairs = zip(history, values, strict=True)
        return " ".join(f"{100 * (p.labels - first) / (last - first):.1f},{29 - 28 * y / most:.2f}" for p, y in pairs)

    took = duration(history[-1].at - history[0].at)
    return Course(line([p.items for p in history]), line([p.accepted for p in history]), most, first, last, took)


def duration(seconds: float) -> str:
    """Return a rounded duration such as "3 hours"."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            return plural(round(seconds / length), unit)
    return "less than a minute"
