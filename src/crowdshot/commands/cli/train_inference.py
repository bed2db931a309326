"""``crowdshot train-inference`` on the command line; `app` adds it."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from crowdshot.commands.cli.options import AsJson
from crowdshot.errors import CrowdshotError

# "\b" keeps the lines that follow as they are
EXAMPLES = """\b
Examples:
  crowdshot train-inference --out network.safetensors
  crowdshot train-inference --projects past --leave-out birds,fish --out network.safetensors
  crowdshot train-inference --projects past --fine-tune --relatives birds=more-birds --out ours.safetensors
"""


def train_inference(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The network to write.")],
    projects: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Finished projects to learn from, beside simulated ones: a folder for each, with answers.csv (item,"
            " annotator, label) and truth.csv (item, truth).",
        ),
    ] = None,
    leave_out: Annotated[
        str | None, typer.Option(metavar="NAME,…|all", help="Projects to score on and not to learn from.")
    ] = None,
    fine_tune: Annotated[
        bool,
        typer.Option(
            "--fine-tune",
            help="Start from the shipped network (or --initial), score each project by what was learned without it, and"
            " write nothing that is worse there.",
        ),
    ] = False,
    relatives: Annotated[
        str | None,
        typer.Option(metavar="A=B=C,…", help="Projects that share items or people: left out together."),
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Else 500, or 200 with --fine-tune.", show_default=False)
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")] = 0,
    initial: Annotated[Path | None, typer.Option(metavar="FILE", help="A network to start from.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where progress is kept; else next to --out.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Learn how labels are believed: from simulated crowds, and from your own finished projects.

    Interrupted or killed, the same command goes on where it was.
    """
    from crowdshot.commands import train_inference as command

    files = command.InferenceFiles(
        out, projects, _names(leave_out), initial, checkpoint, [_group(part) for part in _names(relatives)]
    )
    report = command.train_inference(files, iterations, seed, fine_tune, sys.argv[1:])
    typer.echo(json.dumps(report) if as_json else command.tell(report), err=report["interrupted"])
    if report["interrupted"]:
        raise SystemExit(130)


def _names(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _group(text: str) -> list[str]:
    names = [part.strip() for part in text.split("=")]
    if len(names) < 2 or not all(names):
        raise CrowdshotError(f"--relatives is {text!r}, expected names of projects like a=b=c,d=e.")
    return names
