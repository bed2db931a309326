"""The alternative annotator test against a plain implementation of its definition, and agreement by hand."""

import warnings

import numpy as np
import pytest
from scipy import stats

from crowdshot import Annotations
from crowdshot.labels.alternative_test import (
    agreement_among_people,
    agreement_with_people,
    benjamini_yekutieli,
    replacement_test,
)


def simulated(seed: int, people: int = 6, items: int = 120, classes: int = 3, model: float = 0.85):
    rng = np.random.default_rng(seed)
    truth = rng.integers(classes, size=items)
    answers: dict[str, dict[int, int]] = {}
    for person in range(people):
        right = rng.random(items) < 0.7
        label = np.where(right, truth, rng.integers(classes, size=items))
        answers[f"p{person}"] = {n: int(label[n]) for n in range(items) if rng.random() < 0.6}
    label = np.where(rng.random(items) < model, truth, rng.integers(classes, size=items))
    of_model = np.where(rng.random(items) < 0.9, label, -1)
    return answers, of_model


def as_people(answers: dict[str, dict[int, int]], items: int, classes: int) -> Annotations:
    matrix = np.full((items, len(answers)), -1)
    for column, labels in enumerate(answers.values()):
        for item, label in labels.items():
            matrix[item, column] = label
    return Annotations.from_matrix(matrix, annotators=list(answers), classes=list(range(classes)), missing=-1)


def plain_test(answers, of_model, epsilon: float, ordered: bool):
    """Follow the paper's definition item by item."""

    def score(label: int, others: list[int]) -> float:
        if ordered:
            return -float(np.sqrt(np.mean([(label - other) ** 2 for other in others])))
        return float(np.mean([label == other for other in others]))

    p, advantage = {}, []
    for person, labels in answers.items():
        better_or_equal, difference = [], []
        for item, label in labels.items():
            others = [theirs[item] for name, theirs in answers.items() if name != person and item in theirs]
            if not others or of_model[item] < 0:
                continue
            human, machine = score(label, others), score(int(of_model[item]), others)
            better_or_equal.append(machine >= human)
            difference.append(int(human >= machine) - int(machine >= human))
        if len(difference) < 30:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            p[person] = stats.ttest_1samp(difference, epsilon, alternative="less").pvalue
        advantage.append(np.mean(better_or_equal))
    adjusted = stats.false_discovery_control(list(p.values()), method="by")
    return p, float(np.mean(adjusted <= 0.05)), float(np.mean(advantage))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("ordered", [False, True])
def test_it_is_the_definition(seed: int, ordered: bool) -> None:
    answers, of_model = simulated(seed, model=[0.4, 0.85][seed % 2])
    found = replacement_test(as_people(answers, 120, 3), of_model, 0.15, ordered)
    p, rate, advantage = plain_test(answers, of_model, 0.15, ordered)
    assert {each.person: each.p for each in found.people} == pytest.approx(p)
    assert found.winning_rate == pytest.approx(rate)
    assert found.advantage == pytest.approx(advantage)
    assert found.may_replace == (rate >= 0.5)


def test_by_hand() -> None:
    """Three people, 40 items: ann and bob always 0, cyd always 1; the model always 0."""
    answers = {
        "ann": dict.fromkeys(range(40), 0),
        "bob": dict.fromkeys(range(40), 0),
        "cyd": dict.fromkeys(range(40), 1),
    }
    found = replacement_test(as_people(answers, 40, 2), np.zeros(40, dtype=np.int64), 0.1)
    # Against ann the model agrees with bob as ann does: W is 1 for both, the mean difference 0 < ε without variance.
    assert [(each.model_as_good, each.person_as_good, each.p) for each in found.people] == [
        (1, 1, 0),
        (1, 1, 0),
        (1, 0, 0),
    ]
    assert (found.winning_rate, found.advantage, found.may_replace) == (1, 1, True)
    # Always 2: worse than ann and bob, who have each other, and as bad as cyd.
    worse = replacement_test(as_people(answers, 40, 3), np.full(40, 2), 0.1)
    assert [each.p for each in worse.people] == [1, 1, 0]
    assert worse.winning_rate == pytest.approx(1 / 3)
    assert worse.may_replace is False


def test_too_few_items_or_people_give_no_verdict() -> None:
    answers = {name: dict.fromkeys(range(20), 0) for name in "abc"}
    found = replacement_test(as_people(answers, 20, 2), np.zeros(20, dtype=np.int64), 0.1)
    assert (found.winning_rate, found.may_replace, found.too_few) == (None, None, 3)
    two = {name: dict.fromkeys(range(40), 0) for name in "ab"}
    found = replacement_test(as_people(two, 40, 2), np.zeros(40, dtype=np.int64), 0.1)
    assert (found.winning_rate, found.may_replace) == (1, None)


@pytest.mark.parametrize("seed", range(5))
def test_benjamini_yekutieli_is_scipys(seed: int) -> None:
    p = np.random.default_rng(seed).random(20) ** 4
    expected = stats.false_discovery_control(p, method="by") <= 0.05
    assert benjamini_yekutieli(p, 0.05).tolist() == expected.tolist()
    assert benjamini_yekutieli(np.empty(0), 0.05).tolist() == []


def test_agreement_by_hand() -> None:
    people = Annotations.from_matrix([["a", "a", "b"], ["b", "b", None], ["a", None, None]])
    model = np.array([0, 0, 0])  # always "a": 2/3, 0 and 1 of an item's people agree
    found = agreement_with_people(people, model)
    assert found is not None
    assert found.share == pytest.approx((2 / 3 + 0 + 1) / 3)
    among = agreement_among_people(people)
    assert among is not None
    assert (among.of, among.share) == (2, pytest.approx((1 / 3 + 1) / 2))
    assert agreement_with_people(people, np.full(3, -1)) is None
