"""Download files from their official address and keep them only if their checksum matches."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from crowdshot.errors import CrowdshotError
from crowdshot.extras import missing_packages_explained
from crowdshot.formatting import shown
from crowdshot.io.atomic import replacing
from crowdshot.progress import Tick, progress

if TYPE_CHECKING:
    from requests.exceptions import RequestException

PIECE = 2**20  # bytes between two updates of the progress bar
TIMEOUT = 60.0  # seconds without a byte
HEADERS = {"User-Agent": "crowdshot", "Accept-Encoding": "identity"}  # no compression: the checksum is the file's


@dataclass(frozen=True)
class Download:
    """A file to download.

    Attributes
    ----------
    url : str
    checksum : str
        ``"<algorithm>:<hexadecimal digest>"``, with an algorithm of hashlib.
    """

    url: str
    checksum: str

    @property
    def file(self) -> str:
        return self.url.rpartition("/")[2]


def fetch(download: Download, folder: Path) -> Path:
    """Download a file into ``folder`` under the last part of its address; the folder is created if necessary."""
    with missing_packages_explained("Downloading a dataset"):
        import pooch
    from requests.exceptions import RequestException  # raised by pooch

    out = folder / download.file
    algorithm, _, expected = download.checksum.partition(":")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CrowdshotError(f"could not be created ({error.strerror})", where=shown(folder)) from error
    with replacing(out) as temporary:
        try:
            with progress(f"downloading {out.name}, MB") as tick:
                pooch.HTTPDownloader(_Megabytes(tick), PIECE, headers=HEADERS, timeout=TIMEOUT)(
                    download.url, str(temporary), None
                )
        except RequestException as error:
            raise CrowdshotError(
                f"could not be downloaded ({_reason(error)})",
                where=download.url,
                hint=f"Download it another way and save it as {shown(out)}",
            ) from error
        found = pooch.file_hash(str(temporary), algorithm)
        if found != expected:
            raise CrowdshotError(
                f"has {temporary.stat().st_size:,} bytes with the {algorithm} checksum {found}",
                where=download.url,
                found=found,
                expected=expected,
                hint="The download was discarded",
            )
    return out


class _Megabytes:
    """A progress bar in the form that pooch expects."""

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
    """Return the innermost reason: requests wraps errors in errors and repeats their texts."""
    if error.response is not None:
        return f"{error.response.status_code} {error.response.reason}"
    inner: object = error
    while isinstance(inner, Exception):
        reason = str(inner).rpartition(": ")[2] or type(inner).__name__
        inner = getattr(inner, "reason", None) or next((arg for arg in inner.args if isinstance(arg, Exception)), None)
    return reason.splitlines()[0]
