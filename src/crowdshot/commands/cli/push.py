"""``crowdshot push`` on the command line; `app` adds it."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crowdshot.commands.cli.console import note
from crowdshot.commands.cli.options import AsJson

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
    from crowdshot.commands import push
    from crowdshot.wording import plural, show

    found = push.push(path, to.value, url, project, question, threshold)
    if found["lost"]:
        note(f"the project lacks {plural(len(found['lost']), 'item')}, first {show(found['lost'][0])}.")
    typer.echo(json.dumps(found) if as_json else f"{plural(found['pushed'], 'label')} pushed as {found['name']}")
