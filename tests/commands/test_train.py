"""Test ``crowdshot train``: the encoder and its card, interruptions, kills, several processes, and bad options."""

import csv
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close
from typer.testing import CliRunner

from crowdshot._cli import train
from crowdshot._cli.main import app
from crowdshot._cli.train import Network, TrainingFiles
from crowdshot.encoders import encoder_files
from crowdshot.encoders.encoder_files import load_encoder
from crowdshot.encoders.image_input import ImageInput, read_images
from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import MACHINE
from crowdshot.methods import CrowdEpisodes
from crowdshot.training import distributed, sources
from crowdshot.training.encoder_scores import embedded, score_table
from crowdshot.training.loop import TrainingLog
from crowdshot.training.recipe import Recipe
from crowdshot.training.sources import open_source
from crowdshot.training.trainer import Progress
from crowdshot_paper.registry import METHODS
from polling import TIMEOUT, wait_until
from pools import patterns

SETTINGS = {
    "ways": (2, 3),
    "shots": (1, 2),
    "annotators": (2, 3),
    "queries": 2,
    "iterations": 30,
    "validate_every": 10,
    "validation_episodes": 4,
    "learning_rate": 1e-2,
}
NETWORK = {"width": 4, "image_size": 16, "device": "cpu"}


def typed(settings):
    """Return the settings as command-line options."""
    words = {k: "{}:{}".format(*v) if isinstance(v, tuple) else str(v) for k, v in settings.items()}
    return [word for k, v in words.items() for word in (f"--{k.replace('_', '-')}", v)]


USUAL = {**SETTINGS, **NETWORK, "objective": "mixture"}
OPTIONS = typed(USUAL)


def train_encoder(source, out, recipe, others=(), **given):
    """Train with these settings, as the command does."""
    network = {field.name: given.pop(field.name) for field in fields(Network) if field.name in given}
    return train.train_encoder(TrainingFiles(source, out, **given), recipe, Network(**network), others=others)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("source") / "patterns.npz"
    images = patterns(n_classes=12)
    np.savez(path, images=images.reshape(-1, 16, 16), labels=np.repeat(np.arange(12), images.shape[1]))
    return str(path)


@pytest.fixture(scope="module")
def undisturbed(source, tmp_path_factory):
    """Return the encoder of an uninterrupted run."""
    out = tmp_path_factory.mktemp("undisturbed") / "encoder.safetensors"
    train_encoder(source, out, Recipe(**SETTINGS), **NETWORK)
    return load_encoder(out)


def same(a, b):
    assert a.card["scores"] == b.card["scores"]
    for name, value in a.module.state_dict().items():
        assert torch.equal(value, b.module.state_dict()[name]), name


def call(*arguments):
    """Run the command in this process."""
    return CliRunner().invoke(app, ["train", *map(str, arguments)])


def environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}


# --- results ---------------------------------------------------------------------------------------------------------


def test_an_encoder_with_a_card_and_a_history(source, tmp_path, undisturbed, monkeypatch):
    out = tmp_path / "encoder.safetensors"
    monkeypatch.setattr(sys, "argv", ["crowdshot", "train", source, "--out", str(out), *OPTIONS])
    result = call(source, "--out", out, *OPTIONS, "--terms", "mine")
    assert result.exit_code == 0, result.output
    assert sorted(p.name for p in tmp_path.iterdir()) == ["encoder.history.csv", "encoder.safetensors"]

    encoder = load_encoder(out)
    same(encoder, undisturbed)
    card = encoder.card
    assert card["command"].startswith("crowdshot train patterns.npz --out encoder.safetensors --ways 2:3")
    assert str(tmp_path) not in repr(card)
    assert card["source"] == {
        "name": "patterns.npz",
        "classes": 12,
        "examples": 72,
        "items": "characters of 16×16 grey pixels",
        "terms": "mine",
        "learned_from": 9,
        "validated_on": 3,
    } | {k: v for k, v in card["source"].items() if k == "tested_on"}
    assert card["recipe"] == Recipe(**SETTINGS).to_card()
    assert card["priors"]["steps"] == 2
    assert encoder.input == ImageInput((16, 16), ink=True)
    assert encoder.embed(np.zeros((2, 30, 30), np.uint8)).shape == (2, 4)

    with (tmp_path / "encoder.history.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["iteration"] for row in rows] == ["10", "20", "30"]
    assert list(rows[0]) == ["iteration", "loss", "accuracy", "best", "seconds"]
    best = max(float(row["accuracy"]) for row in rows)
    assert float(rows[-1]["best"]) == pytest.approx(best, abs=1e-5)
    assert card["scores"]["validation_accuracy"] == pytest.approx(best, abs=1e-5)
    assert 0 < float(rows[0]["seconds"]) < float(rows[-1]["seconds"])


@pytest.mark.slow
def test_held_out_classes_are_tested_with_the_methods_of_users(tmp_path):
    """Test with soft votes, for which the encoder was trained, and with the default method and the card's settings."""
    rng = np.random.default_rng(0)
    features = np.repeat(rng.normal(0, 2, (14, 5)), 20, 0) + rng.normal(0, 1, (280, 5))
    np.savez(tmp_path / "x.npz", features=features, labels=np.repeat(np.arange(14), 20))
    few = "--iterations 4 --validate-every 2 --validation-episodes 4 --hidden none --embedding 5 --queries 2"
    clean = ["--objective", "labelings", "--ways", 4, "--validation-classes", 4, "--test-classes", 4]
    result = call(tmp_path / "x.npz", "--out", tmp_path / "head", *few.split(), *clean)
    assert result.exit_code == 0, result.output
    encoder = load_encoder(tmp_path / "head")
    source = open_source(str(tmp_path / "x.npz"))
    pool = embedded(source.pool.take(source.split(4, 0, 4, 4)[2]), encoder)

    def classify(batch, ways):
        settings = encoder.card["labelings"]
        return METHODS["labeling-search"].predict(CrowdEpisodes.of(batch, ways), torch.nn.Identity(), **settings)

    scores = encoder.card["scores"]
    assert scores["test by Labelings"] == score_table(pool, classify)
    assert scores["test by Labelings"]["average"] > scores["test"]["average"]


@pytest.mark.slow
def test_the_default_objective_suits_the_default_method(tmp_path):
    """The default recipe uses clean labels, many classes per episode and a falling learning rate."""
    features = np.random.default_rng(0).normal(0, 3, (20, 5)).repeat(15, 0)
    np.savez(tmp_path / "x.npz", features=features, labels=np.arange(300) // 15)
    few = ["--iterations", 2, "--validate-every", 2, "--validation-episodes", 2]
    assert call(tmp_path / "x.npz", "--out", tmp_path / "wide", *few).exit_code == 0
    recipe = load_encoder(tmp_path / "wide").card["recipe"]
    wanted = {"ways": [16, 16], "queries": 5, "cool_down": 0.3, "objective": "prototypical", "pseudo_annotation": False}
    assert {name: recipe[name] for name in wanted} == wanted
    np.savez(tmp_path / "twelve.npz", features=features[:180], labels=np.arange(180) // 15)
    assert call(tmp_path / "twelve.npz", "--out", tmp_path / "narrower", *few).exit_code == 0
    card = load_encoder(tmp_path / "narrower").card
    assert (card["recipe"]["ways"], card["source"]["validated_on"]) == ([10, 10], 2)
    assert call(tmp_path / "x.npz", "--out", tmp_path / "other", *few, "--ways", 3, "--cool-down", 0).exit_code == 0
    recipe = load_encoder(tmp_path / "other").card["recipe"]
    assert (recipe["ways"], recipe["queries"], recipe["cool_down"]) == ([3, 3], 5, 0.0)
    assert call(tmp_path / "x.npz", "--out", tmp_path / "paper", *few, "--objective", "mixture").exit_code == 0
    paper = Recipe(iterations=2, validate_every=2, validation_episodes=2)
    assert load_encoder(tmp_path / "paper").card["recipe"] == paper.to_card()


def test_features_with_all_options(tmp_path):
    rng = np.random.default_rng(0)
    features = np.repeat(rng.normal(0, 3, (10, 5)), 8, 0) + rng.normal(0, 0.3, (80, 5))
    np.savez(tmp_path / "x.npz", features=features, labels=np.repeat(np.arange(10), 8))
    options = "--labels-per-item 1:2 --prior one-coin --crowd hammer=0.5,flipper=0.5 --episodes 2 --seed 3 --patience 9"
    network = "--cool-down 0.5 --hidden none --embedding 3 --precision bfloat16 --checkpoint " + str(tmp_path / "kept")
    given = [*typed(SETTINGS), *options.split(), *network.split()]
    result = call(tmp_path / "x.npz", "--out", tmp_path / "head", *given, "--json")
    assert result.exit_code == 0, result.output
    encoder = load_encoder(tmp_path / "head")
    assert encoder.arguments == {"n_features": 5, "hidden": [], "n_out": 3}
    assert encoder.card["priors"]["confusion"]["kind"] == "one-coin"
    assert encoder.card["recipe"]["crowd"] == {"hammer": 0.5, "flipper": 0.5}
    assert encoder.card["recipe"]["cool_down"] == 0.5
    assert encoder.card["precision"] == "bfloat16"
    embeddings = encoder.embed(features[:3].astype(np.float32))
    assert embeddings.shape == (3, 3)
    assert not (tmp_path / "kept").exists()


def test_real_annotators(tmp_path):
    images = patterns(n_classes=8)
    np.savez(tmp_path / "x.npz", images=images.reshape(-1, 16, 16))
    rows = [f"{i},{who},c{i // 6}" for i in range(48) for who in "ab"]
    (tmp_path / "labels.csv").write_text("\n".join(["item,annotator,label", *rows]))
    result = call(
        tmp_path / "x.npz", "--annotations", tmp_path / "labels.csv", "--out", tmp_path / "out", *OPTIONS, "--clean"
    )
    assert result.exit_code == 0, result.output
    described = load_encoder(tmp_path / "out").card["source"]
    assert described["annotators"] == "2, real"
    assert described["classes"] == 8
    assert "consensus" in described["truth"]


def test_a_head_on_a_backbone_includes_standardisation(tmp_path, monkeypatch):
    """Features are standardised for training, but the backbone gives the head features that are not standardised."""
    rng = np.random.default_rng(0)
    features = rng.normal(3, 2, (60, 1280)).astype(np.float32)
    np.savez(tmp_path / "x.npz", features=features, labels=np.arange(60) % 10)
    settings = {**SETTINGS, "iterations": 2}
    train_encoder(str(tmp_path / "x.npz"), tmp_path / "head", Recipe(**settings), hidden=(), embedding=4)
    encoder = load_encoder(tmp_path / "head")
    monkeypatch.setattr("crowdshot.encoders.networks.features", lambda x: x)
    on_images = encoder_files.on_backbone(encoder)
    assert_close(on_images.module(torch.from_numpy(features)), encoder.embed(features), atol=1e-3, rtol=1e-4)
    assert_close(on_images.module.head.weight, encoder.module.layers[0].weight)  # as it was trained


# --- refusals before training ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--shots", "x"], "--shots is 'x', expected a number or a range"),
        (["--crowd", "expert"], "--crowd is 'expert', expected expert=…,hammer=…"),
        (["--crowd", "wizard=1"], "--crowd is 'wizard=1', expected expert=…"),
        (["--crowd", "expert=much"], "--crowd is 'expert=much', expected kinds and numbers"),
        (["--hidden", "many"], "--hidden is 'many', expected numbers"),
        (["--ways", "11"], "has 12 usable classes"),
        (
            ["--architecture", "mlp"],
            "--architecture is 'mlp', expected 'conv4', because the source holds characters of 16×16",
        ),
        (["--image-size", "8"], "--image-size is 8, expected 16 or more"),
        (["--device", "abacus"], "--device is 'abacus', expected auto, cpu or cuda"),
        (["--checkpoint", "nowhere/file"], "nowhere/file is in the folder nowhere, which does not exist"),
        (["--learning-rate", "-1"], "--learning-rate is -1.0"),
        (["--queries", "9"], "has 12 classes, of which the largest has 6 examples, expected at least 11"),
    ],
)
def test_bad_options(source, tmp_path, options, sentence):
    usual = {name: value for name, value in USUAL.items() if f"--{name.replace('_', '-')}" not in options}
    result = call(source, "--out", tmp_path / "out", *typed(usual), *options)
    assert result.exit_code == 2
    assert sentence in result.output
    assert list(tmp_path.iterdir()) == []


def test_unwritable_outputs_are_refused_before_training(source, tmp_path, monkeypatch):
    monkeypatch.setattr(sources, "open_source", lambda *_, **__: pytest.fail("the work has begun"))

    def refused(out, sentence):
        with pytest.raises(CrowdshotError, match=sentence):
            train_encoder(source, out, Recipe(**SETTINGS), **NETWORK)

    refused(tmp_path, "is a folder")
    refused(tmp_path / "nowhere" / "out", "in the folder .*, which does not exist")
    if Path("/proc/self").is_dir():  # even root cannot write here
        refused(Path("/proc/self/out"), r"could not be written to the folder /proc/self \(")


# --- interrupted and killed ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_and_the_same_command_continues(source, tmp_path, undisturbed, monkeypatch, number):
    out = tmp_path / "out"
    usual = signal.getsignal(number)
    tick = TrainingLog.tick

    def interrupting(self, done, total):
        tick(self, done, total)
        if done == 17:
            os.kill(os.getpid(), number)

    with monkeypatch.context() as patch:
        patch.setattr(TrainingLog, "tick", interrupting)
        result = call(source, "--out", out, *OPTIONS)
    assert result.exit_code == 130
    assert f"repeat the same command to continue from {out}.checkpoint" in result.output
    assert signal.getsignal(number) is usual
    assert not out.exists()
    leftover = tmp_path / f".out.checkpoint.{MACHINE}-99999999-00000000.tmp"  # as if killed while writing
    leftover.write_text("half")

    result = call(source, "--out", out, *OPTIONS)
    assert result.exit_code == 0
    assert "continuing from iteration 17 of 30" in result.output
    same(load_encoder(out), undisturbed)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "out.history.csv"]
    rows = (tmp_path / "out.history.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["iteration", "10", "20", "30"]


def test_another_command_does_not_continue_the_run(source, tmp_path, monkeypatch):
    monkeypatch.setattr(distributed, "interruptions", lambda: Interrupted())
    assert call(source, "--out", tmp_path / "out", *OPTIONS).exit_code == 130
    result = call(source, "--out", tmp_path / "out", *OPTIONS, "--steps", "3")
    assert result.exit_code == 2
    assert "out.checkpoint is the checkpoint of a different run: steps was 2 and is now 3" in result.output
    assert (tmp_path / "out.checkpoint").exists()


class Interrupted:
    """Stop from the first step on."""

    def __enter__(self):
        return lambda: True

    def __exit__(self, *_):
        pass


KILLER = """
import json, os, random, signal, sys, traceback
from pathlib import Path
import torch
from crowdshot._cli import train
from crowdshot._cli.train import Network, TrainingFiles
from crowdshot.training import loop
from crowdshot.training.recipe import Recipe

torch.set_num_threads(1)
source, out, settings, network = sys.argv[1], Path(sys.argv[2]), *map(json.loads, sys.argv[3:])
chance = random.Random(int(os.environ["SEED"]))
save, killed = loop.save_checkpoint, 0

def save_and_wait_for_death(*arguments):
    save(*arguments)
    loop.save_checkpoint = save
    signal.setitimer(signal.ITIMER_PROF, moment)  # its own time, not the clock's: the default for SIGPROF is to die

while True:
    moment = chance.uniform(0.001, 0.05)
    child = os.fork()
    if child == 0:
        if killed < 4:  # a random while after it has got somewhere
            loop.save_checkpoint = save_and_wait_for_death
        try:
            files = TrainingFiles(source, out, checkpoint_every=2, image_size=network.pop("image_size"))
            train.train_encoder(files, Recipe(**settings), Network(**network))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    status = os.waitpid(child, 0)[1]
    if os.WIFEXITED(status):
        print(killed)
        sys.exit(os.WEXITSTATUS(status))
    killed += 1
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_kills_at_random_times_do_not_change_any_bit_of_the_weights(source, tmp_path, undisturbed):
    """A process that has imported everything starts the run, kills it and starts it again."""
    out = tmp_path / "out"
    done = subprocess.run(
        [sys.executable, "-c", KILLER, source, str(out), json.dumps(SETTINGS), json.dumps(NETWORK)],
        env={**environment(), "SEED": "0"},
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 2, "the run was over before it could be killed"
    taken_up = [int(n) for n in re.findall(r"continuing from iteration (\d+) of 30", done.stderr)]
    assert taken_up == sorted(set(taken_up)), "not every part of the run came further than the one before"
    # A part that is killed when it has just removed its checkpoint begins anew.
    assert len(taken_up) >= int(done.stdout) - 1
    same(load_encoder(out), undisturbed)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out", "out.history.csv"]
    rows = (tmp_path / "out.history.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["iteration", "10", "20", "30"]


@pytest.mark.slow
def test_ctrl_c_on_a_real_command_line(source, tmp_path):
    out = tmp_path / "out"
    arguments = [sys.executable, "-m", "crowdshot", "train", source, "--out", str(out), *OPTIONS]
    process = subprocess.Popen(
        [*arguments, "--iterations", "1000000"], env=environment(), stderr=subprocess.PIPE, text=True
    )
    try:
        wait_until(lambda: (tmp_path / "out.checkpoint").exists() or process.poll() is not None)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=TIMEOUT)
    finally:
        process.kill()
    assert process.returncode == 130, said
    assert "same command to continue from" in said
    assert "Traceback" not in said
    assert "iterations/s" in said


# --- several processes -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_processes_with_one_episode_each_equal_one_with_two(source, tmp_path):
    """Compare to 1e-6; a sum of two terms does not depend on their order."""
    alone = tmp_path / "alone"
    train_encoder(source, alone, Recipe(**SETTINGS, episodes=2), **NETWORK)
    both = tmp_path / "both"
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    done = subprocess.run(
        [*launch, "-m", "crowdshot", "train", source, "--out", str(both), *OPTIONS],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    one, two = load_encoder(alone), load_encoder(both)
    assert two.card["recipe"]["episodes"] == 2
    for name, value in one.module.state_dict().items():  # including running statistics of batch normalisation
        assert_close(two.module.state_dict()[name], value, atol=1e-6, rtol=0)
    losses = [[row.split(",")[1] for row in path.read_text().splitlines()] for path in sorted(tmp_path.glob("*.csv"))]
    assert losses[0] == losses[1]


# --- progress --------------------------------------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


def progress(iteration, accuracy=0.5, best=0.5):
    return Progress(iteration, 40, [0.25], [accuracy], [best], [False], [None])


def test_progress_lines_without_a_terminal(tmp_path, monkeypatch):
    clock = iter(range(0, 10_000, 5))
    monkeypatch.setattr(time, "monotonic", lambda: float(next(clock)))
    stream = io.StringIO()
    log = TrainingLog(tmp_path / "history.csv", stream=stream)
    for step in range(1, 11):
        log.tick(step, 40)
    log.report(progress(10, 0.625))
    log.close()
    *between, last = stream.getvalue().splitlines()
    assert last.startswith("iteration 10/40, loss 0.2500, validation accuracy 0.6250 (best 0.5000), ")
    assert last.endswith(" left")
    assert "iterations/s" in last
    assert between, "long silence is broken"
    assert all(line.startswith("iteration ") and "accuracy" not in line for line in between)


def test_a_diverged_model_is_reported_once(tmp_path):
    stream = io.StringIO()
    log = TrainingLog(tmp_path / "history.csv", stream=stream)
    log.tick(1, 40)
    for diverged in (None, 17, 17):
        log.report(Progress(20, 40, [0.3, 0.3], [0.5, 0.5], [0.5, 0.5], [False, False], [None, diverged]))
    assert stream.getvalue().count("model 1: the loss is not finite since iteration 17") == 1


def test_progress_on_a_terminal_is_one_line(tmp_path):
    stream = Terminal()
    log = TrainingLog(tmp_path / "history.csv", stream=stream)
    log.tick(1, 40)
    log.report(progress(20, 0.625, 0.75))
    log.tick(40, 40)
    log.close()
    assert stream.getvalue().count("\n") == 1, "at the end"
    last = stream.getvalue().split("\r")[-1]
    assert re.search(r"^iteration 40/40, loss 0.2500, accuracy 0.6250, [\d.e+]+ iterations/s, 0:00:00 le?f?t?", last)


def test_another_file_is_refused_as_a_history(tmp_path):
    (tmp_path / "history.csv").write_text("my,own\n1,2\n")
    with pytest.raises(CrowdshotError, match=r"history.csv is not the history of a training run"):
        TrainingLog(tmp_path / "history.csv", resumed=True)


def test_embedding_uses_the_preprocessing_of_training(source, undisturbed):
    """Compare `embed` with the network applied to images that were read with the encoder's preprocessing."""
    images = np.load(source)["images"][:5]
    pixels = read_images(images, undisturbed.input)
    assert_close(undisturbed.embed(images), undisturbed.module(pixels).detach())


def test_validation_chooses_among_recipes_trained_together(source, undisturbed, tmp_path):
    """Train three candidates in one stack; the first equals the run of `undisturbed`."""
    recipe = Recipe(**SETTINGS)
    others = [replace(recipe, steps=1), replace(recipe, b=1.0)]
    out, rival = tmp_path / "best.safetensors", tmp_path / "rival.safetensors"
    report = train_encoder(source, out, recipe, others=others, rival=rival, **NETWORK)
    card = load_encoder(out).card
    accuracies = [entry["validation_accuracy"] for entry in card["chosen_from"]]
    assert [(entry["steps"], entry["b"]) for entry in card["chosen_from"]] == [(2, 100.0), (1, 100.0), (2, 1.0)]
    assert card["scores"]["validation_accuracy"] == max(accuracies) == report.scored.validation_accuracy
    assert accuracies[0] == pytest.approx(undisturbed.card["scores"]["validation_accuracy"], abs=1e-6)
    assert load_encoder(rival).card["recipe"]["objective"] == "prototypical"
    assert load_encoder(rival).card["recipe"]["pseudo_annotation"] is False


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"test_classes": 3}, "test_classes is 3, expected 0, or 4 or more"),
        ({"backbone": "lite0", "hidden": (8,)}, r"hidden is \[8\], .* expected none"),
    ],
)
def test_late_failures_are_found_before_training(source, tmp_path, settings, message):
    with pytest.raises(CrowdshotError, match=message):
        train_encoder(source, tmp_path / "x.safetensors", Recipe(**SETTINGS), **{**NETWORK, **settings})
    assert not list(tmp_path.iterdir())
