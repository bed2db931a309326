"""Compare aggregation in parts with aggregation in memory, for several workers and after interruptions."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crowdshot._cli import aggregate as command
from crowdshot._cli.aggregate import aggregate_parts, run_aggregate
from crowdshot._cli.inputs import LabelFiles
from crowdshot.engine import label_sources, part_files
from crowdshot.engine import workers as engine_workers
from crowdshot.engine.part_files import Share, as_bytes, shares_of, shown, tables_fit
from crowdshot.engine.workers import Here, Processes
from crowdshot.errors import CrowdshotError, CrowdshotWarning
from crowdshot.io.json_text import to_json
from crowdshot.labels import aggregation
from crowdshot.model.parts import Sizes
from crowdshot.report.summary import summarise
from polling import TIMEOUT, wait_until

METHODS = tuple(aggregation.AGGREGATORS)


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Use one process and so little memory that even small tables are divided."""
    cut(monkeypatch, chunk_rows=37, part_labels=50)


def cut(monkeypatch, chunk_rows, part_labels, workers=1):
    monkeypatch.setattr(part_files, "shares_of", lambda memory, cores: Share(workers, chunk_rows, part_labels))


def rows(n_items=60, R=9, K=3, per_item=4, seed=0):
    random = np.random.default_rng(seed)
    item = np.tile(np.arange(n_items), per_item)  # labels of an item are far apart
    truth = random.integers(K, size=n_items)
    label = np.where(random.random(len(item)) < 0.7, truth[item], random.integers(K, size=len(item)))
    annotator = random.integers(R, size=len(item))  # some items are labelled again by the same annotator
    names = np.array(["low", "mid", "top", *(f"class {k}" for k in range(3, K))], dtype=object)
    return pd.DataFrame({"item": item, "annotator": [f"ann-{r}" for r in annotator], "label": names[label]})


def write(folder, table, kind="csv", files=3):
    folder.mkdir(exist_ok=True)
    for number, part in enumerate(np.array_split(np.arange(len(table)), files)):
        name = folder / f"labels-{number}.{kind}"
        some = table.iloc[part]
        some.to_csv(name, index=False) if kind == "csv" else some.to_parquet(name, row_group_size=29)
    return [folder / f"*.{kind}"]


def parts(out):
    found = sorted(out.glob("part-*.parquet"))
    assert all(name.startswith(("part-", "_")) for name in os.listdir(out))
    return pd.concat([pd.read_parquet(file) for file in found], ignore_index=True)


def dying(task, folder):
    """Kill the worker that runs task 1 for the first time."""
    mark = Path(folder) / f"mark-{task}"
    if task == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task + 10


def people(file):
    return pd.read_csv(file).set_index("annotator").sort_index()


def same(found, expected, item="item"):
    found = found.assign(**{item: found[item].astype(str)}).set_index(item).sort_index()
    expected = expected.set_index(item).sort_index()
    assert found.index.tolist() == expected.index.tolist()
    assert found.columns.tolist() == expected.columns.tolist()
    numbers = [name for name in found.columns if name != "label"]
    assert found["label"].tolist() == expected["label"].tolist()
    np.testing.assert_allclose(found[numbers].astype(float), expected[numbers].astype(float), atol=1e-9, rtol=0)


@pytest.mark.filterwarnings("ignore:.*labels? dropped")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_results_equal_those_in_memory(tmp_path, method, kind):
    labels = LabelFiles(write(tmp_path / "in", rows(), kind))
    in_parts, _ = aggregate_parts(labels, method, 8, tmp_path / "out", tmp_path / "people.csv")
    report, expected = run_aggregate(labels, method, 8, annotators=tmp_path / "expected.csv")
    found = parts(tmp_path / "out")
    assert len(list((tmp_path / "out").glob("part-*"))) == 5
    assert found["item"].dtype == (np.int64 if kind == "parquet" else found["label"].dtype)  # the type of the input
    assert {str(kind) for kind in found.dtypes[2:]} == {"float64", "int64"}
    same(found, expected)
    assert (in_parts.counts, in_parts.accepted) == (report.counts, report.accepted)
    assert (in_parts.method.method, in_parts.method.engine) == (report.method.method, "local")
    people = [
        pd.read_csv(tmp_path / f"{name}.csv").set_index("annotator").sort_index() for name in ("people", "expected")
    ]
    pd.testing.assert_frame_equal(*people)
    assert not (tmp_path / "out" / "_work").exists()


@pytest.mark.filterwarnings("ignore:.*labels? dropped")
@pytest.mark.parametrize("cell", ["one\ntwo", "one\n0,ann-0,low,", "one\n0,ann-0,low,two", 'say "a"\n,\n"'])
@pytest.mark.parametrize("first", [False, True])
def test_line_breaks_in_cells_are_no_rows(tmp_path, monkeypatch, cell, first):
    """Also where a block of the file ends within the cell."""
    monkeypatch.setattr(label_sources, "SAMPLE", 1_000)
    table = rows(n_items=100)
    table.insert(0 if first else 3, "text", [cell + "u" * (n % 40) for n in range(len(table))])
    labels = LabelFiles(write(tmp_path / "in", table))
    aggregate_parts(labels, "majority", 8, tmp_path / "out", None)
    _, expected = run_aggregate(labels, "majority", 8)
    same(parts(tmp_path / "out"), expected)


TYPED = {
    "uint64": lambda n: n.astype(np.uint64) + np.uint64(2**63),
    "int64": lambda n: n + 2**60,
    "whole floats": lambda n: n.astype(float),
    "some fractions": lambda n: n / 2,  # a chunk may have whole numbers only
    "small floats": lambda n: n * 1e-7,
    "large floats": lambda n: n * 1e22,
    "single precision": lambda n: (n / 10).astype(np.float32),
    "times": lambda n: pd.Timestamp("2026-03-04") + pd.to_timedelta(n, "h"),
    "times of a zone": lambda n: pd.Timestamp("2026-03-04", tz="Europe/Paris") + pd.to_timedelta(n, "h"),
    "days": lambda n: (pd.Timestamp("2026-03-04") + pd.to_timedelta(n, "D")).dt.date,
    "truth values": lambda n: n % 2 == 0,
}


@pytest.mark.filterwarnings("ignore:.*labels? dropped", "ignore:.*last digits are lost")
@pytest.mark.parametrize("role", ["item", "label"])
@pytest.mark.parametrize("kind", TYPED)
def test_names_of_any_type_are_those_in_memory(tmp_path, kind, role):
    table = rows(n_items=30)
    number = table["item"] if role == "item" else table["label"].map({"low": 0, "mid": 2, "top": 4})
    table[role] = TYPED[kind](number)
    labels = LabelFiles(write(tmp_path / "in", table, "parquet"), categories=True)
    aggregate_parts(labels, "majority", 8, tmp_path / "out", None)
    _, expected = run_aggregate(labels, "majority", 8)
    found = parts(tmp_path / "out").astype({"item": str, "label": str})
    same(found, expected.astype({"label": str}))


@pytest.mark.filterwarnings("ignore:.*labels? dropped", "ignore:.*Nobody labelled 1 item")
def test_gold_history_and_order_of_classes(tmp_path):
    table = rows().replace({"label": {"mid": "Mid "}})
    table.loc[::17, "label"] = ""
    gold = pd.DataFrame({"item": [3, 5, 8, 1_000], "truth": ["low", "top", "Mid", "top"]})  # the last has no label
    gold.to_csv(tmp_path / "gold.csv", index=False)
    pd.DataFrame({"annotator": ["ann-1", "nobody"], "right": [90, 1], "wrong": [3, 1]}).to_csv(tmp_path / "h.csv")
    given = {
        "gold": tmp_path / "gold.csv", "history": tmp_path / "h.csv", "ordered": ["low", "mid", "top"],
        "merge_case": True,
    }  # fmt: skip
    labels = LabelFiles(write(tmp_path / "in", table), **given)
    in_parts, _ = aggregate_parts(labels, "learned", 3, tmp_path / "out", tmp_path / "people.csv")
    _, expected = run_aggregate(labels, "learned", 3, annotators=tmp_path / "expected.csv")
    same(parts(tmp_path / "out"), expected)
    assert in_parts.gold.gold == 4
    assert in_parts.left_out["rows without a label"] == (table["label"] == "").sum()
    people = [
        pd.read_csv(tmp_path / f"{name}.csv").set_index("annotator").sort_index() for name in ("people", "expected")
    ]
    pd.testing.assert_frame_equal(*people)


@pytest.mark.filterwarnings("ignore:.*labels? dropped")
@pytest.mark.parametrize("cuts", [(1, 10**6), (7, 9), (10**6, 21), (1000, 1000)])
def test_results_do_not_depend_on_the_division(tmp_path, monkeypatch, cuts):
    labels = LabelFiles(write(tmp_path / "in", rows(30), "parquet"))
    _, expected = run_aggregate(labels, "learned", 3)
    cut(monkeypatch, *cuts)
    aggregate_parts(labels, "learned", 3, tmp_path / "out")
    same(parts(tmp_path / "out"), expected)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_minus_one_is_missing_among_other_numbers(tmp_path, kind):
    table = rows().drop_duplicates(["item", "annotator"]).replace({"label": {"low": "0", "mid": "1", "top": "2"}})
    table.loc[::11, "label"] = "-1"
    labels = LabelFiles(write(tmp_path / "in", table, kind, files=1))
    in_parts, _ = aggregate_parts(labels, "dawid-skene", 8, tmp_path / "out")
    report, expected = run_aggregate(labels, "dawid-skene", 8)
    same(parts(tmp_path / "out"), expected)
    assert in_parts.counts.classes == ["0", "1", "2"]
    n = int((table["label"] == "-1").sum())
    assert in_parts.left_out == report.left_out == {"rows with -1, taken for no label": n}


def test_minus_one_is_a_label_with_zero_and_one(tmp_path):
    table = pd.DataFrame({"item": [1, 1, 2], "annotator": ["a", "b", "a"], "label": [-1, 0, 1]})
    labels = LabelFiles(write(tmp_path / "in", table, files=1))
    with pytest.warns(UserWarning, match="read as a label. Use rename="):
        in_parts, _ = aggregate_parts(labels, "soft", 8, tmp_path / "out")
    assert in_parts.counts.classes == ["-1", "0", "1"]
    assert not in_parts.left_out


def two_questions():
    table = rows().drop_duplicates(["item", "annotator"])
    other = table.assign(label=np.where(table["label"] == "low", "bad", "good"))
    return pd.concat([table.assign(question="size"), other.assign(question="state")]).sort_index(kind="stable")


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_one_of_several_questions_is_aggregated(tmp_path, kind):
    files = write(tmp_path / "in", two_questions(), kind, files=1)
    one = LabelFiles(files, columns={"label": "state"})
    in_parts, _ = aggregate_parts(one, "dawid-skene", 8, tmp_path / "out")
    report, expected = run_aggregate(one, "dawid-skene", 8)
    same(parts(tmp_path / "out"), expected)
    assert in_parts.left_out == report.left_out == {"rows of other questions": len(two_questions()) // 2}
    with pytest.raises(CrowdshotError, match=r"several questions in column 'question', 'size' and 'state', expected"):
        aggregate_parts(LabelFiles(files), "dawid-skene", 8, tmp_path / "all")
    assert not (tmp_path / "all").exists()


def test_near_duplicate_names_are_reported_as_without_an_engine(tmp_path):
    people, answers = ["ann", "Ann", "ann", "bob", "ann"], ["cat", "Cat", "dog", "n/a", "cat"]
    table = pd.DataFrame({"item": [1, 1, 2, 2, 3], "annotator": people, "label": answers})
    labels = LabelFiles(write(tmp_path / "in", table, files=1))
    with pytest.warns(UserWarning, match="read as") as caught:
        report, _ = aggregate_parts(labels, "soft", 8, tmp_path / "out")
    with pytest.warns(UserWarning, match="read as") as expected:
        in_memory, _ = run_aggregate(labels, "soft", 8)
    assert {str(each.message) for each in caught} == {str(each.message) for each in expected}
    assert len(caught) == 3
    assert report.names.near_duplicates == in_memory.names.near_duplicates


def test_the_weakest_of_many_annotators_are_reported(tmp_path, monkeypatch):
    """The last two annotators always disagree with the others."""
    monkeypatch.setattr(command, "MOST_PEOPLE", 2)
    triples = [(i, f"a{r}", "xy"[(i + (r > 6)) % 2]) for i in range(20) for r in range(9)]
    table = pd.DataFrame(triples, columns=["item", "annotator", "label"])
    report, _ = aggregate_parts(LabelFiles(write(tmp_path / "in", table)), "shrunk", 3, tmp_path / "out")
    assert [row["annotator"] for row in report.annotators.annotator_table] == ["a7", "a8"]
    assert "… and 7 more" in summarise(report)


def test_ignored_columns_are_reported(tmp_path):
    table = rows().assign(truth="low", created_at="2026-01-01")
    with pytest.warns(CrowdshotWarning, match="ignored") as warned:
        aggregate_parts(LabelFiles(write(tmp_path / "in", table)), "soft", 8, tmp_path / "out")
    first = tmp_path / "in" / "labels-0.csv"
    assert [(w.message.argument, w.message.found, w.message.where) for w in warned] == [
        ("gold", "truth", str(first)),
        ("engine", "created_at", str(first)),
    ]


def test_repeated_labels_keep_the_one_in_the_last_file_by_name(tmp_path):
    folder = tmp_path / "in"
    folder.mkdir()
    for name, label in (("b", "cat"), ("c", "dog"), ("a", "owl")):
        (folder / f"{name}.csv").write_text(f"item,annotator,label\nx,ann,{label}\ny,bob,cat\n")
    in_parts, _ = aggregate_parts(LabelFiles([folder / "*.csv"]), "majority", 1, tmp_path / "out")
    found = parts(tmp_path / "out").set_index("item")
    assert found["label"].to_dict() == {"x": "dog", "y": "cat"}
    assert found["n_labels"].to_dict() == {"x": 1, "y": 1}
    assert in_parts.left_out == {"labels given again": 4}
    with pytest.warns(UserWarning, match="4 labels dropped"):
        _, plain = run_aggregate(LabelFiles([folder]), "majority", 1)  # without an engine, from a folder
    assert plain.set_index("item")["label"].to_dict() == {"x": "dog", "y": "cat"}


# ---- interrupted ----------------------------------------------------------------------------------------------------


class Interrupted(Here):
    """Stop after so many tasks, like a kill between two tasks."""

    def __init__(self, tasks):
        self.left = tasks

    def each(self, function, tasks, *given):
        for place, task in enumerate(tasks):
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            yield place, function(task, *given)


@pytest.mark.filterwarnings("ignore:.*labels? dropped")
@pytest.mark.parametrize("every", [0.0, pytest.param(1e9, marks=pytest.mark.slow)])  # seconds between saved steps
@pytest.mark.parametrize("method", [pytest.param("learned", marks=pytest.mark.slow), "dawid-skene"])
def test_a_run_killed_anywhere_continues(tmp_path, monkeypatch, method, every):
    monkeypatch.setattr("crowdshot.engine.run.EVERY", every)
    labels = LabelFiles(write(tmp_path / "in", rows(), "parquet"))
    _, expected = run_aggregate(labels, method, 4)
    kills = 0
    for tasks in range(0, 26, 2):
        with monkeypatch.context() as patch:
            patch.setattr(engine_workers, "Here", lambda tasks=tasks: Interrupted(tasks))
            out = tmp_path / f"out-{tasks}"
            try:
                aggregate_parts(labels, method, 4, out)
            except KeyboardInterrupt:
                kills += 1
        aggregate_parts(labels, method, 4, out)
        same(parts(out), expected)
        assert not (out / "_work").exists()
    assert kills > 5


def test_finished_results_are_kept_and_reported(tmp_path):
    labels = LabelFiles(write(tmp_path / "in", rows(10, per_item=1)))
    first, _ = aggregate_parts(labels, "soft", 1, tmp_path / "out")
    before = {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out").iterdir()}
    again, finished_before = aggregate_parts(labels, "soft", 1, tmp_path / "out")
    assert finished_before
    assert to_json(again) == json.loads(json.dumps(to_json(first)))
    assert {file.name: file.stat().st_mtime_ns for file in (tmp_path / "out").iterdir()} == before
    with pytest.raises(CrowdshotError, match=r"out has results of .*, expected a new or empty folder\.") as error:
        aggregate_parts(labels, "majority", 1, tmp_path / "out")
    assert error.value.found == "method"
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    with pytest.raises(CrowdshotError, match=r"mine is not empty, expected a new or empty folder\."):
        aggregate_parts(labels, "soft", 1, tmp_path / "mine")


def test_a_finished_run_still_writes_the_table_of_annotators(tmp_path):
    labels = LabelFiles(write(tmp_path / "in", rows(40)))
    aggregate_parts(labels, "one-coin", 5, tmp_path / "first", tmp_path / "first.csv")
    aggregate_parts(labels, "one-coin", 5, tmp_path / "out")
    result, finished_before = aggregate_parts(labels, "one-coin", 5, tmp_path / "out", tmp_path / "later.csv")
    assert finished_before
    assert result.files[-1] == tmp_path / "later.csv"
    assert (tmp_path / "later.csv").read_bytes() == (tmp_path / "first.csv").read_bytes()
    (tmp_path / "out" / "_annotators.arrow").unlink()  # as version 0.2 left it
    with pytest.raises(CrowdshotError) as error:
        aggregate_parts(labels, "one-coin", 5, tmp_path / "out", tmp_path / "never.csv")
    assert error.value.argument == "annotators"
    assert not (tmp_path / "never.csv").exists()


def stop_after(monkeypatch, tasks):
    monkeypatch.setattr(engine_workers, "Here", lambda: Interrupted(tasks))


@pytest.mark.filterwarnings("ignore:.*labels? dropped")
def test_overwrite_replaces_results_when_new_ones_are_complete(tmp_path, monkeypatch):
    """A new file of labels arrives: the old results stay until the new ones are there, even after an interruption."""
    table, out = rows(60), tmp_path / "out"
    pattern = write(tmp_path / "in", table[:150])
    aggregate_parts(LabelFiles(pattern), "dawid-skene", 4, out, top=2)
    before = parts(out)
    write(tmp_path / "in", table)
    with pytest.raises(CrowdshotError) as error:
        aggregate_parts(LabelFiles(pattern), "dawid-skene", 4, out)
    assert error.value.found == "files"
    assert error.value.hint.arguments == {"overwrite": True}
    for tasks in (1, 3, 5):
        with monkeypatch.context() as patch:
            stop_after(patch, tasks)
            with pytest.raises(KeyboardInterrupt):
                aggregate_parts(LabelFiles(pattern), "dawid-skene", 4, out, overwrite=True)
        pd.testing.assert_frame_equal(parts(out), before)
    result, finished_before = aggregate_parts(LabelFiles(pattern), "dawid-skene", 4, out, overwrite=True)
    assert not finished_before
    _, expected = run_aggregate(LabelFiles(pattern), "dawid-skene", 4)
    same(parts(out), expected)
    assert all(file.exists() for file in result.files)
    assert not list(out.glob("_likeliest*"))
    assert not (out / "_next").exists()
    assert aggregate_parts(LabelFiles(pattern), "dawid-skene", 4, out, overwrite=True)[1]  # complete already


@pytest.mark.filterwarnings("ignore:.*labels? dropped")
@pytest.mark.parametrize("moves", range(1, 8))
def test_an_interrupted_replacement_is_completed(tmp_path, monkeypatch, moves):
    """Moving the new tables into place is interrupted after so many moves; the same command then completes it."""
    pattern, out = write(tmp_path / "in", rows(60)), tmp_path / "out"
    aggregate_parts(LabelFiles(pattern), "majority", 1, out)
    move, left = Path.replace, moves

    def limited(self, target):
        nonlocal left
        left -= self.parent.name == "_next"  # one move for each part and three for the other files
        if left < 0:
            raise KeyboardInterrupt
        return move(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", limited)
        with pytest.raises(KeyboardInterrupt):
            aggregate_parts(LabelFiles(pattern), "soft", 1, out, overwrite=True)
    aggregate_parts(LabelFiles(pattern), "soft", 1, out, overwrite=True)
    _, expected = run_aggregate(LabelFiles(pattern), "soft", 1)
    same(parts(out), expected)
    assert not (out / "_next").exists()


def test_a_failing_replacement_leaves_the_results(tmp_path):
    pattern, out = write(tmp_path / "in", rows(20)), tmp_path / "out"
    aggregate_parts(LabelFiles(pattern), "soft", 1, out)
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    with pytest.raises(CrowdshotError):
        aggregate_parts(LabelFiles(pattern, columns={"item": "nowhere"}), "soft", 1, out, overwrite=True)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before


@pytest.mark.slow
def test_a_killed_process_does_not_change_results(tmp_path):
    workers = Processes(2, tmp_path)
    try:
        found = dict(workers.each(dying, range(6), tmp_path))
    finally:
        workers.close()
    assert (tmp_path / "mark-1").exists()
    assert found == {n: n + 10 for n in range(6)}


WAITS = """
import os, signal, sys
from pathlib import Path
from crowdshot.engine.workers import Processes

if __name__ == "__main__":
    workers = Processes(1, Path(sys.argv[1]))
    for _, found in workers.each(eval, ["__import__('os').getpid()"]):
        print(found, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_processes_end_if_their_parent_is_killed(tmp_path):
    (tmp_path / "waits.py").write_text(WAITS)
    command = [sys.executable, str(tmp_path / "waits.py"), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT)
    child = int(done.stdout)

    def is_gone() -> bool:
        try:
            os.kill(child, 0)
        except ProcessLookupError:
            return True
        return False

    wait_until(is_gone)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*labels? dropped")
def test_several_processes_give_the_same_results(tmp_path, monkeypatch):
    cut(monkeypatch, 37, 50, workers=2)
    labels = LabelFiles(write(tmp_path / "in", rows(), "parquet"))
    aggregate_parts(labels, "learned", 3, tmp_path / "out")
    _, expected = run_aggregate(labels, "learned", 3)
    same(parts(tmp_path / "out"), expected)


# ---- many classes ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*labels? dropped")
def test_posteriors_of_many_classes_are_a_long_table(tmp_path):
    labels = LabelFiles(write(tmp_path / "in", rows(200, K=150).drop_duplicates(["item", "annotator"])))
    aggregate_parts(labels, "learned", 3, tmp_path / "out", top=2)
    _, expected = run_aggregate(labels, "learned", 3, out=tmp_path / "c.csv", top=2)
    found = parts(tmp_path / "out")
    assert found.columns.tolist() == ["item", "label", "confidence", "n_labels", "agreement"]
    same(found, expected)
    files = sorted((tmp_path / "out").glob("_likeliest-*.parquet"))
    long = pd.concat(map(pd.read_parquet, files)).sort_values(["item", "rank"], ignore_index=True)
    plain = pd.read_csv(tmp_path / "c.likeliest.csv", dtype={"item": str}).sort_values(
        ["item", "rank"], ignore_index=True
    )
    assert long[["item", "rank", "label"]].to_numpy().tolist() == plain[["item", "rank", "label"]].to_numpy().tolist()
    np.testing.assert_allclose(long["probability"], plain["probability"], atol=1e-6)
    assert long["rank"].max() == 2
    first = long[long["rank"] == 1].set_index("item")["label"]
    assert first.to_dict() == found.set_index("item")["label"].to_dict()


# ---- refusals -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("item,annotator,label\na,ann,x\nb,,y\n", r"row 3, column 'annotator' is empty"),
        ("item,annotator,label\na,ann,x\n,bob,y\n", r"row 3, column 'item' is empty"),
        ("item,annotator,label\na,ann,\n", r"labels.csv has no labels"),
        ("item,annotator,label\na,ann,x\nb,c\n", r"is damaged \(.*\), expected a table of labels"),
        ('[{"item": "a"}]', r"JSON .* expected a CSV or Parquet table"),
        ("a,b\n1,2\n", r"has no column for the (item|annotator)"),
        ("", r"is empty, expected a table of labels"),
    ],
)
def test_unreadable_tables_are_refused(tmp_path, content, sentence):
    (tmp_path / "labels.csv").write_text(content)
    with pytest.raises(CrowdshotError, match=sentence):
        aggregate_parts(LabelFiles([tmp_path / "labels.csv"]), "soft", 1, tmp_path / "out")


def test_a_damaged_parquet_file_is_refused(tmp_path):
    rows().to_parquet(tmp_path / "labels.parquet")
    whole = (tmp_path / "labels.parquet").read_bytes()
    (tmp_path / "labels.parquet").write_bytes(whole[:-40])
    with pytest.raises(CrowdshotError, match=r"labels.parquet is damaged \(.*\), expected a Parquet file\.$"):
        aggregate_parts(LabelFiles([tmp_path / "labels.parquet"]), "soft", 1, tmp_path / "out")


def test_a_column_of_lists_is_refused(tmp_path):
    (tmp_path / "in").mkdir()
    table = rows(4, per_item=1)
    table.assign(label=[["x"]] * 4, picture=b"PNG").to_parquet(tmp_path / "in" / "labels.parquet")
    with pytest.raises(CrowdshotError, match="column 'label' has cells of type list<"):
        aggregate_parts(LabelFiles([tmp_path / "in"]), "soft", 8, tmp_path / "out")


def test_unsupported_options_are_refused(tmp_path):
    labels = LabelFiles([tmp_path / "labels.csv"], multi_label=True)
    with pytest.raises(CrowdshotError, match=r"^multi_label is not supported with an engine"):
        aggregate_parts(labels, "soft", 1, tmp_path / "out")
    with pytest.raises(CrowdshotError, match=r"^engine needs an output folder"):
        aggregate_parts(labels, "soft", 1, None)


@pytest.mark.parametrize(("engine", "package"), [("ray", "ray"), ("spark", "pyspark")])
def test_a_missing_engine_package_is_reported_and_nothing_written(tmp_path, monkeypatch, engine, package):
    for name in [package, *(name for name in sys.modules if name.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    labels = LabelFiles(write(tmp_path / "in", rows()))
    with pytest.raises(CrowdshotError, match="not installed") as error:
        aggregate_parts(labels, "soft", 1, tmp_path / "out", engine=engine)
    assert (error.value.argument, error.value.found) == ("engine", package)
    assert not (tmp_path / "out").exists()


def test_refused_input_leaves_no_output_and_corrected_input_is_read(tmp_path):
    (tmp_path / "labels.csv").write_text("item,annotator,label\n,ann,cat\n")
    with pytest.raises(CrowdshotError):
        aggregate_parts(LabelFiles([tmp_path / "labels.csv"]), "learned", 3, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "labels.csv").write_text("item,annotator,label\na,ann,cat\nb,ann,dog\n")
    aggregate_parts(LabelFiles([tmp_path / "labels.csv"]), "learned", 3, tmp_path / "out")
    assert len(parts(tmp_path / "out")) == 2


def test_patterns_without_a_match_are_refused(tmp_path):
    with pytest.raises(CrowdshotError, match=r"\*\.csv matches no file"):
        LabelFiles([tmp_path / "*.csv"]).expanded()
    with pytest.raises(CrowdshotError, match=r" has no file of labels, expected files that end in '.parquet'"):
        LabelFiles([tmp_path]).expanded()


# ---- memory ---------------------------------------------------------------------------------------------------------


def test_sizes_are_read_and_shown():
    assert as_bytes("4GB") == as_bytes("4 g") == as_bytes("4000MB") == 4_000_000_000
    assert (shown(4_000_000_000), shown(265_300_000)) == ("4GB", "265.3MB")
    for text in ("4 apples", "", "-1GB", "0"):
        with pytest.raises(CrowdshotError, match="expected a size") as error:
            as_bytes(text)
        assert (error.value.argument, error.value.found) == ("memory", text)


def test_more_memory_allows_more_processes_and_larger_parts():
    assert shares_of(600_000_000, 16).workers == 1
    assert shares_of(4_000_000_000, 2).workers == 2
    assert shares_of(4_000_000_000, 64).workers == 7
    assert shares_of(500_000_000, 1).part_labels < shares_of(600_000_000, 1).part_labels
    with pytest.raises(CrowdshotError, match=r"^memory is 100MB, expected .* or more\.$"):
        shares_of(100_000_000, 2)


def test_too_little_memory_for_annotators_is_reported_at_the_start():
    with pytest.raises(CrowdshotError, match=r"^memory is 1GB, expected 2GB or more for 1,000,000 annotators"):
        tables_fit(Sizes(10**8, 10**6, 4), "dawid-skene", 10**9, 2)
    tables_fit(Sizes(10**8, 10**6, 4), "dawid-skene", 4 * 10**9, 2)


def test_there_is_a_part_for_every_worker():
    share = Share(workers=4, chunk_rows=1000, part_labels=10**6)
    assert [share.parts(rows) for rows in (10, 250_000, 10**6, 2 * 10**7)] == [1, 2, 8, 20]
