"""A label party over HTTP: how fast the service takes labels and asks questions, and what its order of asking is worth.

    python benchmarks/live.py [--items 10000] [--people 20] [--seconds 30] [--rate 200] [--party 120]

First ``people`` clients post labels at ``rate`` a second in all and ask `/v1/next`, one question a label, to a service
with ``items`` items and three labels of each; printed are the 50th and 99th percentile of both and how long fits took.
The clients run in processes of their own, on the same machine. Then a party: answers of a simulated crowd are held back
and given one by one, in the service's order, in random order and to items with the least agreement; printed is how
often the consensus is right after so many labels an item. No threshold is a test: these are numbers to look at.
"""

import argparse
import http.client
import json
import multiprocessing
import re
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import numpy as np
import pandas as pd

CLASSES = 4


def crowd(items, people, seed=0):
    """(items,) truths and (people, items) answers: each is right with a probability of their own, from 0.5 to 0.95."""
    random = np.random.default_rng(seed)
    truth = random.integers(CLASSES, size=items)
    skill = random.uniform(0.5, 0.95, people)
    wrong = (truth + random.integers(1, CLASSES, size=(people, items))) % CLASSES
    return truth, np.where(random.random((people, items)) < skill[:, None], truth, wrong)


def table(pairs, said):
    return pd.DataFrame(
        [(f"i{i}", f"p{p}", f"c{said[p, i]}") for p, i in pairs], columns=["item", "annotator", "label"]
    )


@contextmanager
def service(labels, folder):
    path = folder / "labels.csv"
    labels.to_csv(path, index=False)
    command = [sys.executable, "-m", "crowdshot", "serve", "--labels", path, "--data", folder / "data", "--port", "0"]
    process = subprocess.Popen(list(map(str, command)), stderr=subprocess.PIPE, text=True)
    try:
        found = next(found for line in process.stderr if (found := re.search(r"listening at (http://\S+)", line)))
        yield urlsplit(found[1]).netloc
    finally:
        process.terminate()
        process.communicate()


class Client:
    def __init__(self, netloc):
        self.connection = http.client.HTTPConnection(netloc, timeout=60)

    def send(self, path, body=None):
        """-> (answer, seconds)"""
        started = time.perf_counter()
        data = None if body is None else json.dumps(body)
        headers = {"content-type": "application/json"}
        self.connection.request("GET" if body is None else "POST", path, data, headers)
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status < 300, (answer.status, text[:200])
        return text, time.perf_counter() - started

    def add(self, item, annotator, label):
        return self.send("/v1/labels", {"labels": [{"item": item, "annotator": annotator, "label": label}]})[1]

    def next(self, annotator):
        text, seconds = self.send(f"/v1/next?annotator={quote(annotator)}")
        questions = json.loads(text)["questions"]
        return questions[0]["item"] if questions else None, seconds


def label_for_a_while(netloc, people, said, every, seconds, out):
    """Some of the people take turns, one label each ``every`` seconds."""
    client, appends, nexts, late = Client(netloc), [], [], 0
    started = time.monotonic()
    for turn in range(int(seconds / every)):
        wait = started + turn * every - time.monotonic()
        late += wait < -every
        time.sleep(max(0, wait))
        person = people[turn % len(people)]
        item, took = client.next(f"p{person}")
        nexts.append(took)
        item = item or f"i{turn}"
        appends.append(client.add(item, f"p{person}", f"c{said[person, int(item[1:])]}"))
    out.put((appends, nexts, late))


def speed(options):
    _, said = crowd(options.items, options.people)
    random = np.random.default_rng(1)
    pairs = [(p, i) for i in range(options.items) for p in random.choice(options.people, 3, replace=False)]
    context, n_clients = multiprocessing.get_context("spawn"), 2
    with tempfile.TemporaryDirectory() as folder, service(table(pairs, said), Path(folder)) as netloc:
        out = context.Queue()
        groups = np.array_split(np.arange(options.people), n_clients)
        every = n_clients / options.rate
        clients = [
            context.Process(target=label_for_a_while, args=(netloc, group.tolist(), said, every, options.seconds, out))
            for group in groups
        ]
        for each in clients:
            each.start()
        found = [out.get() for _ in clients]
        for each in clients:
            each.join()
        metrics = Client(netloc).send("/metrics")[0].decode()
    fits, last = (re.search(rf"^crowdshot_{name} (\S+)$", metrics, re.M)[1] for name in ("fits_total", "fit_seconds"))
    for name, place in (("append", 0), ("next", 1)):
        times = 1000 * np.concatenate([each[place] for each in found])
        middle, high = np.quantile(times, [0.5, 0.99])
        print(f"{name}: {len(times):,} requests, median {middle:.1f} ms, 99th percentile {high:.1f} ms")
    print(f"turns that began late: {sum(each[2] for each in found):,}; fits: {fits}, the last took {last} s")


def party(options):
    """Accuracy after 1, 2, 3 more labels an item, by the order in which items are asked about."""
    n = options.party
    truth, said = crowd(n, options.people, seed=2)
    random = np.random.default_rng(3)
    start = [(int(random.integers(options.people)), i) for i in range(n)]
    print("order," + ",".join(f"{share:g} labels an item" for share in (1, 1.5, 2, 3)))
    for order in ("service", "random", "least agreement"):
        shares = {1.0: 0.0, 1.5: 0.0, 2.0: 0.0, 3.0: 0.0}
        with tempfile.TemporaryDirectory() as folder, service(table(start, said), Path(folder)) as netloc:
            client, random, given = Client(netloc), np.random.default_rng(4), set(start)
            for step in range(int(2 * n) + 1):
                share = (n + step) / n
                if share in shares:
                    shares[share] = accuracy(client, truth, len(given))
                person = int(random.integers(options.people))
                item = choose(order, client, person, given, n, said, random)
                if item is None:
                    continue
                given.add((person, item))
                client.add(f"i{item}", f"p{person}", f"c{said[person, item]}")
        print(order + "," + ",".join(f"{found:.3f}" for found in shares.values()), flush=True)


def choose(order, client, person, given, n, said, random):
    free = [i for i in range(n) if (person, i) not in given]
    if not free:
        return None
    if order == "service":
        item = client.next(f"p{person}")[0]
        return int(item[1:]) if item else int(random.choice(free))
    if order == "random":
        return int(random.choice(free))
    votes = np.zeros((n, CLASSES))
    for p, i in given:
        votes[i, said[p, i]] += 1
    agreement = votes.max(1) / votes.sum(1) + 1e-3 * votes.sum(1)  # of equal ones, the one with fewer labels
    return min(free, key=lambda i: agreement[i])


def accuracy(client, truth, labels):
    """Once the version knows all labels."""
    while f"crowdshot_labels {labels}\n" not in client.send("/metrics")[0].decode():
        time.sleep(0.05)
    rows = json.loads(client.send("/v1/consensus")[0])["consensus"]
    return float(np.mean([row["label"] == f"c{truth[int(row['item'][1:])]}" for row in rows]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, usual in {"items": 10_000, "people": 20, "seconds": 30, "rate": 200, "party": 120}.items():
        parser.add_argument(f"--{name}", type=int, default=usual)
    options = parser.parse_args()
    speed(options)
    party(options)


if __name__ == "__main__":
    main()
