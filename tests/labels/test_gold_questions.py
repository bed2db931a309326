"""Questions with known answers: who gets them, results with intervals, and what `crowdshot next` shows of them."""

import doctest
import json
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta

from crowdshot import Annotations
from crowdshot.errors import CrowdshotError
from crowdshot.labels import gold_questions
from crowdshot.labels.asking import Question
from crowdshot.labels.gold_questions import GoldRule, gold_tests, mix_in
from crowdshot.labels.gold_questions import tests_table as table_of
from forked import crowdshot


def test_the_examples():
    assert doctest.testmod(gold_questions).failed == 0


def crowd(n_items=60, n_annotators=4, share=0.3, seed=0) -> tuple[Annotations, np.ndarray]:
    """Return labels of a share of all pairs, and known classes of every third item."""
    random = np.random.default_rng(seed)
    item, annotator = np.nonzero(random.random((n_items, n_annotators)) < share)
    table = pd.DataFrame({"item": item, "annotator": annotator, "label": random.integers(2, size=len(item))})
    ann = Annotations.from_frame(table, items=range(n_items), annotators=range(n_annotators), classes=range(2))
    known = np.where(np.arange(n_items) % 3 == 0, np.arange(n_items) % 2, -1)
    return ann, known


def test_results_are_counted_with_jeffreys_intervals():
    ann, known = crowd()
    results = gold_tests(ann, known, GoldRule(pause_below=0.5, after=3))
    for annotator, found in enumerate(results):
        mine = ann.annotator == annotator
        pairs = [(known[i], k) for i, k in zip(ann.item[mine], ann.label[mine], strict=True) if known[i] >= 0]
        passed = sum(truth == label for truth, label in pairs)
        assert (found.tests, found.passed) == (len(pairs), passed)
        limits = beta.ppf([0.05, 0.95], passed + 0.5, len(pairs) - passed + 0.5)
        np.testing.assert_allclose((found.low, found.high), limits)
        assert found.status == ("paused" if len(pairs) >= 3 and passed < 0.5 * len(pairs) else "tested")


def test_who_has_no_test_has_no_share():
    ann, known = crowd()
    nobody = gold_tests(ann, np.full_like(known, -1), GoldRule())
    table = table_of(ann, nobody)
    assert set(table["status"]) == {"not tested"}
    assert table[["share", "low", "high"]].isna().all().all()


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 0.5), st.integers(0, 60))
def test_mixing_keeps_numbers_and_repeats_nothing(seed, share, n):
    ann, known = crowd(seed=seed, share=0.2)
    random = np.random.default_rng(seed)
    labelled = set(zip(ann.item.tolist(), ann.annotator.tolist(), strict=True))
    pairs = [(i, r) for i in range(60) for r in range(4) if known[i] < 0 and (i, r) not in labelled]
    chosen = [pairs[k] for k in random.permutation(len(pairs))[:n]]
    questions = [Question(i, r, 1 - k / 100) for k, (i, r) in enumerate(chosen)]
    mixed = mix_in(questions, ann, known, share)
    assert mixed == mix_in(questions, ann, known, share)
    asked = [(question.item, question.annotator) for question in mixed]
    assert len(set(asked)) == len(asked)
    assert not set(asked) & labelled
    assert Counter(r for _, r in asked) == Counter(r for _, r in chosen)
    others = [question for question in mixed if known[question.item] < 0]
    assert others == [question for question in questions if question in others]  # in their order
    for r, number in Counter(r for _, r in chosen).items():
        gold = sum(known[i] >= 0 for i, who in asked if who == r)
        assert gold <= int(number * share) + 1
        kept = [question.gain for question in others if question.annotator == r]
        assert kept == [question.gain for question in questions if question.annotator == r][: len(kept)]


def test_the_share_is_kept_on_average_and_items_are_used_in_turn():
    ann, known = crowd(900, 30, 0.02)
    used, gold, total = Counter(), 0, 0
    labelled = set(zip(ann.item.tolist(), ann.annotator.tolist(), strict=True))
    questions = [Question(i, i % 30, 1.0) for i in range(900) if known[i] < 0 and (i, i % 30) not in labelled]
    for question in mix_in(questions, ann, known, 0.1):
        total += 1
        if known[question.item] >= 0:
            gold += 1
            used[question.item] += 1
    assert gold / total == pytest.approx(0.1, abs=0.02)
    n_labels = np.bincount(ann.item, minlength=900)
    never = n_labels[(known >= 0) & (np.array([used[i] for i in range(900)]) == 0)]
    assert max(n_labels[i] + used[i] for i in used) <= never.min() + 1


def test_gold_comes_at_random_places():
    ann, known = crowd(900, 3, 0.001)
    questions = [Question(i, i % 2, 1 - i / 1000) for i in range(900) if known[i] < 0]
    places = [k for k, question in enumerate(mix_in(questions, ann, known, 0.2)) if known[question.item] >= 0]
    assert len(places) == pytest.approx(120, abs=2)
    assert np.mean(places) == pytest.approx(300, abs=40)


@pytest.mark.parametrize(
    ("rule", "argument"),
    [
        (GoldRule(0.6), "gold_share"),
        (GoldRule(-0.1), "gold_share"),
        (GoldRule(float("nan")), "gold_share"),
        (GoldRule(0.1, 0.0), "pause_below"),
        (GoldRule(0.1, 1.5), "pause_below"),
        (GoldRule(0.1, 0.6, 0), "after"),
    ],
)
def test_impossible_rules_are_refused(rule, argument):
    with pytest.raises(CrowdshotError) as raised:
        rule.check(10)
    assert raised.value.argument == argument


@pytest.mark.parametrize("rule", [GoldRule(0.1), GoldRule(pause_below=0.5)])
def test_a_rule_needs_gold(rule):
    with pytest.raises(CrowdshotError, match="known class"):
        rule.check(0)
    GoldRule().check(0)


# ---- crowdshot next ----


@pytest.fixture
def files(tmp_path):
    """Labels of five annotators, one of whom guesses and one who labelled no item with a known answer."""
    random = np.random.default_rng(3)
    truth = random.integers(3, size=120)
    rows = []
    for who, accuracy in {"ann": 0.9, "bob": 0.85, "cy": 0.8, "guess": 0.3, "new": 0.9}.items():
        for i in np.flatnonzero(random.random(120) < 0.4):
            if who != "new" or i >= 30:
                label = truth[i] if random.random() < accuracy else (truth[i] + 1 + random.integers(2)) % 3
                rows.append((f"{i}.png", who, "abc"[label]))
    pd.DataFrame(rows, columns=["image", "worker", "answer"]).to_csv(tmp_path / "labels.csv", index=False)
    known = pd.DataFrame({"image": [f"{i}.png" for i in range(30)], "truth": ["abc"[k] for k in truth[:30]]})
    known.to_csv(tmp_path / "known.csv", index=False)
    return tmp_path


GOLD = [f"{i}.png" for i in range(30)]
OPTIONS = ("--gold", "known.csv", "--gold-share", 0.2, "--budget", 40)


@pytest.mark.slow
def test_the_list_for_annotators_does_not_show_which_questions_are_gold(files):
    done = crowdshot(files, "next", "labels.csv", *OPTIONS, "--out", "q.csv")
    assert done.returncode == 0, done.stderr
    for text in (
        (files / "q.csv").read_text(),
        crowdshot(files, "next", "labels.csv", *OPTIONS).stdout,
    ):
        assert text.splitlines()[0] == "image,worker,answer"
    asked, lead = pd.read_csv(files / "q.csv"), pd.read_csv(files / "q-consensus.csv")
    gold = asked["image"].isin(GOLD)
    assert len(asked) == 40
    assert 5 <= gold.sum() <= 12
    assert asked["image"].tolist() == lead["image"].tolist()
    assert (lead["truth"].notna() == gold).all()
    labels = pd.read_csv(files / "labels.csv")
    assert not len(asked.merge(labels, on=["image", "worker"]))
    again = crowdshot(files, "next", "labels.csv", *OPTIONS, "--out", "again.csv")
    assert again.returncode == 0
    assert (files / "again.csv").read_bytes() == (files / "q.csv").read_bytes()


@pytest.mark.slow
def test_who_is_not_tested_is_named_and_who_fails_is_not_asked(files):
    done = crowdshot(files, "next", "labels.csv", *OPTIONS, "--pause-below", 0.6, "--after", 5, "--out", "q.csv")
    assert done.returncode == 0, done.stderr
    people = pd.read_csv(files / "q-people.csv", index_col=0)
    assert people["status"].to_dict() == {
        **dict.fromkeys(("ann", "bob", "cy"), "tested"),
        "guess": "paused",
        "new": "not tested",
    }
    asked = pd.read_csv(files / "q.csv")
    assert "guess" not in set(asked["worker"])
    assert asked.loc[asked["image"].isin(GOLD), "worker"].eq("new").any()
    notes = [line for line in done.stderr.splitlines() if "note" in line]
    assert any("paused" in line and "guess" in line for line in notes)
    assert any("not tested" in line and "new" in line for line in notes)


@pytest.mark.slow
def test_tasks_for_label_studio_have_neither_gain_nor_truth(files):
    done = crowdshot(files, "next", "labels.csv", *OPTIONS, "--out", "q.json")
    assert done.returncode == 0, done.stderr
    tasks = json.loads((files / "q.json").read_text())
    assert any(task["data"]["next_item"] in GOLD for task in tasks)
    assert {tuple(task["data"]) for task in tasks} == {("image", "next_item", "next_annotator")}
    assert (files / "q-people.csv").exists()


@pytest.mark.slow
def test_known_items_may_be_new(files):
    known = pd.read_csv(files / "known.csv").assign(image=[f"new-{i}.png" for i in range(30)])
    known.to_csv(files / "known.csv", index=False)
    done = crowdshot(files, "next", "labels.csv", *OPTIONS, "--out", "q.csv")
    assert done.returncode == 0, done.stderr
    assert pd.read_csv(files / "q.csv")["image"].str.startswith("new-").sum() >= 5
    plain = crowdshot(files, "next", "labels.csv", "--gold", "known.csv")
    assert plain.returncode == 2
    assert "known.csv" in plain.stderr


@pytest.mark.slow
def test_fields_of_a_task_with_its_truth_are_left_out(files):
    annotation = {"from_name": "c", "to_name": "i", "type": "choices"}
    random = np.random.default_rng(0)
    tasks = []
    for i in range(40):
        people = [who for who in (1, 2, 3) if random.random() < 0.5] or [1]
        chosen = {who: "ab"[(i + (random.random() < 0.15)) % 2] for who in people}
        answers = [
            {"completed_by": who, "result": [{**annotation, "value": {"choices": [label]}}]}
            for who, label in chosen.items()
        ]
        data = {"image": f"/{i}.png", "city": "Rome", "Truth": "ab"[i % 2]}
        tasks.append({"id": i, "data": data, "annotations": answers})
    (files / "export.json").write_text(json.dumps(tasks))
    rows = [f"/{i}.png,{'ab'[i % 2]}" for i in range(0, 30, 2)]
    (files / "some.csv").write_text("\n".join(["image,truth", *rows]) + "\n")
    options = ("--gold", "some.csv", "--gold-share", 0.4, "--out", "q.json")
    done = crowdshot(files, "next", "export.json", *options)
    assert done.returncode == 0, done.stderr
    tasks = json.loads((files / "q.json").read_text())
    assert tasks
    assert all(set(task["data"]) == {"image", "city", "next_item", "next_annotator"} for task in tasks)
    gold = {f"/{i}.png" for i in range(0, 30, 2)}
    assert {task["data"]["next_item"] for task in tasks} & gold


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "word"),
    [
        (("--gold-share", 0.1), "--gold FILE"),
        (("--pause-below", 0.6), "--gold FILE"),
        (("--gold", "known.csv", "--gold-share", 2), "--gold-share"),
        (("--gold", "known.csv", "--pause-below", 1, "--after", 1), "--pause-below"),
    ],
)
def test_bad_input_is_one_sentence(files, options, word):
    done = crowdshot(files, "next", "labels.csv", *options, "--annotators-available", "guess", "--out", "q.csv")
    assert done.returncode == 2
    assert word in done.stderr
    assert "Traceback" not in done.stderr
    assert not (files / "q.csv").exists()


@pytest.mark.parametrize(("limit", "tests", "passed"), [(0.28, 25, 7), (0.55, 100, 55), (0.07, 100, 7)])
def test_exactly_the_required_share_is_enough(limit: float, tests: int, passed: int) -> None:
    """0.28 * 25 is 7.000000000000001 in floating point."""
    rule = GoldRule(pause_below=limit)
    assert not rule.pauses(tests, passed)
    assert rule.pauses(tests, passed - 1)


def test_gold_that_is_asked_already_is_not_asked_twice() -> None:
    ann, known = crowd(share=0.1)
    questions = [Question(item, 0, 1.0) for item in np.flatnonzero(known >= 0).tolist()]
    mixed = mix_in(questions, ann, known, 0.5)
    assert len({(one.item, one.annotator) for one in mixed}) == len(mixed)


@pytest.mark.parametrize("column", ["status", "share", "low"])
def test_a_column_of_annotators_may_be_called_like_a_result(column: str) -> None:
    ann, known = crowd()
    ann = Annotations.from_frame(ann.to_frame().rename(columns={"annotator": column}), {"annotator": column})
    known = known[ann.items.astype(int)]
    table = table_of(ann, gold_tests(ann, known, GoldRule()))
    assert table["annotator"].tolist() == [str(name) for name in ann.annotators]
