"""Fetch and predict the pictures of tasks, from allowed hosts only."""

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

MOST = 256  # pictures of a request
MOST_BYTES = 20 * 2**20  # of a picture
PATIENCE = 5.0  # seconds
AT_ONCE = 8


def check_hosts(hosts: Sequence[str]) -> frozenset[str]:
    """Return the allowed hosts in lower case; a host may have a port."""
    for host in hosts:
        if not host or urlsplit(f"//{host}").netloc != host or "@" in host:
            raise CrowdshotError(
                f"is {host!r}",
                argument="allow_host",
                found=host,
                expected="a host such as images.example.org or images.example.org:8080",
            )
    return frozenset(host.lower() for host in hosts)


def predict_addresses(
    addresses: Sequence[str], hosts: Collection[str], model: Path | None, predictor: Predictor
) -> list[tuple[str, float] | None]:
    """Return the label and probability of the picture at each address; None if there is no prediction."""
    pictures = [None] * len(addresses) if model is None else fetch(addresses, hosts)
    rows = [row for row, picture in enumerate(pictures) if picture is not None]
    found: list[tuple[str, float] | None] = [None] * len(addresses)
    if model is not None:
        predictions = predictor.predict_pictures(model, [picture for picture in pictures if picture is not None])
        for row, each in zip(rows, predictions, strict=False):  # no predictions if the classifier is not for pictures
            found[row] = each.label, each.confidence
    return found


def fetch(addresses: Sequence[str], hosts: Collection[str]) -> list[Image.Image | None]:
    """Return the picture at each address; None if the host is not allowed or there is no readable picture."""
    opener = urllib.request.build_opener(NoRedirect)

    def one(address: str) -> Image.Image | None:
        if not is_allowed(address, hosts):
            return None
        try:
            with opener.open(address, timeout=PATIENCE) as answer:
                data = answer.read(MOST_BYTES + 1)
            return open_picture(data, "the picture") if len(data) <= MOST_BYTES else None
        except (OSError, ValueError, HTTPException):  # ValueError includes unreadable images
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
