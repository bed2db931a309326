"""``crowdshot serve`` on the command line; `app` adds it."""

from pathlib import Path
from typing import Annotated

import typer

from crowdshot.commands.cli.flat import flat
from crowdshot.commands.cli.options import EncoderName, Features, Images, SkipBad, Texts
from crowdshot.commands.cli.reading import Reading
from crowdshot.errors import CrowdshotError

# "\b" keeps the lines that follow as they are
EXAMPLES = """\b
Examples:
  crowdshot serve --labels export.json --images photos --data live
  crowdshot serve --labels labels.csv --features embeddings.npz --data live --port 8000
  crowdshot serve --texts reviews.csv --data live --host 0.0.0.0 --auth token.txt
  crowdshot serve --labels labels.csv --data live --read-only
"""


@flat
def serve(
    data: Annotated[
        Path, typer.Option("--data", metavar="DIR", help="Where the journal of labels and the newest model are kept.")
    ],
    labels: Annotated[
        list[Path] | None,
        typer.Option("--labels", metavar="FILE|DIR", help="Labels that there are already; may be given several times."),
    ] = None,
    images: Images = None,
    features: Features = None,
    texts: Texts = None,
    encoder: EncoderName = None,
    model: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A classifier that `adapt` wrote: its encoder sees the items; where there are none, it predicts.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="The address to listen at; any but this machine's own needs --auth.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=0, max=65535)] = 9090,
    auth: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Who may ask: a file with one token, or with lines of `htpasswd -B`."),
    ] = None,
    label_studio: Annotated[
        str | None,
        typer.Option(
            "--label-studio",
            metavar="URL",
            help="Tell the Label Studio there of each new version, so that its predictions and its order follow.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Its token, for --label-studio; else the environment's LABEL_STUDIO_API_KEY is it."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOST",
            help="Fetch pictures that tasks name from there, to predict them; may be given several times.",
        ),
    ] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="Take no labels; show what there is.")] = False,
    log_labels: Annotated[
        bool, typer.Option("--log-labels", help="Write labels and names into the log, which else has neither.")
    ] = False,
    skip_bad: SkipBad = False,
    *,
    reading: Reading,
) -> None:
    """Consensus, annotators and what to ask next while people label: an HTTP service with a live page.

    It takes labels over HTTP or from Label Studio, whose machine-learning backend it is, keeps them in --data, and fits
    anew in the background whenever some have come. docs/live.md has ten minutes from an empty machine.
    """
    try:
        from crowdshot.commands.serve import Listening, serve
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "pydantic", "starlette"):
            raise
        raise CrowdshotError(
            f"the service could not be started ({error}); pip install 'crowdshot[serve]' has all it needs."
        ) from None
    from crowdshot.commands.given import ItemFiles

    items = ItemFiles(images, features, encoder, skip_bad, texts)
    listening = Listening(host, port, auth, read_only, log_labels, label_studio, token_file, allow_host or ())
    serve(reading.of(labels or []), items, data, model, listening)
