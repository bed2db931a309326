"""Measure what users wait for, such as seconds of whole commands, against what we aim for.

    python benchmarks/waiting.py [--labelme ../shared/data/labelme/LabelMe.zip] [--rows adapt-300 fit]

Commands and fits run in processes of their own, so that their peak memory is known. Wall seconds count two idle cores;
on a busy machine compare "ratio", the CPU seconds over those of a reference in the same run: scikit-learn's
LogisticRegression on 4,000 items, 64 features and 10 classes. Without LabelMe, `adapt` gets as many simulated feature
vectors and labels as LabelMe has photographs and labels. A new row is a function with the decorator `row`. The suite's
time is not a row: see the table of tests in CONTRIBUTING.md.

Profiles behind these rows:

    python -m cProfile -s cumtime -m crowdshot adapt labels.csv --images photos --out results --overwrite
    python benchmarks/report.py --features --items 300 3000 30000
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from aggregate import Time, crowd, measure_times

LABELME_KINDS = ("highway", "insidecity", "tallbuilding", "street", "forest", "coast", "mountain", "opencountry")
TIMES = 3  # runs of the reference


class Cost(NamedTuple):
    wall: float
    cpu: float
    peak: float  # megabytes
    first: float  # seconds until the first output, or the end

    def __str__(self) -> str:
        return f"{self.wall:.1f} s, {self.peak:,.0f} MB"


class Result(NamedTuple):
    now: object  # printed beside the aim
    cpu: float


class Row(NamedTuple):
    what: str
    aim: str
    run: Callable[[Path, Path | None], Result]


ROWS: dict[str, Row] = {}


def row(name: str, what: str, aim: str) -> Callable[[Callable[[Path, Path | None], Result]], None]:
    """Register a function of a temporary folder and the LabelMe archive as a row."""

    def register(run: Callable[[Path, Path | None], Result]) -> None:
        ROWS[name] = Row(what, aim, run)

    return register


def cost_of(command: list[str], folder: Path) -> Cost:
    start = time.perf_counter()
    environment = {**os.environ, "CROWDSHOT_CACHE": str(folder / "cache")}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout is not None
    output = os.read(process.stdout.fileno(), 1)
    first = time.perf_counter() - start
    output += process.stdout.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(output.decode())
    return Cost(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3, first)


# ---- data ----


def simulated(n: int, unlabelled: int, n_labels: int, D: int, K: int) -> tuple[np.ndarray, pd.DataFrame]:
    """Return features and labels of 59 annotators, right with probability 0.5 to 0.95; the last items have none."""
    random = np.random.default_rng(0)
    truth = random.integers(K, size=n + unlabelled)
    x = 0.4 * random.normal(size=(K, D))[truth] + random.normal(size=(len(truth), D))
    item = np.sort(np.arange(n_labels) % n)
    annotator = (random.integers(59, size=n)[item] + np.arange(n_labels)) % 59  # an item's labels are consecutive
    right = random.random(n_labels) < random.uniform(0.5, 0.95, 59)[annotator]
    label = np.where(right, truth[item], random.integers(K, size=n_labels))
    return x.astype(np.float32), pd.DataFrame({"item": item, "annotator": annotator, "label": label})


def write_labelme(archive: Path, folder: Path, n: int, unlabelled: int) -> None:
    with zipfile.ZipFile(archive) as files:
        names, answers = (
            [line.split() for line in files.read(f"LabelMe/{name}").decode().splitlines() if line.strip()]
            for name in ("filenames_train.txt", "answers.txt")
        )
        inside = {name.rsplit("/", 1)[-1]: name for name in files.namelist() if "/train/" in name}
        chosen = np.random.default_rng(0).permutation(len(names))[: n + unlabelled]
        (folder / "photos").mkdir()
        rows = []
        for place, i in enumerate(chosen):
            name = names[i][0]
            (folder / "photos" / name).write_bytes(files.read(inside[name]))
            given = [(r, int(k)) for r, k in enumerate(answers[i]) if k != "-1"] if place < n else []
            rows += [(name, f"w{r}", LABELME_KINDS[k]) for r, k in given]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(folder / "labels.csv", index=False)


# ---- rows ----


def adapt(folder: Path, labelme: Path | None, n: int, unlabelled: int, n_labels: int) -> Cost:
    """Return the cost of `adapt` when embeddings are cached."""
    if labelme is not None:
        write_labelme(labelme, folder, n, unlabelled)
        items = ["--images", str(folder / "photos")]
    else:
        x, labels = simulated(n, unlabelled, n_labels, 192, 8)
        np.savez(folder / "features.npz", ids=np.arange(len(x)), features=x)
        labels.to_csv(folder / "labels.csv", index=False)
        items = ["--features", str(folder / "features.npz")]
    out = ["--out", str(folder / "results"), "--overwrite"]
    command = [sys.executable, "-m", "crowdshot", "adapt", str(folder / "labels.csv"), *items, *out]
    cost_of(command, folder)
    return cost_of(command, folder)


@row("adapt-300", "adapt, 300 labelled + 60 other items, embeddings cached", "5 s")
def adapt_few(folder: Path, labelme: Path | None) -> Result:
    cost = adapt(folder, labelme, 300, 60, 767)
    return Result(f"{cost}, first output after {cost.first:.1f} s", cost.cpu)


@row("adapt-1000", "adapt, 1,000 items, 2,547 labels, embeddings cached", "10 s")
def adapt_more(folder: Path, labelme: Path | None) -> Result:
    cost = adapt(folder, labelme, 1_000, 0, 2_547)
    return Result(f"{cost}, first output after {cost.first:.1f} s", cost.cpu)


FIT = """
import sys, pandas as pd, numpy as np
from crowdshot import CrowdClassifier
model = CrowdClassifier().fit(np.load(sys.argv[1]), np.load(sys.argv[2]))
"""


def fit(folder: Path, then: str = "") -> Cost:
    """Return the cost of a process that fits 20,000 items, and then runs further lines."""
    x, labels = simulated(20_000, 0, 100_000, 200, 10)
    table = np.full((20_000, 59), -1)
    table[labels["item"], labels["annotator"]] = labels["label"]
    np.save(folder / "x.npy", x)
    np.save(folder / "labels.npy", table.astype(np.int8))
    return cost_of(
        [sys.executable, "-c", FIT + then, *(str(folder / f"{name}.npy") for name in ("x", "labels"))], folder
    )


@row("fit", "fit of 20,000 × 200 features, 5 labels each (with imports)", "5 s, 600 MB")
def fit_many(folder: Path, _: Path | None) -> Result:
    cost = fit(folder)
    return Result(cost, cost.cpu)


@row("saved", "saved model of 20,000 × 200 features (16 MB of them)", "22 MB")
def saved_model(folder: Path, _: Path | None) -> Result:
    path = folder / "model.safetensors"
    cost = fit(folder, f"model.save({str(path)!r})")
    return Result(f"{path.stat().st_size / 1e6:.1f} MB", cost.cpu)


@row("import", "from crowdshot import CrowdClassifier", "2.6 s")
def start(folder: Path, _: Path | None) -> Result:
    ours, torch = (
        cost_of([sys.executable, "-c", f"import {name}"], folder)
        for name in ("crowdshot; crowdshot.CrowdClassifier", "torch")
    )
    # no memory: this process has more, and a child's peak is at least its parent's (see startup.py)
    return Result(f"{ours.wall:.1f} s, {ours.cpu / torch.cpu:.2f} × import torch", ours.cpu)


@cache
def aggregation() -> dict[str, tuple[Time | None, Time, Time]]:
    return measure_times(crowd(1_000_000, 10, 5_000), 20)


@row("dawid-skene", "Dawid–Skene, 1e6 labels, 10 classes, 5,000 annotators, 20 steps, against crowd-kit", "40 ×")
def dawid_skene(folder: Path, _: Path | None) -> Result:
    theirs, ours, _whole = aggregation()["Dawid–Skene"]
    assert theirs is not None
    return Result(f"{theirs.wall / ours.wall:.0f} ×, by CPU seconds {theirs.cpu / ours.cpu:.0f} ×", ours.cpu)


@row("aggregate", "default aggregate of these labels, against this run of Dawid–Skene", "3 ×")
def label_model(folder: Path, _: Path | None) -> Result:
    times = aggregation()
    ours, other = times["label model"][1], times["Dawid–Skene"][1]
    return Result(f"{ours.wall / other.wall:.1f} ×, by CPU seconds {ours.cpu / other.cpu:.1f} ×", ours.cpu)


def reference() -> float:
    """Return the CPU seconds of scikit-learn's LogisticRegression, the median of some fits."""
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(0)
    truth = random.integers(10, size=4_000)
    x = random.normal(size=(10, 64))[truth] + 2 * random.normal(size=(4_000, 64))
    seconds = []
    for _ in range(TIMES):
        start = time.process_time()
        LogisticRegression(max_iter=300, tol=1e-6).fit(x, truth)
        seconds.append(time.process_time() - start)
    return float(np.median(seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labelme", type=Path, help="the archive; without it, items are simulated")
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    args = parser.parse_args()
    unit = reference()
    print(f"reference: {unit:.2f} CPU s; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores\n")
    print("| what | now | aim | CPU s | ratio |\n|---|---|---|---|---|")
    for name in ROWS:  # in this order, because a process starts with the peak memory of its parent
        if name not in args.rows:
            continue
        with tempfile.TemporaryDirectory() as folder:
            now, cpu = ROWS[name].run(Path(folder), args.labelme)
        print(f"| {ROWS[name].what} | {now} | {ROWS[name].aim} | {cpu:.1f} | {cpu / unit:.0f} |", flush=True)


if __name__ == "__main__":
    main()
