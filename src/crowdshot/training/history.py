"""What a person sees of a training run, and what is kept of it: a bar or lines on stderr, and history.csv."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any, TextIO

import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.files.whole import write_file
from crowdshot.progress import open_bar
from crowdshot.training.trainer import Progress

COLUMNS = ["iteration", "loss", "accuracy", "best", "seconds"]
EVERY = 30.0  # seconds between two lines, where no validation comes sooner
REFRESH = 0.1  # seconds between two looks of the bar


class TrainingLog:
    """The log of a run, of its first model where there are several.

    ``resumed`` keeps what an earlier part of the run has written to ``history``.
    """

    history: Path
    stream: TextIO
    rows: list[dict[str, Any]]
    began: float
    said: float

    def __init__(self, history: Path, resumed: bool = False, stream: TextIO | None = None) -> None:
        self.history, self.stream = history, sys.stderr if stream is None else stream
        self.rows = _read(history) if resumed else []
        self.before: float | None = None  # seconds that earlier parts of the run have taken
        self.began = self.said = time.monotonic()
        self.first: int | None = None
        self.last: Progress | None = None
        self.bar = open_bar(self.stream, "", telling=True)

    def tick(self, done: int, total: int) -> None:
        """After every step."""
        if self.first is None:
            self.first, self.began = done - 1, time.monotonic()
            self.rows = [row for row in self.rows if row["iteration"] < done]
            self.before = self.rows[-1]["seconds"] if self.rows else 0.0
            if self.first:
                print(f"going on from iteration {self.first:,} of {total:,}", file=self.stream, flush=True)
        if self.bar is None:
            if time.monotonic() - self.said >= EVERY:
                self._say(done, total, "")
        elif done == total or time.monotonic() - self.said >= REFRESH:
            self.said = time.monotonic()
            self.bar.update(done, total, f"{_short(self.last)}{self._pace(done, total)}")

    def report(self, progress: Progress) -> None:
        """After every validation."""
        for model, step in enumerate(progress.diverged):
            if step is not None and (self.last is None or self.last.diverged[model] is None):
                sentence = f"model {model}: its loss is not finite since iteration {step:,}; the others go on"
                print(sentence, file=self.stream, flush=True)
        self.last = progress
        assert self.before is not None
        values = (
            progress.iteration,
            progress.loss[0],
            progress.accuracy[0],
            progress.best[0],
            round(self.before + time.monotonic() - self.began, 2),
        )
        self.rows.append(dict(zip(COLUMNS, values, strict=True)))
        write_file(self.history, pd.DataFrame(self.rows, columns=COLUMNS))
        if self.bar is None:
            self._say(progress.iteration, progress.iterations, f", {_scores(progress)}")

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()

    def _pace(self, done: int, total: int) -> str:
        rate = (done - (self.first or 0)) / max(time.monotonic() - self.began, 1e-9)
        return f"{rate:.3g} iterations/s, {_duration((total - done) / rate)} left"

    def _say(self, done: int, total: int, scores: str) -> None:
        self.said = time.monotonic()
        print(f"iteration {done:,}/{total:,}{scores}, {self._pace(done, total)}", file=self.stream, flush=True)


def _short(last: Progress | None) -> str:
    """For a bar, which has 80 columns in all."""
    return f"loss {last.loss[0]:.4f}, accuracy {last.accuracy[0]:.4f}, " if last else ""


def _scores(progress: Progress) -> str:
    best = f" (best {progress.best[0]:.4f})" if progress.best[0] >= 0 else ""
    return f"loss {progress.loss[0]:.4f}, validation accuracy {progress.accuracy[0]:.4f}{best}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _read(history: Path) -> list[dict[str, Any]]:
    """The rows of an earlier part of the run; a file that is none of ours is an error rather than overwritten."""
    if not history.exists():
        return []
    try:
        rows = pd.read_csv(history)
        if list(rows.columns) == COLUMNS:
            return [{str(k): v for k, v in row.items()} for row in rows.to_dict("records")]
    except (OSError, ValueError):
        pass
    raise CrowdshotError(f"{history} is not the history of a training run, expected one or none; move it away.")
