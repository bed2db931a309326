"""Kill the service while all its routes are used: it must keep all that it acknowledged, and nothing else.

python -m torture.serving --tries 20
"""

from __future__ import annotations

import argparse
import http.client
import itertools
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from crowdshot.service.journal import Journal
from torture.interruptions import report
from torture.requests import CONFIG, event

COMMAND = (sys.executable, "-m", "crowdshot", "serve", "--port", "0", "--data")
KILLED_AFTER = (0.0, 4.0)  # seconds
ITEMS = 100
PAUSE = 0.02  # seconds between two reading requests of a route
Label = tuple[str, str, str]


def _labels(number: int) -> tuple[bytes, Label]:
    label = _label(number)
    return _json({"labels": [dict(zip(("item", "annotator", "label"), label, strict=True))]}), label


def _event(number: int) -> tuple[bytes, Label]:
    """Return what Label Studio's webhook sends."""
    label = _label(number)
    return _json(event(label, number)), label


def _label(number: int) -> Label:
    """Return a label of its own item and annotator; one in 97 has an unknown class, which is held."""
    item, annotator = number % ITEMS, number // ITEMS
    return f"item {item}", f"ann{annotator}", "odd" if number % 97 == 0 else ("cat", "dog")[item % 2]


def _json(body: Any) -> bytes:
    return json.dumps(body).encode()


WRITES = {"/v1/labels": _labels, "/webhook": _event}
DECIDE = "POST /v1/review"
PAGES = ("/", "/health", "/metrics", "/versions", "/v1/consensus", "/v1/annotators", "/v1/model", "/v1/review")
READS = {
    **dict.fromkeys((*PAGES, "/v1/next?annotator=ann1")),
    "/setup": _json({"project": "1", "schema": CONFIG}),
    "/predict": _json({"tasks": [{"id": 1, "data": {"image": "item 1"}}], "project": "1", "label_config": CONFIG}),
    "/v1/predict": _json({"features": [[1.0, 2.0]]}),
}


class Traffic:
    """What was sent, what of it was acknowledged, and how often each route answered.

    ``decisions`` about the class "odd" are the last one that was acknowledged, and one that was sent afterwards.
    """

    def __init__(self) -> None:
        self.sent: set[Label] = set()
        self.taken: set[Label] = set()
        self.decisions: list[list[str | None]] = [[]]
        self.answers: Counter[str] = Counter()
        self.failures: list[str] = []

    def until_killed(self, folder: Path, first: int, seconds: float) -> None:
        """Send requests to all routes at once until the service is killed; ``first`` is the first label's number."""
        inputs = ("--labels", str(folder / "labels.csv"), "--features", str(folder / "features.csv"))
        line = [*COMMAND, str(folder / "journal"), *inputs]
        process = subprocess.Popen(line, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        found = next(filter(None, (re.search(r"listening at (http://\S+)", line) for line in process.stderr)), None)
        assert found is not None, "serve does not start on what a killed one left"
        clients = [partial(self._write, found[1], path, first + shift) for shift, path in enumerate(WRITES)]
        clients += [partial(self._read, found[1], path) for path in READS]
        clients += [partial(self._decide, found[1]), partial(self._watch, found[1])]
        threads = [threading.Thread(target=client) for client in clients]
        threads.append(threading.Timer(seconds, os.kill, (process.pid, signal.SIGKILL)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        process.communicate()

    def _write(self, address: str, path: str, first: int) -> None:
        for number in itertools.count(first, len(WRITES)):
            body, label = WRITES[path](number)
            self.sent.add(label)
            status = self._status(address, path, body, f"POST {path}")
            if status is None:
                return
            if status < 300:
                self.taken.add(label)

    def _decide(self, address: str) -> None:
        """Decide again and again what becomes of the class "odd", which is held first."""
        for becomes in itertools.cycle(("cat", None)):
            self.decisions.append([becomes])
            body = _json({"decisions": [{"kind": "class", "name": "odd", "becomes": becomes}]})
            status = self._status(address, "/v1/review", body, DECIDE)
            if status is None:
                return
            if status < 300:
                del self.decisions[:-1]
            else:
                self.decisions.pop()
            time.sleep(PAUSE)

    def _read(self, address: str, path: str) -> None:
        while self._status(address, path, READS[path], path) is not None:
            time.sleep(PAUSE)

    def _watch(self, address: str) -> None:
        """Hold a stream of events open."""
        with suppress(OSError, http.client.HTTPException):
            urllib.request.urlopen(f"{address}/v1/events", timeout=60).read()
        self.answers["/v1/events"] += 1

    def _status(self, address: str, path: str, body: bytes | None, route: str) -> int | None:
        """Return the status of the answer; None if the service is gone."""
        request = urllib.request.Request(f"{address}{path}", body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
                status = int(answer.status)
        except urllib.error.HTTPError as error:
            status = error.code
        except (OSError, http.client.HTTPException):
            return None
        self.answers[route if status < 400 else f"{route} refused"] += 1
        if status == 500:
            self.failures.append(f"{route} was answered with 500")
        return status


def torture(tries: int, seed: int) -> Counter[str]:
    rng = random.Random(seed)
    traffic = Traffic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [f"item {i},known{a},{('cat', 'dog')[i % 2]}" for i in range(ITEMS) for a in range(2)]
        (folder / "labels.csv").write_text("\n".join(["item,annotator,label", *rows, ""]))
        rows = [f"item {i},{i % 2 + rng.gauss(0, 0.3)},{rng.gauss(0, 1)}" for i in range(ITEMS)]
        (folder / "features.csv").write_text("\n".join(["item,a,b", *rows, ""]))
        for number in range(tries):
            traffic.until_killed(folder, number * 10**6, rng.uniform(*KILLED_AFTER))
            assert not traffic.failures, traffic.failures[0]
            time.sleep(0.1)
            journal = Journal(folder / "journal")
            kept = {(said.item, said.annotator, said.label or "") for said in journal.state().labels}
            decided = [each.becomes for each in journal.decisions() if each.name == "odd"]
            journal.close()
            assert traffic.taken <= kept, f"serve lost {len(traffic.taken - kept)} labels that it had acknowledged"
            assert kept <= traffic.sent, f"serve has {len(kept - traffic.sent)} labels that nobody gave"
            assert decided in traffic.decisions, "serve lost a decision"
            traffic.decisions = [decided]
    print(f"labels acknowledged: {len(traffic.taken):,}; answers: {dict(sorted(traffic.answers.items()))}")
    return Counter({"killed, nothing lost": tries})


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills of the service while labels come in.")
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    return report("serve", lambda: torture(given.tries, given.seed))


if __name__ == "__main__":
    sys.exit(main())
