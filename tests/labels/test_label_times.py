"""Times of labels: dates in the forms that people and programs write, and which of repeated labels is the newest."""

import warnings
from datetime import UTC, datetime, timedelta

import numpy as np
import openpyxl
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot import CrowdshotError, read_labels
from crowdshot.labels.label_times import Times, join_times, read_times

AT = datetime(2026, 3, 4, 16, 5, tzinfo=UTC).timestamp()
DAY = datetime(2026, 3, 4, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    ("cell", "seconds"),
    [
        ("2026-03-04T16:05:00Z", AT),
        ("2026-03-04 17:05+01:00", AT),
        ("9026-03-04T16:05:00Z", datetime(9026, 3, 4, 16, 5, tzinfo=UTC).timestamp()),
        ("2026/03/04 4:05:00 PM GMT+1", AT - 3600),  # Google Forms
        ("2026/3/4 下午 4:05:00", AT),
        ("2026年3月4日 16:05", AT),
        ("04.03.2026 16:05", AT),
        ("4. 3. 2026", DAY),
        ("04.03.26", DAY),
        ("Mi., 4. März 2026 16:05 Uhr", AT),
        ("4-Mar-26", DAY),
        ("Mar 4, 2026 4:05 PM", AT),
        ("March 4th, 2026 at 4:05pm", AT),
        ("Wed Mar 04 16:05:00 PST 2026", AT + 8 * 3600),  # Mechanical Turk
        ("Wed, 04 Mar 2026 16:05:00 +0000", AT),
        ("4 de marzo de 2026", DAY),
        ("4 mars 2026 16h05", AT),
        ("20260304", DAY),
        ("20260304T160500Z", AT),
        (str(int(AT)), AT),
        (str(int(AT * 1000)), AT),
    ],
)
def test_one_time_in_many_forms(cell, seconds):
    times = read_times([cell])
    assert times.seconds.tolist() == [seconds]
    assert times.month_first is None


@pytest.mark.parametrize(
    "cell",
    [
        "",
        "16:05",
        "0:05:00",
        "12.5",
        "32 s",
        "yesterday",
        "31/2/2026",
        "4/2026",
        "10.0.0.1",
        "v1.2.26",
        "25:00 4/3/2026",
    ],
)
def test_durations_and_other_cells_are_no_times(cell):
    assert np.isnan(read_times([cell]).seconds).all()


FORMATS = ["%Y-%m-%d %H:%M:%S", "%d.%m.%Y %H:%M:%S", "%d %B %Y %H:%M:%S", "%b %d, %Y %I:%M:%S %p", "%Y/%m/%d %H:%M:%S",
           "%a %b %d %H:%M:%S %Y", "%d-%b-%y %H:%M:%S", "%Y%m%d%H%M%S"]  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.datetimes(datetime(1990, 1, 1), datetime(2060, 1, 1)).map(lambda t: t.replace(microsecond=0)),
    st.sampled_from(FORMATS),
)
def test_what_python_writes_is_read_back(moment, form):
    assert read_times([moment.strftime(form)]).seconds[0] == moment.replace(tzinfo=UTC).timestamp()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.datetimes(datetime(2000, 1, 1), datetime(2060, 1, 1)), min_size=1, max_size=8), st.booleans())
def test_slashed_dates_have_the_true_reading_among_theirs(moments, day_first):
    form = "%d/%m/%Y %H:%M:%S" if day_first else "%m/%d/%Y %H:%M:%S"
    truth = [moment.replace(microsecond=0, tzinfo=UTC).timestamp() for moment in moments]
    cells = [moment.strftime(form) for moment in moments]
    assert read_times(cells, dates="day-first" if day_first else "month-first").seconds.tolist() == truth
    times = read_times(cells)
    if times.order != "undecided" and any(moment.day > 12 for moment in moments):
        assert times.seconds.tolist() == truth
    elif times.month_first is not None:
        assert truth in [reading.tolist() for reading in times.readings]


@pytest.mark.parametrize(
    ("cells", "column", "order"),
    [
        (["3/4/2026", "13/4/2026"], "", "day-first"),
        (["3/4/2026", "4/13/2026"], "", "month-first"),
        (["13/4/2026", "4/13/2026", "3/4/2026"], "", "undecided"),
        (["3/4/2026"], "", "undecided"),
        (["3/4/2026"], "Date (DD/MM/YYYY)", "day-first"),
        (["3/4/2026"], "mm/dd/yy", "month-first"),
        (["3/9/26", "3/10/26", "3/11/26", "4/1/26", "4/2/26"], "", "month-first"),  # the only order of the rows
        (["3/9/26", "3/10/26", "4/2/26", "4/1/26", "3/11/26"], "", "undecided"),
        (["1/2/26", "2/2/26", "3/2/26", "4/2/26", "5/2/26"], "", "undecided"),  # in order by both readings
        (["3/3/2026", "2026-04-05"], "", ""),
    ],
)
def test_the_column_shows_whether_the_day_comes_first(cells, column, order):
    assert read_times(cells, column).order == order


def test_what_the_cells_show_counts_more_than_the_option():
    with pytest.warns(UserWarning, match="not read as month-first, because one is '13/4/2026'"):
        assert read_times(["3/4/2026", "13/4/2026"], "Date", dates="month-first").order == "day-first"
    with pytest.raises(CrowdshotError, match="day-first") as caught:
        read_times(["3/4/2026"], dates="us")
    assert caught.value.argument == "dates"


def test_undecided_times_follow_those_of_the_other_files():
    open_times, decided = read_times(["3/4/2026"]), read_times(["4/13/2026"])
    joined = join_times([open_times, decided, Times.unknown(1)])
    assert joined.month_first is None
    assert joined.seconds[0] == DAY
    assert join_times([open_times, read_times(["2026-01-01"])]).order == "undecided"


def test_numbers_of_excel_are_dates_in_other_files_if_they_cannot_be_anything_else():
    """A column named like a date, every number within 2005 to 2040, and a time of day."""
    with pytest.warns(UserWarning, match="Excel") as notes:
        found = read_times(["46085.670139", "", "46086.5"], "Submission Date")
    assert len(notes) == 1
    assert found.seconds[0] == pytest.approx(AT, abs=1)
    assert np.isnan(found.seconds[1])
    for cells, column in (
        (["46085", "46086"], "Date"),  # may be anything
        (["46085.5", "7.5"], "Date"),
        (["46085.5", "unknown"], "Date"),
        (["46085.5", "46086.5"], "Distance"),
        (["46085.5", "46086.5"], "time"),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert np.isnan(read_times(cells, column).seconds).all()
        assert not any("Excel" in str(each.message) for each in caught)


def test_numbers_of_excel_are_dates_in_workbooks_alone():
    serial = (datetime(2026, 3, 4, 16, 5) - datetime(1899, 12, 30)) / timedelta(days=1)
    assert read_times([str(serial)], "Date", serials=True).seconds[0] == pytest.approx(AT, abs=1)
    for column, serials in (("When", False), ("time", True)):
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            assert np.isnan(read_times([str(serial)], column, serials=serials).seconds).all()


# ---- the newest of repeated labels ---------------------------------------------------------------------------------


def labels(tmp_path, rows, column="Timestamp", **options):
    (tmp_path / "labels.csv").write_text(f"item,annotator,label,{column}\n" + "".join(f"{row}\n" for row in rows))
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        read = read_labels(tmp_path / "labels.csv", **options)
    said = {(item, who): label for item, who, label in read.annotations.to_frame().itertuples(index=False)}
    return said, read, [str(note.message) for note in notes]


NEWER_FIRST = ["1,ann,cat,3/14/2026 16:05:00", "1,ann,dog,3/4/2026 16:05:00", "2,bob,dog,3/4/2026 9:00:00"]


def test_the_newest_counts_by_american_dates(tmp_path):
    said, read, notes = labels(tmp_path, NEWER_FIRST)
    assert said == {("1", "ann"): "cat", ("2", "bob"): "dog"}
    assert any("the newest by 'Timestamp' counts" in note for note in notes)
    assert read.times.seconds.tolist() == [AT + 10 * 86400, DAY + 9 * 3600]


OPEN = ["1,ann,cat,3/4/2026 16:05", "1,ann,dog,4/3/2026 16:05", "2,bob,dog,3/4/2026 9:00"]


def test_the_order_is_asked_for_where_a_label_depends_on_it(tmp_path):
    with pytest.raises(CrowdshotError, match="newest depends on it") as caught:
        labels(tmp_path, OPEN)
    assert caught.value.argument == "dates"
    assert caught.value.found == "3/4/2026 16:05"
    assert labels(tmp_path, OPEN, dates="day-first")[0]["1", "ann"] == "cat"
    assert labels(tmp_path, OPEN, dates="month-first")[0]["1", "ann"] == "dog"


@pytest.mark.parametrize(
    "rows",
    [
        [OPEN[0], OPEN[2]],  # nothing is repeated
        [OPEN[0], OPEN[1].replace("dog", "cat"), OPEN[2]],  # the same label twice
        ["1,ann,cat,3/5/2026", "1,ann,dog,3/4/2026", OPEN[2]],  # the newest by both readings
    ],
)
def test_else_a_note_is_enough(tmp_path, rows):
    said, _, notes = labels(tmp_path, rows)
    assert said["1", "ann"] == "cat"
    assert any("no label depends on it" in note for note in notes)


def test_two_spellings_of_a_person_may_make_it_matter(tmp_path):
    rows = [OPEN[0], OPEN[1].replace("ann", "Ann"), OPEN[2]]
    with pytest.raises(CrowdshotError, match="newest depends on it"):
        labels(tmp_path, rows, names={"Ann": "ann"})


def test_a_column_of_dates_is_found_by_its_cells_unless_it_is_about_the_items(tmp_path):
    rows = ["1,ann,cat,5 Mar 2026", "1,ann,dog,4 Mar 2026", "1,bob,dog,4 Mar 2026"]
    assert labels(tmp_path, rows, "Wann gemacht")[0]["1", "ann"] == "cat"
    of_item = ["1,ann,cat,5 Mar 2026", "1,ann,dog,5 Mar 2026", "2,ann,dog,4 Mar 2026"]
    assert labels(tmp_path, of_item, "taken")[1].times is None


def test_the_column_is_named(tmp_path):
    rows = ["1,ann,cat,5 Mar 2026,1 Mar 2026", "1,ann,dog,4 Mar 2026,2 Mar 2026"]
    said, _, _ = labels(tmp_path, rows, "one,two", columns={"time": "one"})
    assert said["1", "ann"] == "cat"
    assert labels(tmp_path, rows, "one,two", columns={"time": "two"})[0]["1", "ann"] == "dog"
    with pytest.raises(CrowdshotError, match="names 'three' for the time"):
        labels(tmp_path, rows, "one,two", columns={"time": "three"})


def test_date_and_time_of_day_are_joined(tmp_path):
    rows = ["1,ann,cat,4.3.2026,16:05", "1,ann,dog,4.3.2026,9:30", "2,ann,dog,4.3.2026,9:00"]
    said, read, _ = labels(tmp_path, rows, "Date,Time")
    assert said["1", "ann"] == "cat"
    assert read.times.seconds.tolist() == [AT, DAY + 9 * 3600]


def test_an_unreadable_time_is_reported(tmp_path):
    _, _, notes = labels(tmp_path, ["1,ann,cat,first week", "2,ann,dog,second week"])
    assert any(
        "'Timestamp' looks like times, but 2 of 2 cells cannot be read, such as 'first week'" in n for n in notes
    )
    _, read, notes = labels(tmp_path, ["1,ann,cat,12.5", "2,ann,dog,7"], "time")  # seconds that it took
    assert not notes
    assert np.isnan(read.times.seconds).all()


def test_of_a_form_the_newest_answers_count(tmp_path):
    rows = ["3/14/2026 9:01:12,Ann,cat,dog,owl", "3/4/2026 9:05:12,Bob,cat,dog,owl", "3/4/2026 9:01:12,Ann,dog,dog,cat"]
    (tmp_path / "form.csv").write_text("Timestamp,Your name,A,B,C\n" + "\n".join(rows))
    with pytest.warns(UserWarning, match="the newest"):
        read = read_labels(tmp_path / "form.csv")
    said = {(item, who): label for item, who, label in read.annotations.to_frame().itertuples(index=False)}
    assert [said[picture, "Ann"] for picture in "ABC"] == ["cat", "dog", "owl"]
    assert sorted(set(read.times.seconds)) == [DAY + 9 * 3600 + 312, DAY + 10 * 86400 + 9 * 3600 + 72]
    rows[0] = "4/3/2026 9:01:12,Ann,cat,dog,owl"
    (tmp_path / "form.csv").write_text("Timestamp,Your name,A,B,C\n" + "\n".join(rows))
    with pytest.raises(CrowdshotError, match="newest depends on it"):
        read_labels(tmp_path / "form.csv")


def test_dates_of_a_workbook(tmp_path):
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["item", "annotator", "label", "Date"])
    for row in (["1", "ann", "cat", datetime(2026, 3, 14, 16, 5)], ["1", "ann", "dog", datetime(2026, 3, 4)]):
        sheet.append(row)
    book.save(tmp_path / "book.xlsx")
    with pytest.warns(UserWarning, match="the newest by 'Date' counts"):
        assert read_labels(tmp_path / "book.xlsx").annotations.classes.tolist() == ["cat"]


def test_mechanical_turk_says_when(tmp_path):
    pd.DataFrame(
        {
            "HITId": ["h", "h"],
            "WorkerId": ["A", "A"],
            "AssignmentStatus": ["Approved"] * 2,
            "SubmitTime": ["Wed Mar 04 16:05:00 PST 2026", "Tue Mar 03 16:05:00 PST 2026"],
            "Input.image": ["1.png"] * 2,
            "Answer.label": ["cat", "dog"],
        }
    ).to_csv(tmp_path / "batch.csv", index=False)
    with pytest.warns(UserWarning, match="the newest by 'SubmitTime' counts"):
        assert read_labels(tmp_path / "batch.csv").annotations.classes.tolist() == ["cat"]
