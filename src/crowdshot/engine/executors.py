"""A Spark cluster as workers: a step is a job of `mapInPandas`, with a row for each task.

What tasks are given and give back lies in the folder of results, which all machines must see; rows only say where.
"""

from __future__ import annotations

import os
import pickle
import secrets
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from crowdshot.engine import mapped
from crowdshot.engine.workers import TRIES, call
from crowdshot.errors import CrowdshotError


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
        mapped.write(asked, given)
        calls = [(place, pickle.dumps((function, task, asked))) for place, task in enumerate(tasks)]
        if calls:
            rows = self.spark.sparkContext.parallelize(calls, len(calls)).toDF("place long, call binary")
            for place, failed in rows.mapInPandas(_done, "place long, failed binary").collect():
                if failed is not None:
                    raise pickle.loads(failed)
                answer = asked.with_suffix(f".{place}")
                yield place, mapped.read(answer)
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
