"""Test `aggregate --engine` on the command line."""

import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

from polling import wait_until

from .test_engine import parts, rows, write

pytestmark = pytest.mark.slow


def typed(*words):
    return [sys.executable, "-m", "crowdshot", "aggregate", *map(str, words)]


def run(*words):
    return subprocess.run(typed(*words), capture_output=True, text=True)


def test_a_killed_command_continues_and_reports_finished_results(tmp_path):
    table = rows(4_000, R=50, per_item=5).drop_duplicates(["item", "annotator"])
    (pattern,) = write(tmp_path / "in", table)
    out = tmp_path / "out"
    words = (pattern, "--engine", "local", "--memory", "2GB", "--out", out, "--method", "dawid-skene", "--json")
    process = subprocess.Popen(typed(*words), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: (out / "_work" / "names").exists() or process.poll() is not None)
    process.kill()
    process.wait()
    done = run(*words)
    assert done.returncode == 0
    assert json.loads(done.stdout)["items"] == 4_000
    plain = run(pattern, "--out", tmp_path / "consensus.csv", "--method", "dawid-skene")
    assert plain.returncode == 0
    expected = pd.read_csv(tmp_path / "consensus.csv", dtype={"item": str})
    found = parts(out).set_index("item").loc[expected["item"]]
    assert found["label"].tolist() == expected["label"].tolist()
    for name in ("confidence", "n_labels", "agreement", "p_low", "p_mid", "p_top"):
        np.testing.assert_allclose(found[name], expected[name], atol=1e-6)  # CSV has six digits
    again = run(*words)
    assert again.returncode == 0
    assert f"{out} is complete already" in again.stderr
    assert json.loads(again.stdout) == json.loads(done.stdout)


def test_errors_are_printed_without_a_traceback(tmp_path):
    (tmp_path / "labels.csv").write_text("item,annotator,label\na,ann,x\n")
    for words, sentence in (
        (("--engine", "local"), "crowdshot: --engine needs an output folder."),
        (("--engine", "local", "--memory", "lots", "--out", "o"), "crowdshot: --memory is 'lots', expected a size"),
    ):
        done = run(tmp_path / "labels.csv", *words)
        assert done.returncode == 2
        assert done.stderr.startswith(sentence)
        assert "Traceback" not in done.stderr
    assert not (tmp_path / "o").exists()
