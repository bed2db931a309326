"""Test training of the label model: the loss falls, interrupted runs continue, and scores agree with values by hand."""

import json
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import save_file

from crowdshot.errors import CrowdshotError
from crowdshot.io.cards import read_safetensors
from crowdshot.labels.annotations import Annotations
from crowdshot.model import label_model, parts
from crowdshot.training.simulated_crowds import Crowds, World
from crowdshot_paper import label_model_training
from crowdshot_paper import projects as finished
from crowdshot_paper.label_model_training import (
    CERTAIN,
    EARLIER_ROUNDS,
    Scores,
    Settings,
    learning_rate,
    loss_of,
    mean_log_loss,
    scores,
    total,
    train,
    train_folds,
    training_problem,
    untrained,
)
from crowdshot_paper.projects import Project, draw, leave_out, read_projects, side_by_side

TINY = replace(World(), classes=(2, 3), items=(10, 40), annotators=(4, 12))
QUICK = Settings(iterations=6, seed=1, labels=400, draws=2)


def project(name="birds", seed=0, N=40, R=6, K=3, known=1.0):
    randomness = np.random.default_rng(seed)
    truth = randomness.integers(K, size=N)
    labels = np.where(randomness.random((N, R)) < 0.7, truth[:, None], randomness.integers(K, size=(N, R)))
    matrix = np.where(randomness.random((N, R)) < 0.6, labels, -1)
    matrix[:, 0] = labels[:, 0]
    ann = Annotations.from_matrix(matrix, classes=range(K))
    return Project(name, ann, np.where(randomness.random(N) < known, truth, -1))


def same(one, two):
    return one.keys() == two.keys() and all(np.array_equal(one[name], two[name]) for name in one)


# ---- learning -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_training_on_simulated_crowds_lowers_the_loss():
    """The loss on the same 15 batches is lower after training."""
    losses = []
    learned = train([], TINY, Settings(15, labels=400, learning_rate=0.02), report=lambda _, loss: losses.append(loss))
    assert len(losses) == 15
    assert all(math.isfinite(loss) for loss in losses)
    again, after = [], []
    for network, into in ((untrained(0, 3, 16), again), (learned, after)):
        still = Settings(15, labels=400, learning_rate=1e-12)
        train([], TINY, still, initial=network, report=lambda _, loss, into=into: into.append(loss))
    assert np.mean(after) < np.mean(again) - 0.005


def test_training_on_projects_lowers_the_loss():
    """In this crowd all annotators but one are always wrong, which only known truth shows."""
    truth = np.arange(60) % 2
    matrix = np.stack([truth, 1 - truth, 1 - truth, 1 - truth], axis=1)
    odd = Project("odd", Annotations.from_matrix(matrix), truth)
    before = scores(untrained(0, 3, 16), odd.annotations, odd.truth)
    learned = train([odd], TINY, Settings(15, labels=50, draws=6, learning_rate=0.03))
    assert scores(learned, odd.annotations, odd.truth).log_loss < before.log_loss - 0.05


def test_the_same_seed_gives_the_same_network():
    crowds = [project(), project("fish", 1, K=2)]
    one, two, other = (train(crowds, TINY, replace(QUICK, seed=seed)) for seed in (1, 1, 2))
    assert same(one, two)
    assert not same(one, other)
    assert {value.dtype for value in one.values()} == {np.dtype(np.float32)}
    assert {name: value.shape for name, value in one.items()} == label_model.shapes(3, 16)


def test_a_stopped_run_continues_with_identical_bytes(tmp_path):
    crowds = [project(), project("fish", 1, K=2)]
    whole = train(crowds, TINY, QUICK)
    file, seen = tmp_path / "checkpoint", []
    for stop_at in (2, 5, 99):
        part = train(
            crowds,
            TINY,
            QUICK,
            checkpoint=file,
            tick=lambda done, total: seen.append(done),
            stop=lambda stop_at=stop_at: seen[-1] >= stop_at,
        )
        assert (part is None) == (stop_at < 99)
    assert seen == [1, 2, 3, 4, 5, 6]
    assert same(part, whole)
    assert same(train(crowds, TINY, QUICK, checkpoint=file), whole)  # the run is complete
    assert len(seen) == 6


def test_a_checkpoint_every_few_steps_is_enough(tmp_path):
    whole = train([], TINY, QUICK)
    file = tmp_path / "checkpoint"

    class Killed(Exception):  # noqa: N818
        pass

    def kill(done, total):
        if done == 5:
            raise Killed

    with pytest.raises(Killed):
        train([], TINY, QUICK, checkpoint=file, checkpoint_every=2, tick=kill)
    assert same(train([], TINY, QUICK, checkpoint=file), whole)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"settings": replace(QUICK, iterations=1, seed=9)}, r"seed was 1 and is now 9"),
        ({"world": TINY.without("order")}, r"world differs"),
        ({"projects": [project(seed=3)]}, r"labels and truth was \d+ and is now \d+"),
        ({"initial": untrained(5, 3, 16)}, r"initial was \d+ and is now \d+"),
    ],
)
def test_the_checkpoint_of_another_run_is_refused(tmp_path, given, told):
    file = tmp_path / "checkpoint"
    usual = {"projects": [project()], "world": TINY, "settings": replace(QUICK, iterations=1)}
    train(**usual, checkpoint=file)
    with pytest.raises(CrowdshotError, match=rf"checkpoint is the checkpoint of a different run: {told}"):
        train(**{**usual, **given}, checkpoint=file)


@pytest.mark.parametrize("iteration", [float("inf"), -1])
def test_a_checkpoint_without_its_number_of_iterations(tmp_path, iteration):
    file, usual = tmp_path / "checkpoint", {"projects": [], "world": TINY, "settings": replace(QUICK, iterations=1)}
    train(**usual, checkpoint=file)
    tensors, card = read_safetensors(file, "inference checkpoint")
    card = {name: value for name, value in card.items() if name != "sha256"}
    save_file(tensors, file, {"crowdshot": json.dumps({**card, "iteration": iteration})})
    with pytest.raises(CrowdshotError, match=r"checkpoint is damaged or incomplete .*iteration"):
        train(**usual, checkpoint=file)


def test_the_learning_rate_rises_and_falls():
    settings = Settings(1000, learning_rate=2.0)
    assert learning_rate(0, settings) == pytest.approx(2 / 50)
    assert learning_rate(49, settings) == pytest.approx(2 * (0.5 + 0.5 * math.cos(math.pi * 0.049)))
    assert learning_rate(500, settings) == pytest.approx(1.0)
    assert learning_rate(999, settings) < 1e-4


@pytest.mark.parametrize(
    ("name", "value", "least"), [("iterations", 0, 1), ("labels", 0, 1), ("seed", -1, 0), ("draws", -1, 0)]
)
def test_settings_are_checked(name, value, least):
    with pytest.raises(CrowdshotError, match=rf"^{name} is {value}, expected {least} or more\.$"):
        Settings(**{name: value})


# ---- the loss -------------------------------------------------------------------------------------------------------


def crowds_of(sizes, truth, K=2):
    """Return crowds with one annotator each, who labels every item 0."""
    items = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    return Crowds(
        torch.arange(len(items)),
        items,
        torch.zeros(len(items), dtype=torch.int64),
        truth,
        items,
        torch.arange(len(sizes)),
        K,
        len(sizes),
    )


def test_the_loss_by_hand():
    """Weights of crowds are square roots of the number of known items, of which at most 60 count."""
    network = {name: torch.tensor(value, dtype=torch.float32) for name, value in untrained(0, 2, 4).items()}
    truth = torch.zeros(104, dtype=torch.int64)
    truth[2:4] = -1
    crowds = crowds_of([4, 100], truth)
    first, last, _ = (
        score.reshape(-1, 2) for score in label_model.infer(training_problem(crowds), network, torch, total)
    )
    weight = torch.tensor([math.sqrt(2) / 2] * 2 + [0, 0] + [math.sqrt(60) / 100] * 100)
    weight /= weight.sum()
    cost = [-(CERTAIN * score.softmax(-1)[:, 0] + (1 - CERTAIN) / 2).log() for score in (first, last)]
    expected = (weight * (EARLIER_ROUNDS * cost[0] + cost[1])).sum()
    assert float(loss_of(network, crowds)) == pytest.approx(float(expected), rel=1e-5)


def test_crowds_without_known_items_have_no_loss():
    network = {name: torch.tensor(value, dtype=torch.float32) for name, value in untrained(0, 2, 4).items()}
    assert float(loss_of(network, crowds_of([3], torch.full((3,), -1)))) == 0


# ---- scores ---------------------------------------------------------------------------------------------------------


def test_scores_by_hand(monkeypatch):
    """Five items have given posteriors; the truth of one is unknown."""
    ann = Annotations.from_matrix([[0], [1], [1], [0], [0]])
    posterior = np.array([[0.95, 0.05], [0.5, 0.5], [0.0, 1.0], [0.6, 0.4], [0.8, 0.2]])
    monkeypatch.setattr(label_model_training, "posterior_of", lambda problem, score: posterior.ravel())
    found = scores(label_model.constant(1), ann, np.array([0, 1, 0, 0, -1]))
    assert found.items == 4
    assert found.accuracy == pytest.approx((1 + 0.5 + 0 + 1) / 4)
    assert found.log_loss == pytest.approx(-np.log([0.95, 0.5, 0.001, 0.6]).mean())
    assert found.over == pytest.approx((0.95 + 0.5 + 1 + 0.6) / 4 - 0.625)
    assert (found.accepted, found.right) == (0.5, 0.5)
    unsettled = scores(label_model.constant(1), ann, np.array([-1, 1, -1, 0, -1]))
    assert (unsettled.accepted, unsettled.right) == (0.0, None)


def test_scores_with_many_classes(monkeypatch):
    """A true class that no annotator chose for the item has the lowest probability in the log-loss."""
    monkeypatch.setattr(parts, "MOST_CELLS", 1)
    ann = Annotations.from_matrix([["a", "a"], ["b", "b"], ["c", "a"]])
    found = scores(label_model.constant(2), ann, np.array([0, 0, 2]))
    assert found.accuracy == pytest.approx((1 + 0 + 1) / 3, abs=1 / 3)
    assert found.log_loss > -math.log(0.001) / 3


def test_scores_need_a_truth():
    with pytest.raises(CrowdshotError, match=r"^truth has no known class, expected at least one item"):
        scores(label_model.constant(1), Annotations.from_matrix([[0], [1]]), np.array([-1, -1]))


# ---- left out -------------------------------------------------------------------------------------------------------


def test_relatives_are_left_out_together():
    crowds = [project(name) for name in ("a", "b", "c", "d")]
    folds = [tuple("".join(p.name for p in part) for part in fold) for fold in leave_out(crowds, [["a", "c"]])]
    assert folds == [("ac", "bd"), ("b", "acd"), ("d", "abc")]


@pytest.mark.parametrize(
    ("relatives", "told"),
    [
        ([["a", "z"]], r"relatives has 'z', expected names of projects, 'a', 'b'\."),
        ([["a", "b"], ["a"]], r"relatives has 'a' more than once, expected each project in one group\."),
    ],
)
def test_invalid_relatives_are_refused(relatives, told):
    with pytest.raises(CrowdshotError, match=told):
        leave_out([project("a"), project("b")], relatives)


def test_folds_are_trained_on_the_others():
    crowds = [project(name) for name in ("a", "b", "c")]
    trained = []

    def learn(number, others):
        trained.append((number, [each.name for each in others]))
        return {}

    left_out = [[each.name for each in fold.left_out] for fold in train_folds(crowds, [["b", "c"]], learn)]
    assert left_out == [["b", "c"], ["a"]]
    assert trained == [(0, ["a"]), (1, ["b", "c"])]
    with pytest.raises(CrowdshotError, match=r"^projects has 1 group of related projects, expected two or more"):
        next(train_folds(crowds, [["a", "b", "c"]], learn))


def test_the_mean_is_over_projects():
    few, many = (Scores(n, 0.5, loss, 0, 0, None) for n, loss in ((1, 1.0), (1000, 3.0)))
    assert mean_log_loss({"few": few, "many": many}) == 2.0


# ---- projects -------------------------------------------------------------------------------------------------------


def write(folder, crowd):
    folder.mkdir(parents=True)
    crowd.annotations.to_frame().to_csv(folder / "answers.csv", index=False)
    known = crowd.truth >= 0
    table = pd.DataFrame({"item": crowd.annotations.items[known], "truth": crowd.truth[known]})
    table.to_csv(folder / "truth.csv", index=False)


def test_projects_are_read(tmp_path):
    written = project(known=0.7)
    write(tmp_path / "birds", written)
    write(tmp_path / "fish", project("fish", 1, K=2))
    (tmp_path / "readme.txt").write_text("of last year")
    (tmp_path / ".hidden").mkdir()
    birds, fish = read_projects(tmp_path)
    assert (birds.name, fish.name) == ("birds", "fish")
    assert birds.annotations.n_labels == written.annotations.n_labels
    truth = dict(zip(birds.annotations.items, birds.truth, strict=True))
    for item, known in zip(written.annotations.items, written.truth, strict=True):
        assert truth[str(item)] == known


def test_folders_without_projects_are_refused(tmp_path):
    with pytest.raises(CrowdshotError, match=r"^projects is .*nowhere, which is not a folder"):
        read_projects(tmp_path / "nowhere")
    with pytest.raises(CrowdshotError, match=r"which contains no folder"):
        read_projects(tmp_path)
    (tmp_path / "birds").mkdir()
    with pytest.raises(CrowdshotError, match=r"birds has no answers\.csv, expected one file named answers"):
        read_projects(tmp_path)
    (tmp_path / "birds" / "answers.csv").write_text("item,annotator,label\n1,a,x\n2,a,x\n")
    (tmp_path / "birds" / "truth.csv").write_text("item,truth\n1,x\n")
    with pytest.raises(CrowdshotError, match=r"answers\.csv has 1 class, expected two or more\.$"):
        read_projects(tmp_path)
    (tmp_path / "birds" / "answers.tsv").write_text("")
    with pytest.raises(CrowdshotError, match=r"birds has 'answers\.csv', 'answers\.tsv', expected one file"):
        read_projects(tmp_path)


@pytest.mark.parametrize("seed", range(20))
def test_draws_are_parts_of_a_project(seed):
    crowd = project(seed=seed, N=120, R=15, known=0.3 if seed % 2 else 1.0)
    labels = draw(crowd, np.random.default_rng(seed))
    assert len(np.unique(labels)) == len(labels) > 0
    assert np.array_equal(labels, draw(crowd, np.random.default_rng(seed)))
    drawn = side_by_side([(crowd, labels), (crowd, labels)])
    half = len(labels)
    assert (drawn.n_crowds, drawn.n_classes, len(drawn.item)) == (2, 3, 2 * half)
    N, R = len(drawn.truth) // 2, len(drawn.crowd_of_annotator) // 2
    assert torch.equal(drawn.item[half:], drawn.item[:half] + N)
    assert torch.equal(drawn.annotator[half:], drawn.annotator[:half] + R)
    ann = crowd.annotations
    items = np.unique(ann.item[labels])
    assert drawn.truth[:N].tolist() == crowd.truth[items].tolist()
    assert items[drawn.item[:half].numpy()].tolist() == ann.item[labels].tolist()
    assert drawn.label[:half].tolist() == ann.label[labels].tolist()


def test_draws_differ_in_size():
    crowd = project(N=300, R=10)
    drawn = [draw(crowd, np.random.default_rng(seed)) for seed in range(40)]
    items = [len(np.unique(crowd.annotations.item[labels])) for labels in drawn]
    each = [len(labels) / n for labels, n in zip(drawn, items, strict=True)]
    assert min(items) < 40 < 200 < max(items) <= 300
    assert min(each) == 1.0
    assert max(each) > 5


def test_draws_include_items_of_unknown_truth():
    crowd = project(N=300, known=0.2)
    labels = draw(crowd, np.random.default_rng(1))
    known = crowd.truth[np.unique(crowd.annotations.item[labels])] >= 0
    assert 0 < known.mean() < 0.6


def test_first_labels():
    assert finished.first_labels(np.array([0, 1, 0, 0, 1]), 2).tolist() == [True, True, True, False, True]
