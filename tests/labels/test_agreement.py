"""Agreement statistics: as published, as defined pair by pair, and their intervals by plain resampling.

Published values: Krippendorff 2011; Fleiss 1971; Gwet's R package irrCAC (its data sets cac.raw4raters and
cont3x3abstractors); Cohen 1968, table 1; Feinstein and Cicchetti 1990 (two tables with 85 % agreement).
"""

import doctest
import itertools
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import cohen_kappa_score

from crowdshot.errors import CrowdshotError
from crowdshot.labels import agreement
from crowdshot.labels.agreement import (
    cohen_kappa,
    fleiss_kappa,
    gwet_ac1,
    gwet_ac2,
    kappa_warning,
    krippendorff_alpha,
    pairwise_agreement,
    statistics,
)
from crowdshot.labels.annotations import Annotations

# Krippendorff, Computing Krippendorff's alpha-reliability (2011), section C: four observers, twelve units
KRIPPENDORFF = np.array(
    [
        [1, 2, 3, 3, 2, 1, 4, 1, 2, -1, -1, -1],
        [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, -1, 3],
        [-1, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, -1],
        [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, -1],
    ]
).T
# Fleiss's table of ten subjects, fourteen raters and five categories, as textbooks have it: kappa 0.210
FLEISS = [
    *([0, 0, 0, 0, 14], [0, 2, 6, 4, 2], [0, 0, 3, 5, 6], [0, 3, 9, 2, 0], [2, 2, 8, 1, 1]),
    *([7, 7, 0, 0, 0], [3, 2, 6, 3, 0], [2, 5, 3, 2, 2], [6, 5, 2, 1, 0], [0, 2, 2, 3, 7]),
]


def annotations(said, classes=None) -> Annotations:
    return Annotations.from_matrix(np.asarray(said), classes=classes)


def test_as_published():
    ann = annotations(KRIPPENDORFF)
    assert krippendorff_alpha(ann).value == pytest.approx(0.743, abs=5e-4)
    assert krippendorff_alpha(ann, ordered=True).value == pytest.approx(0.815, abs=5e-4)
    raters = annotations([np.repeat(range(5), row) for row in FLEISS], range(5))
    assert fleiss_kappa(raters).value == pytest.approx(0.210, abs=5e-4)


def of_table(counts) -> Annotations:
    """Return two annotators whose labels have these counts: rows of the first, columns of the second."""
    counts = np.array(counts)
    return annotations(np.repeat(np.argwhere(counts >= 0), counts.ravel(), axis=0), range(len(counts)))


ABSTRACTORS = [[13, 0, 0], [0, 20, 7], [0, 4, 56]]
SKEWED, EVEN = [[80, 10], [5, 5]], [[40, 9], [6, 45]]


def test_gwet_and_cohen_as_published():
    assert gwet_ac1(annotations(KRIPPENDORFF)).value == pytest.approx(0.77544, abs=5e-6)
    assert gwet_ac1(of_table(ABSTRACTORS)).value == pytest.approx(0.84933, abs=5e-6)
    assert cohen_kappa(of_table(ABSTRACTORS)) == pytest.approx(0.7964094, abs=5e-8)
    diagnoses = of_table([[44, 7, 9], [5, 20, 5], [1, 3, 6]])
    weights = 1 - np.array([[0, 1, 3], [1, 0, 6], [3, 6, 0]]) / 6
    assert cohen_kappa(diagnoses) == pytest.approx(0.492, abs=5e-4)
    assert cohen_kappa(diagnoses, weights) == pytest.approx(0.348, abs=5e-4)
    assert cohen_kappa(of_table(EVEN)) == pytest.approx(0.70, abs=5e-3)
    assert cohen_kappa(of_table(SKEWED)) == pytest.approx(0.32, abs=5e-3)
    assert gwet_ac1(of_table(SKEWED)).value == pytest.approx(0.81, abs=5e-3)


def test_a_dominant_class_is_reported():
    assert "Gwet's AC1 (0.81)" in kappa_warning(of_table(SKEWED))
    assert kappa_warning(of_table(EVEN)) is None
    assert kappa_warning(of_table([[95, 0], [0, 5]])) is None  # kappa is 1
    assert kappa_warning(annotations([[0, 0], [0, 0]], range(2))) is None


def gwet_plainly(said, w):
    """AC as Gwet defines it, one item at a time."""
    K = len(w)
    found, shares = [], []
    for row in said:
        labels = row[row >= 0]
        if len(labels):
            shares.append([(labels == k).mean() for k in range(K)])
        if len(labels) > 1:
            found.append(np.mean([w[a, b] for a, b in itertools.permutations(labels, 2)]))
    mean = np.mean(shares, 0)
    by_chance = w.sum() / (K * (K - 1)) * (mean * (1 - mean)).sum()
    return (np.mean(found) - by_chance) / (1 - by_chance)


@given(st.integers(0, 10_000), st.sampled_from([None, "linear", "quadratic"]))
def test_gwet_equals_its_definition(seed, weights):
    random = np.random.default_rng(seed)
    said = random.integers(-1, 4, size=(random.integers(3, 9), random.integers(2, 5)))
    said[0, :2], said[1, :2] = 0, (0, 1)
    ann = annotations(said, range(4))
    distance = np.abs(np.subtract.outer(range(4), range(4))) / 3
    w = np.eye(4) if weights is None else 1 - distance ** (1 if weights == "linear" else 2)
    found = gwet_ac1(ann) if weights is None else gwet_ac2(ann, weights)
    assert found.value == pytest.approx(gwet_plainly(said, w))
    assert found.low <= found.high <= 1 + 1e-12


@given(st.integers(0, 10_000), st.sampled_from([None, "linear", "quadratic"]))
def test_kappa_of_pairs_equals_that_of_scikit_learn(seed, weights):
    random = np.random.default_rng(seed)
    said = random.integers(-1, 4, size=(12, 4))
    said[:3, :2] = [[0, 1], [3, 2], [1, 1]]
    ann = annotations(said, range(4))
    table = agreement.pairs(ann, weights)
    assert table["shared"].is_monotonic_decreasing
    for row in table.itertuples():
        both = said[(said[:, row.one] >= 0) & (said[:, row.other] >= 0)][:, [row.one, row.other]]
        assert (row.shared, row.agreement) == (len(both), pytest.approx((both[:, 0] == both[:, 1]).mean()))
        if len(np.unique(both)) > 1:
            expected = cohen_kappa_score(*both.T, labels=range(4), weights=weights)
            assert row.kappa == pytest.approx(expected)
            assert row.ac1 == pytest.approx(gwet_plainly(both, np.eye(4)))
        else:
            assert np.isnan(row.kappa)
    square = agreement.matrix(ann, weights=weights, fewest=1)
    first = table.iloc[0]
    assert square.loc[first["one"], first["other"]] == square.loc[first["other"], first["one"]]
    np.testing.assert_equal(square.loc[first["one"], first["other"]], first["kappa"])


def test_pairs_with_few_shared_items_are_left_out_of_the_matrix():
    ann = annotations([[0, 0, -1]] * 6 + [[1, 1, 0]] * 6, range(2))
    found = agreement.matrix(ann, "agreement")
    assert found.loc[0, 1] == 1
    assert found.drop(index=[0, 1]).isna().all(axis=None)
    assert len(agreement.pairs(annotations([[0, -1], [-1, 1]], range(2)))) == 0


def test_wrong_arguments_of_agreement():
    ann = of_table(EVEN)
    for call, argument in [
        (lambda: gwet_ac2(ann, "cubic"), "weights"),
        (lambda: cohen_kappa(ann, np.eye(3)), "weights"),
        (lambda: cohen_kappa(ann, [[1, 2], [2, 1]]), "weights"),
        (lambda: agreement.matrix(ann, "alpha"), "of"),
        (lambda: cohen_kappa(annotations(KRIPPENDORFF)), "labels"),
    ]:
        with pytest.raises(CrowdshotError) as error:
            call()
        assert error.value.argument == argument


def test_the_examples():
    assert doctest.testmod(agreement).failed == 0


def test_by_hand():
    # items: a a b | a a | b b | c, which has one label and does not count
    ann = annotations([[0, 0, 1], [0, 0, -1], [1, 1, -1], [2, -1, -1]], range(3))
    assert pairwise_agreement(ann).value == pytest.approx((2 + 2 + 2) / (6 + 2 + 2))
    expected = (4 * 3 + 3 * 2) / (7 * 6)  # four a and three b
    observed = (2 / 2 + 2 + 2) / 7
    assert krippendorff_alpha(ann).value == pytest.approx((observed - expected) / (1 - expected))
    by_chance = (4 / 7) ** 2 + (3 / 7) ** 2
    assert fleiss_kappa(ann).value == pytest.approx(((1 / 3 + 1 + 1) / 3 - by_chance) / (1 - by_chance))


def pair_by_pair(said, ordered):
    """alpha as Krippendorff defines it: disagreements of pairs within units, and of all pairs there are."""
    units = [row[row >= 0] for row in said if (row >= 0).sum() > 1]
    values = np.concatenate(units)
    n_k = Counter(values.tolist())

    def distance(a, b):
        if not ordered:
            return float(a != b)
        low, high = min(a, b), max(a, b)
        return (sum(n_k[g] for g in range(low, high + 1)) - (n_k[low] + n_k[high]) / 2) ** 2

    within = sum(sum(distance(a, b) for a, b in itertools.permutations(unit, 2)) / (len(unit) - 1) for unit in units)
    anywhere = sum(distance(a, b) for a, b in itertools.permutations(values, 2)) / (len(values) - 1)
    return 1 - within / anywhere


@given(st.integers(0, 10_000), st.booleans())
def test_alpha_equals_its_definition(seed, ordered):
    random = np.random.default_rng(seed)
    said = random.integers(-1, 4, size=(random.integers(3, 9), random.integers(2, 5)))
    said[0, :2], said[1, :2] = 0, (0, 1)  # two labels somewhere, and two classes
    found = krippendorff_alpha(annotations(said, range(4)), ordered)
    assert found.value == pytest.approx(pair_by_pair(said, ordered))
    assert found.low <= found.high <= 1


@given(st.integers(0, 10_000))
def test_neither_order_nor_names_nor_single_labels_matter(seed):
    random = np.random.default_rng(seed)
    said = random.integers(-1, 3, size=(12, 4))
    said[:2, :2] = [[0, 0], [0, 1]]
    ann = annotations(said, range(3))
    shuffled = annotations(said[random.permutation(12)][:, random.permutation(4)], range(3))
    alone = annotations(np.vstack([said, [2, -1, -1, -1]]), range(3))
    for other, n in ((shuffled, 4), (alone, 3)):  # Gwet's AC counts the classes of items with one label too
        for one, two in zip(statistics(ann)[:n], statistics(other)[:n], strict=True):
            np.testing.assert_allclose(one[1:4], two[1:4], atol=1e-12)


def resampled(ann, compute, draws=1500):
    """The plain way: items are drawn with replacement, and everything is counted again."""
    random, votes = np.random.default_rng(5), ann.vote_counts()
    return np.quantile(
        [compute(votes[random.integers(len(votes), size=len(votes))]) for _ in range(draws)], [0.05, 0.95]
    )


@pytest.mark.parametrize("groups", [2_000, 60])
def test_intervals_are_those_of_drawing_items(monkeypatch, groups):
    random = np.random.default_rng(1)
    truth = random.integers(3, size=400)
    said = np.where(random.random((400, 4)) < 0.7, truth[:, None], random.integers(3, size=(400, 4)))
    said[random.random(said.shape) < 0.3] = -1
    ann = annotations(said, range(3))
    monkeypatch.setattr(agreement, "GROUPS", groups)  # with sixty groups the interval is rough, and no wider

    def pairwise(votes):
        m = votes.sum(1)
        return (votes * (votes - 1)).sum() / (m * (m - 1)).sum()

    found, expected = pairwise_agreement(ann), resampled(ann, pairwise)
    width = expected[1] - expected[0]
    np.testing.assert_allclose((found.low, found.high), expected, atol=(0.06 if groups == 2_000 else 0.25) * width)


def test_interpretations():
    perfect = annotations([[0, 0], [1, 1], [0, 0]])
    pairwise, alpha, kappa, _ = statistics(perfect)
    assert pairwise.sentence == "Two labels of the same item are equal 100\u00a0% of the time."
    assert alpha.sentence.endswith("this is reliable by Krippendorff's rule (0.8 or more).")
    assert kappa.sentence == "Almost perfect agreement beyond chance on the scale of Landis and Koch."
    _, alpha, kappa, _ = statistics(annotations([[0, 1], [1, 0]] * 9))
    assert "below 0.667, which Krippendorff requires even for tentative conclusions" in alpha.sentence
    assert kappa.sentence.startswith("No agreement beyond chance")
    assert "allows tentative conclusions only" in krippendorff_alpha(annotations(KRIPPENDORFF)).sentence


@pytest.mark.parametrize("said", [[[0, -1], [-1, 1]], [[0, 0], [0, 0]]])
def test_undefined_statistics(said):
    _, alpha, kappa, gwet = statistics(annotations(said, range(2)), ordered=True)
    assert gwet.value == (1 if said[0] == [0, 0] else None)  # AC is defined if all labels are equal
    for statistic in (alpha, kappa):
        assert statistic[1:4] == (None, None, None)
        assert statistic.sentence == "Undefined: no item has two labels, or all labels are equal."


@pytest.mark.parametrize("n_items", [5, 20, 100])
def test_perfect_agreement_on_few_items_is_not_certain(n_items):
    """All of n items agree with a probability of 5 % if each does with the probability q, as hand-computed here."""
    ann = Annotations.from_matrix([["a", "a"], ["b", "b"]] * n_items)
    q = 0.05 ** (1 / (2 * n_items))
    n = 4 * n_items  # labels
    alpha_by_chance = (n / 2) * (n / 2 - 1) * 2 / (n * (n - 1))
    by_chance = [0, alpha_by_chance, 0.5, 0.5]
    for found, e in zip(statistics(ann), by_chance, strict=True):
        assert found.value == pytest.approx(1)
        assert found.high == pytest.approx(1)
        assert found.low == pytest.approx((q - e) / (1 - e))
    assert [found.low for found in statistics(ann, ordered=True)] == pytest.approx([s.low for s in statistics(ann)])


@pytest.mark.slow
@pytest.mark.parametrize(("n_items", "K", "right"), [(12, 2, 0.9), (12, 4, 0.6), (30, 3, 0.8)])
def test_intervals_contain_the_agreement_of_many_items(n_items, K, right):
    random = np.random.default_rng(n_items)

    def crowd(n):
        truth = random.integers(K, size=n)
        labels = np.where(random.random((n, 3)) < right, truth[:, None], random.integers(K, size=(n, 3)))
        return Annotations.from_matrix(labels, classes=range(K))

    expected = [found.value for found in statistics(crowd(30_000))]
    inside = []
    for _ in range(100):
        found = [each for each in statistics(crowd(n_items)) if each.value is not None]
        inside.append([each.low <= value <= each.high for each, value in zip(found, expected, strict=True)])
    assert (np.mean(inside, axis=0) > 0.8).all()  # three standard errors below 0.9
