"""Who may ask, and how much: tokens, the size of a request, where it comes from, how often."""

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
OPEN = ("/health",)  # what anybody may ask
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",  # pages have their own
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
    """One token, or users with the hashes of their passwords; what was right once is known again by a keyed digest."""

    def __init__(self, token: str = "", users: dict[str, str] | None = None) -> None:
        self._token, self._users = token.encode(), users or {}
        self._key, self._right = secrets.token_bytes(32), set[bytes]()

    @classmethod
    def read(cls, path: Path) -> Auth:
        """A file with one token, or with lines of ``htpasswd -B``."""
        try:
            lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as error:
            raise CrowdshotError(f"auth is {shown(path)}, expected a file that can be read ({error}).") from None
        lines = [line for line in lines if line and not line.startswith("#")]
        if len(lines) == 1 and ":" not in lines[0]:
            if len(lines[0]) < 16:
                raise CrowdshotError(
                    f"auth is {shown(path)}, whose token has {len(lines[0])} characters, expected 16 or more."
                )
            return cls(token=lines[0])
        users = dict(line.split(":", 1) for line in lines if ":" in line)
        strange = [who for who, hashed in users.items() if not hashed.startswith(("$2a$", "$2b$", "$2y$"))]
        if not users or len(users) < len(lines) or strange:
            raise CrowdshotError(f"auth is {shown(path)}, expected one token, or lines that `htpasswd -B` wrote.")
        return cls(users=users)

    async def allows(self, header: str) -> bool:
        """``header``: Authorization, "Bearer TOKEN" or "Basic …", whose password may be the token."""
        digest = hmac.digest(self._key, header.encode("utf-8", "replace"), "sha256")
        if digest in self._right:
            return True
        right = await asyncio.to_thread(self._check, header)  # a password takes a while, by intent
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

    def _is_token(self, given: bytes) -> bool:
        same = hmac.compare_digest(hashlib.sha256(given).digest(), hashlib.sha256(self._token).digest())
        return same and bool(self._token)

    def _is_user(self, user: str, password: bytes) -> bool:
        if not self._users:
            return False
        import bcrypt  # here, as only files of passwords need it

        hashed = self._users.get(user, next(iter(self._users.values())))  # of somebody unknown it takes as long
        right = bcrypt.checkpw(password[:72], hashed.encode()) if b"\0" not in password else False
        return right and user in self._users


class Guard:
    """Stands before the application: hosts, tokens, sizes; and puts headers on every answer."""

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
        if self.hosts and host not in self.hosts:  # elsewhere a name may be made to mean this machine
            return _refusal(400, f"the request is for {host!r}, expected one for this machine by its own name.")
        if headers.get("sec-fetch-site") == "cross-site" and headers.get("sec-fetch-mode") != "navigate":
            return _refusal(403, "the request is from a page of another site, expected one of this.")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > self.most_bytes:
            return _refusal(413, self._too_long)
        if self.auth is not None and path not in OPEN and not await self.auth.allows(headers.get("authorization", "")):
            refusal = _refusal(401, "the request has no token that is known, expected one by Bearer or Basic.")
            refusal.headers["WWW-Authenticate"] = 'Basic realm="crowdshot", charset="UTF-8"'
            return refusal
        return None

    @property
    def _too_long(self) -> str:
        return f"the request has more than {self.most_bytes:,} bytes, expected fewer."

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
    """So many a second in the long run, and so many at once."""

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
