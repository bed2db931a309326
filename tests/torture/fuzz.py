"""Run readers on damaged files: they must raise nothing but CrowdshotError, within limits of time and memory.

    python -m torture.fuzz --inputs 100000 --seconds 3600 --only gold --keep crashers/

Mutations that execute lines of crowdshot that no earlier input executed (found by ``sys.settrace`` for some of the
inputs) are kept and mutated further, so that damage gets past the first checks. The limit of time is processor time,
which does not depend on other programs; the files are in memory where the system has a place for that.
"""

from __future__ import annotations

import argparse
import random
import re
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple
from unittest.mock import patch

from crowdshot.errors import CrowdshotError
from sheets import ThisProcess
from torture.forks import IN_MEMORY
from torture.mutations import suited
from torture.readers import Reader, readers

SECONDS = 10  # of processor time for one input
HANGS = 120  # seconds of real time for one input
MOST_MEMORY = 1024  # MB that one input may take
RAN_OUT = re.compile("MemoryError|can't allocate|bad_alloc")  # in a message; NumPy reserves memory without using it
TRACED = 20  # one of so many inputs is traced line by line
ROUND = 5000  # inputs between two lines of progress
MOST_KEPT = 300  # inputs of a reader that led to new lines
LONGEST = 5000  # characters of an error message
SOURCE = str(Path(sys.modules[CrowdshotError.__module__].__file__ or "").parent)


class Crash(NamedTuple):
    """A crash, identified by ``told``: the kind of the exception and the line of crowdshot that raised it."""

    reader: str
    file: str
    told: str
    data: bytes


class Outcome(NamedTuple):
    inputs: int
    read: int
    refused: int
    crashes: list[Crash]


class TooSlow(BaseException):
    pass


@contextmanager
def _in_time() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise TooSlow

    before = [(timer, signal.signal(timer, ring)) for timer in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(HANGS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for timer, handler in before:
            signal.signal(timer, handler)


def peak() -> int:
    """Return the largest memory that this process has taken, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def _address_space() -> int:
    """Return the address space of this process, in bytes; the libraries take gigabytes of it."""
    status = Path("/proc/self/status")
    found = re.search(r"VmSize:\s+(\d+)", status.read_text()) if status.exists() else None
    return int(found[1]) * 1024 if found else 3 * 2**30


def attempt(reader: Reader, path: Path) -> tuple[bool, str]:
    """Return whether the file was read, and what went wrong, else ""."""
    before = peak()
    read, told = _attempt(reader, path)
    return read, told or (f"memory: {peak() - before} MB" if peak() - before > MOST_MEMORY else "")


def _attempt(reader: Reader, path: Path) -> tuple[bool, str]:
    try:
        with _in_time(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(path)
    except CrowdshotError as error:
        sentence = str(error)
        if RAN_OUT.search(sentence):
            return False, f"memory ran out: {sentence[:200]}"
        fault = "\n" in sentence or len(sentence) > LONGEST
        return False, f"a sentence of {len(sentence)} characters, or several lines" if fault else ""
    except (Exception, TooSlow) as error:
        own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(SOURCE)]
        where = f"{Path(own[-1].filename).name}:{own[-1].name}" if own else "elsewhere"
        return False, f"{type(error).__name__} in {where}: {str(error)[:80]}"
    return True, ""


def fuzz(reader: Reader, inputs: int, seed: int, seconds: float = float("inf"), most_crashes: int = 10**9) -> Outcome:
    rng = random.Random(f"{seed} {reader.name}")
    known = list(reader.files.items())
    lines: set[tuple[str, int]] = set()
    read = refused = done = 0
    crashes: dict[str, Crash] = {}
    stop = time.monotonic() + seconds
    # no other process reads the file: a new one for each takes longer, and its lines are not seen
    with (
        patch("tempfile.tempdir", IN_MEMORY),
        tempfile.TemporaryDirectory() as folder,
        patch("crowdshot.io.workbooks.LimitedProcess", ThisProcess),
        patch("crowdshot.io.parquet_files.LimitedProcess", ThisProcess),
        patch("crowdshot.labels.labels_needed.DRAWS", 1),  # a forecast takes longer than reading the file
    ):
        for name, data in {**reader.files, **reader.beside}.items():
            (Path(folder) / name).write_bytes(data)
        for name in reader.files:
            sound, told = attempt(reader, Path(folder) / name)
            assert sound, f"{reader.name}: {name} is not read even when it is sound: {told}"
        while done < inputs and time.monotonic() < stop and len(crashes) < most_crashes:
            name, data = known[rng.randrange(len(known))]
            try:
                changed = rng.choice(suited(name))(data, rng)
            except Exception:  # a kept input may be too damaged for mutations of its format
                continue
            path = Path(folder) / name
            path.write_bytes(changed)
            new: set[tuple[str, int]] = set()
            with _traced(new if done % TRACED == 0 else None):
                sound, told = attempt(reader, path)
            if new - lines and not told and len(known) < MOST_KEPT and len(changed) < 10 * len(data):
                known.append((name, changed))
            lines |= new
            done, read, refused = done + 1, read + sound, refused + (not sound and not told)
            if told:
                kind = told.partition(": ")[0]
                crashes.setdefault(kind, Crash(reader.name, name, told, changed))
            path.write_bytes(reader.files[name])
            if done % ROUND == 0:
                print(f"    {done:,} inputs, {read:,} read, {refused:,} refused, {len(crashes)} crashes", flush=True)
    return Outcome(done, read, refused, list(crashes.values()))


@contextmanager
def _traced(lines: set[tuple[str, int]] | None) -> Iterator[None]:
    def each_line(frame: FrameType, event: str, argument: object) -> Any:
        if not frame.f_code.co_filename.startswith(SOURCE):
            return None
        assert lines is not None
        lines.add((frame.f_code.co_filename, frame.f_lineno))
        return each_line

    if lines is not None:
        sys.settrace(each_line)
    try:
        yield
    finally:
        if lines is not None:
            sys.settrace(None)


def main() -> int:
    parser = argparse.ArgumentParser(description="Damaged files against every reader of crowdshot.")
    parser.add_argument("--inputs", type=int, default=100_000, help="of each reader")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="for each reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="readers whose name has this in it")
    parser.add_argument("--keep", type=Path, help="a folder for inputs that led to something else than a sentence")
    parser.add_argument("--memory", type=float, default=1.5, help="GiB of address space besides that of the libraries")
    given = parser.parse_args()
    chosen = [reader for reader in readers() if given.only in reader.name]  # which loads the libraries
    limit = _address_space() + int(given.memory * 2**30)
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    total: Counter[str] = Counter()
    print(f"{'reader':<16} {'inputs':>9} {'read':>9} {'refused':>9} {'crashes':>9}  peak MB")
    for reader in chosen:
        found = fuzz(reader, given.inputs, given.seed, given.seconds)
        print(
            f"{reader.name:<16} {found.inputs:>9,} {found.read:>9,} {found.refused:>9,} {len(found.crashes):>9,}"
            f"  {peak():>7,}",
            flush=True,
        )
        for number, crash in enumerate(found.crashes):
            print(f"    {crash.file}: {crash.told}")
            if given.keep:
                given.keep.mkdir(parents=True, exist_ok=True)
                (given.keep / f"{reader.name.replace(' ', '-')}-{number}-{crash.file}").write_bytes(crash.data)
        total.update(inputs=found.inputs, crashes=len(found.crashes))
    print(f"{total['inputs']:,} inputs, {total['crashes']:,} crashes")
    return min(1, total["crashes"])


if __name__ == "__main__":
    sys.exit(main())
