"""`crowdshot check`, and what other commands say about files as vendors send them: all problems at once."""

import json
import shlex
import sys
from datetime import datetime
from pathlib import Path

import openpyxl
import pandas as pd
import pytest

from forked import crowdshot

PEOPLE = ("aisha.b", "Aisha B.", "Gus", "Mei")
CLASSES = ("coast", "inside city", "forest")


@pytest.fixture
def run(call, monkeypatch):
    """Run a command in this process, in a folder."""

    def run(folder, *words):
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["crowdshot", *map(str, words)])  # proposed commands repeat it
        return call(*words)

    return run


def falcon(path: Path) -> Path:
    """A workbook of a vendor: titles, a summary sheet, German columns, subtotals, a row without an annotator."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Summary"
    for row in (["Project Falcon, delivery 3"], ["Annotator", "Count"], ["Aisha B.", 12], ["Total", 24]):
        sheet.append(row)
    sheet = book.create_sheet("Week 10")
    for row in (["Project Falcon, delivery 3"], ["Exported:", "3/14/2026"], []):
        sheet.append(row)
    sheet.append(["Row #", "Foto-Nr.", "Kürzel", "Einstufung", "Sicherheit", "Wann", "Bemerkung"])
    number = 0
    for n in range(12):
        for who in range(3):
            number += 1
            label = CLASSES[(n + (who == n % 5)) % 3]
            label = label.replace(" ", "") if n % 4 == 1 and who == 2 else label
            when = datetime(2026, 3, 1 + n, 9, number)
            cells = [number, f"DSC_{n:03}.jpg", PEOPLE[(n + who) % 4], label, 1 + number * number % 5, when]
            sheet.append([*cells, "blurry" if number == 3 else None])
        if n == 5:
            sheet.append([None, "Subtotal week 10", None, 18])
    sheet.append(["Total", None, None, number])
    sheet.append([99, "DSC_013.jpg", None, "coast"])
    book.save(path)
    return path


@pytest.mark.slow
def test_everything_is_reported_at_once_and_the_proposed_command_works(tmp_path, run):
    falcon(tmp_path / "falcon.xlsx")
    done = run(tmp_path, "check", "falcon.xlsx", "--json")
    assert done.code == 0
    found = json.loads(done.out)
    assert found["readable"] is True
    solutions = [problem["arguments"] for problem in found["problems"]]
    assert {"sheet": "Week 10"} in solutions
    assert {"columns": {"annotator": "Kürzel"}} in solutions
    assert {"columns": {"label": "Einstufung"}} in solutions
    assert {"skip_bad": True} in solutions
    (source,) = found["sources"]
    assert source["sheet"] == "Week 10"
    assert source["columns"] == {"item": "Foto-Nr.", "annotator": "Kürzel", "label": "Einstufung", "time": "Wann"}
    assert source["unused"] == ["Row #", "Sicherheit", "Bemerkung"]
    assert (found["items"], found["annotators"], found["labels"]) == (12, 4, 36)
    assert found["left_out"] == {
        "rows of totals": ["Subtotal week 10", "Total"],
        "rows without an item or annotator": 1,
    }

    refused = run(tmp_path, "aggregate", "falcon.xlsx", "--out", "labels.csv")
    assert refused.code == 2
    assert not (tmp_path / "labels.csv").exists()
    for problem in found["problems"][1:]:
        assert problem["message"].replace("the options", "") in refused.err.replace("\n  ", "\n")
    proposed = refused.err.strip().splitlines()[-1].partition("Try: crowdshot ")[2]
    assert run(tmp_path, *shlex.split(proposed)).code == 0
    assert len(pd.read_csv(tmp_path / "labels.csv")) == 12
    assert run(tmp_path, *shlex.split(found["command"])[1:]).code == 0
    assert (tmp_path / "consensus.csv").read_bytes() == (tmp_path / "labels.csv").read_bytes()


@pytest.mark.slow
def test_names_to_merge_are_written_edited_and_applied(tmp_path, run):
    falcon(tmp_path / "falcon.xlsx")
    done = run(tmp_path, "check", "falcon.xlsx", "--write-names", "n.csv", "--write-rename", "r.csv", "--json")
    found = json.loads(done.out)
    assert sorted(sorted(group["names"]) for group in found["near_duplicates"]) == [
        ["Aisha B.", "aisha.b"],
        ["inside city", "insidecity"],
    ]
    names = pd.read_csv(tmp_path / "n.csv").set_index("annotator")["name"]
    assert names["aisha.b"] == names["Aisha B."]
    assert names["Gus"] == "Gus"
    assert pd.read_csv(tmp_path / "r.csv").set_index("old")["new"].to_dict() == {
        **{name: name for name in CLASSES},
        "insidecity": "inside city",
    }
    again = run(tmp_path, *shlex.split(found["merging"])[1:], "--json")
    report = json.loads(again.out)
    assert report["classes"] == sorted(CLASSES)
    assert report["annotators"] == 3
    assert report["near_duplicates"] == []
    assert any(source["columns"]["label"] == "Einstufung" for source in report["sources"])
    done = run(tmp_path, "check", "falcon.xlsx", "--write-names", "n.csv")
    assert done.code == 2
    assert "n.csv, which exists" in done.err


def test_ambiguous_dates_are_a_choice(tmp_path, run):
    (tmp_path / "form.csv").write_text(
        "Timestamp,Email Address,Your name,Clip 1,Clip 2,Clip 3,Anything else?\n"
        "3/4/2026 16:05:00,ann@x.org,Ann,Yes,No,No,\n3/4/2026 17:05:00,bob@x.org,Bob,Yes,No,No,hard\n"
        "4/3/2026 9:05:00,ann@x.org,Ann,No,No,No,again\n3/5/2026 9:05:00,cy@x.org,Cy,Yes,No,No,\n"
    )
    found = json.loads(run(tmp_path, "check", "form.csv", "--json").out)
    (problem,) = found["problems"]
    assert problem["choice"] is True
    assert list(problem["arguments"]) == ["dates"]
    refused = run(tmp_path, "aggregate", "form.csv")
    assert refused.code == 2
    assert "--dates day-first" in refused.err
    assert "--dates month-first" in refused.err
    done = run(tmp_path, "aggregate", "form.csv", "--dates", "month-first", "--out", "c.csv", "--json")
    assert json.loads(done.out)["labels"] == 9


REVIEWS = (
    "Export of the review project\n\nReview ID;Review text;Rater;Rating (final);Date\n"
    + "".join(
        f'{n};"text no {n}; nice";{who};{label};{date}\n'
        for n in range(8)
        for who, label, date in [
            ("ann", "pos" if n % 2 else "neg", "04.03.2026 10:00"),
            ("bob", "Pos." if n % 2 else "neg", "05.03.2026"),
            ("cyd", "pos", "06.03.2026"),
        ]
    )
    + "Total;;;24;\n9;foo;;pos;\n10;bar;ann;pos\n"
)


def test_titles_totals_and_bad_rows_of_a_csv(tmp_path, run):
    (tmp_path / "reviews.csv").write_text(REVIEWS)
    found = json.loads(run(tmp_path, "check", "reviews.csv", "--texts", "reviews.csv", "--json").out)
    assert found["readable"] is True
    assert "--skip-bad" in shlex.split(found["command"])
    assert found["sources"][0]["columns"] == {
        **{"item": "Review ID", "annotator": "Rater", "label": "Rating (final)", "time": "Date"}
    }
    assert found["left_out"] == {
        "rows of totals": ["Total"],
        "rows without an item or annotator": 1,
        "rows with too many or too few cells": 1,
    }
    assert any("8 of 8 items have a text" in note for note in found["notes"])
    done = run(tmp_path, "aggregate", "reviews.csv", "--skip-bad", "--out", "c.csv")
    assert done.code == 0
    assert "item = 'Review ID', annotator = 'Rater', label = 'Rating (final)', time = 'Date'" in done.out


@pytest.mark.slow
def test_merged_cells_and_two_rounds(tmp_path, run):
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.append(["Item", None, "Reviewer", "Decision"])
    for n in range(6):
        for row, who in enumerate(("ann", "bob", "cy")):
            sheet.append([None if row else f"img{n}.png", None, who, "ok" if (n + row) % 2 else "bad"])
    book.save(tmp_path / "merged.xlsx")
    done = run(tmp_path, "check", "merged.xlsx")
    assert done.code == 0
    assert "6 items, 3 annotators, 18 labels" in done.out
    assert "12 blank cells in column 'Item'" in done.out

    book = openpyxl.Workbook()
    for title, size in (("Round 1", 5), ("Round 2", 9)):
        sheet = book.create_sheet(title)
        sheet.append(["Picture", "Ann", "Bob", "Cyd"])
        for n in range(size):
            sheet.append([f"p{n}.jpg", "cat", "dog" if n % 2 else "cat", "cat" if n % 3 else "dog"])
        sheet.append(["Total labels", size, size, size])
        sheet.append(["Agreement", 0.5, 0.6, 0.7])
    del book["Sheet"]
    book.save(tmp_path / "rounds.xlsx")
    found = json.loads(run(tmp_path, "check", "rounds.xlsx", "--json").out)
    assert [(each["arguments"], each["choice"]) for each in found["problems"]] == [({"sheet": "Round 2"}, True)]
    assert found["left_out"] == {"rows of totals": ["Total labels", "Agreement"]}
    assert found["classes"] == ["cat", "dog"]


def test_what_cannot_be_read_is_reported_with_exit_code_2(tmp_path, run):
    (tmp_path / "notes.csv").write_text("a,b,c\nx,1.5,hello\ny,2.5,world\n")
    done = run(tmp_path, "check", "notes.csv", "--json")
    assert done.code == 2
    found = json.loads(done.out)
    assert (found["readable"], found["command"]) == (False, None)
    assert found["problems"]
    assert run(tmp_path, "check", "nothing.csv").code == 2
    (tmp_path / "labels.csv").write_text("item,annotator,label\n1,ann,cat\n2,bob,dog\n")
    done = run(tmp_path, "check", "labels.csv")
    assert done.code == 0
    assert "Ready: crowdshot aggregate labels.csv --out consensus.csv" in done.out


@pytest.mark.slow
def test_one_workbook_one_command(tmp_path, run):
    """Labels and texts on two sheets with titles, a legend and totals are read without any option."""
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Labels"
    sheet.append(["Film reviews, March (do not edit)"])
    sheet.append([])
    sheet.append(["Review ID", "Annotator name", "Sentiment label", "Submitted at"])
    for n in range(20):
        for who in ("Ann", "Bob", "Cy"):
            label = "good" if (n + (who == "Cy" and n % 5 == 0)) % 2 else "bad"
            sheet.append([f"R{n}", who, label, f"3/{13 + n % 15}/2026 16:05:00"])
    sheet.append(["R0", "Ann", "good", "3/1/2026 9:00:00"])  # an older answer, last in the file
    sheet.append(["Total", None, 61, None])
    sheet = book.create_sheet("Texts")
    sheet.append(["Review ID", "Review text", "Review text length"])
    for n in range(20):
        words = "a wonderful moving film" if n % 2 else "a dull and boring film"
        sheet.append([f"R{n}", f"{words}, scene {n}", 30])
    legend = book.create_sheet("Legend")
    legend.append(["value", "meaning"])
    legend.append(["good", "liked it"])
    book.save(tmp_path / "films.xlsx")
    done = run(tmp_path, "adapt", "films.xlsx", "--texts", "films.xlsx", "--out", "results", "--json")
    assert done.code == 0, done.err
    report = json.loads(done.out)
    assert (report["items"], report["annotators"], report["labels"]) == (20, 3, 60)
    assert "the newest by 'Submitted at' counts" in done.err
    assert "Texts are read from the sheet 'Texts'" in done.err
    consensus = pd.read_csv(tmp_path / "results" / "consensus.csv", index_col=0)
    assert consensus.loc["R0", "Sentiment label"] == "bad"


# ---- commands and options by other names ---------------------------------------------------------------------------


GIVEN = ("l.csv", "--features", "f.csv")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["aggregate", "l.csv", "--method", "majorty"], "Did you mean 'majority'?"),
        (["aggregate", "l.csv", "--method=combined"], "a method of `crowdshot adapt`"),
        (
            ["adapt", "l.csv", "--features", "f.csv", "--method", "majority", "--out", "r"],
            "crowdshot aggregate LABELS --method",
        ),
        (["adapt", "l.csv", "--features", "f.csv", "--method", "combind", "--out", "r"], "Did you mean 'combined'?"),
        (["aggregate", "l.csv", "--columns", "label=anser"], "Did you mean 'answer'?"),
        (["aggregate", "l.csv", "--columns", "time=whn"], "Did you mean 'when'?"),
        (["aggregate", "l.csv", "--leave-out", "an"], "Did you mean 'ann'?"),
        (["aggregate", "l.csv", "--format", "log"], "Did you mean 'long'?"),
        (["aggregate", "l.csv", "--dates", "day_first"], "Did you mean 'day-first'?"),
        (["agregate", "l.csv"], "Did you mean 'aggregate'?"),
    ],
)
def test_misspelled_options_and_columns(tmp_path, words, said, run):
    (tmp_path / "l.csv").write_text("item,annotator,answer,when\n1,ann,cat,2026-03-04\n2,bob,dog,2026-03-05\n")
    (tmp_path / "f.csv").write_text("item,a\n1,0.5\n2,0.7\n")
    done = run(tmp_path, *words)
    assert done.code == 2
    assert said in " ".join(done.err.split())


@pytest.mark.parametrize(("alias", "command"), [("fit", "adapt"), ("label", "adapt"), ("ask", "next")])
def test_commands_have_other_names(tmp_path, alias, command, run):
    by_alias, by_name = run(tmp_path, alias, "--help"), run(tmp_path, command, "--help")
    assert by_alias.code == 0
    assert by_alias.out.replace(f"crowdshot {alias} ", f"crowdshot {command} ").split() == by_name.out.split()


def test_a_misspelled_class_is_noted_and_the_option_merges_it(tmp_path, run):
    rows = "".join(f"{i},{who},{'dog' if i % 2 else 'cat'}\n" for i in range(20) for who in "ab")
    (tmp_path / "l.csv").write_text("item,annotator,label\n" + rows + "20,a,dgo\n")
    done = run(tmp_path, "check", "l.csv", "--json")
    assert json.loads(done.out)["misspellings"] == [{"name": "dgo", "like": "dog", "n_labels": 1, "n_like": 20}]
    assert "--rename dgo=dog" in run(tmp_path, "check", "l.csv").out
    merged = run(tmp_path, "check", "l.csv", "--rename", "dgo=dog", "--json")
    assert json.loads(merged.out)["misspellings"] == []


def test_columns_that_only_some_files_have(tmp_path, run):
    (tmp_path / "labels.csv").write_text("ticket,agent,label\n1,ann,cat\n1,bob,cat\n2,ann,dog\n2,bob,cat\n")
    (tmp_path / "corrections.csv").write_text("ticket,truth\n1,cat\n2,dog\n")
    columns = ("--columns", "item=ticket,annotator=agent")
    done = run(tmp_path, "aggregate", "labels.csv", "corrections.csv", *columns, "--out", "c.csv")
    assert done.code == 2
    assert "corrections.csv has no column" in done.err
    assert not (tmp_path / "c.csv").exists()


@pytest.mark.parametrize(("place", "pattern"), [("lea.jsonl", "*.jsonl"), ("lea/annotated.jsonl", "*/*.jsonl")])
def test_a_folder_of_exports_is_named_by_a_pattern(tmp_path, place, pattern, run):
    file = tmp_path / "doccano" / place
    file.parent.mkdir(parents=True)
    file.write_text('{"id": 1, "text": "a", "label": ["kind"]}\n')
    done = run(tmp_path, "aggregate", "doccano", "--out", "c.csv")
    assert done.code == 2
    assert f"doccano/{pattern}" in done.err


@pytest.mark.slow
def test_two_answers_of_mechanical_turk_are_one_problem(tmp_path):
    """`check` proposes a command that works; other commands do not name the column of inputs for the label."""
    rows = [
        f"h{n},w{who},{n}.png,{'red' if n % 2 else 'blue'},{'round' if n % 3 else 'flat'}"
        for n in range(6)
        for who in "12"
    ]
    (tmp_path / "mt.csv").write_text("\n".join(["HITId,WorkerId,Input.image,Answer.colour,Answer.shape", *rows]) + "\n")
    done = crowdshot(tmp_path, "aggregate", "mt.csv")
    assert done.returncode == 2
    assert "'Answer.colour', 'Answer.shape'" in done.stderr
    assert "Also" not in done.stderr
    assert "Input.image" not in done.stderr
    done = crowdshot(tmp_path, "check", "mt.csv")
    assert "--columns label=Answer.colour" in done.stdout
    assert "Input.image' for the label" not in done.stdout
