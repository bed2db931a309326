"""Files and folders that are there whole or not at all, though whoever writes them may be killed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable
from pathlib import Path


def put(target: Path, write: Callable[[Path], object], beside: Path | None = None) -> None:
    """``write`` is given another name, which then becomes the target's; ``beside``: the folder in which that is."""
    passing = (beside or target.parent) / f"{target.name}.{os.getpid()}-{secrets.token_hex(4)}"
    write(passing)
    os.replace(passing, target)
