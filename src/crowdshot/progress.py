"""Report the progress of long work on stderr. Work that takes less than two seconds prints nothing.

>>> with progress("embedding") as tick:
...     for done in range(5000):
...         tick(done + 1, 5000)

If stderr is a terminal and rich is installed, the progress is a bar. Otherwise it is a line such as "embedding
1200/5000, about 3 min left" every few seconds, so that logs stay readable.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

PATIENCE = 2.0  # seconds before anything is shown
EVERY = 5.0  # seconds between two lines
LEAST_LEFT = 10.0  # seconds; a shorter remaining time is not shown

Tick = Callable[[int, int], None]
"""A function of (done, total). Calls are cheap, so call it as often as is convenient."""


class _Display(Protocol):
    def update(self, done: int, total: int) -> None: ...

    def close(self) -> None: ...


@contextmanager
def progress(what: str, stream: TextIO | None = None) -> Iterator[Tick]:
    """Show the progress of a block. A block without ticks is named once, so that it does not seem to hang."""
    target = sys.stderr if stream is None else stream
    lock = threading.Lock()
    began = time.monotonic()
    state: tuple[int, int] = (0, 0)
    display: _Display | None = None

    def show() -> None:
        nonlocal display
        if display is None:
            display = _display(what, target, began)
        display.update(*state)

    def tick(done: int, total: int) -> None:
        nonlocal state
        state = (done, total)
        if time.monotonic() - began >= PATIENCE:
            with lock:
                show()

    def wait() -> None:
        if not over.wait(PATIENCE):
            with lock:
                if not over.is_set():
                    show()

    over = threading.Event()
    watch = threading.Thread(target=wait, daemon=True)
    watch.start()
    try:
        yield tick
    finally:
        over.set()
        watch.join()
        if display is not None:
            display.close()


def _display(what: str, stream: TextIO, began: float) -> _Display:
    return open_bar(stream, what) or _Lines(what, stream, began)


def open_bar(stream: TextIO, what: str, with_text: bool = False) -> Bar | None:
    """Return a bar if the stream is a terminal and rich is installed."""
    if stream.isatty():
        try:
            return Bar(stream, what, with_text)
        except ImportError:  # rich is optional
            pass
    return None


class _Lines:
    def __init__(self, what: str, stream: TextIO, began: float) -> None:
        self.what, self.stream, self.began, self.next = what, stream, began, 0.0

    def update(self, done: int, total: int) -> None:
        now = time.monotonic()
        if now >= self.next or 0 < total == done:
            self.next = now + EVERY
            left = (now - self.began) * (total - done) / done if done else 0.0
            remaining = f", about {_spoken(left)} left" if left >= LEAST_LEFT else ""
            print(f"{self.what} {done}/{total}{remaining}" if total else f"{self.what} …", file=self.stream, flush=True)

    def close(self) -> None:
        pass


def _spoken(seconds: float) -> str:
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s"


class Bar:
    """A bar of rich. With ``with_text``, it shows a text in place of the remaining time, and stays when closed."""

    def __init__(self, stream: TextIO, what: str, with_text: bool = False) -> None:
        from rich import progress as bars  # an optional dependency
        from rich.console import Console

        name, number = bars.TextColumn("{task.description}"), bars.MofNCompleteColumn()
        columns: list[Any] = [name, bars.BarColumn(), number, bars.TimeRemainingColumn()]
        if with_text:
            columns = [bars.BarColumn(10), number, name]  # a short bar leaves room for the text in 80 columns
        self.bars = bars.Progress(*columns, console=Console(file=stream), transient=not with_text)
        self.bars.start()
        self.row = self.bars.add_task(what, total=None)

    def update(self, done: int, total: int, text: str | None = None) -> None:
        self.bars.update(self.row, completed=done, total=total or None, description=text)

    def close(self) -> None:
        self.bars.stop()
