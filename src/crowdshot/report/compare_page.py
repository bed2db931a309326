"""Two rounds compared, as one HTML page in the report's own look: no network, no script."""

from __future__ import annotations

from datetime import date
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from crowdshot import wording
from crowdshot.labels.belief import SETTLED
from crowdshot.report.compare import Comparison
from crowdshot.report.page.inline import STYLES, inline

HERE = Path(__file__).parent
MOST = 1_000  # rows of a table; `--json` has all


def render(found: Comparison) -> str:
    environment = Environment(loader=FileSystemLoader(HERE), autoescape=True, undefined=StrictUndefined)
    environment.filters |= {"percent": wording.percent, "clean": wording.clean}
    return environment.get_template("compare.html").render(
        c=found,
        date=f"{date.today():%d %B %Y}".lstrip("0"),
        settled_at=SETTLED,
        both=sum(course.change is not None for course in found.people),
        sure=sum(change.after.settled for change in found.changed),
        most=MOST,
        style=inline(*STYLES, HERE / "compare.css"),
        spread=wording.spread,
        plural=wording.plural,
    )
