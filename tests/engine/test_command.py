"""Test `aggregate --engine` on the command line."""

import json
import shutil
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


def test_two_commands_in_one_folder(tmp_path):
    """One may be refused; the results are those of a single run."""
    (pattern,) = write(tmp_path / "in", rows(2_000).drop_duplicates(["item", "annotator"]))
    words = (pattern, "--engine", "local", "--memory", "2GB", "--out", tmp_path / "out", "--method", "soft")
    pair = [subprocess.Popen(typed(*words), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in "ab"]
    errors = [process.communicate()[1] for process in pair]
    codes = sorted(process.returncode for process in pair)
    assert codes in ([0, 0], [0, 2]), errors
    assert "Traceback" not in "".join(errors)
    assert len(parts(tmp_path / "out")) == 2_000
    assert not (tmp_path / "out" / "_work").exists()


def test_damaged_files_of_a_killed_command(tmp_path):
    """Every file of the interrupted run is damaged in turn: the command ends well, or refuses and keeps the folder."""
    (pattern,) = write(tmp_path / "in", rows(4_000, R=50, per_item=5).drop_duplicates(["item", "annotator"]))
    killed, out = tmp_path / "killed", tmp_path / "out"
    words = (pattern, "--engine", "local", "--memory", "2GB", "--method", "dawid-skene", "--out")
    process = subprocess.Popen(typed(*words, killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: (killed / "_work" / "names").exists() or process.poll() is not None)
    process.kill()
    process.wait()
    files = [path for path in sorted((killed / "_work").rglob("*")) if path.is_file() and path.stat().st_size]
    assert files
    refused = 0
    for file in [killed / "_run.json", *files[:: max(1, len(files) // 6)]]:
        shutil.copytree(killed, out)
        target = out / file.relative_to(killed)
        damaged = b"damaged" + file.read_bytes()[7 : file.stat().st_size // 2]
        target.write_bytes(damaged)
        done = run(*words, out)
        assert done.returncode in (0, 2), done.stderr
        assert "Traceback" not in done.stderr
        if done.returncode == 2:
            refused += 1
            assert target.read_bytes() == damaged
            assert (out / "_run.json").exists()
        else:
            assert parts(out)["n_labels"].sum() > 0
        shutil.rmtree(out)
    assert refused


def test_a_damaged_report_of_a_finished_run(tmp_path):
    (pattern,) = write(tmp_path / "in", rows(200).drop_duplicates(["item", "annotator"]))
    words = (pattern, "--engine", "local", "--memory", "2GB", "--out", tmp_path / "out", "--method", "soft")
    assert run(*words).returncode == 0
    (tmp_path / "out" / "_finished.json").write_text('{"items"')
    before = sorted(tmp_path.rglob("*"))
    done = run(*words)
    assert done.returncode == 2
    assert "_finished.json is damaged" in done.stderr
    assert [path for path in sorted(tmp_path.rglob("*")) if path.name != "_work"] == before
