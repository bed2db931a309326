"""Test items in a browser: viewer, keyboard review, corrections, and the download of decisions."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdshot import CrowdClassifier
from crowdshot.report.page import facts
from crowdshot.report.page.facts import Run
from crowdshot.report.page.page_writer import write_page

from .hostile import CLASSES, visible

pytestmark = pytest.mark.slow


def downloaded(page: Any) -> list[list[str]]:
    with page.expect_download() as waiting:
        page.locator("[data-do=download]").press("Enter")
    assert waiting.value.suggested_filename == "corrections.csv"
    with open(waiting.value.path(), encoding="utf-8", newline="") as file:
        return list(csv.reader(file))


def decisions(page: Any) -> dict[str, Any]:
    return page.evaluate("JSON.parse(document.getElementById('decisions-data').textContent)")


def test_labels_are_accepted_corrected_kept_and_downloaded_by_keyboard(open_page) -> None:
    page = open_page()
    data = decisions(page)
    assert sorted(data["classes"]) == sorted(CLASSES)  # exactly as written
    assert page.locator("#decisions [data-do=download]").is_disabled()
    page.locator("#item-list > li [data-do=confirm]").first.press("Enter")
    page.locator("#item-list > li [data-do=open]").nth(1).press("Enter")
    assert page.locator("#viewer").is_visible()
    assert page.inner_text("#viewer .place").startswith("2 of ")
    assert page.inner_text("#viewer h3") == page.inner_text("#item-list > li >> nth=1 >> h3")
    guesses = page.eval_on_selector_all("#item-list > li:nth-child(2) [data-k]", "all => all.map(g => +g.dataset.k)")
    page.keyboard.press("2")  # the second class of the second item, and on to the third
    assert page.inner_text("#viewer .place").startswith("3 of ")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert page.inner_text("#viewer .place").startswith("2 of ")
    assert page.get_attribute("#viewer .choices button:nth-child(2)", "aria-pressed") == "true"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("c")
    page.keyboard.press("ArrowLeft")
    page.locator("#viewer select").select_option("3")
    page.keyboard.press("Escape")
    assert not page.locator("#viewer").is_visible()
    expected = [
        ["item", "truth"],
        [data["items"][0], data["classes"][data["labels"][0]]],
        [data["items"][1], data["classes"][guesses[1]]],
        [data["items"][2], data["classes"][3]],
    ]
    assert downloaded(page) == expected
    page.reload()
    assert page.inner_text("#decisions output") == "3 items decided"
    assert len(visible(page, ".decided")) == 3
    page.locator(".decided [data-do=undo]").nth(1).press("Enter")
    assert downloaded(page) == [*expected[:2], expected[3]]
    page.locator("[data-do=forget]").press("Enter")
    assert page.inner_text("#decisions output") == "0 items decided"
    page.reload()
    assert not visible(page, ".decided")
    assert page.evaluate("window.hacked") is None
    assert page.heard == []


def test_a_tap_enlarges_an_image_and_the_viewer_fits_a_phone(open_page) -> None:
    page = open_page(viewport={"width": 375, "height": 812}, has_touch=True)
    small = page.locator("#item-list .preview").first
    small.tap()
    box = page.locator("#viewer").bounding_box()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 375
    assert box["y"] + box["height"] <= 812
    assert page.locator("#viewer .picture").bounding_box()["height"] > small.bounding_box()["height"]
    assert len(visible(page, "#viewer .tag")) == 1
    page.locator("#viewer [data-do=on]").tap()
    assert page.inner_text("#viewer .place").startswith("2 of ")
    page.locator("#viewer [data-do=close]").tap()
    assert not page.locator("#viewer").is_visible()


def test_without_scripts_there_are_no_review_buttons(open_page) -> None:
    page = open_page(java_script_enabled=False)
    assert not visible(page, "#decisions, #viewer, .actions")
    assert "--gold" in page.inner_text("#items noscript")


TEXTS = ["Fine film,\nlong but fine.", "<script>window.hacked = 1</script> dull", "שלום עולם", "x" * 5000]


def test_texts_are_escaped_and_gold_is_downloaded(open_page, tmp_path: Path) -> None:
    x = np.eye(2)[np.arange(40) % 2] + 0.5 * np.random.default_rng(0).normal(size=(40, 2))
    answers = np.column_stack([np.arange(40) % 2, np.arange(40) % 3 % 2])
    clf = CrowdClassifier("identity")
    embeddings = clf.embed(x)
    clf.fit_embeddings(embeddings, answers, gold={0: 1})
    run = Run(["l.csv"], "t.csv", [], {}, "crowdshot adapt", texts=[TEXTS[i % 4] for i in range(40)])
    found = facts.gather(clf, embeddings, run)
    write_page(tmp_path / "report.html", found)
    page = open_page(tmp_path / "report.html", viewport={"width": 375, "height": 812})
    assert 0 not in [item.row for item in found.items]  # a gold item
    first = found.items[0].row
    assert page.inner_text("#item-list .preview >> nth=0") == TEXTS[first % 4]
    page.locator("#item-list [data-do=confirm]").first.press("Enter")
    truth = str(clf.classes_[clf.label_proba_[first].argmax()])
    assert downloaded(page) == [["item", "truth"], ["0", "1"], [str(first), truth]]
    assert found.texts[next(row for row in found.texts if row % 4 == 3)] == "x" * 2000 + "…"
    assert page.evaluate("document.documentElement.scrollWidth") == 375
    assert page.evaluate("window.hacked") is None
