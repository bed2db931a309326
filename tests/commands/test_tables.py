"""Mixed tables on the command line."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from waiting import HANGS

pytestmark = pytest.mark.slow


def call(folder, *words):
    command = [sys.executable, "-m", "crowdshot", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=HANGS, check=False)


def test_adapt_and_predict(tmp_path):
    random = np.random.default_rng(0)
    kind = np.arange(40) % 2
    frame = pd.DataFrame(
        {
            "id": [f"p{i}" for i in range(40)],
            "age": random.normal(30 + 30 * kind, 3).round(1),
            "town": np.where(kind, "York", "Bath"),
            "name": [f"Person {i}" for i in range(40)],
        }
    )
    frame.loc[[3, 8], ["age", "town"]] = None
    frame.to_csv(tmp_path / "people.csv", index=False)
    said = [(f"p{i}", who, "old" if kind[i] else "young") for i in range(36) for who in "abc"]
    pd.DataFrame(said, columns=["id", "worker", "label"]).to_csv(tmp_path / "labels.csv", index=False)
    done = call(tmp_path, "adapt", "labels.csv", "--features", "people.csv", "--out", "results")
    assert done.returncode == 0, done.stderr
    assert "hardly ever recur, which are left out: 'name'" in done.stderr
    assert "a table with 1 column of numbers and 1 of categories; left out: name" in done.stdout
    # numbers alone, this time: still a table to the model
    frame.iloc[:4, [0, 1]].assign(town="York").to_csv(tmp_path / "new.csv", index=False)
    told = call(tmp_path, "predict", "results/model.safetensors", "--features", "new.csv", "--json")
    assert told.returncode == 0, told.stderr
    assert [row["id"] for row in json.loads(told.stdout)["predictions"]] == ["p0", "p1", "p2", "p3"]
    frame[["id", "age"]].to_csv(tmp_path / "less.csv", index=False)
    told = call(tmp_path, "predict", "results/model.safetensors", "--features", "less.csv")
    assert (told.returncode, told.stdout) == (2, "")
    assert "X has no column 'town', expected one, as in fit." in told.stderr
