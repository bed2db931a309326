"""Measure time and memory of `crowdshot predict` on long files.

    python benchmarks/long_files.py --rows 100000 1000000 --work /tmp/long

A classifier is fitted to 400 items with 64 features (four classes, three simulated annotators per item). Files of new
items are predicted in a process of their own: CSV and Parquet files with features, and files with texts, for which the
features are parts of words. Prints the processor time in seconds and the peak memory of the process, including that of
starting it.
"""

import argparse
import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from crowdshot import CrowdClassifier
from crowdshot.encoders import text_input

FEATURES, AT_ONCE = 64, 50_000
WORDS = np.array(["lovely", "boring", "film", "plot", "warm", "awful", "music", "story", "long", "great"])
RUN = """
import resource, sys
from crowdshot._cli.main import app
try:
    app(prog_name="crowdshot")
finally:
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
"""


def vectors(random, n):
    kind = random.integers(4, size=n)
    return kind, (random.normal(size=(n, FEATURES)) + np.eye(4, FEATURES)[kind] * 3).astype(np.float32)


def write(folder, rows):
    """Write the same items as CSV and Parquet, in parts, and texts."""
    random = np.random.default_rng(1)
    names = [f"f{i}" for i in range(FEATURES)]
    files = {kind: folder / f"{kind}-{rows}" for kind in ("csv", "parquet", "texts")}
    for file in files.values():
        file.unlink(missing_ok=True)
    writer = None
    for start in range(0, rows, AT_ONCE):
        n = min(AT_ONCE, rows - start)
        frame = pd.DataFrame(vectors(random, n)[1], columns=names)
        frame.insert(0, "item", [f"i{start + i}" for i in range(n)])
        frame.to_csv(files["csv"], mode="a", header=start == 0, index=False, float_format="%.4f")
        table = pa.Table.from_pandas(frame, preserve_index=False)
        writer = writer or pq.ParquetWriter(files["parquet"], table.schema)
        writer.write_table(table)
        texts = [" ".join(words) for words in random.choice(WORDS, (n, 12))]
        pd.DataFrame({"item": frame["item"], "text": texts}).to_csv(
            files["texts"], mode="a", header=start == 0, index=False
        )
    writer.close()
    return files


def measured(*words):
    """Return (seconds, megabytes) of a command."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "CROWDSHOT_CACHE": ""}
    command = [sys.executable, "-c", RUN, *map(str, words)]
    done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return seconds, int(done.stderr.split()[-1]) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--work", type=Path, required=True)
    given = parser.parse_args()
    given.work.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    kind, X = vectors(random, 400)
    labels = np.where(random.random((400, 3)) < 0.8, kind[:, None], random.integers(4, size=(400, 3)))
    CrowdClassifier("identity").fit(X, labels).save(given.work / "features.safetensors")
    texts = [" ".join(random.choice(WORDS, 12)) for _ in range(400)]
    liked = np.array([text.count("lovely") + text.count("great") > 2 for text in texts], dtype=int)
    text_input.is_installed = lambda: False
    CrowdClassifier().fit(texts, np.tile(liked[:, None], 2)).save(given.work / "texts.safetensors")
    print("| rows | file | MB | seconds of processor time | rows a second | largest memory, MB |")
    print("|---|---|---|---|---|---|")
    for rows in [1, *given.rows]:
        files = write(given.work, rows)
        for kind, file in files.items():
            model, option = ("texts", "--texts") if kind == "texts" else ("features", "--features")
            out = given.work / "out.csv"
            seconds, memory = measured("predict", given.work / f"{model}.safetensors", option, file, "--out", out)
            size = file.stat().st_size / 2**20
            print(
                f"| {rows:,} | {kind} | {size:,.0f} | {seconds:.0f} | {rows / seconds:,.0f} | {memory:,.0f} |",
                flush=True,
            )
            assert sum(1 for _ in out.open()) == rows + 1


if __name__ == "__main__":
    main()
