"""``crowdshot push``: send labels with their confidence to a label tool, as suggestions."""

from __future__ import annotations

import hashlib
import os
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot._cli.console import note, print_json
from crowdshot._cli.options import AsJson, tool_option
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing
from crowdshot.version import __version__

if TYPE_CHECKING:
    from crowdshot.report.label_tools import Pushed


def run_push(
    path: Path, tool: str, url: str, project: str, question: str | None = None, threshold: float = 0.0
) -> Pushed:
    """Push labels to a project of a label tool.

    Parameters
    ----------
    path : Path
        A table of `aggregate` or `predict`, or a folder of `adapt`.
    tool : str
        A key of `crowdshot.report.label_tools.TOOLS`.
    url : str
        The address of the tool.
    project : str
        The project, task or dataset.
    question : str, optional
        The tag or question to answer, if the project has several.
    threshold : float
        The lowest probability of a label that is pushed.
    """
    from crowdshot.report.label_tools import TOOLS, read_suggestions

    if tool not in TOOLS:
        raise CrowdshotError(f"is {tool!r}", argument="to", found=tool, expected=f"one of {listing(TOOLS)}")
    chosen = TOOLS[tool]
    posteriors = read_suggestions(path, threshold)
    if not posteriors:
        message = f"has no label with a probability of {threshold:g} or more"
        raise CrowdshotError(message, where=path, found=threshold)
    token = os.environ.get(chosen.variable, "").strip()
    if not token or not token.isascii():
        state = "has characters that no token has" if token else "is not set"
        message = f"The environment variable {chosen.variable} {state}"
        raise CrowdshotError(message, expected=f"an access token of {tool}")
    found = chosen.push(chosen.connect(url, token), project, posteriors, question, _name(path))
    if not found.pushed:
        message = f"is {project}, which has none of the {len(found.lost):,} items, first {found.lost[0]!r}"
        raise CrowdshotError(message, argument="project", found=project)
    return found


def _name(path: Path) -> str:
    """Return a name made from the content of the table, so that pushing it again replaces the suggestions."""
    from crowdshot.io.tables import read_bytes
    from crowdshot.report.round_comparison import CONSENSUS

    data = read_bytes(path / CONSENSUS if path.is_dir() else path)
    return f"crowdshot-{__version__}-{hashlib.sha256(data).hexdigest()[:8]}"


# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot push results --to label-studio --url http://127.0.0.1:8080 --project 1
  crowdshot push consensus.csv --to argilla --url http://127.0.0.1:6900 --project reviews --question sentiment
  crowdshot push consensus.csv --to cvat --url https://cvat.example.org --project 7 --threshold 0.9
"""


class Tool(StrEnum):
    ARGILLA = "argilla"
    CVAT = "cvat"
    LABEL_STUDIO = "label-studio"


def push(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE|DIR", help="A table that `aggregate` or `predict` wrote, or the folder that `adapt` wrote."
        ),
    ],
    to: Annotated[Tool, tool_option(help="The label tool.")],
    url: Annotated[str, tool_option(metavar="URL", help="The address of the label tool, like http://127.0.0.1:8080.")],
    project: Annotated[
        str,
        tool_option(
            metavar="ID|NAME",
            help="The id of the Label Studio project or CVAT task, or the name of the Argilla dataset.",
        ),
    ],
    question: Annotated[
        str | None, tool_option(metavar="NAME", help="The Choices tag or question, if there are several.")
    ] = None,
    threshold: Annotated[float, tool_option(metavar="P", help="Push labels with at least this probability.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Show consensus labels as suggestions in a label tool.

    They become predictions in Label Studio, suggestions in Argilla and tags in CVAT. The access token is read from the
    environment: LABEL_STUDIO_API_KEY, ARGILLA_API_KEY or CVAT_ACCESS_TOKEN. Earlier suggestions of crowdshot are
    replaced; labels of people are not changed.
    """
    from crowdshot.formatting import plural, show

    found = run_push(path, to.value, url, project, question, threshold)
    if found.lost:
        note(f"{plural(len(found.lost), 'item')} not found in the project, first {show(found.lost[0])}.")
    if as_json:
        print_json(found)
    else:
        typer.echo(f"{plural(found.pushed, 'label')} pushed as {found.name}")
