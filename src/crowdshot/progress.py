"""Report the stages of long work on stderr. A stage of less than a second prints nothing.

>>> with progress("embedding") as tick:
...     for done in range(5000):
...         tick(done + 1, 5000)

On a terminal, one line is rewritten in place and disappears with the stage: "embedding 1200/5000, about 3 min left".
Elsewhere, the line is printed when the stage has lasted a second, and again at growing intervals, so that logs stay
short. A stage that nothing counts shows how long it has taken: "fitting, 12 s". If the total is not known (0), the
count is shown alone: "aggregating, step 3, 12 s". Only the innermost stage is shown.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO, TypeVar

PATIENCE = 1.0  # seconds before a stage is shown
REFRESH = 0.2  # seconds between two states of a line on a terminal
EVERY, MOST = 5.0, 60.0  # seconds between the first two printed lines; the interval doubles up to the second number

Tick = Callable[[int, int], None]
"""A function of (done, total). Calls are cheap, so call it as often as is convenient."""
T = TypeVar("T")

_stages: list[Stage] = []  # those that run, the innermost last
_stream_lock = threading.RLock()
_current: ContextVar[Tick | None] = ContextVar("_current", default=None)


@contextmanager
def progress(what: str, stream: TextIO | None = None) -> Iterator[Tick]:
    """Show the progress of a block: a stage with a name and, if it calls ``tick``, with counts."""
    stage = Stage(what, sys.stderr if stream is None else stream)
    outer = _current.get()
    _current.set(stage.tick)
    watch = threading.Thread(target=stage.watch, daemon=True)
    with line_hidden():
        _stages.append(stage)
    watch.start()
    try:
        yield stage.tick
    finally:
        _current.set(outer)
        stage.over.set()
        watch.join()
        with _stream_lock:
            _stages.remove(stage)
            stage.line.erase()


def counted(steps: Sequence[T]) -> Iterator[T]:
    """Yield the steps of a loop, and count them in the stage around it if there is one."""
    tick = _current.get()
    for done, step in enumerate(steps):
        if tick is not None:
            tick(done, len(steps))
        yield step


@contextmanager
def line_hidden() -> Iterator[None]:
    """Keep the line of a stage off the terminal while a block prints something else."""
    with _stream_lock:
        for stage in _stages:
            stage.line.erase()
        yield


class Stage:
    """A stage of the work, shown by a thread of its own, so that it is shown even if nothing counts."""

    def __init__(self, what: str, stream: TextIO) -> None:
        self.what, self.stream, self.line = what, stream, Line(stream)
        self.began = self.counted_at = time.monotonic()
        self.done, self.total = 0, 0
        self.over = threading.Event()

    def tick(self, done: int, total: int) -> None:
        self.done, self.total, self.counted_at = done, total, time.monotonic()

    def watch(self) -> None:
        """Show the stage until it is over."""
        wait, interval = PATIENCE, EVERY
        while not self.over.wait(wait):
            with _stream_lock:
                if _stages[-1] is self and self.stream.isatty():
                    self.line.rewrite(self.text())
                elif _stages[-1] is self:
                    print(self.text(), file=self.stream, flush=True)
            wait = REFRESH if self.stream.isatty() else interval
            interval = min(2 * interval, MOST)

    def text(self) -> str:
        """Return the counts and the remaining time, or how long the stage has taken."""
        now = time.monotonic()
        counts = f" {self.done}/{self.total}" if self.total else f" {self.done}" if self.done else ""
        if not 0 < self.done < self.total:
            return f"{self.what}{counts}, {_spoken(now - self.began)}"
        each = (self.counted_at - self.began) / self.done
        left = each * (self.total - self.done) - (now - self.counted_at)
        return f"{self.what}{counts}, about {_spoken(max(left, 1.0))} left"


class Line:
    """A line of a terminal that is rewritten in place; without control sequences, which not every terminal knows."""

    def __init__(self, stream: TextIO) -> None:
        self.stream, self.width = stream, 0

    def rewrite(self, text: str) -> None:
        text = text[: shutil.get_terminal_size().columns - 1]
        self.stream.write(f"\r{text.ljust(self.width)}")
        self.stream.flush()
        self.width = len(text)

    def erase(self) -> None:
        if self.width:
            self.stream.write(f"\r{' ' * self.width}\r")
            self.stream.flush()
            self.width = 0


def _spoken(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"
