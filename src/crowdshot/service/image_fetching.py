"""Pictures of tasks that lie elsewhere: fetched from hosts that the user named, and from no others."""

from __future__ import annotations

import urllib.request
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPException
from pathlib import Path
from urllib.parse import urlsplit

from PIL import Image

from crowdshot.errors import CrowdshotError
from crowdshot.report.label_tools import NoRedirect
from crowdshot.service.prediction import Predictor, open_picture

MOST = 256  # pictures for one request
MOST_BYTES = 20 * 2**20  # of a picture
PATIENCE = 5.0  # seconds
AT_ONCE = 8


def check_hosts(hosts: Sequence[str]) -> frozenset[str]:
    """Names, or names with a port, as they stand in an address."""
    for host in hosts:
        if not host or urlsplit(f"//{host}").netloc != host or "@" in host:
            raise CrowdshotError(f"allow_host is {host!r}, expected a name, like images.example.org, or with a port.")
    return frozenset(host.lower() for host in hosts)


def said_of_pictures(
    addresses: Sequence[str], hosts: Collection[str], model: Path | None, predictor: Predictor
) -> list[tuple[str, float] | None]:
    """What the classifier says of each, and its probability."""
    pictures = [None] * len(addresses) if model is None else fetch(addresses, hosts)
    rows = [row for row, picture in enumerate(pictures) if picture is not None]
    found: list[tuple[str, float] | None] = [None] * len(addresses)
    if model is not None:
        said = predictor.predict_pictures(model, [picture for picture in pictures if picture is not None])
        for row, each in zip(rows, said, strict=False):  # nothing is said where it was not made for pictures
            found[row] = each["label"], each["confidence"]
    return found


def fetch(addresses: Sequence[str], hosts: Collection[str]) -> list[Image.Image | None]:
    """None where there is no picture to be had, or it is from another host."""
    opener = urllib.request.build_opener(NoRedirect)

    def one(address: str) -> Image.Image | None:
        if not is_allowed(address, hosts):
            return None
        try:
            with opener.open(address, timeout=PATIENCE) as answer:
                data = answer.read(MOST_BYTES + 1)
            return open_picture(data, "the picture") if len(data) <= MOST_BYTES else None
        except (OSError, ValueError, HTTPException):  # one that cannot be read is among them
            return None

    with ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(one, addresses[:MOST]))
    return found + [None] * (len(addresses) - len(found))


def is_allowed(address: str, hosts: Collection[str]) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() in hosts
