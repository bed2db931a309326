"""Results -> one HTML page that a labelling lead can read: no network, nothing to install.

`facts` computes what there is to say, with a module for each part (`items`; `people`: annotators and their flags;
`classes`; `map`; `pictures`; `how_made`); ``page.html`` says it, with ``page.css`` and ``page.js``.
"""

from __future__ import annotations

import base64
import hashlib
from datetime import date
from pathlib import Path
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from torch import Tensor

from crowdshot import wording
from crowdshot.classifier.classifier import CrowdClassifier
from crowdshot.report.page import facts, items
from crowdshot.report.page.facts import Facts
from crowdshot.report.page.how_made import Run
from crowdshot.report.page.map_paths import Drawing

HERE = Path(__file__).parent
MOST_PEOPLE = 300
MOST_MATRIX = 12  # classes of a confusion matrix that can still be read
MOST_CELLS = 20_000  # of all matrices together
KINDS = {
    "open": "Not settled",
    "overruled": "Settled against most labels",
    "unlabelled": "Nobody labelled it",
}


class Inline(NamedTuple):
    """Text inside the page, and its hash, by which the page's security policy knows it."""

    text: Markup
    hash: str


def write_report(path: Path, clf: CrowdClassifier, embeddings: Tensor, run: Run) -> None:
    """The page about a fitted classifier; embeddings (N, D) are those that it was fitted with."""
    path.write_text(render(facts.gather(clf, embeddings, run)), encoding="utf-8", newline="\n")


def render(found: Facts) -> str:
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"percent": wording.percent, "probability": wording.probability}
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "ensure_ascii": False}
    drawing = Drawing(found.map, found.classes)
    return environment.get_template("page.html").render(
        f=found,
        date=f"{date.today():%d %B %Y}".lstrip("0"),
        kinds=KINDS,
        matrices=_with_matrix(found),
        most_items=items.MOST,
        most_people=MOST_PEOPLE,
        most_matrix=MOST_MATRIX,
        drawing=drawing,
        style=_inline("page.css"),
        script=_inline("page.js"),
        spread=wording.spread,
        times=wording.times,
        plural=wording.plural,
    )


def _with_matrix(found: Facts) -> list[bool]:
    """Which of the people get one: all, or of many those that come first."""
    K = len(found.classes)
    each = MOST_CELLS // K**2 if K <= MOST_MATRIX else 0
    return [i < each for i in range(len(found.people))]


def _inline(name: str) -> Inline:
    text = (HERE / name).read_text("utf-8")
    digest: Any = hashlib.sha256(text.encode()).digest()
    return Inline(Markup(text), f"sha256-{base64.b64encode(digest).decode()}")
