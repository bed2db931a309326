"""Families of models that err together, the quality of models, and models first."""

import numpy as np
import pytest

from crowdshot import Annotations, aggregate
from crowdshot.labels.judge_families import find_families
from crowdshot.labels.judge_quality import answers_of, confusion_given, judge_classes, judge_models, take_annotators
from crowdshot.labels.models_first import PricePerItem, plan_models_first

N, K = 400, 3


def noisy(rng, base, right: float):
    return np.where(rng.random(len(base)) < right, base, (base + rng.integers(1, K, len(base))) % K)


def crowd(seed: int, family: bool, difficult: float = 0.0):
    """Five people with about half of the items, three independent models, and perhaps three of one family."""
    rng = np.random.default_rng(seed)
    truth = rng.integers(K, size=N)
    hard = rng.random(N) < difficult
    columns = {}
    for name, right in [*((f"p{i}", 0.8) for i in range(5)), *((f"m{i}", 0.75) for i in range(3))]:
        columns[name] = np.where(hard, noisy(rng, truth, 0.45), noisy(rng, truth, right))
        if name.startswith("p"):
            columns[name] = np.where(rng.random(N) < 0.5, columns[name], -1)
    if family:
        base = noisy(rng, truth, 0.7)
        columns |= {f"f{i}": noisy(rng, base, 0.95) for i in range(3)}
    ann = Annotations.from_matrix(
        np.array(list(columns.values())).T, annotators=list(columns), classes=range(K), missing=-1
    )
    is_person = np.array([name.startswith("p") for name in columns])
    return take_annotators(ann, np.flatnonzero(~is_person)), take_annotators(ann, np.flatnonzero(is_person)), truth


def families_of(models: Annotations, people: Annotations):
    posterior = aggregate.learned(people).probabilities
    return find_families(models, [answers_of(models, j) for j in range(models.n_annotators)], people, posterior)


def test_a_family_is_found() -> None:
    found = [families_of(*crowd(seed, family=True)[:2]) for seed in range(6)]
    assert sum(each.families == [["f0", "f1", "f2"]] for each in found) >= 5
    assert not any(name[0] == "m" for each in found for family in each.families for name in family)


@pytest.mark.slow
@pytest.mark.parametrize("difficult", [0.0, 0.2])
def test_independent_models_are_no_family(difficult: float) -> None:
    assert all(not families_of(*crowd(seed, False, difficult)[:2]).families for seed in range(10))


def test_expected_agreement_with_known_classes_is_that_of_independent_errors() -> None:
    models, people, truth = crowd(0, family=False)
    found = find_families(
        models, [answers_of(models, j) for j in range(3)], people.keep(people.item < 0), np.eye(K)[truth]
    )
    one, other = (answers_of(models, j) for j in (0, 1))
    tables = [np.array([[np.sum((a == k) & (truth == t)) for k in range(K)] for t in range(K)]) for a in (one, other)]
    shares = [table / table.sum(1, keepdims=True) for table in tables]
    # Σ over true classes of items × the probability of the same label, but for the prior's two labels per class
    expected = sum(np.sum(truth == t) * (shares[0][t] @ shares[1][t]) for t in range(K))
    assert found.with_people == 0
    assert found.pairs[0].expected == pytest.approx(expected, rel=0.01)
    assert found.pairs[0].same == np.sum(one == other)


def test_confusion_of_known_classes_is_counted() -> None:
    truth = np.array([0] * 10 + [1] * 10)
    answers = np.array([0] * 9 + [1] + [1] * 8 + [0] * 2)
    # two further labels per class, 70 % of them right
    assert confusion_given(answers, np.eye(2)[truth]) == pytest.approx(
        np.array([[9 + 1.4, 1 + 0.6], [2 + 0.6, 8 + 1.4]]) / 12
    )


def test_quality_on_known_items_is_near_the_counts() -> None:
    models, _, truth = crowd(1, family=False)
    right = judge_models(models, np.eye(K)[truth])
    for model, found in enumerate(right):
        share = (answers_of(models, model) == truth).mean()
        assert found.low < share < found.high
        assert found.share == pytest.approx(share, abs=0.01)
    first = judge_classes(models, np.eye(K)[truth])[0]
    answers = answers_of(models, 0)
    assert [each.right.labels for each in first] == np.bincount(answers).tolist()
    assert [each.found for each in first] == pytest.approx([(answers[truth == k] == k).mean() for k in range(K)])


def test_models_first_by_hand() -> None:
    """Two models that agree are right, and else unsure; people label each item once and are always right."""
    truth = np.tile([0, 1], 100)
    one = truth.copy()
    other = truth.copy()
    one[:20], other[20:40] = 1 - one[:20], 1 - other[20:40]  # 10 items of each class for each model
    people = Annotations.from_matrix(truth[:, None], classes=[0, 1], missing=None)
    found = plan_models_first(
        [one, other], [1, 1], people, np.eye(2)[truth], np.ones(200, dtype=bool), 0.95, PricePerItem(0.1, 2.0)
    )
    assert found is not None
    assert found.plan is not None
    at = {stage.threshold: stage for stage in found.stages}
    assert at[0.95].share == pytest.approx(0.8)
    assert at[0.95].right.labels == 160
    assert at[0.95].cost == pytest.approx(200 * (0.1 + 0.2 * 2.0))
    assert found.people_cost == 400
    assert found.people_accuracy == 1
    assert found.saving == pytest.approx(1 - found.plan.cost / 400)


def test_models_in_a_family_count_less() -> None:
    truth = np.tile([0, 1], 100)
    rng = np.random.default_rng(0)
    wrong = rng.random(200) < 0.3
    copy = np.where(wrong, 1 - truth, truth)
    people = Annotations.from_matrix(truth[:, None], classes=[0, 1], missing=None)
    every = np.ones(200, dtype=bool)
    counted = plan_models_first([copy] * 3, [1] * 3, people, np.eye(2)[truth], every, 0.9)
    merged = plan_models_first([copy] * 3, [1 / 3] * 3, people, np.eye(2)[truth], every, 0.9)
    assert counted is not None
    assert merged is not None
    assert counted.stages[-1].threshold > 0.8  # three copies are taken for three witnesses
    assert merged.stages[-1].threshold <= 0.8  # one witness of accuracy 0.7
    assert merged.plan is None


def test_too_few_items_give_no_plan() -> None:
    people = Annotations.from_matrix([["a"], ["b"]])
    assert plan_models_first([np.array([0, 1])], [1], people, np.eye(2), np.ones(2, dtype=bool), 0.9) is None
