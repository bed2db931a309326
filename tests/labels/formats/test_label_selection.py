"""Options that select labels while they are read: `--since` and `--batch`."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import openpyxl
import pandas as pd
import pytest

from crowdshot import CrowdshotError, read_labels
from crowdshot._cli.inputs import LabelFiles
from forked import crowdshot
from label_exports import TOLOKA, batch, lines

LABEL_STUDIO = Path(__file__).parents[2] / "fixtures" / "label_studio"
HEADER = "item,annotator,label,created_at,week"
ROWS = [
    "1,ann,cat,2026-03-02 09:00,1",
    "1,bob,cat,2026-03-02 10:00,1",
    "2,ann,dog,2026-03-09 09:00,2",
    "2,cleo,dog,2026-03-09T23:59:59Z,2",
    "3,cleo,owl,2026-03-10 00:00,2",
    "3,ann,dog,,3",
]


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("\n".join([HEADER, *ROWS]) + "\n")
    return path


def triples(read) -> set[tuple[str, str, str]]:
    return set(read.annotations.to_frame().itertuples(index=False, name=None))


def expected(*rows: int) -> set[tuple[str, ...]]:
    return {tuple(ROWS[row].split(",")[:3]) for row in rows}


@pytest.mark.parametrize(
    ("since", "rows", "earlier"),
    [
        ("2026-03-01", (0, 1, 2, 3, 4), 0),
        ("2026-03-02 09:30", (1, 2, 3, 4), 1),
        ("2026-03-10", (4,), 4),
        ("2026-03-10T01:00+01:00", (4,), 4),
        ("March 9, 2026", (2, 3, 4), 2),
        ("20260310", (4,), 4),
    ],
)
def test_labels_since_a_date(table, since, rows, earlier):
    read = read_labels(table, since=since)
    assert triples(read) == expected(*rows)
    assert len(read.times) == len(rows)
    assert read.left_out.get("earlier labels", 0) == earlier
    assert read.left_out["labels without a time"] == 1
    for role, names in enumerate((read.annotations.items, read.annotations.annotators, read.annotations.classes)):
        assert set(names) == {row[role] for row in expected(*rows)}


@pytest.mark.parametrize("since", ["yesterday", "5", "3/4/2026", "2026-13-01", "", "12:30"])
def test_what_is_no_date_is_refused(table, since):
    with pytest.raises(CrowdshotError) as caught:
        read_labels(table, since=since)
    assert caught.value.argument == "since"
    assert caught.value.found == since


def test_the_order_of_day_and_month_of_the_date_follows_the_option(table):
    assert triples(read_labels(table, since="10/3/2026", dates="day-first")) == expected(4)
    assert triples(read_labels(table, since="3/10/2026", dates="month-first")) == expected(4)


def test_a_date_after_all_labels_and_a_file_without_times(table, tmp_path):
    with pytest.raises(CrowdshotError, match="2026-03-10 00:00") as caught:
        read_labels(table, since="2027-01-01")
    assert caught.value.argument == "since"
    for more in ("", ",seconds"):
        (tmp_path / "plain.csv").write_text(f"item,annotator,label{more}\n1,ann,cat{more and ',5'}\n")
        with pytest.raises(CrowdshotError, match="no times") as caught:
            read_labels(tmp_path / "plain.csv", since="2026-01-01")
        assert caught.value.argument == "since"


def test_dates_that_can_be_read_in_two_ways_are_refused_only_if_the_choice_depends_on_them(tmp_path):
    path = tmp_path / "labels.csv"
    path.write_text("item,annotator,label,created_at\n1,ann,cat,3/4/2026\n2,ann,dog,5/4/2026\n")
    with pytest.raises(CrowdshotError) as caught:
        read_labels(path, since="2026-04-01")
    assert caught.value.argument == "dates"
    assert len(triples(read_labels(path, since="2026-04-01", dates="day-first"))) == 2
    assert len(triples(read_labels(path, since="2026-04-01", dates="month-first"))) == 1
    with pytest.warns(UserWarning, match="begin with the day"):
        assert len(triples(read_labels(path, since="2026-01-01"))) == 2


def test_a_batch_of_a_table(table):
    read = read_labels(table, batch={"week": "2"})
    assert triples(read) == expected(2, 3, 4)
    assert read.left_out["rows of other batches"] == 3
    assert triples(read_labels(table, batch={"week": "2.0", "annotator": "cleo"})) == expected(3, 4)
    assert triples(read_labels(table, batch={"week": "2"}, since="2026-03-10")) == expected(4)


@pytest.mark.parametrize(
    ("batch", "found", "word"),
    [
        ({"week": "4"}, "4", "'2' \\(3 rows\\)"),
        ({"week": None}, None, "'2' \\(3 rows\\)"),
        ({"wek": "2"}, "wek", "week"),
        ({"week": "1", "annotator": "cleo"}, None, "week=1 and annotator=cleo"),
    ],
)
def test_a_batch_that_is_not_there(table, batch, found, word):
    with pytest.raises(CrowdshotError, match=word) as caught:
        read_labels(table, batch=batch)
    assert caught.value.argument == "batch"
    assert caught.value.found == found


def test_batches_of_several_files(table, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text(f"{HEADER}\n9,dora,cat,2026-03-11,4\n8,dora,dog,2026-03-11,2\n")
    assert triples(read_labels([table, other], batch={"week": "4"})) == {("9", "dora", "cat")}
    assert len(triples(read_labels([table, other], batch={"week": "2"}))) == 4


def test_the_column_of_a_batch_in_a_wide_table_is_no_annotator(tmp_path):
    rows = ["item,ann,bob,round", *(f"{i},{i % 2},{i % 2},{i % 2}" for i in range(12))]
    (tmp_path / "wide.csv").write_text("\n".join(rows) + "\n")
    read = read_labels(tmp_path / "wide.csv", batch={"round": "1"})
    assert list(read.annotations.annotators) == ["ann", "bob"]
    assert set(read.annotations.items) == {str(i) for i in range(1, 12, 2)}


def test_batches_of_a_workbook_with_numbers(tmp_path):
    book = openpyxl.Workbook()
    for row in [HEADER, *ROWS]:
        cells = row.split(",")
        book.active.append([*cells[:3], cells[4] if cells[4] == "week" else float(cells[4])])
    book.save(tmp_path / "labels.xlsx")
    assert triples(read_labels(tmp_path / "labels.xlsx", batch={"week": "2"})) == expected(2, 3, 4)


@pytest.mark.parametrize("suffix", ["json", "jsonl", "parquet"])
def test_batches_of_other_tables(tmp_path, suffix):
    records = [dict(zip(HEADER.split(","), [*row.split(",")[:4], int(row[-1])], strict=True)) for row in ROWS]
    path = tmp_path / f"labels.{suffix}"
    if suffix == "parquet":
        pd.DataFrame(records).to_parquet(path)
    else:
        path.write_text(json.dumps(records) if suffix == "json" else lines(records))
    assert triples(read_labels(path, batch={"week": "2"})) == expected(2, 3, 4)


def test_batches_of_label_studio_are_fields_of_the_data(tmp_path):
    tasks = json.loads((LABEL_STUDIO / "export_snapshot.json").read_text())
    for task in tasks:
        task["data"]["batch"] = "pilot" if task["id"] <= 2 else "main"
    (tmp_path / "export.json").write_text(json.dumps(tasks))
    whole, pilot, main = (
        read_labels(tmp_path / "export.json", batch=some) for some in (None, {"batch": "pilot"}, {"batch": "main"})
    )
    assert triples(pilot) | triples(main) == triples(whole)
    assert not triples(pilot) & triples(main)
    assert len(pilot.annotations.items) == 2
    times = whole.times.seconds
    late = read_labels(tmp_path / "export.json", since=pd.Timestamp(np.median(times), unit="s").isoformat())
    assert late.annotations.n_labels == int((times >= pd.Timestamp(np.median(times), unit="s").timestamp()).sum())


def test_batches_of_crowd_markets(tmp_path):
    rows = [[f"h{i}", f"a{i}", f"w{i}", "Approved", "", f"{i}.png", "cat", "x", ""] for i in range(3)]
    text = batch(*rows)
    assert text.splitlines()[0].count("HITId") == 1
    (tmp_path / "mturk.csv").write_text(text)
    read = read_labels(tmp_path / "mturk.csv", batch={"HITId": "h1"})
    assert list(read.annotations.annotators) == ["w1"]
    (tmp_path / "toloka.tsv").write_text(TOLOKA)
    read = read_labels(tmp_path / "toloka.tsv", batch={"ASSIGNMENT:worker_id": "w1"})
    assert list(read.annotations.annotators) == ["w1"]


@pytest.mark.slow
def test_both_options_on_the_command_line(table):
    folder = table.parent
    done = crowdshot(folder, "aggregate", "labels.csv", "--batch", "week=2", "--since", "2026-03-10", "--out", "c.csv")
    assert done.returncode == 0, done.stderr
    assert pd.read_csv(folder / "c.csv")["item"].tolist() == [3]
    assert "3 rows of other batches" in done.stdout + done.stderr
    for option, value in (("--batch", "week"), ("--batch", "week=9"), ("--since", "soon"), ("--since", "2030-01-01")):
        done = crowdshot(folder, "aggregate", "labels.csv", option, value, "--out", "none.csv")
        assert (done.returncode, "Traceback" in done.stderr) == (2, False)
        assert option in done.stderr
        assert not (folder / "none.csv").exists()
    done = crowdshot(folder, "aggregate", "labels.csv", "--engine", "local", "--since", "2026-03-10", "--out", "folder")
    assert done.returncode == 2
    assert "--since" in done.stderr


@pytest.mark.slow
def test_the_report_suggests_commands_with_the_options(table):
    done = crowdshot(table.parent, "aggregate", "labels.csv", "--batch", "week=2", "--report", "results")
    assert done.returncode == 0, done.stderr
    run = json.loads((table.parent / "results" / "run.json").read_text())["run"]
    assert "--batch week=2" in run["command"]


def test_a_batch_may_name_an_annotator_and_is_hidden_with_the_names(table):
    labels = LabelFiles(paths=[table], batch={"annotator": "cleo"}).without_names()
    assert labels.options()["batch"] == {"annotator": "VALUE"}


@pytest.mark.slow
def test_labels_alone_are_selected_without_torch(table):
    words = ["aggregate", "labels.csv", "--batch", "week=2", "--since", "2026-03-09", "--out", "c.csv"]
    run = f"import sys; from crowdshot._cli import main; sys.argv = ['crowdshot', *{words}]\ntry: main.main()\n"
    run += "except SystemExit as stop: assert not stop.code\nassert not {'torch', 'sklearn'} & set(sys.modules)"
    done = subprocess.run([sys.executable, "-c", run], cwd=table.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (table.parent / "c.csv").exists()
