"""Tables with a row for each annotator and a column for each item."""

from pathlib import Path

import pandas as pd
import pytest

from crowdshot import read_labels
from crowdshot.errors import CrowdshotError

SAID = {"ann": ["cat", "dog", "cat", "dog"], "bob": ["cat", "dog", "dog", "dog"], "cy": ["cat", "cat", "", "dog"]}
LONG = {(f"q{i}", who): label for who, row in SAID.items() for i, label in enumerate(row, 1) if label}


def write(path: Path, header: list[str], before: dict[str, list[str]] | None = None) -> Path:
    table = pd.DataFrame.from_dict(SAID, orient="index").reset_index().set_axis(header, axis=1)
    for name, cells in (before or {}).items():
        table.insert(0, name, cells)
    table.to_csv(path, index=False)
    return path


def read(path: Path, **options) -> dict[tuple[str, str], str]:
    frame = read_labels(path, **options).annotations.to_frame()
    return {(item, who): label for item, who, label in frame.itertuples(index=False)}


@pytest.mark.parametrize("name", ["annotator", "Worker ID", "Bewerter"])
def test_annotators_in_rows_are_recognised_by_their_column(tmp_path, name):
    path = write(tmp_path / "form.csv", [name, "q1", "q2", "q3", "q4"], {"Timestamp": ["9:01", "9:02", "9:07"]})
    assert read(path) == LONG
    found = read_labels(path)
    assert found.left_out == {"columns of no item": ["Timestamp"]}
    assert found.annotations.items.tolist() == ["q1", "q2", "q3", "q4"]
    assert found.annotations.annotators.tolist() == ["ann", "bob", "cy"]


@pytest.mark.parametrize("name", ["", "name", "Your nickname"])
def test_and_by_columns_that_are_called_after_images(tmp_path, name):
    path = write(tmp_path / "form.csv", [name, "q1.jpg", "q2.PNG", "q3.jpg", "q4.jpg"])
    ending = {"q1": "q1.jpg", "q2": "q2.PNG", "q3": "q3.jpg", "q4": "q4.jpg"}
    assert read(path) == {(ending[item], who): label for (item, who), label in LONG.items()}


def test_else_the_format_is_named_and_so_may_be_the_column(tmp_path):
    path = write(tmp_path / "form.csv", ["Your nickname", "q1", "q2", "q3", "q4"])
    assert read(path, format_name="turned") == LONG
    dated = write(tmp_path / "dated.csv", ["Your nickname", "q1", "q2", "q3", "q4"], {"When": ["1", "1", "2"]})
    with pytest.raises(CrowdshotError, match="has no column with an annotator in each row, expected one"):
        read(dated, format_name="turned")
    assert read(dated, format_name="turned", columns={"annotator": "Your nickname"}) == LONG


def test_a_row_of_totals_is_no_annotator(tmp_path):
    path = write(tmp_path / "form.csv", ["annotator", "q1", "q2", "q3", "q4"])
    path.write_text(path.read_text() + "Total,3,3,2,3\n")
    assert read(path) == LONG
    assert read_labels(path).left_out == {"rows of totals": ["Total"]}


def test_a_wide_table_with_more_columns_than_rows_is_read_with_a_word(tmp_path):
    many = {f"p{n}": ["cat", "dog"] for n in range(12)}
    pd.DataFrame({"item": ["a", "b"], **many}).to_csv(tmp_path / "few.csv", index=False)
    with pytest.warns(UserWarning, match="is read as 2 items and 12 annotators.*format_name='turned'"):
        assert read_labels(tmp_path / "few.csv").annotations.n_annotators == 12


def test_nothing_to_read_is_told(tmp_path):
    (tmp_path / "form.csv").write_text("annotator,q1,q2\nann,cat,7\nbob,dog,8\n")
    with pytest.raises(CrowdshotError, match="has no columns of items among 'q1', 'q2', expected some with common"):
        read(tmp_path / "form.csv", format_name="turned")
    for row in ("", "Total,3,3\n"):
        (tmp_path / "form.csv").write_text(f"name,q1.png,q2.png\n{row}")
        with pytest.raises(CrowdshotError, match="expected one"):
            read(tmp_path / "form.csv", format_name="turned")


# ---- forms ----------------------------------------------------------------------------------------------------------

ASKED = "What is in A?,What is in B?,What is in C?,Any comments?"
FORM = [
    "2026/03/02 9:01:12 AM GMT+1,ann@x.org,Ann,cat,dog,owl,",
    "2026/03/02 9:05:12 AM GMT+1,bob@x.org,Bob,cat,dog,owl,nice",
    "2026/03/02 9:07:12 AM GMT+1,cyd@x.org,Cyd,dog,dog,cat,",
    "2026/03/03 9:09:12 AM GMT+1,ann@x.org,Ann,,cat,dog,sent again",
]
TOLD = r"form.csv: '{}' answered more than once \(1 row more\); the newest \(by '.+'\) answer counts\."


def form(tmp_path: Path, header: str, rows: list[str] = FORM) -> Path:
    path = tmp_path / "form.csv"
    path.write_text("\n".join([f"{header},{ASKED}", *rows]) + "\n")
    return path


@pytest.mark.parametrize(
    ("header", "options", "ann"),
    [
        ("Timestamp,Email Address,Your name", {}, "Ann"),
        ("Sent,E-Mail,Your name", {"format_name": "turned"}, "ann@x.org"),
        ("Timestamp,Email Address,Who are you?", {}, "ann@x.org"),
        ("Timestamp,Contact,Name", {"format_name": "turned"}, "Ann"),
        ("Timestamp,Contact,Annotator", {}, "Ann"),
        ("Timestamp,Contact,Who are you?", {"columns": {"annotator": "Who are you?"}}, "Ann"),
        ("Timestamp,Email Address,Your name", {"columns": {"annotator": "Email Address"}}, "ann@x.org"),
    ],
)
def test_who_sends_a_form_twice_counts_once_with_the_last_answers(tmp_path, header, options, ann):
    with pytest.warns(UserWarning, match=TOLD.format(ann)):
        found = read_labels(form(tmp_path, header), **options).annotations
    assert found.n_annotators == 3
    said = {(item, who): label for item, who, label in found.to_frame().itertuples(index=False)}
    assert [said[f"What is in {picture}?", ann] for picture in "ABC"] == ["cat", "cat", "dog"]


@pytest.mark.parametrize("header", ["Zeitstempel", "Sent"])
@pytest.mark.parametrize("when", ["13/2/2026 9:0{}:00", "0{}.03.2026", "2026-03-0{}T10:00:00Z", "9:0{}"])
def test_a_time_is_no_annotator(tmp_path, header, when):
    rows = [f"{when.format(n)},{who},{said},5" for n, (who, said) in enumerate([("A1", "x,y,x"), ("A2", "x,x,y")], 1)]
    found = read_labels(form(tmp_path, f"{header},Code", rows), format_name="turned").annotations
    assert found.annotators.tolist() == ["A1", "A2"]


def test_nobody_is_no_annotator(tmp_path):
    with pytest.raises(CrowdshotError, match=r"row 3, column 'Your name' is empty, expected the annotator"):
        read_labels(form(tmp_path, "Timestamp,Contact,Your name", [FORM[0], FORM[1].replace("Bob", ""), FORM[2]]))


def test_many_rows_of_each_are_rather_labels(tmp_path):
    rows = [f"{who},{n % 2},{(n + 1) % 2}" for n, who in enumerate(["ann", "bob"] * 4)]
    (tmp_path / "labels.csv").write_text("\n".join(["annotator,left,right", *rows]))
    with pytest.raises(CrowdshotError, match="has no column for the item among"):
        read_labels(tmp_path / "labels.csv")
