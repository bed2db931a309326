"""Who does the work: this process, several of them, a Ray cluster (`cluster`) or Spark (`executors`).

One that is killed changes nothing: a task is a file or a few, what it makes is there whole or not at all, and to do it
twice gives the same.
"""

from __future__ import annotations

import os
import pickle
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

import pandas as pd

from crowdshot.engine import part_files
from crowdshot.engine.part_files import open_part
from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import end_with_parent
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
        part_files.write(asked, given)
        left = dict(enumerate(tasks))
        for _ in range(TRIES):
            try:
                futures = {
                    self.pool.submit(call, function, task, asked, asked.with_suffix(f".{place}")): place
                    for place, task in left.items()
                }
                for done in as_completed(futures):
                    found = done.result()
                    result = part_files.read(found)
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
        actors: Workers = Actors(n)
        return actors
    if engine == "spark":
        executors: Workers = Executors(n, folder)
        return executors
    return Here() if n == 1 else Processes(n, folder)


def call(function: Callable[..., Any], task: Any, asked: Path, answer: Path) -> Path:
    """In a worker: of what lies in a file, to another; its name."""
    global _given
    if _given[0] != asked:
        _given = (None, None)  # both would not find room
        _given = (asked, part_files.read(asked))
    part_files.write(answer, function(task, *_given[1]))
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


# ---- cluster ------------------------------------------------------------
#
# A Ray cluster as workers: each actor keeps to its share of the parts, what all are given is sent to a machine once.
#
# The folder of results must be one that all machines see. An actor that dies is replaced, and its task done again.


class Actors:
    """``n`` actors of one core each, on the cluster that Ray finds, or else on this machine."""

    def __init__(self, n: int) -> None:
        try:
            import ray  # an extra
        except ImportError:
            raise CrowdshotError(
                "engine is 'ray', which is not installed, expected 'local'; pip install 'crowdshot[ray]' adds it."
            ) from None
        self.ray, self.n = ray, n
        self.began = not ray.is_initialized()
        if self.began:
            ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
        self.actor: Any = ray.remote(num_cpus=1)(Actor)
        self.actors: list[Any] = [self.actor.remote() for _ in range(n)]

    def each(self, function: Callable[..., Any], tasks: Sequence[Any], *given: Any) -> Iterator[tuple[int, Any]]:
        shared = self.ray.put(given)
        waiting = list(enumerate(tasks))[::-1]
        running: dict[Any, tuple[int, int, Any]] = {}  # reference -> who does which task
        free = list(range(self.n))
        deaths = 0
        while waiting or running:
            while waiting and free:
                place, task = waiting.pop()
                who = free.pop(0)
                running[self.actors[who].call.remote(function, task, shared)] = (who, place, task)
            (done,), _ = self.ray.wait(list(running))
            who, place, task = running.pop(done)
            free.append(who)
            try:
                result = self.ray.get(done)
            except self.ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except self.ray.exceptions.RayError as error:
                deaths += 1
                if deaths == TRIES:
                    reason = str(error).splitlines()[0]
                    raise CrowdshotError(f"engine lost {TRIES} actors ({reason}), expected them to live.") from None
                self.actors[who] = self.actor.remote()
                waiting.append((place, task))
                continue
            yield place, result

    def close(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)
        if self.began:
            self.ray.shutdown()


class Actor:
    def call(self, function: Callable[..., Any], task: Any, given: tuple[Any, ...]) -> Any:
        return function(task, *given)


# ---- executors ------------------------------------------------------------
#
# A Spark cluster as workers: a step is a job of `mapInPandas`, with a row for each task.
#
# What tasks are given and give back lies in the folder of results, which all machines must see; rows only say where.


class Executors:
    """The Spark session that there is, or else one of ``n`` cores of this machine."""

    def __init__(self, n: int, folder: Path) -> None:
        try:
            from pyspark.errors import PySparkException  # an extra
            from pyspark.sql import SparkSession
        except ImportError:
            raise CrowdshotError(
                "engine is 'spark', which is not installed, expected 'local'; pip install 'crowdshot[spark]' adds it."
            ) from None
        self.n, self.asked = n, 0
        self.folder = folder.absolute() / secrets.token_hex(4)  # as executors remember files by their names
        self.folder.mkdir()
        before = SparkSession.getActiveSession()
        try:
            self.spark: Any = before or _session(SparkSession.builder, n)
        except PySparkException as error:
            reason = str(error).splitlines()[0]
            raise CrowdshotError(f"engine 'spark' did not start ({reason}), expected Java 17 or newer.") from None
        self.began = before is None

    def each(self, function: Callable[..., Any], tasks: Sequence[Any], *given: Any) -> Iterator[tuple[int, Any]]:
        self.asked += 1
        asked = self.folder / f"{self.asked}.given"
        part_files.write(asked, given)
        calls = [(place, pickle.dumps((function, task, asked))) for place, task in enumerate(tasks)]
        if calls:
            rows = self.spark.sparkContext.parallelize(calls, len(calls)).toDF("place long, call binary")
            for place, failed in rows.mapInPandas(_done, "place long, failed binary").collect():
                if failed is not None:
                    raise pickle.loads(failed)
                answer = asked.with_suffix(f".{place}")
                yield place, part_files.read(answer)
                answer.unlink()
        asked.unlink()

    def close(self) -> None:
        if self.began:
            self.spark.stop()


def _session(builder: Any, n: int) -> Any:
    """Of the cluster that spark-submit names, else of this machine, where what fails is tried again too."""
    from pyspark import SparkConf  # an extra

    if not SparkConf().contains("spark.master"):
        here = {"ui.enabled": "false", "ui.showConsoleProgress": "false", "log.level": "ERROR"}
        here["master"] = f"local[{n},{TRIES}]"
        builder = builder.config(map={f"spark.{name}": value for name, value in here.items()})
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else the one that is first in PATH
    return builder.appName("crowdshot").getOrCreate()


def _done(tables: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """On an executor: of each call whether it failed by what it was given; anything else is Spark's to try again."""
    for table in tables:
        for place, pickled in zip(table["place"], table["call"], strict=True):
            function, task, asked = pickle.loads(pickled)
            failed = None
            try:
                call(function, task, asked, asked.with_suffix(f".{place}"))
            except CrowdshotError as error:
                failed = pickle.dumps(error)
            yield pd.DataFrame({"place": [place], "failed": [failed]})
