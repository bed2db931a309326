"""``crowdshot compare`` on the command line; `app` adds it."""

import json
from pathlib import Path
from typing import Annotated

import typer

from crowdshot.commands.cli.options import AsJson

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
    """Two rounds side by side: what got settled, how annotators changed, and which items have another label."""
    from crowdshot.commands import compare
    from crowdshot.report.compare import as_json as plain
    from crowdshot.report.compare import tell

    found = compare.compare(before, after, out)
    if as_json:
        typer.echo(json.dumps({**plain(found), "files": [] if out is None else [str(out)]}))
        return
    typer.echo(tell(found))
    if out is not None:
        typer.echo(f"{out}  all of it on a page to read, in a browser")
