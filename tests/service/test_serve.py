"""``crowdshot serve`` as people start it."""

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import contextmanager

import pytest

from crowdshot.service.journal import Answer, Journal
from polling import wait_until

COMMAND = [sys.executable, "-m", "crowdshot", "serve"]


@contextmanager
def serving(*arguments):
    process = subprocess.Popen([*COMMAND, *map(str, arguments), "--port", "0"], stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            found = re.search(r"listening at (http://\S+)", line)
            if found:
                break
        process.address = found[1]
        yield process
    finally:
        process.terminate()
        process.communicate()


def get(process, path):
    with urllib.request.urlopen(process.address + path) as answer:
        return json.load(answer)


def post(process, path, body):
    headers = {"content-type": "application/json"}
    request = urllib.request.Request(process.address + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request) as answer:
        return json.load(answer)


@pytest.mark.slow
def test_nothing_acknowledged_is_lost_by_a_kill(crowd, tmp_path):
    labels, features = crowd
    given = ("--labels", labels, "--features", features, "--data", tmp_path / "live")
    with serving(*given) as process:
        assert len(get(process, "/v1/consensus")["consensus"]) == 40
        before = get(process, "/health")["version"]
        for number in range(20):
            row = {"item": f"i{30 + number % 10}", "annotator": f"new {number // 10}", "label": "cat"}
            assert post(process, "/v1/labels", {"labels": [row]}) == {"taken": 1}
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with serving(*given) as process:
        people = {row["annotator"]: row["n_labels"] for row in get(process, "/v1/annotators")["annotators"]}
        assert people == {"ann": 30, "bob": 30, "cy": 30, "new 0": 10, "new 1": 10}
        started = get(process, "/health")["version"]
        assert started > before
        post(process, "/v1/labels", {"labels": [{"item": "i0", "annotator": "new 2", "label": "dog"}]})
        wait_until(lambda: get(process, "/health")["version"] > started)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--host", "0.0.0.0"], "--host is 0.0.0.0, which other machines can reach"),
        (["--auth", "nowhere"], "--auth is nowhere, expected a file"),
        (["--labels", "nowhere.csv"], "nowhere.csv"),
        (["--model", "nowhere"], "--model is nowhere"),
        (["--ordered", "one"], "--ordered"),
    ],
)
def test_what_is_wrong_is_told_before_anything_listens(tmp_path, arguments, told):
    command = [*COMMAND, "--data", "live", "--port", "0", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_refused_labels_leave_no_journal_but_one_that_was_there(tmp_path):
    (tmp_path / "labels.csv").write_text("item,annotator,label\n1,ann,cat;dog\n2,ann,cat\n")
    command = [*COMMAND, "--labels", "labels.csv", "--data", "some/live", "--port", "0"]

    def refused():
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
        assert (done.returncode, "has the label 'cat;dog'" in done.stderr) == (2, True)

    refused()
    assert [path.name for path in tmp_path.iterdir()] == ["labels.csv"]
    journal = Journal(tmp_path / "some" / "live")
    journal.append([Answer("2", "bob", "cat")])
    journal.close()
    refused()
    kept = Journal(tmp_path / "some" / "live")
    assert kept.state().labels == [Answer("2", "bob", "cat")]
    kept.close()


@pytest.mark.slow
def test_sets_of_labels_with_items(tmp_path):
    rows = [f"{i},{who},{'cat;dog' if i % 2 else 'owl'}" for i in range(12) for who in ("ann", "bob")]
    (tmp_path / "labels.csv").write_text("\n".join(["item,annotator,label", *rows]))
    (tmp_path / "features.csv").write_text("\n".join(["item,x", *(f"{i},{5 * (i % 2)}" for i in range(14))]))
    given = ("--labels", tmp_path / "labels.csv", "--features", tmp_path / "features.csv", "--multi-label")
    with serving(*given, "--data", tmp_path / "live") as process:
        believed = {row["item"]: row["label"] for row in get(process, "/v1/consensus")["consensus"]}
        assert [believed["12"], believed["13"]] == ["owl", "cat;dog"]  # which nobody labelled


@pytest.mark.parametrize("package", ["fastapi", "uvicorn"])
def test_a_missing_package_of_the_extra_is_reported(call, tmp_path, monkeypatch, package):
    monkeypatch.setitem(sys.modules, package, None)  # importing it raises ModuleNotFoundError
    done = call("serve", "--data", tmp_path / "live")
    assert (done.code, done.out) == (2, "")
    assert package in done.err.lower()
    assert "pip install 'crowdshot[serve]'" in done.err
    assert not (tmp_path / "live").exists()


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="no SIGINT for other processes")
def test_an_open_page_does_not_matter_at_the_end(crowd, tmp_path):
    """The page keeps a stream of events open. Ctrl-C ends the service without an error on the terminal."""
    with serving("--labels", crowd[0], "--data", tmp_path / "live") as process:
        page = urllib.request.urlopen(f"{process.address}/v1/events")
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        page.close()
    assert process.returncode in (0, 130)
    assert "ERROR" not in rest
    assert "task" not in rest
    assert "Traceback" not in rest
