"""Rankings from pairwise preferences: the model against a plain likelihood, and tables as people write them."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import norm

from crowdshot import preferences
from crowdshot.errors import CrowdshotError, CrowdshotWarning
from crowdshot.model import bradley_terry
from crowdshot.model.bradley_terry import RELIABILITY_SD, SCORE_SD, TIE_SD, Comparisons


def simulated(seed: int, n_items: int = 6, per_annotator: int = 60, reliability=(0.0, 1.0, 1.0, 1.0), ties: float = 0):
    """Return comparisons as a table, and the true scores."""
    random = np.random.default_rng(seed)
    score = np.linspace(1.2, -1.2, n_items)
    annotator = np.repeat(np.arange(len(reliability)), per_annotator)
    first = random.integers(n_items, size=len(annotator))
    second = (first + random.integers(1, n_items, size=len(annotator))) % n_items
    u = np.asarray(reliability)[annotator] * (score[first] - score[second])
    winner = np.where(random.random(len(u)) < 1 / (1 + np.exp(-u)), "model_a", "model_b").astype(object)
    winner[random.random(len(u)) < ties] = "tie"
    table = {"model_a": first, "model_b": second, "winner": winner, "judge": annotator}
    return pd.DataFrame(table).astype(str), score


def quiet(*args, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrowdshotWarning)
        return preferences.fit(*args, **options)


def scores(found) -> dict[str, float]:
    return dict(zip(found.ranking_["item"], found.ranking_["score"], strict=True))


@pytest.mark.parametrize("ties", [0, 0.25])
def test_the_estimate_maximises_a_likelihood_written_row_by_row(ties: float) -> None:
    table, _ = simulated(1, n_items=4, per_annotator=40, ties=ties)
    a, b, who = (table[name].astype(int).to_numpy() for name in ("model_a", "model_b", "judge"))
    is_tie = (table["winner"] == "tie").to_numpy()
    center = np.log(2 * (is_tie.sum() + 0.5) / ((~is_tie).sum() + 0.5))

    def negative(x):
        s, gamma, theta = x[:4], x[4:8], x[8:]
        total = s @ s / 2 / SCORE_SD**2 + ((gamma - 1) ** 2).sum() / 2 / RELIABILITY_SD**2
        total += ((theta - center) ** 2).sum() / 2 / TIE_SD**2
        for i, j, r, winner in zip(a, b, who, table["winner"], strict=True):
            u = gamma[r] * (s[i] - s[j])
            weights = {"model_a": np.exp(u / 2), "model_b": np.exp(-u / 2)}
            if ties:
                weights["tie"] = np.exp(theta[r])
            total -= np.log(weights[winner] / sum(weights.values()))
        return total

    start = np.concatenate([np.zeros(4), np.ones(4), np.full(4 if ties else 0, center)])
    x = minimize(negative, start, method="BFGS", options={"gtol": 1e-5}).x
    mean = x[4:8].mean()  # all annotators have as many comparisons
    found = quiet(table)
    assert [scores(found)[str(i)] for i in range(4)] == pytest.approx(mean * x[:4], abs=1e-4)
    reliability = found.annotators_.set_index("annotator")["reliability"]
    assert [reliability[str(r)] for r in range(4)] == pytest.approx(x[4:8] / mean, abs=1e-4)


def test_two_items_and_one_annotator_as_computed_by_hand() -> None:
    rows = [{"a": "x", "b": "y", "winner": "x"}] * 300 + [{"a": "y", "b": "x", "winner": "y"}] * 100
    found = preferences.fit(rows)
    difference = scores(found)["x"] - scores(found)["y"]
    assert difference == pytest.approx(np.log(3), rel=0.02)  # the prior is weak
    x = found.ranking_.iloc[0]
    error = (x["high"] - x["low"]) / 2 / norm.ppf(0.95)
    assert error == pytest.approx(np.sqrt(1 / 300 + 1 / 100) / 2, rel=0.02)  # of half the difference
    assert (x["rank"], x["rank_low"], x["rank_high"], x["wins"], x["losses"]) == (1, 1, 1, 300, 100)
    assert found.annotators_["reliability"].isna().all()  # nobody to compare with


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 1000), st.integers(0, 1000))
def test_order_and_sides_make_no_difference(seed: int, shuffle: int) -> None:
    table, _ = simulated(seed, per_annotator=15, ties=0.1)
    random = np.random.default_rng(shuffle)
    other = table.sample(frac=1, random_state=random).reset_index(drop=True)
    swapped = random.random(len(other)) < 0.5
    other.loc[swapped, ["model_a", "model_b"]] = other.loc[swapped, ["model_b", "model_a"]].to_numpy()
    turned = other["winner"].map({"model_a": "model_b", "model_b": "model_a", "tie": "tie"})
    other["winner"] = other["winner"].mask(swapped, turned)
    one, two = quiet(table), quiet(other)
    pd.testing.assert_frame_equal(one.ranking_, two.ranking_, check_exact=True)
    pd.testing.assert_frame_equal(one.annotators_, two.annotators_, check_exact=True)


def test_scores_of_a_group_have_the_sum_0_and_comparisons_the_mean_reliability_1() -> None:
    found = quiet(simulated(5, ties=0.2)[0])
    people = found.annotators_
    assert found.ranking_["score"].sum() == pytest.approx(0, abs=1e-8)
    assert np.average(people["reliability"], weights=people["comparisons"]) == pytest.approx(1)


def test_a_guesser_is_found_and_one_who_reverses_the_scale_is_negative() -> None:
    table, truth = simulated(2, per_annotator=150, reliability=(0, -1, 1, 1, 1, 1))
    with pytest.warns(CrowdshotWarning, match="better than chance"):
        found = preferences.fit(table)
    assert list(found.annotators_["annotator"][:2]) == ["1", "0"]
    people = found.annotators_.set_index("annotator")
    assert people["high"]["1"] < 0
    assert people["low"]["0"] < 0 < people["high"]["0"] < people["low"][["2", "3", "4", "5"]].min()
    assert list(found.ranking_["item"]) == [str(i) for i in range(len(truth))]


@pytest.mark.slow
def test_intervals_cover_true_scores_and_ranks() -> None:
    covered, ranks = [], []
    for seed in range(40):
        table, truth = simulated(seed, per_annotator=100, reliability=(1.0,) * 6)
        ranking = quiet(table).ranking_
        item = ranking["item"].astype(int)
        true = truth[item]
        covered.append(((ranking["low"] <= true) & (true <= ranking["high"])).mean())
        ranks.append(((ranking["rank_low"] <= item + 1) & (item + 1 <= ranking["rank_high"])).mean())
    assert 0.85 < np.mean(covered) < 0.95
    assert np.mean(ranks) > 0.95
    assert (ranking["rank_high"] - ranking["rank_low"]).mean() < 3  # and they are informative


def test_the_p_value_of_random_answers_is_uniform() -> None:
    values = []
    for seed in range(300):
        random = np.random.default_rng(seed)
        first = random.integers(8, size=100)
        second = (first + random.integers(1, 8, size=100)) % 8
        outcome = random.choice([0, 0.5, 1], size=100)
        data = Comparisons.of(first, second, np.zeros(100, int), outcome, 8, 1)
        values.append(bradley_terry.random_answers_p(data))
    assert 0.02 < np.mean(np.array(values) < 0.05) < 0.09
    assert 0.4 < np.mean(values) < 0.6


# ---- warnings ----


def test_items_that_are_not_connected_are_ranked_apart() -> None:
    rows = [("u", "v", "u"), ("u", "v", "v"), ("v", "w", "v"), ("w", "v", "w"), ("x", "y", "x"), ("x", "y", "y")]
    table = pd.DataFrame(rows * 3, columns=["left", "right", "winner"])
    found = quiet(table)
    assert found.groups_ == 2
    assert "2 groups" in found.warnings_[0]
    groups = found.ranking_.groupby("group")
    assert [set(table["item"]) for _, table in groups] == [{"u", "v", "w"}, {"x", "y"}]
    assert groups["rank"].min().tolist() == [1, 1]
    assert groups["score"].sum().tolist() == pytest.approx([0, 0], abs=1e-8)
    assert found.ranking_["rank_high"].max() == 3


def test_items_that_always_win_are_reported() -> None:
    rows = [("u", "v", "u")] * 9 + [("v", "w", "v"), ("w", "v", "w")] * 5
    with pytest.warns(CrowdshotWarning, match="always win.*'u'"):
        found = preferences.fit(pd.DataFrame(rows, columns=["left", "right", "winner"]))
    assert np.isfinite(found.ranking_["score"]).all()


def test_random_answers_are_reported() -> None:
    table, _ = simulated(7, reliability=(0, 0, 0))
    found = quiet(table)
    assert found.random_p_ > 0.05
    assert any("random" in text for text in found.warnings_)
    assert quiet(simulated(7)[0]).random_p_ < 1e-6


# ---- tables ----


@pytest.mark.parametrize(
    ("names", "first", "tie"),
    [
        (("model_a", "model_b", "winner"), "model_a", "tie (bothbad)"),
        (("item_a", "item_b", "winner"), "x", "tie"),
        (("left", "right", "preference"), "left", "draw"),
        (("First", "Second", "Better"), "first", "equal"),
        (("Model 1", "Model 2", "Verdict"), "1", "Tie"),
        (("response_a", "response_b", "winner"), "[[A]]", "[[C]]"),
        (("a", "b", "vote"), "A>B", "A=B"),
        (("photo left", "photo right", "winner"), "photo left", "both"),
    ],
)
def test_usual_names_and_words(names, first: str, tie: str) -> None:
    table = pd.DataFrame([("x", "y", first), ("x", "y", tie), ("x", "y", "")], columns=names)
    columns = dict(zip(("first", "second"), names, strict=False)) if "photo" in names[0] else None
    found = quiet(table, columns)
    assert found.ranking_.loc[0, ["item", "wins", "ties", "losses"]].tolist() == ["x", 1, 1, 0]
    assert found.left_out_ == {"comparisons without a winner": 1}


def test_b_wins_are_read_too() -> None:
    words = ["model_b", "y", "B", "2", "right", "second", "[[B]]", "B>A", "A<<B", "Assistant B"]
    found = quiet(pd.DataFrame([("x", "y", word) for word in words], columns=["model_a", "model_b", "winner"]))
    assert found.ranking_.loc[0, ["item", "wins"]].tolist() == ["y", len(words)]


@pytest.mark.parametrize("names", [("winner", "loser"), ("chosen", "rejected")])
def test_columns_of_winner_and_loser(names) -> None:
    found = quiet(pd.DataFrame([("1", "2"), ("1", "2"), ("2", "1")], columns=names))
    assert found.ranking_.loc[0, ["item", "wins", "losses"]].tolist() == ["1", 2, 1]


def test_a_winner_that_may_be_a_name_or_a_side_needs_a_decision() -> None:
    table = pd.DataFrame([("2", "1", "1"), ("1", "2", "1")], columns=["item_a", "item_b", "winner"])
    with pytest.raises(CrowdshotError) as caught:
        preferences.fit(table)
    assert caught.value.found == "1"
    assert "row 1" in caught.value.where
    assert quiet(table, winner_is="name").ranking_["wins"].tolist() == [2, 0]
    assert quiet(table, winner_is="side").ranking_["wins"].tolist() == [1, 1]


@pytest.mark.parametrize(
    ("rows", "where", "found"),
    [
        ([("x", "y", "x", "ann"), ("x", "y", "z", "ann")], "row 2", "z"),
        ([("x", "y", "0", "ann")], "row 1", "0"),
        ([("x", "y", "x", "ann"), ("x", "x", "x", "ann")], "row 2", None),
        ([("x", "", "x", "ann")], "row 1", None),
        ([("x", "y", "x", "")], "row 1", None),
        ([("x", "y", "", "ann")], "table", None),
    ],
)
def test_bad_rows_are_refused(rows, where: str, found) -> None:
    with pytest.raises(CrowdshotError) as caught:
        preferences.fit(pd.DataFrame(rows, columns=["item_a", "item_b", "winner", "judge"]))
    assert where in caught.value.where
    assert caught.value.found == found


@pytest.mark.parametrize(
    ("columns", "options", "found"),
    [
        (["item_a", "other", "winner"], {}, ["item_a", "other", "winner"]),
        (["item_a", "item_b", "answered"], {}, ["item_a", "item_b", "answered"]),
        (["item_a", "item_b", "winner"], {"columns": {"first": "photo"}}, "photo"),
        (["item_a", "item_b", "winner"], {"columns": {"item": "item_a"}}, ["item"]),
        (["item_a", "item_b", "winner"], {"level": 1.5}, 1.5),
        (["item_a", "item_b", "winner"], {"winner_is": "names"}, "names"),
    ],
)
def test_bad_columns_and_options_are_refused(columns, options, found) -> None:
    with pytest.raises(CrowdshotError) as caught:
        preferences.fit(pd.DataFrame([("x", "y", "x")], columns=columns), **options)
    assert caught.value.found == found
