"""--cost of aggregate and adapt: summary, JSON, annotators.csv and the report, and bad input."""

import csv
import html
import json
import re
import shlex
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from forked import crowdshot

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(2)
    truth = rng.integers(2, size=60)
    rows, features = ["item,annotator,label"], ["item,x,y"]
    for n in range(60):
        for who in ("ann", "bob", "cyd"):
            label = truth[n] if rng.random() < 0.75 else 1 - truth[n]
            rows.append(f"i{n},{who},{'cat' if label else 'dog'}")
        features.append(f"i{n},{truth[n] + rng.normal():.3f},{rng.normal():.3f}")
    (tmp_path / "labels.csv").write_text("\n".join(rows))
    (tmp_path / "features.csv").write_text("\n".join(features))
    (tmp_path / "costs.csv").write_text("annotator,cost\nann,0.1\nbob,0.2\ncyd,0.4\n")
    return tmp_path


def test_one_cost(folder: Path) -> None:
    done = crowdshot(folder, "aggregate", "labels.csv", "--cost", "0.25", "--annotators", "people.csv", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["spent"] == pytest.approx(180 * 0.25)
    assert (found["cost_per_label"], found["cost_per_item"]) == (0.25, 0.75)
    right = sum(row["n_labels"] * row["accuracy"] for row in found["annotator_table"])
    assert found["cost_per_right_label"] == pytest.approx(45 / right)
    more = found["next_percent"]
    assert more["cost"] == pytest.approx(0.25 * more["labels"])
    with open(folder / "people.csv", newline="") as file:
        for row in csv.DictReader(file):
            assert float(row["cost_per_right"]) == pytest.approx(0.25 / float(row["accuracy"]), rel=1e-4)


@pytest.mark.parametrize("command", ["aggregate", "adapt"])
def test_costs_in_the_report(folder: Path, browser, command: str) -> None:
    words = {"aggregate": ["--report", "results"], "adapt": ["--features", "features.csv", "--out", "results"]}[command]
    done = crowdshot(folder, command, "labels.csv", "--cost", "costs.csv", *words)
    assert done.returncode == 0, done.stderr
    assert "42.00 spent" in done.stdout
    with open(folder / "results" / "annotators.csv", newline="") as file:
        assert {row["annotator"]: float(row["spent"]) for row in csv.DictReader(file)} == {
            "ann": 6,
            "bob": 12,
            "cyd": 24,
        }
    before = (folder / "results" / "report.html").read_text("utf-8")
    page = browser.new_page()
    page.goto((folder / "results" / "report.html").as_uri())
    assert "42.00 spent" in page.locator("#money + p").inner_text()
    assert page.locator("#people-list", has_text="A label costs 0.4").count() == 1
    page.close()
    again = crowdshot(folder, "report", "results")  # run.json has the costs
    assert again.returncode == 0, again.stderr
    assert (folder / "results" / "report.html").read_text("utf-8") == before


def test_without_costs_nothing_changes(folder: Path) -> None:
    done = crowdshot(folder, "aggregate", "labels.csv", "--report", "results", "--json")
    assert not {"spent", "next_percent"} & set(json.loads(done.stdout))
    assert "Costs</h2>" not in (folder / "results" / "report.html").read_text("utf-8")
    assert "money" not in (folder / "results" / "run.json").read_text("utf-8")


@pytest.mark.parametrize(
    ("cost", "keyword"),
    [
        ("0", "--cost"),
        ("nan=1", "'nan'"),
        ("ann=0.1", "others=C"),
        ("ann=x", "--cost"),
        ("missing.csv", "missing.csv"),
        ("labels.csv", "--cost|number|labels.csv"),
    ],
)
def test_bad_costs_are_one_message(folder: Path, cost: str, keyword: str) -> None:
    before = sorted(path.name for path in folder.iterdir())
    done = crowdshot(folder, "aggregate", "labels.csv", "--cost", cost, "--out", "consensus.csv")
    assert done.returncode == 2
    assert any(word in done.stderr for word in keyword.split("|"))
    assert "Traceback" not in done.stderr
    assert sorted(path.name for path in folder.iterdir()) == before


def test_an_engine_has_no_costs(folder: Path) -> None:
    done = crowdshot(folder, "aggregate", "labels.csv", "--cost", "1", "--engine", "local", "--out", "parts")
    assert done.returncode == 2
    assert "--cost" in done.stderr


def test_costs_do_not_name_anonymous_annotators(folder: Path) -> None:
    words = ["adapt", "labels.csv", "--features", "features.csv", "--anonymous", "--out", "results", "--cost"]
    done = crowdshot(folder, *words, "ann=1,others=2")
    assert done.returncode == 2
    assert "--cost" in done.stderr
    assert crowdshot(folder, *words, "2").returncode == 0


def test_the_file_of_costs_is_not_overwritten(folder: Path) -> None:
    done = crowdshot(folder, "aggregate", "labels.csv", "--cost", "costs.csv", "--out", "costs.csv")
    assert done.returncode == 2
    assert (folder / "costs.csv").read_text().startswith("annotator,cost")


@pytest.mark.parametrize(("cost", "each"), [("0.1", 0.1), ("ann=0.2,others=0.5", None), ("costs.csv", None)])
def test_the_report_recommends_questions_with_their_cost(folder: Path, cost: str, each: float | None) -> None:
    """The budget is in the unit of the costs, and the command can be run as it is."""
    header, *rows = (folder / "labels.csv").read_text().splitlines()
    (folder / "labels.csv").write_text("\n".join([header, *(row for n, row in enumerate(rows) if n % 4 < 2)]))
    done = crowdshot(folder, "aggregate", "labels.csv", "--cost", cost, "--report", "results")
    assert done.returncode == 0, done.stderr
    page = html.unescape((folder / "results" / "report.html").read_text("utf-8"))
    line = next(iter(re.findall(r"crowdshot (next [^<>]*?--budget [0-9.]+)", page)))
    words = shlex.split(line)
    assert "--cost" in words
    done = crowdshot(folder, *words, "--json")
    assert done.returncode == 0, done.stderr
    asked = json.loads(done.stdout)
    assert 0 < asked["cost"] <= float(words[-1]) + 1e-9
    if each:  # otherwise the number of questions depends on who is asked
        assert asked["n_questions"] == pytest.approx(float(words[-1]) / each)
    again = crowdshot(folder, "report", "results")
    assert again.returncode == 0, again.stderr
    assert line in html.unescape((folder / "results" / "report.html").read_text("utf-8"))


@pytest.mark.parametrize("options", [["--cost", "costs.csv"], ["--history", "history.csv"]])
def test_the_report_announces_what_next_asks(folder: Path, options: list[str]) -> None:
    """The numbers of questions, items and questions for each annotator are those of the recommended command."""
    header, *rows = (folder / "labels.csv").read_text().splitlines()
    (folder / "labels.csv").write_text("\n".join([header, *(row for n, row in enumerate(rows) if n % 5 == 0)]))
    (folder / "history.csv").write_text("annotator,right,wrong\nann,95,5\n")
    done = crowdshot(folder, "aggregate", "labels.csv", *options, "--report", "results", "--json")
    assert done.returncode == 0, done.stderr
    step = next(each for each in json.loads(done.stdout)["do_next"] if each["text"].startswith("Ask "))
    done = crowdshot(folder, *shlex.split(step["command"])[1:], "--json")
    assert done.returncode == 0, done.stderr
    with (folder / "questions.csv").open() as file:
        questions = list(csv.DictReader(file))
    asked, items = Counter(each["annotator"] for each in questions), {each["item"] for each in questions}
    assert re.match(rf"Ask {len(questions)} questions? about {len(items)} items?: ", step["text"])
    named = {who: int(n) for n, who in re.findall(r"(\d+) for (ann|bob|cyd)", step["text"])}
    assert named
    assert named == {who: asked[who] for who in named}
