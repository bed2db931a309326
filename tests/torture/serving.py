"""Kill the service at any moment while labels come in: it must keep all acknowledged labels and no others.

python -m torture.serving --tries 20
"""

from __future__ import annotations

import argparse
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
from pathlib import Path

from crowdshot.service.journal import Journal
from torture.interruptions import report
from torture.requests import event

COMMAND = (sys.executable, "-m", "crowdshot", "serve", "--port", "0", "--data")
LONGEST = 1.5  # seconds until the kill
Label = tuple[str, str, str]


def attempt(data: Path, number: int, seconds: float) -> tuple[set[Label], set[Label]]:
    """Return the labels that were sent until the service was killed, and those that it acknowledged."""
    process = subprocess.Popen([*COMMAND, str(data)], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    found = next(filter(None, (re.search(r"listening at (http://\S+)", line) for line in process.stderr)), None)
    assert found is not None, "serve does not start on what a killed one left"
    killer = threading.Timer(seconds, os.kill, (process.pid, signal.SIGKILL))
    killer.start()
    sent, taken = set(), set()
    try:
        for i in range(10**6):
            label = (f"item {number}.{i}", f"ann{i % 3}", ("cat", "dog")[i % 4 // 2])
            sent.add(label)
            _post(found[1], label, number * 10**6 + i)
            taken.add(label)
    except (OSError, urllib.error.URLError, ValueError):  # it is gone
        pass
    finally:
        killer.join()
        process.communicate()
    return sent, taken


def _post(address: str, label: Label, number: int) -> None:
    """Send a label as a client does, or as Label Studio's webhook does."""
    path, body = "/v1/labels", {"labels": [dict(zip(("item", "annotator", "label"), label, strict=True))]}
    if number % 2:
        path, body = "/webhook", event(label, number)
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(f"{address}{path}", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        json.load(answer)


def torture(tries: int, seed: int) -> Counter[str]:
    rng = random.Random(seed)
    ended: Counter[str] = Counter()
    sent: set[Label] = set()
    taken: set[Label] = set()
    with tempfile.TemporaryDirectory() as folder:
        for number in range(tries):
            more, acknowledged = attempt(Path(folder), number, rng.uniform(0, LONGEST))
            sent, taken = sent | more, taken | acknowledged
            time.sleep(0.1)
            journal = Journal(Path(folder))
            kept = {(said.item, said.annotator, said.label or "") for said in journal.state().labels}
            journal.close()
            assert taken <= kept, f"serve lost {len(taken - kept)} labels that it had acknowledged"
            assert kept <= sent, f"serve has {len(kept - sent)} labels that nobody gave"
            ended["killed, nothing lost"] += 1
    ended[f"labels acknowledged: {len(taken)}"] = 0
    return ended


def main() -> int:
    parser = argparse.ArgumentParser(description="Kills of the service while labels come in.")
    parser.add_argument("--tries", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    return report("serve", lambda: torture(given.tries, given.seed))


if __name__ == "__main__":
    sys.exit(main())
