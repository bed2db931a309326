"""The machine-learning backend for Label Studio 1.23.

Label Studio sends labels in two ways: prediction requests contain the answers of all annotators, and webhooks send each
answer as it is given. Both go to the journal, where the id of an answer prevents duplicates. The score of a prediction
is the confidence of the label, so that uncertainty sampling serves the most uncertain items first.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter
from pydantic import BaseModel, Field

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import shown
from crowdshot.io.cells import text
from crowdshot.labels.formats.label_studio import user_of
from crowdshot.labels.formats.question_choice import one_label
from crowdshot.report import label_tools
from crowdshot.report.label_tools import Control, Remote, prediction, read_config
from crowdshot.service.journal import Answer, Journal
from crowdshot.service.live import Live
from crowdshot.service.schemas import LONGEST
from crowdshot.service.snapshot import CHOICES, Version
from crowdshot.version import __version__

MOST_TASKS = 100_000  # of a request
SOURCE = "label-studio"
log = logging.getLogger("crowdshot.service")
Record = dict[str, Any]
PredictAddresses = Callable[[list[str]], list[tuple[str, float] | None]]


class AnswerRules(NamedTuple):
    """Whether an answer may have several labels, and the allowed labels; empty for any."""

    several: bool = False
    known: frozenset[str] = frozenset()


class Setup(BaseModel):
    """A setup request; its access token is ignored."""

    project: str = ""
    label_schema: Annotated[str, Field(alias="schema")] = ""


class Task(BaseModel):
    id: int | str | None = None
    data: Record = {}
    annotations: list[Record] | None = None


class Tasks(BaseModel):
    tasks: Annotated[list[Task], Field(max_length=MOST_TASKS)]
    project: str = ""
    label_config: str = ""


class Event(BaseModel):
    """A webhook event; ``annotation`` and ``task`` are records, or lists of records."""

    action: str = ""
    project: Record = {}
    annotation: Record | list[Record] = []
    annotations: list[Record] = []
    task: Record | list[Record] = []


class Backend:
    """The backend of one project: the first project that connects, as the journal records.

    Parameters
    ----------
    live : Live
        The running service.
    label : str or None
        The Choices tag, if there are several.
    rules : AnswerRules
        The allowed answers.
    read_only : bool
        Whether to ignore labels.
    predict_addresses : callable, optional
        Predicts the pictures of unknown items from their addresses.
    """

    def __init__(
        self,
        live: Live,
        label: str | None,
        rules: AnswerRules,
        read_only: bool,
        predict_addresses: PredictAddresses | None = None,
    ) -> None:
        self.live, self.label, self.rules, self.read_only = live, label, rules, read_only
        self.predict_addresses = predict_addresses

    @property
    def model_version(self) -> str:
        number = 0 if self.live.version is None else self.live.version.number
        return f"crowdshot-{__version__}-{number}"

    async def control(self, project: str, schema: str) -> Control:
        """Return the Choices tag of a project, which must be the project of the service."""
        return await self.live.on_disk(self._control, project, schema)

    def _control(self, project: str, schema: str) -> Control:
        number, journal = project.partition(".")[0], self.live.journal
        known = journal.fact("project")
        if known is not None and number != known:
            raise CrowdshotError(
                f"The project is {number}, but this service has the labels of project {known}",
                where="project",
                found=number,
                expected=known,
                hint="Start another service with a separate data folder for another project.",
            )
        if not schema:
            stored = journal.fact("control")
            if stored is None:
                raise CrowdshotError("is empty", argument="schema", expected="the XML of the labelling interface")
            return Control(*json.loads(stored))
        control, choices, _ = read_config(schema, self.label)
        if not self.read_only:
            facts = {"project": number, "control": json.dumps(control), CHOICES: json.dumps(choices)}
            for name, value in facts.items():
                if value and journal.fact(name) != value:
                    journal.note(name, value)
        return control

    async def take(self, tasks: Sequence[Task], control: Control, whole: bool) -> None:
        """Store new and changed answers. If the tasks are ``whole``, missing answers count as withdrawn."""
        if not self.read_only:
            new = await self.live.on_disk(changes, self.live.journal, tasks, control, self.rules, whole)
            await self.live.add(new)

    async def withdraw(self, annotations: Iterable[Record]) -> None:
        """Withdraw deleted answers."""
        endings = [f"/annotation {number}" for number in map(_id, annotations) if number]
        known = [await self.live.on_disk(self.live.journal.by_ending, ending) for ending in endings]
        withdrawn = [answer._replace(label=None) for found in known for answer in found if answer.label is not None]
        if not self.read_only:
            await self.live.add(withdrawn)

    async def predictions(self, tasks: Sequence[Task], control: Control) -> list[Record]:
        """Return a prediction for each task, empty if the item is unknown."""
        version = self.live.version
        found = [self.prediction(version, task, control) for task in tasks]
        unknown = [place for place, each in enumerate(found) if not each["result"]]
        if version is not None and self.predict_addresses is not None and unknown:
            addresses = [item_of(tasks[place], control) for place in unknown]
            predicted = await asyncio.to_thread(self.predict_addresses, addresses)
            for place, each in zip(unknown, predicted, strict=True):
                if each is not None:
                    found[place] |= prediction(control, *each, version.several)
        return found

    def prediction(self, version: Version | None, task: Task, control: Control) -> Record:
        row = None if version is None else version.find(item_of(task, control))
        found: Record = {"result": [], "score": 0.0, "model_version": self.model_version}
        if version is None or row is None:
            return found
        return found | prediction(control, version.label(row), float(version.confidence[row]), version.several)


def routes(backend: Backend) -> APIRouter:
    """Return the routes that Label Studio calls."""
    router = APIRouter()

    @router.post("/setup")
    async def setup(request: Setup) -> dict[str, str]:
        """Connect a project; Label Studio also calls this before predictions."""
        await backend.control(request.project, request.label_schema)
        return {"model_version": backend.model_version}

    @router.post("/predict")
    async def predict(request: Tasks) -> dict[str, Any]:
        """Return a result for each task, empty if the item is unknown, and store the answers in the tasks."""
        control = await backend.control(request.project, request.label_config)
        await backend.take(request.tasks, control, whole=True)
        version = backend.model_version
        return {"results": await backend.predictions(request.tasks, control), "model_version": version}

    @router.post("/webhook", status_code=202)
    async def webhook(event: Event) -> dict[str, str]:
        """Store the answers of an event. Label Studio waits one second and does not repeat a failed webhook."""
        control = await backend.control(str(event.project.get("id", "")), str(event.project.get("label_config") or ""))
        if event.action == "ANNOTATIONS_DELETED":
            await backend.withdraw(event.annotations)
        elif event.action in ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_CREATED"):
            await backend.take(tasks_of(event), control, whole=False)
        return {"status": "taken"}

    @router.get("/versions")
    async def versions() -> dict[str, list[str]]:
        return {"versions": [backend.model_version]}

    return router


def item_of(task: Task, control: Control) -> str:
    """Return the item of a task: that of a question from `crowdshot next`, else the field that is shown."""
    return (text(task.data.get("next_item")) or text(task.data.get(control.key)) or "")[:LONGEST]


def tasks_of(event: Event) -> list[Task]:
    """Return a task for each annotation of an event; the task may have other annotations."""
    tasks = event.task if isinstance(event.task, list) else [event.task]
    annotations = event.annotation if isinstance(event.annotation, list) else [event.annotation]
    data = {str(task.get("id")): task.get("data") for task in tasks}
    return [
        Task(id=_id({"id": annotation.get("task")}), data=found, annotations=[annotation])
        for annotation in annotations
        if isinstance(found := data.get(str(annotation.get("task"))), dict)
    ]


def changes(journal: Journal, tasks: Sequence[Task], control: Control, rules: AnswerRules, whole: bool) -> list[Answer]:
    """Return the answers that the journal lacks; answers missing from a whole task were deleted and are withdrawn."""
    new: list[Answer] = []
    for task in tasks:
        item = item_of(task, control)
        if task.annotations is None or task.id is None or not item:
            continue
        start = f"{SOURCE}/task {task.id}/"
        known = {answer.source: answer for answer in journal.by_start(start)}
        answers = [_answer(annotation, item, start, control, rules) for annotation in task.annotations]
        here = {answer.source: answer for answer in answers}
        if whole:
            gone = [answer for source, answer in known.items() if source not in here and answer.label is not None]
            new += [answer._replace(label=None) for answer in gone]
        changed = (answer for answer in here.values() if known.get(answer.source) != answer)
        new += [answer for answer in changed if answer.label or answer.source in known]
    return new


def _answer(annotation: Mapping[str, Any], item: str, start: str, control: Control, rules: AnswerRules) -> Answer:
    """Return an annotation as an answer; its label is None if it was cancelled or has no usable label."""
    annotator, source = user_of(annotation.get("completed_by")), f"{start}annotation {_id(annotation)}"
    label = (
        None if annotation.get("was_cancelled") or not annotator else _label(annotation.get("result"), control, rules)
    )
    return Answer(item, annotator[:LONGEST], label, source)


def _label(results: Any, control: Control, rules: AnswerRules) -> str | None:
    chosen: list[Any] = []
    for result in results if isinstance(results, list) else []:
        if isinstance(result, dict) and result.get("from_name") == control.from_name:
            value = result.get("value")
            choices = value.get("choices") if isinstance(value, dict) else None
            chosen += choices if isinstance(choices, list) else []
    try:
        label = one_label(chosen, "the answer", rules.several)[:LONGEST]
    except CrowdshotError:
        log.warning("an answer with several labels was left out; use --multi-label to allow several labels")
        return None
    return label if label and (not rules.known or label in rules.known) else None


def _id(annotation: Mapping[str, Any]) -> int | None:
    number = annotation.get("id")
    return number if isinstance(number, int) and not isinstance(number, bool) else None


# ---- notifications ----

EVERY = 5.0  # least seconds between two notifications of Label Studio


class Tool(NamedTuple):
    """The address of Label Studio and its token, which is never logged."""

    address: str
    token: str

    @classmethod
    def with_token(cls, address: str, token_file: Path | None) -> Tool:
        """Read the token from a file or, without one, from the environment."""
        Remote(address, {})  # raises an error for a wrong address
        name = label_tools.LABEL_STUDIO_VARIABLE
        try:
            token = os.environ.get(name, "") if token_file is None else token_file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CrowdshotError(
                f"could not be read ({error})", argument="token_file", where=shown(token_file or "")
            ) from None
        if not token.strip() or len(token.split()) != 1 or not token.isascii():
            where = f"environment variable {name}" if token_file is None else shown(token_file)
            raise CrowdshotError(
                "There is no token",
                argument="token_file",
                where=where,
                expected="an access token of Label Studio",
            )
        return cls(address, token.strip())

    def announce(self, project: str, version: str) -> None:
        """Make Label Studio fetch and show the predictions of a version."""
        remote = label_tools.connect_label_studio(self.address, self.token)
        label_tools.retrieve(remote, project)
        label_tools.show_version(remote, project, version)


async def announce_versions(tool: Tool, backend: Backend) -> None:
    """Announce each new version to Label Studio, for ever; after a failure, the next version is announced."""
    live = backend.live
    async for number in live.versions():
        project = live.journal.fact("project")
        if not number or project is None:
            continue
        version = backend.model_version
        try:
            await asyncio.to_thread(tool.announce, project, version)
        except CrowdshotError as error:
            if version == backend.model_version:  # otherwise a newer version follows at once
                # without the hint, which may quote names from the answer
                reason = error.message if error.where is None else f"{error.where}: {error.message}"
                log.warning("Label Studio could not be notified of the new version: %s", reason)
        await asyncio.sleep(EVERY)
