"""Two rounds side by side: counted by hand, as words, as JSON and as a page."""

import json
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from crowdshot import CrowdshotError
from crowdshot.io.json_text import to_json
from crowdshot.report.round_comparison import Course, Skill, compare, render, result_of, summarise

HACK = '"><script>window.hacked=1</script>'


def round_(folder: Path, items: dict, people: dict) -> Path:
    folder.mkdir(parents=True)
    rows = [(name, label, confidence, n, 0.5) for name, (label, confidence, n) in items.items()]
    columns = ["image", "animal", "confidence", "n_labels", "agreement"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "consensus.csv", index=False)
    rows = [(name, n, a, low, high, "") for name, (n, a, low, high) in people.items()]
    columns = ["who", "n_labels", "accuracy", "low", "high", "most_confused"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "annotators.csv", index=False)
    return folder


@pytest.fixture
def rounds(tmp_path: Path) -> tuple[Path, Path]:
    before = round_(
        tmp_path / "before",
        {
            "1": ("cat", 0.95, 2),
            "2": ("cat", 0.6, 2),
            "3": ("dog", 0.7, 1),
            "4": ("dog", 0.92, 3),
            "007": ("cat", 0.5, 1),
        },
        {"ann": (9, 0.6, 0.5, 0.7), "bob": (5, 0.8, 0.6, 0.95), "cy": (4, 0.9, 0.8, 0.97)},
    )
    after = round_(
        tmp_path / "after",
        {
            "1": ("cat", 0.97, 3),
            "2": ("dog", 0.93, 4),
            "3": ("cat", 0.55, 3),
            "4": ("dog", 0.88, 4),
            "new": ("cat", 0.9, 2),
        },
        {"ann": (20, 0.9, 0.85, 0.95), "bob": (9, 0.7, 0.5, 0.85), "dan": (3, 0.7, 0.3, 0.9), "eve": (0, np.nan, 0, 1)},
    )
    return before, after


def test_what_changed_is_counted(rounds):
    found = to_json(result_of(compare(*rounds)))
    assert found["accepted"] == {"before": 2, "after": 3}
    assert found["items"] == {"before": 5, "after": 5}
    assert found["labels"] == {"before": 9, "after": 16}
    assert [(row["item"], row["before"], row["after"]) for row in found["changed"]] == [
        ("2", "cat", "dog"),
        ("3", "dog", "cat"),
    ]
    assert (found["newly_accepted"], found["reopened"]) == (["2"], ["4"])
    assert (found["added"], found["gone"]) == (["new"], ["007"])  # ids stay text
    people = {row["annotator"]: row for row in found["annotators"]}
    assert list(people) == ["bob", "ann", "dan", "cy"]  # the worst change first; eve said nothing in either round
    assert {name: row["verdict"] for name, row in people.items()} == {
        "bob": "no sure change",
        "ann": "better",
        "dan": "new",
        "cy": "gone",
    }
    assert (people["ann"]["before"], people["ann"]["after"]) == (0.6, 0.9)
    assert (people["ann"]["before_low"], people["ann"]["after_high"]) == (0.5, 0.95)
    assert people["ann"]["change"] == pytest.approx(0.3)
    assert people["ann"]["change_low"] == pytest.approx(0.3 - np.hypot(0.2, 0.1) / 2)
    assert (people["dan"]["before"], people["cy"]["after"], people["cy"]["change"]) == (None, None, None)
    json.dumps(found, allow_nan=False)


def test_a_change_is_sure_where_its_interval_leaves_out_0():
    def course(before, after):
        return Course("x", Skill(before, before - 0.1, before + 0.1, 9), Skill(after, after - 0.1, after + 0.1, 9))

    assert course(0.5, 0.7).verdict == "better"  # 0.2, half an interval 0.14
    assert course(0.7, 0.5).verdict == "worse"
    assert course(0.5, 0.6).verdict == "no sure change"


def test_every_changed_item_is_listed(tmp_path):
    before, after = (
        round_(tmp_path / name, {str(i): (label, 0.9, 1) for i in range(3000)}, {"ann": (3000, 0.9, 0.8, 0.95)})
        for name, label in (("a", "cat"), ("b", "dog"))
    )
    found = compare(before, after)
    assert len(result_of(found).changed) == 3000
    assert "2,000 items more are not shown" in render(found)


def test_the_same_round_twice_has_no_change(rounds):
    found = compare(rounds[0], rounds[0])
    assert found.changed == []
    assert found.newly_accepted == found.reopened == []
    assert "No item of both rounds changed its consensus label." in render(found)
    assert "changed consensus: 0 items" in summarise(found)


def test_words_for_the_terminal(rounds):
    lines = summarise(compare(*rounds)).replace("\N{NO-BREAK SPACE}", " ").splitlines()
    assert lines == [
        "accepted: 2 of 5 items before, 3 of 5 after (1 item newly accepted, 1 no longer accepted)",
        "labels: 9 before, 16 after",
        "changed consensus: 2 items",
        "  2: cat (60 %) → dog (93 %)",
        "  3: dog (70 %) → cat (55 %)",
        "ann is better: 60 % correct before (50–70 %), 90 % after (85–95 %)",
        "no significant change: 1 of 2 annotators in both rounds",
    ]


def test_names_are_text_on_the_page(tmp_path):
    evil = {HACK: (HACK, 0.95, 1), "b": ("x", 0.5, 1)}
    before = round_(tmp_path / "before", evil, {HACK: (2, 0.5, 0.4, 0.6)})
    after = round_(tmp_path / "after", {**evil, "b": (HACK, 0.9, 2)}, {HACK: (3, 0.9, 0.85, 0.95)})
    page = render(compare(before, after))
    assert "<script" not in page
    assert "http" not in page.replace('http-equiv="Content-Security-Policy"', "")
    assert "&lt;script&gt;" in page


# ---- in a browser -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("width", [375, 1280, 1920])
def test_the_page_fits_every_screen_and_asks_for_nothing(browser, rounds, tmp_path, width):
    (tmp_path / "page.html").write_text(render(compare(*rounds)), encoding="utf-8")
    page = browser.new_page(viewport={"width": width, "height": 900})
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text))
    page.on("request", lambda request: told.append(request.url))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".tile").count() == 4
    assert page.locator(".better").first.is_visible()
    assert [url for url in told if not url.startswith(("file:", "data:"))] == []
    page.close()


# ---- what is refused --------------------------------------------------------------------------------------------


def spoil(folder: Path, how: str) -> None:
    if how == "gone":
        shutil.rmtree(folder)
    elif how == "file":
        shutil.rmtree(folder)
        folder.write_text("")
    elif how == "no table":
        (folder / "annotators.csv").unlink()
    elif how == "another table":
        (folder / "consensus.csv").write_text("item,label\n1,cat\n")
    elif how == "words":
        (folder / "consensus.csv").write_text("item,label,confidence,n_labels\n1,cat,much,1\n")
    elif how == "nothing":
        (folder / "consensus.csv").write_text("item,label,confidence,n_labels\n1,cat,0.5,\n")
    elif how == "strangers":
        (folder / "consensus.csv").write_text("item,label,confidence,n_labels\nx,cat,0.5,1\n")


@pytest.mark.parametrize(
    ("how", "where", "message"),
    [
        ("gone", "after", "does not exist"),
        ("file", "after", "is a file"),
        ("no table", "after", "annotators.csv"),
        ("another table", "after/consensus.csv", "'confidence'"),
        ("nothing", "after/consensus.csv, row 2, column 'n_labels'", "finite"),
        ("strangers", "after", "none of the items of"),
    ],
)
def test_a_folder_that_is_no_round_is_refused(rounds, how, where, message):
    spoil(rounds[1], how)
    with pytest.raises(CrowdshotError, match=message) as error:
        compare(*rounds)
    assert Path(error.value.where).as_posix().endswith(where)


def test_a_confidence_that_is_no_number_is_refused(rounds):
    spoil(rounds[1], "words")
    with pytest.raises(CrowdshotError, match=r"consensus.csv, row 2, column 'confidence'.*much"):
        compare(*rounds)
