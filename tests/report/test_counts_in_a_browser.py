"""All counts on the page agree with each other and with a count by hand, at several thresholds."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crowdshot.labels.consensus import REVIEW_KINDS
from crowdshot.report.page.basis import Basis
from crowdshot.report.page.thresholds import LISTED

from .made import basis_of, report_on

pytestmark = pytest.mark.slow
Counts = dict[str, int]


def made() -> Basis:
    """260 items, 150 of them labelled; more than 60 of a kind need review at high thresholds."""
    random = np.random.default_rng(0)
    top = random.beta(6, 1, 260) * 0.66 + 0.34
    posterior = np.stack([top, 0.7 * (1 - top), 0.3 * (1 - top)], 1)
    posterior = np.stack([row[random.permutation(3)] for row in posterior])
    posterior /= posterior.sum(1, keepdims=True)
    said = np.full((260, 4), -1)
    said[:150] = random.integers(0, 3, (150, 4))
    agree = random.random((150, 4)) < 0.7
    said[:150][agree] = np.repeat(posterior[:150].argmax(1)[:, None], 4, 1)[agree]
    return basis_of(posterior, said)


def by_hand(basis: Basis, threshold: float) -> Counts:
    labelled = (basis.votes.sum(1) > 0).tolist()
    counts = {"accepted": 0, "accepted_unlabelled": 0, **dict.fromkeys(REVIEW_KINDS, 0)}
    for row, has_labels in enumerate(labelled):
        accepted = basis.posterior[row].max() >= threshold
        votes = basis.votes[row]
        if not has_labels:
            counts["accepted_unlabelled" if accepted else "unlabelled"] += 1
            continue
        counts["accepted" if accepted else "open"] += 1
        if accepted and votes[basis.posterior[row].argmax()] < votes.max():
            counts["overruled"] += 1
    return counts


def numbers(text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*", text)]


@pytest.fixture(scope="module")
def basis() -> Basis:
    return made()


@pytest.fixture
def page(basis: Basis, open_page: Callable[..., Any], tmp_path: Path) -> Any:
    _, _, html = report_on(basis, commands={"gold": "crowdshot adapt", "audit": "crowdshot audit results"})
    (tmp_path / "report.html").write_text(html, encoding="utf-8")
    return open_page(tmp_path / "report.html")


@pytest.mark.parametrize("threshold", [None, *LISTED, 0.6, 0.83])
def test_every_count_is_the_same_everywhere(page: Any, basis: Basis, threshold: float | None) -> None:
    expected = by_hand(basis, threshold or 0.9)
    in_review = sum(expected[kind] for kind in REVIEW_KINDS)
    if threshold is not None:
        page.fill("#enough", f"{100 * threshold:.0f}")
    accepted, review = (page.inner_text(f".tile:nth-child({place}) .figure") for place in (1, 2))
    assert numbers(accepted) == [expected["accepted"], 150]
    assert numbers(review) == [in_review]
    assert sum(numbers(page.inner_text(".tile:nth-child(2) p:last-child"))) == in_review

    step = page.inner_text('[data-step="look"] p')
    assert numbers(step)[-1] == in_review
    cuts = page.eval_on_selector_all(".cut span", "all => all.map(one => one.textContent)")
    missing = sum(number - shown for shown, number in (numbers(text) for text in cuts if text))
    if missing:
        assert numbers(step) == [in_review - missing, in_review]

    form = page.locator("form[data-for=item-list]")
    for kind, number in {"": in_review, **{kind: expected[kind] for kind in REVIEW_KINDS}}.items():
        form.locator("select").select_option(kind)
        shown, of = numbers(form.locator("output").inner_text())
        assert of == number
        assert shown <= number
        assert page.locator("#item-list > li:not([hidden])").count() == shown
    form.locator("select").select_option("")

    classes = page.eval_on_selector_all(".classes [data-at^=class_]", "all => all.map(one => Number(one.textContent))")
    assert sum(classes) == expected["accepted"] + expected["accepted_unlabelled"]
    audit = page.text_content('[data-step="check"]')
    n_accepted = expected["accepted"] + expected["accepted_unlabelled"]
    assert f"--sample {min(50, n_accepted)}" in audit
    assert numbers(audit.partition("checked by")[0])[0] == min(50, n_accepted)
    assert page.heard == []


def test_the_table_of_thresholds_has_the_counts_of_the_slider(page: Any, basis: Basis) -> None:
    page.click("#threshold summary")
    rows = page.eval_on_selector_all(
        "#threshold tbody tr", "all => all.map(row => [...row.children].map(cell => cell.textContent))"
    )
    assert [numbers(row[0])[0] for row in rows] == [round(100 * threshold) for threshold in LISTED]
    for threshold, row in zip(LISTED, rows, strict=True):
        expected = by_hand(basis, threshold)
        assert numbers(row[1]) == [expected["accepted"], 150]
        assert numbers(row[2]) == [expected["accepted_unlabelled"], 110]


def test_the_forecast_begins_with_the_items_that_are_accepted(page: Any, basis: Basis) -> None:
    page.eval_on_selector_all("details", "all => all.forEach(one => one.open = true)")
    for threshold in LISTED:
        page.fill("#enough", f"{100 * threshold:.0f}")
        expected = by_hand(basis, threshold)
        share = (expected["accepted"] + expected["accepted_unlabelled"]) / 260
        first = page.locator(".curve:not([hidden]) tbody tr").first.inner_text().split("\t")
        assert numbers(first[0]) == [0]
        assert numbers(first[1])[0] == pytest.approx(100 * share, abs=0.51)


def test_a_page_on_which_everything_is_accepted(open_page: Callable[..., Any], tmp_path: Path) -> None:
    said = np.repeat(np.arange(30)[:, None] % 2, 3, 1)
    posterior = np.where(np.arange(2) == said[:, :1], 0.999, 0.001)
    _, _, html = report_on(basis_of(posterior, said))
    (tmp_path / "report.html").write_text(html, encoding="utf-8")
    page = open_page(tmp_path / "report.html")
    for threshold in (99, 50):
        page.fill("#enough", str(threshold))
        assert numbers(page.inner_text(".tile:nth-child(1) .figure")) == [30, 30]
    page.click("#people-list summary")
    assert page.heard == []


def test_a_page_on_which_nothing_is_accepted_says_why(open_page: Callable[..., Any], tmp_path: Path) -> None:
    said = np.array([[0, 0, 0], [1, 1, -1], [0, 1, -1], [1, 0, 0]])
    posterior = np.array([[0.88, 0.12], [0.2, 0.8], [0.5, 0.5], [0.6, 0.4]])
    _, _, html = report_on(basis_of(posterior, said))
    (tmp_path / "report.html").write_text(html, encoding="utf-8")
    page = open_page(tmp_path / "report.html")
    why = page.locator(".why").first
    assert "three agreeing labels, the most on an item, reach 88\N{NO-BREAK SPACE}%" in why.inner_text()
    page.fill("#enough", "85")
    assert not why.is_visible()
    assert numbers(page.inner_text(".tile:nth-child(1) .figure")) == [1, 4]
