"""``crowdshot compare``: compare two rounds of a project."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot._cli.console import print_json
from crowdshot._cli.options import AsJson, output_option

if TYPE_CHECKING:
    from crowdshot.report.round_comparison import Comparison


def run_compare(before: Path, after: Path, page: Path | None = None) -> Comparison:
    """Compare two folders of results, and write a page."""
    from crowdshot.io.atomic import check_page, write_files
    from crowdshot.report.round_comparison import compare as compare_rounds
    from crowdshot.report.round_comparison import render

    if page is not None:
        check_page(page, argument="page")
    found = compare_rounds(before, after)
    if page is not None:
        write_files([(page, render(found))])
    return found


# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot compare round-1 round-2
  crowdshot compare round-1 round-2 --page progress.html
"""


def compare(
    before: Annotated[
        Path,
        typer.Argument(
            metavar="BEFORE", help="The folder that `adapt` or `aggregate --report` wrote in the earlier round."
        ),
    ],
    after: Annotated[Path, typer.Argument(metavar="AFTER", help="The folder of the later round.")],
    page: Annotated[
        Path | None, output_option("--page", "--out", metavar="FILE.html", help="Also write a page.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compare two rounds of labelling.

    Lists the items that were accepted or changed their label, and how the annotators changed.
    """
    from crowdshot.report.round_comparison import result_of, summarise

    found = run_compare(before, after, page)
    if as_json:
        print_json(result_of(found, [] if page is None else [page]))
        return
    typer.echo(summarise(found))
    if page is not None:
        typer.echo(f"{page}  the comparison as a page to read in a browser")
