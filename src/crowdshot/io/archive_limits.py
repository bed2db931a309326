"""Open ZIP archives, and refuse those that decompress to too much: a few kilobytes may hold gigabytes."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Collection

from crowdshot.errors import CrowdshotError

ZIP = b"PK\x03\x04"
OLD_WORKBOOK = b"\xd0\xcf\x11\xe0"  # .xls, and .xlsx with a password
MOST_CELLS = 50_000_000  # of a table
MOST_UNPACKED = 2**29  # bytes that any file may decompress to
MOST_TIMES = 100  # a large file may decompress to this many times its size
MOST_ELEMENTS = 1_000_000  # of XML in any file; in a larger file, some per byte


def open_archive(data: bytes) -> zipfile.ZipFile | None:
    """Return the ZIP archive, None if the data is none that can be opened."""
    if not data.startswith(ZIP):
        return None
    try:
        return zipfile.ZipFile(io.BytesIO(data))
    except Exception:  # damaged archives raise errors of many types
        return None


def check_unpacked(name: str, packed: int, unpacked: int) -> None:
    """Refuse a file that decompresses to too many bytes.

    Callers check before they allocate memory, with the sizes that the file declares, or while they read it.
    """
    most = max(MOST_UNPACKED, MOST_TIMES * packed)
    if unpacked > most:
        raise CrowdshotError(
            f"unpacks to {unpacked / 2**20:,.0f} MB or more",
            where=name,
            found=unpacked,
            expected=f"{most / 2**20:,.0f} MB at most for a file of {packed / 2**20:,.1f} MB",
        )


def check_parts(name: str, archive: zipfile.ZipFile, wanted: Collection[str]) -> None:
    """Refuse an archive whose wanted members are compressed with LZMA, or decompress to too many bytes together.

    The declared sizes are reliable, because zipfile never reads more than the declared size of a member.
    """
    names = frozenset(wanted)
    parts = [part for part in archive.infolist() if part.filename in names]
    if any(part.compress_type == zipfile.ZIP_LZMA for part in parts):
        raise CrowdshotError(
            "is compressed with LZMA, whose header can ask for gigabytes of memory",
            where=name,
            found="LZMA",
            expected="Deflate, the usual compression of ZIP files",
        )
    check_unpacked(name, sum(part.compress_size for part in parts), sum(part.file_size for part in parts))


def check_elements(name: str, archive: zipfile.ZipFile, packed: int, per_byte: int = 1) -> None:
    """Refuse an archive with too many XML elements, whatever its members are called.

    An empty element costs less than a bit in the archive, and a kilobyte and microseconds when it is parsed.
    """
    most, found = max(MOST_ELEMENTS, per_byte * packed), 0
    for part in archive.infolist():
        with archive.open(part) as opened:
            while piece := opened.read(2**20):
                found += piece.count(b"<") - piece.count(b"</")
                if found > most:
                    raise CrowdshotError(
                        f"has more than {most:,} XML elements",
                        where=name,
                        found=found,
                        expected=f"fewer in a file of {packed / 2**20:,.1f} MB",
                    )
