"""Files that are complete or not there at all."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from crowdshot.errors import CrowdshotError


@contextmanager
def replacing(out: Path) -> Iterator[Path]:
    """A name to write to, which becomes ``out`` when the block is done; of a failure nothing stays."""
    temporary = out.with_name(f".{out.name}.{secrets.token_hex(4)}.tmp")
    try:
        yield temporary
        os.replace(temporary, out)
    except OSError as error:
        raise CrowdshotError(f"{out} could not be written ({error.strerror or error}).") from error
    finally:
        with suppress(OSError):  # it is gone when all went well
            temporary.unlink()
