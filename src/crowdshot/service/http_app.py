"""The HTTP service: `crowdshot serve` runs it. Requests read what is there; none of them fits anything."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing
from crowdshot.io.cells import trim
from crowdshot.service import live_page, schemas
from crowdshot.service.image_fetching import said_of_pictures
from crowdshot.service.journal import Said
from crowdshot.service.label_studio_backend import Backend, Reads, Tool, keep_telling
from crowdshot.service.label_studio_backend import routes as label_studio_routes
from crowdshot.service.live import Live, model_file
from crowdshot.service.prediction import Predictor
from crowdshot.service.security import MOST_BYTES, Auth, Guard, Rate
from crowdshot.service.snapshot import Version
from crowdshot.version import __version__

# ---- metrics ------------------------------------------------------------
#
# What happens, as text for Prometheus. No name of an item or an annotator is in it.


def metrics(live: Live) -> str:
    version = live.version
    rows = [
        ("labels_taken_total", "counter", "Labels that this process took.", live.counts["labels"]),
        ("fits_total", "counter", "Versions that were swapped in.", live.counts["fits"]),
        ("fit_failures_total", "counter", "Fits that failed: the last version stayed.", live.counts["failed_fits"]),
        ("version", "gauge", "The number of the version.", version.number if version else 0),
        ("fit_seconds", "gauge", "How long the version took to fit.", version.seconds if version else 0),
        ("labels", "gauge", "Labels that the version knows.", version.annotations.n_labels if version else 0),
        ("labelled_items", "gauge", "Items with a label.", version.n_labelled if version else 0),
        ("accepted_items", "gauge", "Labelled items that are accepted.", version.n_accepted if version else 0),
        ("annotators", "gauge", "Annotators with a label.", len(version.annotators) if version else 0),
    ]  # fmt: skip
    lines = (
        f"# HELP crowdshot_{name} {about}\n# TYPE crowdshot_{name} {kind}\ncrowdshot_{name} {value:g}\n"
        for name, kind, about, value in rows
    )
    return "".join(lines)


# ---- app ------------------------------------------------------------


LOOPBACK = ("127.0.0.1", "localhost", "::1")
PREDICTIONS = Rate(each_second=20, at_once=40)
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Refusal} for status in (400, 401, 403, 413, 422, 503)
}
log = logging.getLogger("crowdshot.service")


@dataclass(frozen=True)
class Settings:
    """``hosts``: names by which a request may call this machine, any where there are none.

    ``model``: a classifier that predicts where there are no items to fit one with. ``ordered``: classes, if they are.
    ``label_tag``: which Choices tag of Label Studio is read; ``several``: whether an answer may name several labels.
    ``tool``: Label Studio, if it is to be told of new versions. ``picture_hosts``: from where pictures of its tasks may
    be fetched that are not among the items.
    """

    auth: Auth | None = None
    hosts: tuple[str, ...] = LOOPBACK
    read_only: bool = False
    model: Path | None = None
    ordered: frozenset[str] = frozenset()
    label_tag: str | None = None
    several: bool = False
    most_bytes: int = MOST_BYTES
    tool: Tool | None = None
    picture_hosts: frozenset[str] = frozenset()


def make_app(live: Live, settings: Settings) -> FastAPI:
    predictor, rate = Predictor(), Rate(PREDICTIONS.each_second, PREDICTIONS.at_once)

    def newest_model() -> tuple[int, Path | None]:
        number = 0 if live.version is None else live.version.number
        known = (path for path in (model_file(live.data, number), settings.model) if path is not None)
        return number, next((path for path in known if path.is_file()), None)

    def see(addresses: list[str]) -> list[tuple[str, float] | None]:
        return said_of_pictures(addresses, settings.picture_hosts, newest_model()[1], predictor)

    reads = Reads(settings.several, settings.ordered)
    backend = Backend(live, settings.label_tag, reads, settings.read_only, see if settings.picture_hosts else None)

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(live.keep_fitting())]
        if settings.tool is not None:
            tasks.append(asyncio.create_task(keep_telling(settings.tool, backend)))
        yield
        for task in tasks:
            task.cancel()

    app = FastAPI(
        title="crowdshot",
        version=__version__,
        description="Consensus, annotators and what to ask next, while people label.",
        docs_url=None,  # such pages load scripts from elsewhere
        redoc_url=None,
        lifespan=running,
        responses=REFUSALS,
    )
    _warn_errors(app)

    def current() -> Version:
        if live.version is None:
            raise HTTPException(503, "there are no labels yet, expected some; POST /v1/labels takes them.")
        return live.version

    def writable() -> None:
        if settings.read_only:
            raise HTTPException(403, "the service is read-only, expected one that takes labels.")

    @app.get("/health")
    async def health() -> schemas.Health:
        """``model_class`` is what Label Studio shows."""
        number = 0 if live.version is None else live.version.number
        return schemas.Health(status="UP", model_class="crowdshot", version=number)

    @app.post("/v1/labels", status_code=201)
    async def add_labels(given: schemas.Labels) -> schemas.Taken:
        """Takes labels; when this answers, they are on disk. A newer label of the same item and person counts."""
        writable()
        known = settings.ordered
        stranger = next((each.label for each in given.labels if known and each.label not in known), None)
        if stranger is not None:
            raise CrowdshotError(f"labels has {stranger!r}, expected one of {listing(sorted(settings.ordered))}.")
        await live.add([Said(each.item, each.annotator, each.label) for each in given.labels])
        return schemas.Taken(taken=len(given.labels))

    @app.get("/v1/consensus", response_model=schemas.Consensus)
    async def consensus(limit: Annotated[int | None, Query(ge=0)] = None) -> Response:
        version = current()
        rows = ",".join(version.consensus[:limit])
        return Response(f'{{"version":{version.number},"consensus":[{rows}]}}', media_type="application/json")

    @app.get("/v1/annotators")
    async def annotators() -> schemas.Annotators:
        version = current()
        return schemas.Annotators.model_validate({"version": version.number, "annotators": version.annotators})

    @app.get("/v1/next")
    async def ask_next(
        annotator: Annotated[str, Query(max_length=schemas.LONGEST, description="Who is to be asked.")] = "",
        n: Annotated[int, Query(ge=1, le=1_000)] = 1,
    ) -> schemas.Questions:
        """What is best asked of somebody next, the best first; who is not known is taken for somebody new."""
        version = current()
        questions = live.waiting.questions(version, trim(annotator), n)
        return schemas.Questions.model_validate({"version": version.number, "questions": questions})

    def model() -> tuple[int, Path]:
        number, path = newest_model()
        if path is None:
            raise HTTPException(
                503, "there is no classifier yet, expected items and labels of two classes to learn of."
            )
        return number, path

    @app.post("/v1/predict", responses={429: {"model": schemas.Refusal}})
    async def predict(given: schemas.ToPredict) -> schemas.Predictions:
        """What the classifier says of other items than those it learned from."""
        if not rate.allows():
            raise HTTPException(429, "there are too many requests, expected fewer.", {"Retry-After": "1"})
        number, path = model()
        found = await asyncio.to_thread(predictor.predict, path, given)
        return schemas.Predictions.model_validate({"version": number, "predictions": found})

    @app.get("/v1/model", response_class=FileResponse)
    async def download() -> FileResponse:
        """The classifier, for `crowdshot predict` and `CrowdClassifier.load`."""
        return FileResponse(model()[1], media_type="application/octet-stream", filename="model.safetensors")

    @app.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> PlainTextResponse:
        """For Prometheus."""
        return PlainTextResponse(metrics(live), media_type="text/plain; version=0.0.4")

    page_policy = {"Content-Security-Policy": live_page.policy()}

    @app.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        """For the lead: it can be read without a script, and with one follows what happens."""
        return HTMLResponse(live_page.render(None) if live.version is None else live.version.page, headers=page_policy)

    @app.get("/v1/events", include_in_schema=False)
    async def events() -> StreamingResponse:
        """The number of each new version, as it comes."""

        async def stream() -> AsyncIterator[str]:
            async for number in live.versions():
                yield ": still here\n\n" if number is None else f"event: version\ndata: {number}\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    app.include_router(label_studio_routes(backend), tags=["Label Studio"])
    app.add_middleware(Guard, auth=settings.auth, hosts=settings.hosts, most_bytes=settings.most_bytes)
    return app


def _warn_errors(app: FastAPI) -> None:
    """One sentence each, and nothing of what the request held but where it is wrong."""

    def tell(status: int, sentence: str) -> JSONResponse:
        return JSONResponse({"detail": sentence}, status)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        return tell(422, f"{place}: {first['msg'].removeprefix('Value error, ')}.".encode("ascii", "replace").decode())

    @app.exception_handler(CrowdshotError)
    async def refused(request: Request, error: CrowdshotError) -> JSONResponse:
        if request.url.path == "/setup":  # Label Studio tells its user to look here
            log.warning("Label Studio's project is refused: %s", error)
        return tell(422, str(error))

    @app.exception_handler(sqlite3.Error)
    async def unwritten(request: Request, error: sqlite3.Error) -> JSONResponse:
        log.error("the journal could not be written (%s)", type(error).__name__)
        return tell(503, "the journal could not be written, so nothing was taken.")
