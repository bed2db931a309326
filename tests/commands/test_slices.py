"""`crowdshot slices`: columns of labels, items and people; tables, JSON and page; bad input."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from forked import crowdshot

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write labels of 80 items in two languages by ten people of two countries, who differ about a third of them."""
    rng = np.random.default_rng(3)
    truth = rng.integers(2, size=80)
    other = np.where(np.arange(80) % 3 == 0, 1 - truth, truth)
    rows, items = ["item,annotator,label,language"], ["id,length"]
    for n in range(80):
        language = "English" if n < 60 else "Deutsch"
        items.append(f"i{n},{'long' if n % 2 else 'short'}")
        for who in range(10):
            seen = (truth if who < 5 else other)[n]
            right = rng.random() < (0.9 if n < 60 else 0.6)
            rows.append(f"i{n},w{who},{['fine', 'rude'][seen if right else 1 - seen]},{language}")
    people = ["annotator,country", *(f"w{who},{'NL' if who < 5 else 'PL'}" for who in range(10))]
    for name, lines in (("labels", rows), ("items", items), ("people", people)):
        (tmp_path / f"{name}.csv").write_text("\n".join(lines))
    return tmp_path


def test_a_column_of_the_labels(folder: Path) -> None:
    done = crowdshot(folder, "slices", "labels.csv", "--by", "language", "--json", "--out", "slices.csv")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["slices"]
    assert (found["by"], found["of"]) == ("language", "items")
    german, english = found["groups"]
    assert (german["name"], german["items"], german["right"]["labels"]) == ("Deutsch", 20, 200)
    assert (english["items"], english["right"]["labels"]) == (60, 600)
    assert german["right"]["share"] < english["right"]["share"]
    assert german["agreement"]["value"] < english["agreement"]["value"]
    assert found["perspectives"] is None
    with open(folder / "slices.csv", newline="") as file:
        assert [row["group"] for row in csv.DictReader(file)] == ["Deutsch", "English"]


def test_tables_of_items_and_people(folder: Path) -> None:
    tables = ["--items", "items.csv", "--people", "people.csv"]
    done = crowdshot(folder, "slices", "labels.csv", *tables, "--by", "length,country,language", "--json")
    assert done.returncode == 0, done.stderr
    length, country, language = json.loads(done.stdout)["slices"]
    assert [each["of"] for each in (length, country, language)] == ["items", "people", "items"]
    assert [each["name"] for each in length["groups"]] == ["long", "short"]
    assert country["perspectives"]["p"] < 0.05
    assert country["perspectives"]["items"] == 80


def test_perspectives_on_the_page(folder: Path, browser) -> None:
    words = ["--people", "people.csv", "--by", "country", "--page", "slices.html", "--distributions", "shares.csv"]
    done = crowdshot(folder, "slices", "labels.csv", *words)
    assert done.returncode == 0, done.stderr
    assert "more than one truth" in done.stdout
    with open(folder / "shares.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 160
    assert all(float(row["p_fine"]) + float(row["p_rude"]) == pytest.approx(1, abs=1e-5) for row in rows)
    page = browser.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text))
    page.goto((folder / "slices.html").as_uri())
    assert page.locator("table").count() == 3
    assert page.locator("p.warning", has_text="more than one truth").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()
    assert errors == []


def test_small_groups_and_unknown_values_are_noted(folder: Path) -> None:
    (folder / "items.csv").write_text(
        "item,genre\n" + "\n".join(f"i{n},{'rare' if n < 2 else 'usual'}" for n in range(70))
    )
    done = crowdshot(folder, "slices", "labels.csv", "--items", "items.csv", "--by", "genre")
    assert done.returncode == 0, done.stderr
    assert "Fewer than 30 labels" in done.stdout
    assert "'rare'" in done.stdout
    assert "100 labels without a value" in done.stdout


def test_labels_in_json(folder: Path) -> None:
    with open(folder / "labels.csv", newline="") as file:
        (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, csv.DictReader(file))))
    found = [
        json.loads(crowdshot(folder, "slices", f"labels.{kind}", "--by", "language", "--json").stdout)["slices"]
        for kind in ("csv", "jsonl")
    ]
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("words", "keyword"),
    [
        ([], "--by"),
        (["--by", "nation"], "'nation'"),
        (["--by", "item"], "--by"),
        (["--by", "language", "--page", "page.pdf"], "--page"),
        (["--by", "language", "--out", "labels.csv"], "labels.csv"),
        (["--by", "country", "--people", "missing.csv"], "missing.csv"),
        (["--by", "length", "--items", "strangers.csv"], "strangers.csv"),
        (["--by", "language", "--multi-label"], "--multi-label"),
        (["--by", "language", "--out", "a.csv", "--distributions", "a.csv"], "--distributions"),
    ],
)
def test_bad_input_is_one_message_and_no_file(folder: Path, words: list[str], keyword: str) -> None:
    (folder / "strangers.csv").write_text("id,length\nx1,long\nx2,short\n")
    before = sorted(path.name for path in folder.iterdir())
    done = crowdshot(folder, "slices", "labels.csv", *words)
    assert done.returncode == 2
    assert keyword in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("alone", ["a", "z"])
def test_a_group_without_shared_items_hides_no_other(tmp_path: Path, alone: str) -> None:
    rows = ["item,annotator,label"]
    for n in range(40):
        rows += [f"i{n},{who},{'xy'[n % 2]}" for who in (("m1", "m2", "n1", "n2") if n < 30 else ("z1", "z2"))]
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    people = ["annotator,country", "m1,m", "m2,m", "n1,n", "n2,n", f"z1,{alone}", f"z2,{alone}"]
    (tmp_path / "people.csv").write_text("\n".join(people))
    words = ["slices", "labels.csv", "--people", "people.csv", "--by", "country", "--page", "page.html"]
    done = crowdshot(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("labels by country"))
    table = {line.split()[0]: line.split()[1:] for line in lines[at + 1 : at + 4]}
    assert lines[at].split()[3:] == ["x", "y"]
    assert table == {"m": ["50", "%", "50", "%"], "n": ["50", "%", "50", "%"], alone: []}
    assert "p = 1)" in done.stdout
    rows_of_page = (tmp_path / "page.html").read_text().partition("Labels of the same items")[2].split("</tr>")[:4]
    cells = [row.count("<td") + row.count("<th ") for row in rows_of_page]
    assert cells == [4, 4, 4, 4]


def test_the_label_that_counts_decides_the_group(tmp_path: Path) -> None:
    """A person labels some items on both sites; the last label counts, which is that of site 1."""
    rows = ["item,annotator,label,site"]
    for n in range(60):
        for who in ("p1", "p2", "p3"):
            if n < 5 and who == "p1":
                rows.append(f"i{n},{who},x,site 2")
                rows.append(f"i{n},{who},y,site 1")
            else:
                rows.append(f"i{n},{who},{'xy'[n % 2]},site {1 + n % 2}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    done = crowdshot(tmp_path, "slices", "labels.csv", "--by", "site", "--json")
    assert done.returncode == 0, done.stderr
    (found,) = json.loads(done.stdout)["slices"]
    counts = {each["name"]: each["right"]["labels"] for each in found["groups"]}
    ones = sum(row.endswith("site 1") for row in rows)
    assert counts == {"site 1": ones, "site 2": 180 - ones}
