"""Limit what a compressed file may take in memory: a few kilobytes can decompress to gigabytes."""

from __future__ import annotations

import zipfile
from collections.abc import Collection

from crowdshot.errors import CrowdshotError

MOST = 2**29  # bytes that any file may decompress to
TIMES = 100  # a large file may decompress to this many times its size


def check_unpacked(name: str, packed: int, unpacked: int) -> None:
    """Refuse a file that decompresses to too many bytes.

    Callers check before they allocate memory, with the sizes that the file declares, or while they read it.
    """
    most = max(MOST, TIMES * packed)
    if unpacked > most:
        raise CrowdshotError(
            f"unpacks to {unpacked / 2**20:,.0f} MB or more",
            where=name,
            found=unpacked,
            expected=f"{most / 2**20:,.0f} MB at most for a file of {packed / 2**20:,.1f} MB",
        )


def check_parts(name: str, archive: zipfile.ZipFile, wanted: Collection[str]) -> None:
    """Refuse an archive whose wanted members together decompress to too many bytes.

    The declared sizes are reliable, because zipfile never reads more than the declared size of a member.
    """
    parts = [part for part in archive.infolist() if part.filename in wanted]
    check_unpacked(name, sum(part.compress_size for part in parts), sum(part.file_size for part in parts))
