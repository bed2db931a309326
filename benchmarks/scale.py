"""Measure throughput, memory and linearity of ``aggregate --engine local`` from 1e6 labels on.

    python benchmarks/scale.py [--labels 1e6 1e7 3e7 1e8] [--annotators 50000] [--memory 4GB] [--kind text] [--ray]

Simulated crowds have 4 classes and 5 labels per item, whose rows are in different files. Each size is written to
Parquet once and aggregated by the command in a process of its own, by Dawid-Skene with 20 steps and by the default.
Prints the time of reading (until the first step) and of aggregation, and the peak resident memory of all processes
together. crowd-kit's Dawid-Skene with the same number of steps is measured for comparison if memory and time allow, in
every run, so that ratios do not depend on other programs. Every row shows the load of the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from rows import markdown

CLASSES, LABELS_AN_ITEM, STEPS = 4, 5, 20
FILE = 2_000_000  # labels
STRIDE = 7_919  # items between a label and the next, so that labels of one item are far apart
CROWDKIT = 3_000_000  # labels at most


def write(folder: Path, n_labels: int, n_annotators: int, kind: str) -> None:
    random = np.random.default_rng(0)
    n_items = n_labels // LABELS_AN_ITEM
    truth = random.integers(CLASSES, size=n_items)
    skill = random.uniform(0.3, 0.95, n_annotators)
    for number, start in enumerate(range(0, n_labels, FILE)):
        n = min(FILE, n_labels - start)
        item = np.arange(start, start + n) * STRIDE % n_items
        annotator = random.integers(n_annotators, size=n)
        right = random.random(n) < skill[annotator]
        label = np.where(right, truth[item], random.integers(CLASSES, size=n))
        columns = {"item": pa.array(item), "annotator": pa.array(annotator), "label": pa.array(label)}
        if kind == "text":
            columns = {
                name: pa.compute.binary_join_element_wise(name[:3], values.cast(pa.string()), "-")
                for name, values in columns.items()
            }
        pa.parquet.write_table(pa.table(columns), folder / f"labels-{number:05d}.parquet", row_group_size=1_000_000)


def tree(process: int) -> list[int]:
    """Return a process and its descendants."""
    out = [process]
    for task in Path(f"/proc/{process}/task").glob("*/children"):
        for child in task.read_text().split():
            out += tree(int(child))
    return out


def resident(process: int) -> int:
    """Return the resident bytes of all processes, including mapped pages of files."""
    total = 0
    for each in tree(process):
        try:
            lines = Path(f"/proc/{each}/status").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))
    return total


def cpu(process: int) -> float:
    """Return the processor seconds of all processes, including those of ended children."""
    ticks = 0
    for each in tree(process):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        ticks += sum(map(int, fields[11:15]))
    return ticks / os.sysconf("SC_CLK_TCK")


def timed(command: list[str], work: Path) -> tuple[dict[str, float], float]:
    """Return wall-clock and processor seconds of the stages, and the peak memory in bytes.

    Stages end when names are known, after the first and the last step, and at the end. The state after a step is saved
    to a file, whose modification time is used.
    """
    began = time.time()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    seen: dict[str, float] = {}
    peak = 0

    def watch() -> None:
        nonlocal peak
        while process.poll() is None:
            try:
                peak = max(peak, resident(process.pid))
                seen["end cpu"] = cpu(process.pid)
                for name in ("names", "state"):
                    if not (work / name).exists():
                        continue
                    at = (work / name).stat().st_mtime - began
                    seen.setdefault(f"{name} cpu", seen["end cpu"])
                    seen.setdefault(name, at)
                    if name == "state" and seen.get("steps") != at:
                        seen["steps"], seen["steps cpu"] = at, seen["end cpu"]
            except OSError:  # the process has ended
                pass
            time.sleep(0.03)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out, _ = process.communicate()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {out}")
    seen["end"] = time.time() - began
    return seen, peak


ALL_STEPS = """
import sys
from crowdshot._cli import aggregate_parts
from crowdshot._cli.main import main
from crowdshot.labels import ways
from crowdshot.model.dawid_skene import Em
n = int(sys.argv.pop(1))
if n:
    aggregate_parts.cores = lambda: n
ways.Em = lambda *given, **settings: Em(*given, **{**settings, "tolerance": 0.0})
main()
"""


def ours(
    folder: Path, method: str, steps: int, memory: str, engine: str = "local", workers: int = 0
) -> dict[str, float]:
    """Run the command with all steps, without stopping at convergence, as on ``workers`` cores."""
    with tempfile.TemporaryDirectory(dir=folder.parent) as out:
        target = Path(out) / "consensus"
        command = [sys.executable, "-c", ALL_STEPS, str(workers)]
        command += ["aggregate", str(folder / "*.parquet"), "--method", method, "--categories", "--json"]
        command += ["--steps", str(steps), "--engine", engine, "--memory", memory, "--out", str(target)]
        seen, peak = timed(command, target / "_work")
    return {**seen, "peak GB": peak / 1e9}


def crowdkit(folder: Path) -> float:
    """Measure crowd-kit, which uses one core: processor time is close to wall-clock time."""
    code = (
        "import sys, time, pandas as pd; from crowdkit.aggregation import DawidSkene; df = pd.read_parquet(sys.argv[1])"
        "\ndf.columns = ['task', 'worker', 'label']\nbegan = time.perf_counter()\n"
        f"DawidSkene(n_iter={STEPS}, tol=-1.0).fit_predict_proba(df)\nprint(time.perf_counter() - began)"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(folder)], capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def in_memory(n_labels: int, n_annotators: int) -> dict[str, float]:
    """Return label-steps per second (wall-clock and processor) of one process with the labels in memory."""
    from crowdshot import Annotations, aggregate

    random = np.random.default_rng(0)
    n_items = n_labels // LABELS_AN_ITEM
    item = np.arange(n_labels) * STRIDE % n_items
    label = np.where(random.random(n_labels) < 0.7, item % CLASSES, random.integers(CLASSES, size=n_labels))
    annotator = random.integers(n_annotators, size=n_labels)
    names = {"items": np.arange(n_items), "annotators": np.arange(n_annotators), "classes": np.arange(CLASSES)}
    ann = Annotations(item=item, annotator=annotator, label=label, **names)
    wall, cpu = time.perf_counter(), time.process_time()
    aggregate.dawid_skene(ann, steps=STEPS, tolerance=0)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return {"wall": STEPS * n_labels / wall, "cpu": STEPS * n_labels / cpu}


def row(n_labels: int, args: argparse.Namespace, folder: Path) -> dict[str, object]:
    n_annotators = min(args.annotators, max(20, n_labels // args.labels_each))
    labels = folder / "labels"
    labels.mkdir()
    write(labels, n_labels, n_annotators, args.kind)
    load = os.getloadavg()[0]
    ds = ours(labels, "dawid-skene", STEPS, args.memory)
    stepped, stepped_cpu = ds["steps"] - ds["state"], ds["steps cpu"] - ds["state cpu"]
    out: dict[str, object] = {
        "labels": f"{n_labels:.0e}",
        "annotators": f"{n_annotators:,}",
        "reading, s": ds["names"],
        "sorting, s": ds["state"] - ds["names"],
        "20 steps, s": stepped,
        "writing, s": ds["end"] - ds["steps"],
        "in all, s": ds["end"],
        "million label-steps/s": STEPS * n_labels / stepped / 1e6,
        "reading and sorting, CPU s": ds["state cpu"],
        "20 steps, CPU s": stepped_cpu,
        "writing, CPU s": ds["end cpu"] - ds["steps cpu"],
        "million label-steps a CPU-second": STEPS * n_labels / stepped_cpu / 1e6,
        "in all / steps": ds["end"] / stepped,
        "peak GB": ds["peak GB"],
    }
    if args.default >= n_labels:
        default = ours(labels, "learned", 3, args.memory)
        out["default in all, s"] = default["end"]
        out["default in all, CPU s"] = default["end cpu"]
        out["default, peak GB"] = default["peak GB"]
    if args.in_memory >= n_labels:
        speeds = in_memory(n_labels, n_annotators)
        out["in memory, million label-steps/s"] = speeds["wall"] / 1e6
        out["a CPU-second"] = speeds["cpu"] / 1e6
    if args.ray:
        one, two = (ours(labels, "dawid-skene", STEPS, args.memory, "ray", workers) for workers in (1, 2))
        out |= {f"Ray's {STEPS} steps, {n} actors, s": ray["steps"] - ray["state"] for n, ray in ((1, one), (2, two))}
        out["efficiency of two"] = (one["steps"] - one["state"]) / (two["steps"] - two["state"]) / 2
    if args.crowdkit >= n_labels:
        theirs = crowdkit(labels)
        out["crowd-kit's steps, s"] = theirs
        out["crowd-kit / ours"] = theirs / stepped
    out["load"] = load
    shutil.rmtree(labels)
    return out


def line(table: pd.DataFrame) -> pd.DataFrame:
    """Extrapolate the line through the three largest sizes to 1e9 labels; also return its deviation."""
    table = table[-3:]
    labels = table["labels"].astype(float)
    out = []
    for column in ("reading and sorting, CPU s", "20 steps, CPU s", "writing, CPU s", "in all, s"):
        slope, start = np.polyfit(labels, table[column], 1)
        fitted = start + slope * labels
        worst = float((np.abs(fitted - table[column]) / table[column]).max())
        told = {
            "what": column,
            "s for 1e6 more": slope * 1e6,
            "off by at most": worst,
            "1e9 labels, min": slope * 1e9 / 60,
        }
        out.append(told)
    return pd.DataFrame(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--labels", type=float, nargs="+", default=[1e6, 1e7])
    parser.add_argument("--annotators", type=lambda text: int(float(text)), default=50_000)
    parser.add_argument("--labels-each", type=int, default=200, help="of an annotator at least, while they are fewer")
    parser.add_argument("--memory", default="4GB")
    parser.add_argument("--kind", choices=["text", "numbers"], default="text", help="what ids are")
    parser.add_argument("--crowdkit", type=float, default=CROWDKIT, help="labels up to which it runs; 0: never")
    parser.add_argument("--default", type=float, default=1e7, help="labels up to which the default method runs too")
    parser.add_argument("--in-memory", type=float, default=1e7, help="labels up to which one process holds them all")
    parser.add_argument("--ray", action="store_true")
    parser.add_argument("--folder", type=Path, default=None, help="where tables are written meanwhile")
    parser.add_argument("--out", type=Path, default=None, help="a JSON file for the rows")
    args = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for n_labels in args.labels:
            rows.append(row(int(n_labels), args, Path(folder)))
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    table = pd.DataFrame(rows)
    print(markdown(table, digits=2))
    if len(table) > 2:
        print()
        print(markdown(line(table), digits=3))
    if args.out:
        commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
        told = {
            "commit": commit,
            "cores": len(os.sched_getaffinity(0)),
            "memory": args.memory,
            "ids": args.kind,
            "rows": rows,
        }
        args.out.write_text(json.dumps(told, indent=1) + "\n")
    print(f"peak of this process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.1f} GB", file=sys.stderr)


if __name__ == "__main__":
    main()
