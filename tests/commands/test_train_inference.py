"""Test ``crowdshot train-inference``: a network and its card, left-out projects, and refusal of worse networks."""

import json
import re
import shlex
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crowdshot import aggregate, read_labels
from crowdshot.errors import CrowdshotError
from crowdshot.io.cards import read_card
from crowdshot.io.json_text import to_json
from crowdshot.model import label_model
from crowdshot.model.label_model import load_network, save_network
from crowdshot.training import distributed
from crowdshot_paper import label_model_training
from crowdshot_paper.label_model_commands import InferenceFiles, run_train_inference, summarise
from crowdshot_paper.label_model_training import Settings, untrained
from forked import crowdshot


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Use few simulated labels per step."""
    monkeypatch.setattr(label_model_training, "Settings", partial(Settings, labels=200))


def write(folder: Path, majority_is_right: bool = True, seed: int = 0) -> None:
    """Write 30 items with six labels each, four or two of which are correct."""
    folder.mkdir(parents=True)
    randomness = np.random.default_rng(seed)
    truth = randomness.integers(2, size=30)
    rows = []
    for item, true in enumerate(truth):
        wrong = randomness.choice(6, 2 if majority_is_right else 4, replace=False)
        rows += [(f"item {item}", f"person {who}", ["no", "yes"][true ^ (who in wrong)]) for who in range(6)]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(folder / "answers.csv", index=False)
    table = pd.DataFrame({"item": [f"item {i}" for i in range(30)], "truth": np.array(["no", "yes"])[truth]})
    table.to_csv(folder / "truth.csv", index=False)


@pytest.fixture
def past(tmp_path):
    for seed, name in enumerate(("birds", "fish", "moths")):
        write(tmp_path / "past" / name, seed=seed)
    return tmp_path / "past"


def test_a_network_and_its_card(past, tmp_path):
    out = tmp_path / "network.safetensors"
    result = run_train_inference(
        InferenceFiles(out, past, ["moths"]), iterations=3, seed=4, command=["train-inference"]
    )
    assert label_model.shapes(3, 16) == {name: value.shape for name, value in load_network(out).items()}
    card = read_card(out, "inference")
    assert card["learned_from"]["projects"] == result.trained.learned_from == ["birds", "fish"]
    assert card["settings"] == {"iterations": 3, "seed": 4, "labels": 200, "draws": 6, "learning_rate": 3e-3}
    assert card["scores"].keys() == {"birds", "fish"}
    assert card["scores_left_out"].keys() == {"moths"}
    assert (card["command"], card["started_from"]) == ("crowdshot train-inference", None)
    assert card["learned_from"]["world"]["spammers"] == [0, 0.5]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["network.safetensors", "past"]  # no checkpoint is left
    told = summarise(result).splitlines()
    assert told[0].split() == ["used", "for", "training", "accuracy", "log-loss", "over", "accepted", "right"]
    assert [line.split(" ")[0] for line in told[1:4]] == ["birds", "fish", "mean"]
    assert told[-1] == str(out)


@pytest.mark.slow
def test_aggregate_uses_the_trained_network(past, tmp_path, call):
    labels, out, table = past / "birds" / "answers.csv", tmp_path / "network.safetensors", tmp_path / "consensus.csv"
    run_train_inference(InferenceFiles(out, past), iterations=3)
    given = aggregate.learned(read_labels(labels).annotations, network=out).probabilities
    assert np.abs(given - aggregate.learned(read_labels(labels).annotations).probabilities).max() > 1e-3
    assert call("aggregate", labels, "--network", out, "--out", table).code == 0
    np.testing.assert_allclose(pd.read_csv(table)[["p_no", "p_yes"]], given, atol=1e-6)
    assert call("aggregate", labels, "--network", out, "--engine", "local", "--out", tmp_path / "parts").code == 0
    parts = pd.concat(map(pd.read_parquet, sorted((tmp_path / "parts").glob("part-*.parquet")))).set_index("item")
    items = pd.read_csv(table)["item"]
    np.testing.assert_allclose(parts.loc[items, ["p_no", "p_yes"]], given, atol=1e-9)
    refused = call("aggregate", labels, "--network", out, "--method", "soft")
    assert refused.code == 2
    assert "--network cannot be used with method 'soft'" in " ".join(refused.err.split())
    out.write_bytes(out.read_bytes()[:-1])
    assert "is truncated or damaged" in call("aggregate", labels, "--network", out).err


def test_training_needs_no_real_crowds(tmp_path):
    result = run_train_inference(InferenceFiles(tmp_path / "n.safetensors"), iterations=2)
    assert (result.trained.learned_from, result.trained.scores) == ([], {})
    assert summarise(result) == str(tmp_path / "n.safetensors")


def test_training_starts_from_another_network(past, tmp_path):
    start = untrained(0, 2, 5)
    save_network(tmp_path / "start.safetensors", start, {})
    files = InferenceFiles(tmp_path / "n.safetensors", past, initial=tmp_path / "start.safetensors")
    run_train_inference(files, iterations=1)
    learned = load_network(files.out)
    assert {name: value.shape for name, value in learned.items()} == label_model.shapes(2, 5)
    assert max(abs(learned[name] - start[name]).max() for name in start) < 1e-3
    assert read_card(files.out, "inference")["started_from"] == "start.safetensors"


@pytest.mark.slow
def test_fine_tuning_is_scored_on_left_out_projects(past, tmp_path):
    files = InferenceFiles(tmp_path / "n.safetensors", past, relatives=[["birds", "moths"]])
    result = run_train_inference(files, iterations=4, fine_tune=True)
    without, before = result.validation.scores_without, result.validation.scores_before
    assert without.keys() == before.keys() == {"birds", "fish", "moths"}
    losses = [np.mean([s["log_loss"] for s in scores.values()]) for scores in (without, before)]
    assert losses[0] <= losses[1]
    card = read_card(files.out, "inference")
    assert card["started_from"] == "the shipped network"
    assert card["settings"]["learning_rate"] == 1e-3
    assert sorted(path.name for path in tmp_path.iterdir()) == ["n.safetensors", "past"]
    assert "trained without it" in summarise(result)


def test_a_worse_network_is_not_written(tmp_path):
    """Two projects teach the opposite of each other."""
    write(tmp_path / "past" / "wise")
    write(tmp_path / "past" / "foolish", majority_is_right=False)
    files = InferenceFiles(tmp_path / "n.safetensors", tmp_path / "past")
    with pytest.raises(CrowdshotError, match="left-out projects") as error:
        run_train_inference(files, iterations=6, fine_tune=True)
    limit = float(re.search(r"at most ([\d.]+)", error.value.expected)[1])
    assert error.value.found > limit
    assert re.search(r"worst on '(wise|foolish)'", error.value.message)
    assert not files.out.exists()


@pytest.mark.slow
def test_an_interrupted_run_continues(past, tmp_path, monkeypatch):
    from contextlib import contextmanager

    files = InferenceFiles(tmp_path / "n.safetensors", past)
    whole = InferenceFiles(tmp_path / "whole.safetensors", past)
    run_train_inference(whole, iterations=3)

    @contextmanager
    def at_once():
        yield lambda: True

    with monkeypatch.context() as patch:
        patch.setattr(distributed, "interruptions", at_once)
        result = run_train_inference(files, iterations=3)
    assert to_json(result) == {"interrupted": True, "files": [f"{files.out}.checkpoint"]}
    assert summarise(result) == f"Interrupted. Repeat the command to continue from {files.out}.checkpoint."
    assert not files.out.exists()
    run_train_inference(files, iterations=3)
    one, two = load_network(files.out), load_network(whole.out)
    assert all(np.array_equal(one[name], two[name]) for name in one)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"fine_tune": True}, r"^projects is missing, expected a folder of finished projects"),
        ({"leave_out": ["owls"]}, r"^leave_out has 'owls', expected no names"),
        ({"initial": Path("nowhere")}, r"^nowhere does not exist, expected an inference file\.$"),
        ({"projects": Path("nowhere")}, r"^projects is nowhere, which is not a folder"),
        ({"out": Path("nowhere/n")}, r"is in the folder nowhere, which does not exist, expected one that does\.$"),
    ],
)
def test_bad_input(tmp_path, given, told):
    fine_tune = given.pop("fine_tune", False)
    with pytest.raises(CrowdshotError, match=told):
        run_train_inference(InferenceFiles(**{"out": tmp_path / "n.safetensors", **given}), 1, fine_tune=fine_tune)


@pytest.mark.slow
def test_on_the_command_line(past, tmp_path):
    words = ["--out", "n.safetensors", "--projects", "past", "--leave-out", "fish", "--iterations", "22", "--json"]
    done = crowdshot(tmp_path, "train-inference", *words)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["learned_from"] == ["birds", "moths"]
    card = read_card(tmp_path / "n.safetensors", "inference")
    assert card["command"] == shlex.join(["crowdshot", "train-inference", *words])
    assert "more iterations" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--fine-tune"], "--projects is missing, expected a folder of finished projects for fine-tuning."),
        (
            ["--projects", "past", "--leave-out", "owls"],
            "--leave-out has 'owls', expected names of projects, 'birds', 'fish', 'moths'.",
        ),
        (
            ["--projects", "past", "--fine-tune", "--relatives", "birds=owls"],
            "--relatives has 'owls', expected names of projects, 'birds', 'fish', 'moths'.",
        ),
        (
            ["--projects", "past", "--relatives", "birds"],
            "--relatives is 'birds', expected names of projects, such as a=b=c,d=e.",
        ),
    ],
)
def test_refused_on_the_command_line(past, call, monkeypatch, words, told):
    monkeypatch.chdir(past.parent)
    done = call("train-inference", "--out", "n.safetensors", *words)
    assert (done.code, done.out, done.err) == (2, "", f"crowdshot: {told}\n")
    assert not Path("n.safetensors").exists()
