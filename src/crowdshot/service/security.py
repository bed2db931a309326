"""Limit requests by token or password, size, origin and rate."""

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
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import shown

MOST_BYTES = 32 * 2**20  # of a request's body
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

    async def allows(self, header: str) -> bool:
        """Return whether an Authorization header is valid: Bearer with the token, or Basic with password or token."""
        digest = hmac.digest(self._key, header.encode("utf-8", "replace"), "sha256")
        if digest in self._right:
            return True
        right = await asyncio.to_thread(self._check, header)  # checking a password is slow by design
        if right:
            self._right.add(digest)
        return right

    def _check(self, header: str) -> bool:
        kind, _, rest = header.partition(" ")
        if kind.lower() == "bearer":
            return self._is_token(rest.strip().encode("utf-8", "replace"))
        if kind.lower() != "basic":
            return False
        try:
            user, _, password = base64.b64decode(rest.strip(), validate=True).partition(b":")
        except (binascii.Error, ValueError):
            return False
        return self._is_token(password) or self._is_user(user.decode("utf-8", "replace"), password)

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

        refused = await self._refused(scope["path"], headers)
        if refused is not None:
            await refused(scope, receive, answer)
            return
        await self.app(scope, self._limited(receive), answer)

    async def _refused(self, path: str, headers: Headers) -> JSONResponse | None:
        host = re.sub(r":\d*$", "", headers.get("host", "")).strip("[]")
        if self.hosts and host not in self.hosts:  # against DNS rebinding
            return _refusal(400, f"The request is for host {host!r}, expected a name of this machine.")
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return _refusal(403, "The request comes from a page of another site, expected a page of this service.")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self.most_bytes:
            return _refusal(413, self._too_long)
        if self.auth is not None and path not in OPEN and not await self.auth.allows(headers.get("authorization", "")):
            refusal = _refusal(
                401, "The request has no valid token or password, expected an Authorization header (Bearer or Basic)."
            )
            refusal.headers["WWW-Authenticate"] = 'Basic realm="crowdshot", charset="UTF-8"'
            return refusal
        return None

    @property
    def _too_long(self) -> str:
        return f"The request has more than {self.most_bytes:,} bytes, expected fewer."

    def _limited(self, receive: Receive) -> Receive:
        seen = 0

        async def limited() -> MutableMapping[str, Any]:
            nonlocal seen
            message = await receive()
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
