"""The service while it runs: labels go into the journal at once, and a version follows a moment later."""

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
from crowdshot.service.journal import Journal, Said
from crowdshot.service.snapshot import Found, Sources, Version, expected_answers, fit

QUIET = 0.3  # seconds without a label after which a fit begins
MOST_WAIT = 3.0  # seconds after which it begins all the same
KEEP_ALIVE = 15.0  # seconds between two signs of life to a page that listens
log = logging.getLogger("crowdshot.service")


class Fits(Protocol):
    def fit(self) -> Version | None: ...


class Live:
    def __init__(self, journal: Journal, worker: Fits, data: Path, log_labels: bool = False) -> None:
        self.journal, self.worker, self.data = journal, worker, data
        self.version: Version | None = None
        self.waiting = Waiting()
        self.counts: Counter[str] = Counter()
        self._log_labels = log_labels
        self._changed = asyncio.Event()
        self._swapped = asyncio.Condition()
        self._to_write: list[tuple[Sequence[Said], asyncio.Future[None]]] = []
        self._writing: asyncio.Task[None] | None = None
        self._recent: list[tuple[int, Said]] = []  # labels that the version may not have yet, and their last rows

    async def add(self, said: Sequence[Said]) -> None:
        """Returns when they are on disk."""
        if not said:
            return
        written = asyncio.get_running_loop().create_future()
        self._to_write.append((said, written))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        await written
        self.counts["labels"] += len(said)
        if self._log_labels:
            for each in said:
                log.info("label %r of item %r by %r", each.label, each.item, each.annotator)

    async def _write(self) -> None:
        """What comes while the disk is busy is written together afterwards: a disk takes as long for all as for one."""
        while self._to_write:
            together, self._to_write = self._to_write, []
            labels = [each for said, _ in together for each in said]
            error: Exception | None = None
            try:
                row = await asyncio.to_thread(self.journal.append, labels)
            except sqlite3.Error as found:
                error = found
            else:
                self._recent += [(row, each) for each in labels]
                self.waiting.heard(self._by_name(labels))
                self._changed.set()
            for _, written in together:
                if not written.done():  # nobody waits any more
                    written.set_result(None) if error is None else written.set_exception(error)

    def _by_name(self, said: Sequence[Said]) -> list[Said]:
        """The journal has annotators as they were written, the version by what they are called."""
        names = {} if self.version is None else self.version.names
        return [each._replace(annotator=names.get(each.annotator, each.annotator)) for each in said]

    async def keep_fitting(self) -> None:
        """For ever: waits for labels, lets those that come close behind come too, and swaps in what is found."""
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
            told = str(error) if self._log_labels else type(error).__name__  # the sentence may quote names
            log.warning("the labels could not be learned from, so the last version stays (%s)", told)
            return
        await self.swap(version)

    async def swap(self, version: Version | None) -> None:
        self.version = version
        row = 0 if version is None else version.row
        self._recent = [(at, said) for at, said in self._recent if at > row]
        self.waiting.swapped(self._by_name([said for _, said in self._recent]))
        self.counts["fits"] += 1
        async with self._swapped:
            self._swapped.notify_all()

    async def versions(self) -> AsyncIterator[int | None]:
        """The number of the version now, and of each that follows; None now and then, as a sign of life."""
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


# ---- worker ------------------------------------------------------------
#
# The process that fits: it sleeps until it is told that there are new labels, and sends back a version, whole.


Open = Callable[[], Sources]


@dataclass(frozen=True)
class Failed:
    """``expected``: the user can cause it; anything else is a bug."""

    sentence: str
    expected: bool


class Worker:
    """Of a folder with a journal. ``open_sources`` is called once, in the process, which starts when first asked."""

    def __init__(self, open_sources: Open, data: Path) -> None:
        self._open, self._data = open_sources, data
        self._process: Any = None
        self._pipe: Connection | None = None

    def fit(self) -> Version | None:
        """All labels of the journal -> a version; blocks until it is there. A process that died starts again once."""
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
            if isinstance(answer, Failed):
                raise CrowdshotError(answer.sentence) if answer.expected else RuntimeError(answer.sentence)
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
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when it is over
    if hasattr(os, "nice"):
        os.nice(10)  # whoever asks is answered first
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
            answer = Failed(str(error), expected=True)
        except Exception as error:
            answer = Failed(f"{type(error).__name__}: {error}", expected=False)
        pipe.send(answer)


def make_version(sources: Sources, journal: Journal, data: Path) -> Version | None:
    started = time.perf_counter()
    later = journal.state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of labels that newer ones replace, say, which is what they are for
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
    lately: Counter[str] = Counter()
    for who, number in journal.lately(live_page.LATELY).items():
        lately[version.names.get(who, who)] += number
    page = live_page.render(version, journal.history(), lately)
    version = replace(version, page=page)
    _ = version.consensus, version.annotators, version.place, version.person  # made here, so that no request waits
    _save_model(found, data, version.number)
    return version


def _save_model(found: Found, data: Path, number: int) -> None:
    """The newest alone is kept, and the one before, which somebody may be reading."""
    if found.clf is None:
        return
    found.clf.save(model_file(data, number))
    for old in data.glob("model-*.safetensors"):
        told = old.stem.removeprefix("model-")
        if told.isdigit() and int(told) < number - 1:
            os.unlink(old)


def model_file(data: Path, number: int) -> Path:
    return data / f"model-{number}.safetensors"
