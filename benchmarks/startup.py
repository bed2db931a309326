"""Measure the processor time and memory of imports and of the smallest commands, as ratios to `import torch`.

    python benchmarks/startup.py [--repeats 5]

The last row is what a user waits for: from the command to the report about forty images of handwritten digits, with
labels of five annotators, a quarter of them drawn at random. Every start is a process of its own. The rows alternate,
so that other programs affect all of them equally, and the least processor time of each counts.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

LABELS = "item,annotator,label\na,x,cat\na,y,cat\nb,x,dog\nb,y,cat\n"
FIT = "from crowdshot import CrowdClassifier; CrowdClassifier().fit([[0.], [1.], [2.]], [['a'], ['b'], ['b']])"
DIGITS = """
import numpy as np
from PIL import Image
from sklearn.datasets import load_digits

random, digits = np.random.default_rng(0), load_digits()
print("item,annotator,label")
for i in range(40):
    pixels = (digits.images[i] * 255 / 16).astype(np.uint8)
    Image.fromarray(pixels).resize((28, 28), Image.Resampling.BILINEAR).save(f"{i}.png")
    labels = np.where(random.random(5) < 0.25, random.integers(10, size=5), digits.target[i])
    for who, label in enumerate(labels):
        print(f"{i}.png,annotator {who},{label}")
"""  # in a process of its own, as a child's peak memory is at least its parent's
STARTS = {
    "import torch": ["-c", "import torch"],
    "import numpy, pandas, sklearn.base": ["-c", "import numpy, pandas, sklearn.base"],
    "from crowdshot import CrowdClassifier": ["-c", "from crowdshot import CrowdClassifier"],
    "import it and fit three items": ["-c", FIT],
    "crowdshot --help": ["-m", "crowdshot", "--help"],
    "crowdshot aggregate --help": ["-m", "crowdshot", "aggregate", "--help"],
    "crowdshot aggregate labels.csv": ["-m", "crowdshot", "aggregate", "labels.csv"],
    "crowdshot adapt, 40 images": [
        "-m",
        "crowdshot",
        "adapt",
        "digits.csv",
        "--images",
        ".",
        "--out",
        "out",
        "--overwrite",
    ],
}


def cost(words: list[str], folder: Path) -> tuple[float, float]:
    """Return the processor seconds and the peak memory in MB of a Python process."""
    env = os.environ | {"OMP_NUM_THREADS": "1", "CROWDSHOT_CACHE": ""}
    process = subprocess.Popen([sys.executable, *words], cwd=folder, env=env, stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{words} exited with {process.returncode}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1e3


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    found = {name: (float("inf"), float("inf")) for name in STARTS}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "labels.csv").write_text(LABELS)
        with Path(folder, "digits.csv").open("w") as file:
            subprocess.run([sys.executable, "-c", DIGITS], cwd=folder, stdout=file, check=True)
        for _ in range(repeats):
            for name, words in STARTS.items():
                found[name] = min(found[name], cost(words, Path(folder)))
    print(f"{'start':40} {'CPU s':>6} {'MB':>5} {'ratio':>6}")
    for name, (seconds, memory) in found.items():
        print(f"{name:40} {seconds:6.2f} {memory:5.0f} {seconds / found['import torch'][0]:6.2f}")


if __name__ == "__main__":
    main()
