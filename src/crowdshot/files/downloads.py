"""Files from their official address, kept only when they are what their checksum says."""

from __future__ import annotations

import hashlib
import http.client
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO
from urllib.error import HTTPError, URLError
from urllib.request import Request, urlopen

from crowdshot.errors import CrowdshotError
from crowdshot.files.whole import replacing
from crowdshot.progress import progress
from crowdshot.wording import shown

PIECE = 2**20  # bytes read between two ticks
TIMEOUT = 60.0  # seconds without a byte


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
    out = folder / download.file
    algorithm, _, expected = download.checksum.partition(":")
    digest = hashlib.new(algorithm)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CrowdshotError(f"{shown(folder)} could not be made ({error.strerror}).") from error
    with replacing(out) as temporary, temporary.open("wb") as file:
        try:
            _copy(download.url, file, digest)
        except (HTTPError, URLError, TimeoutError, ConnectionError, http.client.HTTPException) as error:
            reason = f"{error.code} {error.reason}" if isinstance(error, HTTPError) else getattr(error, "reason", error)
            raise CrowdshotError(
                f"{download.url} could not be fetched ({reason}); get it another way and put it at {shown(out)}."
            ) from error
        if digest.hexdigest() != expected:
            raise CrowdshotError(
                f"{download.url} holds {file.tell():,} bytes whose {algorithm} is {digest.hexdigest()}, expected "
                f"{expected}; nothing was kept."
            )
    return out


def _copy(url: str, file: BinaryIO, digest: hashlib._Hash) -> None:
    request = Request(url, headers={"User-Agent": "crowdshot"})
    with urlopen(request, timeout=TIMEOUT) as reply, progress(f"downloading {Path(file.name).name}, MB") as tick:
        total = int(reply.headers.get("Content-Length") or 0)
        while piece := reply.read(PIECE):
            digest.update(piece)
            file.write(piece)
            tick(file.tell() // 10**6, total // 10**6)
