"""Test a whole project: a messy sheet, its report, corrections in a browser, a second round, and a comparison."""

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import openpyxl
import pandas as pd
import pytest
from PIL import Image

from forked import crowdshot

pytestmark = pytest.mark.slow
PEOPLE = {"Anna": 0.9, "Bernd": 0.8, "Cleo": 0.7}


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """Write messy.xlsx and photos of bright cats and dark dogs, with two spellings and a column of addresses."""
    random = np.random.default_rng(0)
    book = openpyxl.Workbook()
    book.active.append(["Image", "Email Address", *PEOPLE])
    (tmp_path / "photos").mkdir()
    for n in range(24):
        truth, other = ("Cat", "Dog")[:: 1 if n % 2 else -1]
        said = [truth if random.random() < skill else other for skill in PEOPLE.values()]
        book.active.append(
            [f"{n:02d}.png", f"lead{n % 3}@example.org", *(w.lower() if random.random() < 0.2 else w for w in said)]
        )
        pixels = (180 if truth == "Cat" else 60) + 30 * random.normal(size=(28, 28))
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(tmp_path / "photos" / f"{n:02d}.png")
    book.save(tmp_path / "messy.xlsx")
    return tmp_path


def run(desk: Path, *words: object) -> subprocess.CompletedProcess[str]:
    done = crowdshot(desk, *words)
    assert done.returncode == 0, done.stderr
    return done


def correct(browser: Any, page_file: Path, number: int, out: Path) -> None:
    """Review so many items of the page by keyboard, choose the second class of each, and download the decisions."""
    page = browser.new_page()
    page.goto(page_file.as_uri())
    page.locator("#item-list .item:not([hidden])").first.locator("[data-do=open]").first.click()
    for _ in range(number):
        page.keyboard.press("2")
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Escape")
    with page.expect_download() as download:
        page.locator("[data-do=download]").click()
    download.value.save_as(out)
    page.close()


def test_from_a_messy_sheet_to_progress(desk: Path, browser: Any) -> None:
    given = ("messy.xlsx", "--images", "photos", "--encoder", "glyphs", "--merge-case")
    report = json.loads(run(desk, "adapt", *given, "--out", "one", "--json").stdout)
    assert report["classes"] == ["Cat", "Dog"]
    assert report["left_out"]["columns of no annotator"] == ["Email Address"]
    one = pd.read_csv(desk / "one" / "consensus.csv", index_col=0)

    correct(browser, desk / "one" / "report.html", 2, desk / "corrections.csv")
    corrections = pd.read_csv(desk / "corrections.csv")
    assert list(corrections) == ["item", "truth"]
    assert len(corrections) == 2
    was = one["label"].loc[corrections["item"]]
    assert (was.to_numpy() != corrections["truth"]).all()

    second = json.loads(run(desk, "adapt", *given, "--gold", "corrections.csv", "--out", "two", "--json").stdout)
    assert (second["gold"], second["gold_right"]) == (2, 0)
    two = pd.read_csv(desk / "two" / "consensus.csv", index_col=0)
    assert two["label"].loc[corrections["item"]].tolist() == corrections["truth"].tolist()
    assert two["confidence"].loc[corrections["item"]].tolist() == [1, 1]

    found = json.loads(run(desk, "compare", "one", "two", "--out", "progress.html", "--json").stdout)
    assert set(corrections["item"]) <= {row["item"] for row in found["changed"]}
    assert set(corrections["item"]) <= {*found["newly_accepted"], *one.index[one["confidence"] >= 0.9]}
    page = (desk / "progress.html").read_text("utf-8")
    assert all(name in page for name in corrections["item"])
    everything = page + (desk / "two" / "report.html").read_text("utf-8")
    assert "example.org" not in everything
