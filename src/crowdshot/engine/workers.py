"""Who does the work: this process, several of them, a Ray cluster (`cluster`) or Spark (`executors`).

One that is killed changes nothing: a task is a file or a few, what it makes is there whole or not at all, and to do it
twice gives the same.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from crowdshot.engine import mapped
from crowdshot.engine.part_files import open_part
from crowdshot.errors import CrowdshotError
from crowdshot.files.leftovers import end_with_parent
from crowdshot.model.parts import Ask, added

TRIES = 5  # after so many deaths of workers the fault is not theirs
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_NUM_THREADS")
ENVIRONMENT = dict.fromkeys(THREADS, "1") | {  # one core each; and glibc is not to give back what is asked for again
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
    "MALLOC_TRIM_THRESHOLD_": str(2**29),
}

_given: tuple[Path | None, Any] = (None, None)  # in a worker: what all tasks were given last


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
    """Processes of this machine; ``folder``: where lies what they are given and give back."""

    def __init__(self, n: int, folder: Path) -> None:
        self.n, self.folder = n, folder
        self.asked = 0
        self.pool = self._start()

    def each(self, function: Callable[..., Any], tasks: Sequence[Any], *given: Any) -> Iterator[tuple[int, Any]]:
        self.asked += 1
        asked = self.folder / f"{self.asked}.given"
        mapped.write(asked, given)
        left = dict(enumerate(tasks))
        for _ in range(TRIES):
            try:
                futures = {
                    self.pool.submit(call, function, task, asked, asked.with_suffix(f".{place}")): place
                    for place, task in left.items()
                }
                for done in as_completed(futures):
                    found = done.result()
                    result = mapped.read(found)
                    found.unlink()
                    del left[futures[done]]
                    yield futures.pop(done), result
                asked.unlink()
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


def workers_of(engine: str, n: int, folder: Path) -> Workers:
    """``engine``: "local", "ray" or "spark"; ``folder``: as for `Processes`."""
    if engine == "ray":
        from crowdshot.engine.cluster import Actors  # an extra

        actors: Workers = Actors(n)
        return actors
    if engine == "spark":
        from crowdshot.engine.executors import Executors  # an extra

        executors: Workers = Executors(n, folder)
        return executors
    return Here() if n == 1 else Processes(n, folder)


def call(function: Callable[..., Any], task: Any, asked: Path, answer: Path) -> Path:
    """In a worker: of what lies in a file, to another; its name."""
    global _given
    if _given[0] != asked:
        _given = (None, None)  # both would not find room
        _given = (asked, mapped.read(asked))
    mapped.write(answer, function(task, *_given[1]))
    return answer


@contextmanager
def environment() -> Iterator[None]:
    """In which processes that are started meanwhile work best."""
    before = {name: os.environ.get(name) for name in ENVIRONMENT}
    os.environ.update(ENVIRONMENT)
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
