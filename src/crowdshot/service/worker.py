"""The process that fits: it sleeps until it is told that there are new labels, and sends back a version, whole."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from crowdshot.errors import CrowdshotError
from crowdshot.service import showing
from crowdshot.service.fitting import Found, Sources, fit
from crowdshot.service.journal import Journal
from crowdshot.service.version import Version, expected_answers

Open = Callable[[], Sources]


@dataclass(frozen=True)
class Failed:
    """``expected``: the user can cause it; anything else is a bug."""

    sentence: str
    expected: bool


class Worker:
    """Of a folder with a journal. ``open_sources`` is called once, in the process, which starts when first asked."""

    def __init__(self, open_sources: Open, data: Path) -> None:
        self._open, self._data = open_sources, data
        self._process: Any = None
        self._pipe: Connection | None = None

    def fit(self) -> Version | None:
        """All labels of the journal -> a version; blocks until it is there. A process that died starts again once."""
        for last_try in (False, True):
            try:
                if self._pipe is None:
                    self._start()
                assert self._pipe is not None
                self._pipe.send("fit")
                answer = self._pipe.recv()
            except (EOFError, OSError):
                self.close()
                if last_try:
                    raise RuntimeError("the process that fits has died") from None
                continue
            if isinstance(answer, Failed):
                raise CrowdshotError(answer.sentence) if answer.expected else RuntimeError(answer.sentence)
            return answer  # type: ignore[no-any-return]
        return None

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=work, args=(theirs, self._open, self._data), daemon=True)
        self._process.start()
        theirs.close()

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.terminate()
            self._process.join()
        self._pipe = self._process = None


def work(pipe: Connection, open_sources: Open, data: Path) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when it is over
    if hasattr(os, "nice"):
        os.nice(10)  # whoever asks is answered first
    sources: Sources | None = None
    journal: Journal | None = None
    while True:
        try:
            pipe.recv()
        except (EOFError, OSError):
            return
        try:
            journal = journal or Journal(data)
            sources = sources or open_sources()
            answer: Any = make_version(sources, journal, data)
        except CrowdshotError as error:
            answer = Failed(str(error), expected=True)
        except Exception as error:
            answer = Failed(f"{type(error).__name__}: {error}", expected=False)
        pipe.send(answer)


def make_version(sources: Sources, journal: Journal, data: Path) -> Version | None:
    started = time.perf_counter()
    later = journal.state()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of labels that newer ones replace, say, which is what they are for
        found = fit(sources, later)
    if found is None:
        return None
    ann, belief = found.annotations, found.belief
    confusion = expected_answers(ann, belief, found.read.history)
    seconds = time.perf_counter() - started
    read = found.read
    args = (
        later.row,
        ann,
        belief,
        confusion,
        found.seen,
        read.several,
        read.history,
        found.aliases,
        seconds,
        found.files,
        read.people,
    )
    draft = Version(0, *args)
    point = journal.note_version(ann.n_labels, draft.n_labelled, draft.n_settled)
    version = Version(point.number, *args)
    lately: Counter[str] = Counter()
    for who, number in journal.lately(showing.LATELY).items():
        lately[version.names.get(who, who)] += number
    page = showing.render(version, journal.history(), lately)
    version = replace(version, page=page)
    _ = version.consensus, version.annotators, version.place, version.person  # made here, so that no request waits
    _save_model(found, data, version.number)
    return version


def _save_model(found: Found, data: Path, number: int) -> None:
    """The newest alone is kept, and the one before, which somebody may be reading."""
    if found.clf is None:
        return
    found.clf.save(model_file(data, number))
    for old in data.glob("model-*.safetensors"):
        told = old.stem.removeprefix("model-")
        if told.isdigit() and int(told) < number - 1:
            os.unlink(old)


def model_file(data: Path, number: int) -> Path:
    return data / f"model-{number}.safetensors"
