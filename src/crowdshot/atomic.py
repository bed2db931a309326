"""Files that are complete or not there at all."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crowdshot.errors import CrowdshotError

OPEN_FILES = ("/dev/std", "/dev/fd/", "/proc/")  # names of what the process has open, be it a file


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """A name to write to, which becomes ``out`` when the block is done; of a failure nothing stays.

    What ``out`` links to is replaced, and keeps its permissions; a pipe or a device is written to as it is.
    """
    try:
        target = out.resolve() if out.is_symlink() else out
    except RuntimeError as error:  # links in a circle
        raise CrowdshotError(f"{out} could not be written ({error}).") from None
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        if (out.exists() and not out.is_file()) or str(out.absolute()).startswith(OPEN_FILES):
            yield out
            return
        yield temporary
        if target.exists():
            shutil.copymode(target, temporary)
        os.replace(temporary, target)
    except OSError as error:
        raise CrowdshotError(f"{out} could not be written ({error.strerror or error}).") from error
    finally:
        with suppress(OSError):  # it is gone when all went well
            temporary.unlink()
