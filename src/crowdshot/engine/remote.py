"""Files where Arrow finds them: on this machine, or in a store (``s3://bucket/labels/*.parquet``)."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatch
from functools import cache
from pathlib import Path

from pyarrow import fs

from crowdshot.errors import CrowdshotError
from crowdshot.files.patterns import expand

STORES = ("s3:", "gs:")


def expand_all(patterns: Sequence[Path]) -> list[Path]:
    """As `crowdshot.files.patterns.expand`, in stores too."""
    return [file for given in patterns for file in (_stored(given) if _store(given) else expand([given]))]


def located(path: Path) -> tuple[fs.FileSystem, str]:
    """Who opens it, and by which name; an `OSError` where a store cannot be reached."""
    store = _store(path)
    return (fs.LocalFileSystem(), str(path)) if store is None else (_reached(store), "/".join(path.parts[1:]))


def stamp(path: Path) -> tuple[int, int | None]:
    """By which a file is known again: its size, and when it was written."""
    try:
        system, name = located(path)
        found = system.get_file_info(name)
    except OSError as error:
        raise CrowdshotError(f"{path} could not be read ({told(error)}), expected a file.") from None
    return found.size, found.mtime_ns


def told(error: OSError) -> str:
    return str(error.strerror or error).splitlines()[0]


def _store(path: Path) -> str | None:
    """The bucket, s3://bucket, of what has become s3:/bucket/labels as a path."""
    scheme, *rest = path.parts or [""]
    return f"{scheme}//{rest[0]}" if scheme in STORES and rest else None


@cache
def _reached(store: str) -> fs.FileSystem:
    system, _ = fs.FileSystem.from_uri(store)
    return system


def _stored(given: Path) -> list[Path]:
    if not any(sign in given.name for sign in "*["):
        return [given]
    try:
        system, name = located(given)
        found = system.get_file_info(fs.FileSelector(name.rpartition("/")[0]))
    except OSError as error:
        raise CrowdshotError(f"{given} could not be listed ({told(error)}), expected a store within reach.") from None
    names = sorted(info.base_name for info in found if info.is_file and fnmatch(info.base_name, given.name))
    if not names:
        raise CrowdshotError(f"{given} matches no file, expected some of labels.")
    return [given.with_name(name) for name in names]
