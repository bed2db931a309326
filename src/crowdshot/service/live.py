"""The running service: labels go to the journal at once, and a new version follows shortly after."""

from __future__ import annotations

import asyncio
import json
import logging
import multiprocessing
import os
import signal
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar
from urllib.parse import quote

import numpy as np

from crowdshot.errors import CrowdshotError
from crowdshot.labels.gold_questions import PAUSED, GoldRule, GoldTests, gold_tests, least_used
from crowdshot.labels.working_times import working_table, working_times
from crowdshot.model.parts import Sizes
from crowdshot.service import live_page
from crowdshot.service.assignments import Waiting
from crowdshot.service.journal import Answer, Decision, Journal, plain
from crowdshot.service.snapshot import Fitted, Review, Sources, Version, expected_answers, fit, with_known

MOST_CLASSES = 1_000  # the page and the questions take longer than a label with more
MOST_TESTED = 20_000  # labels; with more, tests of annotators over time would delay new versions
QUIET = 0.3  # seconds without a label after which a fit begins
MOST_WAIT = 3.0  # seconds after which a fit begins even if labels keep coming
KEEP_ALIVE = 15.0  # seconds between keep-alive messages to an open page
log = logging.getLogger("crowdshot.service")


GOLD_ASKED = "gold asked: "  # start of the journal's facts with the gold items of an annotator, as JSON
FITTED = "fitted"  # the journal's fact with the last row of the newest version
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Fits(Protocol):
    def fit(self, until: int | None = None) -> Version | None: ...


class NotWrittenError(Exception):
    """The journal could not be written."""


class Live:
    """The current version, the journal, and the labels that the version does not contain yet."""

    def __init__(
        self, journal: Journal, worker: Fits, data: Path, log_labels: bool = False, gold_share: float = 0.0
    ) -> None:
        self.journal, self.worker, self.data = journal, worker, data
        self.gold_share = gold_share
        self.random = np.random.default_rng()  # nobody can know which questions are gold
        self._gold_asked: dict[str, list[str]] = {}  # gold items that annotators were asked about
        self._choosing_gold = asyncio.Lock()
        self.version: Version | None = None
        self.waiting = Waiting()
        self._ended = False
        self.counts: Counter[str] = Counter()
        self._log_labels = log_labels
        self._changed = asyncio.Event()
        self._swapped = asyncio.Condition()
        self._to_write: list[tuple[Sequence[Answer], asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._recent: list[tuple[int, Answer]] = []  # labels that the version may lack, with their last rows
        self._new: tuple[set[str], set[str], set[str]] = (set(), set(), set())  # their items, annotators and classes
        # Pools of their own: slow passwords, predictions and downloads must not delay a label.
        self._disk = ThreadPoolExecutor(2, "journal")
        self._fitting = ThreadPoolExecutor(1, "fit")

    async def on_disk(
        self, do: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Call a function that uses the journal, in a thread."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._disk, partial(do, *args, **kwargs))

    async def add(self, answers: Sequence[Answer]) -> None:
        """Write answers to the journal; they are on disk when this returns.

        Answers that no fit could use are refused: texts with invalid characters, and too many names.
        """
        if not answers:
            return
        for each in answers:
            plain(each)
        self._check_number(answers)
        written = asyncio.get_running_loop().create_future()
        self._to_write.append((answers, written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        await written
        self.counts["labels"] += len(answers)
        if self._log_labels:
            for each in answers:
                log.info("label %r of item %r by %r", each.label, each.item, each.annotator)

    async def _write(self) -> None:
        """Write waiting answers; those that arrive during a write are written together afterwards."""
        while self._to_write:
            together, self._to_write = self._to_write, []
            labels = [each for answers, _ in together for each in answers]
            error: Exception | None = NotWrittenError("the service ends")
            try:
                row = await self.on_disk(self.journal.append, labels)
                error = None
                self._note_new(row, labels)
            except Exception as failure:
                log.error("the journal could not be written (%s)", type(failure).__name__)
                error = error and NotWrittenError(type(failure).__name__)
            finally:  # whatever happened: a request that is never answered blocks its client
                for _, written in together:
                    if not written.done():  # the request may have been cancelled
                        written.set_result(None) if error is None else written.set_exception(error)

    def _note_new(self, row: int, labels: list[Answer]) -> None:
        self._changed.set()
        self._recent += [(row, each) for each in labels]
        for known, names in zip(self._new, self._names(labels), strict=True):
            known |= names
        self.waiting.add(self._by_name(labels))

    def _names(self, answers: Sequence[Answer]) -> tuple[set[str], set[str], set[str]]:
        """Return the items, annotators and classes of answers that a fit uses and the version lacks."""
        version = self.version
        used = [each for each in answers if each.label is not None]
        classes = {each.label for each in used if each.label is not None}
        if version is None:
            return {each.item for each in used}, {each.annotator for each in used}, classes
        return (
            {each.item for each in used} - version.place.keys(),
            {each.annotator for each in used} - version.person.keys(),
            set() if version.reviews else classes - version.class_place.keys(),
        )

    def _check_number(self, answers: Sequence[Answer]) -> None:
        """Raise an error if there would be too many items, annotators and classes for a fit."""
        known = (0, 0, 0) if self.version is None else self.version.sizes
        new = [len(old | names) for old, names in zip(self._new, self._names(answers), strict=True)]
        if any(new):
            n_items, n_annotators, n_classes = (a + b for a, b in zip(known, new, strict=True))
            if n_classes > MOST_CLASSES or Sizes(n_items, n_annotators + 1, n_classes).sparse:
                raise CrowdshotError(
                    f"would make {n_items:,} items, {n_annotators:,} annotators and {n_classes:,} classes, too many for"
                    " a service",
                    where="labels",
                    expected="fewer new names",
                )

    async def decide(self, decisions: Sequence[Decision]) -> None:
        """Record decisions about held or already decided classes and items, and fit again."""
        pairs = {(each.kind, each.name) for each in await self.on_disk(self.journal.decisions)}
        pairs |= set() if self.version is None else {(each.kind, each.name) for each in self.version.held}
        for each in decisions:
            if (each.kind, each.name) not in pairs:
                raise CrowdshotError(
                    f"is {each.name!r}",
                    where="name",
                    found=each.name,
                    expected=f"a {each.kind} that is held for review, or was decided earlier",
                )
        await self.on_disk(self.journal.decide, decisions)
        self._changed.set()

    async def questions(self, version: Version, annotator: str, n: int) -> list[dict[str, object]]:
        """Return at most ``n`` questions for an annotator, some of them gold if there is a share of gold.

        Then no question has its gain and number of labels, in which gold items differ from others.
        """
        questions = self.waiting.questions(version, annotator, n)
        if not version.known:
            return questions
        hidden = {"gain", "n_labels"}
        questions = [{key: x for key, x in each.items() if key not in hidden} for each in questions]
        places = np.flatnonzero(self.random.random(len(questions)) < self.gold_share)
        if not annotator or not len(places):
            return questions
        async with self._choosing_gold:
            gold = await self._ask_gold(version, annotator, len(places))
        for place, row in zip(places.tolist(), gold, strict=False):
            self.waiting.forget(version, annotator, str(questions[place]["item"]))
            questions[place] = self.waiting.question(version, row)
        return questions

    async def _ask_gold(self, version: Version, annotator: str, n: int) -> list[int]:
        """Return the rows of at most ``n`` gold items that the annotator was never asked about, and record them."""
        names = dict.fromkeys([annotator, version.names.get(annotator, annotator)])
        for name in names:
            if name not in self._gold_asked:
                stored = await self.on_disk(self.journal.fact, GOLD_ASKED + name)
                self._gold_asked[name] = json.loads(stored or "[]")
        asked = {item for name in names for item in self._gold_asked[name]}
        closed = self.waiting.answered_by(version, annotator)
        items = version.annotations.items
        rows = [row for row in version.known if row not in closed and str(items[row]) not in asked]
        used = version.n_labels.astype(np.float64)
        for item in (item for some in self._gold_asked.values() for item in some if item in version.place):
            used[version.place[item]] += 1
        chosen = least_used(np.array(rows, dtype=np.int64), used, n, self.random)
        if chosen:
            self._gold_asked[annotator] += [str(items[row]) for row in chosen]
            await self.on_disk(self.journal.note, GOLD_ASKED + annotator, json.dumps(self._gold_asked[annotator]))
        return chosen

    def is_paused(self, version: Version, annotator: str) -> bool:
        tests = version.tests.get(version.names.get(annotator, annotator))
        return tests is not None and tests.status == PAUSED

    def _by_name(self, answers: Sequence[Answer]) -> list[Answer]:
        """Return the answers with merged annotator names; the journal has the names as they were written."""
        names = {} if self.version is None else self.version.names
        return [each._replace(annotator=names.get(each.annotator, each.annotator)) for each in answers]

    async def keep_fitting(self) -> None:
        """Fit after new labels, for ever; labels in quick succession are fitted together."""
        while True:
            await self._changed.wait()
            first = time.monotonic()
            while self._changed.is_set() and time.monotonic() - first < MOST_WAIT:
                self._changed.clear()
                await asyncio.sleep(QUIET)
            self._changed.clear()
            await self._fit()

    async def _fit(self) -> None:
        try:
            version = await asyncio.get_running_loop().run_in_executor(self._fitting, self.worker.fit)
        except Exception as error:
            self.counts["failed_fits"] += 1
            reason = str(error) if self._log_labels else type(error).__name__  # the message may quote names
            log.warning("the fit failed, so the previous version stays in use (%s)", reason)
            return
        await self.swap(version)

    async def swap(self, version: Version | None) -> None:
        """Put a version into use."""
        self.version = version
        row = 0 if version is None else version.row
        self._recent = [(at, answer) for at, answer in self._recent if at > row]
        self._new = self._names([answer for _, answer in self._recent])
        self.waiting.reset(self._by_name([answer for _, answer in self._recent]))
        self.counts["fits"] += 1
        async with self._swapped:
            self._swapped.notify_all()

    async def versions(self) -> AsyncIterator[int | None]:
        """Yield the number of the current version and of each new one; None is a keep-alive message."""
        last = -1
        while not self._ended:
            number = 0 if self.version is None else self.version.number
            if number != last:
                yield number
                last = number
                continue
            try:
                async with self._swapped:
                    await asyncio.wait_for(self._swapped.wait(), KEEP_ALIVE)
            except TimeoutError:
                yield None

    async def end_streams(self) -> None:
        """End the streams of `versions`, because the service ends."""
        self._ended = True
        async with self._swapped:
            self._swapped.notify_all()


# ---- worker process ----


Open = Callable[[], Sources]


@dataclass(frozen=True)
class Failed:
    """A failure of the worker process that is not the user's mistake."""

    sentence: str


class Worker:
    """A process that fits the labels of the journal in a folder.

    The process starts at the first fit and then calls ``open_sources`` once.
    """

    def __init__(self, open_sources: Open, data: Path) -> None:
        self._open, self._data = open_sources, data
        self._process: Any = None
        self._pipe: Connection | None = None

    def fit(self, until: int | None = None) -> Version | None:
        """Fit the labels of the journal, up to a row if one is given; a process that died is restarted once."""
        for last_try in (False, True):
            try:
                if self._pipe is None:
                    self._start()
                assert self._pipe is not None
                self._pipe.send(until)
                answer = self._pipe.recv()
            except (EOFError, OSError):
                self.close()
                if last_try:
                    raise RuntimeError("the process that fits has died") from None
                continue
            if isinstance(answer, CrowdshotError):
                raise answer
            if isinstance(answer, Failed):
                raise RuntimeError(answer.sentence)
            return answer  # type: ignore[no-any-return]
        return None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, self._open, self._data), daemon=True)
        self._process.start()
        theirs.close()

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.terminate()
            self._process.join()
        self._pipe = self._process = None


def work(pipe: Connection, open_sources: Open, data: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    if hasattr(os, "nice"):
        os.nice(10)  # requests have priority over fits
    sources: Sources | None = None
    journal: Journal | None = None
    while True:
        try:
            until = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            journal = journal or Journal(data, check=False)  # the service has checked it
            sources = sources or open_sources()
            answer: Any = make_version(sources, journal, data, until)
        except CrowdshotError as error:
            answer = error
        except Exception as error:
            answer = Failed(f"{type(error).__name__}: {error}")
        pipe.send(answer)


def first_version(worker: Fits, journal: Journal) -> Version | None:
    """Fit all labels; if that fails, fit those of the last version, so that the service can start."""
    try:
        return worker.fit()
    except (CrowdshotError, RuntimeError) as error:
        row = int(journal.fact(FITTED) or journal.last())
        if row >= journal.last():
            raise
        version = worker.fit(row)
        missing = f"without the labels after row {row} of the journal, which cannot be fitted"
        log.warning("the service starts %s (%s)", missing, type(error).__name__)
        return version


def make_version(sources: Sources, journal: Journal, data: Path, until: int | None = None) -> Version | None:
    """Fit the labels and return the version with its page; save the classifier. None if there are no labels."""
    started = time.perf_counter()
    later = journal.state(until)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as for labels that newer ones replace, which is intended here
        found = fit(sources, later, Review.of(sources, journal))
    if found is None:
        return None
    ann, posterior = found.annotations, with_known(found.posterior, found.known)
    confusion = expected_answers(ann, posterior, found.read.history)
    seconds = time.perf_counter() - started
    read = found.read
    args = (
        later.row,
        ann,
        found.posterior,
        confusion,
        found.seen,
        read.several,
        read.history,
        found.aliases,
        seconds,
        found.files,
        read.people,
        found.held,
        found.reviews,
    )
    draft = Version(0, *args)
    point = journal.note_version(ann.n_labels, draft.n_labelled, draft.n_accepted)
    if ann.n_labels <= MOST_TESTED:
        table = working_table(read, ann, posterior)
    else:
        table = working_times(read.annotations, read.times)
    working = {name: row.dropna().to_dict() for name, row in table.iterrows()}
    version = replace(
        draft,
        number=point.number,
        working={name: row for name, row in working.items() if row},
        known=dict(found.known),
        tests=_tests(found, sources.rule),
    )
    recent: Counter[str] = Counter()
    for annotator, number in journal.recent(live_page.RECENT).items():
        recent[version.names.get(annotator, annotator)] += number
    page = live_page.render(version, journal.history(), recent, surroundings(sources, journal))
    version = replace(version, page=page)
    _ = (
        version.consensus,
        version.annotators,
        version.place,
        version.person,
    )  # computed here, so that no request waits for them
    _save_model(found, data, version.number, share=bool(version.known))
    journal.note(FITTED, str(later.row))
    return version


def _tests(found: Fitted, rule: GoldRule) -> dict[str, GoldTests]:
    """Return the results of the annotators with labels in gold questions; {} if there are none."""
    if not found.known:
        return {}
    ann, known = found.annotations, np.full(found.annotations.n_items, -1, dtype=np.int64)
    known[list(found.known)] = list(found.known.values())
    n_labels = np.bincount(ann.annotator, minlength=ann.n_annotators)
    results = zip(ann.annotators, gold_tests(ann, known, rule), n_labels, strict=True)
    return {str(name): tests for name, tests, n in results if n}


def surroundings(sources: Sources, journal: Journal) -> live_page.Surroundings:
    """Return the image files of the items, and the addresses of their tasks in Label Studio."""
    items, project = sources.items, journal.fact("project")
    files = list(items.X) if items is not None and items.kind == "images" else []
    links = {}
    if sources.tool is not None and project:
        start = f"{sources.tool.rstrip('/')}/projects/{quote(project, safe='')}/data?task="
        for item, task in journal.tasks().items():
            links[item] = start + quote(task, safe="")
    return live_page.Surroundings(files, links)


def _save_model(found: Fitted, data: Path, number: int, share: bool) -> None:
    """Save the classifier, without labels and known classes to ``share`` it; keep one earlier file, maybe in use."""
    if found.clf is None:
        return
    found.clf.save(model_file(data, number), labels=not share)
    for old in data.glob("model-*.safetensors"):
        version = old.stem.removeprefix("model-")
        if version.isdigit() and int(version) < number - 1:
            os.unlink(old)


def model_file(data: Path, number: int) -> Path:
    return data / f"model-{number}.safetensors"
