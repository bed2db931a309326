"""``crowdshot push``: labels and their confidence -> suggestions in a label tool that runs."""

from __future__ import annotations

import hashlib
import json
import os
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from crowdshot._cli.console import note
from crowdshot._cli.options import AsJson
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing
from crowdshot.version import __version__


def run_push(
    path: Path, tool: str, url: str, project: str, question: str | None = None, threshold: float = 0.0
) -> dict[str, Any]:
    """``path``: a table or a folder; ``question``: which tag or question of the tool's, where it has several."""
    from crowdshot.report.label_tools import TOOLS, read_suggestions

    if tool not in TOOLS:
        raise CrowdshotError(f"to is {tool!r}, expected one of {listing(TOOLS)}.")
    chosen = TOOLS[tool]
    token = os.environ.get(chosen.variable, "").strip()
    if not token or not token.isascii():
        raise CrowdshotError(f"the environment has no token in {chosen.variable}, expected one of {tool}'s.")
    posteriors = read_suggestions(path, threshold)
    if not posteriors:
        raise CrowdshotError(f"{path} holds no label of a probability of {threshold:g} or more, expected one.")
    found = chosen.push(chosen.connect(url, token), project, posteriors, question, _name(path))
    if not found.pushed:
        raise CrowdshotError(
            f"project {project} has none of the {len(found.lost):,} items, first {found.lost[0]!r}, expected some."
        )
    return found._asdict()


def _name(path: Path) -> str:
    """The same for the same table, so that what is pushed twice is there once."""
    from crowdshot.io.tables import read_bytes
    from crowdshot.report.round_comparison import CONSENSUS

    data = read_bytes(path / CONSENSUS if path.is_dir() else path)
    return f"crowdshot-{__version__}-{hashlib.sha256(data).hexdigest()[:8]}"


# ---- push ------------------------------------------------------------
#
# ``crowdshot push`` on the command line; `app` adds it.


# "\b" keeps the lines that follow as they are
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
            metavar="TABLE|DIR", help="What `aggregate` or `predict` wrote to --out, or the folder of `adapt`."
        ),
    ],
    to: Annotated[Tool, typer.Option(help="Which label tool it is.")],
    url: Annotated[str, typer.Option(metavar="URL", help="Where it is, like http://127.0.0.1:8080.")],
    project: Annotated[
        str,
        typer.Option(help="The number of Label Studio's project or of CVAT's task, or the name of Argilla's dataset."),
    ],
    question: Annotated[
        str | None, typer.Option(metavar="NAME", help="Which Choices tag or question, where there are several.")
    ] = None,
    threshold: Annotated[float, typer.Option(metavar="P", help="How probable a label must be to be pushed.")] = 0.0,
    as_json: AsJson = False,
) -> None:
    """Show the labels as suggestions in a label tool: predictions in Label Studio, suggestions in Argilla, CVAT's tags.

    The token comes from the environment: LABEL_STUDIO_API_KEY, ARGILLA_API_KEY or CVAT_ACCESS_TOKEN. What was pushed
    before is replaced; what people said is left alone.
    """
    from crowdshot.formatting import plural, show

    found = run_push(path, to.value, url, project, question, threshold)
    if found["lost"]:
        note(f"the project lacks {plural(len(found['lost']), 'item')}, first {show(found['lost'][0])}.")
    typer.echo(json.dumps(found) if as_json else f"{plural(found['pushed'], 'label')} pushed as {found['name']}")
