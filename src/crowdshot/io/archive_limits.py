"""How much a packed file may become: a few kilobytes can unpack to all the memory there is."""

from __future__ import annotations

import zipfile
from collections.abc import Collection

from crowdshot.errors import CrowdshotError

MOST = 2**29  # bytes that any file may unpack to
TIMES = 100  # or, of a large one, so many times its own size


def check_unpacked(name: str, packed: int, unpacked: int) -> None:
    """To be called before memory is taken, with what the file's header says, or while it is read."""
    most = max(MOST, TIMES * packed)
    if unpacked > most:
        raise CrowdshotError(
            f"{name} unpacks to {unpacked / 2**20:,.0f} MB or more, expected {most / 2**20:,.0f} MB at most for a file"
            f" of {packed / 2**20:,.1f} MB."
        )


def check_parts(name: str, archive: zipfile.ZipFile, wanted: Collection[str]) -> None:
    """The parts of an archive that will be in memory at once; zipfile reads no more of each than its size says."""
    parts = [part for part in archive.infolist() if part.filename in wanted]
    check_unpacked(name, sum(part.compress_size for part in parts), sum(part.file_size for part in parts))
