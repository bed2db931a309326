"""A page for each annotator, to hand out: what they get right and wrong, and no other annotator's name."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from crowdshot.report.page.facts import Facts
from crowdshot.report.page.inline import STYLES, inline
from crowdshot.report.page.items import excerpt
from crowdshot.report.page.people import MOST_PEOPLE, Person
from crowdshot.report.page.pictures import Picture, thumbnails
from crowdshot.report.page.templates import fill
from crowdshot.report.page.writing import MOST_MATRIX

FEWEST_OTHERS = 5  # annotators of whom something is said together: of fewer it would tell of one


@dataclass(frozen=True)
class Feedback:
    """What one sheet says. ``middle``: between which accuracies half of all annotators are."""

    classes: list[str]
    person: Person
    middle: tuple[float, float] | None
    pictures: dict[int, Picture]
    texts: dict[int, str]


def write_sheets(folder: Path, found: Facts) -> None:
    folder.mkdir()
    people, run = found.people[:MOST_PEOPLE], found.run
    rows = sorted({example.row for person in people for example in person.examples})
    pictures = thumbnails({row: run.paths[row] for row in rows}) if run.paths else {}
    middle = None
    if len(found.people) >= FEWEST_OTHERS:
        low, high = np.quantile([person.accuracy for person in found.people], (0.25, 0.75))
        middle = (float(low), float(high))
    style = inline(*STYLES)
    for person in people:
        theirs = [example.row for example in person.examples]
        sheet = Feedback(
            classes=found.classes,
            person=person,
            middle=middle,
            pictures={row: pictures[row] for row in theirs if row in pictures},
            texts={row: excerpt(run.texts[row]) for row in theirs} if run.texts else {},
        )
        page = fill("feedback.html", f=sheet, style=style, most_matrix=MOST_MATRIX)
        (folder / found.sheets[person.position]).write_text(page, encoding="utf-8", newline="\n")
