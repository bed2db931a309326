"""Measure the speed of the HTTP service, and the accuracy that its order of questions achieves.

    python benchmarks/live.py speed [--items 10000] [--people 20] [--seconds 30] [--rate 200]
    python benchmarks/live.py party [--data ../shared/data] [--items 300] [--people 20] [--repeats 3]

**speed**: ``people`` clients, each with its own connection, ask `/v1/next` and post one label per question, ``rate``
per second in all, to a service with ``items`` items and three labels of each. Prints percentiles of both, the achieved
rate, the time of fits, and the load of the machine before and after. Clients and service run on the same machine, so
other programs influence the numbers.

**party**: the people with the most labels in LabelMe and in CIFAR-10S label ``items`` images at once, over HTTP, from
one label per image to three. Their real labels are hidden and returned when asked for. In most cases the person never
saw the image; then the label is drawn from the person's labels for other images of its class, mixed with ALIKE labels
of the whole crowd. The people are real, but most of their labels are simulated. The order of questions is the service's
(`/v1/next`), random, or the item with the least agreement (the lowest share of its leading label, then the fewest
labels, then at random). All orders start with the same labels and are evaluated by the service's own consensus.
"""

import argparse
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote, urlsplit

import crowds
import numpy as np
import pandas as pd

CLASSES = 4  # of the simulated crowd
CROWDS = ("labelme", "cifar10s")
ORDERS = ("service", "random", "least agreement")
SHARES = (1.0, 1.5, 2.0, 2.5, 3.0)  # labels per item
ALIKE = 3.0  # labels of the whole crowd that are mixed with a person's labels for each class


# ---- the service and its clients ----


@contextmanager
def service(pairs, said):
    """Start a service and yield its address.

    ``pairs`` (person, item) are labelled from the start, with the labels ``said`` (people, items).
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = [(f"i{i}", f"p{p}", f"c{said[p, i]}") for p, i in pairs]
        pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(folder / "labels.csv", index=False)
        given = ["--labels", folder / "labels.csv", "--data", folder / "data", "--port", "0"]
        command = [sys.executable, "-m", "crowdshot", "serve", *map(str, given)]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
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
        """Return (answer, seconds)."""
        started = time.perf_counter()
        data = None if body is None else json.dumps(body)
        self.connection.request("GET" if body is None else "POST", path, data, {"content-type": "application/json"})
        answer = self.connection.getresponse()
        text = answer.read()
        assert answer.status < 300, (answer.status, text[:200])
        return text, time.perf_counter() - started

    def add(self, item, person, label):
        row = {"item": f"i{item}", "annotator": f"p{person}", "label": f"c{label}"}
        return self.send("/v1/labels", {"labels": [row]})[1]

    def next(self, person):
        """Return (item, seconds); the item is None if no question is useful."""
        text, seconds = self.send(f"/v1/next?annotator={quote(f'p{person}')}")
        questions = json.loads(text)["questions"]
        return (int(questions[0]["item"][1:]) if questions else None), seconds

    def metric(self, name):
        return float(re.search(rf"^crowdshot_{name} (\S+)$", self.send("/metrics")[0].decode(), re.M)[1])


# ---- speed ----


def simulated(items, people, seed=0):
    """Return (items,) truths and (people, items) labels; each person has an accuracy between 0.5 and 0.95."""
    random = np.random.default_rng(seed)
    truth = random.integers(CLASSES, size=items)
    skill = random.uniform(0.5, 0.95, people)
    wrong = (truth + random.integers(1, CLASSES, size=(people, items))) % CLASSES
    return truth, np.where(random.random((people, items)) < skill[:, None], truth, wrong)


def label_for_a_while(netloc, person, said, every, seconds):
    """Return (seconds of appends, of questions); requests start at fixed times, even if earlier ones are late."""
    client, appends, nexts = Client(netloc), [], []
    started = time.perf_counter() + every * np.random.default_rng(person).random()
    for turn in range(round(seconds / every)):
        time.sleep(max(0.0, started + turn * every - time.perf_counter()))
        item, took = client.next(person)
        nexts.append(took)
        item = turn if item is None else item
        appends.append(client.add(item, person, said[person, item]))
    return appends, nexts


def speed(options):
    _, said = simulated(options.items, options.people)
    random = np.random.default_rng(1)
    pairs = [(p, i) for i in range(options.items) for p in random.choice(options.people, 3, replace=False)]
    every = options.people / options.rate
    print(f"{os.cpu_count()} cores, load before: {os.getloadavg()[0]:.1f}")
    with service(pairs, said) as netloc, ThreadPoolExecutor(options.people) as pool:
        started = time.perf_counter()
        work = [pool.submit(label_for_a_while, netloc, p, said, every, options.seconds) for p in range(options.people)]
        found = [each.result() for each in work]
        took = time.perf_counter() - started
        client = Client(netloc)
        fits, last = client.metric("fits_total"), client.metric("fit_seconds")
    print(f"load after: {os.getloadavg()[0]:.1f}; {sum(len(each[0]) for each in found) / took:.0f} labels a second")
    for name, place in (("append", 0), ("next", 1)):
        times = 1000 * np.concatenate([each[place] for each in found])
        middle, high, most = np.quantile(times, [0.5, 0.99, 1])
        print(
            f"{name}: {len(times):,} requests, median {middle:.1f} ms, 99th percentile {high:.1f}, longest {most:.0f}"
        )
    print(f"fits: {fits:g}, the last took {last:.2f} s")


# ---- the party ----


def real(data, name, items, people, seed):
    """Return (items,) truths and (people, items) labels of the people with the most labels, as described above."""
    crowd = crowds.load(data, name)
    ann, truth, random = crowd.annotations, crowd.true_classes(), np.random.default_rng(seed)
    busiest = np.argsort(-np.bincount(ann.annotator, minlength=ann.n_annotators), kind="stable")[:people]
    rows = random.choice(np.flatnonzero(truth >= 0), items, replace=False)
    said = np.full((ann.n_annotators, ann.n_items), -1)
    said[ann.annotator, ann.item] = ann.label
    known = truth[ann.item] >= 0
    pooled = np.zeros((ann.n_classes, ann.n_classes))
    np.add.at(pooled, (truth[ann.item[known]], ann.label[known]), 1)
    pooled /= pooled.sum(1, keepdims=True)
    out = np.empty((people, items), dtype=int)
    for p, who in enumerate(busiest):
        counts = ALIKE * pooled
        seen = np.flatnonzero((said[who] >= 0) & (truth >= 0))
        np.add.at(counts, (truth[seen], said[who, seen]), 1)
        drawn = [random.choice(ann.n_classes, p=counts[truth[i]] / counts[truth[i]].sum()) for i in rows]
        out[p] = np.where(said[who, rows] >= 0, said[who, rows], drawn)
    given = (said[np.ix_(busiest, rows)] >= 0).mean()
    return truth[rows], out, float(given)


class Party:
    """The labels so far; several threads ask for the next item."""

    def __init__(self, order, said, start, seed):
        self.order, self.said, self.given = order, said, set(start)
        self.votes = np.zeros((said.shape[1], said.max() + 1))
        for p, i in start:
            self.votes[i, said[p, i]] += 1
        self.lock, self.random = threading.Lock(), np.random.default_rng(seed)

    def label(self, client, person):
        """Add one label of this person, if an item is left."""
        item = client.next(person)[0] if self.order == "service" else None
        with self.lock:
            if item is None or (person, item) in self.given:
                item = self.choose(person)
            if item is None:
                return
            self.given.add((person, item))
            self.votes[item, self.said[person, item]] += 1
        client.add(item, person, self.said[person, item])

    def choose(self, person):
        free = [i for i in range(self.said.shape[1]) if (person, i) not in self.given]
        if not free:
            return None
        if self.order != "least agreement":
            return int(self.random.choice(free))
        n = self.votes[free].sum(1)
        keys = np.lexsort((self.random.random(len(free)), n, self.votes[free].max(1) / np.maximum(n, 1)))
        return free[keys[0]]


def run(order, truth, said, start, seed):
    """Return the accuracy at each of SHARES."""
    people, items = said.shape
    party, found = Party(order, said, start, seed), []
    with service(start, said) as netloc, ThreadPoolExecutor(people) as pool:
        clients, judge = [Client(netloc) for _ in range(people)], Client(netloc)
        for share in SHARES:
            while (missing := round(share * items) - len(party.given)) > 0:
                work = [pool.submit(party.label, clients[p], p) for p in range(min(missing, people))]
                for each in work:
                    each.result()
            while judge.metric("labels") < len(party.given):
                time.sleep(0.05)
            rows = json.loads(judge.send("/v1/consensus")[0])["consensus"]
            found.append(np.mean([row["label"] == f"c{truth[int(row['item'][1:])]}" for row in rows]))
    return found


def hold_party(options):
    for name in CROWDS:
        tables = {order: [] for order in ORDERS}
        for seed in range(options.repeats):
            truth, said, given = real(options.data, name, options.items, options.people, seed)
            random = np.random.default_rng(seed)
            start = [(int(random.integers(options.people)), i) for i in range(options.items)]
            for order in ORDERS:
                tables[order].append(run(order, truth, said, start, seed))
        print(f"{name}: {options.items} images, {options.people} people, {given:.0%} of their answers real")
        print("| order | " + " | ".join(f"{share:g} labels per item" for share in SHARES) + " |")
        print("|---" * (len(SHARES) + 1) + "|")
        for order in ORDERS:
            middle = np.mean(tables[order], 0)
            away = np.subtract(tables[order], tables["random"])
            error = away.std(0, ddof=1) / np.sqrt(options.repeats) if options.repeats > 1 else np.zeros(len(SHARES))
            cells = [
                f"{a:.3f}" if order == "random" else f"{a:.3f} ({d:+.3f} ± {e:.3f})"
                for a, d, e in zip(middle, away.mean(0), error, strict=True)
            ]
            print(f"| {order} | " + " | ".join(cells) + " |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = parser.add_subparsers(dest="part", required=True)
    quick, long = parts.add_parser("speed"), parts.add_parser("party")
    for part, usual in ((quick, {"items": 10_000, "people": 20, "seconds": 30, "rate": 200}),
                        (long, {"items": 300, "people": 20, "repeats": 3})):  # fmt: skip
        for name, value in usual.items():
            part.add_argument(f"--{name}", type=int, default=value)
    long.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    {"speed": speed, "party": hold_party}[options.part](options)


if __name__ == "__main__":
    main()
