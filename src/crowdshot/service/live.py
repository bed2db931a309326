"""The running service: labels go to the journal at once, and a new version follows shortly after."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import signal
import sqlite3
import time
import warnings
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Protocol

from crowdshot.errors import CrowdshotError
from crowdshot.service import live_page
from crowdshot.service.assignments import Waiting
from crowdshot.service.journal import Answer, Journal
from crowdshot.service.snapshot import Fitted, Sources, Version, expected_answers, fit

QUIET = 0.3  # seconds without a label after which a fit begins
MOST_WAIT = 3.0  # seconds after which a fit begins even if labels keep coming
KEEP_ALIVE = 15.0  # seconds between keep-alive messages to an open page
log = logging.getLogger("crowdshot.service")


class Fits(Protocol):
    def fit(self) -> Version | None: ...


class Live:
    """The current version, the journal, and the labels that the version does not contain yet."""

    def __init__(self, journal: Journal, worker: Fits, data: Path, log_labels: bool = False) -> None:
        self.journal, self.worker, self.data = journal, worker, data
        self.version: Version | None = None
        self.waiting = Waiting()
        self.counts: Counter[str] = Counter()
        self._log_labels = log_labels
        self._changed = asyncio.Event()
        self._swapped = asyncio.Condition()
        self._to_write: list[tuple[Sequence[Answer], asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._recent: list[tuple[int, Answer]] = []  # labels that the version may lack, with their last rows

    async def add(self, answers: Sequence[Answer]) -> None:
        """Write answers to the journal; they are on disk when this returns."""
        if not answers:
            return
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
            error: Exception | None = None
            try:
                row = await asyncio.to_thread(self.journal.append, labels)
            except sqlite3.Error as failure:
                error = failure
            else:
                self._recent += [(row, each) for each in labels]
                self.waiting.add(self._by_name(labels))
                self._changed.set()
            for _, written in together:
                if not written.done():  # the request may have been cancelled
                    written.set_result(None) if error is None else written.set_exception(error)

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
            version = await asyncio.to_thread(self.worker.fit)
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
        self.waiting.reset(self._by_name([answer for _, answer in self._recent]))
        self.counts["fits"] += 1
        async with self._swapped:
            self._swapped.notify_all()

    async def versions(self) -> AsyncIterator[int | None]:
        """Yield the number of the current version and of each new one; None is a keep-alive message."""
        last = -1
        while True:
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

    def fit(self) -> Version | None:
        """Fit all labels of the journal and return the version; a process that died is restarted once."""
        for last_try in (False, True):
            try:
                if self._pipe is None:
                    self._start()
                assert self._pipe is not None
                self._pipe.send("fit")
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
            pipe.recv()
        except (EOFError, OSError):
            return
        try:
            journal = journal or Journal(data)
            sources = sources or open_sources()
            answer: Any = make_version(sources, journal, data)
        except CrowdshotError as error:
            answer = error
        except Exception as error:
            answer = Failed(f"{type(error).__name__}: {error}")
        pipe.send(answer)


def make_version(sources: Sources, journal: Journal, data: Path) -> Version | None:
    """Fit all labels and return the version with its page; save the classifier. None if there are no labels."""
    started = time.perf_counter()
    later = journal.state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # such as for labels that newer ones replace, which is intended here
        found = fit(sources, later)
    if found is None:
        return None
    ann, posterior = found.annotations, found.posterior
    confusion = expected_answers(ann, posterior, found.read.history)
    seconds = time.perf_counter() - started
    read = found.read
    args = (
        later.row,
        ann,
        posterior,
        confusion,
        found.seen,
        read.several,
        read.history,
        found.aliases,
        seconds,
        found.files,
        read.people,
    )
    draft = Version(0, *args)
    point = journal.note_version(ann.n_labels, draft.n_labelled, draft.n_accepted)
    version = Version(point.number, *args)
    recent: Counter[str] = Counter()
    for annotator, number in journal.recent(live_page.RECENT).items():
        recent[version.names.get(annotator, annotator)] += number
    page = live_page.render(version, journal.history(), recent)
    version = replace(version, page=page)
    _ = (
        version.consensus,
        version.annotators,
        version.place,
        version.person,
    )  # computed here, so that no request waits for them
    _save_model(found, data, version.number)
    return version


def _save_model(found: Fitted, data: Path, number: int) -> None:
    """Save the classifier and keep one earlier file, which may be in use."""
    if found.clf is None:
        return
    found.clf.save(model_file(data, number))
    for old in data.glob("model-*.safetensors"):
        version = old.stem.removeprefix("model-")
        if version.isdigit() and int(version) < number - 1:
            os.unlink(old)


def model_file(data: Path, number: int) -> Path:
    return data / f"model-{number}.safetensors"
