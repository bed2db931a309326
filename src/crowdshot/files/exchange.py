"""Two folders change names in one step, or one takes the other's place in two."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from crowdshot.files.leftovers import SET_ASIDE, passing_name

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # of Linux


def take_place(new: Path, target: Path) -> Path | None:
    """``new`` becomes ``target``; where the folder is then that was there before, None if there was none.

    One step where the system can; else there is a moment without any, which `leftovers.mend` mends if it was the last.
    """
    try:
        os.rename(new, target)  # takes the place of nothing, or of an empty folder
        return None
    except OSError:
        if not target.is_dir():
            raise
    if _exchange(new, target):
        return new
    old = passing_name(target, SET_ASIDE)
    os.rename(target, old)
    try:
        os.rename(new, target)
    except OSError:
        os.rename(old, target)
        raise
    return old


def _exchange(one: Path, other: Path) -> bool:
    try:
        renameat2 = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError, TypeError):  # another system, or an old one
        return False
    done = renameat2(AT_FDCWD, os.fsencode(one), AT_FDCWD, os.fsencode(other), RENAME_EXCHANGE)
    return bool(done == 0)
