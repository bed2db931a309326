"""Send random requests to the service, right and wrong ones, from several clients at once.

    python -m torture.requests --requests 24000

The service has a classifier of small images. Requests send images, or their addresses on a host that is allowed, sound
and damaged ones; some of them must be predicted. Each request must be answered in time, and none with 500. Meanwhile
other connections send half a header. Afterwards all acknowledged labels are in the journal, and no fit has failed.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import random
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from crowdshot.service.journal import Journal
from torture.mutations import NUMBERS, WORDS, odd_value, suited
from torture.sound_files import picture

COMMAND = (sys.executable, "-m", "crowdshot", "serve", "--port", "0", "--data")
CLIENTS, HALF_OPEN, PATIENCE = 8, 100, 60.0
PHOTOS = 12  # of the labelled items
FORMATS = ("png", "jpeg", "gif", "webp", "bmp", "tiff")
FIRST_ID = 10**7  # of tasks with labels: a damaged id must not withdraw the label of another task
ROUTES = ("/predict", "/v1/predict")  # of predictions
CONFIG = (
    '<View><Image name="i" value="$image"/><Choices name="c" toName="i"><Choice value="cat"/><Choice value="dog"/>'
    "</Choices></View>"
)


class Sent(NamedTuple):
    method: str
    path: str
    body: bytes | None
    label: tuple[str, str, str] | None  # that must be stored if the answer is a success
    photos: str = ""  # the host of images, if the request only asks for predictions


def request(rng: random.Random, number: int, photos: str) -> Sent:
    """Draw a request; ``photos`` is the host of images."""
    label = (f"{number}.png", f"ann{rng.randrange(20)}", rng.choice(("cat", "dog")))
    kind = rng.randrange(10)
    if kind < 2:
        return Sent("POST", "/v1/labels", _json({"labels": [_row(label)]}), label)
    if kind == 2:
        return Sent("POST", "/webhook", _json(event(label, FIRST_ID + number)), label)
    if kind == 3:
        path = rng.choice(("/v1/next?annotator=", "/v1/consensus?limit=", "/v1/annotators?x=", "/v1/review?x=", "/"))
        return Sent("GET", path + quote(str(rng.choice((*WORDS, *NUMBERS))), errors="replace"), None, None)
    predictions: list[tuple[str, Any]] = [("/predict", _tasks(rng, photos)), ("/v1/predict", {"images": _images(rng)})]
    if kind < 6:
        path, body = rng.choice(predictions)
        return Sent("POST", path, _json(body), None, photos)
    bodies: list[tuple[str, Any]] = [
        ("/v1/labels", {"labels": [_row(label)]}),
        ("/webhook", event(label, FIRST_ID + number)),
        ("/setup", {"project": "1", "schema": CONFIG}),
        ("/v1/review", {"decisions": [{"kind": "class", "name": "owl", "becomes": "cat"}]}),
        ("/v1/predict", {"features": [[1.0, 2.0]], "texts": ["a"], "images": ["QQ=="]}),
        *predictions,
    ]
    path, body = rng.choice(bodies)
    for _ in range(rng.randint(1, 3)):
        body = _changed(body, rng)
    raw = _json(body)
    if kind == 9:
        at = rng.randrange(len(raw))
        raw = raw[:at] + rng.choice((b"", b"\0", b"\xff", b"[" * 3_000, rng.randbytes(5))) + raw[at + 1 :]
    return Sent("POST", path, raw, None)


def _image(rng: random.Random) -> bytes:
    """Return a small image; one of four is damaged."""
    ending = rng.choice(FORMATS)
    data = picture(ending, seed=rng.randrange(PHOTOS))
    return rng.choice(suited(f"a.{ending}"))(data, rng) if rng.random() < 0.25 else data


def _images(rng: random.Random) -> list[str]:
    return [base64.b64encode(_image(rng)).decode() for _ in range(rng.randint(1, 3))]


def _tasks(rng: random.Random, photos: str) -> Any:
    """Return what Label Studio sends to request predictions of images, by their names or addresses."""
    shown = [f"http://{photos}/{rng.randrange(10**6)}.png" for _ in range(rng.randint(1, 3))]
    shown.append(
        rng.choice((f"photo {rng.randrange(PHOTOS)}.png", "x", "http://127.0.0.1:1/a.png", f"ftp://{photos}/1.png"))
    )
    tasks = [{"id": f"p{place}", "data": {"image": each}, "annotations": []} for place, each in enumerate(shown)]
    return {"tasks": tasks, "project": "1.1", "label_config": CONFIG}


class Photos(BaseHTTPRequestHandler):
    """Answers an address with an image, or with an error, another address or less than announced."""

    def do_GET(self) -> None:
        rng = random.Random(self.path)
        data = _image(rng)
        status = rng.choice((200,) * 17 + (404, 302, 500))
        self.send_response(status)
        self.send_header("content-length", str(len(data) + 9 * (rng.random() < 0.1)))
        if status == 302:
            self.send_header("location", "http://127.0.0.1:1/")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def photos_host() -> Iterator[str]:
    """Serve images; yield the host and port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Photos)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


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


def client(netloc: str, photos: str, numbers: range, seed: int) -> tuple[Counter[str], set[tuple[str, str, str]]]:
    """Send requests and return how they ended, and the labels that were acknowledged."""
    found: Counter[str] = Counter()
    taken = set()
    connection = http.client.HTTPConnection(netloc, timeout=PATIENCE)
    for number in numbers:
        sent = request(random.Random(f"{seed} {number}"), number, photos)
        try:
            connection.request(sent.method, sent.path, sent.body, {"content-type": "application/json"})
            status = connection.getresponse()
            answer = status.read()
        except TimeoutError:
            found["unanswered"] += 1
        except (OSError, http.client.HTTPException):
            found["closed"] += 1
        else:
            found["500" if status.status == 500 else f"{status.status // 100}xx"] += 1
            if sent.photos and status.status < 300:
                found[f"predictions of {sent.path}"] += _predicted(sent, json.loads(answer))
            if sent.label is not None and status.status < 300:
                taken.add(sent.label)
            continue
        connection.close()
        connection = http.client.HTTPConnection(netloc, timeout=PATIENCE)
    connection.close()
    return found, taken


def _predicted(sent: Sent, answer: Any) -> int:
    """Return the number of images that the classifier predicted."""
    if sent.path == "/v1/predict":
        return len(answer["predictions"])
    assert sent.body is not None
    own = f"http://{sent.photos}/"
    tasks = json.loads(sent.body)["tasks"]
    found = zip(tasks, answer["results"], strict=True)
    return sum(bool(each["result"]) and task["data"]["image"].startswith(own) for task, each in found)


@contextmanager
def serving(folder: Path, photos: str) -> Iterator[str]:
    """Run the service with a classifier of small images; yield its host and port."""
    (folder / "photos").mkdir()
    rows = ["item,annotator,label"]
    for number in range(PHOTOS):
        (folder / "photos" / f"photo {number}.png").write_bytes(picture(seed=number))
        rows += [f"photo {number}.png,known{annotator},{('cat', 'dog')[number % 2]}" for annotator in range(2)]
    (folder / "labels.csv").write_text("\n".join([*rows, ""]))
    inputs = ("--labels", str(folder / "labels.csv"), "--images", str(folder / "photos"), "--encoder", "glyphs")
    line = [*COMMAND, str(folder / "journal"), *inputs, "--allow-host", photos]
    process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        address = next(filter(None, (re.search(r"listening at (http://\S+)", line) for line in process.stderr)))[1]
        netloc = urlsplit(address).netloc
        until = time.monotonic() + PATIENCE
        while _status(netloc, "/v1/model") != 200 and time.monotonic() < until:
            time.sleep(0.2)
        yield netloc
    finally:
        process.terminate()
        process.communicate()


def _status(netloc: str, path: str) -> int:
    connection = http.client.HTTPConnection(netloc, timeout=PATIENCE)
    connection.request("GET", path)
    status = connection.getresponse().status
    connection.close()
    return status


def torture(requests: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Return how the requests ended, and what went wrong."""
    with tempfile.TemporaryDirectory() as folder, photos_host() as photos:
        with serving(Path(folder), photos) as netloc:
            found, taken, metrics = _send(netloc, photos, requests, seed)
        journal = Journal(Path(folder) / "journal")
        kept = {(said.item, said.annotator, said.label) for said in journal.state().labels}
        journal.close()
    wrong = [f"{name}: {found[name]}" for name in ("unanswered", "500", "closed") if found[name]]
    wrong += [f"no prediction of {path}" for path in ROUTES if not found[f"predictions of {path}"]]
    wrong += [f"{len(taken - kept)} acknowledged labels are lost"] if taken - kept else []
    failures = re.search(r"^crowdshot_fit_failures_total (\S+)", metrics, re.MULTILINE)
    wrong += ["a fit failed"] if failures is None or float(failures[1]) else []
    found["acknowledged labels"] = len(taken)
    return found, wrong


def _send(netloc: str, photos: str, requests: int, seed: int) -> tuple[Counter[str], set[tuple[str, str, str]], str]:
    """Return how the requests ended, the acknowledged labels, and the metrics of the service."""
    host, port = netloc.split(":")
    halves = [socket.create_connection((host, int(port))) for _ in range(HALF_OPEN)]
    for half in halves:
        half.sendall(b"POST /v1/labels HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Half: ")
    found: Counter[str] = Counter()
    taken: set[tuple[str, str, str]] = set()
    try:
        with ThreadPoolExecutor(CLIENTS) as pool:
            shares = (range(first, requests, CLIENTS) for first in range(CLIENTS))
            for ended, stored in pool.map(lambda share: client(netloc, photos, share, seed), shares):
                found, taken = found + ended, taken | stored
        connection = http.client.HTTPConnection(netloc, timeout=PATIENCE)
        connection.request("GET", "/metrics")
        metrics = connection.getresponse().read().decode()
        connection.close()
    finally:
        for half in halves:
            half.close()
    return found, taken, metrics


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
