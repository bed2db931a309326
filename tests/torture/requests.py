"""Send random requests to the service, right and wrong ones, from several clients at once.

    python -m torture.requests --requests 24000

Each must be answered in time, and none with 500. Meanwhile other connections send half a header. Afterwards all
acknowledged labels are in the journal, and no fit has failed.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import re
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from crowdshot.service.journal import Journal
from torture.mutations import NUMBERS, WORDS, odd_value

COMMAND = (sys.executable, "-m", "crowdshot", "serve", "--port", "0", "--data")
CLIENTS, HALF_OPEN, PATIENCE = 8, 100, 60.0
CONFIG = (
    '<View><Image name="i" value="$image"/><Choices name="c" toName="i"><Choice value="cat"/><Choice value="dog"/>'
    "</Choices></View>"
)


class Sent(NamedTuple):
    method: str
    path: str
    body: bytes | None
    label: tuple[str, str, str] | None  # that must be stored if the answer is a success


def request(rng: random.Random, number: int) -> Sent:
    label = (f"{number}.png", f"ann{rng.randrange(20)}", rng.choice(("cat", "dog")))
    kind = rng.randrange(8)
    if kind < 2:
        return Sent("POST", "/v1/labels", _json({"labels": [_row(label)]}), label)
    if kind == 2:
        return Sent("POST", "/webhook", _json(event(label, number)), label)
    if kind == 3:
        path = rng.choice(("/v1/next?annotator=", "/v1/consensus?limit=", "/v1/annotators?x=", "/v1/review?x=", "/"))
        return Sent("GET", path + quote(str(rng.choice((*WORDS, *NUMBERS))), errors="replace"), None, None)
    bodies: list[tuple[str, Any]] = [
        ("/v1/labels", {"labels": [_row(label)]}),
        ("/webhook", event(label, number)),
        ("/predict", {"tasks": [{"id": 1, "data": {"image": "x"}, "annotations": []}], "label_config": CONFIG}),
        ("/setup", {"project": "1", "schema": CONFIG}),
        ("/v1/review", {"decisions": [{"kind": "class", "name": "owl", "becomes": "cat"}]}),
        ("/v1/predict", {"features": [[1.0, 2.0]], "texts": ["a"], "images": ["QQ=="]}),
    ]
    path, body = rng.choice(bodies)
    for _ in range(rng.randint(1, 3)):
        body = _changed(body, rng)
    raw = _json(body)
    if kind == 7:
        at = rng.randrange(len(raw))
        raw = raw[:at] + rng.choice((b"", b"\0", b"\xff", b"[" * 3_000, rng.randbytes(5))) + raw[at + 1 :]
    return Sent("POST", path, raw, None)


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()


def _row(label: tuple[str, str, str]) -> dict[str, str]:
    return dict(zip(("item", "annotator", "label"), label, strict=True))


def event(label: tuple[str, str, str], number: int) -> dict[str, Any]:
    result = [{"from_name": "c", "to_name": "i", "type": "choices", "value": {"choices": [label[2]]}}]
    return {
        "action": "ANNOTATION_CREATED",
        "project": {"id": 1, "label_config": CONFIG},
        "annotation": {"id": number, "task": number, "completed_by": {"email": label[1]}, "result": result},
        "task": {"id": number, "data": {"image": label[0]}},
    }


def _changed(body: Any, rng: random.Random) -> Any:
    """Replace a random part by anything."""
    if isinstance(body, dict) and body and rng.random() < 0.8:
        key = rng.choice(list(body))
        return {**body, key: _changed(body[key], rng)}
    if isinstance(body, list) and body and rng.random() < 0.8:
        at = rng.randrange(len(body))
        return [*body[:at], _changed(body[at], rng), *body[at + 1 :]]
    return odd_value(rng)


def client(netloc: str, numbers: range, seed: int) -> tuple[Counter[str], set[tuple[str, str, str]]]:
    """Send requests and return how they ended, and the labels that were acknowledged."""
    found: Counter[str] = Counter()
    taken = set()
    connection = http.client.HTTPConnection(netloc, timeout=PATIENCE)
    for number in numbers:
        sent = request(random.Random(f"{seed} {number}"), number)
        try:
            connection.request(sent.method, sent.path, sent.body, {"content-type": "application/json"})
            status = connection.getresponse()
            status.read()
        except TimeoutError:
            found["unanswered"] += 1
        except (OSError, http.client.HTTPException):
            found["closed"] += 1
        else:
            found["500" if status.status == 500 else f"{status.status // 100}xx"] += 1
            if sent.label is not None and status.status < 300:
                taken.add(sent.label)
            continue
        connection.close()
        connection = http.client.HTTPConnection(netloc, timeout=PATIENCE)
    connection.close()
    return found, taken


def torture(requests: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Return how the requests ended, and what went wrong."""
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen([*COMMAND, folder], stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        address = next(filter(None, (re.search(r"listening at (http://\S+)", line) for line in process.stderr)))[1]
        netloc = urlsplit(address).netloc
        host, port = netloc.split(":")
        halves = [socket.create_connection((host, int(port))) for _ in range(HALF_OPEN)]
        for half in halves:
            half.sendall(b"POST /v1/labels HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ")
        found: Counter[str] = Counter()
        taken: set[tuple[str, str, str]] = set()
        try:
            with ThreadPoolExecutor(CLIENTS) as pool:
                shares = (range(first, requests, CLIENTS) for first in range(CLIENTS))
                for ended, stored in pool.map(lambda share: client(netloc, share, seed), shares):
                    found, taken = found + ended, taken | stored
            connection = http.client.HTTPConnection(netloc, timeout=PATIENCE)
            connection.request("GET", "/metrics")
            metrics = connection.getresponse().read().decode()
        finally:
            for half in halves:
                half.close()
            process.terminate()
            process.communicate()
        journal = Journal(Path(folder))
        kept = {(said.item, said.annotator, said.label) for said in journal.state().labels}
        journal.close()
    wrong = [f"{name}: {found[name]}" for name in ("unanswered", "500", "closed") if found[name]]
    wrong += [f"{len(taken - kept)} acknowledged labels are lost"] if taken - kept else []
    failures = re.search(r"^crowdshot_fit_failures_total (\S+)", metrics, re.MULTILINE)
    wrong += ["a fit failed"] if failures is None or float(failures[1]) else []
    found["acknowledged labels"] = len(taken)
    return found, wrong


def main() -> int:
    parser = argparse.ArgumentParser(description="Random requests to the service.")
    parser.add_argument("--requests", type=int, default=24_000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    found, wrong = torture(given.requests, given.seed)
    for name, number in sorted(found.items()):
        print(f"{name:<24} {number:>9,}")
    for sentence in wrong:
        print(f"WRONG: {sentence}")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
