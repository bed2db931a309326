"""``crowdshot compare``: compare two rounds of a project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot._cli.console import print_json
from crowdshot._cli.options import AsJson

if TYPE_CHECKING:
    from crowdshot.report.round_comparison import Comparison


def run_compare(before: Path, after: Path, out: Path | None = None) -> Comparison:
    """Compare two folders of results, and write a page to ``out``."""
    from crowdshot.io.atomic import check_page, write_files
    from crowdshot.report.round_comparison import compare as compare_rounds
    from crowdshot.report.round_comparison import render

    if out is not None:
        check_page(out, argument="out")
    found = compare_rounds(before, after)
    if out is not None:
        write_files([(out, render(found))])
    return found


# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot compare round-1 round-2
  crowdshot compare round-1 round-2 --out progress.html
"""


def compare(
    before: Annotated[
        Path,
        typer.Argument(
            metavar="BEFORE", help="The folder that `adapt` or `aggregate --report` wrote in the earlier round."
        ),
    ],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="The folder of the later round.")],
    out: Annotated[Path | None, typer.Option(metavar="FILE.html", help="Also write the comparison as a page.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two rounds of labelling.

    Lists the items that were accepted or changed their label, and how the annotators changed.
    """
    from crowdshot.report.round_comparison import result_of, summarise

    found = run_compare(before, after, out)
    if as_json:
        print_json(result_of(found, [] if out is None else [out]))
        return
    typer.echo(summarise(found))
    if out is not None:
        typer.echo(f"{out}  the comparison as a page to read in a browser")
