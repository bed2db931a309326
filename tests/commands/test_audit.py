"""`crowdshot audit`: a sample of accepted items is drawn, filled in as people do, and evaluated."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from forked import crowdshot

pytestmark = pytest.mark.slow
CLASSES = ("Hund", "Katze", "Maus")


def truth_of(item: str) -> str:
    return CLASSES[int(item.split()[1]) % 3]


def write_labels(path: Path, n_items: int, skill: float, n_people: int = 5) -> None:
    random = np.random.default_rng(0)
    rows = []
    for n in range(n_items):
        item = f"Bild {n:03d}"
        for who in range(n_people):
            right = random.random() < skill and n % 10  # all people make the same mistake on every tenth item
            rows.append((item, f"P{who}", CLASSES[(n + (0 if right else 1)) % 3]))
    pd.DataFrame(rows, columns=["Bild", "Person", "Klasse"]).to_csv(path, sep=";", index=False)


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("audit")
    write_labels(folder / "labels.csv", 150, 0.95)
    done = crowdshot(folder, "aggregate", "labels.csv", "--report", "results")
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def desk(results: Path, tmp_path: Path) -> Path:
    """A copy of the results of five people with 95 % accuracy who share their mistakes on every tenth item."""
    for path in [path for path in results.rglob("*") if path.is_file()]:
        target = tmp_path / path.relative_to(results)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    return tmp_path


def run(desk: Path, *words: object) -> Any:
    done = crowdshot(desk, "audit", "results", *words, "--json")
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "notes": done.stderr}


def refused(desk: Path, *words: object) -> str:
    before = {path: path.read_bytes() for path in desk.rglob("*") if path.is_file()}
    done = crowdshot(desk, "audit", "results", *words)
    assert done.returncode == 2, done.stdout
    assert "Traceback" not in done.stderr
    assert {path: path.read_bytes() for path in desk.rglob("*") if path.is_file()} == before
    return done.stderr


def fill(desk: Path, change: Any = None) -> pd.DataFrame:
    """Fill in the truth; ``change`` gets the table, to make it messy."""
    table = pd.read_csv(desk / "audit.csv", dtype=str)
    table["truth"] = table["Bild"].map(truth_of)
    if change is not None:
        table = change(table)
    table.to_csv(desk / "audit.csv", index=False)
    return table


def test_a_sample_is_drawn_filled_in_evaluated_and_shown(desk: Path, browser: Any) -> None:
    drawn = run(desk, "--sample", 60)
    consensus = pd.read_csv(desk / "results" / "consensus.csv", dtype={"Bild": str})
    accepted = consensus[consensus["confidence"] >= 0.9]
    assert drawn["accepted"] == len(accepted)
    table = pd.read_csv(desk / "audit.csv", dtype=str, keep_default_na=False)
    assert list(table.columns) == ["Bild", "truth"]  # neither label nor confidence
    assert set(table["Bild"]) < set(accepted["Bild"])
    assert len(table) == table["Bild"].nunique() == 60
    assert (table["truth"] == "").all()

    fill(desk)
    found = run(desk, "--checked", "audit.csv")
    labels = dict(zip(consensus["Bild"], consensus["Klasse"], strict=True))
    wrong = {item for item in table["Bild"] if labels[item] != truth_of(item)}
    assert {mistake["item"] for mistake in found["mistakes"]} == wrong
    overall = found["estimates"][0]
    assert (overall["checked"], overall["right"]) == (60, 60 - len(wrong))
    actual = np.mean([labels[item] == truth_of(item) for item in accepted["Bild"]])
    assert overall["low"] < actual < overall["high"]
    assert overall["right"] / overall["checked"] < overall["confidence"]  # people share mistakes

    before = pd.read_csv(desk / "results" / "consensus.csv")
    found = run(desk, "--checked", "audit.csv", "--update")
    after = pd.read_csv(desk / "results" / "consensus.csv")
    pd.testing.assert_frame_equal(after[before.columns], before)
    inside = after["confidence"] >= 0.9
    assert after["corrected"].notna().equals(inside)
    assert (after["corrected_low"][inside] < after["corrected"][inside]).all()
    assert after["corrected"][inside].mean() == pytest.approx(overall["accuracy"], abs=0.03)
    page = browser.new_page()
    page.goto((desk / "results" / "report.html").as_uri())
    text = page.text_content("#audit")
    assert f"{100 * overall['accuracy']:.0f}\N{NO-BREAK SPACE}%" in text
    assert all(item in text for item in wrong)
    page.close()
    run(desk, "--checked", "audit.csv", "--update")  # again: the same columns
    assert list(pd.read_csv(desk / "results" / "consensus.csv").columns) == list(after.columns)


def test_the_checked_items_are_gold(desk: Path) -> None:
    run(desk, "--sample", 20)
    fill(desk)
    done = crowdshot(
        desk, "aggregate", "labels.csv", "--gold", "audit.csv", "--report", "results", "--overwrite", "--json"
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["gold"] == 20
    found = run(desk, "--checked", "audit.csv")
    assert found["outdated"]  # judged by the labels of that time, not by those that the answers have fixed
    assert "changed" in found["notes"]
    assert "update" in refused(desk, "--checked", "audit.csv", "--update")
    drawn = run(desk, "--sample", 500, "--overwrite")
    again = set(pd.read_csv(desk / "audit.csv", dtype=str)["Bild"])
    assert drawn["sampled"] == drawn["accepted"] == len(again)  # known items are not checked again
    assert drawn["known"] == 20


def test_audit_and_page_split_the_accepted_items_alike(desk: Path) -> None:
    items = [f"Bild {n:03d}" for n in range(1, 7)]
    pd.DataFrame({"Bild": items, "truth": [truth_of(item) for item in items]}).to_csv(desk / "gold.csv", index=False)
    done = crowdshot(
        desk, "aggregate", "labels.csv", "--gold", "gold.csv", "--report", "results", "--overwrite", "--json"
    )
    n_accepted = json.loads(done.stdout)["accepted"]
    split = f"{n_accepted} items are accepted, 6 of them with a known true label"
    drawn = crowdshot(desk, "audit", "results", "--sample", "20")
    assert split in drawn.stdout
    fill(desk)
    evaluated = crowdshot(desk, "audit", "results", "--checked", "audit.csv", "--update")
    assert split in evaluated.stdout
    found = run(desk, "--checked", "audit.csv")
    assert found["known"] + found["estimates"][0]["items"] == n_accepted
    page = re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", (desk / "results" / "report.html").read_text("utf-8")))
    assert split in page  # in the section about the audit
    tile = page.partition("labelled items have a label with probability")
    assert tile[0].split()[-3:] == [str(n_accepted), "of", "150"]
    assert tile[2].partition("Need review")[0].strip().endswith("or more, 6 of them with a known true label")


def test_the_sample_is_reproducible_and_answers_are_not_overwritten(desk: Path) -> None:
    run(desk, "--sample", 30)
    first = (desk / "audit.csv").read_bytes()
    fill(desk)
    assert "--overwrite" in refused(desk, "--sample", 30)
    run(desk, "--checked", "audit.csv")
    (desk / "audit.csv").unlink()
    run(desk, "--sample", 30)  # with the answers, which the folder has
    again = pd.read_csv(desk / "audit.csv")
    assert again["truth"].tolist() == [truth_of(item) for item in again.iloc[:, 0]]
    assert "--overwrite" in refused(desk, "--sample", 20, "--out", "smaller.csv")
    run(desk, "--sample", 30, "--overwrite")
    assert (desk / "audit.csv").read_bytes() == first
    run(desk, "--sample", 30, "--seed", 1, "--overwrite")
    assert (desk / "audit.csv").read_bytes() != first


def test_a_larger_sample_contains_the_first_one_with_its_answers(desk: Path) -> None:
    run(desk, "--sample", 20)
    fill(desk)
    first = run(desk, "--checked", "audit.csv")
    assert first["estimates"][0]["checked"] == 20
    run(desk, "--sample", 40, "--out", "larger.csv")
    table = pd.read_csv(desk / "larger.csv")
    assert len(table) == 40
    assert table["truth"].notna().sum() == 20
    assert set(pd.read_csv(desk / "audit.csv").iloc[:, 0]) == set(table[table["truth"].notna()].iloc[:, 0])
    table["truth"] = [truth_of(item) for item in table.iloc[:, 0]]
    table.to_csv(desk / "larger.csv", index=False)
    assert run(desk, "--checked", "larger.csv")["estimates"][0]["checked"] == 40


def test_a_sample_that_somebody_is_checking_is_not_mixed_with_another(desk: Path) -> None:
    run(desk, "--sample", 30)
    run(desk, "--sample", 30, "--out", "copy.csv")  # the same sample
    assert "--overwrite" in refused(desk, "--sample", 30, "--seed", 1, "--out", "other.csv")
    fill(desk)
    run(desk, "--sample", 30, "--seed", 1, "--out", "other.csv", "--overwrite")
    assert "earlier sample" in refused(desk, "--checked", "audit.csv")


def test_known_answers_to_all_items_may_be_the_table(desk: Path) -> None:
    run(desk, "--sample", 30)
    items = [f"Bild {n:03d}" for n in range(150)]
    pd.DataFrame({"Bild": items, "truth": [truth_of(item) for item in items]}).to_csv(desk / "all.csv", index=False)
    found = run(desk, "--checked", "all.csv")
    assert found["estimates"][0]["checked"] == 30
    assert len(found["others"]) == 120


def test_the_intervals_of_a_sample_do_not_overlap(desk: Path) -> None:
    done = crowdshot(desk, "audit", "results", "--sample", 100, "--threshold", 0.3)
    assert done.returncode == 0, done.stderr
    table = done.stdout.split("drawn\n")[1].split("\n\n")[0].splitlines()
    assert " or more" in table[0]
    assert all(" to " in row for row in table[1:])
    ends = [[float(number) for number in re.findall(r"[\d.]+", row)[:2]] for row in table[1:]]
    assert len(ends) > 0
    assert all(low < high for low, high in ends)


def test_fewer_accepted_items_than_asked_for(desk: Path) -> None:
    drawn = run(desk, "--sample", 1000)
    assert drawn["sampled"] == drawn["accepted"] < 1000
    assert "only" in drawn["notes"]
    fill(desk)
    overall = run(desk, "--checked", "audit.csv")["estimates"][0]
    assert overall["low"] == pytest.approx(overall["accuracy"])
    assert overall["high"] == pytest.approx(overall["accuracy"])


def test_nothing_accepted(tmp_path: Path) -> None:
    write_labels(tmp_path / "labels.csv", 20, 0.5, 2)
    done = crowdshot(tmp_path, "aggregate", "labels.csv", "--report", "results")
    assert done.returncode == 0, done.stderr
    said = refused(tmp_path, "--sample", 10)
    assert "two agreeing labels" in said
    assert "--threshold" in said
    assert "two agreeing labels" in (tmp_path / "results" / "report.html").read_text("utf-8")


def test_a_partly_filled_table_with_messy_cells(desk: Path) -> None:
    run(desk, "--sample", 40)

    def mess(table: pd.DataFrame) -> pd.DataFrame:
        table.loc[:9, "truth"] = ""
        table.loc[10:19, "truth"] = " " + table.loc[10:19, "truth"].str.upper()
        extra = pd.DataFrame({"Bild": ["Bild 999", table["Bild"][30]], "truth": ["Hund", table["truth"][30]]})
        return pd.concat([table, extra]).assign(note="?")

    fill(desk, mess)
    found = run(desk, "--checked", "audit.csv")
    assert found["estimates"][0]["checked"] == 30
    assert found["others"] == ["Bild 999"]
    assert "10 items" in found["notes"]
    assert "Bild 999" in found["notes"]
    labels = pd.read_csv(desk / "results" / "consensus.csv").set_index("Bild")["Klasse"]
    assert all(labels[mistake["item"]] != truth_of(mistake["item"]) for mistake in found["mistakes"])


def test_answers_that_cannot_be_used(desk: Path) -> None:
    assert "--sample" in refused(desk, "--checked", "labels.csv")  # nothing was drawn
    run(desk, "--sample", 40)
    assert "no answer" in refused(desk, "--checked", "audit.csv")

    def typo(table: pd.DataFrame) -> pd.DataFrame:
        return table.assign(truth=["Hunt", *table["truth"][1:]])

    filled = fill(desk, typo)
    said = refused(desk, "--checked", "audit.csv")
    assert "'Hunt'" in said
    assert "'Hund'" in said
    found = run(desk, "--checked", "audit.csv", "--other-classes")
    assert filled["Bild"][0] in {mistake["item"] for mistake in found["mistakes"]}

    def contradict(table: pd.DataFrame) -> pd.DataFrame:
        other = CLASSES[(CLASSES.index(table["truth"][1]) + 1) % 3]
        return pd.concat([table, pd.DataFrame({"Bild": [table["Bild"][1]], "truth": [other]})])

    fill(desk, contradict)
    assert "row 42" in refused(desk, "--checked", "audit.csv")
    fill(desk, lambda table: table.drop_duplicates("Bild").assign(Bild=[f"x{i}" for i in range(40)]))
    assert "no item of the sample" in refused(desk, "--checked", "audit.csv")


@pytest.mark.parametrize(
    ("words", "keyword"),
    [
        ([], "--sample"),
        (["--sample", 5, "--checked", "labels.csv"], "--sample"),
        (["--sample", 5, "--out", "results/consensus.csv", "--overwrite"], "consensus.csv"),
        (["--sample", 5, "--out", "nowhere/audit.csv"], "nowhere"),
        (["--checked", "missing.csv"], "--sample"),
        (["--checked", "labels.csv", "--promise", "90"], "--promise"),
    ],
)
def test_arguments_that_cannot_be_used(desk: Path, words: list[object], keyword: str) -> None:
    assert keyword in refused(desk, *words)


@pytest.mark.parametrize(
    ("key", "change"),
    [
        ("seed", lambda old: float("inf")),
        ("strata", lambda old: [[low, high, -items, n, mean] for low, high, items, n, mean in old]),
        ("strata", lambda old: [[float("nan"), *rest] for _, *rest in old]),
        ("strata", lambda old: [[low, high, items, items + 1, mean] for low, high, items, n, mean in old]),
        ("drawn", lambda old: [[item, place, label, float("nan")] for item, place, label, _ in old]),
    ],
)
def test_a_sample_with_impossible_numbers(desk: Path, key: str, change: Any) -> None:
    run(desk, "--sample", 10)
    fill(desk)
    path = desk / "results" / "audit.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, key: change(content[key])}))
    assert "audit.json" in refused(desk, "--checked", "audit.csv")


@pytest.mark.parametrize("change", [{"commands": True}, {"commands": []}, {"working": {"a": 1}}, {"paths": 3}])
def test_a_damaged_run(desk: Path, change: dict[str, Any]) -> None:
    path = desk / "results" / "run.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "run": {**content["run"], **change}}))
    assert "run.json" in refused(desk, "--sample", 10)


def test_damaged_samples_and_folders(desk: Path) -> None:
    run(desk, "--sample", 10)
    fill(desk)
    (desk / "results" / "audit.json").write_text('{"format": 1}')
    assert "audit.json" in refused(desk, "--checked", "audit.csv")
    (desk / "results" / "consensus.csv").write_text("a,b\n1,2\n")
    assert "confidence" in refused(desk, "--sample", 10)


def test_a_folder_without_run_json_as_earlier_versions_wrote_it(desk: Path) -> None:
    (desk / "results" / "run.json").unlink()
    run(desk, "--sample", 20)
    fill(desk)
    assert run(desk, "--checked", "audit.csv")["estimates"][0]["checked"] == 20


def test_texts_are_in_the_table_to_fill_in(tmp_path: Path) -> None:
    texts = [(f"r{i}", f"{'a lovely' if i % 2 else 'an awful'} film, number {i}") for i in range(30)]
    pd.DataFrame(texts, columns=["item", "text"]).to_csv(tmp_path / "texts.csv", index=False)
    rows = [(f"r{i}", who, "good" if i % 2 else "bad") for i in range(30) for who in "abc"]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(tmp_path / "labels.csv", index=False)
    done = crowdshot(tmp_path, "adapt", "labels.csv", "--texts", "texts.csv", "--out", "results")
    assert done.returncode == 0, done.stderr
    run(tmp_path, "--sample", 10, "--show-labels")
    table = pd.read_csv(tmp_path / "audit.csv", dtype=str, keep_default_na=False)
    assert list(table.columns) == ["item", "text", "label", "truth"]
    assert dict(zip(table["item"], table["text"], strict=True)).items() <= dict(texts).items()
    table["truth"] = table["label"]
    table.to_csv(tmp_path / "audit.csv", index=False)
    assert run(tmp_path, "--checked", "audit.csv")["estimates"][0]["accuracy"] == 1


def test_answers_with_several_labels(tmp_path: Path) -> None:
    rows = [(f"i{n}", who, "cat;dog" if n % 2 else "owl") for n in range(40) for who in "abcde"]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(tmp_path / "labels.csv", index=False)
    done = crowdshot(tmp_path, "aggregate", "labels.csv", "--multi-label", "--report", "results")
    assert done.returncode == 0, done.stderr
    run(tmp_path, "--sample", 10)
    table = pd.read_csv(tmp_path / "audit.csv", dtype=str)
    table["truth"] = ["dog;cat" if int(item[1:]) % 2 else "owl" for item in table["item"]]
    table.to_csv(tmp_path / "audit.csv", index=False)
    assert run(tmp_path, "--checked", "audit.csv")["estimates"][0]["accuracy"] == 1


def test_results_to_share_are_corrected_without_their_report(tmp_path: Path) -> None:
    features = pd.DataFrame({"x": [n % 2 + n / 100 for n in range(30)]}, index=[f"i{n}" for n in range(30)])
    features.to_csv(tmp_path / "features.csv", index_label="item")
    rows = [(f"i{n}", who, "ab"[n % 2]) for n in range(30) for who in "xyz"]
    pd.DataFrame(rows, columns=["item", "annotator", "label"]).to_csv(tmp_path / "labels.csv", index=False)
    done = crowdshot(tmp_path, "adapt", "labels.csv", "--features", "features.csv", "--share", "--out", "results")
    assert done.returncode == 0, done.stderr
    run(tmp_path, "--sample", 10, "--threshold", 0.5)
    table = pd.read_csv(tmp_path / "audit.csv", dtype=str)
    table["truth"] = ["ab"[int(item[1:]) % 2] for item in table["item"]]
    table.to_csv(tmp_path / "audit.csv", index=False)
    found = run(tmp_path, "--checked", "audit.csv", "--update")
    assert [Path(file).name for file in found["files"]] == ["consensus.csv"]
    assert "embeddings" in found["notes"]
    assert pd.read_csv(tmp_path / "results" / "consensus.csv")["corrected"].notna().any()
