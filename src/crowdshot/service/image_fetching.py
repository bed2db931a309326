"""Fetch and predict the pictures of tasks, from allowed hosts only."""

from __future__ import annotations

import http.client
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from crowdshot.errors import CrowdshotError
from crowdshot.report.label_tools import NoRedirect
from crowdshot.service.prediction import MOST_IN_ALL, Picture, Predictor

MOST = 256  # pictures of a request
MOST_BYTES = 20 * 2**20  # of a picture
PATIENCE = 5.0  # seconds without a byte
IN_ALL = 10.0  # seconds for all pictures of a request
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
        try:
            predictions = predictor.predict_pictures(model, [picture for picture in pictures if picture is not None])
        except CrowdshotError:  # a damaged picture
            return found
        for row, each in zip(rows, predictions, strict=False):  # no predictions if the classifier is not for pictures
            found[row] = each.label, each.confidence
    return found


def fetch(addresses: Sequence[str], hosts: Collection[str]) -> list[Picture | None]:
    """Return the picture at each address; None if the host is not allowed or no readable picture arrives in time."""
    deadline = Deadline(IN_ALL)
    opener = urllib.request.build_opener(NoRedirect, *deadline.handlers())

    def one(address: str) -> Picture | None:
        if not is_allowed(address, hosts) or deadline.passed():
            return None
        try:
            with opener.open(address, timeout=PATIENCE) as answer:
                data = answer.read(MOST_BYTES + 1)
            picture = Picture(data, "the picture") if len(data) <= MOST_BYTES else None
            if picture is not None:
                picture.decode()
            return picture
        except (OSError, ValueError, http.client.HTTPException):  # ValueError includes unreadable images
            return None

    with deadline, ThreadPoolExecutor(AT_ONCE) as pool:
        found = list(pool.map(one, addresses[:MOST]))
    return _few_enough(found) + [None] * (len(addresses) - len(found))


def _few_enough(pictures: Sequence[Picture | None]) -> list[Picture | None]:
    """Leave out the pictures that exceed the limit of pixels."""
    total, kept = 0, list[Picture | None]()
    for picture in pictures:
        fits = picture is not None and total + picture.pixels <= MOST_IN_ALL
        total += picture.pixels if fits and picture is not None else 0
        kept.append(picture if fits else None)
    return kept


class Deadline:
    """A time limit for all connections of a request.

    A time limit of a socket starts again with each byte, so a slow host could hold a connection for ever. After the
    deadline, the sockets are shut down.
    """

    def __init__(self, seconds: float) -> None:
        self._until, self._sockets, self._lock = time.monotonic() + seconds, list[socket.socket](), threading.Lock()
        self._timer = threading.Timer(seconds, self._shut)
        self._timer.daemon = True

    def passed(self) -> bool:
        return time.monotonic() >= self._until

    def handlers(self) -> list[urllib.request.BaseHandler]:
        """Return handlers that register the sockets they open."""
        deadline = self

        class Plain(urllib.request.HTTPHandler):
            def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
                return self.do_open(partial(deadline.connection, http.client.HTTPConnection), request)

        class Secure(urllib.request.HTTPSHandler):
            def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
                return self.do_open(partial(deadline.connection, http.client.HTTPSConnection), request)

        return [Plain(), Secure()]

    def connection(self, kind: Callable[..., Any], host: str, **options: Any) -> Any:
        connection = kind(host, **options)
        connect = connection.connect

        def registered() -> None:
            connect()
            with self._lock:
                self._sockets.append(connection.sock)
            if self.passed():
                self._shut()

        connection.connect = registered
        return connection

    def _shut(self) -> None:
        with self._lock:
            for each in self._sockets:
                with suppress(OSError):  # it is closed
                    each.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()


def is_allowed(address: str, hosts: Collection[str]) -> bool:
    try:
        parts = urlsplit(address)
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and parts.netloc.lower() in hosts
