"""`crowdshot judges`: models are recognised or named, tables, JSON and page agree, bad input is one sentence."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest

from forked import crowdshot

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Write a log of four models, three of one family, and the labels of four people."""
    rng = np.random.default_rng(5)
    truth = rng.integers(2, size=400)
    fooled = np.where(rng.random(400) < 0.25, 1 - truth, truth)

    def flip(label, right):
        return np.where(rng.random(400) < right, label, 1 - label)

    models = {
        "big-a": flip(fooled, 0.96),
        "big-b": flip(fooled, 0.96),
        "big-c": flip(fooled, 0.96),
        "fine": flip(truth, 0.95),
    }
    words = ["bad", "good"]
    log = [
        {"model": name, "item": f"i{n}", "verdict": words[v]}
        for name, all_ in models.items()
        for n, v in enumerate(all_)
    ]
    (tmp_path / "verdicts.jsonl").write_text("\n".join(map(json.dumps, log)))
    rows = ["item,annotator,label"]
    for name in ("ann", "bob", "cyd", "dan"):
        label = flip(truth, 0.85)
        rows += [f"i{n},{name},{words[label[n]]}" for n in range(400) if rng.random() < 0.8]
    (tmp_path / "people.csv").write_text("\n".join(rows))
    (tmp_path / "known.csv").write_text("\n".join(["item,truth", *(f"i{n},{words[truth[n]]}" for n in range(100))]))
    return tmp_path


def test_models_of_a_log_are_recognised(folder: Path) -> None:
    done = crowdshot(folder, "judges", "verdicts.jsonl", "people.csv", "--json", "--gold", "known.csv")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    by_name = {each["model"]: each for each in found["models"]}
    assert set(by_name) == {"big-a", "big-b", "big-c", "fine"}
    assert found["models"][0]["model"] == "fine"
    assert by_name["fine"]["replacement"]["may_replace"] is True
    assert by_name["big-a"]["replacement"]["may_replace"] is False
    assert found["families"] == [["big-a", "big-b", "big-c"]]
    assert by_name["big-a"]["family"] == ["big-b", "big-c"]
    assert found["known"] == 100
    assert by_name["fine"]["right"]["low"] < 0.95 < by_name["fine"]["right"]["high"]
    assert found["people"] == 4
    assert found["people_cost"] is None


def test_too_few_known_items_are_reported(folder: Path) -> None:
    rows = (folder / "known.csv").read_text().splitlines()
    (folder / "few.csv").write_text("\n".join(rows[:41]))
    words = ["judges", "verdicts.jsonl", "people.csv", "--gold", "few.csv", "--promise", "0.999"]
    found = json.loads(crowdshot(folder, *words, "--json").stdout)
    assert (found["known"], found["too_few_known"]) == (0, 40)
    done = crowdshot(folder, *words, "--page", "models.html")
    assert "Only 40 known items" in done.stdout
    assert "Only 40 known items" in (folder / "models.html").read_text()
    assert "add --gold" not in done.stdout  # it is there


def test_costs_table_and_page(folder: Path, browser) -> None:
    words = ["judges", "verdicts.jsonl", "people.csv", "--models", "big-*,fine", "--people", "skilled"]
    prices = "big-a=0.01,big-b=0.01,big-c=0.01,fine=0.02,others=0.5"
    options = ["--gold", "known.csv", "--cost", prices, "--out", "models.csv", "--page", "models.html"]
    done = crowdshot(folder, *words, *options)
    assert done.returncode == 0, done.stderr
    assert "err together" in done.stdout
    with open(folder / "models.csv", newline="") as file:
        rows = {row["model"]: row for row in csv.DictReader(file)}
    fine = rows["fine"]
    assert float(fine["cost"]) / float(fine["accuracy"]) == pytest.approx(float(fine["cost_per_right"]), rel=1e-4)
    assert fine["may_replace"] == "yes"
    page = browser.new_page()
    errors: list[str] = []
    page.on("console", lambda message: errors.append(message.text))
    page.goto((folder / "models.html").as_uri())
    assert page.locator("#models tbody tr").count() == 5
    assert page.locator("#first tr.chosen").count() == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.close()
    assert errors == []


def test_costs_are_those_of_the_plan(folder: Path) -> None:
    prices = "big-a=0.01,big-b=0.01,big-c=0.01,fine=0.02,others=0.5"
    done = crowdshot(
        folder, "judges", "verdicts.jsonl", "people.csv", "--gold", "known.csv", "--cost", prices, "--json"
    )
    found = json.loads(done.stdout)
    first, plan = found["models_first"], found["models_first"]["plan"]
    n_labels = len((folder / "people.csv").read_text().splitlines()) - 1
    n_items = len({line.split(",")[0] for line in (folder / "people.csv").read_text().splitlines()[1:]})
    per_item = 0.5 * n_labels / n_items
    assert first["people_cost"] == pytest.approx(first["items"] * per_item)
    assert plan["cost"] == pytest.approx(first["items"] * (0.05 + (1 - plan["share"]) * per_item))
    assert plan["right"]["low"] >= 0.9


def sampled(path: Path, people: int = 100, wrong: float = 0.1) -> np.ndarray:
    """Write labels of a model that is 95 % right on 1,000 items, and of five people for some of them."""
    rng = np.random.default_rng(0)
    truth = rng.integers(2, size=1000)
    rows = ["item,annotator,label"]
    for n in range(1000):
        rows.append(f"i{n},gpt[4],{'ab'[truth[n] ^ (rng.random() < 0.05)]}")
        if n < people:
            rows += [f"i{n},p{p},{'ab'[truth[n] ^ (rng.random() < wrong)]}" for p in range(5)]
    rows.append("i0,gpt4,a")
    path.write_text("\n".join(rows))
    return truth


def strict(text: str):
    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)


def test_items_that_no_person_labelled_say_nothing_about_a_model(tmp_path: Path) -> None:
    sampled(tmp_path / "labels.csv")
    found = strict(crowdshot(tmp_path, "judges", "labels.csv", "--models", "gpt[4]", "--json").stdout)
    assert [each["model"] for each in found["models"]] == ["gpt[4]"]
    right = found["models"][0]["right"]
    assert right["labels"] == 100
    assert right["share"] > 0.85  # 0.64 with the prior of the other 900 items


def test_known_labels_of_other_items_do_not_count(tmp_path: Path) -> None:
    sampled(tmp_path / "labels.csv")
    (tmp_path / "known.csv").write_text("\n".join(["item,truth", *(f"z{n},{'ab'[n % 2]}" for n in range(200))]))
    words = ["judges", "labels.csv", "--models", "gpt[4]", "--gold", "known.csv", "--page", "page.html"]
    found = strict(crowdshot(tmp_path, *words, "--json").stdout)
    assert found["known"] == 0
    assert found["models"][0]["right"]["labels"] == 100


def test_a_model_without_labels_of_known_items_has_no_accuracy(tmp_path: Path) -> None:
    truth = sampled(tmp_path / "labels.csv")
    with open(tmp_path / "labels.csv", "a") as file:
        file.write("\n" + "\n".join(f"i{n},new,a" for n in range(900, 1000)))
    (tmp_path / "known.csv").write_text("\n".join(["item,truth", *(f"i{n},{'ab'[truth[n]]}" for n in range(90))]))
    words = ["judges", "labels.csv", "--models", "gpt[4],new", "--gold", "known.csv", "--cost", "others=1"]
    found = strict(crowdshot(tmp_path, *words, "--json").stdout)
    assert [each["model"] for each in found["models"]] == ["gpt[4]", "new"]
    assert found["models"][1]["right"]["share"] is None
    done = crowdshot(tmp_path, *words, "--page", "page.html", "--out", "out.csv")
    page = (tmp_path / "page.html").read_text().partition("<main>")[2]
    assert "nan" not in (done.stdout + page + (tmp_path / "out.csv").read_text()).replace("dominant", "")


def test_people_are_not_always_right_on_known_items(tmp_path: Path) -> None:
    truth = sampled(tmp_path / "labels.csv", people=1000, wrong=0.2)
    (tmp_path / "known.csv").write_text("\n".join(["item,truth", *(f"i{n},{'ab'[truth[n]]}" for n in range(1000))]))
    words = ["judges", "labels.csv", "--models", "gpt[4]", "--gold", "known.csv", "--json"]
    first = strict(crowdshot(tmp_path, *words).stdout)["models_first"]
    assert first["people_accuracy"] == pytest.approx(0.942, abs=0.03)  # three of five or more, each with 80 %


@pytest.mark.parametrize(
    ("words", "keyword"),
    [
        (["people.csv"], "--models"),
        (["people.csv", "--models", "gpt"], "'gpt'"),
        (["people.csv", "--models", "*"], "no person"),
        (["verdicts.jsonl"], "no person"),
        (["verdicts.jsonl", "people.csv", "--promise", "1.5"], "--promise"),
        (["verdicts.jsonl", "people.csv", "--cost", "fine=0.1"], "others=C"),
        (["verdicts.jsonl", "people.csv", "--cost", "fin=0.1,others=1"], "'fine'"),
        (["verdicts.jsonl", "people.csv", "--cost", "-1"], "--cost"),
        (["verdicts.jsonl", "people.csv", "--page", "page.pdf"], "--page"),
        (["verdicts.jsonl", "people.csv", "--multi-label"], "--multi-label"),
        (["verdicts.jsonl", "people.csv", "--out", "people.csv"], "people.csv"),
    ],
)
def test_bad_input_is_one_message_and_no_file(folder: Path, words: list[str], keyword: str) -> None:
    before = sorted(path.name for path in folder.iterdir())
    done = crowdshot(folder, "judges", *words)
    assert done.returncode == 2
    assert keyword in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert sorted(path.name for path in folder.iterdir()) == before


def test_json_is_strict_if_a_model_never_chooses_a_class(folder: Path) -> None:
    log = [{"model": "one-sided", "item": f"i{n}", "verdict": "good"} for n in range(50)]
    (folder / "verdicts.jsonl").write_text("\n".join(map(json.dumps, log)))
    done = crowdshot(folder, "judges", "verdicts.jsonl", "people.csv", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout, parse_constant=pytest.fail)
    assert None in [each["right"]["share"] for each in found["models"][0]["classes"]]


def test_the_page_says_what_cannot_be_known_and_counts_what_is_beyond_chance(folder: Path, browser) -> None:
    """No item is of the class that only a mistaken label names; the models of a family agree more than expected."""
    with open(folder / "verdicts.jsonl", "a") as file:
        file.write("\n" + json.dumps({"model": "fine", "item": "i0", "verdict": "odd"}))
    words = ["judges", "verdicts.jsonl", "people.csv", "--gold", "known.csv", "--page", "judges.html", "--json"]
    done = crowdshot(folder, *words)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert {c["found"] for m in found["models"] for c in m["classes"] if c["name"] == "odd"} == {None}
    page = browser.new_page()
    page.goto((folder / "judges.html").as_uri())
    rows = page.locator("#families tbody tr")
    cells = [rows.nth(i).locator("td").all_inner_texts() for i in range(rows.count())]
    for items, same, expected, more, together in cells:
        assert int(more) == int(same) - int(expected)
        assert int(same) <= int(items)
        assert (int(more) > 20) == (together == "err together")
    assert sum(bool(each[4]) for each in cells) == 3
    assert "Excess" not in page.locator("main, body").first.inner_text()
    page.close()
