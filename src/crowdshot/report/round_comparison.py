"""Compare two rounds of a project: accepted items, accuracies of annotators, and changed consensus labels.

A round is a folder that ``adapt`` or ``aggregate --report`` wrote. Its consensus.csv and annotators.csv are read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import clean, counted, first, percent, plural, show, spread
from crowdshot.io.tables import Table, one_each, read_table
from crowdshot.labels.consensus import THRESHOLD
from crowdshot.report.page.templates import STYLES, fill, inline

CONSENSUS, ANNOTATORS = "consensus.csv", "annotators.csv"
ROUND_FOLDER = "a folder that `crowdshot adapt` or `crowdshot aggregate --report` wrote"
HERE = Path(__file__).parent
MOST_PRINTED = 10  # changed items on the terminal
MOST = 1_000  # rows of a table on the page; `--json` has all


class Consensus(NamedTuple):
    """The consensus label of an item."""

    label: str
    confidence: float
    n_labels: int

    @property
    def accepted(self) -> bool:
        return self.confidence >= THRESHOLD


class Skill(NamedTuple):
    """The accuracy of an annotator with its 90 % interval."""

    accuracy: float
    low: float
    high: float
    n_labels: int


@dataclass(frozen=True)
class Round:
    name: str
    items: dict[str, Consensus]
    people: dict[str, Skill]

    @property
    def n_labels(self) -> int:
        return sum(item.n_labels for item in self.items.values())

    @property
    def accepted(self) -> int:
        return sum(item.accepted for item in self.items.values())


class Change(NamedTuple):
    """An item with a changed consensus label."""

    item: str
    before: Consensus
    after: Consensus


class Course(NamedTuple):
    """An annotator in both rounds; ``before`` or ``after`` is None if they gave no label in that round."""

    annotator: str
    before: Skill | None
    after: Skill | None

    @property
    def change(self) -> tuple[float, float, float] | None:
        """The change in accuracy with its 90 % interval.

        The rounds are treated as independent. If the second one contains the labels of the first, the interval is too
        wide.
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
    """Two rounds; ``common`` are the items of both."""

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
        """Items that were accepted before and no longer are."""
        return [name for name in self.common if self.after.items[name].accepted < self.before.items[name].accepted]

    @property
    def added(self) -> list[str]:
        return [name for name in self.after.items if name not in self.before.items]

    @property
    def gone(self) -> list[str]:
        return [name for name in self.before.items if name not in self.after.items]

    @property
    def moved(self) -> list[Course]:
        """Annotators who changed: worse, better, new and gone, in this order."""
        order = ("worse", "better", "new", "gone")
        return [course for verdict in order for course in self.with_verdict(verdict)]

    @property
    def unmoved(self) -> list[Course]:
        return self.with_verdict("no sure change")

    def with_verdict(self, verdict: str) -> list[Course]:
        return [course for course in self.people if course.verdict == verdict]


def compare(before: Path, after: Path) -> Comparison:
    """Compare two folders that ``adapt`` wrote."""
    rounds = [read_round(folder) for folder in (before, after)]
    old, new = rounds
    common = [name for name in new.items if name in old.items]
    if not common:
        raise CrowdshotError(
            f"has none of the items of {before}",
            where=after,
            found=next(iter(new.items), None),
            expected=f"items such as {show(next(iter(old.items)))}, from another round of the same project",
        )
    changed = [
        Change(name, old.items[name], new.items[name])
        for name in common
        if old.items[name].label != new.items[name].label
    ]
    changed.sort(key=lambda change: -change.after.confidence)
    names = dict.fromkeys([*new.people, *old.people])
    people = [Course(name, old.people.get(name), new.people.get(name)) for name in names]
    people.sort(key=lambda course: course.change[0] if course.change else np.inf)  # the largest losses first
    return Comparison(old, new, common, changed, people)


# ---- reading ----


def read_round(folder: Path) -> Round:
    if not folder.is_dir():
        raise CrowdshotError("is a file" if folder.exists() else "does not exist", where=folder, expected=ROUND_FOLDER)
    for name in (CONSENSUS, ANNOTATORS):
        if not (folder / name).is_file():
            raise CrowdshotError(f"has no {name}", where=folder, expected=ROUND_FOLDER)
    consensus, people = read_table(folder / CONSENSUS), read_table(folder / ANNOTATORS)
    confidence, n_labels = numbers_of(consensus, "confidence", "n_labels", beside=2)
    items = [
        Consensus(str(label), float(sure), int(n))
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
    """Return columns as numbers; the first ``beside`` columns are the user's and may have any name."""
    missing = [name for name in columns if name not in table.header[beside:]]
    if missing:
        raise CrowdshotError(
            f"has no column {missing[0]!r}",
            where=table.name,
            found=table.header,
            expected="a table that `crowdshot adapt` wrote",
        )
    places = [table.header.index(name, beside) for name in columns]
    found = [table.numbers(place) for place in places]
    for name, place, values in zip(columns, places, found, strict=True):
        if (
            name != "accuracy" and not np.isfinite(values).all()
        ):  # the accuracy of an annotator without labels is not known
            row = first(~np.isfinite(values))
            raise CrowdshotError(
                "is not a finite number",
                where=table.place(row, place),
                found=float(values[row]),
                expected="a table that `crowdshot adapt` wrote",
            )
    return found


# ---- output ----


class BothRounds(NamedTuple):
    """A number in both rounds."""

    before: int
    after: int


@dataclass(frozen=True)
class AnnotatorChange:
    """The accuracy of an annotator in both rounds and its change, with 90 % intervals.

    Numbers are None in a round without labels of the annotator.
    """

    annotator: str
    before: float | None
    before_low: float | None
    before_high: float | None
    before_n_labels: int | None
    after: float | None
    after_low: float | None
    after_high: float | None
    after_n_labels: int | None
    change: float | None
    change_low: float | None
    change_high: float | None
    verdict: str


@dataclass(frozen=True)
class ItemChange:
    """The old and new consensus label of an item, with their confidence."""

    item: str
    before: str
    after: str
    before_confidence: float
    after_confidence: float


@dataclass(frozen=True)
class ComparisonResult:
    """The comparison as it is printed with ``--json``; ``files`` has the page, if it was written."""

    accepted: BothRounds
    items: BothRounds
    labels: BothRounds
    accepted_at: float
    annotators: Sequence[AnnotatorChange]
    changed: Sequence[ItemChange]
    newly_accepted: Sequence[str]
    reopened: Sequence[str]
    added: Sequence[str]
    gone: Sequence[str]
    files: Sequence[Path]


def result_of(found: Comparison, files: Sequence[Path] = ()) -> ComparisonResult:
    old, new = found.before, found.after
    return ComparisonResult(
        accepted=BothRounds(old.accepted, new.accepted),
        items=BothRounds(len(old.items), len(new.items)),
        labels=BothRounds(old.n_labels, new.n_labels),
        accepted_at=THRESHOLD,
        annotators=[_change(each) for each in found.people],
        changed=[
            ItemChange(item, before.label, after.label, before.confidence, after.confidence)
            for item, before, after in found.changed
        ],
        newly_accepted=found.newly_accepted,
        reopened=found.reopened,
        added=found.added,
        gone=found.gone,
        files=files,
    )


def _change(course: Course) -> AnnotatorChange:
    before, after, change = course.before, course.after, course.change
    return AnnotatorChange(
        annotator=course.annotator,
        before=before and before.accuracy,
        before_low=before and before.low,
        before_high=before and before.high,
        before_n_labels=before and before.n_labels,
        after=after and after.accuracy,
        after_low=after and after.low,
        after_high=after and after.high,
        after_n_labels=after and after.n_labels,
        change=change and change[0],
        change_low=change and change[1],
        change_high=change and change[2],
        verdict=course.verdict,
    )


def summarise(found: Comparison) -> str:
    """Return a summary of a few lines for the terminal."""
    old, new = found.before, found.after
    lines = [
        f"accepted: {old.accepted:,} of {len(old.items):,} items before, {new.accepted:,} of {len(new.items):,} after"
        f" ({counted(len(found.newly_accepted), 'items')} newly accepted, {len(found.reopened):,} no longer accepted)",
        f"labels: {old.n_labels:,} before, {new.n_labels:,} after",
        f"changed consensus: {counted(len(found.changed), 'items')}",
    ]
    lines += [
        f"  {clean(item, 60)}: {clean(before.label, 30)} ({percent(before.confidence)}) → {clean(after.label, 30)}"
        f" ({percent(after.confidence)})"
        for item, before, after in found.changed[:MOST_PRINTED]
    ]
    if len(found.changed) > MOST_PRINTED:
        lines.append(f"  … and {len(found.changed) - MOST_PRINTED:,} more (--json lists all)")
    for word in ("worse", "better"):
        for course in found.with_verdict(word):
            assert course.before is not None
            assert course.after is not None
            lines.append(
                f"{clean(course.annotator, 60)} is {word}: {percent(course.before.accuracy)} correct before"
                f" ({spread(course.before.low, course.before.high)}), {percent(course.after.accuracy)} after"
                f" ({spread(course.after.low, course.after.high)})"
            )
    unclear = len(found.with_verdict("no sure change"))
    lines.append(f"no significant change: {unclear:,} of {plural(_n_in_both(found), 'annotator')} in both rounds")
    return "\n".join(lines)


def _n_in_both(found: Comparison) -> int:
    return sum(course.change is not None for course in found.people)


def render(found: Comparison) -> str:
    """Return the comparison as an HTML page without network access or scripts."""
    return fill(
        "compare.html",
        HERE,
        c=found,
        accepted_at=THRESHOLD,
        n_in_both=_n_in_both(found),
        changed_accepted=sum(change.after.accepted for change in found.changed),
        most=MOST,
        style=inline(*STYLES, HERE / "compare.css"),
    )
