"""A page on many items: what of them is on it, chosen how, and numbers that are of all."""

import numpy as np
import pytest

from crowdshot.classifier import diagnostics
from crowdshot.labels.consensus import REVIEW_KINDS
from crowdshot.report.page import item_map

from .made import coin, fitted_crowd, report_on

N = 1_200


@pytest.fixture(scope="module")
def made():
    """Half-good people, three of whom label each item; limits as if 1,200 items were very many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(diagnostics, "MOST", 100)
        patch.setattr(item_map, "MOST_POINTS", 300)
        return report_on(fitted_crowd([coin(0.6, 3)] * 6, N, per_item=3, spread=4.0))


@pytest.mark.slow
def test_it_says_how_many_of_how_many_items_are_on_it(made):
    found, page, _ = made
    kinds = found.of_kind()
    assert found.n_items == N
    shown = sum(item.kind() == "open" for item in found.items)
    assert 60 <= shown < kinds["open"] / 2
    cut = f"Not accepted: the page shows the {shown} most uncertain of {kinds['open']:,} items;"
    assert cut in page.text
    assert "300 of 1,200 items are shown: labelled items first, then a random sample." in page.text
    assert "until 120 of 1,200 items, a random sample from each class, had been hidden." in page.text
    assert len(found.map.rows) == 300


@pytest.mark.slow
def test_its_numbers_are_of_all_items_and_each_that_is_shown_is_told_in_full(made):
    found, _, _ = made
    level = found.accepted()
    assert sum(each.size for each in found.class_facts) == N
    assert level.labelled + found.of_kind()["open"] == N
    assert sum(person.n_labels for person in found.people) == 3 * N == found.n_labels
    assert len(found.items) <= 60 * len(REVIEW_KINDS)
    assert all(item.predicted is not None for item in found.items)  # hidden too, though no lot fell on them
    assert found.check.of == 120
    assert np.isfinite([item.uncertainty for item in found.items]).all()


@pytest.mark.slow
def test_a_browser_shows_it(made, open_page, tmp_path):
    path = tmp_path / "report.html"
    path.write_text(made[2], encoding="utf-8")
    page = open_page(path)
    assert page.heard == []
    assert page.inner_text(".tile .figure").split() == [f"{made[0].accepted().labelled:,}", "of", "1,200"]
    assert page.locator("#item-list > li:visible").count() == 12
    page.click("text=Show the map")
    assert "300 of 1,200 items are shown" in page.inner_text("#map")
