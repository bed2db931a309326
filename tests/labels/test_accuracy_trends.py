"""Changes of accuracy over time: hand-computed statistics, exact p-values, simulated annotators, and the commands."""

import doctest
import itertools
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crowdshot import Annotations, aggregate
from crowdshot.labels import accuracy_trends as trends
from crowdshot.labels import working_times
from crowdshot.labels.label_times import Times
from forked import crowdshot

DAY = 86_400.0
CHANGES = ["accuracy_change", "changed_at", "accuracy_before", "accuracy_after"]
SESSIONS = ["accuracy_early_in_session", "accuracy_late_in_session"]
HURRY = ["fast_below_seconds", "fast_labels", "accuracy_fast", "accuracy_not_fast"]


def known_truth(right) -> trends.Scores:
    """Return the evidence of labels of items whose class is known."""
    right = np.asarray(right, dtype=int)
    return trends.scores_of(np.tile([1.0, 0.0], (len(right), 1)), 1 - right)


def test_the_examples():
    assert doctest.testmod(working_times).failed == 0


def test_the_difference_of_two_halves_by_hand():
    scores = known_truth([1] * 8 + [0] * 4 + [1] * 4)
    a = scores.accuracy
    assert a == pytest.approx((12 + 2 * 0.7) / 18, abs=1e-3)
    # with known classes, the score is 1/a or -1/(1-a), and the information 1/(a(1-a))
    np.testing.assert_allclose(scores.information, 1 / (a * (1 - a)))
    z = trends._differences(scores.score, scores.information, np.array([8]))[0]
    # 8 of 8 right, then 4 of 8: a difference of 1/2 with the variance a(1-a) (1/8 + 1/8)
    assert z == pytest.approx(0.5 / (a * (1 - a) / 4) ** 0.5, rel=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000))
def test_the_p_value_counts_orders(seed):
    random = np.random.default_rng(seed)
    scores = trends.scores_of(random.dirichlet(np.ones(2), 7), random.integers(2, size=7))
    splits = np.arange(1, 7)

    def largest(u):
        return np.abs(trends._differences(u, scores.information, splits)).max(-1)

    residual, root = scores.score / np.sqrt(scores.information), np.sqrt(scores.information)
    every = largest(np.array([np.array(order) * root for order in itertools.permutations(residual)]))
    for share in (0.5, 0.9):
        observed = float(np.quantile(every, share))
        if observed >= trends.UNLIKELY:
            exact = (every >= observed - 1e-9).mean()
            assert trends._p_value(scores, observed, largest) == pytest.approx(exact, abs=0.05)


def test_items_that_say_nothing_do_not_count():
    q = np.vstack([np.tile([0.95, 0.05], (40, 1)), np.full((40, 2), 0.5)])
    scores = trends.scores_of(q, np.zeros(80, dtype=int))
    assert scores.information[40:].sum() < 1e-6 * scores.information.sum()
    assert not len(trends._splits(scores, np.arange(80.0))[40:])


def crowd(right, seconds, durations=None, seed=0):
    """Return labels of ann, right where ``right``, of items that three good annotators label too, and their times."""
    random, n = np.random.default_rng(seed), len(right)
    truth = random.integers(3, size=n)
    rows = [(f"{i}", "ann", truth[i] if right[i] else (truth[i] + 1) % 3, seconds[i]) for i in range(n)]
    for who in ("bob", "cleo", "dan"):
        wrong = random.random(n) < 0.1
        rows += [(f"{i}", who, (truth[i] + wrong[i]) % 3, seconds[i]) for i in range(n)]
    table = pd.DataFrame(rows, columns=["item", "annotator", "label", "at"])
    took = None
    if durations is not None:
        took = np.concatenate([durations, np.full(3 * n, 30.0)])
    return Annotations.from_frame(table[["item", "annotator", "label"]]), Times(table["at"].to_numpy(), durations=took)


def found(right, seconds, durations=None, who="ann"):
    ann, times = crowd(right, np.asarray(seconds, dtype=float), durations)
    table = trends.accuracy_trends(ann, aggregate.learned(ann).probabilities, times)
    return table.loc[who].dropna().to_dict()


def test_a_sudden_change_has_its_day():
    right = np.arange(200) % 20 != 0
    right[120:] = np.arange(80) % 2 == 0
    seconds = 1.7e9 // DAY * DAY + DAY * (np.arange(200) // 10)
    said = found(right, seconds)
    assert said["accuracy_change"] == "fell"
    assert abs((pd.Timestamp(said["changed_at"]) - pd.Timestamp(seconds[120], unit="s")).days) <= 1
    assert said["accuracy_before"] == pytest.approx(0.95, abs=0.1)
    assert said["accuracy_before"] - said["accuracy_after"] == pytest.approx(0.45, abs=0.1)
    assert found(right[::-1], seconds)["accuracy_change"] == "rose"
    assert not set(found(right, seconds, who="bob")) & {*CHANGES, *HURRY}


def test_the_course_has_a_number_for_each_part_of_the_labels():
    said = found(np.arange(300) < 150, 1.7e9 + 60.0 * np.arange(300))
    course = [float(part) for part in said["accuracy_course"].split()]
    assert len(course) == 12
    assert min(course[:6]) > 0.8
    assert max(course[6:]) < 0.2
    assert "accuracy_course" not in found(np.arange(59) < 30, 1.7e9 + 60.0 * np.arange(59))


def test_gradual_learning_has_no_day():
    random = np.random.default_rng(1)
    right = random.random(600) < np.linspace(0.45, 0.99, 600)
    said = found(right, 1.7e9 + 60 * np.arange(600))
    assert said["accuracy_change"] == "rose gradually"
    assert "changed_at" not in said
    assert said["accuracy_before"] < 0.65 < 0.8 < said["accuracy_after"]


def test_tired_annotators_are_worse_late_in_sessions():
    at = np.arange(400)
    random = np.random.default_rng(2)
    right = random.random(400) < 1 - 0.6 * (at % 40) / 40
    said = found(right, 1.7e9 + 60.0 * (at % 40) + DAY * (at // 40))
    assert said["accuracy_late_in_session"] < said["accuracy_early_in_session"] - 0.15
    assert "accuracy_change" not in said


def test_fast_answers_count_only_if_they_are_worse():
    random = np.random.default_rng(3)
    fast = random.random(300) < 0.2
    durations = np.where(fast, 2.0, 30.0) * random.uniform(0.8, 1.2, 300)
    seconds = 1.7e9 + 60.0 * np.arange(300)
    said = found(~(fast & (random.random(300) < 0.6)), seconds, durations)
    assert said["fast_labels"] == pytest.approx(fast.sum(), abs=3)
    assert 2.4 <= said["fast_below_seconds"] <= 36
    assert said["accuracy_fast"] < 0.6 < 0.85 < said["accuracy_not_fast"]
    assert set(found(np.ones(300, dtype=bool), seconds, durations)) == {"accuracy_course"}
    slow_is_worse = found(fast | (random.random(300) < 0.6), seconds, durations)
    assert not set(HURRY) & set(slow_is_worse)


@pytest.mark.parametrize("n", [0, 1, 29])
def test_few_labels_are_not_tested(n):
    right = np.arange(max(n, 1)) % 2 == 0
    assert found(right, 1.7e9 + np.arange(len(right))) == {}


def test_equal_times_and_unknown_times_have_no_order():
    right = np.arange(100) < 50
    for seconds in (np.full(100, 1.7e9), np.full(100, np.nan)):
        assert not {*CHANGES, *SESSIONS} & set(found(right, seconds))


def test_neither_labels_of_one_annotator_nor_one_class_are_tested():
    table = pd.DataFrame({"item": [f"{i}" for i in range(60)], "annotator": "ann", "label": ["a", "b"] * 30})
    times = Times(1.7e9 + np.arange(60.0))
    for rows in (table, table.assign(label="a")):
        ann = Annotations.from_frame(rows)
        posterior = np.full((60, ann.n_classes), 1 / ann.n_classes)
        assert trends.accuracy_trends(ann, posterior, times).isna().all().all()


@pytest.mark.slow
def test_constant_accuracy_is_seldom_reported():
    random, alarms = np.random.default_rng(4), 0
    for seed in range(40):
        right = random.random(150) < 0.8
        ann, times = crowd(right, 1.7e9 + 60.0 * np.arange(150), random.lognormal(3, 0.4, 150), seed)
        table = trends.accuracy_trends(ann, aggregate.learned(ann).probabilities, times)
        alarms += int(table.drop(columns="accuracy_course").notna().any().any())
    assert alarms <= 7  # 40 crowds, 5 % of them are expected: more than 7 have a probability of 0.0004


def write_operation(folder):
    """Write labels of ten days: ann falls on the sixth, bob hurries, the others are constant."""
    random, rows = np.random.default_rng(5), []
    truth = random.integers(2, size=300)
    for who in ("ann", "bob", "cleo", "dora"):
        at = pd.Timestamp("2026-03-02 09:00")
        for i in range(300):
            day, hurried = i // 30, who == "bob" and random.random() < 0.25
            took = random.uniform(1, 2) if hurried else random.uniform(20, 60)
            at = max(at, pd.Timestamp("2026-03-02 09:00") + pd.Timedelta(days=day)) + pd.Timedelta(seconds=took)
            p = 0.5 if hurried or (who == "ann" and day >= 5) else 0.92
            label = truth[i] if random.random() < p else 1 - truth[i]
            rows.append((f"{i}.png", who, ("cat", "dog")[label], at.isoformat(timespec="seconds"), round(took, 1)))
    table = pd.DataFrame(rows, columns=["image", "annotator", "label", "created_at", "duration"])
    table.to_csv(folder / "labels.csv", index=False)


@pytest.mark.slow
def test_tables_and_report_name_who_changed(tmp_path):
    write_operation(tmp_path)
    done = crowdshot(tmp_path, "aggregate", "labels.csv", "--annotators", "people.csv", "--report", "out")
    assert done.returncode == 0, done.stderr
    people = pd.read_csv(tmp_path / "people.csv", index_col=0)
    assert people["accuracy_change"].dropna().to_dict() == {"ann": "fell"}
    assert people.loc["ann", "changed_at"].startswith(("2026-03-06", "2026-03-07"))
    assert list(people["fast_labels"].dropna().index) == ["bob"]
    assert people.loc["bob", "fast_below_seconds"] < 25
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "out" / "annotators.csv", index_col=0), people)
    page = (tmp_path / "out" / "report.html").read_text()
    assert page.count('<svg class="accuracy-course"') == 4
    assert page.count("⚑ accuracy fell</span>") == page.count("⚑ fast answers are worse</span>") == 1
    talk = next(step for step in done.stdout.splitlines() if "Talk to" in step)
    assert "ann (accuracy fell)" in talk
    assert "bob (fast answers are worse)" in talk
    assert crowdshot(tmp_path, "report", "out").returncode == 0
    assert (tmp_path / "out" / "report.html").read_text() == page
    run = json.loads((tmp_path / "out" / "run.json").read_text())["run"]
    assert run["working"]["ann"]["accuracy_change"] == "fell"


def test_the_number_of_random_orders_depends_on_the_number_of_tests() -> None:
    """The smallest p-value is small enough for any number of annotators, and no smaller for a few with many labels."""
    q = np.tile([[0.99, 0.01]], (2000, 1))
    label = np.repeat([0, 1], 1000)
    scores = trends.scores_of(q, label)
    found = trends.change_over_time(scores._replace(draws=1000), np.arange(2000.0))
    assert found is not None
    assert found.p_value == pytest.approx(1 / 1001)
    for annotators in (1, 10, 60, 199):
        draws = max(trends.DRAWS[1], trends.DRAWS_PER_ANNOTATOR * annotators)
        assert 1 / (1 + draws) < 0.05 / (3 * annotators)
