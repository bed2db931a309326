"""Read a messy spreadsheet on the command line: check what is read, the messages, and the results."""

import json
from pathlib import Path

import openpyxl
import pandas as pd
import pytest
from PIL import Image

from forked import crowdshot as run

# Labels have several spellings, one annotator writes -1 for no label, and there are many other columns.
HEADER = ["#", "Bild", "Anna", "Email Address", "Bernd", "Datum", "Cleo", "Batch", "Notes", "Final label", None]
SAID = [
    ("Katze", "katze", "KATZE "),
    ("Hund", "hund", "Hund"),
    ("Katze", "Katze", "Hund"),
    ("Hund", "Hund", -1),
    ("Katze", None, "katze"),
    ("Hund", "Hund", "Hund"),
]
STRAYS = ["#", "Email Address", "Datum", "Batch", "Notes", "Final label"]


@pytest.fixture(scope="module")
def desk(tmp_path_factory) -> Path:
    """Write messy.xlsx, photos in two folders (two photos without labels), and a table of gold labels."""
    root = tmp_path_factory.mktemp("desk")
    book = openpyxl.Workbook()
    sheet = book.active
    sheet.title = "Labels"
    sheet.append(["Labels of March, do not edit"])
    sheet.append([])
    sheet.append(HEADER)
    for n, (one, two, three) in enumerate(SAID):
        mail, note = f"lead{n % 2}@example.org", "blurry" if n == 2 else None
        sheet.append([n, f"IMG_{5 - n}.png", one, mail, two, pd.Timestamp(2024, 3, n + 1), three, 1.0, note, "Katze"])
    sheet.append(["Total", "Total", 6, None, 5, None, 6])
    legend = book.create_sheet("Legend")
    legend.append(["label", "meaning"])
    legend.append(["Katze", "a cat"])
    book.save(root / "messy.xlsx")
    for n in range(8):
        file = root / "photos" / ("Camera A" if n % 2 else "Camera B") / f"IMG_{n}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        bright = 200 if n < 6 and SAID[5 - n][0] == "Katze" else 40
        Image.new("L", (28, 28), bright + n).save(file)
    return root


ORDER = [f"IMG_{5 - n}.png" for n in range(6)]


@pytest.mark.slow
def test_labels_alone(desk: Path) -> None:
    done = run(desk, "aggregate", "messy.xlsx", "--merge-case", "--out", "consensus.csv", "--json")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert (report["items"], report["annotators"], report["labels"]) == (6, 3, 16)
    assert report["classes"] == ["Hund", "Katze"]
    assert report["left_out"]["columns of no annotator"] == STRAYS
    assert report["left_out"]["rows of totals"] == ["Total"]
    assert report["left_out"]["cells with -1, taken for no label"] == 1
    assert [each["counts"] for each in report["respelled"]] == [
        {"Katze": 4, "katze": 2, "KATZE": 1},
        {"Hund": 8, "hund": 1},
    ]
    for told in (
        "Labels are read from the sheet 'Labels', not from 'Legend'.",
        f"left out: 6 columns of no annotator ({', '.join(STRAYS)})",
        "left out: 1 row of totals (Total)",
        "left out: 1 cell with -1, taken for no label",
        "the labels 'Katze' (4), 'katze' (2) and 'KATZE' (1) are read as 'Katze'.",
    ):
        assert told in done.stderr
    consensus = pd.read_csv(desk / "consensus.csv")
    assert consensus["Bild"].tolist() == ORDER
    assert consensus["label"].tolist() == ["Katze", "Hund", "Katze", "Hund", "Katze", "Hund"]
    assert "example.org" not in done.stdout + done.stderr + (desk / "consensus.csv").read_text("utf-8")


@pytest.mark.slow
def test_near_duplicate_labels_are_reported_without_an_option(desk: Path) -> None:
    done = run(desk, "next", "messy.xlsx", "--sheet", "Labels", "--json")
    assert done.returncode == 0
    assert "The labels 'Hund' and 'hund' are read as two different labels (and 1 more group like it)." in (done.stderr)
    assert json.loads(done.stdout)["near_duplicates"][1]["names"] == ["Katze", "katze", "KATZE"]


@pytest.mark.slow
def test_adapt_with_photos_and_predict(desk: Path) -> None:
    given = ["--images", "photos", "--encoder", "glyphs", "--merge-case"]
    done = run(desk, "adapt", "messy.xlsx", *given, "--out", "results", "--json")
    assert done.returncode == 0, done.stderr
    consensus = pd.read_csv(desk / "results" / "consensus.csv")
    assert consensus["Bild"].tolist() == [
        *ORDER,
        "IMG_7.png",
        "IMG_6.png",
    ]  # in the order of the sheet, then the others
    page = (desk / "results" / "report.html").read_text("utf-8")
    assert "example.org" not in page
    assert "--merge-case" in page
    model = desk / "results" / "model.safetensors"
    assert run(desk, "predict", model, "--images", "photos", "--out", "predictions.csv").returncode == 0
    joined = pd.read_csv(desk / "predictions.csv").merge(consensus, on="Bild")
    assert len(joined) == 8


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--sheet", "April"], "--sheet is 'April', expected one of those in messy.xlsx, 'Labels', 'Legend'."),
        (["--annotator-columns", "Anna,Dora"], "--annotator-columns names 'Dora', expected some of the columns of"),
        (
            ["--ordered", "Hund,Katze"],
            "has the label 'KATZE', expected one of 'Hund', 'Katze'. Use --merge-case to read it as",
        ),
        (["--sheet", "Legend"], "messy.xlsx, sheet 'Legend' has no column for the item"),
    ],
)
def test_errors_are_printed_and_leave_no_files(desk: Path, given: list[str], sentence: str) -> None:
    there = sorted(desk.rglob("*"))
    done = run(desk, "adapt", "messy.xlsx", "--images", "photos", *given, "--out", "wrong")
    assert (done.returncode, done.stdout) == (2, "")
    lines = done.stderr.splitlines()
    assert sentence in " ".join(" ".join(lines).split())
    starts = [line for line in lines if not line.startswith("  ")]  # hints are indented
    assert all(line.startswith("crowdshot: note: ") for line in starts[:-1])
    assert sorted(desk.rglob("*")) == there
