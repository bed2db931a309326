"""Measure time and memory of ``predict`` and ``adapt`` for very many images or rows of features.

    python benchmarks/items.py [--images 2e4 6e4 2e5] [--rows 1e6 3e6 1e7] [--adapt 1e5 3e5 1e6] [--kill] [--out FILE]

Images have 28×28 pixels, a folder has a thousand, and one file in ten thousand is not an image. Rows are 16 numbers in
an .npy file. Each command runs in a process of its own; processor time, wall-clock time and peak memory are printed. A
cold run has an empty embedding cache, a warm run finds all embeddings there. With ``--kill``, a cold run is killed
after half of the previous run's time, and then continued.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pandas as pd
from PIL import Image

CLASSES, ANNOTATORS, LABELLED, WIDTH, FOLDER, DAMAGED = 5, 20, 1_000, 16, 1_000, 10_000


def draw_images(root: Path, first: int, last: int) -> None:
    shapes = np.random.default_rng(0).random((50, 7, 7)) > 0.6
    for i in range(first, last):
        file = root / f"{i // FOLDER:04d}" / f"{i:07d}.png"
        if i % FOLDER == 0:
            file.parent.mkdir(parents=True)
        noise = np.random.default_rng(i).integers(0, 50, (28, 28))
        Image.fromarray((np.kron(shapes[i % 50], np.full((4, 4), 200)) + noise).astype(np.uint8)).save(file)
        if i % DAMAGED == DAMAGED - 1:
            file.write_bytes(b"no image")


def draw_rows(file: Path, n: int) -> None:
    random = np.random.default_rng(0)
    rows = np.lib.format.open_memmap(file, "w+", np.float32, (n, WIDTH))
    centres = random.normal(size=(50, WIDTH))
    for start in range(0, n, 100_000):
        end = min(start + 100_000, n)
        rows[start:end] = centres[np.arange(start, end) % 50] + random.normal(size=(end - start, WIDTH))
    rows.flush()


def write_labels(file: Path, names: list[str]) -> None:
    """Write three labels of each of the first items; 80 % are correct."""
    random = np.random.default_rng(1)
    item = np.repeat(np.arange(len(names)), 3)
    right = random.random(len(item)) < 0.8
    label = np.where(right, item % 50 % CLASSES, random.integers(CLASSES, size=len(item)))
    who = (item + np.tile([0, 7, 13], len(names))) % ANNOTATORS
    table = {"item": np.array(names)[item], "annotator": who, "label": [f"c{k}" for k in label]}
    pd.DataFrame(table).to_csv(file, index=False)


def run(arguments: list[object], cache: Path, kill_after: float | None = None) -> dict[str, float]:
    """Run a crowdshot command; return processor seconds, wall-clock seconds and peak megabytes."""
    start = time.monotonic()
    command = [sys.executable, "-m", "crowdshot", *map(str, arguments)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, env={**os.environ, "CROWDSHOT_CACHE": str(cache)}, **quiet)
    if kill_after is not None:
        time.sleep(kill_after)
        process.kill()
    _, status, used = os.wait4(process.pid, 0)
    if status and kill_after is None:
        raise SystemExit(f"{' '.join(command)} ended with {status}")
    cpu, clock = used.ru_utime + used.ru_stime, time.monotonic() - start
    return {"CPU s": round(cpu, 1), "clock s": round(clock, 1), "peak MB": round(used.ru_maxrss / 1e3)}


def of_images(sizes: list[int], kill: bool, folder: Path) -> list[dict[str, object]]:
    root, cache, labels, rows = folder / "images", folder / "cache", folder / "labels.csv", []
    draw_images(root, 0, LABELLED)
    write_labels(labels, [f"{i // FOLDER:04d}/{i:07d}.png" for i in range(LABELLED)])
    run(["adapt", labels, "--images", root, "--out", folder / "first", "--json"], cache)
    model, done = folder / "first" / "model.safetensors", LABELLED
    predict = ["predict", model, "--images", root, "--skip-bad", "--out", folder / "predictions.csv", "--json"]
    for n in sizes:
        draw_images(root, done, n)
        done = n
        shutil.rmtree(cache)
        found = {"predict, cold": run(predict, cache), "predict, warm": run(predict, cache)}
        adapt = ["adapt", labels, "--images", root, "--skip-bad", "--out", folder / str(n), "--json"]
        found["adapt, warm"] = run(adapt, cache)
        if kill and n == sizes[-1]:
            shutil.rmtree(cache)
            found["predict, killed"] = run(predict, cache, found["predict, cold"]["clock s"] / 2)
            found["predict, gone on with"] = run(predict, cache)
        rows += [print_row({"items": f"{n:,} images", "command": name, **row}) for name, row in found.items()]
    return rows


def of_rows(sizes: list[int], to_adapt: list[int], folder: Path) -> list[dict[str, object]]:
    cache, out, rows = folder / "cache", folder / "out", []
    labels, few = folder / "labels.csv", folder / "few.npy"
    write_labels(labels, [str(i) for i in range(LABELLED)])
    draw_rows(few, LABELLED)
    run(["adapt", labels, "--features", few, "--out", out, "--overwrite", "--json"], cache)
    model = out / "model.safetensors"
    for n in sorted({*sizes, *to_adapt}):
        file = folder / "rows.npy"
        draw_rows(file, n)
        if n in sizes:
            row = run(["predict", model, "--features", file, "--out", folder / "predictions.csv", "--json"], cache)
            rows.append(print_row({"items": f"{n:,} rows", "command": "predict", **row}))
        if n in to_adapt:
            row = run(["adapt", labels, "--features", file, "--out", out / str(n), "--json"], cache)
            rows.append(print_row({"items": f"{n:,} rows", "command": "adapt", **row}))
    return rows


def print_row(row: dict[str, object]) -> dict[str, object]:
    print("  ".join(f"{name} {value}" for name, value in row.items()), flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("--images", "--rows", "--adapt"):
        parser.add_argument(name, type=float, nargs="*", default=[])
    parser.add_argument("--kill", action="store_true")
    parser.add_argument("--out", type=Path, help="a file for the numbers, to which these are added")
    args = parser.parse_args()
    images, many, adapted = ([int(n) for n in given] for given in (args.images, args.rows, args.adapt))
    with tempfile.TemporaryDirectory() as folder:
        rows = of_images(images, args.kill, Path(folder)) if images else []
        rows += of_rows(many, adapted, Path(folder)) if many or adapted else []
    if args.out:
        before = json.loads(args.out.read_text()) if args.out.exists() else []
        args.out.write_text(json.dumps(before + rows, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
