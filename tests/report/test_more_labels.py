"""Test the curve of accepted items by number of further labels."""

import re

import numpy as np
import pytest

from crowdshot.labels import labels_needed
from crowdshot.labels.labels_needed import Forecast
from crowdshot.report.page.next_steps import forecast_sentence
from crowdshot.report.page.page_writer import texts_at
from crowdshot.report.page.thresholds import LISTED, Curve, Plot, curves, nearest

from .made import basis_of, coin, crowd, report_on

STRAIGHT = np.linspace(0.62, 1.0, 11)
CURVE = Curve(0.9, np.arange(11) * 25.0, STRAIGHT, STRAIGHT**0.5, STRAIGHT**2, Forecast(0.95, 200, 100, None))


def uncertain(n_items=60):
    labels, truth = crowd([coin(0.8, 2)] * 4, n_items)
    sure = np.random.default_rng(0).uniform(0.55, 0.99, n_items)
    return basis_of(np.where(np.eye(2)[truth] > 0, sure[:, None], 1 - sure[:, None]), labels)


def test_curves_equal_the_forecasts():
    basis = uncertain()
    found = curves(basis)
    assert [curve.accepted_at for curve in found] == list(LISTED)
    for curve in found:
        assert curve.forecast == labels_needed.forecast(basis.annotations, basis.posterior, 0.95, curve.accepted_at)
        assert curve.expected[0] == curve.best[0] == pytest.approx((basis.confidence >= curve.accepted_at).mean())
        np.testing.assert_allclose(np.diff(curve.labels), 6)  # a tenth of sixty items
    assert nearest(found, 0.88).accepted_at == 0.9
    assert nearest(found, 0.97).accepted_at == 0.95


def test_a_curve_as_paths():
    plot = Plot(CURVE)
    assert plot.floor == 0.3  # the worst case starts at 0.62² = 0.38
    assert plot.shares == [1.0, 0.8, 0.6, 0.4]
    assert plot.counts == [0, 50, 100, 150, 200, 250]
    points = re.findall(r"([\d.]+) ([\d.]+)", plot.line)
    assert len(points) == 11
    assert [float(number) for number in points[0]] == [68, pytest.approx(14 + 240 * (1 - (0.62 - 0.3) / 0.7), abs=0.06)]
    assert [float(number) for number in points[-1]] == [68 + 640, 14]
    assert plot.band.count("L") == 21
    assert plot.band.endswith("Z")


@pytest.mark.parametrize(("most", "marks"), [(3, [0, 1, 2, 3]), (50, [0, 10, 20, 30, 40, 50]), (9000, 5)])
def test_round_numbers_on_the_axis(most, marks):
    counts = Plot(CURVE._replace(labels=np.linspace(0, most, 11))).counts
    assert counts == marks or len(counts) == marks


def test_the_sentence_follows_the_threshold():
    found, page, html = report_on(uncertain())
    sentence = forecast_sentence(found, 0.9)
    assert re.match(
        r"About [\d,]+ more labels are needed until 95\u00a0% of the items are accepted \(\d+ at best, ", sentence
    )
    assert sentence.replace("\u00a0", " ") in page.text
    assert texts_at(found, 0.97)["curve"] == "95\u00a0%"
    assert texts_at(found, 0.5)["buy"] == "95\u00a0% of the items or more are already accepted."
    assert html.count('<figure class="curve"') == 6
    assert len(re.findall(r"<figure class=\"curve\"[^>]* hidden>", html)) == 5
