"""Run every command with a million labels of 10,000 annotators, 1,000 classes and 100,000 items: time and memory.

python -m torture.size --labels 1000000
"""

from __future__ import annotations

import argparse
import os
import resource
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

MOST_MEMORY = 10 * 2**30  # bytes of address space, which exceeds the memory in use
SECONDS = 600  # of processor time, which does not depend on other programs
LINES = {
    "aggregate": "aggregate labels.csv --out consensus.csv --annotators people.csv",
    "aggregate --method majority": "aggregate labels.csv --method majority --out majority.csv",
    "aggregate --method one-coin": "aggregate labels.csv --method one-coin --out one-coin.csv",
    "aggregate --method dawid-skene": "aggregate labels.csv --method dawid-skene --out dawid-skene.csv",
    "aggregate, Parquet": "aggregate labels.parquet --out consensus.csv",
    "next": "next labels.csv --budget 100 --out questions.csv",
    "adapt --features": "adapt labels.csv --features features.csv --out results",
    "predict": "predict results/model.safetensors --features features.csv --out predictions.csv",
    "compare": "compare results results --out compared.html",
}


class Taken(NamedTuple):
    code: int
    wall: float
    cpu: float
    megabytes: int
    said: str


def make_data(folder: Path, n_labels: int, seed: int = 0) -> None:
    """Write labels with the proportions of a million labels; annotators have an accuracy of 80 %."""
    rng = np.random.default_rng(seed)
    n_items, n_annotators, n_classes = max(4, n_labels // 10), max(3, n_labels // 100), max(2, n_labels // 1000)
    truth = rng.integers(0, n_classes, n_items)
    item, annotator = rng.integers(0, n_items, n_labels), rng.integers(0, n_annotators, n_labels)
    label = np.where(rng.random(n_labels) < 0.8, truth[item], rng.integers(0, n_classes, n_labels))
    table = pd.DataFrame({"item": item, "annotator": annotator, "label": label})
    for name, prefix in (("item", "item "), ("annotator", "ann"), ("label", "class ")):
        table[name] = prefix + table[name].astype(str)
    table.to_csv(folder / "labels.csv", index=False)
    table.to_parquet(folder / "labels.parquet", index=False)
    features = pd.DataFrame(rng.normal(size=(n_items, 16)) + rng.normal(size=(n_classes, 16))[truth] * 3)
    features.insert(0, "item", [f"item {i}" for i in range(n_items)])
    features.to_csv(folder / "features.csv", index=False)


def measure(line: str, folder: Path) -> Taken:
    """Run a command in a process of its own and measure it."""
    told = folder / "said.txt"
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        os.chdir(folder)
        to = os.open(told, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(to, 1)
        os.dup2(to, 2)
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
        os.execv(sys.executable, [sys.executable, "-m", "crowdshot", *line.split()])
    _, status, used = os.wait4(child, 0)
    last = told.read_text(errors="replace").strip().splitlines()[-1:]
    code = os.waitstatus_to_exitcode(status)
    return Taken(code, time.monotonic() - started, used.ru_utime + used.ru_stime, used.ru_maxrss // 1024, "".join(last))


def outcome(taken: Taken) -> str:
    if taken.code == -signal.SIGXCPU:
        return f"stopped after {SECONDS} CPU seconds"
    return {0: "done", 2: f"refused: {taken.said[:200]}"}.get(
        taken.code, f"ended with {taken.code}: {taken.said[:200]}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description="Large crowds through every command, as a table.")
    parser.add_argument("--labels", type=int, default=1_000_000)
    parser.add_argument("--only", default="", help="commands whose name has this in it, and what they need")
    given = parser.parse_args()
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_data(folder, given.labels)
        print("| command | outcome | CPU seconds | seconds | peak MB |\n|---|---|---|---|---|", flush=True)
        for command, line in LINES.items():
            if given.only in command:
                taken = measure(line, folder)
                wrong |= taken.code not in (0, 2)
                cells = (
                    f"`{command}`",
                    outcome(taken),
                    f"{taken.cpu:.0f}",
                    f"{taken.wall:.0f}",
                    f"{taken.megabytes:,}",
                )
                print(f"| {' | '.join(cells)} |", flush=True)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
