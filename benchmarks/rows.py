"""Keep measured rows in a file, so that a stopped run continues and single methods can be measured again."""

import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pandas as pd

from crowdshot.io.atomic import replacing

Row = dict[str, Any]
Found = TypeVar("Found")


class Rows:
    """A table in a Parquet file; rows with the same ``keys`` are measurements of the same thing."""

    def __init__(self, path: Path, keys: tuple[str, ...]) -> None:
        self.path, self.keys = path, keys
        self.table = pd.read_parquet(path) if path.exists() else pd.DataFrame()

    def measured(self, *keys: str) -> set[tuple[Any, ...]]:
        """Return a tuple of these columns for each row."""
        return set() if self.table.empty else set(self.table[list(keys)].itertuples(index=False, name=None))

    def put(self, rows: list[Row]) -> None:
        """Replace rows with the same keys and save the file."""
        if not rows:
            return
        both = pd.concat([self.table, pd.DataFrame(rows)], ignore_index=True)
        self.table = both.drop_duplicates(list(self.keys), keep="last").sort_values(list(self.keys), ignore_index=True)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(self.path) as path:
            self.table.to_parquet(path, index=False)


def is_named(method: str, only: set[str]) -> bool:
    """Return whether a method or a variant of it is named: "ours" includes "ours, labels alone"."""
    return method in only or method.split(",")[0] in only


# ---- measuring ----


@contextmanager
def time_limit(seconds: int) -> Iterator[None]:
    """Limit the processor time, which does not depend on other programs."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"over {seconds} s")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def attempt(run: Callable[[], Found], seconds: int) -> tuple[Found | None, Row]:
    """Return the result, or None and the reason, and the processor time in seconds."""
    start = time.process_time()
    found, failed = None, ""
    try:
        with time_limit(seconds):
            found = run()
    except Exception as error:  # any exception is recorded in the row
        failed = f"{type(error).__name__}: {error}".split("\n")[0][:120]
    return found, {"seconds": time.process_time() - start, "failed": failed}


def commit() -> str:
    """Return the current commit, with + if files differ from it."""
    said = subprocess.run(["git", "describe", "--always", "--dirty=+", "--exclude=*"], capture_output=True, text=True)
    return said.stdout.strip() or "unknown"


def command() -> str:
    return shlex.join(["python", *(word for word in sys.argv if word != "--tables")])


# ---- showing ----


def markdown(table: pd.DataFrame, digits: int = 3) -> str:
    """Return a Markdown table; pandas would need tabulate."""

    def cell(value: Any) -> str:
        if isinstance(value, float):
            return "–" if pd.isna(value) else f"{value:.{digits}f}"
        return str(value)

    lines = [list(map(str, table.columns)), ["---"] * table.shape[1]]
    lines += [[cell(value) for value in row] for row in table.itertuples(index=False)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
