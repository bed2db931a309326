"""Test running of experiments: measures, episodes, shared encoders, and resumed runs."""

import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest
import torch

from crowdshot.classifier.episode_methods import embed
from crowdshot.encoders.encoder_files import build_encoder, load_encoder
from crowdshot.errors import CrowdshotError
from crowdshot.methods import CrowdEpisodes
from crowdshot.training import encoder_scores, loop, pools
from crowdshot_paper import experiments, parallel, runner, work
from crowdshot_paper import work as encoders
from crowdshot_paper.draws import split_classes, toy_dataset
from crowdshot_paper.encoder_plan import wanted
from crowdshot_paper.episode_cells import REAL, SOURCE_CROWD, TARGET_CROWDS, TARGETS, Cell
from crowdshot_paper.experiments import EXPERIMENTS, IN_MAIN, PAPER, QUICK, SYSTEMS, Protocol
from crowdshot_paper.registry import METHODS
from crowdshot_paper.store import Piece, Store, read_rows
from polling import TIMEOUT, wait_until

PIECE = Piece("main", "omniglot", 0, 4, 3, "Ours")


def place_in(folder, **protocol):
    return work.Place(folder / "results", folder / "work", None, replace(QUICK, **protocol))


def counting(done):
    """Return a version of `workers.run_all` in this process that records calls."""

    def run_all(work, jobs, devices, tick):
        for job in jobs:
            work(*job, devices[0])
            done.append((work.__name__, job[0]))

    return run_all


def run(place, names="main", datasets=("omniglot",), methods=None, run_all=parallel.run_all):
    left = runner.missing(experiments.chosen(names), datasets, methods, place)
    return runner.run(left, place, ["cpu"], run_all)


# ---- measures -------------------------------------------------------------------------------------------------------


def test_calibration_error_by_hand():
    """Bin 9 has 0.95 twice, once correct: |1 - 1.9| = 0.9. Bins 5 and 6 add 1 - 0.55 and 1 - 0.65: (0.9 + 0.8) / 4."""
    probabilities = torch.tensor([[[0.95, 0.05], [0.05, 0.95], [0.55, 0.45], [0.35, 0.65]]])
    truth = torch.tensor([[0, 0, 0, 1]])
    torch.testing.assert_close(encoder_scores.calibration_error(probabilities, truth), torch.tensor([1.7 / 4]))
    two = encoder_scores.calibration_error(probabilities.expand(2, -1, -1), torch.stack([truth[0], 1 - truth[0]]))
    torch.testing.assert_close(two, torch.tensor([1.7, 0.9 + 0.55 + 0.65]) / 4, msg="each episode apart")


def test_calibration_error_at_its_ends():
    sure = torch.eye(3)[None]
    truth = torch.arange(3)[None]
    assert encoder_scores.calibration_error(sure, truth).item() == 0
    assert encoder_scores.calibration_error(sure, (truth + 1) % 3).item() == 1
    guesses = torch.full((1, 4, 4), 0.25)
    assert encoder_scores.calibration_error(guesses, torch.arange(4)[None]).item() == 0, (
        "a quarter is right, and it said so"
    )


@pytest.mark.slow
@pytest.mark.parametrize("dataset", ["omniglot", "labelme"])
def test_crowds_give_the_same_together_and_alone(tmp_path, dataset):
    """Validation may have fewer simulated annotators than there are real ones."""
    place = place_in(tmp_path)
    piece = Piece("labelme", "labelme", 0, 8, 0, "Ours") if dataset == "labelme" else PIECE
    cells = work.cells_of(piece, place)
    batches = work.draw(piece, cells, place, None, "cpu")
    assert [(role, cell.crowd) for role, cell, _ in batches] == [
        ("validation", SOURCE_CROWD),
        *(("test", crowd) for crowd in ([REAL] if dataset == "labelme" else [TARGET_CROWDS[0], TARGET_CROWDS[-1]])),
    ]
    data = toy_dataset(dataset)
    torch.manual_seed(0)
    network = build_encoder("conv4", {"channels": data.input.channels, "width": 4}, data.input)
    prepare = pools.input_of(network, torch.device("cpu"))
    everything = work.together([batch for _, _, batch in batches])
    for name in ("Ours", "PrDS", "LRDS", "CL"):
        method = METHODS[name]
        candidates = place.protocol.candidates(method)[-1:]

        def predict(batch, method=method, candidates=candidates):
            episodes = CrowdEpisodes.of(batch, cells[0].ways, prepare)
            return method.predict_candidates(episodes, network.module, candidates, seed=0)[0]

        alone = torch.cat([predict(batch) for _, _, batch in batches])
        torch.testing.assert_close(predict(everything), alone, atol=1e-4, rtol=1e-3, msg=lambda m, n=name: f"{n}: {m}")


def test_rows_have_accuracy_and_calibration_of_each_episode(tmp_path, monkeypatch):
    """A method that predicts class 2 with probability 0.7 is right for a quarter of the queries: ECE 0.45."""
    probabilities = torch.tensor([0.1, 0.1, 0.7, 0.1])

    def say_two(episodes, encoder, candidates, seed):
        return [probabilities.expand(*episodes.query.shape[:2], 4) for _ in candidates]

    monkeypatch.setitem(SYSTEMS, "LRMV", replace(METHODS["LRMV"], run=say_two))
    assert run(place_in(tmp_path, episodes=3), methods=["LRMV"]) == 2
    rows = read_rows(tmp_path / "results", "main", "omniglot")
    sizes, candidates, groups = 2, 2, 3
    assert len(rows) == sizes * candidates * groups * 3
    assert set(rows["accuracy"]) == {0.25}
    assert rows["ece"].tolist() == pytest.approx([0.45] * len(rows))
    assert set(rows["candidate"]) == {"C=0.0001", "C=0.001"}
    assert set(rows.loc[rows["role"] == "validation", "mixture"]) == {SOURCE_CROWD}
    assert set(rows.loc[rows["role"] == "test", "mixture"]) == {TARGET_CROWDS[0], TARGET_CROWDS[-1]}
    assert {(int(n), int(r)) for n, r in zip(rows["n_support"], rows["n_annotators"], strict=True)} == {(4, 3), (20, 7)}
    assert set(rows["episode"]) == {0, 1, 2}
    times = Store(tmp_path / "results", "main", "omniglot").times()
    assert times["what"].tolist() == ["test", "test"]
    assert times["episodes"].tolist() == [9, 9]
    assert times["candidates"].tolist() == [2, 2]
    assert times["device"].tolist() == ["CPU", "CPU"]


@pytest.mark.parametrize("experiment", ["main", "labelme"])
def test_every_method_gets_the_same_episodes(tmp_path, monkeypatch, experiment):
    """Methods on embeddings get the embeddings of the same items."""
    seen = {}

    def recorder(name):
        def record(episodes, encoder, candidates, seed):
            seen.setdefault(name, []).append((episodes, encoder))
            K = episodes.n_classes
            return [torch.full((*episodes.query.shape[:2], K), 1 / K) for _ in candidates]

        return record

    for name in ("LRMV", "RFMV", "MCL", "PrMV"):
        monkeypatch.setitem(SYSTEMS, name, replace(METHODS[name], run=recorder(name)))
    place = place_in(tmp_path)
    run(place, experiment, ["omniglot", "labelme"], ["LRMV", "RFMV", "MCL", "PrMV"])
    n_sizes = 1 if experiment == "labelme" else 2
    assert {name: len(found) for name, found in seen.items()} == dict.fromkeys(("LRMV", "RFMV", "MCL", "PrMV"), n_sizes)
    for plain, forest, tuned, proto in zip(*(seen[name] for name in ("LRMV", "RFMV", "MCL", "PrMV")), strict=True):
        for episodes, _ in (forest, tuned):
            assert all(torch.equal(a, b) for a, b in zip(plain[0][:3], episodes[:3], strict=True))
        assert torch.equal(plain[0].labels, proto[0].labels)
        for items, embeddings in ((plain[0].support, proto[0].support), (plain[0].query, proto[0].query)):
            torch.testing.assert_close(embed(proto[1], embeddings), embed(tuned[1], items), atol=1e-4, rtol=1e-4)


def test_an_experiment_may_draw_more_episodes(tmp_path):
    counts = {}
    for experiment in ("beyond", "beyond-more-episodes"):
        piece, place = Piece(experiment, "labelme", 0, 8, 0, "PrSV wide"), place_in(tmp_path)
        batches = work.draw(piece, work.cells_of(piece, place), place, None, "cpu")
        counts[experiment] = [len(batch.labels) for _, _, batch in batches]
    assert counts == {"beyond": [2, 2], "beyond-more-episodes": [20, 20]}


@pytest.mark.parametrize(("experiment", "expected"), [("labelme", [50, 10]), ("beyond-more-episodes", [100, 100])])
def test_real_annotators_have_fewer_test_episodes(tmp_path, experiment, expected):
    toy = place_in(tmp_path)
    place = replace(toy, protocol=replace(toy.protocol, episodes=0))
    piece = Piece(experiment, "labelme", 0, 8, 0, "PrSV")
    batches = work.draw(piece, work.cells_of(piece, place), place, None, "cpu")
    assert [len(batch.labels) for _, _, batch in batches] == expected


@pytest.mark.parametrize("piece", [PIECE, Piece("labelme", "labelme", 0, 8, 0, "PrSV")])
def test_fewer_episodes_are_the_first_of_the_usual_ones(tmp_path, piece):
    """So that a short run of a new method can be paired with stored rows."""
    toy = place_in(tmp_path)
    cells = [Cell(12, 5, "H1")] if piece == PIECE else work.cells_of(piece, toy)
    some, usual = (
        work.draw(piece, cells, place, None, "cpu")
        for place in (replace(toy, protocol=replace(toy.protocol, episodes=number)) for number in (3, None))
    )
    for (role, cell, few), (_, _, many) in zip(some, usual, strict=True):
        assert len(few.labels) == 3, (role, cell)
        assert len(many.labels) > 3
        for one, all_of_them in zip(few, many, strict=True):
            assert one is all_of_them is None or torch.equal(one, all_of_them[:3])


def test_validation_is_on_validation_classes_with_the_source_crowd(tmp_path, monkeypatch):
    calls = []
    draw = work.draw_episodes

    def recorded(dataset, classes, cell, n, split, role, labels_per_item=None):
        calls.append((role, dataset.name, classes, cell, labels_per_item))
        return draw(dataset, classes, cell, n, split, role, labels_per_item)

    monkeypatch.setattr(work, "draw_episodes", recorded)
    place = place_in(tmp_path)
    work.draw(PIECE._replace(split=3), (Cell(12, 5, "H1"), Cell(12, 5, "F1")), place, None, "cpu")
    toy = replace(TARGETS["omniglot"], classes=(16, 10, 6))
    _, validate, test = split_classes(toy, 32, 3)
    assert sorted(calls, key=repr) == sorted(
        [
            ("test", "omniglot", test, Cell(12, 5, "H1"), None),
            ("test", "omniglot", test, Cell(12, 5, "F1"), None),
            ("validation", "omniglot", validate, Cell(12, 5, SOURCE_CROWD), None),
        ],
        key=repr,
    )
    calls.clear()
    scarce = Piece("class-imbalance", "labelme", 3, 28, 0, "Ours")
    work.draw(scarce, (Cell(28, 0, REAL, 8, 3),), place, None, "cpu")
    assert ("test", "labelme", None, Cell(28, 0, REAL, 8, 3), None) in calls
    sparse = ("validation", "miniimagenet", validate, Cell(28, 20, SOURCE_CROWD, 8, 3), (2, 3))
    assert sparse in calls, "as sparse as in meta-training, and with as few items of some classes"


def test_candidates():
    assert len(PAPER.candidates(METHODS["Ours"])) == 18
    assert len(PAPER.candidates(METHODS["MaDS"])) == 18
    for name, method in METHODS.items():
        quick = QUICK.candidates(method)
        assert quick, name
        assert all(candidate in method.candidates for candidate in quick)
    assert QUICK.candidates(METHODS["CL"]) == [{"iterations": 10}]
    assert {(one["steps"], one["b"]) for one in QUICK.candidates(METHODS["Ours"])} == {
        (j, b) for j in (1, 2) for b in (1.0, 10.0, 100.0)
    }


def test_toy_runs_have_few_cells_of_every_experiment():
    for experiment in EXPERIMENTS.values():
        for dataset in experiment.datasets:
            for name in experiment.methods:
                piece = Piece(experiment.name, dataset, 0, *QUICK.cells(experiment, dataset)[0].size, name)
                assert work.needed(piece, place_in(Path())), "a candidate of each method"
            cells, quick = experiment.cells(dataset), QUICK.cells(experiment, dataset)
            assert 1 <= len(quick) <= 4
            kinds, toy_kinds = ({(one.shots, one.n_annotators, one.crowd) for one in some} for some in (cells, quick))
            assert toy_kinds <= kinds
            assert all(one.ways <= experiments.TOY_WAYS for one in quick if one.crowd != REAL)
            assert max(cell.shots for cell in quick) <= 10
            assert PAPER.cells(experiment, dataset) == cells
    assert len({cell.size for cell in QUICK.cells(EXPERIMENTS["large-support"], "miniimagenet")}) == 2


def test_no_split_is_refused():
    for splits in ((), (-1, 0)):
        with pytest.raises(CrowdshotError, match=re.escape(f"splits is {list(splits)}, expected")):
            Protocol(splits=splits)


# ---- resumed runs ---------------------------------------------------------------------------------------------------


def test_a_finished_piece_is_never_run_again(tmp_path):
    place, done = place_in(tmp_path), []
    assert run(place, methods=["LRMV"], run_all=counting(done)) == 2
    assert run(place, methods=["LRMV", "PrMV"], run_all=counting(done)) == 2
    tested = [job for name, job in done if name == "test_one"]
    assert [(piece.method, piece.n_support) for piece in tested] == [
        ("LRMV", 4),
        ("LRMV", 20),
        ("PrMV", 4),
        ("PrMV", 20),
    ]
    n = len(done)
    before = read_rows(tmp_path / "results", "main", "omniglot")
    assert run(place, methods=["LRMV", "PrMV"], run_all=counting(done)) == 0
    assert len(done) == n > 4, "four pieces, and what was trained for them"
    pd.testing.assert_frame_equal(read_rows(tmp_path / "results", "main", "omniglot"), before)


def test_candidates_may_be_added_later(tmp_path):
    parts, whole, done = tmp_path / "parts", tmp_path / "whole", []
    some = place_in(parts, only=(("steps", 2.0),))
    assert run(some, methods=["PrDS"], run_all=counting(done)) == 2
    assert run(some, methods=["PrDS"], run_all=counting(done)) == 0
    left = runner.missing([EXPERIMENTS["main"]], ["omniglot"], ["PrDS", "LRMV"], place_in(parts))
    assert runner.describe(left, place_in(parts)) == [
        "main, omniglot: LRMV (2 of 2 pieces); PrDS (2 of 2 pieces, 1 of 2 settings)",
        "4 pieces to run, 0 encoders to meta-train.",
    ]
    assert run(place_in(parts), methods=["PrDS"], run_all=counting(done)) == 2
    assert run(place_in(parts), methods=["PrDS"], run_all=counting(done)) == 0
    run(place_in(whole), methods=["PrDS"])
    rows = [read_rows(folder / "results", "main", "omniglot") for folder in (parts, whole)]
    assert set(rows[0]["candidate"]) == {"steps=1", "steps=2"}
    pd.testing.assert_frame_equal(*rows)


def test_splits_may_be_added_later(tmp_path):
    parts, whole = tmp_path / "parts", tmp_path / "whole"
    for splits in ((1,), (0, 1)):
        run(place_in(parts, splits=splits), methods=["PrMV"])
    run(place_in(whole, splits=(0, 1)), methods=["PrMV"])
    rows = [read_rows(folder / "results", "main", "omniglot") for folder in (parts, whole)]
    assert set(rows[0]["split"]) == {0, 1}
    pd.testing.assert_frame_equal(*rows)


def test_pieces_added_by_another_run_are_not_run_again(tmp_path, monkeypatch):
    place = place_in(tmp_path)
    left = runner.missing([EXPERIMENTS["main"]], ["omniglot"], ["LRMV"], place)
    for piece, needs in left.items():
        work.test_one(piece, needs, place, "cpu")
    before = {file: file.stat().st_mtime_ns for file in place.results.rglob("*.parquet")}
    assert len(before) == len(left) > 0
    monkeypatch.setitem(SYSTEMS, "LRMV", replace(METHODS["LRMV"], run=None))
    for piece, needs in left.items():
        work.test_one(piece, needs, place, "cpu")
    assert {file: file.stat().st_mtime_ns for file in place.results.rglob("*.parquet")} == before


def test_a_failure_keeps_finished_pieces(tmp_path, monkeypatch):
    place, calls = place_in(tmp_path), []
    usual = METHODS["LRMV"].run

    def fails_once(episodes, *rest):
        calls.append(episodes.support.shape[1])
        if len(calls) == 2:
            raise RuntimeError("the power went off")
        return usual(episodes, *rest)

    monkeypatch.setitem(SYSTEMS, "LRMV", replace(METHODS["LRMV"], run=fails_once))
    with pytest.raises(CrowdshotError, match="the power went off"):
        run(place, methods=["LRMV"])
    assert len(Store(place.results, "main", "omniglot").done()) == 1
    assert run(place, methods=["LRMV"]) == 1
    assert calls == [4, 20, 20]


def test_toy_rows_are_not_used_as_real_ones(tmp_path):
    run(place_in(tmp_path), methods=["LRMV"])
    for change, found in (
        ({"episodes": 5}, "episodes = 2, expected 5"),
        ({"iterations": 3}, "iterations = 2, expected 3"),
        ({"toy": False}, "toy = True, expected False"),
    ):
        with pytest.raises(CrowdshotError, match=f"omniglot has rows with {found} as in this run. Use results='DIR'"):
            run(place_in(tmp_path, **change), methods=["LRMV"])
    run(place_in(tmp_path, splits=(1,)), methods=["LRMV"])


def test_a_run_records_its_command(tmp_path):
    run(replace(place_in(tmp_path, splits=(2,)), command="crowdshot paper run main"), methods=["LRMV"])
    (told,) = Store(tmp_path / "results", "main", "omniglot").runs()
    assert told["command"] == "crowdshot paper run main"
    assert told["splits"] == [2]
    assert told["torch"] == torch.__version__
    assert {"crowdshot", "python", "scikit-learn", "commit", "devices", "episodes", "iterations", "toy"} <= set(told)


def test_unknown_names_are_refused():
    assert [one.name for one in experiments.chosen("main, cost,main")] == ["main", "cost"]
    assert len(experiments.chosen("all")) == len(EXPERIMENTS)
    with pytest.raises(CrowdshotError, match=r"There is no experiment 'mian', expected main, spammers, .* or all\."):
        experiments.chosen("main,mian")


def test_missing_data_is_reported(tmp_path):
    place = work.Place(tmp_path / "results", tmp_path / "work", tmp_path / "nowhere", PAPER)
    with pytest.raises(CrowdshotError, match=r"nowhere.omniglot") as caught:
        run(place, methods=["LRMV"])
    assert "\n" not in str(caught.value)
    assert read_rows(tmp_path / "results", "main", "omniglot").empty


def test_real_crowds_run(tmp_path):
    """Run one method with an encoder and one without; some classes have one item."""
    place = place_in(tmp_path)
    assert run(place, "labelme", None, ["PrDS", "LRDS"]) == 2
    assert run(place, "class-imbalance", None, ["PrDS"]) == 1
    rows = read_rows(place.results, "labelme", "labelme")
    assert set(rows["n_annotators"]) == {0}
    assert set(rows.loc[rows["role"] == "test", "mixture"]) == {REAL}
    assert set(rows.loc[rows["role"] == "validation", "mixture"]) == {SOURCE_CROWD}
    assert set(read_rows(place.results, "class-imbalance", "labelme")["n_support"]) == {28}
    times = Store(place.results, "labelme", "labelme").times()
    trained = times[times["what"] == "meta-training"]
    assert trained["dataset"].tolist() == ["miniimagenet"], "where the encoder learned"
    assert trained["precision"].tolist() == ["float32"], "on a CPU"


# ---- encoders -------------------------------------------------------------------------------------------------------


def want(method="Ours", dataset="omniglot", trained_for="one", iterations=0, cell=None, **candidate):
    method = SYSTEMS[method]
    cell = cell or Cell(12, 5, SOURCE_CROWD)
    return wanted(method, {**method.default, **candidate}, TARGETS[dataset], cell, 0, trained_for, iterations)


def test_a_source_sets_length_and_precision_of_training(tmp_path):
    place = work.Place(tmp_path, tmp_path, None, PAPER)

    def trained(dataset, place=place):
        needs = work.needed(Piece("main", dataset, 0, 4, 3, "Ours"), place)
        return {(one.iterations, one.precision) for _, one in needs}

    assert trained("omniglot") == {(30_000, "bfloat16")}
    assert trained("miniimagenet") == {(60_000, "float32")}
    half = replace(place, protocol=replace(PAPER, precision="bfloat16"))
    assert trained("miniimagenet", half) == {(60_000, "bfloat16")}
    for dataset in ("miniimagenet", "labelme", "cifar10h"):
        size = runner._size(Store(tmp_path, "main", dataset), place)
        assert (size["iterations"], size["precision"]) == (60_000, "float32")


def test_encoders_of_two_precisions_have_different_names_and_stacks():
    one = want(dataset="labelme")
    other = replace(one, precision="bfloat16")
    assert one.name == f"{other.name}-float32"
    assert len(encoders.stacks([one, other])) == 2


def test_methods_share_encoders_where_they_can():
    assert want("LRMV") is None
    assert want("PrMV") == want("PrDS", steps=5) == want("MCL") == want("w/o PA")
    assert want("MaMV") == want("MaDS", steps=4)
    photographs = ("miniimagenet", "labelme", "cifar10h")
    assert len({want(dataset=name) for name in photographs}) == 1
    assert len({want(dataset=name, trained_for="sparse") for name in photographs[1:]}) == 1
    assert len({want("labeling-search", dataset=name) for name in photographs}) == 1
    different = [want(steps=j, b=b) for j in (1, 2) for b in (1.0, 10.0)]
    different += [want("PrMV"), want("PrMV w/ PA"), want("LNL"), want("MaMV"), want("MaMV", step_size=1.0)]
    different += [want(dataset="labelme"), want(dataset="labelme", trained_for="sparse"), want(iterations=10)]
    different += [want(trained_for="cell"), want("labeling-search")]
    assert len({one.name for one in different}) == len(set(different)) == len(different)
    assert want("PrMV").iterations == 30_000
    assert want("MaMV").iterations == 5_000
    assert want("MaMV", dataset="labelme").iterations == 7_500
    assert want("MaMV", iterations=10).iterations == 10


def test_encoders_are_trained_for_the_experiments_episodes():
    def of(*arguments, **options):
        one = want(*arguments, **options)
        return one.shots, one.annotators

    assert of(trained_for="cell") == ((3, 3), (5, 5))
    assert of("PrMV", trained_for="cell") == ((3, 3), (3, 3)), "those who tell the truth are as good as three of them"
    assert of(dataset="labelme", trained_for="cell", cell=Cell(24, 0, REAL, 8)) == ((3, 3), (5, 5))
    assert of(trained_for="one") == ((1, 5), (3, 7))
    assert of(trained_for="largest") == of("PrMV", trained_for="largest") == ((5, 5), (7, 7))
    assert {EXPERIMENTS[name].encoders for name in ("large-support", "large-annotators")} == {"largest"}
    assert of(dataset="labelme", cell=Cell(28, 0, REAL, 8, 3)) == ((1, 5), (3, 7)), "as for its source"
    sparse = want(dataset="labelme", trained_for="sparse", cell=Cell(24, 0, REAL, 8))
    assert (sparse.ways, sparse.annotators, sparse.labels_per_item) == (8, (20, 20), (1, 7))
    assert sparse.iterations == 16_000


def test_settings_of_meta_training_are_part_of_the_encoder():
    plain = want()
    changed = [want(tau=0.1), want(noise=0.2), want(spammers=0.4), want(errors=0.0)]
    assert len({one.name for one in (plain, *changed)}) == 5
    assert [one.recipe(PAPER).tau for one in changed] == [0.1, 1.0, 1.0, 1.0]
    assert changed[2].recipe(PAPER).crowd == pytest.approx({"expert": 0.1, "hammer": 0.5, "spammer": 0.4})
    assert plain.pseudo_annotation
    assert not changed[3].pseudo_annotation
    assert len(encoders.stacks([plain, *changed])) == 2, "spammers need a stack of their own"
    assert want("PrMV", noise=0.2) == want("PrMV"), "only the mixture is meta-trained with these settings"


def test_an_experiment_can_sweep_a_setting():
    found = EXPERIMENTS["source-noise"].candidates(SYSTEMS["Ours"].candidates)
    assert found == [{"steps": 2, "b": 100.0, "noise": noise} for noise in (0.1, 0.2, 0.4)]


def test_test_episodes_may_have_other_numbers_of_classes():
    cells = EXPERIMENTS["twenty-classes"].cells("omniglot")
    assert {(cell.n_support, cell.ways, cell.shots) for cell in cells} == {(20, 20, 1), (100, 20, 5)}
    toy = QUICK.cells(EXPERIMENTS["twenty-classes"], "omniglot")
    assert {(cell.ways, cell.shots) for cell in toy} == {(5, 1), (5, 5)}


def test_source_noise_moves_a_share_of_the_items_of_training_classes(tmp_path):
    dataset = toy_dataset("omniglot")
    target = work.fitted(TARGETS["omniglot"], dataset, work.Place(tmp_path, tmp_path, None, QUICK))
    stack = [replace(want(noise=noise, iterations=2), split=1) for noise in (0.0, 0.25)]
    jobs = [work._job(one, dataset, target, QUICK) for one in stack]
    pool, (clean, noisy) = work._with_noise(dataset.pool, jobs, [one.noise for one in stack])
    assert clean == jobs[0]
    before, after = dataset.pool.examples[jobs[1].source], pool.examples[noisy.source]
    moved = (before != after).flatten(2).any(-1)
    assert moved.float().mean() == pytest.approx(0.25, abs=0.01)
    assert sorted(map(float, before.double().flatten(2).sum(-1).flatten())) == sorted(
        map(float, after.double().flatten(2).sum(-1).flatten())
    ), "items change places only"
    assert torch.equal(pool.examples[noisy.validation], dataset.pool.examples[jobs[1].validation])


def test_a_wide_encoder_is_trained_on_many_classes_and_augmented_photos():
    photos, characters = (want("labeling-search", dataset=name).recipe(PAPER) for name in ("labelme", "omniglot"))
    for recipe in (photos, characters):
        assert (recipe.ways, recipe.queries, recipe.pseudo_annotation) == ((16, 16), 5, False)
        assert recipe.cool_down == 0.3
    assert (photos.augment, characters.augment) == ("photo", "none")
    narrow = want("PrMV", dataset="labelme").recipe(PAPER)
    assert (narrow.augment, narrow.cool_down) == ("none", 0)


def test_other_methods_with_wide_encoders():
    """EM wide uses the encoder of Labelings. Ours wide uses its recipe, with EM and simulated annotators."""
    assert want("EM wide", dataset="labelme") == want("labeling-search", dataset="labelme")
    ours, theirs = (want(name, dataset="labelme").recipe(PAPER) for name in ("Ours wide", "labeling-search"))
    assert (ours.objective, ours.pseudo_annotation, ours.annotators) == ("mixture", True, (3, 7))
    assert (ours.steps, ours.b) == (2, 100)
    for name in ("ways", "shots", "queries", "augment", "cool_down", "iterations"):
        assert getattr(ours, name) == getattr(theirs, name)


def test_em_wide_is_always_centred():
    """The distance of all embeddings from the origin must not affect predictions."""
    generator = torch.Generator().manual_seed(0)
    near, far = torch.tensor([[[-1.0], [1.0]]]), torch.tensor([[[99.0], [101.0]]])
    labels = torch.tensor([[[0], [1]]])
    queries = torch.rand(1, 5, 1, generator=generator) - 0.5
    one, other = (
        SYSTEMS["EM wide"].predict(CrowdEpisodes(x, labels, queries + x.mean(), 2), torch.nn.Identity())
        for x in (near, far)
    )
    assert one == pytest.approx(other, abs=1e-4)
    assert (one.argmax(-1) == (queries[..., 0] > 0)).all()


@pytest.mark.parametrize(
    ("dataset", "names"),
    [("omniglot", ("Ours", "PrMV", "labeling-search")), ("miniimagenet", ("Ours", "PrMV", "labeling-search"))],
)
def test_committed_encoders_are_those_of_the_experiments(dataset, names):
    """docs/reproduction.md runs `beyond` on a CPU with --work results, which needs them."""
    results = Path(__file__).parents[2] / "results"
    needed = {replace(want(name, dataset), split=split).file(results) for name in names for split in range(5)}
    assert set((results / "encoders" / dataset).iterdir()) == needed
    encoder = load_encoder(min(needed))
    height, width = encoder.input.size
    assert encoder.embed(np.zeros((2, height, width, encoder.input.channels))).shape[0] == 2


def test_stacks_contain_models_that_can_be_trained_together():
    every = [
        replace(one, split=split) for one in (want(), want("PrMV"), want("MaMV"), want("LNL")) for split in range(40)
    ]
    every += [want(dataset="labelme"), want(trained_for="cell")]
    stacks = encoders.stacks([*every, *every])
    assert sorted(one.name for stack in stacks for one in stack) == sorted(one.name for one in every), "each once"
    assert sorted(map(len, stacks)) == [1, 1, 10, 30, 120]
    for stack in stacks:
        assert len({one.objective == "maml" for one in stack}) == 1
        assert len({one.iterations for one in stack}) == 1
    names = {encoders.stack_name(stack) for stack in [*stacks, stacks[0][:2], stacks[0][1:3]]}
    assert len(names) == 7


def train(folder, protocol, tick=lambda done, total: None, stack=None):
    stack = stack or [want("PrMV", iterations=6), want(iterations=6)]
    target = replace(TARGETS["omniglot"], classes=(10, 10, 6))
    data = toy_dataset("omniglot")
    made = encoders.train_stack(stack, data, target, protocol, folder, torch.device("cpu"), tick)
    return stack, made


def test_interrupted_training_continues_from_its_checkpoint(tmp_path):
    protocol = replace(QUICK, validate_every=2)
    steps = []

    def interrupted(done, total):
        steps.append(done)
        if done == 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "a", protocol, interrupted)
    stack, made = train(tmp_path / "a", protocol, lambda done, total: steps.append(done))
    assert steps == [1, 2, 3, 4, 5, 5, 6]
    assert not list((tmp_path / "a" / "checkpoints").iterdir())
    _, undisturbed = train(tmp_path / "b", protocol)
    for one in stack:
        a, b = (load_encoder(one.file(tmp_path / folder)) for folder in "ab")
        assert a.card["scores"] == b.card["scores"]
        for name, value in a.module.state_dict().items():
            assert torch.equal(value, b.module.state_dict()[name])
        assert made[one]["best"] == undisturbed[one]["best"]
        assert made[one]["encoder"] == one.name
        assert made[one]["candidates"] == 2


def test_seconds_are_those_of_an_undisturbed_training(tmp_path, monkeypatch):
    """Each step takes a second, so six steps of two encoders take three seconds each."""
    now = [0.0]
    monkeypatch.setattr(encoders.time, "perf_counter", lambda: now[0])

    def stops(at):
        def tick(done, total):
            now[0] += 1
            if done == at:
                raise KeyboardInterrupt

        return tick

    protocol = replace(QUICK, validate_every=2)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, protocol, stops(5))
    _, made = train(tmp_path, protocol, stops(None))
    assert [one["seconds"] for one in made.values()] == [3.0, 3.0]


def test_another_set_of_encoders_does_not_use_the_checkpoint(tmp_path):
    def interrupted(done, total):
        if done == 5:
            raise KeyboardInterrupt

    protocol = replace(QUICK, validate_every=2)
    first = want("PrMV", iterations=6)
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path, protocol, interrupted, [first, want(iterations=6)])
    train(tmp_path, protocol, stack=[first, want(iterations=6, steps=5)])


def test_encoders_that_exist_are_not_trained_again(tmp_path, monkeypatch):
    trained = []
    usual = loop.train

    def counted(jobs, *rest, **options):
        trained.append(len(jobs))
        return usual(jobs, *rest, **options)

    monkeypatch.setattr(encoders, "train", counted)
    place = place_in(tmp_path)
    run(place, methods=["PrMV"])
    n = len(trained)
    assert n >= 1
    run(place, methods=["PrDS", "PrSV", "w/o PA"])
    assert len(trained) == n
    run(place, "large-support,with-pseudo-annotation", methods=["PrMV", "PrMV w/ PA"])
    assert len(trained) == 3 * n, "those with simulated annotators, and those of the largest cell"
    run(replace(place, results=tmp_path / "again", protocol=replace(QUICK, iterations=1)), methods=["PrMV"])
    assert len(trained) == 4 * n, "those of a shorter training are others"
    times = Store(place.results, "main", "omniglot").times()
    assert len(times["encoder"].dropna()) == n
    assert all(name.startswith("split0-prototypical-clean-4way-") for name in times["encoder"].dropna())


# ---- several processes ----------------------------------------------------------------------------------------------

PIECES = """
import sys
from pathlib import Path
from crowdshot.errors import CrowdshotError
from crowdshot_paper.experiments import chosen
from crowdshot_paper import parallel, runner, work
from crowdshot_paper.experiments import QUICK

def fail(number, device):
    if number == 1:
        raise CrowdshotError("row 3 of labels.csv is bad.")

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    place = work.Place(folder / "results", folder / "work", None, QUICK)
    told = []
    def tick(done, total):
        told.append((done, total))
    counted = lambda work, jobs, devices, _: parallel.run_all_on_ray(work, jobs, devices, tick)
    left = runner.missing(chosen("main"), ["omniglot"], ["PrMV", "LRMV"], place)
    n = runner.run(left, place, ["cpu", "cpu"], counted)
    print(n, told[-4:])
    try:
        parallel.run_all_on_ray(fail, [(i,) for i in range(5)], ["cpu", "cpu"], lambda *x: None)
    except CrowdshotError as error:
        print(error)
"""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("undisturbed")
    run(place_in(folder), methods=["PrMV", "LRMV"])
    return folder


def assert_like(undisturbed, folder):
    """Compare rows; probabilities may differ in the last bit with more threads."""
    expected, found = (read_rows(one / "results", "main", "omniglot") for one in (undisturbed, folder))
    pd.testing.assert_frame_equal(found.drop(columns="ece"), expected.drop(columns="ece"))
    pd.testing.assert_frame_equal(found[["ece"]], expected[["ece"]], atol=2e-4)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed (extra: ray)")
def test_two_ray_workers_fill_one_store(tmp_path, undisturbed):
    script = tmp_path / "pieces.py"
    script.write_text(PIECES)
    home = {"HOME": str(tmp_path), "RAY_USAGE_STATS_ENABLED": "0", "OMP_NUM_THREADS": "1"}
    home["RAY_worker_niceness"] = "0"  # otherwise its workers may never run on a busy machine
    done = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True, text=True, timeout=TIMEOUT, env={**os.environ, **home},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "4 [(1, 4), (2, 4), (3, 4), (4, 4)]",
        "row 3 of labels.csv is bad.",
    ]
    assert_like(undisturbed, tmp_path)


# ---- killed ---------------------------------------------------------------------------------------------------------

SLOW = """
import json, sys, time
from pathlib import Path
from crowdshot_paper.experiments import chosen
from crowdshot_paper import parallel, runner, work
from crowdshot_paper.experiments import QUICK
from crowdshot_paper.store import Store

folder, devices, add = Path(sys.argv[1]), sys.argv[2].split(","), Store.add

def slowly(self, piece, rows, seconds):
    with (folder / "begun").open("a") as file:
        file.write(json.dumps(piece) + chr(10))
    while any(self.pending.glob("*.parquet")):  # one is enough: now to be killed
        time.sleep(0.01)
    add(self, piece, rows, seconds)

Store.add = slowly
place = work.Place(folder / "results", folder / "work", None, QUICK)

if __name__ == "__main__":
    left = runner.missing(chosen("main"), ["omniglot"], ["PrMV", "LRMV"], place)
    runner.run(left, place, devices, parallel.run_all)
"""


@pytest.mark.slow
@pytest.mark.parametrize("devices", ["cpu", "cpu,cpu"])
def test_a_killed_run_continues(tmp_path, undisturbed, devices):
    if devices != "cpu":  # to save time; the other run has trained its encoder before the kill
        shutil.copytree(undisturbed / "work", tmp_path / "work")
    script = tmp_path / "slow.py"
    script.write_text(SLOW)
    process = subprocess.Popen([sys.executable, str(script), str(tmp_path), devices], stderr=subprocess.PIPE)
    store = Store(tmp_path / "results", "main", "omniglot")
    wait_until(lambda: any(store.pending.glob("*.parquet")) or process.poll() is not None)
    process.kill()
    process.communicate(timeout=TIMEOUT)  # waits for its children, which share its stderr
    finished = set(store.done())
    assert 1 <= len(finished) < 4
    done = []
    assert run(place_in(tmp_path), methods=["PrMV", "LRMV"], run_all=counting(done)) == 4 - len(finished)
    assert {name for name, _ in done} == {"test_one"}, "the encoder was there"
    assert not finished & {piece for _, piece in done}, "nothing is run twice"
    begun = [Piece(*json.loads(line)) for line in (tmp_path / "begun").read_text().splitlines()]
    assert finished <= set(begun)
    assert_like(undisturbed, tmp_path)


def test_main_contains_the_papers_methods():
    assert all(method in METHODS for method in IN_MAIN)


def test_a_checkpoint_of_finished_encoders_is_removed(tmp_path):
    """A run may be killed between writing encoders and removing their checkpoint."""

    class One(NamedTuple):
        name: str
        source: str = "omniglot"

        def file(self, folder):
            return folder / self.name

    done, half = [One("a"), One("b")], [One("a"), One("c")]
    (tmp_path / "checkpoints").mkdir()
    files = [tmp_path / "checkpoints" / f"{work.stack_name(stack)}.safetensors" for stack in (done, half)]
    for file in (*files, tmp_path / "a", tmp_path / "b"):
        file.write_bytes(b"")
    work.remove_checkpoints([done, half], tmp_path)
    assert [file.exists() for file in files] == [False, True]
