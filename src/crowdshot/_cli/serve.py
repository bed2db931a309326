"""``crowdshot serve``: labels, items and a folder -> a service that listens until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot._cli.console import flat
from crowdshot._cli.options import EncoderName, Features, Images, ReadingOptions, SkipBad, Texts
from crowdshot.errors import CrowdshotError, NoLabelError
from crowdshot.formatting import shown
from crowdshot.progress import progress

if TYPE_CHECKING:
    from fastapi import FastAPI

    from crowdshot._cli.inputs import ItemFiles, LabelFiles
    from crowdshot.labels.formats.label_file import LabelsRead
    from crowdshot.service.snapshot import Sources


@dataclass(frozen=True)
class Listening:
    """Where the service listens, and whom it answers.

    ``label_studio``: whom it tells of new versions, by a token. ``allow_host``: from where pictures may be fetched.
    """

    host: str = "127.0.0.1"
    port: int = 9090
    auth: Path | None = None
    read_only: bool = False
    log_labels: bool = False
    label_studio: str | None = None
    token_file: Path | None = None
    allow_host: Sequence[str] = ()


def run_serve(labels: LabelFiles, items: ItemFiles, data: Path, model: Path | None, listening: Listening) -> None:
    """Fits what is there, then listens; what is wrong with the files is told before."""
    from crowdshot.service.http_app import LOOPBACK, Settings, make_app
    from crowdshot.service.image_fetching import check_hosts
    from crowdshot.service.journal import Journal
    from crowdshot.service.label_studio_backend import Tool
    from crowdshot.service.live import Live, Worker
    from crowdshot.service.security import Auth, is_loopback

    if not is_loopback(listening.host) and listening.auth is None:
        raise CrowdshotError(
            f"host is {listening.host}, which others can reach, expected auth= with it, a token's file say."
        )
    auth = None if listening.auth is None else Auth.read(listening.auth)
    tool = None if listening.label_studio is None else Tool.with_token(listening.label_studio, listening.token_file)
    picture_hosts = check_hosts(listening.allow_host)
    if tool is None and listening.token_file is not None:
        raise CrowdshotError("token_file is given, expected label_studio= with it.")
    if model is not None and not model.is_file():
        raise CrowdshotError(f"model is {shown(model)}, expected a file that `crowdshot adapt` wrote.")
    labels = replace(labels, paths=[file for path in labels.paths for file in _files(path)])
    labels.naming.check()
    door = _bind(listening)
    journal, worker = Journal(data), Worker(partial(open_sources, labels, items, model), data)
    fitted = False
    try:
        with progress("fitting"):
            version = worker.fit()
        fitted = True
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
        live = Live(journal, worker, data, listening.log_labels)
        hosts = (*LOOPBACK, listening.host) if is_loopback(listening.host) else ()
        tag = (labels.columns or {}).get("label")
        settings = Settings(
            auth, hosts, listening.read_only, model, _classes(labels), tag, labels.multi_label,
            tool=tool, picture_hosts=picture_hosts,
        )  # fmt: skip
        app = make_app(live, settings)
        live.version = version
        asyncio.run(_listen(app, door))
    finally:
        door.close()
        worker.close()
        journal.close() if fitted else journal.discard()


def _bind(listening: Listening) -> socket.socket:
    """Taken now, so that nobody waits for a fit in vain; it answers once there is something to say."""
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    door = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # named, or asyncio leaves TCP_NODELAY off
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((listening.host, listening.port))
    except (OSError, UnicodeError) as error:
        door.close()
        raise CrowdshotError(f"port {listening.port} of {listening.host} could not be taken ({error}).") from None
    return door


async def _listen(app: FastAPI, door: socket.socket) -> None:
    # no access log, as it would have names of annotators; pages that listen would keep it from ending for ever
    import uvicorn

    config = uvicorn.Config(
        app, log_level="warning", access_log=False, server_header=False, timeout_graceful_shutdown=2
    )
    door.listen(128)
    host, port = door.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    print(f"crowdshot: listening at http://{name}:{port}", file=sys.stderr, flush=True)
    await uvicorn.Server(config).serve(sockets=[door])


def _classes(labels: LabelFiles) -> frozenset[str]:
    """What a label may be where classes are ordered and nothing renames them; else it may be anything."""
    return frozenset(() if labels.rename or labels.merge_case else labels.ordered)


def _files(path: Path) -> list[Path]:
    """A folder stands for the files in it."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    if not files:
        raise CrowdshotError(f"{shown(path)} is an empty folder, expected files of labels in it.")
    return files


def open_sources(labels: LabelFiles, given: ItemFiles, model: Path | None) -> Sources:
    """What the fitting process begins with: the labels of the files, and the items as the encoder sees them."""
    from crowdshot.io.formulas import stay_excel_safe
    from crowdshot.service.snapshot import Sources

    stay_excel_safe(labels.excel_safe)
    try:
        parts: Sequence[LabelsRead] = labels.parts() if labels.paths else []
    except NoLabelError:  # nobody has begun
        parts = []
    if parts:
        labels.joined(parts, strangers="tell")  # what is wrong with them is told now
    read = partial(replace(labels, categories=True).joined, strangers="allow")  # from now on no label is refused
    if not given:
        return Sources(parts, read)
    from crowdshot._cli.fitting import by_sets
    from crowdshot.classifier.crowd_classifier import CrowdClassifier  # here, as labels alone need not wait for torch
    from crowdshot.encoders.items import check_kind, find_readable
    from crowdshot.io.embedding_store import embedding_cache

    items = given.open(None if given.encoder in (None, "table") else False)
    clf = CrowdClassifier(given.encoder or "auto")
    if labels.multi_label:
        clf.set_params(**by_sets())
    if model is not None:
        clf.set_params(encoder=CrowdClassifier.load(model).encoder_)
        check_kind(clf.choose_encoder(items.X), items, f"{model}")
    elif given.encoder is not None:
        clf.set_params(encoder=clf.choose_encoder(items.X))
        check_kind(clf.choose_encoder(items.X), items, f"encoder {given.encoder}")
    with embedding_cache(), progress(f"checking {items.kind}") as tick:
        kept, _ = find_readable(items, given.skip_bad, tick)
    items = items.take(kept)
    with embedding_cache(), progress("embedding") as tick:
        embeddings = clf.embed(items.X, progress=tick)
    return Sources(parts, read, items, embeddings, clf)


# ---- serve ------------------------------------------------------------
#
# ``crowdshot serve`` on the command line; `app` adds it.


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
    reading: ReadingOptions,
) -> None:
    """Consensus, annotators and what to ask next while people label: an HTTP service with a live page.

    It takes labels over HTTP or from Label Studio, whose machine-learning backend it is, keeps them in --data, and fits
    anew in the background whenever some have come. docs/live.md has ten minutes from an empty machine.
    """
    from crowdshot._cli.inputs import ItemFiles

    try:
        pass
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "uvicorn", "pydantic", "starlette"):
            raise
        raise CrowdshotError(
            f"the service could not be started ({error}); pip install 'crowdshot[serve]' has all it needs."
        ) from None

    items = ItemFiles(images, features, encoder, skip_bad, texts)
    listening = Listening(host, port, auth, read_only, log_labels, label_studio, token_file, allow_host or ())
    run_serve(reading.of(labels or []), items, data, model, listening)
