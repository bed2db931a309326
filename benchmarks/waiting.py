"""Measure what users wait for: seconds of whole commands and fits, and peak memory, against what we aim for.

    python benchmarks/waiting.py [--labelme ../shared/data/labelme/LabelMe.zip] [--rows adapt-300 fit]

Each row runs in processes of its own, so that its peak memory is known. Wall seconds count two idle cores; on a busy
machine compare "ratio", the CPU seconds over those of a reference in the same run: scikit-learn's LogisticRegression on
4,000 items, 64 features and 10 classes. Without LabelMe, `adapt` gets as many simulated feature vectors and labels as
LabelMe has photographs and labels. A new row is a function with the decorator `row`.

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
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

LABELME_KINDS = ("highway", "insidecity", "tallbuilding", "street", "forest", "coast", "mountain", "opencountry")
TIMES = 3  # runs of the reference


class Cost(NamedTuple):
    wall: float
    cpu: float
    peak: float  # megabytes


class Row(NamedTuple):
    what: str
    aim: str
    run: Callable[[Path, Path | None], Cost]


ROWS: dict[str, Row] = {}


def row(name: str, what: str, aim: str) -> Callable[[Callable[[Path, Path | None], Cost]], None]:
    """Register a function of a temporary folder and the LabelMe archive as a row."""

    def register(run: Callable[[Path, Path | None], Cost]) -> None:
        ROWS[name] = Row(what, aim, run)

    return register


def cost_of(command: list[str], folder: Path) -> Cost:
    start = time.perf_counter()
    environment = {**os.environ, "CROWDSHOT_CACHE": str(folder / "cache")}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    errors = process.stderr.read()
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(errors.decode())
    return Cost(time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3)


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
def adapt_few(folder: Path, labelme: Path | None) -> Cost:
    return adapt(folder, labelme, 300, 60, 767)


@row("adapt-1000", "adapt, 1,000 items, 2,547 labels, embeddings cached", "10 s")
def adapt_more(folder: Path, labelme: Path | None) -> Cost:
    return adapt(folder, labelme, 1_000, 0, 2_547)


FIT = """
import sys, pandas as pd, numpy as np
from crowdshot import CrowdClassifier
CrowdClassifier().fit(np.load(sys.argv[1]), np.load(sys.argv[2]))
"""


@row("fit", "fit of 20,000 × 200 features, 5 labels each (with imports)", "5 s, 600 MB")
def fit_many(folder: Path, _: Path | None) -> Cost:
    x, labels = simulated(20_000, 0, 100_000, 200, 10)
    table = np.full((20_000, 59), -1)
    table[labels["item"], labels["annotator"]] = labels["label"]
    np.save(folder / "x.npy", x)
    np.save(folder / "labels.npy", table.astype(np.int8))
    return cost_of([sys.executable, "-c", FIT, str(folder / "x.npy"), str(folder / "labels.npy")], folder)


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
    for name in args.rows:
        with tempfile.TemporaryDirectory() as folder:
            cost = ROWS[name].run(Path(folder), args.labelme)
        now = f"{cost.wall:.1f} s, {cost.peak:,.0f} MB"
        print(f"| {ROWS[name].what} | {now} | {ROWS[name].aim} | {cost.cpu:.1f} | {cost.cpu / unit:.0f} |", flush=True)


if __name__ == "__main__":
    main()
