"""What is on its way to its place has a name that tells who writes it, so that what dead processes left can go.

And processes that were started for one that died end with it.
"""

from __future__ import annotations

import multiprocessing
import os
import platform
import re
import secrets
import shutil
import threading
from contextlib import suppress
from hashlib import blake2s
from pathlib import Path

HERE = blake2s(platform.node().encode(), digest_size=4).hexdigest()  # of processes elsewhere nothing is known
UNFINISHED, SET_ASIDE = "tmp", "old"  # endings: what is being written; the old folder until the new one is in its place


def passing_name(target: Path, ending: str = UNFINISHED) -> Path:
    """A hidden name beside the target that nobody else takes."""
    return target.with_name(f".{target.name}.{HERE}-{os.getpid()}-{secrets.token_hex(4)}.{ending}")


def mend(target: Path) -> None:
    """Take away what dead processes left beside the target; if one died between two renames, put the old back."""
    form = re.compile(rf"\.{re.escape(target.name)}\.{HERE}-(\d+)-[0-9a-f]{{8}}\.({UNFINISHED}|{SET_ASIDE})")
    with suppress(OSError):  # it is no harm where it stays
        for name in os.listdir(target.parent):
            found = form.fullmatch(name)
            if found is None or _is_alive(int(found[1])):
                continue
            rest = target.with_name(name)
            if found[2] == SET_ASIDE and not target.exists():
                rest.rename(target)
            elif rest.is_dir():
                shutil.rmtree(rest, ignore_errors=True)
            else:
                rest.unlink(missing_ok=True)


def sweep(folder: Path) -> None:
    """`mend` all that dead processes left in a folder, whatever it was to be."""
    form = re.compile(rf"\.(.+)\.{HERE}-\d+-[0-9a-f]{{8}}\.({UNFINISHED}|{SET_ASIDE})")
    with suppress(OSError):
        for found in filter(None, map(form.fullmatch, os.listdir(folder))):
            mend(folder / found[1])


def _is_alive(process: int) -> bool:
    if os.name != "posix":  # where the signal 0 is none that only asks
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def end_with_parent() -> None:
    """In a process that waits for work: end when who gives it is killed, and not wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
