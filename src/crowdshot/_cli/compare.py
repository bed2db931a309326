"""``crowdshot compare``: two rounds of one project, as ``adapt`` wrote them, side by side."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot._cli.options import AsJson
from crowdshot.errors import CrowdshotError

if TYPE_CHECKING:
    from crowdshot.report.round_comparison import Comparison


def run_compare(before: Path, after: Path, out: Path | None = None) -> Comparison:
    """Two folders -> what changed; and a page that shows it."""
    from crowdshot.io.atomic import check_file, replacing
    from crowdshot.report.round_comparison import compare as compare_rounds
    from crowdshot.report.round_comparison import render

    if out is not None:
        check_file(out)
        if out.suffix.lower() not in (".html", ".htm"):
            raise CrowdshotError(f"{out} is to hold a page, expected a name that ends in .html.")
    found = compare_rounds(before, after)
    if out is not None:
        with replacing(out) as temporary:
            temporary.write_text(render(found), encoding="utf-8", newline="\n")
    return found


# ---- compare ------------------------------------------------------------
#
# ``crowdshot compare`` on the command line; `app` adds it.


# "\b" keeps the lines that follow as they are
EXAMPLES = """\b
Examples:
  crowdshot compare round-1 round-2
  crowdshot compare round-1 round-2 --out progress.html
"""


def compare(
    before: Annotated[Path, typer.Argument(metavar="BEFORE", help="A folder that `adapt` wrote.")],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="Another one, of a later round.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE.html", help="A page to write.")] = None,
    as_json: AsJson = False,
) -> None:
    """Two rounds side by side: what got accepted, how annotators changed, and which items have another label."""
    from crowdshot.report.round_comparison import as_json as plain
    from crowdshot.report.round_comparison import summarise

    found = run_compare(before, after, out)
    if as_json:
        typer.echo(json.dumps({**plain(found), "files": [] if out is None else [str(out)]}))
        return
    typer.echo(summarise(found))
    if out is not None:
        typer.echo(f"{out}  all of it on a page to read, in a browser")
