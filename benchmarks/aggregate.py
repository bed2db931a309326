"""Compare crowdshot.aggregate with crowd-kit: time and peak memory of majority vote and Dawid–Skene.

    python benchmarks/aggregate.py                          # 1e4, 1e5 and 1e6 labels; about three minutes
    python benchmarks/aggregate.py --labels 10000 100000

Simulated crowds have 5 labels per item, integer ids, rows in random order, and 100, 500 and 5,000 annotators. Both
libraries run the same number of EM steps (``--steps``) in the same process, and their posteriors are compared.
crowd-kit starts from its table; crowdshot starts from Annotations ("ours") and from the same table ("with table", which
includes ``Annotations.from_frame``). Times are medians of up to 7 runs within 5 seconds. Memory is the increase of the
resident set of a new process over the loaded table (Linux only); for crowdshot it includes the Annotations.
"""

import argparse
import contextlib
import ctypes
import gc
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd

LABELS_AN_ITEM = 5
SELF = Path(__file__).resolve()
METHODS = ("majority vote", "Dawid–Skene")


def crowd(n_labels: int, n_classes: int, n_annotators: int, seed: int = 0) -> pd.DataFrame:
    """Return a table task, worker, label; each annotator is right with probability 0.3 to 0.9, else guesses."""
    rng = np.random.default_rng(seed)
    n_items = n_labels // LABELS_AN_ITEM
    item = np.repeat(np.arange(n_items), LABELS_AN_ITEM)
    # five different annotators per item: a random first one, then steps that together stay below a full round
    steps = rng.integers(1, n_annotators // LABELS_AN_ITEM, size=(n_items, LABELS_AN_ITEM))
    steps[:, 0] = rng.integers(n_annotators, size=n_items)
    annotator = (steps.cumsum(axis=1) % n_annotators).ravel()
    knows = rng.random(len(item)) < rng.uniform(0.3, 0.9, n_annotators)[annotator]
    truth = rng.integers(n_classes, size=n_items)
    label = np.where(knows, truth[item], rng.integers(n_classes, size=len(item)))
    order = rng.permutation(len(item))
    return pd.DataFrame({"task": item[order], "worker": annotator[order], "label": label[order]})


def crowdkit_methods(steps: int) -> dict[str, Callable[[pd.DataFrame], pd.DataFrame]]:
    from crowdkit.aggregation import DawidSkene, MajorityVote

    return {
        "majority vote": lambda df: MajorityVote().fit_predict_proba(df),
        "Dawid–Skene": lambda df: DawidSkene(n_iter=steps, tol=-np.inf).fit_predict_proba(df),
    }


def our_methods(steps: int) -> dict[str, Callable[[Any], Any]]:
    from crowdshot import aggregate

    return {
        "majority vote": aggregate.majority_vote,
        "Dawid–Skene": lambda ann: aggregate.dawid_skene(ann, steps=steps, tolerance=0),
    }


def timed(call: Callable[[], Any], runs: int = 7, limit: float = 5.0) -> tuple[float, Any]:
    """Return the median time in seconds and the result."""
    times: list[float] = []
    while len(times) < runs and sum(times) < limit:
        start = time.perf_counter()
        result = call()
        times.append(time.perf_counter() - start)
    return median(times), result


def measure_times(df: pd.DataFrame, method: str, steps: int) -> tuple[float, float, float]:
    """Return the seconds of crowd-kit, of crowdshot, and of crowdshot from the table."""
    from crowdshot.labels.annotations import Annotations

    ann = Annotations.from_frame(df)
    theirs, ours = crowdkit_methods(steps)[method], our_methods(steps)[method]
    their_time, expected = timed(lambda: theirs(df))
    our_time, found = timed(lambda: ours(ann))
    whole_time, _ = timed(lambda: ours(Annotations.from_frame(df)))
    difference = np.abs(found.probabilities - expected.loc[ann.items, ann.classes].to_numpy()).max()
    if difference > 1e-6:
        raise SystemExit(f"{method}: posteriors differ by {difference}, so the times are not comparable.")
    return their_time, our_time, whole_time


def measure_memory(side: str, size: tuple[int, int, int], steps: int) -> dict[str, float]:
    """Return the peak memory of each method in MB, each in a new process (this file with ``--memory``)."""
    command = [sys.executable, str(SELF), "--memory", side, *map(str, size), "--steps", str(steps)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(zip(METHODS, map(float, done.stdout.split()), strict=True))


def print_memory(side: str, size: tuple[int, int, int], steps: int) -> None:
    from crowdshot.labels.annotations import Annotations

    def run(method: str, df: pd.DataFrame) -> Any:
        if side == "crowd-kit":
            return crowdkit_methods(steps)[method](df)
        return our_methods(steps)[method](Annotations.from_frame(df))

    df = crowd(*size)
    for method in METHODS:
        run(method, crowd(200, size[1], 10))  # imports and other first-time costs
        gc.collect()
        with contextlib.suppress(AttributeError, OSError):
            ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")  # reset the peak
        before = _resident("VmRSS")
        run(method, df)
        print((_resident("VmHWM") - before) / 1e6)


def _resident(field: str) -> int:
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--labels", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--classes", type=int, nargs="+", default=[4, 10])
    parser.add_argument("--steps", type=int, default=20, help="EM steps of both (default 20)")
    parser.add_argument("--memory", nargs=4, metavar=("SIDE", "L", "K", "R"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # crowd-kit's, about pandas
    if options.memory:
        side, *size = options.memory
        print_memory(side, (int(size[0]), int(size[1]), int(size[2])), options.steps)
        return

    print(f"{'':38}seconds{'':30}peak memory, MB")
    print(
        f"{'labels':>9} {'K':>3}  {'method':<14}{'crowd-kit':>10} {'ours':>8} {'ratio':>6}"
        f" {'with table':>11} {'ratio':>6}   {'crowd-kit':>9} {'ours':>8} {'ratio':>6}"
    )
    annotators = {10_000: 100, 100_000: 500, 1_000_000: 5000}
    for n_labels in options.labels:
        for n_classes in options.classes:
            size = (n_labels, n_classes, annotators.get(n_labels, max(100, n_labels // 200)))
            df = crowd(*size)
            peaks = [
                measure_memory(side, size, 2) for side in ("crowd-kit", "ours")
            ]  # further steps need no more memory
            for method in METHODS:
                theirs, ours, whole = measure_times(df, method, options.steps)
                big, small = (peak[method] for peak in peaks)
                print(
                    f"{n_labels:>9,} {n_classes:>3}  {method:<14}{theirs:>10.4f} {ours:>8.4f} {theirs / ours:>6.1f}"
                    f" {whole:>11.4f} {theirs / whole:>6.1f}   {big:>9.1f} {small:>8.1f} {big / max(small, 0.1):>6.1f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
