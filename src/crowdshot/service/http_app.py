"""The HTTP service of `crowdshot serve`.

Requests read the current version; fitting happens in another process. `make_app` assembles groups of routes: labels and
results, the classifier, the live page and metrics, and Label Studio's backend.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, HTTPException, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, HTMLResponse, JSONResponse, PlainTextResponse, StreamingResponse

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing
from crowdshot.io.cells import trim
from crowdshot.service import live_page, schemas
from crowdshot.service.image_fetching import predict_addresses
from crowdshot.service.journal import Answer, Decision
from crowdshot.service.label_studio_backend import AnswerRules, Backend, Tool, announce_versions
from crowdshot.service.label_studio_backend import routes as label_studio_routes
from crowdshot.service.live import Live, NotWrittenError, model_file
from crowdshot.service.prediction import Predictor
from crowdshot.service.security import MOST_BYTES, Auth, Guard, Rate
from crowdshot.service.snapshot import Version
from crowdshot.version import __version__


def metrics(live: Live) -> str:
    """Return counters and gauges as text for Prometheus, without names of items or annotators."""
    version = live.version
    rows = [
        ("labels_taken_total", "counter", "Labels received by this process.", live.counts["labels"]),
        ("fits_total", "counter", "Versions that came into use.", live.counts["fits"]),
        ("fit_failures_total", "counter", "Fits that failed.", live.counts["failed_fits"]),
        ("version", "gauge", "Number of the current version.", version.number if version else 0),
        ("fit_seconds", "gauge", "Duration of the last fit.", version.seconds if version else 0),
        ("labels", "gauge", "Labels in the current version.", version.annotations.n_labels if version else 0),
        ("labelled_items", "gauge", "Items with a label.", version.n_labelled if version else 0),
        ("accepted_items", "gauge", "Labelled items that are accepted.", version.n_accepted if version else 0),
        ("annotators", "gauge", "Annotators with a label.", len(version.annotators) if version else 0),
    ]  # fmt: skip
    lines = (
        f"# HELP crowdshot_{name} {about}\n# TYPE crowdshot_{name} {kind}\ncrowdshot_{name} {value:g}\n"
        for name, kind, about, value in rows
    )
    return "".join(lines)


LOOPBACK = ("127.0.0.1", "localhost", "::1")
PREDICTIONS = Rate(each_second=20, at_once=40)
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": schemas.Refusal} for status in (400, 401, 403, 413, 422, 503)
}
log = logging.getLogger("crowdshot.service")


@dataclass(frozen=True)
class Settings:
    """Settings of the service.

    Attributes
    ----------
    auth : Auth, optional
        The token or the passwords; without it, no authentication is needed.
    hosts : tuple of str
        Host names that requests may use; empty for any.
    read_only : bool
        Whether to refuse labels.
    model : Path, optional
        A classifier for predictions until one is fitted.
    ordered : frozenset of str
        The classes, if they are ordered.
    label_tag : str, optional
        The Choices tag of Label Studio, if there are several.
    several : bool
        Whether an answer may have several labels.
    most_bytes : int
        Largest size of a request.
    tool : Tool, optional
        The Label Studio server that is notified of new versions.
    picture_hosts : frozenset of str
        Hosts from which pictures of unknown tasks may be fetched.
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
    """Return the application with all routes."""
    models = Models(live, settings)
    backend = _label_studio(live, settings, models)

    @asynccontextmanager
    async def running(app: FastAPI) -> AsyncIterator[None]:
        tasks = [asyncio.create_task(live.keep_fitting())]
        if settings.tool is not None:
            tasks.append(asyncio.create_task(announce_versions(settings.tool, backend)))
        yield
        for task in tasks:
            task.cancel()

    app = FastAPI(
        title="crowdshot",
        version=__version__,
        description="Consensus labels, annotator accuracies and the next questions, while people label.",
        docs_url=None,  # the built-in pages load scripts from other sites
        redoc_url=None,
        lifespan=running,
        responses=REFUSALS,
    )
    _handle_errors(app)
    app.include_router(_label_routes(live, settings))
    app.include_router(_model_routes(models))
    app.include_router(_page_routes(live))
    app.include_router(label_studio_routes(backend), tags=["Label Studio"])
    app.add_middleware(Guard, auth=settings.auth, hosts=settings.hosts, most_bytes=settings.most_bytes)
    return app


class Models:
    """The newest classifier and its predictions."""

    def __init__(self, live: Live, settings: Settings) -> None:
        self.live, self.settings, self.predictor = live, settings, Predictor()

    def newest(self) -> tuple[int, Path | None]:
        """Return the number of the current version, and its classifier or the one of the settings, if there is any."""
        number = 0 if self.live.version is None else self.live.version.number
        paths = (path for path in (model_file(self.live.data, number), self.settings.model) if path is not None)
        return number, next((path for path in paths if path.is_file()), None)

    def required(self) -> tuple[int, Path]:
        number, path = self.newest()
        if path is None:
            raise HTTPException(503, "There is no classifier yet: it needs items, and labels of at least two classes.")
        return number, path


def _label_studio(live: Live, settings: Settings, models: Models) -> Backend:
    def predict(addresses: list[str]) -> list[tuple[str, float] | None]:
        return predict_addresses(addresses, settings.picture_hosts, models.newest()[1], models.predictor)

    rules = AnswerRules(settings.several, settings.ordered)
    return Backend(live, settings.label_tag, rules, settings.read_only, predict if settings.picture_hosts else None)


def _label_routes(live: Live, settings: Settings) -> APIRouter:
    """Return the routes that take labels and return results and questions."""
    router = APIRouter()

    def current() -> Version:
        if live.version is None:
            raise HTTPException(503, "There are no labels yet. Send some to POST /v1/labels.")
        return live.version

    @router.get("/health")
    async def health() -> schemas.Health:
        """Return the status; Label Studio shows ``model_class``."""
        number = 0 if live.version is None else live.version.number
        return schemas.Health(status="UP", model_class="crowdshot", version=number)

    @router.post("/v1/labels", status_code=201)
    async def add_labels(request: schemas.Labels) -> schemas.Taken:
        """Store labels on disk. A new label replaces an earlier one of the same item and annotator."""
        if settings.read_only:
            raise HTTPException(403, "The service is read-only and takes no labels.")
        known = settings.ordered
        unknown = next((each.label for each in request.labels if known and each.label not in known), None)
        if unknown is not None:
            raise CrowdshotError(
                f"has {unknown!r}", where="labels", found=unknown, expected=f"one of {listing(sorted(known))}"
            )
        await live.add([Answer(each.item, each.annotator, each.label) for each in request.labels])
        return schemas.Taken(taken=len(request.labels))

    @router.get("/v1/review")
    async def held() -> schemas.Review:
        """Return the unknown classes and items whose labels are held, as of the current version."""
        version = current()
        return schemas.Review.model_validate(
            {"version": version.number, "held": [each._asdict() for each in version.held]}
        )

    @router.post("/v1/review", status_code=201)
    async def decide(request: schemas.Decisions) -> schemas.Taken:
        """Store decisions about unknown classes and items; the next fit uses them."""
        if settings.read_only:
            raise HTTPException(403, "The service is read-only and takes no decisions.")
        version = current()
        for each in request.decisions:
            check_decision(each, version, settings.ordered)
        await live.decide([Decision(each.kind, each.name, each.becomes) for each in request.decisions])
        return schemas.Taken(taken=len(request.decisions))

    @router.get("/v1/consensus", response_model=schemas.Consensus)
    async def consensus(limit: Annotated[int | None, Query(ge=0)] = None) -> Response:
        version = current()
        rows = ",".join(version.consensus[:limit])
        return Response(f'{{"version":{version.number},"consensus":[{rows}]}}', media_type="application/json")

    @router.get("/v1/annotators", response_model_exclude_none=True)
    async def annotators() -> schemas.Annotators:
        version = current()
        return schemas.Annotators(version=version.number, annotators=version.annotators)

    @router.get("/v1/next", response_model_exclude_none=True)
    async def ask_next(
        annotator: Annotated[str, Query(max_length=schemas.LONGEST, description="The annotator to ask.")] = "",
        n: Annotated[int, Query(ge=1, le=1_000)] = 1,
        answers: Annotated[
            bool, Query(description="Include the current answers, which annotators should not see")
        ] = False,
    ) -> schemas.Questions:
        """Return the best questions for an annotator, the best first; an unknown annotator counts as new."""
        version = current()
        refuse_paused(live, version, trim(annotator))
        questions = await live.questions(version, trim(annotator), n)
        if not answers:
            hidden = {"consensus", "confidence"}
            questions = [{key: x for key, x in each.items() if key not in hidden} for each in questions]
        return schemas.Questions.model_validate({"version": version.number, "questions": questions})

    return router


def refuse_paused(live: Live, version: Version, annotator: str) -> None:
    """Answer 403 to a paused annotator, without the reason, which would show that some answers are known."""
    if live.is_paused(version, annotator):
        raise HTTPException(403, "There are no more questions for you at the moment. Please ask the project lead.")


def check_decision(decision: schemas.Decision, version: Version, ordered: frozenset[str]) -> None:
    """Raise an error if a name would become another unknown name."""
    becomes, is_class = decision.becomes, decision.kind == "class"
    known = becomes is None or (becomes in version.class_place if is_class else version.find(becomes) is not None)
    if not known and (becomes != decision.name or (is_class and ordered and becomes not in ordered)):
        raise CrowdshotError(
            f"is {becomes!r}",
            where="becomes",
            found=becomes,
            expected=f"a known {decision.kind}, the same name to add it, or null to discard its labels",
        )


def _model_routes(models: Models) -> APIRouter:
    """Return the routes of the classifier."""
    router, rate = APIRouter(), Rate(PREDICTIONS.each_second, PREDICTIONS.at_once)

    @router.post("/v1/predict", responses={429: {"model": schemas.Refusal}})
    async def predict(request: schemas.ToPredict) -> schemas.Predictions:
        """Predict the classes of new items."""
        if not rate.allows():
            raise HTTPException(429, "Too many requests. Try again in a second.", {"Retry-After": "1"})
        number, path = models.required()
        predictions = await asyncio.to_thread(models.predictor.predict, path, request)
        return schemas.Predictions(version=number, predictions=predictions)

    @router.get("/v1/model", response_class=FileResponse)
    async def download() -> FileResponse:
        """Download the classifier, for `crowdshot predict` and `CrowdClassifier.load`."""
        return FileResponse(models.required()[1], media_type="application/octet-stream", filename="model.safetensors")

    return router


def _page_routes(live: Live) -> APIRouter:
    """Return the routes of the live page and of the metrics."""
    router = APIRouter()
    page_policy = {"Content-Security-Policy": live_page.policy()}

    @router.get("/metrics", response_class=PlainTextResponse)
    async def show_metrics() -> PlainTextResponse:
        """Return metrics for Prometheus."""
        return PlainTextResponse(metrics(live), media_type="text/plain; version=0.0.4")

    @router.get("/", include_in_schema=False)
    async def page() -> HTMLResponse:
        return HTMLResponse(live_page.render(None) if live.version is None else live.version.page, headers=page_policy)

    @router.get("/v1/events", include_in_schema=False)
    async def events() -> StreamingResponse:
        """Stream the number of each new version."""

        async def stream() -> AsyncIterator[str]:
            async for number in live.versions():
                yield ": still here\n\n" if number is None else f"event: version\ndata: {number}\n\n"

        return StreamingResponse(stream(), media_type="text/event-stream")

    return router


def _handle_errors(app: FastAPI) -> None:
    """Answer errors with one sentence each, without quoting more of the request than the position of the mistake."""

    def refusal(status: int, sentence: str) -> JSONResponse:
        # a sentence may quote an unpaired surrogate of the request
        return JSONResponse({"detail": sentence.encode("utf-8", "replace").decode()}, status)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        sentence = f"{place}: {first['msg'].removeprefix('Value error, ')}."
        return refusal(422, sentence.encode("ascii", "replace").decode())

    @app.exception_handler(CrowdshotError)
    async def refused(request: Request, error: CrowdshotError) -> JSONResponse:
        if request.url.path == "/setup":  # Label Studio refers its user to this log
            log.warning(
                "Label Studio's project is refused: %s", str(error).encode("ascii", "backslashreplace").decode()
            )
        return refusal(422, str(error))

    @app.exception_handler(NotWrittenError)
    @app.exception_handler(sqlite3.Error)
    async def unwritten(request: Request, error: Exception) -> JSONResponse:
        log.error("the journal could not be written (%s)", type(error).__name__)
        return refusal(503, "The journal could not be written, so no label was stored.")
