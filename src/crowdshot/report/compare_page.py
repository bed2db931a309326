"""Two rounds compared, as one HTML page in the report's own look: no network, no script."""

from __future__ import annotations

from pathlib import Path

from crowdshot.labels.belief import SETTLED
from crowdshot.report.compare import Comparison
from crowdshot.report.page.inline import STYLES, inline
from crowdshot.report.page.templates import fill

HERE = Path(__file__).parent
MOST = 1_000  # rows of a table; `--json` has all


def render(found: Comparison) -> str:
    return fill(
        "compare.html",
        HERE,
        c=found,
        settled_at=SETTLED,
        both=sum(course.change is not None for course in found.people),
        sure=sum(change.after.settled for change in found.changed),
        most=MOST,
        style=inline(*STYLES, HERE / "compare.css"),
    )
