"""Label Studio's side of the service: what a machine-learning backend of version 1.23 is asked, and answers.

Tasks that it wants predicted carry every annotator's answers, so that the crowd is known without a call back; its
webhooks bring answers as they are given. Both end in the journal, an answer by its own id once, however often it comes.
A score is how sure one label is: "uncertainty sampling" serves the lowest first, which are the items that need people.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, BackgroundTasks
from pydantic import BaseModel, Field

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import shown
from crowdshot.io.cells import text
from crowdshot.labels.formats.label_studio import user_of
from crowdshot.labels.formats.question_choice import one_label
from crowdshot.report import label_tools
from crowdshot.report.label_tools import Control, Remote, prediction, read_config
from crowdshot.service.journal import Journal, Said
from crowdshot.service.live import Live
from crowdshot.service.schemas import LONGEST
from crowdshot.service.snapshot import Version
from crowdshot.version import __version__

MOST_TASKS = 100_000  # of one request
SOURCE = "label-studio"
log = logging.getLogger("crowdshot.service")
Record = dict[str, Any]
See = Callable[[list[str]], list[tuple[str, float] | None]]


class Reads(NamedTuple):
    """``several``: labels in one answer. ``known``: the only ones that there are, if they are listed."""

    several: bool = False
    known: frozenset[str] = frozenset()


class Setup(BaseModel):
    """Its access token is not looked at."""

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
    """``annotation`` and ``task``: records, or lists of them where there are several."""

    action: str = ""
    project: Record = {}
    annotation: Record | list[Record] = []
    annotations: list[Record] = []
    task: Record | list[Record] = []


class Backend:
    """Of one project: the first that came, as the journal notes.

    ``label``: which Choices tag is read, where there are several. ``reads``: what an answer may say. ``see``: what is
    said of items, by their addresses, that are not among those known; None where nothing is.
    """

    def __init__(self, live: Live, label: str | None, reads: Reads, read_only: bool, see: See | None = None) -> None:
        self.live, self.label, self.reads, self.read_only, self.see = live, label, reads, read_only, see

    @property
    def model_version(self) -> str:
        number = 0 if self.live.version is None else self.live.version.number
        return f"crowdshot-{__version__}-{number}"

    def control(self, project: str, schema: str) -> Control:
        """What is answered in this project, which must be the one that the service is for."""
        number, journal = project.partition(".")[0], self.live.journal
        known = journal.fact("project")
        if known is not None and number != known:
            raise CrowdshotError(
                f"project is {number}, expected {known}, whose labels are here; another needs data= of its own."
            )
        if schema:
            control, _, _ = read_config(schema, self.label)
        else:
            noted = journal.fact("control")
            if noted is None:
                raise CrowdshotError("schema is empty, expected the project's labelling interface.")
            return Control(*json.loads(noted))
        if known is None and number and not self.read_only:
            journal.note("project", number)
        if not self.read_only:
            journal.note("control", json.dumps(control))
        return control

    async def take(self, tasks: Sequence[Task], control: Control, whole: bool) -> None:
        """Answers that are new or changed; and, where tasks are ``whole``, of those that are gone that they are."""
        if not self.read_only:
            new = await asyncio.to_thread(changes, self.live.journal, tasks, control, self.reads, whole)
            await self.live.add(new)

    async def take_back(self, annotations: Iterable[Record]) -> None:
        known = await asyncio.to_thread(
            lambda: [self.live.journal.by_ending(f"/annotation {number}") for number in map(_id, annotations) if number]
        )
        gone = [said._replace(label=None) for found in known for said in found if said.label is not None]
        if not self.read_only:
            await self.live.add(gone)

    async def predictions(self, tasks: Sequence[Task], control: Control) -> list[Record]:
        """As many as tasks, each empty where nothing is known of the item."""
        version = self.live.version
        found = [self.prediction(version, task, control) for task in tasks]
        unknown = [place for place, each in enumerate(found) if not each["result"]]
        if version is not None and self.see is not None and unknown:
            seen = await asyncio.to_thread(self.see, [item_of(tasks[place], control) for place in unknown])
            for place, said in zip(unknown, seen, strict=True):
                if said is not None:
                    found[place] |= prediction(control, said[0], said[1], version.several)
        return found

    def prediction(self, version: Version | None, task: Task, control: Control) -> Record:
        row = None if version is None else version.find(item_of(task, control))
        found: Record = {"result": [], "score": 0.0, "model_version": self.model_version}
        if version is None or row is None:
            return found
        return found | prediction(control, version.label(row), float(version.confidence[row]), version.several)


def routes(backend: Backend) -> APIRouter:
    router = APIRouter()

    @router.post("/setup")
    async def setup(given: Setup) -> dict[str, str]:
        """Called by Label Studio when a project is connected, and before predictions."""
        backend.control(given.project, given.label_schema)
        return {"model_version": backend.model_version}

    @router.post("/predict")
    async def predict(given: Tasks) -> dict[str, Any]:
        """As many results as tasks, each empty where nothing is known of the item; answers in the tasks are taken."""
        control = backend.control(given.project, given.label_config)
        await backend.take(given.tasks, control, whole=True)
        version = backend.model_version
        return {"results": await backend.predictions(given.tasks, control), "model_version": version}

    @router.post("/webhook", status_code=202)
    async def webhook(event: Event, later: BackgroundTasks) -> dict[str, str]:
        """Answers at once, as Label Studio waits for one second, and works afterwards."""
        control = backend.control(str(event.project.get("id", "")), str(event.project.get("label_config") or ""))
        if event.action == "ANNOTATIONS_DELETED":
            later.add_task(backend.take_back, event.annotations)
        elif event.action in ("ANNOTATION_CREATED", "ANNOTATION_UPDATED", "ANNOTATIONS_CREATED"):
            later.add_task(backend.take, tasks_of(event), control, whole=False)
        return {"status": "taken"}

    @router.get("/versions")
    async def versions() -> dict[str, list[str]]:
        return {"versions": [backend.model_version]}

    return router


def item_of(task: Task, control: Control) -> str:
    """What a question of `crowdshot next` is about, else the field that is shown."""
    return (text(task.data.get("next_item")) or text(task.data.get(control.key)) or "")[:LONGEST]


def tasks_of(event: Event) -> list[Task]:
    """One for each annotation; they are not all that the task has."""
    tasks = event.task if isinstance(event.task, list) else [event.task]
    annotations = event.annotation if isinstance(event.annotation, list) else [event.annotation]
    data = {str(task.get("id")): task.get("data") for task in tasks}
    return [
        Task(id=_id({"id": annotation.get("task")}), data=found, annotations=[annotation])
        for annotation in annotations
        if isinstance(found := data.get(str(annotation.get("task"))), dict)
    ]


def changes(journal: Journal, tasks: Sequence[Task], control: Control, reads: Reads, whole: bool) -> list[Said]:
    """What the journal does not know yet. Answers that are not in a task that came whole were deleted."""
    new: list[Said] = []
    for task in tasks:
        item = item_of(task, control)
        if task.annotations is None or task.id is None or not item:
            continue
        start = f"{SOURCE}/task {task.id}/"
        known = {said.source: said for said in journal.by_start(start)}
        answers = [_said(annotation, item, start, control, reads) for annotation in task.annotations]
        here = {said.source: said for said in answers}
        gone = [said for source, said in known.items() if source not in here and said.label is not None and whole]
        new += [said._replace(label=None) for said in gone]
        new += [
            said for said in here.values() if known.get(said.source) != said and (said.label or said.source in known)
        ]
    return new


def _said(annotation: Mapping[str, Any], item: str, start: str, control: Control, reads: Reads) -> Said:
    """``label`` is None where it says nothing that can be used."""
    who, source = user_of(annotation.get("completed_by")), f"{start}annotation {_id(annotation)}"
    label = None if annotation.get("was_cancelled") or not who else _label(annotation.get("result"), control, reads)
    return Said(item, who[:LONGEST], label, source)


def _label(results: Any, control: Control, reads: Reads) -> str | None:
    chosen: list[Any] = []
    for result in results if isinstance(results, list) else []:
        if isinstance(result, dict) and result.get("from_name") == control.from_name:
            value = result.get("value")
            choices = value.get("choices") if isinstance(value, dict) else None
            chosen += choices if isinstance(choices, list) else []
    try:
        label = one_label(chosen, "the answer", reads.several)[:LONGEST]
    except CrowdshotError:
        log.warning("an answer names several labels, expected one, so it is left out; --multi-label takes such")
        return None
    return label if label and (not reads.known or label in reads.known) else None


def _id(annotation: Mapping[str, Any]) -> int | None:
    number = annotation.get("id")
    return number if isinstance(number, int) and not isinstance(number, bool) else None


# ---- telling ------------------------------------------------------------
#
# Label Studio is told of each new version, so that its predictions and what it serves next follow the labels.


EVERY = 5.0  # seconds between two tellings, at least


class Tool(NamedTuple):
    """Where Label Studio is, and a token of its that is never written anywhere."""

    address: str
    token: str

    @classmethod
    def of(cls, address: str, token_file: Path | None) -> Tool:
        """The token is in the file, or else in the environment."""
        Remote(address, {})  # is it an address?
        name = label_tools.LABEL_STUDIO_VARIABLE
        try:
            token = os.environ.get(name, "") if token_file is None else token_file.read_text("utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CrowdshotError(f"token_file is {shown(token_file or '')}, expected one to read ({error}).") from None
        if not token.strip() or len(token.split()) != 1 or not token.isascii():
            found = f"the environment has no token in {name}" if token_file is None else "token_file has no token"
            raise CrowdshotError(f"{found}, expected one of Label Studio's for label_studio=.")
        return cls(address, token.strip())

    def tell(self, project: str, version: str) -> None:
        remote = label_tools.connect_label_studio(self.address, self.token)
        label_tools.retrieve(remote, project)
        label_tools.show_version(remote, project, version)


async def keep_telling(tool: Tool, backend: Backend) -> None:
    """For ever. What it could not be told, the next version brings."""
    live = backend.live
    async for number in live.versions():
        project = live.journal.fact("project")
        if not number or project is None:
            continue
        version = backend.model_version
        try:
            await asyncio.to_thread(tool.tell, project, version)
        except CrowdshotError as error:
            if version == backend.model_version:  # else it was overtaken, and the newer one comes next
                sentence = str(error).partition(" (")[0]  # what follows may quote names
                log.warning("Label Studio could not be told of the new version: %s", sentence)
        await asyncio.sleep(EVERY)
