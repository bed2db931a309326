"""Results -> one HTML page that a labelling lead can read: no network, nothing to install.

`facts` computes what there is to say, with a module for each part (`levels`: what is accepted at which threshold;
`next_steps`; `items`; `people`, `flags`; `classes`; `map`; `pictures`; `how_made`), `telling` puts
into words what depends on the threshold; ``page.html`` and ``parts/`` say it, with ``style/`` and ``script/``.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from crowdshot import formatting
from crowdshot.formatting import percent, plural
from crowdshot.labels.confidence import THRESHOLD
from crowdshot.report import summary
from crowdshot.report.page.annotator_summaries import EXAMPLES_EACH, MOST_PEOPLE, PICTURED, Person
from crowdshot.report.page.facts import Facts
from crowdshot.report.page.item_map import Drawing
from crowdshot.report.page.next_steps import buy, steps
from crowdshot.report.page.review_items import KINDS, excerpt
from crowdshot.report.page.thresholds import STEPS, Plot, listed, nearest
from crowdshot.report.page.thumbnails import Picture, thumbnails

# ---- inline ------------------------------------------------------------
#
# Styles and scripts that stand in a page itself, as it loads nothing.


HERE = Path(__file__).parent
STYLES = [HERE / "style" / f"{name}.css" for name in ("base", "page")]


class Inline(NamedTuple):
    """Text inside the page, and its hash, by which the page's security policy knows it."""

    text: Markup
    hash: str


def inline(*files: Path) -> Inline:
    text = "".join(file.read_text("utf-8") for file in files)
    digest = hashlib.sha256(text.encode()).digest()
    return Inline(Markup(text), f"sha256-{base64.b64encode(digest).decode()}")


# ---- templates ------------------------------------------------------------
#
# How templates are filled in: everything is escaped, and a name that is not there is an error.


@cache
def _environment(folder: Path) -> Environment:
    environment = Environment(loader=FileSystemLoader([folder, HERE]), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {name: getattr(formatting, name) for name in ("percent", "probability", "clean", "ending")}
    environment.globals |= {name: getattr(formatting, name) for name in ("spread", "times", "plural")}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return environment


def fill(template: str, folder: Path = HERE, scripts: Sequence[Inline] = (), **given: Any) -> str:
    """``folder``: where the template is; what it includes may be of this room. ``scripts``: what runs, at its end."""
    today = f"{date.today():%d %B %Y}".lstrip("0")
    return _environment(folder).get_template(template).render(date=today, scripts=scripts, **given)


# ---- telling ------------------------------------------------------------
#
# What the page says at each threshold that a reader can choose: words are made here, the script only swaps them.


NEXT = ("merge", "look", "ask", "talk", "predict", "check")  # the keys of steps, in their order on the page
LINKS = {"look": "#items", "talk": "#annotators"}
Words = dict[str, str]


def tell(found: Facts, confidence: float = THRESHOLD) -> Words:
    """By name, what stands where the page has ``data-at="name"``."""
    level, kinds = found.accepted(confidence), found.of_kind(confidence)
    shown = {kind: sum(item.kind(confidence) == kind for item in found.items) for kind in KINDS}
    todo = {step.key: step for step in steps(found, confidence)}
    return {
        "threshold": percent(confidence),
        "accepted": f"{level.labelled:,}",
        "accepted_bar": f"{100 * level.labelled / found.n_labelled:.1f}",
        "person": f"{sum(kinds.values()):,}",
        "person_kinds": summary.kinds_in_words(kinds),
        "buy": buy(found, confidence),
        "curve": percent(nearest(found.curves, confidence).accepted_at),
        "verdict": found.verdict(confidence),
        "good": "yes" if found.by_itself(confidence) else "no",
        **{f"class_{each.label}": f"{each.accepted[STEPS.index(confidence)]:,}" for each in found.class_facts},
        **{f"n_{kind}": f"{number:,}" for kind, number in kinds.items()},
        **{f"cut_{kind}": _cut(KINDS[kind], shown[kind], kinds[kind]) for kind in KINDS},
        **{f"{key}_text": todo[key].text if key in todo else "" for key in NEXT},
        **{f"{key}_command": todo[key].command if key in todo else "" for key in NEXT},
    }


def for_the_script(found: Facts) -> dict[str, Any]:
    """All of it, compact: ``levels`` has a row a threshold, of places in ``words``, in the order of ``names``."""
    told = [tell(found, step) for step in STEPS]
    words: dict[str, int] = {}
    levels = [[words.setdefault(text, len(words)) for text in at.values()] for at in told]
    return {"steps": STEPS, "names": list(told[0]), "words": list(words), "levels": levels}


def _cut(kind: str, shown: int, number: int) -> str:
    if shown == number:
        return ""
    cut = f"{shown:,} of {plural(number, 'item')}, the most doubtful of each kind"
    return f"{kind}: the page has {cut}; consensus.csv has all."


# ---- writing ------------------------------------------------------------


SECTIONS = {  # a file in parts/, and what the reader calls it
    "answer": "Answer",
    "items": "Items",
    "annotators": "Annotators",
    "agreement": "Agreement",
    "labels": "More labels",
    "classes": "Classes",
    "map": "Map",
    "how": "How",
}
SCRIPTS = ("lists", "threshold", "items", "copy", "people", "map")  # files in script/, each a module of its own
MOST_MATRIX = 12  # classes of a confusion matrix that can still be read
MOST_CELLS = 20_000  # of all matrices together


def write_page(path: Path, found: Facts) -> None:
    path.write_text(render(found), encoding="utf-8", newline="\n")


def render(found: Facts) -> str:
    return fill(
        "page.html",
        f=found,
        now=tell(found),
        told=for_the_script(found),
        sections=SECTIONS.items(),
        accepted_at=THRESHOLD,
        levels=listed(found.levels),
        steps=NEXT,
        links=LINKS,
        kinds=KINDS,
        matrices=_with_matrix(found),
        most_people=MOST_PEOPLE,
        examples_each=EXAMPLES_EACH,
        pictured={person.position for person in found.people[:PICTURED]},
        most_matrix=MOST_MATRIX,
        plots=[Plot(curve) for curve in found.curves],
        drawing=Drawing(found.map, found.classes, _landmarks(found)),
        style=inline(*STYLES),
        scripts=[inline(HERE / "script" / f"{name}.js") for name in SCRIPTS],
    )


def _landmarks(found: Facts) -> list[int]:
    """Items with a picture, those first that show what a class is."""
    typical = [example.row for each in found.class_facts for example in each.central]
    return [row for row in dict.fromkeys([*typical, *found.pictures]) if row in found.pictures]


def _with_matrix(found: Facts) -> list[bool]:
    """Which of the people get one: all, or of many those that come first."""
    K = len(found.classes)
    each = MOST_CELLS // K**2 if K <= MOST_MATRIX else 0
    return [i < each for i in range(len(found.people))]


# ---- feedback ------------------------------------------------------------
#
# A page for each annotator, to hand out: what they get right and wrong, and no other annotator's name.


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
