"""Try the commands of an installed wheel, outside the checkout: run this with the Python of that environment.

With `--without-torch`, for an installation without extras: labels alone work, and every other command says what to
install.
"""

import importlib.util
import subprocess
import sys
import tempfile
from pathlib import Path

import openpyxl

LABELS = "item,annotator,label\na,x,cat\na,y,cat\nb,x,dog\nb,y,cat\nb,z,dog\n"
ALONE = [
    ["--version"],
    ["--help"],
    ["aggregate", "labels.csv", "--out", "round/consensus.csv", "--annotators", "round/annotators.csv"],
    ["aggregate", "labels.xlsx", "--json"],
    ["aggregate", "labels.csv", "--method", "dawid-skene"],
    ["aggregate", "labels.csv", "--report", "report"],
    ["compare", "round", "round"],
    ["next", "labels.csv", "--budget", "1"],
    ["methods"],
    ["encoders"],
    ["paper", "list"],
]
ITEMS = [
    ["demo", "--out", "demo"],
    ["adapt", "demo/labels.csv", "--images", "demo/images", "--out", "results"],
    ["predict", "results/model.safetensors", "--images", "demo/images", "--out", "predictions.csv"],
    ["simulate", "--items", "20", "--annotators", "4", "--out", "simulated"],
    ["compare", "results", "results"],
]
REFUSED = {  # by the extra that each names without torch
    "images": [
        ["adapt", "labels.csv", "--images", "round", "--out", "results"],
        ["next", "labels.csv", "--images", "round"],
        ["predict", "model.safetensors", "--images", "round", "--out", "predictions.csv"],
        ["embed", "round", "--encoder", "lite0", "--out", "features.npz"],
        ["train", "classes.zip", "--out", "encoder.safetensors"],
        ["simulate", "--out", "simulated"],
        ["demo"],
    ],
    "texts": [["adapt", "labels.csv", "--texts", "texts.csv", "--out", "results"]],
    "features": [["adapt", "labels.csv", "--features", "features.csv", "--out", "results"]],
    "serve": [["serve", "--labels", "labels.csv", "--data", "live"]],
    "paper": [["paper", "run", "main"]],
}
IN_PYTHON = """
import crowdshot
crowd = crowdshot.CrowdAggregator().fit(crowdshot.read_labels("labels.csv"))
assert crowd.consensus_["label"].tolist() == ["cat", "dog"]
crowd.report("report.html")
try:
    crowdshot.CrowdClassifier().fit([[0.0]], [["cat"]])
except ImportError as error:
    print(error)
"""


def run(folder: str, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True)


def try_commands(folder: str, commands: list[list[str]]) -> None:
    for words in commands:
        print("crowdshot", *words, flush=True)
        done = run(folder, "-m", "crowdshot", *words)
        if done.returncode or not done.stdout:
            sys.exit(f"exit {done.returncode}: {done.stderr}")


def try_refused(folder: str) -> None:
    before = sorted(Path(folder).iterdir())
    for extra, commands in REFUSED.items():
        for words in commands:
            print("crowdshot", *words, flush=True)
            done = run(folder, "-m", "crowdshot", *words)
            if done.returncode != 2 or f"pip install 'crowdshot[{extra}]'" not in done.stderr:
                sys.exit(f"exit {done.returncode}: {done.stderr}")
    assert sorted(Path(folder).iterdir()) == before, "something was written"
    done = run(folder, "-c", IN_PYTHON)
    assert "pip install 'crowdshot[images]'" in done.stdout, done.stderr


def main() -> None:
    without_torch = "--without-torch" in sys.argv[1:]
    assert (importlib.util.find_spec("torch") is None) == without_torch, (
        "torch must be installed, or not with --without-torch"
    )
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "labels.csv").write_text(LABELS)
        (Path(folder) / "round").mkdir()
        book = openpyxl.Workbook()
        for line in LABELS.split():
            book.active.append(line.split(","))
        book.save(Path(folder) / "labels.xlsx")
        found = run(folder, "-c", "import crowdshot; print(crowdshot.__file__)")
        assert Path(found.stdout.strip()).is_relative_to(sys.prefix), found.stdout + found.stderr
        try_commands(folder, ALONE)
        if without_torch:
            try_refused(folder)
        else:
            try_commands(folder, ITEMS)
    print(f"Python {sys.version.split()[0]}: the wheel works{' without torch' * without_torch}.")


if __name__ == "__main__":
    main()
