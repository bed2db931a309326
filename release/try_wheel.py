"""Try the commands of an installed wheel, outside the checkout: run this with the Python of that environment.

With `--without-torch`, for an environment without torch, only commands that need labels or names are tried.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

LABELS = "item,annotator,label\na,x,cat\na,y,cat\nb,x,dog\nb,y,cat\nb,z,dog\n"
ALONE = [
    ["--version"],
    ["aggregate", "labels.csv", "--out", "consensus.csv", "--annotators", "annotators.csv"],
    ["aggregate", "labels.csv", "--json"],
    ["next", "labels.csv", "--budget", "1"],
    ["methods"],
    ["encoders"],
    ["paper", "list"],
]
WHOLE = [
    ["demo", "--out", "demo"],
    ["adapt", "demo/labels.csv", "--images", "demo/images", "--out", "results"],
    ["predict", "results/model.safetensors", "--images", "demo/images", "--out", "predictions.csv"],
    ["simulate", "--items", "20", "--annotators", "4", "--out", "simulated"],
    ["compare", "results", "results"],
]


def main() -> None:
    without_torch = "--without-torch" in sys.argv[1:]
    assert (importlib.util.find_spec("torch") is None) == without_torch, (
        "torch must be installed, or not with --without-torch"
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "labels.csv").write_text(LABELS)
        where = "import crowdshot; print(crowdshot.__file__)"
        found = subprocess.run([sys.executable, "-c", where], cwd=folder, capture_output=True, text=True, check=True)
        assert Path(found.stdout.strip()).is_relative_to(sys.prefix), found.stdout
        for words in ALONE if without_torch else ALONE + WHOLE:
            print("crowdshot", *words, flush=True)
            done = subprocess.run(
                [sys.executable, "-m", "crowdshot", *words], cwd=folder, capture_output=True, text=True
            )
            if done.returncode or not done.stdout:
                sys.exit(f"exit {done.returncode}: {done.stderr}")
    print(f"Python {sys.version.split()[0]}: the wheel works{' without torch' * without_torch}.")


if __name__ == "__main__":
    main()
