"""Durations of labels, and when and how fast each annotator works."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot import read_labels
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.label_durations import seconds_of, unit_of
from crowdshot.labels.label_times import Times, join_times
from crowdshot.labels.working_times import is_break, working_records, working_times
from forked import crowdshot

LABEL_STUDIO = Path(__file__).parents[1] / "fixtures" / "label_studio"


def one_annotator(seconds, durations=None) -> tuple[Annotations, Times]:
    n = len(seconds)
    labels = pd.DataFrame({"item": [f"{i}" for i in range(n)], "annotator": "ann", "label": "cat"})
    took = None if durations is None else np.array(durations, dtype=float)
    return Annotations.from_frame(labels), Times(np.array(seconds, dtype=float), durations=took)


def records(read) -> dict:
    return working_records(working_times(read.annotations, read.times))


def speed(seconds, durations=None) -> tuple[float, float]:
    found = working_times(*one_annotator(seconds, durations))
    return tuple(found[name].iloc[0] if name in found else np.nan for name in ("labels_per_hour", "median_seconds"))


@pytest.mark.parametrize(
    ("cell", "unit", "seconds"),
    [
        ("12.5", "s", 12.5),
        ("12,5", "s", 12.5),
        ("3200", "ms", 3.2),
        ("3200 ms", "s", 3.2),
        ("2", "min", 120),
        ("1.5 min.", "s", 90),
        ("32 s", "ms", 32),
        ("1:05", "s", 65),
        ("1:02:03.5", "s", 3723.5),
        ("1 day, 0:00:05", "s", 86405),
        ("0 days 00:00:12.25", "s", 12.25),
        ("PT1M2.5S", "s", 62.5),
        ("1e1", "s", 10),
        *((cell, "s", np.nan) for cell in ("", "-3", "fast", "2026-03-04", "5 apples", "PT", "4/3/2026 16:05", "nan")),
    ],
)
def test_durations_in_many_forms(cell, unit, seconds):
    np.testing.assert_allclose(seconds_of(cell, unit), seconds)


@settings(max_examples=60, deadline=None)
@given(st.timedeltas(pd.Timedelta(0).to_pytimedelta(), pd.Timedelta(days=30).to_pytimedelta()))
def test_what_python_and_pandas_write_is_read_back(duration):
    for written in (str(duration), str(pd.Timedelta(duration))):
        assert seconds_of(written) == pytest.approx(duration.total_seconds(), abs=1e-6)


@pytest.mark.parametrize(
    ("column", "unit"),
    [
        *((name, "s") for name in ("Duration", "duration (seconds)", "Duration (in seconds)", "time_spent", "seconds")),
        *((name, "s") for name in ("lead_time", "WorkTimeInSeconds", "Time taken", "duration_s", "Dauer", "durée")),
        *((name, "ms") for name in ("duration_ms", "Time spent (ms)", "time [ms]")),
        *((name, "min") for name in ("Duration in minutes", "time (min)")),
        *((name, None) for name in ("time", "times", "timestamp", "Datum", "second", "s", "label", "endtime", "")),
    ],
)
def test_names_of_columns_with_durations(column, unit):
    assert unit_of(column) == unit


def table(path: Path, header: str, *rows: str) -> Path:
    path.write_text("\n".join([header, *rows]) + "\n")
    return path


@pytest.mark.parametrize("cell", ["1e400", "9" * 400, "1e400 ms"])
def test_an_endless_duration_is_unknown(cell: str) -> None:
    assert np.isnan(seconds_of(cell))


def test_a_column_of_durations_is_read_and_is_no_time(tmp_path):
    rows = ["1,ann,cat,0:00:12", "1,bob,dog,0:00:07", "2,ann,dog,", "2,bob,,0:01:00"]
    read = read_labels(table(tmp_path / "t.csv", "item,annotator,label,Duration", *rows))
    assert read.sources[0].columns["duration"] == "Duration"
    assert "time" not in read.sources[0].columns
    assert np.isnan(read.times.seconds).all()
    np.testing.assert_array_equal(read.times.durations, [12, 7, np.nan])


def test_a_duration_of_the_item_is_not_that_of_its_labels(tmp_path):
    rows = ["v1,ann,cat,30", "v1,bob,dog,30", "v2,ann,dog,12", "v2,bob,dog,12"]
    assert read_labels(table(tmp_path / "t.csv", "item,annotator,label,Duration", *rows)).times is None


def test_durations_follow_the_newest_label_and_renamed_annotators(tmp_path):
    rows = ["1,ann,cat,2026-03-05,5", "1,Ann,dog,2026-03-04,50", "2,ann,dog,2026-03-04,7"]
    path = table(tmp_path / "t.csv", "item,annotator,label,Timestamp,seconds", *rows)
    with pytest.warns(UserWarning, match="newest"):
        read = read_labels(path, names={"Ann": "ann"})
    assert read.annotations.n_labels == 2
    assert sorted(read.times.durations) == [5, 7]
    assert records(read)["ann"] == {"last_active": "2026-03-05", "median_seconds": 6.0}


def test_durations_of_several_files_are_joined():
    joined = join_times([Times(np.array([1.0])), Times(np.array([np.nan]), durations=np.array([4.0]))])
    np.testing.assert_array_equal(joined.durations, [np.nan, 4.0])
    assert join_times([Times.unknown(1), Times.unknown(2)]).durations is None


@pytest.mark.parametrize("name", ["export_snapshot.json", "export_min.json", "export.csv"])
def test_lead_time_of_label_studio_is_a_duration(name):
    took = {}
    if name.endswith("snapshot.json"):
        for task in json.loads((LABEL_STUDIO / name).read_text()):
            for one in task["annotations"]:
                if not one["was_cancelled"] and one["lead_time"] is not None:
                    took.setdefault(str(one["completed_by"]), []).append(one["lead_time"])
    else:
        path = LABEL_STUDIO / name
        rows = pd.read_json(path) if name.endswith("json") else pd.read_csv(path)
        rows = rows[rows["choice"].notna() & rows["lead_time"].notna()]
        took = {str(int(who)): some["lead_time"].tolist() for who, some in rows.groupby("annotator")}
    found = records(read_labels(LABEL_STUDIO / name))
    medians = {who: row["median_seconds"] for who, row in found.items() if "median_seconds" in row}
    assert medians == {who: pytest.approx(np.median(some), abs=0.05) for who, some in took.items()}


def test_times_of_mechanical_turk(tmp_path):
    header = "HITId,WorkerId,AssignmentStatus,SubmitTime,WorkTimeInSeconds,Input.image,Answer.animal"
    when = "Wed Mar 04 16:05:{:02d} PST 2026"
    rows = [f"h{i},W{i % 2},Approved,{when.format(i)},{10 * i + 5},{i}.png,cat" for i in range(6)]
    found = records(read_labels(table(tmp_path / "batch.csv", header, *rows)))
    assert found["W0"] == {"last_active": "2026-03-05T00:05:04Z", "median_seconds": 25.0}
    assert found["W1"]["median_seconds"] == 35.0


def test_breaks_do_not_count():
    gaps = [10, 12, 8, 900, 10, 10, 86_400, 10]
    assert is_break(np.array(gaps, dtype=float)).tolist() == [gap >= 900 for gap in gaps]
    # six gaps of work take 60 seconds in all
    assert speed(1e9 + np.cumsum([0, *gaps])) == (360.0, 10.0)


def test_labels_submitted_together_share_the_gap():
    pages = np.repeat(1e9 + 100.0 * np.arange(7), 5)
    assert speed(pages) == (180.0, 20.0)


@pytest.mark.parametrize(
    "seconds",
    [
        1e9 + np.arange(5),  # four gaps are too few
        1e9 + 86_400.0 * np.arange(20),  # dates alone
        1e9 + 1e-4 * np.arange(200),  # imported
        np.full(20, np.nan),
    ],
)
def test_no_speed_without_enough_gaps(seconds):
    assert np.isnan(speed(seconds)).all()


def test_durations_are_preferred_to_gaps():
    assert speed(1e9 + 10.0 * np.arange(8), [3, 4, 5, np.nan, 4, 4, 4, 900]) == (360.0, 4.0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(1, 100), min_size=5, max_size=30), st.permutations(range(6)), st.floats(3_600, 1e6))
def test_speed_depends_neither_on_the_order_of_rows_nor_on_when_work_begins(gaps, order, pause):
    times = 1e9 + np.cumsum([0, *gaps])
    shuffled = np.concatenate([times[list(order)], times[6:]])
    np.testing.assert_allclose(speed(shuffled), speed(times), rtol=1e-3, atol=0.11)
    two_days = np.concatenate([times, times + pause + (times[-1] - times[0])])
    np.testing.assert_allclose(speed(two_days), speed(times), rtol=1e-2, atol=0.11)


def test_times_that_can_be_read_in_two_ways_are_not_used():
    ann, _ = one_annotator([0, 0])
    open_times = Times(np.array([1e9, 2e9]), np.array([1e9, 3e9]), order="undecided")
    assert working_times(ann, open_times)["last_active"].tolist() == ["2001-09-09T01:46:40Z"]


def write_form(path: Path, clock: bool = True) -> None:
    """Labels of three annotators in one morning; Bob takes a break of two hours, and is slow."""
    random = np.random.default_rng(0)
    rows = []
    for who, pace in {"ann": 10.0, "bob": 40.0, "cleo": 20.0}.items():
        at = pd.Timestamp("2026-03-04 09:00")
        for item in range(40):
            took = pace * random.uniform(0.5, 1.5)
            at += pd.Timedelta(seconds=took + (7200 if (who, item) == ("bob", 20) else 0))
            label = ("cat", "dog")[(item + (random.random() < 0.1)) % 2]
            rows.append((f"{item}.png", who, label, at.isoformat(timespec="seconds"), round(took, 1)))
    frame = pd.DataFrame(rows, columns=["image", "annotator", "label", "created_at", "time spent (s)"])
    (frame if clock else frame.iloc[:, :3]).to_csv(path, index=False)


def test_annotators_csv_has_the_columns_only_with_times(tmp_path, call):
    new = ["last_active", "labels_per_hour", "median_seconds"]
    for clock in (True, False):
        write_form(tmp_path / "labels.csv", clock)
        files = ("--out", tmp_path / "c.csv", "--annotators", tmp_path / "people.csv")
        done = call("aggregate", tmp_path / "labels.csv", *files)
        assert done.code == 0, done.err
        people = pd.read_csv(tmp_path / "people.csv", index_col=0)
        assert [name for name in people if name in new] == (new if clock else [])
        if clock:
            timed = people
    pd.testing.assert_frame_equal(timed[people.columns], people)
    write_form(tmp_path / "labels.csv")
    labels = pd.read_csv(tmp_path / "labels.csv")
    for who, rows in labels.groupby("annotator"):
        assert timed.loc[who, "median_seconds"] == pytest.approx(rows["time spent (s)"].median(), abs=0.06)
        assert timed.loc[who, "last_active"] == rows["created_at"].max() + "Z"
        work = rows["time spent (s)"].iloc[1:]
        work = work.drop(index=rows.index[20]) if who == "bob" else work
        assert timed.loc[who, "labels_per_hour"] == pytest.approx(3600 / work.mean(), rel=0.02)


@pytest.mark.slow
def test_the_report_says_when_and_how_fast_and_still_does_when_rebuilt(tmp_path):
    write_form(tmp_path / "labels.csv")
    done = crowdshot(tmp_path, "aggregate", "labels.csv", "--report", "results")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "results" / "report.html").read_text()
    assert len(re.findall(r"Last active 2026-03-04 \d\d:\d\d UTC; \d+ labels per hour", page)) == 3
    assert crowdshot(tmp_path, "report", "results").returncode == 0
    assert (tmp_path / "results" / "report.html").read_text() == page
    write_form(tmp_path / "labels.csv", clock=False)
    assert crowdshot(tmp_path, "aggregate", "labels.csv", "--report", "plain").returncode == 0
    assert "Last active" not in (tmp_path / "plain" / "report.html").read_text()
    assert "working" not in json.loads((tmp_path / "plain" / "run.json").read_text())["run"]
