"""The sheets that annotators are given."""

import re
from pathlib import Path

import numpy as np
import pytest

from crowdshot.formatting import whole_counts
from crowdshot.report.page import facts
from crowdshot.report.page.facts import Run
from crowdshot.report.page.page_writer import write_sheets

from .hostile import PEOPLE, visible
from .made import Page, basis_of, coin, crowd


def sheets(folder: Path, kinds, annotators, texts=()) -> dict[str, str]:
    said, truth = crowd(kinds, 60)
    basis = basis_of(np.eye(3)[truth] * 0.99 + 0.01 / 3, said, annotators=annotators, classes=["cat", "dog", "owl"])
    found = facts.gather(basis.clf, basis.embeddings, Run(["l"], "x", [], {}, "crowdshot", texts=texts))
    write_sheets(folder / "feedback", found)
    return {
        person.name: (folder / "feedback" / found.sheets[person.position]).read_text("utf-8") for person in found.people
    }


def test_a_sheet_names_its_annotator_and_nobody_else(tmp_path: Path):
    names = ["Ann Alpha", "Bob Beta", "Cy Gamma", "Di Delta", "Ed Epsilon"]
    kinds = [coin(right, 3) for right in (0.9, 0.5, 0.8, 0.7, 0.6)]
    made = sheets(tmp_path, kinds, names, texts=[f"text number {i}" for i in range(60)])
    assert set(made) == set(names)
    for name, html in made.items():
        assert [other for other in names if other in html] == [name]
        page = Page(html)
        assert not [tag for tag, _ in page.tags if tag == "script"]
        assert "Half of all annotators are between" in page.text
        mistakes = re.findall(r"your label: (?:cat|dog|owl) ?probably (?:cat|dog|owl)", page.text)
        assert 1 <= len(mistakes) == page.text.count("text number")


def test_of_four_annotators_nothing_is_said_together(tmp_path: Path):
    (html, *_) = sheets(tmp_path, [coin(0.8, 3)] * 4, [*"abcd"]).values()
    assert "of all annotators are between" not in html


def test_a_sheet_says_how_many_mistakes_it_leaves_out(tmp_path: Path):
    made = sheets(tmp_path, [np.eye(3), np.eye(3), coin(0.3, 3)], ["ann", "bob", "cy"])
    left_out = re.search(r"These are the 8 most certain of (\d+)\.", made["cy"])
    assert left_out
    assert 30 < int(left_out[1]) <= 60
    assert "most certain of" not in made["ann"]


def test_a_sheet_about_someone_who_errs_never(tmp_path: Path):
    made = sheets(tmp_path, [np.eye(3)] * 2, ["ann", "bob"])
    assert "Hardly any." in made["ann"]
    assert "Labels to check again" not in made["ann"]


def test_counts_on_a_sheet_are_whole_and_columns_keep_their_labels(tmp_path: Path):
    made = sheets(tmp_path, [coin(0.6, 3)] * 5, ["ann", "bob", "cy", "di", "ed"])
    for html in made.values():
        body = re.search(r'<table class="matrix.*?</table>', html, re.DOTALL)
        assert body
        cells = [int(cell.replace("·", "0")) for cell in re.findall(r"<td class=[^>]*>([^<]*)</td>", body[0])]
        assert sum(cells) == 60
        assert "rounded" in html
    random = np.random.default_rng(0)
    counts = random.dirichlet(np.ones(3), 40).T @ np.eye(3)[random.integers(0, 3, 40)]  # 40 labels, sums are whole
    assert (whole_counts(counts).sum(0) == np.rint(counts.sum(0))).all()
    assert (np.abs(whole_counts(counts) - counts) < 1).all()


@pytest.mark.slow
def test_a_sheet_in_a_browser(open_page, tmp_path: Path):
    people = [PEOPLE[1], PEOPLE[2], *"abc"]
    sheets(tmp_path, [coin(0.6, 3)] * 5, people)
    for file in sorted((tmp_path / "feedback").iterdir())[-2:]:
        assert re.fullmatch(r"[a-z0-9-]+\.html", file.name)
        page = open_page(file, viewport={"width": 375, "height": 812}, color_scheme="dark")
        assert page.evaluate("document.documentElement.scrollWidth") == 375
        assert page.evaluate("window.hacked") is None
        assert page.heard == []
        assert len(visible(page, ".examples > li")) == 8
        assert visible(page, ".matrix")
