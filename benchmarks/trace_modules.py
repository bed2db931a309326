"""Count the functions and modules of crowdshot that commands execute.

Run ``python benchmarks/trace_modules.py`` for all runs, or name some: ``adapt``, ``aggregate``, ``fit``, ``train``,
``paper``. Each run has its own process. Functions are counted with ``sys.setprofile`` in all threads; class bodies,
comprehensions and lambdas are not counted. Child processes are not traced.
"""

import argparse
import contextlib
import io
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

N_ITEMS = 18
CO_OPTIMIZED = 1  # set for functions, not for modules and class bodies
CLASSES = ("cat", "dog", "horse")


def make_images(folder: Path) -> None:
    """Draw 18 images of three classes, and write the labels of four annotators."""
    from PIL import Image

    random = np.random.default_rng(0)
    (folder / "images").mkdir()
    lines = ["item,annotator,label"]
    for i in range(N_ITEMS):
        pixels = random.normal(100 + 50 * np.eye(3)[i % 3], 30, (64, 64, 3)).clip(0, 255)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / "images" / f"{i:02d}.png")
        for annotator in range(4):
            label = i % 3 if random.random() < 0.5 + 0.1 * annotator else random.integers(3)
            lines.append(f"{i:02d}.png,ann{annotator},{CLASSES[label]}")
    (folder / "labels.csv").write_text("\n".join(lines))


def run_command(*words: str) -> None:
    from crowdshot._cli import main

    sys.argv = ["crowdshot", *words]
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()):
        main.main()


def adapt(folder: Path) -> None:
    run_command("adapt", f"{folder}/labels.csv", "--images", f"{folder}/images", "--out", f"{folder}/out")


def aggregate(folder: Path) -> None:
    run_command("aggregate", f"{folder}/labels.csv")


def fit(folder: Path) -> None:
    from crowdshot import CrowdClassifier

    random = np.random.default_rng(0)
    truth = np.arange(60) % 3
    x = random.normal(size=(60, 4)) + 3 * np.eye(3, 4)[truth]
    y = np.where(random.random((60, 4)) < 0.7, truth[:, None], random.integers(0, 3, (60, 4)))
    CrowdClassifier().fit(x, y).predict(x)


def train(folder: Path) -> None:
    random = np.random.default_rng(0)
    labels = np.repeat([f"class-{k:02d}" for k in range(20)], 15)
    x = random.normal(size=(300, 8)).astype(np.float32)
    np.savez(folder / "features.npz", ids=np.arange(300).astype(str), features=x, labels=labels)
    sizes = ("--iterations", "4", "--validate-every", "2", "--validation-episodes", "4", "--episodes", "2")
    shape = ("--ways", "2", "--shots", "2", "--annotators", "2", "--validation-classes", "5", "--hidden", "8")
    out = ("--out", f"{folder}/head.safetensors")
    run_command("train", f"{folder}/features.npz", *out, *sizes, *shape)


def paper(folder: Path) -> None:
    run_command("paper", "run", "main", "--quick", "--results", f"{folder}/rows", "--work", f"{folder}/work")


RUNS: dict[str, Callable[[Path], None]] = {
    "adapt": adapt,
    "aggregate": aggregate,
    "fit": fit,
    "train": train,
    "paper": paper,
}


def trace(run: Callable[[Path], None]) -> dict[str, Any]:
    """Return the numbers of functions and modules that a run executes, and the modules."""
    called: set[tuple[str, str]] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        is_ours = event == "call" and "/crowdshot" in code.co_filename and code.co_filename.endswith(".py")
        if is_ours and code.co_flags & CO_OPTIMIZED and not code.co_name.startswith("<"):
            called.add((code.co_filename, code.co_qualname))

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_images(folder)
        threading.setprofile(note)
        sys.setprofile(note)
        try:
            run(folder)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
    modules = sorted({file.split("/src/")[-1] for file, _ in called})
    return {"functions": len(called), "modules": len(modules), "names": modules}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", choices=[*RUNS, []], help="default: all")
    parser.add_argument("--one", choices=RUNS, help="trace one run in this process and print JSON")
    parser.add_argument("--names", action="store_true", help="list the modules")
    options = parser.parse_args()
    if options.one:
        found = trace(RUNS[options.one])
        print(json.dumps(found))
        return
    for run in options.runs or RUNS:
        done = subprocess.run([sys.executable, __file__, "--one", run], capture_output=True, text=True, check=True)
        found = json.loads(done.stdout.splitlines()[-1])
        print(f"{run:10}{found['functions']:5} functions in {found['modules']:3} modules")
        if options.names:
            print("\n".join(f"    {name}" for name in found["names"]))


if __name__ == "__main__":
    main()
