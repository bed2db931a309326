"""Who does the work: this process, several of them, or a Ray cluster (`cluster`). One that is killed changes nothing.

A task is a file or a few; what it makes is there whole or not at all, and to do it twice gives the same.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from crowdshot.engine.part_files import open_part
from crowdshot.errors import CrowdshotError
from crowdshot.files.leftovers import end_with_parent
from crowdshot.model.parts import Ask, added

TRIES = 5  # after so many deaths of workers the fault is not theirs
ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_NUM_THREADS")

_given: tuple[int, Any] = (-1, None)  # in a worker: what all tasks were given last


class Workers(Protocol):
    n: int

    def each(self, function: Callable[..., Any], tasks: Sequence[Any], *given: Any) -> Iterator[tuple[int, Any]]:
        """function(task, *given) of every task, as they are done: which one, and what it gave back."""

    def close(self) -> None: ...


class Here:
    """This process alone."""

    n = 1

    def each(self, function: Callable[..., Any], tasks: Sequence[Any], *given: Any) -> Iterator[tuple[int, Any]]:
        for place, task in enumerate(tasks):
            yield place, function(task, *given)

    def close(self) -> None:
        pass


class Processes:
    """Processes of this machine; ``folder``: where what they are given lies."""

    def __init__(self, n: int, folder: Path) -> None:
        self.n, self.file = n, folder / "given.pickle"
        self.asked = 0
        self.pool = self._start()

    def each(self, function: Callable[..., Any], tasks: Sequence[Any], *given: Any) -> Iterator[tuple[int, Any]]:
        self.asked += 1
        with self.file.open("wb") as file:
            pickle.dump(given, file, protocol=5)
        left = dict(enumerate(tasks))
        for _ in range(TRIES):
            try:
                futures = {
                    self.pool.submit(_call, function, task, self.file, self.asked): place
                    for place, task in left.items()
                }
                for done in as_completed(futures):
                    result = done.result()
                    del left[futures[done]]
                    yield futures.pop(done), result
                return
            except BrokenProcessPool:
                self.close()
                self.pool = self._start()
        raise CrowdshotError(
            f"engine lost {TRIES} processes, expected them to live; memory= may be more than there is."
        )

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.n, get_context("spawn"), initializer=end_with_parent)


def _call(function: Callable[..., Any], task: Any, file: Path, number: int) -> Any:
    global _given
    if _given[0] != number:
        _given = (-1, None)  # both would not find room
        with file.open("rb") as stored:
            _given = (number, pickle.load(stored))
    return function(task, *_given[1])


@contextmanager
def single_threaded() -> Iterator[None]:
    """Processes that are started meanwhile use one core each."""
    before = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(dict.fromkeys(ONE_THREAD, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def ask_of(workers: Workers, folders: Sequence[Path]) -> Ask:
    """Of parts in these folders; every worker has its share of them, and adds up what they give."""
    shares = [list(folders[first :: workers.n]) for first in range(min(workers.n, len(folders)))]

    def ask(function: Callable[..., Any], *given: Any) -> Any:
        return added(in_order(workers.each(of_share, shares, function, *given)))

    return ask


def of_share(folders: Sequence[Path], function: Callable[..., Any], *given: Any) -> Any:
    return added(function(open_part(folder), *given) for folder in folders)


def in_order(results: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    """By tasks, so that sums are the same to the last digit whoever was faster."""
    waiting: dict[int, Any] = {}
    turn = 0
    for place, result in results:
        waiting[place] = result
        while turn in waiting:
            yield waiting.pop(turn)
            turn += 1
