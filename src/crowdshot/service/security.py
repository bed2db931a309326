"""Limit requests by token or password, size, origin, rate and time."""

from __future__ import annotations

import asyncio
import base64
import binascii
import hashlib
import hmac
import ipaddress
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import shown

MOST_BYTES = 32 * 2**20  # of a request's body
BODY_SECONDS = 60.0  # in which a request's body must arrive
WRONG_EACH_SECOND, WRONG_AT_ONCE = 1.0, 20  # wrong passwords of one address
MOST_ADDRESSES = 1_000  # for which wrong passwords are counted
MOST_CHECKS = 8  # passwords that wait to be checked; a check takes about 0.2 s
OPEN = ("/health",)  # paths without authentication
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",  # HTML pages replace it
}
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Auth:
    """Authentication by a token, or by users with hashed passwords.

    Valid headers are remembered as keyed digests, because checking a password is slow.
    """

    def __init__(self, token: str = "", users: dict[str, str] | None = None) -> None:
        self._token, self._users = token.encode(), users or {}
        self._key, self._right = secrets.token_bytes(32), set[bytes]()
        self._pool, self._waiting = ThreadPoolExecutor(1, "password"), 0
        self._wrong: OrderedDict[str, Rate] = OrderedDict()

    @classmethod
    def read(cls, path: Path) -> Auth:
        """Read a file that contains a token, or lines of ``htpasswd -B``."""
        try:
            lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise CrowdshotError(
                f"is {shown(path)}", argument="auth", found=shown(path), expected=f"a file that can be read ({error})"
            ) from None
        lines = [line for line in lines if line and not line.startswith("#")]
        if len(lines) == 1 and ":" not in lines[0]:
            if len(lines[0]) < 16:
                raise CrowdshotError(
                    f"The token has {len(lines[0])} characters",
                    argument="auth",
                    where=shown(path),
                    found=len(lines[0]),
                    expected="16 or more",
                )
            return cls(token=lines[0])
        users = dict(line.split(":", 1) for line in lines if ":" in line)
        unhashed = [user for user, hashed in users.items() if not hashed.startswith(("$2a$", "$2b$", "$2y$"))]
        if not users or len(users) < len(lines) or unhashed:
            raise CrowdshotError(
                "The file has neither a token nor bcrypt passwords",
                argument="auth",
                where=shown(path),
                expected="one token, or lines that `htpasswd -B` wrote",
            )
        return cls(users=users)

    async def allows(self, header: str, address: str = "") -> bool | None:
        """Check an Authorization header: Bearer with the token, or Basic with password or token.

        Returns
        -------
        allowed : bool or None
            None if the address has sent too many wrong passwords, so that this one was not checked.
        """
        digest = hmac.digest(self._key, header.encode("utf-8", "replace"), "sha256")
        if digest in self._right:
            return True
        user, password = credentials(header)
        right: bool | None = self._is_token(password)
        if not right and header:
            right = await self._is_slowly_right(user, password, address)
        if right:
            self._right.add(digest)
        return right

    async def _is_slowly_right(self, user: str, password: bytes, address: str) -> bool | None:
        rate = self._wrong.pop(address, None) or Rate(WRONG_EACH_SECOND, WRONG_AT_ONCE)
        self._wrong[address] = rate
        if len(self._wrong) > MOST_ADDRESSES:
            self._wrong.popitem(last=False)
        if not rate.allows() or self._waiting >= MOST_CHECKS:
            return None
        self._waiting += 1
        try:
            loop = asyncio.get_running_loop()
            return await loop.run_in_executor(self._pool, self._is_user, user, password)
        finally:
            self._waiting -= 1

    def _check(self, header: str) -> bool:
        user, password = credentials(header)
        return self._is_token(password) or self._is_user(user, password)

    def _is_token(self, candidate: bytes) -> bool:
        same = hmac.compare_digest(hashlib.sha256(candidate).digest(), hashlib.sha256(self._token).digest())
        return same and bool(self._token)

    def _is_user(self, user: str, password: bytes) -> bool:
        if not self._users:
            return False
        import bcrypt  # imported late: only password files need it

        hashed = self._users.get(user, next(iter(self._users.values())))  # an unknown user takes the same time
        right = bcrypt.checkpw(password[:72], hashed.encode()) if b"\0" not in password else False
        return right and user in self._users


def credentials(header: str) -> tuple[str, bytes]:
    """Return the user, "" for a token, and the password or token of an Authorization header."""
    kind, _, rest = header.partition(" ")
    if kind.lower() == "bearer":
        return "", rest.strip().encode("utf-8", "replace")
    if kind.lower() == "basic":
        try:
            user, _, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return "", b""
        return user.decode("utf-8", "replace"), password
    return "", b""


class Guard:
    """ASGI middleware that checks host, origin, size and authentication, and adds security headers to all answers."""

    def __init__(self, app: Any, auth: Auth | None, hosts: tuple[str, ...], most_bytes: int = MOST_BYTES) -> None:
        self.app, self.auth, self.hosts, self.most_bytes = app, auth, hosts, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)

        async def answer(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                known = {bytes(name).lower() for name, _ in message["headers"]}
                new = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]
                message["headers"] = [*message["headers"], *(pair for pair in new if pair[0] not in known)]
            await send(message)

        refused = await self._refused(scope["path"], headers, (scope.get("client") or ("",))[0])
        if refused is not None:
            await refused(scope, receive, answer)
            return
        await self.app(scope, self._limited(receive), answer)

    async def _refused(self, path: str, headers: Headers, address: str) -> JSONResponse | None:
        host = re.sub(r":\d*$", "", headers.get("host", "")).strip("[]")
        if self.hosts and host not in self.hosts:  # against DNS rebinding
            return _refusal(400, f"The request is for host {host!r}, expected a name of this machine.")
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return _refusal(403, "The request comes from a page of another site, expected a page of this service.")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self.most_bytes:
            return _refusal(413, self._too_long)
        if self.auth is None or path in OPEN:
            return None
        allowed = await self.auth.allows(headers.get("authorization", ""), address)
        if allowed:
            return None
        if allowed is None:
            refusal = _refusal(429, "There were too many wrong passwords. Try again in a few seconds.")
            refusal.headers["Retry-After"] = "5"
            return refusal
        refusal = _refusal(
            401, "The request has no valid token or password, expected an Authorization header (Bearer or Basic)."
        )
        refusal.headers["WWW-Authenticate"] = 'Basic realm="crowdshot", charset="UTF-8"'
        return refusal

    @property
    def _too_long(self) -> str:
        return f"The request has more than {self.most_bytes:,} bytes, expected fewer."

    def _limited(self, receive: Receive) -> Receive:
        seen, whole, until = 0, False, time.monotonic() + BODY_SECONDS

        async def limited() -> MutableMapping[str, Any]:
            nonlocal seen, whole
            if whole:  # what follows is the end of the connection, which may take any time
                return await receive()
            try:
                message = await asyncio.wait_for(receive(), max(0.0, until - time.monotonic()))
            except TimeoutError:
                raise HTTPException(408, f"The request did not arrive in {BODY_SECONDS:g} seconds.") from None
            whole = not message.get("more_body", False)
            seen += len(message.get("body", b""))
            if seen > self.most_bytes:
                raise HTTPException(413, self._too_long)
            return message

        return limited


def _refusal(status: int, sentence: str) -> JSONResponse:
    return JSONResponse({"detail": sentence}, status)


class Rate:
    """A token bucket: ``each_second`` requests per second on average, and ``at_once`` in a burst."""

    def __init__(self, each_second: float, at_once: int) -> None:
        self.each_second, self.at_once = each_second, at_once
        self._left, self._at = float(at_once), time.monotonic()

    def allows(self) -> bool:
        now = time.monotonic()
        self._left = min(self.at_once, self._left + (now - self._at) * self.each_second)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


HEADER_SECONDS = 10.0  # in which the header of a request must arrive
MOST_CONNECTIONS = 500


def limited_protocol() -> type[asyncio.Protocol]:
    """Return uvicorn's HTTP protocol with a time limit for headers and a limit of open connections."""
    from uvicorn.protocols.http.h11_impl import H11Protocol

    class Limited(H11Protocol):
        """Close a connection that sends no complete header in time, and new ones if too many are open."""

        _header_timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            if len(self.connections) > MOST_CONNECTIONS:
                transport.abort()
                return
            self._header_timer = self.loop.call_later(HEADER_SECONDS, transport.abort)

        def handle_events(self) -> None:
            super().handle_events()
            if self.cycle is not None:  # a request has begun; between requests, uvicorn's own time limit holds
                self._stop_timer()

        def connection_lost(self, exc: Exception | None) -> None:
            self._stop_timer()
            super().connection_lost(exc)

        def _stop_timer(self) -> None:
            if self._header_timer is not None:
                self._header_timer.cancel()
                self._header_timer = None

    return Limited
