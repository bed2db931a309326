"""Results -> one HTML page that a labelling lead can read: no network, nothing to install.

`facts` computes what there is to say, with a module for each part (`levels`: what is settled at which threshold;
`next_steps`; `items`; `people`: annotators and their flags; `classes`; `map`; `pictures`; `how_made`), `telling` puts
into words what depends on the threshold; ``page.html`` and ``parts/`` say it, with ``style/`` and ``script/``.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from crowdshot import wording
from crowdshot.labels.belief import SETTLED
from crowdshot.report.page.facts import Facts
from crowdshot.report.page.inline import STYLES, inline
from crowdshot.report.page.items import KINDS
from crowdshot.report.page.levels import listed
from crowdshot.report.page.map_paths import Drawing
from crowdshot.report.page.telling import LINKS, NEXT, for_the_script, tell

HERE = Path(__file__).parent
SECTIONS = {  # a file in parts/, and what the reader calls it
    "answer": "Answer",
    "items": "Items",
    "annotators": "Annotators",
    "classes": "Classes",
    "map": "Map",
    "how": "How",
}
SCRIPTS = ("lists", "threshold", "items", "copy", "people", "map")  # files in script/, each a module of its own
MOST_PEOPLE = 300
MOST_MATRIX = 12  # classes of a confusion matrix that can still be read
MOST_CELLS = 20_000  # of all matrices together


def write_page(path: Path, found: Facts) -> None:
    path.write_text(render(found), encoding="utf-8", newline="\n")


def render(found: Facts) -> str:
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"percent": wording.percent, "probability": wording.probability}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    return environment.get_template("page.html").render(
        f=found,
        now=tell(found),
        told=for_the_script(found),
        date=f"{date.today():%d %B %Y}".lstrip("0"),
        sections=SECTIONS.items(),
        settled_at=SETTLED,
        levels=listed(found.levels),
        steps=NEXT,
        links=LINKS,
        kinds=KINDS,
        thing="image" if found.run.paths else "text" if found.run.texts else "feature",
        matrices=_with_matrix(found),
        most_people=MOST_PEOPLE,
        most_matrix=MOST_MATRIX,
        drawing=Drawing(found.map, found.classes),
        style=inline(*STYLES),
        scripts=[inline(HERE / "script" / f"{name}.js") for name in SCRIPTS],
        spread=wording.spread,
        times=wording.times,
        plural=wording.plural,
    )


def _with_matrix(found: Facts) -> list[bool]:
    """Which of the people get one: all, or of many those that come first."""
    K = len(found.classes)
    each = MOST_CELLS // K**2 if K <= MOST_MATRIX else 0
    return [i < each for i in range(len(found.people))]
