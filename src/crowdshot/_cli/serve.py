"""``crowdshot serve``: run an HTTP service that aggregates labels while people label."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from crowdshot._cli.console import warnings_as_notes
from crowdshot._cli.options import (
    AllowOutside,
    EncoderName,
    Features,
    GoldOptions,
    Images,
    ReadingOptions,
    Texts,
    flat,
    input_option,
    method_option,
    server_option,
)
from crowdshot.errors import CrowdshotError, NoLabelError, Use
from crowdshot.extras import require
from crowdshot.formatting import shown
from crowdshot.progress import progress

if TYPE_CHECKING:
    from fastapi import FastAPI

    from crowdshot._cli.inputs import ItemFiles, LabelFiles
    from crowdshot.labels.formats.label_file import LabelsRead
    from crowdshot.labels.gold_questions import GoldRule
    from crowdshot.service.http_app import Settings
    from crowdshot.service.journal import Journal
    from crowdshot.service.snapshot import Sources


@dataclass(frozen=True)
class Listening:
    """Where the service listens, and who may use it.

    Parameters
    ----------
    host, port : str, int
        The address of the service.
    auth : Path, optional
        A file with a token, or with the users and passwords of `htpasswd -B`.
    read_only : bool
        Whether to refuse labels.
    log_labels : bool
        Whether the log may have labels and names.
    label_studio : str, optional
        The address of a Label Studio that is notified of new versions.
    token_file : Path, optional
        The file with the token of Label Studio.
    allow_host : sequence of str
        The hosts from which images of tasks may be downloaded.
    salvage : bool
        Whether to keep the intact rows of a damaged journal.
    allow_outside : bool
        Whether the file of the model may use a network of another library.
    """

    host: str = "127.0.0.1"
    port: int = 9090
    auth: Path | None = None
    read_only: bool = False
    log_labels: bool = False
    label_studio: str | None = None
    token_file: Path | None = None
    allow_host: Sequence[str] = ()
    salvage: bool = False
    allow_outside: bool = False


def run_serve(
    labels: LabelFiles, items: ItemFiles, data: Path, model: Path | None, listening: Listening, rule: GoldRule
) -> None:
    """Check the files, fit the first version and listen until the service is stopped."""
    import asyncio  # imported here, because every command imports this module

    from crowdshot.encoders.outside import is_outside, stay_allowed
    from crowdshot.service.http_app import make_app
    from crowdshot.service.live import Live, Worker, first_version

    allow = listening.allow_outside or (items.encoder is not None and is_outside(items.encoder))
    stay_allowed(allow)  # for predictions; the process that fits saves the classifiers
    labels = _check_files(labels, model)
    settings = _settings(labels, model, listening)
    door = _bind(listening)
    worker = Worker(partial(open_in_process, labels, items, model, listening.label_studio, allow, rule), data)
    journal, fitted = None, False
    try:
        journal = _open_journal(data, listening.salvage)
        logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(message)s")
        with progress("fitting"):
            version = first_version(worker, journal)
        fitted = True
        live = Live(journal, worker, data, listening.log_labels, rule.share)
        app = make_app(live, settings)
        live.version = version
        asyncio.run(_listen(app, door, live.end_streams))
    finally:
        door.close()
        worker.close()
        if journal is not None:
            journal.close() if fitted else journal.discard()


def _open_journal(data: Path, damaged: bool) -> Journal:
    """Open the journal; if it is ``damaged``, keep its intact rows."""
    from crowdshot.service.journal import Journal, salvage

    if not damaged:
        return Journal(data)
    kept, lost, aside = salvage(data)
    print(
        f"crowdshot: kept {kept:,} labels of the journal; {lost:,} are lost. The damaged files are in {shown(aside)}.",
        file=sys.stderr,
    )
    return Journal(data)


def _settings(labels: LabelFiles, model: Path | None, listening: Listening) -> Settings:
    from crowdshot.service.http_app import LOOPBACK, Settings
    from crowdshot.service.image_fetching import check_hosts
    from crowdshot.service.label_studio_backend import Tool
    from crowdshot.service.security import Auth, is_loopback

    is_local = is_loopback(listening.host)
    if not is_local and listening.auth is None:
        message = f"is {listening.host}, which other machines can reach, but the service has no access control"
        raise CrowdshotError(message, argument="host", found=listening.host, hint=Use(auth="FILE"))
    auth = None if listening.auth is None else Auth.read(listening.auth)
    tool = None if listening.label_studio is None else Tool.with_token(listening.label_studio, listening.token_file)
    picture_hosts = check_hosts(listening.allow_host)
    if tool is None and listening.token_file is not None:
        message = "is given without the address of Label Studio"
        raise CrowdshotError(message, argument="token_file", hint=Use(label_studio="URL"))
    return Settings(
        auth,
        (*LOOPBACK, listening.host) if is_local else (),
        listening.read_only,
        model,
        _classes(labels),
        (labels.columns or {}).get("label"),
        labels.multi_label,
        tool=tool,
        picture_hosts=picture_hosts,
    )


def _check_files(labels: LabelFiles, model: Path | None) -> LabelFiles:
    """Return the labels with the files of folders in place of the folders."""
    if model is not None and not model.is_file():
        expected = "a file that `crowdshot adapt` wrote"
        raise CrowdshotError(f"is {shown(model)}", argument="model", found=model, expected=expected)
    if labels.file_names:
        raise CrowdshotError("is not supported by the service, whose tools name items", argument="file_names")
    labels = replace(labels, paths=[file for path in labels.paths for file in _files(path)])
    labels.naming.check()
    return labels


def _bind(listening: Listening) -> socket.socket:
    """Bind the port before the slow first fit, so that a port in use is reported at once."""
    family = socket.AF_INET6 if ":" in listening.host else socket.AF_INET
    door = socket.socket(
        family, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )  # without the protocol, asyncio would not set TCP_NODELAY
    door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        door.bind((listening.host, listening.port))
        door.listen(128)  # at once: two services that only bind a port do not notice each other
    except (OSError, UnicodeError) as error:
        door.close()
        message = f"is {listening.port}, which cannot be used on {listening.host} ({error})"
        raise CrowdshotError(message, argument="port", found=listening.port) from None
    return door


async def _listen(app: FastAPI, door: socket.socket, end_streams: Callable[[], Awaitable[None]]) -> None:
    # An access log would contain names of annotators. The timeout is for requests that take longer.
    import uvicorn

    from crowdshot.service.security import limited_protocol

    class Server(uvicorn.Server):
        async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
            await end_streams()  # of open pages, which would keep the server waiting
            await super().shutdown(sockets)

    config = uvicorn.Config(
        app,
        http=limited_protocol(),
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    host, port = door.getsockname()[:2]
    name = f"[{host}]" if ":" in host else host
    print(f"crowdshot: listening at http://{name}:{port}", file=sys.stderr, flush=True)
    await Server(config).serve(sockets=[door])


def _classes(labels: LabelFiles) -> frozenset[str]:
    """Return the allowed labels if classes are ordered and not renamed, or an empty set, which allows any label."""
    return frozenset(() if labels.rename or labels.merge_case else labels.ordered)


def _files(path: Path) -> list[Path]:
    """Return the files of a folder, or the file itself."""
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    if not files:
        raise CrowdshotError("is an empty folder", where=shown(path), expected="files of labels in it")
    return files


def open_in_process(
    labels: LabelFiles,
    given: ItemFiles,
    model: Path | None,
    label_studio: str | None,
    allow_outside: bool,
    rule: GoldRule,
) -> Sources:
    """Call `open_sources` in the process that fits, which has to show warnings itself."""
    from crowdshot.encoders.outside import stay_allowed

    stay_allowed(allow_outside)
    with warnings_as_notes(serve):
        return open_sources(labels, given, model, label_studio, rule)


def open_sources(
    labels: LabelFiles,
    given: ItemFiles,
    model: Path | None,
    label_studio: str | None = None,
    rule: GoldRule | None = None,
) -> Sources:
    """Read the labels and embed the items, for the process that fits."""
    from crowdshot.io.cells import stay_excel_safe, trim
    from crowdshot.labels import gold_labels
    from crowdshot.labels.columns import Columns
    from crowdshot.labels.gold_questions import GoldRule
    from crowdshot.labels.spelling import parts as split_parts
    from crowdshot.service.snapshot import Sources

    stay_excel_safe(labels.excel_safe)
    try:
        parts: Sequence[LabelsRead] = labels.parts() if labels.paths else []
    except NoLabelError:  # labelling has not started
        parts = []
    rule = rule or GoldRule()
    gold = {} if labels.gold is None else gold_labels.read(labels.gold, Columns())  # also before the first label
    rule.check(len(gold) + sum(len(part.gold) for part in parts))
    classes = set(labels.ordered)
    spelling: Callable[[str], str] = trim
    named: Callable[[str], Sequence[str]] = split_parts if labels.multi_label else lambda name: [name]
    if parts:
        joined = labels.joined(parts, strangers="tell")  # report problems before the service starts
        classes |= {each for name in (*joined.annotations.classes, *joined.gold.values()) for each in named(str(name))}
        spelling = joined.spelling
    sources = partial(
        Sources,
        parts,
        classes=frozenset(classes),
        spelling=lambda label: named(spelling(label)),
        tool=label_studio,
        rule=rule,
    )
    read = partial(replace(labels, categories=True).joined, strangers="allow")  # accept any label that arrives later
    if not given:
        return sources(read)
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
        check_kind(clf._choose_encoder(items.X), items, f"{model}")
    elif given.encoder is not None:
        clf.set_params(encoder=clf._choose_encoder(items.X))
        check_kind(clf._choose_encoder(items.X), items, f"encoder {given.encoder}")
    with embedding_cache(), progress(f"checking {items.kind}") as tick:
        kept, _ = find_readable(items, given.skip_bad, tick)
    items = items.take(kept)
    with embedding_cache(), progress("embedding") as tick:
        embeddings = clf.embed(items.X, progress=tick)
    return sources(read, items, embeddings, clf)


def _check_packages() -> None:
    require("fastapi", "uvicorn", user="The service")


# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot serve --labels export.json --images photos --data live
  crowdshot serve --labels labels.csv --features embeddings.npz --data live --port 8000
  crowdshot serve --texts reviews.csv --data live --host 0.0.0.0 --auth token.txt
  crowdshot serve --labels labels.csv --data live --gold known.csv --gold-share 0.1 --pause-below 0.6
  crowdshot serve --labels labels.csv --data live --read-only
"""


@flat
def serve(
    data: Annotated[
        Path,
        server_option("--data", metavar="DIR", help="The folder that stores the received labels and the newest model."),
    ],
    labels: Annotated[
        list[Path] | None,
        input_option("--labels", metavar="FILE|DIR", help="Existing labels. The option can be repeated."),
    ] = None,
    images: Images = None,
    features: Features = None,
    texts: Texts = None,
    encoder: EncoderName = None,
    model: Annotated[
        Path | None,
        method_option(
            metavar="FILE",
            help="A classifier that `adapt` wrote. Its encoder embeds the items; without items, it predicts new ones.",
        ),
    ] = None,
    host: Annotated[
        str,
        server_option(
            metavar="ADDRESS", help="The address to listen at. An address that other machines can reach needs --auth."
        ),
    ] = "127.0.0.1",
    port: Annotated[int, server_option(min=0, max=65535, help="The port to listen at; 0 chooses one.")] = 9090,
    auth: Annotated[
        Path | None,
        server_option(
            metavar="FILE", help="Require a token or a password: a file with one token, or with lines of `htpasswd -B`."
        ),
    ] = None,
    label_studio: Annotated[
        str | None,
        server_option(
            "--label-studio",
            metavar="URL",
            help="The address of a Label Studio. It is notified of each new version, so that it updates its predictions"
            " and the order of its tasks.",
        ),
    ] = None,
    token_file: Annotated[
        Path | None,
        server_option(
            metavar="FILE",
            help="A file with the token of Label Studio (default: the environment variable LABEL_STUDIO_API_KEY).",
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        server_option(
            metavar="HOST",
            help="Allow downloading the images of tasks from this host, to predict their labels. The option can be"
            " repeated.",
        ),
    ] = None,
    read_only: Annotated[bool, server_option("--read-only", help="Refuse new labels.")] = False,
    log_labels: Annotated[
        bool, server_option("--log-labels", help="Write labels and names of annotators to the log.")
    ] = False,
    allow_outside: AllowOutside = False,
    salvage: Annotated[
        bool,
        server_option(
            "--salvage",
            help="Keep the intact labels of a damaged journal and start with them. The damaged files are kept, too.",
        ),
    ] = False,
    *,
    gold_options: GoldOptions,
    reading: ReadingOptions,
) -> None:
    """Run a service that aggregates labels while people label.

    A live page shows the consensus, the annotators and the next questions. The service receives labels over HTTP, or
    from Label Studio as its machine-learning backend. It stores them in --data and fits again in the background when
    new labels arrive. docs/live.md has a tutorial of ten minutes.
    """
    from crowdshot._cli.inputs import ItemFiles

    _check_packages()
    items = ItemFiles(images, features, encoder, reading.skip_bad, texts, sheet=reading.sheet)
    listening = Listening(
        host, port, auth, read_only, log_labels, label_studio, token_file, allow_host or (), salvage, allow_outside
    )
    run_serve(reading.of(labels or []), items, data, model, listening, gold_options.rule())
