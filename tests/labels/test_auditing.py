"""Audits of accepted labels: the sample, the estimate with its interval, and corrected confidences."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom, binomtest

from crowdshot.labels.auditing import Checked, Stratum, by_threshold, correct, draw, estimate, evaluate


def population(n: int = 600, seed: int = 0) -> tuple[list[str], list[str], np.ndarray]:
    random = np.random.default_rng(seed)
    return [f"i{i}" for i in range(n)], ["abc"[i % 3] for i in range(n)], random.beta(8, 1, n)


# ---- the sample ----


def test_the_sample_is_in_proportion_to_strata_and_classes() -> None:
    items, labels, confidence = population()
    sample = draw(items, labels, confidence, 60)
    accepted = confidence >= 0.9
    assert [stratum.low for stratum in sample.strata] == [0.9, 0.95, 0.99]
    assert sum(stratum.items for stratum in sample.strata) == accepted.sum()
    assert sum(stratum.drawn for stratum in sample.strata) == len(sample.rows) == len(set(sample.rows)) == 60
    assert accepted[sample.rows].all()
    for place, stratum in enumerate(sample.strata):
        inside = (confidence >= stratum.low) & (confidence < stratum.high)
        assert stratum.confidence == pytest.approx(confidence[inside].mean())
        assert abs(stratum.drawn - 60 * inside.sum() / accepted.sum()) <= 1
        rows = sample.rows[sample.stratum == place]
        assert len(rows) == stratum.drawn
        assert inside[rows].all()
        for name in "abc":
            of_class = np.array([label == name for label in labels])
            expected = stratum.drawn * (inside & of_class).sum() / inside.sum()
            assert abs(of_class[rows].sum() - expected) < 1.5


def test_the_sample_depends_on_names_and_the_seed_only() -> None:
    items, labels, confidence = population()
    order = np.random.default_rng(1).permutation(len(items))
    first = draw(items, labels, confidence, 40)
    again = draw([items[i] for i in order], [labels[i] for i in order], confidence[order], 40)
    assert [items[i] for i in first.rows] == [items[order[i]] for i in again.rows]
    assert set(first.rows) != set(draw(items, labels, confidence, 40, seed=1).rows)


@given(st.integers(1, 200), st.integers(0, 1000), st.integers(1, 60), st.integers(0, 60))
def test_a_larger_sample_contains_a_smaller_one(n: int, seed: int, size: int, more: int) -> None:
    items, labels, confidence = population(n, seed)
    small = draw(items, labels, confidence, size, 0.6, seed)
    large = draw(items, labels, confidence, size + more, 0.6, seed)
    assert set(small.rows) <= set(large.rows)
    assert len(small.rows) == min(size, (confidence >= 0.6).sum())
    for sample in (small, large):
        assert sum(each.drawn for each in sample.strata) == len(sample.rows)
        expected = [len(sample.rows) * each.items / max((confidence >= 0.6).sum(), 1) for each in sample.strata]
        assert all(abs(each.drawn - n) < 3 for each, n in zip(sample.strata, expected, strict=True))


def test_strata_without_answers_are_named() -> None:
    strata = [Stratum(0.9, 0.95, 40, 5, 0.92), Stratum(0.95, np.inf, 60, 5, 0.97)]
    checked = [Checked(f"i{n}", 1, "a", "a", 0.97, True) for n in range(5)]
    assert evaluate(strata, checked, 0.9).unchecked == strata[:1]
    assert evaluate(strata, [*checked, Checked("j", 0, "a", "b", 0.92, False)], 0.9).unchecked == []


def test_every_item_is_drawn_equally_often() -> None:
    items, labels, confidence = population(60)
    n_accepted = int((confidence >= 0.5).sum())
    drawn = np.zeros(60)
    for seed in range(2_000):
        drawn[draw(items, labels, confidence, 12, 0.5, seed).rows] += 1
    share = drawn[confidence >= 0.5] / 2_000
    assert share.mean() == pytest.approx(12 / n_accepted)
    assert np.abs(share - 12 / n_accepted).max() < 0.1  # strata round 12 items; within a stratum shares are equal


def test_small_strata_are_merged() -> None:
    confidence = np.array([0.91] * 98 + [0.97] * 2)
    sample = draw([str(i) for i in range(100)], ["a"] * 100, confidence, 20)
    assert [(stratum.low, stratum.items) for stratum in sample.strata] == [(0.9, 100)]
    confidence = np.array([0.91] * 2 + [0.97] * 98)
    sample = draw([str(i) for i in range(100)], ["a"] * 100, confidence, 20)
    assert [(stratum.low, stratum.items) for stratum in sample.strata] == [(0.9, 100)]


def test_few_accepted_items_and_known_ones() -> None:
    confidence = np.array([0.95, 0.99, 0.5, 0.92])
    known = np.array([False, True, False, False])
    sample = draw(list("wxyz"), ["a"] * 4, confidence, 50, known=known)
    assert sorted(sample.rows) == [0, 3]
    empty = draw(list("wxyz"), ["a"] * 4, confidence, 50, threshold=0.999)
    assert empty.strata == []
    assert len(empty.rows) == 0


# ---- the estimate ----


def test_one_stratum_is_clopper_and_pearson() -> None:
    accuracy, low, high = estimate([10_000], [50], [47])
    expected = binomtest(47, 50).proportion_ci(0.9, "exact")
    assert accuracy == 0.94
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_strata_are_weighted_by_their_size() -> None:
    accuracy, low, high = estimate([900, 100], [10, 10], [10, 5])
    assert accuracy == pytest.approx(0.9 * 1 + 0.1 * 0.5)
    assert 0 < low < accuracy < high < 1


def test_proportional_strata_count_as_one_sample() -> None:
    _, low, high = estimate([600, 400], [60, 40], [60, 30])
    expected = binomtest(90, 100).proportion_ci(0.9, "exact")
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)


def test_when_everything_is_checked_nothing_is_uncertain() -> None:
    assert estimate([7, 5], [7, 5], [7, 3]).tolist() == pytest.approx([10 / 12] * 3)


def test_unchecked_strata_are_merged_with_a_neighbour() -> None:
    assert estimate([50, 50, 100], [0, 10, 10], [0, 8, 10]).tolist() == estimate([100, 100], [10, 10], [8, 10]).tolist()
    accuracy, low, high = estimate([5], [0], [0])
    assert np.isnan(accuracy)
    assert (low, high) == (0, 1)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 500), st.integers(0, 60), st.integers(0, 60)), min_size=1, max_size=5))
def test_estimates_are_ordered_shares(strata: list[tuple[int, int, int]]) -> None:
    sizes, checked, right = zip(*((n, min(m, n), min(x, m, n)) for n, m, x in strata), strict=True)
    if sum(checked):
        accuracy, low, high = estimate(sizes, checked, right)
        assert 0 <= low <= accuracy + 1e-9
        assert accuracy <= high + 1e-9 <= 1 + 1e-9


def coverage(sizes: list[int], checked: list[int], accuracy: list[float]) -> tuple[float, float]:
    """The probabilities that the lower and the upper end are on the right side of the truth, exactly."""
    truth = float(np.dot(sizes, accuracy)) / sum(sizes)
    lower = upper = 0.0
    for counts in np.ndindex(*(m + 1 for m in checked)):
        p = float(np.prod(binom.pmf(counts, checked, accuracy)))
        if p > 1e-9:
            _, low, high = estimate(sizes, checked, list(counts))
            lower += p * (low <= truth)
            upper += p * (high >= truth)
    return lower, upper


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sizes", "checked", "accuracy"),
    [
        ([500, 500], [25, 25], [0.97, 1.0]),
        ([500, 500], [25, 25], [0.75, 0.95]),
        ([500, 500], [15, 15], [0.9, 0.9]),
        ([800, 200], [40, 10], [0.9, 0.5]),
        ([300, 300, 400], [9, 9, 12], [0.7, 0.85, 0.99]),
        ([1_000], [50], [0.95]),
    ],
)
def test_the_interval_covers_the_accuracy(sizes: list[int], checked: list[int], accuracy: list[float]) -> None:
    """Sums over all possible results of the design; each end holds with probability 0.95."""
    lower, upper = coverage(sizes, checked, accuracy)
    assert lower >= 0.95
    assert upper >= 0.95


@pytest.mark.slow
def test_the_interval_covers_in_repeated_audits() -> None:
    """Draws 800 audits of one population without replacement, with errors that depend on confidence and class."""
    random = np.random.default_rng(3)
    items, labels, confidence = population(900, 3)
    right = random.random(900) < np.where(np.array(labels) == "a", confidence - 0.25, confidence)
    accepted = confidence >= 0.9
    truth = right[accepted].mean()
    inside = 0
    for seed in range(800):
        sample = draw(items, labels, confidence, 50, seed=seed)
        counts = [
            (stratum.items, stratum.drawn, int(right[sample.rows[sample.stratum == place]].sum()))
            for place, stratum in enumerate(sample.strata)
        ]
        _, low, high = estimate(*map(list, zip(*counts, strict=True)))
        inside += low <= truth <= high
    assert inside / 800 > 0.9 - 3 * (0.9 * 0.1 / 800) ** 0.5


# ---- thresholds ----

STRATA = [Stratum(0.9, 0.95, 200, 40, 0.92), Stratum(0.95, 0.99, 200, 40, 0.97), Stratum(0.99, np.inf, 100, 20, 0.995)]


def test_each_threshold_is_about_the_labels_above_it() -> None:
    found = by_threshold(STRATA, [40, 40, 20], [30, 38, 20])
    assert [(each.threshold, each.items, each.checked, each.right) for each in found] == [
        (0.9, 500, 100, 88),
        (0.95, 300, 60, 58),
        (0.99, 100, 20, 20),
    ]
    assert found[0].confidence == pytest.approx((200 * 0.92 + 200 * 0.97 + 100 * 0.995) / 500)
    assert found[1].accuracy == pytest.approx(58 / 60)
    assert all(each.at_least < each.low for each in found)  # holds for all thresholds together


def checked(right: list[int]) -> list[Checked]:
    return [
        Checked(f"{place}-{number}", place, "a", "a" if number < n_right else "b", stratum.confidence, number < n_right)
        for place, (stratum, n_right) in enumerate(zip(STRATA, right, strict=True))
        for number in range(stratum.drawn)
    ]


def test_the_lowest_threshold_that_keeps_the_promise() -> None:
    audit = evaluate(STRATA, checked([30, 40, 20]), 0.9)
    assert audit.keeps is not None
    assert audit.keeps.threshold == 0.95
    assert [each.item for each in audit.mistakes] == [f"0-{number}" for number in range(30, 40)]
    everything = evaluate(STRATA, checked([40, 40, 20]), 0.9)
    assert everything.keeps is everything.overall
    assert evaluate(STRATA, checked([20, 20, 10]), 0.9).keeps is None


def test_strata_without_answers_have_no_threshold_of_their_own() -> None:
    audit = evaluate(STRATA, [each for each in checked([30, 40, 20]) if each.stratum < 2], 0.9)
    assert [each.threshold for each in audit.estimates] == [0.9, 0.95]
    assert audit.overall.items == 500


# ---- corrected confidences ----


def test_overconfidence_is_corrected_and_the_order_kept() -> None:
    random = np.random.default_rng(0)
    confidence = random.uniform(0.9, 0.999, 400)
    right = random.random(400) < 0.8
    band = correct(np.array([0.9, 0.95, 0.99]), confidence, right)
    assert (np.diff(band.middle) >= 0).all()
    assert ((band.low <= band.middle) & (band.middle <= band.high)).all()
    assert band.middle[1] == pytest.approx(0.8, abs=0.06)
    assert band.low[1] < 0.8 < band.high[1]


def test_few_answers_leave_a_wide_interval_near_the_confidence() -> None:
    band = correct(np.array([0.95]), np.array([0.95]), np.array([True]))
    assert band.high[0] - band.low[0] > 0.1
    assert 0.8 < band.middle[0] < 0.98


@pytest.mark.slow
def test_the_band_covers_the_true_curve() -> None:
    random, inside = np.random.default_rng(1), []
    for _ in range(150):
        a, b = random.normal(0, 1), np.exp(random.normal(0, 0.5))
        confidence = random.uniform(0.9, 0.99, 80)
        truth = 1 / (1 + np.exp(-(a + b * np.log(confidence / (1 - confidence)))))
        band = correct(confidence, confidence, random.random(80) < truth)
        inside.append(((band.low <= truth) & (truth <= band.high)).mean())
    assert np.mean(inside) > 0.85
