"""Test ``crowdshot paper``: every experiment at toy size, and bad arguments."""

import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from crowdshot._cli.main import app
from crowdshot_paper import work
from crowdshot_paper.experiments import EXPERIMENTS, QUICK, SYSTEMS
from crowdshot_paper.store import COLUMNS, Store, _locked, read_rows

pytestmark = pytest.mark.slow

OWN = [experiment for experiment in EXPERIMENTS.values() if experiment.methods]


def call(*arguments):
    """Run the command in this process."""
    return CliRunner().invoke(app, ["paper", *map(str, arguments)])


def refused(*arguments):
    done = call(*arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout == ""
    sentence, *hint = done.stderr.splitlines()
    assert all(line.startswith("  ") for line in hint)
    return "".join([sentence, *hint])


@pytest.fixture(scope="session")
def quick(tmp_path_factory):
    """Return the output folder of ``run all --quick``, which runs once for all test processes."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "quick"
    folder.mkdir(exist_ok=True)
    with _locked(folder):
        if not (folder / "output.json").exists():
            (folder / "output.json").write_text(json.dumps(run_everything(folder)))
    return folder


def run_everything(folder):
    code = "from crowdshot._cli.main import main; main()"
    words = ["paper", "run", "all", "--quick", "--device", "cpu", "--results", "results", "--work", "work"]
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *words],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    return {
        "code": done.returncode,
        "stdout": done.stdout,
        "stderr": done.stderr,
    }


def test_every_experiment_runs_at_toy_size(quick):
    result = json.loads((quick / "output.json").read_text())
    assert result["code"] == 0, result["stderr"]
    place = work.Place(quick / "results", quick / "work" / "toy", None, QUICK)
    pieces = 0
    for experiment in OWN:
        for dataset in experiment.datasets:
            rows = read_rows(place.results, experiment.name, dataset)
            assert list(rows.columns) == COLUMNS
            cells = QUICK.cells(experiment, dataset)
            done = Store(place.results, experiment.name, dataset).done()
            assert {(piece.method, piece.n_support, piece.n_annotators) for piece in done} == {
                (method, *cell.size) for method in experiment.methods for cell in cells
            }
            pieces += len(done)
            for piece in done:
                of_piece = rows[
                    (rows["method"] == piece.method)
                    & (rows["n_support"] == piece.n_support)
                    & (rows["n_annotators"] == piece.n_annotators)
                ]
                crowds = [cell.crowd for cell in cells if cell.size == (piece.n_support, piece.n_annotators)]
                candidates = len(work.needed(piece, place))
                assert len(of_piece) == candidates * (1 + len(crowds)) * QUICK.episodes * experiment.times
                assert of_piece["candidate"].nunique() == candidates
                assert set(of_piece.loc[of_piece["role"] == "test", "mixture"]) == set(crowds)
            assert rows["accuracy"].between(0, 1).all()
            assert rows["ece"].between(0, 1).all()
    assert result["stdout"] == f"{pieces} pieces run; results is complete.\n"
    assert {method for experiment in OWN for method in experiment.methods} == set(SYSTEMS), "no method was forgotten"


def test_the_store_records_commands_and_times(quick):
    store = Store(quick / "results", "main", "omniglot")
    (told,) = store.runs()
    assert told["command"] == "crowdshot paper run all --quick --device cpu --results results --work work"
    assert not list(store.pending.iterdir()), "all is in rows.parquet"
    times = store.times()
    assert (times["what"] == "test").sum() == len(store.done())
    assert (times["what"] == "meta-training").any()
    assert (times["seconds"] >= 0).all()


def test_nothing_is_left_to_do(quick):
    before = (quick / "results" / "main" / "omniglot" / "rows.parquet").stat().st_mtime_ns
    done = call("run", "all", "--quick", "--results", quick / "results", "--work", quick / "work", "--device", "cpu")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("0 pieces run; ")
    assert (quick / "results" / "main" / "omniglot" / "rows.parquet").stat().st_mtime_ns == before


def test_a_dry_run_reports_remaining_work(quick, tmp_path):
    done = call("run", "all", "--quick", "--dry-run", "--results", quick / "results", "--work", quick / "work")
    assert done.stdout == "0 pieces to run, 0 encoders to meta-train.\n", done.output
    some = ("run", "labelme", "--dry-run", "--methods", "PrMV,RFDS", "--splits", "0:1", "--device", "cpu")
    done = call(*some, "--results", tmp_path / "results", "--work", tmp_path / "work")
    assert done.stdout.splitlines() == [
        "labelme, labelme: RFDS, PrMV (6 of 6 pieces each)",
        "12 pieces to run, 2 encoders to meta-train.",
        "2 encoders to meta-train and 12 pieces to test: about 12 h on 1 CPU core.",
    ]
    assert list(tmp_path.iterdir()) == []


def test_toy_results_are_not_mixed_with_real_ones(quick):
    sentence = refused("run", "main", "--results", quick / "results", "--dataset", "omniglot", "--device", "cpu")
    assert "has rows with toy = True, expected False as in this run" in sentence


def test_tables_of_everything(quick, tmp_path):
    done = call("tables", "--results", quick / "results", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    for name in ("cost", *(experiment.name for experiment in OWN)):
        assert f"{name}: " in done.stdout
        assert list((tmp_path / name).glob("*.tex"))
        assert list((tmp_path / name).glob("*.csv"))
        assert (tmp_path / name / "tables.md").stat().st_size > 500


@pytest.mark.parametrize("name", ["spammers", "em-steps", "embedding", "confusion"])
def test_experiments_that_are_figures(quick, tmp_path, name):
    """Draw figures of experiments without rows."""
    places = ("--results", quick / "results", "--work", quick / "work", "--out", tmp_path)
    done = call("figures", name, "--quick", *places)
    assert done.exit_code == 0, done.output
    assert {file.suffix for file in tmp_path.rglob("*.*")} >= {".png", ".svg"}
    assert "TOY SIZE" in (tmp_path / name / f"{name}.svg").read_text()


def test_a_part_of_an_experiment(tmp_path):
    places = ("--results", tmp_path / "results", "--work", tmp_path / "work", "--device", "cpu")
    some = ("--quick", "--dataset", "omniglot", "--methods", "LRMV, PrMV", "--splits", "1:2", "--episodes", "3")
    done = call("run", "main", *some, *places)
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("8 pieces run; ")
    rows = read_rows(tmp_path / "results", "main", "omniglot")
    assert set(rows["method"]) == {"LRMV", "PrMV"}
    assert set(rows["split"]) == {1, 2}
    assert set(rows["episode"]) == {0, 1, 2}
    per_split = rows.groupby("split")["accuracy"].apply(list)
    assert per_split[1] != per_split[2]
    assert len(per_split[1]) == len(per_split[2])


def test_only_some_candidates(tmp_path):
    places = ("--results", tmp_path / "results", "--work", tmp_path / "work", "--device", "cpu")
    words = ("--quick", "--dataset", "omniglot", "--methods", "Ours,LRMV", "--only", "steps=2,b=10")
    assert call("run", "main", *words, *places).exit_code == 0
    rows = read_rows(tmp_path / "results", "main", "omniglot")
    assert set(rows["candidate"][rows["method"] == "Ours"]) == {"steps=2, b=10"}
    assert len(set(rows["candidate"][rows["method"] == "LRMV"])) > 1, "it has no such settings"


def test_only_some_cells(tmp_path):
    places = ("--results", tmp_path / "results", "--work", tmp_path / "work", "--device", "cpu")
    words = ("--quick", "--dataset", "omniglot", "--methods", "PrMV,LRMV", "--cells", "4x5, 20x3")
    assert call("run", "main", *words, *places).exit_code == 0
    rows = read_rows(tmp_path / "results", "main", "omniglot")
    assert set(zip(rows["n_support"], rows["n_annotators"], strict=True)) == {(4, 5), (20, 3)}


def test_experiments_are_listed():
    done = call("list")
    assert done.exit_code == 0
    assert [line.split(":")[0] for line in done.stdout.splitlines() if line[0] != " "] == list(EXPERIMENTS)
    assert "  data: labelme; for meta-training miniimagenet\n" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["mian"], "There is no experiment 'mian', expected main, spammers,"),
        (["main", "--dataset", "mnist"], "--dataset has 'mnist', expected some of miniimagenet, omniglot."),
        (["labelme", "--methods", "LNL"], "--methods has 'LNL', expected some of "),
        (["main", "--only", "steps"], "--only is 'steps', expected settings and numbers, such as steps=2,b=100."),
        (["labelme", "--only", "stps=2"], "--only has 'stps', expected some of "),
        (["main", "--only", "b=2"], "--only has b=2, expected one of 1, 10, 100 for b."),
        (["main", "--splits", "0:9"], "--splits is '0:9', expected a range within 0:4."),
        (["main", "--cells", "5x4"], "--cells has '5x4', expected some of 12x3, 12x5, 12x7, 20x3,"),
        (["main", "--splits", "one"], "--splits is 'one', expected a number or a range"),
        (["main", "--splits", "3:1"], "--splits is '3:1', expected a range within 0:4."),
        (["main", "--device", "cpu*0"], "--device is 'cpu*0', expected devices like"),
        (["main", "--precision", "half"], "--precision is 'half', expected float32 or bfloat16."),
        (["main", "--device", "tpu"], "--device is 'tpu', expected auto, cpu or cuda"),
    ],
)
def test_unknown_names_are_refused(tmp_path, words, sentence):
    found = refused("run", *words, "--quick", "--results", tmp_path / "results", "--work", tmp_path / "work")
    assert found.startswith(f"crowdshot: {sentence}")
    assert not (tmp_path / "results").exists()


def test_missing_data_is_reported(tmp_path):
    places = ("--data", tmp_path / "nowhere", "--results", tmp_path / "results", "--work", tmp_path / "work")
    for method in ("LRMV", "PrMV"):
        words = ("main", "--dataset", "omniglot", "--methods", method, "--device", "cpu")
        found = refused("run", *words, *places)
        assert "omniglot" in found
        assert str(tmp_path / "nowhere") in found
        assert found.count("--download") == 1
    assert read_rows(tmp_path / "results", "main", "omniglot").empty
