"""Run a function of this package in a process with limits of time and memory.

Parsers and networks of other libraries may compute without end, take all memory or end their process, if a file is made
for it. Requests and answers are JSON with arrays; nothing is unpickled.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first_line

Facts = Mapping[str, Any]
Arrays = Sequence[NDArray[Any]]

HEAD = struct.Struct("<Q")
LONGEST = 2**32  # bytes of the JSON of a message
POLL = 0.5  # seconds between looks for the parent process
START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]);"
    "from crowdshot.io.limited_process import serve; serve(*sys.argv[2:])"
)


class LimitedProcess:
    """A process that answers requests with ``function``, given as "module:name" in this package.

    The function is called with the facts and arrays of a request and returns facts and arrays. A CrowdshotError that it
    raises is raised here. Requests must be made by one thread at a time.

    Parameters
    ----------
    function : str
    where : str
        The file, which messages name.
    memory : int
        Bytes of address space beyond those of Python and NumPy; 0: not limited.
    cpu_seconds : int
        Computing time of all requests together, which other processes do not shorten; 0: not limited. It is not limited
        on Windows; memory is limited on Linux alone.
    """

    def __init__(self, function: str, where: str, memory: int = 0, cpu_seconds: int = 0) -> None:
        self.where, self.cpu_seconds = where, cpu_seconds
        line = [sys.executable, "-c", START, json.dumps(sys.path), function, str(memory), str(cpu_seconds)]
        self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)

    def ask(self, seconds: float, facts: Facts, arrays: Arrays = ()) -> tuple[dict[str, Any], list[NDArray[Any]]]:
        """Return the answer to one request; the process is killed after ``seconds``."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        late = threading.Timer(seconds, self.process.kill)
        late.daemon = True
        started = time.monotonic()
        late.start()
        try:
            send(self.process.stdin, facts, arrays)
            answer, found = receive(self.process.stdout)
        except (OSError, EOFError, ValueError, TypeError, KeyError, MemoryError):
            self.close()
            raise self._ended(seconds, time.monotonic() - started >= seconds) from None
        except BaseException:  # Ctrl-C
            self.close()
            raise
        finally:
            late.cancel()
        if "failure" in answer:
            raise CrowdshotError(f"cannot be used ({answer['failure']})", where=self.where)
        if "error" in answer:
            raise CrowdshotError(**answer["error"])
        return answer, found

    def close(self) -> None:
        self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            with contextlib.suppress(OSError):  # what was not sent is lost
                assert stream is not None
                stream.close()
        self.process.wait()

    def __enter__(self) -> LimitedProcess:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _ended(self, seconds: float, was_late: bool) -> CrowdshotError:
        limit = seconds if was_late else self.cpu_seconds
        if was_late or self.process.returncode == -getattr(signal, "SIGXCPU", 0):
            return CrowdshotError(f"was not processed within {limit:,.0f} seconds", where=self.where, found=limit)
        return CrowdshotError(
            f"ended the process that used it (exit status {self.process.returncode})",
            where=self.where,
            found=self.process.returncode,
            hint="It may be damaged, or memory ran out",
        )


def send(stream: IO[bytes], facts: Facts, arrays: Arrays = ()) -> None:
    kept = [np.asarray(array, order="C") for array in arrays]
    head = {"facts": facts, "arrays": [(array.dtype.str, array.shape) for array in kept]}
    text = json.dumps(head).encode()
    stream.write(HEAD.pack(len(text)) + text)
    for array in kept:
        stream.write(array.reshape(-1).view(np.uint8).data)
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], list[NDArray[Any]]]:
    """Read a message; raise EOFError if it is cut, and ValueError, TypeError or KeyError if it is none."""
    (length,) = HEAD.unpack(_exactly(stream, HEAD.size))
    if length > LONGEST:
        raise ValueError
    head = json.loads(_exactly(stream, length))
    arrays = []
    for name, shape in head["arrays"]:
        kind = np.dtype(name)
        if kind.kind not in "biuf":
            raise ValueError
        values = np.empty(shape, kind)
        view = values.reshape(-1).view(np.uint8).data
        while len(view):
            n = stream.readinto(view)  # type: ignore[attr-defined]
            if not n:
                raise EOFError
            view = view[n:]
        arrays.append(values)
    return head["facts"], arrays


def _exactly(stream: IO[bytes], n: int) -> bytes:
    found = stream.read(n)
    if len(found) != n:
        raise EOFError
    return found


# ---- in the process ----


def serve(function: str, memory: str, cpu_seconds: str) -> None:
    """Answer requests from standard input until it is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent process ends this one
    threading.Thread(target=_end_with_parent, args=(os.getppid(),), daemon=True).start()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource  # absent on Windows

        if int(cpu_seconds):
            resource.setrlimit(resource.RLIMIT_CPU, (int(cpu_seconds), resource.getrlimit(resource.RLIMIT_CPU)[1]))
        if int(memory):
            pages = int(Path("/proc/self/statm").read_text().split()[0])  # more on machines with many cores
            most = pages * resource.getpagesize() + int(memory)
            resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
    module, name = function.split(":")
    answer_to = getattr(import_module(f"crowdshot.{module}"), name)
    with contextlib.suppress(EOFError):
        while True:
            send(answers, *_answered(answer_to, *receive(sys.stdin.buffer), int(memory)))


def _answered(answer_to: Any, facts: dict[str, Any], arrays: Arrays, memory: int) -> tuple[Facts, Arrays]:
    try:
        answer, found = answer_to(facts, arrays)
        return answer, [np.asarray(array) for array in found]
    except CrowdshotError as error:
        return {"error": as_facts(error)}, ()
    except MemoryError:
        return {"failure": f"it takes more than {memory / 2**30:,.1f} GB of memory"}, ()
    except Exception as error:  # of another library, about a file that may be damaged
        return {"failure": f"{type(error).__name__}: {first_line(error)}"}, ()


def as_facts(error: CrowdshotError) -> dict[str, Any]:
    """Return the fields of an error as JSON, which `CrowdshotError` takes as its arguments."""
    found = error.found if isinstance(error.found, int | float | str | None) else str(error.found)
    fields = {name: getattr(error, name) for name in ("message", "argument", "expected", "where", "among")}
    return {**fields, "found": found, "hint": None if error.hint is None else str(error.hint)}


def _end_with_parent(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(POLL)
    os._exit(1)
