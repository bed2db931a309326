"""Run tasks in this process, in several local processes, on a Ray cluster or on Spark.

All four kinds of workers have the same interface (`Workers`). Tasks are idempotent: a task writes complete files or
none, so a task whose worker was killed is simply run again.
"""

from __future__ import annotations

import json
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
from crowdshot.extras import missing
from crowdshot.io.atomic import end_with_parent
from crowdshot.io.limited_process import as_facts
from crowdshot.model.parts import Ask, added

TRIES = 5  # killed workers after which the job fails
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "ARROW_NUM_THREADS")
ENVIRONMENT = dict.fromkeys(THREADS, "1") | {  # one core per process
    # glibc keeps large freed blocks, because the next task allocates them again
    "MALLOC_MMAP_THRESHOLD_": str(2**25),
    "MALLOC_TRIM_THRESHOLD_": str(2**29),
}

_last_arguments: tuple[Path | None, Any] = (None, None)  # in a worker: the shared arguments that it read last


class Workers(Protocol):
    """``n`` workers that run a function on tasks."""

    n: int

    def each(self, function: Callable[..., Any], tasks: Sequence[Any], *arguments: Any) -> Iterator[tuple[int, Any]]:
        """Yield (position, function(task, *arguments)) of every task, in the order in which tasks finish."""

    def close(self) -> None: ...


class Here:
    """Run all tasks in this process."""

    n = 1

    def each(self, function: Callable[..., Any], tasks: Sequence[Any], *arguments: Any) -> Iterator[tuple[int, Any]]:
        for position, task in enumerate(tasks):
            yield position, function(task, *arguments)

    def close(self) -> None:
        pass


class Processes:
    """Run tasks in ``n`` processes on this machine; arguments and results pass through files in ``folder``."""

    def __init__(self, n: int, folder: Path) -> None:
        self.n, self.folder = n, folder
        self.n_calls, self.key = 0, secrets.token_bytes(32)
        self.pool = self._start()

    def each(self, function: Callable[..., Any], tasks: Sequence[Any], *arguments: Any) -> Iterator[tuple[int, Any]]:
        self.n_calls += 1
        arguments_file = self.folder / f"{self.n_calls}.arguments"
        part_files.write(arguments_file, arguments, self.key)
        left = dict(enumerate(tasks))
        for _ in range(TRIES):
            try:
                futures = {
                    self.pool.submit(
                        call, function, task, arguments_file, arguments_file.with_suffix(f".{position}"), self.key
                    ): position
                    for position, task in left.items()
                }
                for done in as_completed(futures):
                    result_file = done.result()
                    result = part_files.read(result_file)
                    result_file.unlink()
                    del left[futures[done]]
                    yield futures.pop(done), result
                arguments_file.unlink()
                return
            except BrokenProcessPool:
                self.close()
                self.pool = self._start()
        raise CrowdshotError(
            f"Worker processes were killed {TRIES} times",
            argument="memory",
            hint="They may have run out of memory: try a lower memory limit",
        )

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.n, get_context("spawn"), initializer=end_with_parent)


def workers_of(engine: str, n: int, folder: Path) -> Workers:
    """Start ``n`` workers of an engine ("local", "ray" or "spark"); ``folder`` is for files that they exchange."""
    if engine == "ray":
        actors: Workers = Actors(n)
        return actors
    if engine == "spark":
        executors: Workers = Executors(n, folder)
        return executors
    return Here() if n == 1 else Processes(n, folder)


def call(function: Callable[..., Any], task: Any, arguments_file: Path, result_file: Path, key: bytes) -> Path:
    """Run a task in a worker and write its result; return the name of the result's file.

    ``key`` comes through the connection of the worker, and the arguments through a file that is signed with it.
    """
    global _last_arguments
    if _last_arguments[0] != arguments_file:
        _last_arguments = (None, None)  # free the old arguments first: memory has no room for both
        _last_arguments = (arguments_file, part_files.read(arguments_file, key))
    part_files.write(result_file, function(task, *_last_arguments[1]))
    return result_file


@contextmanager
def environment() -> Iterator[None]:
    """Set environment variables for child processes that are started in the block."""
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


def ask_of(workers: Workers, folders: Sequence[Path]) -> Ask:
    """Return a function that sums ``function(part, *arguments)`` over the parts in ``folders``, using the workers."""
    shares = [list(folders[first :: workers.n]) for first in range(min(workers.n, len(folders)))]

    def ask(function: Callable[..., Any], *arguments: Any) -> Any:
        return added(in_order(workers.each(sum_over_parts, shares, function, *arguments)))

    return ask


def sum_over_parts(folders: Sequence[Path], function: Callable[..., Any], *arguments: Any) -> Any:
    return added(function(open_part(folder), *arguments) for folder in folders)


def in_order(results: Iterator[tuple[int, Any]]) -> Iterator[Any]:
    """Yield results in the order of their tasks, so that floating-point sums do not depend on timing."""
    early: dict[int, Any] = {}
    turn = 0
    for position, result in results:
        early[position] = result
        while turn in early:
            yield early.pop(turn)
            turn += 1


# ---- Ray: each actor keeps its share of the parts; shared arguments are sent to each machine once ----


class Actors:
    """Run tasks in ``n`` Ray actors with one core each, on the cluster that Ray finds or else on this machine.

    The folder of results must be visible to all machines. An actor that dies is replaced and its task run again.
    """

    def __init__(self, n: int) -> None:
        try:
            import ray
        except ImportError:
            raise missing("ray", "This engine", argument="engine") from None
        self.ray, self.n = ray, n
        self.started_ray = not ray.is_initialized()
        if self.started_ray:
            ray.init(include_dashboard=False, log_to_driver=False, configure_logging=False)
        self.actor: Any = ray.remote(num_cpus=1)(Actor)
        self.actors: list[Any] = [self.actor.remote() for _ in range(n)]

    def each(self, function: Callable[..., Any], tasks: Sequence[Any], *arguments: Any) -> Iterator[tuple[int, Any]]:
        shared = self.ray.put(arguments)
        waiting = list(enumerate(tasks))[::-1]
        running: dict[Any, tuple[int, int, Any]] = {}  # Ray reference -> actor, position, task
        free = list(range(self.n))
        deaths = 0
        while waiting or running:
            while waiting and free:
                position, task = waiting.pop()
                actor = free.pop(0)
                running[self.actors[actor].call.remote(function, task, shared)] = (actor, position, task)
            (done,), _ = self.ray.wait(list(running))
            actor, position, task = running.pop(done)
            free.append(actor)
            try:
                result = self.ray.get(done)
            except self.ray.exceptions.RayTaskError as error:
                raise error.cause from None
            except self.ray.exceptions.RayError as error:
                deaths += 1
                if deaths == TRIES:
                    reason = str(error).splitlines()[0]
                    raise CrowdshotError(
                        f"Ray actors died {TRIES} times ({reason})", argument="engine", found="ray"
                    ) from None
                self.actors[actor] = self.actor.remote()
                waiting.append((position, task))
                continue
            yield position, result

    def close(self) -> None:
        for actor in self.actors:
            self.ray.kill(actor)
        if self.started_ray:
            self.ray.shutdown()


class Actor:
    """The class whose instances Ray places on machines."""

    def call(self, function: Callable[..., Any], task: Any, arguments: tuple[Any, ...]) -> Any:
        return function(task, *arguments)


# ---- Spark: each step is one `mapInPandas` job with a row per task; rows hold file names, not data ----


class Executors:
    """Run tasks on the active Spark session, or else on a new one with ``n`` cores of this machine.

    Arguments and results pass through files in ``folder``, which must be visible to all machines.
    """

    def __init__(self, n: int, folder: Path) -> None:
        try:
            from pyspark.errors import PySparkException
            from pyspark.sql import SparkSession
        except ImportError:
            raise missing("pyspark", "This engine", argument="engine") from None
        self.n, self.n_calls, self.key = n, 0, secrets.token_bytes(32)
        # a new name, because executors cache arguments by the name of their file
        self.folder = folder.absolute() / secrets.token_hex(4)
        self.folder.mkdir()
        active = SparkSession.getActiveSession()
        try:
            self.spark: Any = active or _session(SparkSession.builder, n)
        except PySparkException as error:
            reason = str(error).splitlines()[0]
            raise CrowdshotError(
                f"Spark did not start ({reason})", argument="engine", found="spark", expected="Java 17 or newer"
            ) from None
        self.started_spark = active is None

    def each(self, function: Callable[..., Any], tasks: Sequence[Any], *arguments: Any) -> Iterator[tuple[int, Any]]:
        self.n_calls += 1
        arguments_file = self.folder / f"{self.n_calls}.arguments"
        part_files.write(arguments_file, arguments, self.key)
        calls = [
            (position, pickle.dumps((function, task, arguments_file, self.key))) for position, task in enumerate(tasks)
        ]
        if calls:
            rows = self.spark.sparkContext.parallelize(calls, len(calls)).toDF("position long, call binary")
            for position, error in rows.mapInPandas(_call_each, "position long, error string").collect():
                if error is not None:
                    raise CrowdshotError(**json.loads(error))
                result_file = arguments_file.with_suffix(f".{position}")
                yield position, part_files.read(result_file)
                result_file.unlink()
        arguments_file.unlink()

    def close(self) -> None:
        if self.started_spark:
            self.spark.stop()


def _session(builder: Any, n: int) -> Any:
    """Connect to the cluster that spark-submit names, or else start Spark on this machine."""
    from pyspark import SparkConf  # optional dependency

    if not SparkConf().contains("spark.master"):
        local = {"ui.enabled": "false", "ui.showConsoleProgress": "false", "log.level": "ERROR"}
        local["master"] = f"local[{n},{TRIES}]"  # failed tasks are tried again, as on a cluster
        builder = builder.config(map={f"spark.{name}": value for name, value in local.items()})
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # instead of the first python in PATH
    return builder.appName("crowdshot").getOrCreate()


def _call_each(tables: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
    """Run calls on an executor. A CrowdshotError is returned; other exceptions make Spark try the task again."""
    for table in tables:
        for position, pickled in zip(table["position"], table["call"], strict=True):
            function, task, arguments_file, key = pickle.loads(pickled)  # from Spark's own connection
            error = None
            try:
                call(function, task, arguments_file, arguments_file.with_suffix(f".{position}"), key)
            except CrowdshotError as raised:
                error = json.dumps(as_facts(raised))
            yield pd.DataFrame({"position": [position], "error": [error]})
