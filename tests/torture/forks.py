"""Run a command in a child process in which failures are simulated."""

from __future__ import annotations

import builtins
import ctypes
import errno
import io
import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crowdshot._cli.main import app
from crowdshot.io import atomic

IN_MEMORY = "/dev/shm" if os.path.isdir("/dev/shm") else None  # where damaged files are written
Way = Callable[[], None]
STEPS = ("rename", "replace", "link", "symlink", "mkdir", "unlink", "rmdir")


def run(line: str, before: Way = lambda: None) -> int:
    """Run a command; return its exit code, or -signal."""
    return start(line, before)()


def start(line: str, before: Way = lambda: None) -> Callable[[], int]:
    """Start a command; return a function that waits for its end."""
    child = os.fork()
    if child == 0:
        code = 99
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, 1)
            os.dup2(null, 2)
            before()
            app(line.split())
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        finally:
            os._exit(code)
    return lambda: os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def sabotage(step: int, act: Way) -> Way:
    """Fail at the ``step``-th file operation and, if the disk is full, at all later ones."""
    left = step

    def counted(do: Callable[..., Any], changes: Callable[..., bool]) -> Callable[..., Any]:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            nonlocal left
            if changes(*args, **kwargs):
                left -= 1
                if left < 0:
                    act()
            return do(*args, **kwargs)

        return wrapped

    def writes(file: Any, mode: str = "r", *_: Any, **__: Any) -> bool:
        return not isinstance(file, int) and any(letter in mode for letter in "wax+") and "/dev/" not in str(file)

    def install() -> None:
        for name in STEPS:
            frees = act is full and name in ("unlink", "rmdir")  # which work on a full disk
            setattr(os, name, counted(getattr(os, name), lambda *_, frees=frees, **__: not frees))
        atomic._exchange = counted(atomic._exchange, lambda *_: True)  # type: ignore[assignment]
        builtins.open = io.open = counted(io.open, writes)  # type: ignore[assignment]

    return install


def kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def full() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def random_moment(seconds: float) -> Way:
    """Let the system end the process, as a kill does, without running any Python code."""
    return lambda: signal.setitimer(signal.ITIMER_REAL, max(1e-4, seconds)) and None


def small_files(size: int) -> Way:
    def install() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))

    return install


def obey_modes() -> None:
    """Drop the capabilities by which root ignores file permissions."""
    header, data = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.capget(header, data) == 0:
        for word in (0, 1, 2):  # effective, permitted, inheritable
            data[word] &= ~0b1110  # DAC_OVERRIDE, DAC_READ_SEARCH, FOWNER
        libc.capset(header, data)


@contextmanager
def of_size(folder: Path, free: int) -> Iterator[Way]:
    """Mount a copy of the folder with so many kB left; yield a function that enlarges it. Only root can do this."""
    used = sum(-(-path.stat().st_size // 4096) * 4 + 4 for path in folder.rglob("*"))
    held = [(path.relative_to(folder), path) for path in folder.iterdir()]
    aside = folder.with_name("aside")
    aside.mkdir()
    for name, path in held:
        path.rename(aside / name)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={used + free + 4}k", "tmpfs", folder], check=True)
    try:
        for name, _ in held:
            subprocess.run(["cp", "-a", aside / name, folder], check=True)
        yield lambda: subprocess.run(["mount", "-o", "remount,size=1g", folder], check=True) and None
    finally:
        subprocess.run(["umount", folder], check=True)
        for name, path in held:
            (aside / name).rename(path)
        aside.rmdir()
