"""A label tool's HTTP interface: JSON there and back, and what goes wrong as a sentence. No token is ever shown."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from crowdshot.errors import CrowdshotError
from crowdshot.wording import clean

PATIENCE = 120.0  # seconds
T = TypeVar("T")


class Stay(urllib.request.HTTPRedirectHandler):
    """A token is not carried elsewhere."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


class Remote:
    """``headers`` go with every request."""

    def __init__(self, address: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
            raise CrowdshotError(f"url is {clean(parts.hostname or address)}, expected one like http://127.0.0.1:8080.")
        self.address, self.headers = address.rstrip("/"), dict(headers)
        self._opener = urllib.request.build_opener(Stay)

    def ask(self, *path: str | int, body: Any = None, method: str | None = None, **query: str | int) -> Any:
        """The answer to a GET or, with a body, a POST; ``path``: its parts, which are quoted."""
        where = "/".join([self.address, *(quote(str(part), safe="") for part in path)])
        data = None if body is None else json.dumps(body, allow_nan=False).encode()
        headers = {**self.headers, "Accept": "application/json", "Content-Type": "application/json"}
        url = f"{where}?{urlencode(query)}" if query else where
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=PATIENCE) as answer:
                text = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise CrowdshotError(f"{where} has the answer {error.code}, {_hint(error)}.") from None
        except (OSError, ValueError) as error:
            raise CrowdshotError(f"{where} is not to be reached ({getattr(error, 'reason', error)}).") from None
        try:
            return json.loads(text) if text else None
        except ValueError:
            raise CrowdshotError(f"{where} has an answer that is no JSON, expected the label tool's.") from None

    def part(self, answer: Any, name: str, kind: type[T]) -> T:
        value = answer.get(name) if isinstance(answer, dict) else None
        if not isinstance(value, kind):
            raise CrowdshotError(f"{self.address} has an answer without {name!r}, expected another label tool there.")
        return value


def _hint(error: urllib.error.HTTPError) -> str:
    if error.code in (401, 403):
        return "expected a token that is known and may do this"
    if error.code == 404:
        return "expected a project that is there"
    if 300 <= error.code < 400:
        return f"expected no redirection, so url= should lead to {clean(error.headers.get('Location') or '?')}"
    return f"expected 200 ({clean(error.read(300).decode(errors='replace'))})"
