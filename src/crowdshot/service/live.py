"""The service while it runs: labels go into the journal at once, and a version follows a moment later."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Protocol

from crowdshot.service.journal import Journal, Said
from crowdshot.service.questions import Waiting
from crowdshot.service.version import Version

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
