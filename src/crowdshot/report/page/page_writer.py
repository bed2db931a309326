"""Write the report as a single HTML page for a labelling lead, without network access or installation.

`facts` computes what the page shows. This module adds the texts that depend on the threshold and fills the templates
``page.html`` and ``parts/`` with the styles in ``style/`` and the scripts in ``script/``. It also writes the feedback
sheets.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from crowdshot.formatting import percent, plural
from crowdshot.labels.annotator_flags import USEFUL
from crowdshot.labels.consensus import REVIEW_KINDS, THRESHOLD, kinds_in_words
from crowdshot.report.folder_audit import describe_audit, why_none_accepted
from crowdshot.report.page.annotator_summaries import EXAMPLES_EACH, MOST_PEOPLE, PICTURED, Person
from crowdshot.report.page.facts import Facts
from crowdshot.report.page.item_map import Drawing, Picture, thumbnails
from crowdshot.report.page.next_steps import forecast_sentence, steps
from crowdshot.report.page.review_items import excerpt
from crowdshot.report.page.templates import HERE, STYLES, fill, inline
from crowdshot.report.page.thresholds import STEPS, Plot, listed, nearest

NEXT = ("merge", "look", "ask", "talk", "predict", "check")  # keys of the next steps, in their order on the page
LINKS = {"look": "#items", "talk": "#annotators"}
Texts = dict[str, str]


def texts_at(found: Facts, confidence: float = THRESHOLD) -> Texts:
    """Return the texts that depend on the threshold: {name: text of the elements with ``data-at="name"``}."""
    level, kinds = found.accepted(confidence), found.of_kind(confidence)
    shown = {kind: sum(item.kind(confidence) == kind for item in found.items) for kind in REVIEW_KINDS}
    todo = {step.key: step for step in steps(found, confidence)}
    return {
        "threshold": percent(confidence),
        "accepted": f"{level.labelled:,}",
        "why_none": "" if level.labelled else why_none_accepted(found.unanimous, confidence),
        "accepted_bar": f"{100 * level.labelled / found.n_labelled:.1f}",
        "person": f"{sum(kinds.values()):,}",
        "person_kinds": kinds_in_words(kinds),
        "buy": forecast_sentence(found, confidence),
        "curve": percent(nearest(found.curves, confidence).accepted_at),
        "verdict": found.verdict(confidence),
        "good": "yes" if found.automatic(confidence) else "no",
        **{f"class_{each.label}": f"{each.accepted[STEPS.index(confidence)]:,}" for each in found.class_facts},
        **{f"n_{kind}": f"{number:,}" for kind, number in kinds.items()},
        **{f"cut_{kind}": _cut(REVIEW_KINDS[kind], shown[kind], kinds[kind], found.run.table) for kind in REVIEW_KINDS},
        **{f"{key}_text": todo[key].text if key in todo else "" for key in NEXT},
        **{f"{key}_command": todo[key].command if key in todo else "" for key in NEXT},
    }


def texts_for_script(found: Facts) -> dict[str, Any]:
    """Return the texts at all thresholds without repetition.

    ``levels`` has a row for each threshold with positions in ``texts``, in the order of ``names``.
    """
    by_step = [texts_at(found, step) for step in STEPS]
    texts: dict[str, int] = {}
    levels = [[texts.setdefault(text, len(texts)) for text in at.values()] for at in by_step]
    return {"steps": STEPS, "names": list(by_step[0]), "texts": list(texts), "levels": levels}


def _cut(kind: str, shown: int, number: int, table: str) -> str:
    if shown == number:
        return ""
    return f"{kind}: the page shows the {shown:,} most uncertain of {plural(number, 'item')}; {table} has all."


SECTIONS = {  # {file in parts/: title in the navigation}
    "answer": "Overview",
    "audit": "Audit",
    "items": "Items",
    "annotators": "Annotators",
    "agreement": "Agreement",
    "labels": "More labels",
    "classes": "Classes",
    "map": "Map",
    "how": "How",
}
MOST_MISTAKES = 100  # wrong labels of an audit on the page
MOST_MATRIX = 12  # classes of a readable confusion matrix
MOST_CELLS = 20_000  # of all confusion matrices on the page


def write_page(path: Path, found: Facts) -> None:
    path.write_text(render(found), encoding="utf-8", newline="\n")


def render(found: Facts) -> str:
    absent = {id for id, facts in {"map": found.map, "audit": found.audit}.items() if facts is None}
    scripts = {  # {file in script/, a module of its own: whether the page has what it works on}
        "lists": True,
        "threshold": True,
        "items": bool(found.items),
        "copy": True,
        "people": True,
        "map": found.map is not None,
    }
    return fill(
        "page.html",
        f=found,
        now=texts_at(found),
        threshold_texts=texts_for_script(found),
        sections=[(id, title) for id, title in SECTIONS.items() if id not in absent],
        audit_sentences=describe_audit(found.audit) if found.audit else [],
        most_mistakes=MOST_MISTAKES,
        accepted_at=THRESHOLD,
        levels=listed(found.levels),
        steps=NEXT,
        links=LINKS,
        kinds=REVIEW_KINDS,
        matrices=_with_matrix(found),
        most_people=MOST_PEOPLE,
        useful=USEFUL,
        examples_each=EXAMPLES_EACH,
        pictured={person.position for person in found.people[:PICTURED]},
        most_matrix=MOST_MATRIX,
        plots=[Plot(curve) for curve in found.curves],
        drawing=found.map and Drawing(found.map, found.classes, _landmarks(found)),
        style=inline(*STYLES),
        scripts=[inline(HERE / "script" / f"{name}.js") for name, needed in scripts.items() if needed],
    )


def _landmarks(found: Facts) -> list[int]:
    """Return the items with a picture, typical items of the classes first."""
    typical = [example.row for each in found.class_facts for example in each.central]
    return [row for row in dict.fromkeys([*typical, *found.pictures]) if row in found.pictures]


def _with_matrix(found: Facts) -> list[bool]:
    """Return which annotators are shown with a confusion matrix; if there are many, the first ones."""
    K = len(found.classes)
    each = MOST_CELLS // K**2 if K <= MOST_MATRIX else 0
    return [i < each for i in range(len(found.people))]


# ---- feedback sheets ----

FEWEST_OTHERS = 5  # least number of annotators for which their spread is shown: with fewer, it would reveal individuals


@dataclass(frozen=True)
class Feedback:
    """The content of a feedback sheet; ``middle`` is the interquartile range of the accuracies of all annotators."""

    classes: list[str]
    person: Person
    middle: tuple[float, float] | None
    pictures: dict[int, Picture]
    texts: dict[int, str]


def write_sheets(folder: Path, found: Facts) -> None:
    """Write a page for each annotator that names no other annotator."""
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
        examples = [example.row for example in person.examples]
        sheet = Feedback(
            classes=found.classes,
            person=person,
            middle=middle,
            pictures={row: pictures[row] for row in examples if row in pictures},
            texts={row: excerpt(run.texts[row]) for row in examples} if run.texts else {},
        )
        page = fill("feedback.html", f=sheet, style=style, most_matrix=MOST_MATRIX)
        (folder / found.sheets[person.position]).write_text(page, encoding="utf-8", newline="\n")
