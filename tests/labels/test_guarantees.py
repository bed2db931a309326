"""Prediction sets and prediction-powered estimates: exact cases, coverage in simulations, bad input."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot import Annotations, CrowdAggregator, CrowdshotError, aggregate, guarantees
from crowdshot.errors import CrowdshotWarning
from crowdshot.labels.guarantees import conformal_sets, powered_shares


def crowd(seed, n=200, K=3, skill=0.7, labels=3):
    """Labels (n, 8) of which ``labels`` an item are there; a fifth of the items is taken for another class by all."""
    random = np.random.default_rng(seed)
    truth = random.integers(K, size=n)
    seems = np.where(random.random(n) < 0.2, (truth + 1) % K, truth)
    said = np.where(random.random((n, 8)) < skill, seems[:, None], random.integers(K, size=(n, 8)))
    said[random.random((n, 8)).argsort(1) >= labels] = -1
    return Annotations.from_matrix(said, classes=range(K)), truth, random


def sample(truth, n, random):
    return {int(row): int(truth[row]) for row in random.choice(len(truth), n, replace=False)}


# ---- conformal prediction ----


def test_the_threshold_is_the_exact_quantile():
    """Nine checked items at 80 %: rank 8 of 10 scores, so the second lowest probability of a true class counts."""
    of_truth = np.array([0.15, 0.25, 0.35, 0.45, 0.55, 0.65, 0.75, 0.85, 0.95])
    checked = np.column_stack([of_truth, 1 - of_truth])
    p = np.array([[0.24, 0.76], [0.25, 0.75], [0.5, 0.5], [0.9, 0.1]])
    sets = conformal_sets(p, checked, np.zeros(9, dtype=int), 0.8)
    assert sets.tolist() == [[False, True], [True, True], [True, True], [True, False]]


@pytest.mark.parametrize(("coverage", "least"), [(0.9, 9), (0.95, 19), (0.5, 1), (0.8, 4)])
def test_the_fewest_checked_items(coverage, least):
    p = np.full((3, 2), 0.5)
    assert conformal_sets(p, p[[0] * least], np.zeros(least, dtype=int), coverage).all()
    with pytest.raises(CrowdshotError) as caught:
        conformal_sets(p, p[[0] * (least - 1)], np.zeros(least - 1, dtype=int), coverage)
    assert caught.value.argument == "gold"
    assert caught.value.found == least - 1
    assert str(least) in caught.value.expected


@settings(deadline=None, max_examples=60)
@given(st.integers(5, 60), st.integers(2, 5), st.sampled_from([0.5, 0.75, 0.8]), st.integers(0, 10**6))
def test_leaving_out_each_item_covers_as_often_as_promised(n, K, coverage, seed):
    """Of n + 1 exchangeable items, each left out in turn, at least the promised share is covered."""
    random = np.random.default_rng(seed)
    p = random.dirichlet(np.full(K, 0.5), n + 1).round(2)  # with ties
    truth = random.integers(K, size=n + 1)
    covered = 0
    for row in range(n + 1):
        rest = np.delete(np.arange(n + 1), row)
        covered += int(conformal_sets(p[[row]], p[rest], truth[rest], coverage)[0, truth[row]])
    assert Fraction(covered, n + 1) >= Fraction(str(coverage))


def test_a_class_that_is_none_of_the_classes_counts_as_missed():
    p = np.tile([0.9, 0.1], (10, 1))
    strange = np.array([-1, -1, *[0] * 8])
    assert conformal_sets(p, p, strange, 0.8).all()
    assert not conformal_sets(p, p, strange, 0.7)[:, 1].any()


@pytest.mark.slow
def test_consensus_sets_cover_although_annotators_share_mistakes():
    covered, sizes = [], []
    for seed in range(150):
        ann, truth, random = crowd(seed)
        gold = sample(truth, 40, random)
        sets = guarantees.prediction_sets(aggregate.learned(ann), gold, 0.9).to_numpy()
        rest = np.setdiff1d(np.arange(len(truth)), list(gold))
        covered.append(sets[rest, truth[rest]].mean())
        sizes.append(sets[rest].sum(1).mean())
        assert (sets[list(gold)].sum(1) == 1).all()
    error = np.std(covered) / np.sqrt(len(covered))
    assert np.mean(covered) > 0.9 - 2.6 * error
    assert np.mean(covered) < 0.96, "the sets are larger than necessary"
    assert 1 < np.mean(sizes) < 2.9


def test_strata_are_calibrated_separately():
    ann, truth, _ = crowd(0, n=300)
    consensus = aggregate.learned(ann)
    strata = np.where(consensus.probabilities.max(1) > np.median(consensus.probabilities.max(1)), "high", "low")
    gold = {int(row): int(truth[row]) for name in ("high", "low") for row in np.flatnonzero(strata == name)[:30]}
    sets = guarantees.prediction_sets(consensus, gold, 0.9, strata=strata)
    for name in ("high", "low"):
        inside = strata == name
        part = np.array([row for row in gold if inside[row]])
        alone = conformal_sets(consensus.probabilities[inside], consensus.probabilities[part], truth[part], 0.9)
        alone[np.searchsorted(np.flatnonzero(inside), part)] = np.eye(3, dtype=bool)[truth[part]]
        np.testing.assert_array_equal(sets.to_numpy()[inside], alone)


# ---- prediction-powered inference ----


def test_the_estimate_by_hand():
    """Eight items, four checked: lambda is (4 * 0.5 + 10) / 14, where cov(y, f) / var(f) = 0.5."""
    f = np.array([0.2, 0.4, 0.6, 0.8, 1.0, 1.0, 1.0, 1.0])
    y = 0.5 * f[:4] + 0.3
    found = powered_shares(f[:, None], y[:, None], np.arange(4))[0]
    assert found.weight == pytest.approx(12 / 14)
    assert found.by_sample == pytest.approx(0.55)
    assert found.by_posterior == pytest.approx(0.75)
    assert found.share == pytest.approx(0.55 + 12 / 14 * 0.25)
    assert found.low < found.share < found.high


def test_equal_predictions_give_the_sample_mean():
    found = powered_shares(np.full((50, 1), 0.8), np.array([[1.0], [0], [1], [1]]), np.arange(4))[0]
    assert found.share == found.by_sample == 0.75


def test_checking_everything_leaves_no_uncertainty():
    ann, truth, _ = crowd(1, n=30)
    consensus = aggregate.learned(ann)
    found = guarantees.accuracy(consensus, truth.tolist())
    right = (consensus.labels == truth).mean()
    assert (found.share, found.low, found.high) == pytest.approx((right, right, right))


def test_all_right_is_not_certain():
    found = powered_shares(np.full((500, 1), 0.9), np.ones((20, 1)), np.arange(20))[0]
    assert found.share == 1
    assert 0.8 < found.low < 0.95
    assert found.high == 1


def test_strata_are_weighted_by_their_size():
    f = np.full((100, 1), 0.5)
    stratum = np.repeat([0, 1], [90, 10])
    rows = np.concatenate([np.arange(10), np.arange(90, 100)])
    y = np.concatenate([np.ones(10), np.zeros(10)])[:, None]
    assert powered_shares(f, y, rows, stratum)[0].share == pytest.approx(0.9)


@pytest.mark.parametrize("stratified", [False, True])
@pytest.mark.slow
def test_intervals_of_the_accuracy_cover_and_are_shorter_than_without_the_posterior(stratified):
    inside, gain = [], []
    for seed in range(300):
        ann, truth, random = crowd(seed, skill=0.8, labels=2 + seed % 4)
        consensus = aggregate.learned(ann)
        strata = consensus.probabilities.max(1) >= np.median(consensus.probabilities.max(1)) if stratified else None
        if stratified:
            gold = {}
            for value, n in ((False, 30), (True, 20)):
                gold |= {int(row): int(truth[row]) for row in random.choice(np.flatnonzero(strata == value), n, False)}
        else:
            gold = sample(truth, 50, random)
        found = guarantees.accuracy(consensus, gold, strata=strata)
        right = (consensus.labels == truth).mean()
        inside.append(found.low <= right <= found.high)
        gain.append(abs(found.by_sample - right) - abs(found.share - right))
    assert np.mean(inside) > 0.9 - 2.6 * np.sqrt(0.09 / len(inside))
    assert np.mean(gain) > 0


@pytest.mark.slow
@pytest.mark.parametrize("end", ["lowest", "highest"])
def test_items_that_were_not_drawn_from_all_are_noticed(end):
    """An audit draws accepted items, and questions are about uncertain ones."""
    ann, truth, random = crowd(0)
    consensus = aggregate.learned(ann)
    order = consensus.probabilities.max(1).argsort()
    part = order[-100:] if end == "highest" else order[:100]
    chosen = {int(row): int(truth[row]) for row in random.choice(part, 40, replace=False)}
    with pytest.warns(CrowdshotWarning, match="random") as caught:
        guarantees.accuracy(consensus, chosen)
    assert caught[0].message.argument == "gold"
    accepted = np.isin(np.arange(len(truth)), part)
    others = {int(row): int(truth[row]) for row in random.choice(np.flatnonzero(~accepted), 40, replace=False)}
    guarantees.accuracy(consensus, chosen | others, strata=accepted)  # a number was drawn in each part


def test_an_audit_sample_where_nearly_all_items_are_accepted():
    """Of 200 items 20 are not accepted: a random sample of 50 misses them with a chance of 0.3 %."""
    right, doubtful = [[0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1]], [[0, 1, 0, 1, 0, 1]]
    consensus = aggregate.learned(Annotations.from_matrix(right * 90 + doubtful * 20))
    confidence = consensus.probabilities.max(1)
    assert ((confidence >= 0.9) == (np.arange(200) < 180)).all()
    checked = {row: row % 2 for row in range(50)}
    with pytest.warns(CrowdshotWarning, match="20 items of 200") as caught:
        guarantees.accuracy(consensus, checked)
    assert len(caught) == 1
    assert caught[0].message.argument == "gold"
    guarantees.accuracy(consensus, {row: row % 2 for row in range(150, 200)})  # without a warning
    few = {row: row % 2 for row in range(20)}  # a chance of 11 %
    guarantees.accuracy(consensus, few)


def test_random_samples_are_not_warned_about():
    ann, truth, random = crowd(1)
    consensus = aggregate.learned(ann)
    for n in (2, 10, 50, 199):
        for _ in range(20):
            guarantees.accuracy(consensus, sample(truth, n, random))


@pytest.mark.slow
def test_intervals_of_class_shares_cover_and_shares_sum_to_one():
    inside = []
    for seed in range(150):
        ann, truth, random = crowd(seed)
        shares = guarantees.class_shares(aggregate.learned(ann), sample(truth, 50, random)).set_index("class")
        assert shares["share"].sum() == pytest.approx(1)
        actual = pd.Series(truth).value_counts(normalize=True).reindex(shares.index, fill_value=0)
        inside += ((shares["low"] <= actual) & (actual <= shares["high"])).tolist()
    assert np.mean(inside) > 0.87


def test_a_class_that_only_gold_names_is_added():
    ann, truth, _ = crowd(2, n=40)
    gold = dict(enumerate(["other", "other", *truth[2:20].tolist()]))
    with pytest.warns(CrowdshotWarning, match="other"):
        shares = guarantees.class_shares(aggregate.learned(ann), gold)
    assert shares["class"].tolist() == [0, 1, 2, "other"]
    assert shares["share"].iloc[3] > 0
    with pytest.warns(CrowdshotWarning, match="other"):
        assert guarantees.accuracy(aggregate.learned(ann), gold).share < 1


# ---- bad input ----


def test_a_consensus_that_was_fitted_with_gold_is_refused():
    ann, truth, random = crowd(3, n=40)
    gold = sample(truth, 20, random)
    guarantees.accuracy(CrowdAggregator().fit(ann), gold)
    for function in (guarantees.accuracy, guarantees.class_shares, guarantees.prediction_sets):
        with pytest.raises(CrowdshotError) as caught:
            function(CrowdAggregator().fit(ann, gold=gold), gold)
        assert caught.value.argument == "fitted"


@pytest.mark.parametrize(
    ("gold", "arguments", "argument"),
    [
        ({}, {}, "gold"),
        ({"nobody": 1}, {}, "gold"),
        ({0: 1}, {}, "gold"),
        ({0: 1, 1: 1}, {"level": 1.5}, "level"),
        ({0: 1, 1: 1}, {"strata": [0, 1]}, "strata"),
        ({0: 1, 1: 1}, {"strata": [0] * 20 + [1] * 20}, "gold"),
    ],
)
def test_bad_input_of_estimates(gold, arguments, argument):
    consensus = aggregate.learned(crowd(4, n=40)[0])
    with pytest.raises(CrowdshotError) as caught:
        guarantees.accuracy(consensus, gold, **arguments)
    assert caught.value.argument == argument


@pytest.mark.parametrize("coverage", [0, 1, -0.1, True, "0.9", float("nan")])
def test_bad_coverage(coverage):
    ann, truth, _ = crowd(5, n=40)
    with pytest.raises(CrowdshotError) as caught:
        guarantees.prediction_sets(aggregate.learned(ann), dict(enumerate(truth.tolist())), coverage)
    assert caught.value.argument == "coverage"


def test_something_else_than_a_consensus_is_refused():
    with pytest.raises(CrowdshotError) as caught:
        guarantees.accuracy([0.5, 0.5], {0: 1})
    assert caught.value.argument == "fitted"


# ---- temperature scaling ----


@pytest.mark.parametrize("true_temperature", [0.5, 1.0, 3.0])
def test_many_checked_items_give_the_true_temperature(true_temperature):
    random = np.random.default_rng(0)
    p = random.dirichlet(np.full(4, 0.3), 6_000)
    right = p ** (1 / true_temperature)
    right /= right.sum(1, keepdims=True)
    truth = (right.cumsum(1) > random.random((6_000, 1))).argmax(1)
    assert guarantees.temperature(p, truth) == pytest.approx(true_temperature, rel=0.1)


def test_the_temperature_by_hand():
    """Two classes, all confidences 0.8: the loss of T is the prior's and that of p = sigmoid(log(4) / T)."""
    n, hits = 20, 13
    p, truth = np.tile([0.8, 0.2], (n, 1)), (np.arange(n) >= hits).astype(int)
    grid = np.linspace(0.2, 10, 100_000)
    q = 1 / (1 + np.exp(-np.log(4) / grid))
    loss = (np.log(grid) / 0.5) ** 2 / 2 - hits * np.log(q) - (n - hits) * np.log(1 - q)
    assert guarantees.temperature(p, truth) == pytest.approx(grid[loss.argmin()], rel=1e-3)


def test_few_items_change_little_and_unknown_classes_raise_the_temperature():
    p = np.tile([0.9, 0.1], (10, 1))
    assert guarantees.temperature(p[:1], np.zeros(1, dtype=int)) == pytest.approx(1, abs=0.1)
    right = guarantees.temperature(p, np.zeros(10, dtype=int))
    assert right < 1 < guarantees.temperature(p, np.array([0] * 6 + [-1] * 4))


@pytest.mark.slow
def test_calibrated_probabilities_fit_the_other_items():
    """Where all are misled by a fifth of the items, confidence is too high; 50 checked items correct it."""
    before, after, loss = [], [], []
    for seed in range(60):
        ann, truth, random = crowd(seed, labels=6, skill=0.8)
        gold = sample(truth, 50, random)
        consensus = aggregate.learned(ann)
        found = guarantees.calibrated(consensus, gold).to_numpy()
        rest = np.setdiff1d(np.arange(len(truth)), list(gold))
        assert (found[list(gold)].argmax(1) == truth[list(gold)]).all()
        p, q = consensus.probabilities[rest], found[rest]
        np.testing.assert_array_equal(p.argmax(1), q.argmax(1))
        right = (p.argmax(1) == truth[rest]).mean()
        before.append(p.max(1).mean() - right)
        after.append(q.max(1).mean() - right)
        pick = np.arange(len(rest)), truth[rest]
        loss.append(np.log(p[pick]).mean() - np.log(q[pick]).mean())
    assert abs(np.mean(after)) < 0.02 < np.mean(before)
    assert np.mean(loss) < 0


def test_a_checked_item_stands_for_its_stratum():
    """Nine of ten items are in a stratum of which all are right, the others in one of which none is."""
    p = np.tile([0.8, 0.2], (200, 1))
    labels = np.array([[0, 0, 0, 0, 1]] * 200)
    consensus = aggregate.majority_vote(Annotations.from_matrix(labels))
    np.testing.assert_allclose(consensus.probabilities, p)
    strata = np.arange(200) % 10 == 0
    gold = {int(row): int(strata[row]) for row in [*np.flatnonzero(strata)[:10], *np.flatnonzero(~strata)[:10]]}
    found = guarantees.calibrated(consensus, gold, strata=strata).to_numpy()[-1, 0]
    assert found > guarantees.calibrated(consensus, gold).to_numpy()[-1, 0] + 0.1
    with pytest.raises(CrowdshotError) as caught:
        guarantees.calibrated(consensus, {1: 0, 2: 0}, strata=strata)
    assert caught.value.argument == "gold"


def test_spellings_of_the_true_classes():
    """A label that is no class is a mistake of the consensus, so that a misspelled one would ruin all results."""
    labels = [["cat", "cat", "cat"], ["dog", "dog", "dog"]] * 20
    consensus = aggregate.learned(Annotations.from_matrix(labels))
    gold = {item: ["cat", "dog"][item % 2] for item in range(20)}
    estimates = (guarantees.accuracy, guarantees.class_shares, guarantees.prediction_sets, guarantees.calibrated)
    for estimate in estimates:
        with pytest.raises(CrowdshotError) as caught:
            estimate(consensus, {**gold, 3: "Dog"})
        assert (caught.value.argument, caught.value.found) == ("gold", "Dog")
        with pytest.raises(CrowdshotError) as caught:
            estimate(consensus, dict.fromkeys(gold, "owl"))
        assert caught.value.found == "owl"
        with pytest.warns(CrowdshotWarning, match="'owl'"):
            estimate(consensus, {**gold, 3: "owl"})


def test_whole_numbers_of_a_table_with_gaps_are_classes():
    consensus = aggregate.learned(Annotations.from_matrix([[0, 0, 0], [1, 1, 1]] * 20))
    gold = pd.Series([item % 2 if item < 20 else None for item in range(40)])  # pandas makes them 0.0 and 1.0
    assert guarantees.accuracy(consensus, gold).by_sample == pytest.approx(1)
