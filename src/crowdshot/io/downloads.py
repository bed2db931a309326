"""Files from their official address, kept only when they are what their checksum says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import shown
from crowdshot.io.atomic import replacing
from crowdshot.progress import Tick, progress

if TYPE_CHECKING:
    from requests.exceptions import RequestException

PIECE = 2**20  # bytes read between two ticks
TIMEOUT = 60.0  # seconds without a byte
HEADERS = {"User-Agent": "crowdshot", "Accept-Encoding": "identity"}  # the file's own bytes


@dataclass(frozen=True)
class Download:
    """``checksum`` is an algorithm that hashlib knows, a colon and the digest in hexadecimal."""

    url: str
    checksum: str

    @property
    def file(self) -> str:
        return self.url.rpartition("/")[2]


def fetch(download: Download, folder: Path) -> Path:
    """Put the file into ``folder``, which is made where it is absent, under the last part of its address."""
    # Imported here because a machine that only trains may have neither package.
    import pooch
    from requests.exceptions import RequestException  # raised by pooch

    out = folder / download.file
    algorithm, _, expected = download.checksum.partition(":")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CrowdshotError(f"{shown(folder)} could not be made ({error.strerror}).") from error
    with replacing(out) as temporary:
        try:
            with progress(f"downloading {out.name}, MB") as tick:
                pooch.HTTPDownloader(_Megabytes(tick), PIECE, headers=HEADERS, timeout=TIMEOUT)(
                    download.url, str(temporary), None
                )
        except RequestException as error:
            raise CrowdshotError(
                f"{download.url} could not be fetched ({_reason(error)}); get it another way and put it at "
                f"{shown(out)}."
            ) from error
        found = pooch.file_hash(str(temporary), algorithm)
        if found != expected:
            raise CrowdshotError(
                f"{download.url} holds {temporary.stat().st_size:,} bytes whose {algorithm} is {found}, expected "
                f"{expected}; nothing was kept."
            )
    return out


class _Megabytes:
    """What pooch takes for a bar."""

    total = 0

    def __init__(self, tick: Tick) -> None:
        self.tick, self.done = tick, 0

    def update(self, n: int) -> None:
        self.done = min(self.done + n, self.total or self.done + n)
        self.tick(self.done // 10**6, self.total // 10**6)

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass


def _reason(error: RequestException) -> str:
    """In a few words: requests wraps what happened in several errors, whose texts hold one another."""
    if error.response is not None:
        return f"{error.response.status_code} {error.response.reason}"
    inner: object = error
    while isinstance(inner, Exception):
        told = str(inner).rpartition(": ")[2] or type(inner).__name__
        inner = getattr(inner, "reason", None) or next((arg for arg in inner.args if isinstance(arg, Exception)), None)
    return told.splitlines()[0]
