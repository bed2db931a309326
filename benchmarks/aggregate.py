"""Compare crowdshot.aggregate with crowd-kit: time and peak memory of aggregation methods.

    python benchmarks/aggregate.py                          # 1e5, 1e6 and 1e7 labels; about fifteen minutes
    python benchmarks/aggregate.py --labels 10000 100000

Simulated crowds have 5 labels per item, integer ids, rows in random order, and 100, 500, 5,000 and 50,000 annotators.
Both libraries run the same number of EM steps (``--steps``, a quarter of it above 1e6 labels) in the same process, and
their posteriors are compared. crowd-kit starts from its table; crowdshot starts from Annotations ("ours") and from the
same table ("with table", which includes ``Annotations.from_frame``). The one-coin model and the default method have no
counterpart in crowd-kit. Their times are compared with our Dawid–Skene run ("of DS").

Times are the least of up to 7 runs within 5 seconds, wall clock and, in brackets, CPU of all threads. Memory is the
increase of the resident set of a new process over the loaded table (Linux only); for crowdshot it includes the
Annotations.
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
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

LABELS_AN_ITEM = 5
SELF = Path(__file__).resolve()
METHODS = ("majority vote", "Dawid–Skene")  # of both libraries


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
        "one coin": lambda ann: aggregate.one_coin(ann, steps=steps, tolerance=0),
        "label model": aggregate.learned,
    }


class Time(NamedTuple):
    """Seconds of the fastest run."""

    wall: float
    cpu: float

    def __str__(self) -> str:
        return f"{self.wall:8.3f} ({self.cpu:8.3f})"


def timed(call: Callable[[], Any], runs: int = 7, limit: float = 5.0) -> tuple[Time, Any]:
    """Return the least wall and CPU time, and the result."""
    times: list[Time] = []
    while len(times) < runs and sum(time.wall for time in times) < limit:
        wall, cpu = time.perf_counter(), time.process_time()
        result = call()
        times.append(Time(time.perf_counter() - wall, time.process_time() - cpu))
    return Time(*map(min, zip(*times, strict=True))), result


def measure_times(df: pd.DataFrame, steps: int) -> dict[str, tuple[Time | None, Time, Time]]:
    """Return for each method the times of crowd-kit, of crowdshot, and of crowdshot from the table."""
    from crowdshot.labels.annotations import Annotations

    ann, theirs = Annotations.from_frame(df), crowdkit_methods(steps)
    times: dict[str, tuple[Time | None, Time, Time]] = {}
    for method, ours in our_methods(steps).items():
        our_time, found = timed(lambda ours=ours: ours(ann))
        whole_time, _ = timed(lambda ours=ours: ours(Annotations.from_frame(df)))
        their_time = None
        if method in theirs:
            their_time, expected = timed(lambda method=method: theirs[method](df))
            difference = np.abs(found.probabilities - expected.loc[ann.items, ann.classes].to_numpy()).max()
            if difference > 1e-6:
                raise SystemExit(f"{method}: posteriors differ by {difference}, so the times are not comparable.")
        times[method] = their_time, our_time, whole_time
    return times


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
    parser.add_argument("--labels", type=int, nargs="+", default=[100_000, 1_000_000, 10_000_000])
    parser.add_argument("--classes", type=int, nargs="+", default=[4, 10])
    parser.add_argument("--steps", type=int, default=20, help="EM steps of both (default 20)")
    parser.add_argument("--memory", nargs=4, metavar=("SIDE", "L", "K", "R"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # crowd-kit's, about pandas
    if options.memory:
        side, *size = options.memory
        print_memory(side, (int(size[0]), int(size[1]), int(size[2])), options.steps)
        return

    print(
        f"{'labels':>10} {'K':>3}  {'method':<14}{'crowd-kit, s (CPU)':>19} {'ours, s (CPU)':>19} {'ratio (CPU)':>14}"
        f" {'with table':>11} {'ratio':>6} {'of DS':>6}   {'crowd-kit':>9} {'ours, MB':>9} {'ratio':>6}"
    )
    annotators = {10_000: 100, 100_000: 500, 1_000_000: 5000}
    for n_labels in options.labels:
        for n_classes in options.classes:
            size = (n_labels, n_classes, annotators.get(n_labels, max(100, n_labels // 200)))
            steps = options.steps if n_labels <= 1_000_000 else max(1, options.steps // 4)
            print_comparison(size, measure_times(crowd(*size), steps))


def print_comparison(size: tuple[int, int, int], times: dict[str, tuple[Time | None, Time, Time]]) -> None:
    """Print a line for each method."""
    peaks = [measure_memory(side, size, 2) for side in ("crowd-kit", "ours")]  # further steps need no more memory
    for method, (theirs, ours, whole) in times.items():
        of_ds = ours.wall / times["Dawid–Skene"][1].wall
        line = f"{size[0]:>10,} {size[1]:>3}  {method:<14}"
        if theirs is None:
            line += f"{'':>19} {ours} {'':>14} {whole.wall:>11.3f} {'':>6} {of_ds:>6.1f}"
        else:
            big, small = (peak[method] for peak in peaks)
            line += f"{theirs} {ours} {theirs.wall / ours.wall:>6.1f} ({theirs.cpu / ours.cpu:5.1f})"
            line += f" {whole.wall:>11.3f} {theirs.wall / whole.wall:>6.1f} {of_ds:>6.1f}"
            line += f"   {big:>9.1f} {small:>9.1f} {big / max(small, 0.1):>6.1f}"
        print(line, flush=True)


if __name__ == "__main__":
    main()
