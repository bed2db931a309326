"""What lies below a folder."""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from crowdshot.errors import CrowdshotError
from crowdshot.wording import shown


def list_files(folder: str | os.PathLike[str], endings: Collection[str], what: str) -> dict[str, Path]:
    """All files below ``folder`` that end so: path relative to it, with forward slashes -> path; sorted.

    Hidden files and folders are passed over, links to folders are not followed. ``what``: as messages call them.
    """
    root = Path(folder)
    if not root.is_dir():
        found = "is a file" if root.exists() else "does not exist"
        raise CrowdshotError(f"{shown(root)} {found}, expected a folder of {what}.")

    def stop(error: OSError) -> None:
        raise CrowdshotError(f"{shown(error.filename)} could not be listed ({error.strerror}).") from error

    paths: dict[str, Path] = {}
    for here, folders, files in os.walk(root, onerror=stop):
        folders[:] = [name for name in folders if not name.startswith(".")]
        for name in files:
            path = Path(here, name)
            if not name.startswith(".") and path.suffix.lower() in endings:
                paths[path.relative_to(root).as_posix()] = path
    if not paths:
        raise CrowdshotError(f"{shown(root)} holds no {what}, expected some of {' '.join(sorted(endings))}.")
    return dict(sorted(paths.items()))
