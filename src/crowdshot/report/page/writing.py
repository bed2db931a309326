"""Results -> one HTML page that a labelling lead can read: no network, nothing to install.

`facts` computes what there is to say, with a module for each part (`levels`: what is settled at which threshold;
`next_steps`; `items`; `people`, `flags`; `classes`; `map`; `pictures`; `how_made`), `telling` puts
into words what depends on the threshold; ``page.html`` and ``parts/`` say it, with ``style/`` and ``script/``.
"""

from __future__ import annotations

from pathlib import Path

from crowdshot.labels.belief import SETTLED
from crowdshot.report.page.facts import Facts
from crowdshot.report.page.inline import STYLES, inline
from crowdshot.report.page.items import KINDS
from crowdshot.report.page.levels import listed
from crowdshot.report.page.map_paths import Drawing
from crowdshot.report.page.more_labels import Plot
from crowdshot.report.page.people import EXAMPLES_EACH, MOST_PEOPLE, PICTURED
from crowdshot.report.page.telling import LINKS, NEXT, for_the_script, tell
from crowdshot.report.page.templates import HERE, fill

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
        settled_at=SETTLED,
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
