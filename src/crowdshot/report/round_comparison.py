"""Two rounds of one project side by side: what got accepted, who got better, which items changed.

A round is a folder that ``adapt`` wrote; its consensus.csv and annotators.csv are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import clean, counted, first, percent, plural, show, spread
from crowdshot.io.tables import Table, one_each, read_table
from crowdshot.labels.confidence import THRESHOLD
from crowdshot.report.page.page_writer import STYLES, fill, inline

CONSENSUS, ANNOTATORS = "consensus.csv", "annotators.csv"


class Verdict(NamedTuple):
    """What is believed of an item."""

    label: str
    confidence: float
    n_labels: int

    @property
    def accepted(self) -> bool:
        return self.confidence >= THRESHOLD


class Skill(NamedTuple):
    """How good an annotator is, with the interval."""

    accuracy: float
    low: float
    high: float
    n_labels: int


@dataclass(frozen=True)
class Round:
    name: str
    items: dict[str, Verdict]
    people: dict[str, Skill]

    @property
    def n_labels(self) -> int:
        return sum(item.n_labels for item in self.items.values())

    @property
    def accepted(self) -> int:
        return sum(item.accepted for item in self.items.values())


class Change(NamedTuple):
    """An item whose label is another than before."""

    item: str
    before: Verdict
    after: Verdict


class Course(NamedTuple):
    """An annotator before and after, None where they have no label in a round."""

    annotator: str
    before: Skill | None
    after: Skill | None

    @property
    def change(self) -> tuple[float, float, float] | None:
        """By how much the accuracy changed, and from where to where, as surely as the intervals are.

        Both rounds are taken to err on their own; where the second holds the labels of the first, that is cautious.
        """
        if self.before is None or self.after is None:
            return None
        middle = self.after.accuracy - self.before.accuracy
        half = float(np.hypot(self.before.high - self.before.low, self.after.high - self.after.low)) / 2
        return middle, middle - half, middle + half

    @property
    def verdict(self) -> Literal["better", "worse", "no sure change", "new", "gone"]:
        if self.change is None:
            return "new" if self.before is None else "gone"
        _, low, high = self.change
        return "better" if low > 0 else "worse" if high < 0 else "no sure change"


@dataclass(frozen=True)
class Comparison:
    """``common``: the items that both rounds have."""

    before: Round
    after: Round
    common: Sequence[str]
    changed: Sequence[Change]
    people: Sequence[Course]

    @property
    def newly_accepted(self) -> list[str]:
        return [name for name in self.common if self.after.items[name].accepted > self.before.items[name].accepted]

    @property
    def reopened(self) -> list[str]:
        """Settled before, and not any more."""
        return [name for name in self.common if self.after.items[name].accepted < self.before.items[name].accepted]

    @property
    def added(self) -> list[str]:
        return [name for name in self.after.items if name not in self.before.items]

    @property
    def gone(self) -> list[str]:
        return [name for name in self.before.items if name not in self.after.items]

    def of(self, verdict: str) -> list[Course]:
        return [course for course in self.people if course.verdict == verdict]


def compare(before: Path, after: Path) -> Comparison:
    rounds = [read_round(folder) for folder in (before, after)]
    old, new = rounds
    common = [name for name in new.items if name in old.items]
    if not common:
        raise CrowdshotError(
            f"{after} has none of the items of {before}, {show(next(iter(old.items)))} for instance, expected two"
            " rounds of one project."
        )
    changed = [
        Change(name, old.items[name], new.items[name])
        for name in common
        if old.items[name].label != new.items[name].label
    ]
    changed.sort(key=lambda change: -change.after.confidence)
    names = dict.fromkeys([*new.people, *old.people])
    people = [Course(name, old.people.get(name), new.people.get(name)) for name in names]
    people.sort(key=lambda course: course.change[0] if course.change else np.inf)  # who got worse first
    return Comparison(old, new, common, changed, people)


# ---- reading ----------------------------------------------------------------------------------------------------


def read_round(folder: Path) -> Round:
    if not folder.is_dir():
        found = "is a file" if folder.exists() else "does not exist"
        raise CrowdshotError(f"{folder} {found}, expected a folder that `crowdshot adapt` wrote.")
    for name in (CONSENSUS, ANNOTATORS):
        if not (folder / name).is_file():
            raise CrowdshotError(f"{folder} has no {name}, expected a folder that `crowdshot adapt` wrote.")
    consensus, people = read_table(folder / CONSENSUS), read_table(folder / ANNOTATORS)
    confidence, n_labels = numbers_of(consensus, "confidence", "n_labels", beside=2)
    items = [
        Verdict(str(label), float(sure), int(n))
        for label, sure, n in zip(consensus.text(1), confidence, n_labels, strict=True)
    ]
    labels, accuracy, low, high = numbers_of(people, "n_labels", "accuracy", "low", "high", beside=1)
    skills = {
        str(name): Skill(float(middle), float(bottom), float(top), int(n))
        for name, n, middle, bottom, top in zip(one_each(people, 0), labels, accuracy, low, high, strict=True)
        if n > 0
    }
    return Round(str(folder), dict(zip(map(str, one_each(consensus, 0)), items, strict=True)), skills)


def numbers_of(table: Table, *columns: str, beside: int) -> list[NDArray[np.float64]]:
    """These columns; ``beside``: how many stand before them, under the user's own names."""
    missing = [name for name in columns if name not in table.header[beside:]]
    if missing:
        raise CrowdshotError(
            f"{table.name} has no column {missing[0]!r}, expected a table that `crowdshot adapt` wrote."
        )
    places = [table.header.index(name, beside) for name in columns]
    found = [table.numbers(place) for place in places]
    for name, place, values in zip(columns, places, found, strict=True):
        if name != "accuracy" and not np.isfinite(values).all():  # that of one who said nothing is not known
            where = table.place(first(~np.isfinite(values)), place)
            raise CrowdshotError(f"{where} is no finite number, expected a table that `crowdshot adapt` wrote.")
    return found


# ---- telling ----------------------------------------------------------------------------------------------------


def as_json(found: Comparison) -> dict[str, Any]:
    """``before`` and ``after`` are counts, accuracies and labels; of an annotator of one round alone one is None."""

    def skill(name: str, side: Skill | None) -> dict[str, Any]:
        fields = ("accuracy", "low", "high", "n_labels")
        values = dict.fromkeys(fields) if side is None else side._asdict()
        return {name if field == "accuracy" else f"{name}_{field}": values[field] for field in fields}

    return {
        "accepted": {"before": found.before.accepted, "after": found.after.accepted},
        "items": {"before": len(found.before.items), "after": len(found.after.items)},
        "labels": {"before": found.before.n_labels, "after": found.after.n_labels},
        "accepted_at": THRESHOLD,
        "annotators": [
            {
                "annotator": course.annotator,
                **skill("before", course.before),
                **skill("after", course.after),
                **dict(zip(("change", "change_low", "change_high"), course.change or (None,) * 3, strict=True)),
                "verdict": course.verdict,
            }
            for course in found.people
        ],
        "changed": [
            {
                "item": change.item,
                "before": change.before.label,
                "after": change.after.label,
                "before_confidence": change.before.confidence,
                "after_confidence": change.after.confidence,
            }
            for change in found.changed
        ],
        "newly_accepted": found.newly_accepted,
        "reopened": found.reopened,
        "added": found.added,
        "gone": found.gone,
    }


def tell(found: Comparison) -> str:
    """A few lines for the terminal."""
    old, new = found.before, found.after
    lines = [
        f"accepted: {old.accepted:,} of {len(old.items):,} items before, {new.accepted:,} of {len(new.items):,} after"
        f" ({counted(len(found.newly_accepted), 'items')} newly, {len(found.reopened):,} not any more)",
        f"labels: {old.n_labels:,} before, {new.n_labels:,} after",
        f"{counted(len(found.changed), 'items')} with another label than before",
    ]
    for word in ("worse", "better"):
        for course in found.of(word):
            assert course.before is not None
            assert course.after is not None
            lines.append(
                f"{clean(course.annotator, 60)} is {word}: {percent(course.before.accuracy)} right before"
                f" ({spread(course.before.low, course.before.high)}), {percent(course.after.accuracy)} after"
                f" ({spread(course.after.low, course.after.high)})"
            )
    unsure, both = len(found.of("no sure change")), sum(course.change is not None for course in found.people)
    lines.append(f"of {plural(both, 'annotator')} in both rounds {unsure:,} did not surely change")
    return "\n".join(lines)


# ---- compare page ------------------------------------------------------------
#
# Two rounds compared, as one HTML page in the report's own look: no network, no script.


HERE = Path(__file__).parent
MOST = 1_000  # rows of a table; `--json` has all


def render(found: Comparison) -> str:
    return fill(
        "compare.html",
        HERE,
        c=found,
        accepted_at=THRESHOLD,
        both=sum(course.change is not None for course in found.people),
        sure=sum(change.after.accepted for change in found.changed),
        most=MOST,
        style=inline(*STYLES, HERE / "compare.css"),
    )
