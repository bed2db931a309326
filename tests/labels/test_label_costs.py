"""What labels cost: by hand, and the forecast of the next percent of accuracy against a plain simulation."""

from pathlib import Path

import numpy as np
import pytest

from crowdshot import Annotations, CrowdshotError, aggregate
from crowdshot.labels import labels_needed
from crowdshot.labels.label_costs import costs_of, count_money, describe_money, with_costs

ANN = Annotations.from_matrix([["a", "a", "b"], ["b", "b", None]], annotators=["ann", "bob", "cyd"])


def test_amounts_by_hand() -> None:
    accuracy, price = np.array([0.8, 0.5, 0.4]), np.array([2.0, 1.0, 0.5])
    money = count_money(ANN, np.array([[0.9, 0.1], [0.2, 0.8]]), accuracy, price)
    assert money.spent == 2 * 2 + 2 * 1 + 0.5
    assert money.cost_per_label == pytest.approx(6.5 / 5)
    assert money.cost_per_right_label == pytest.approx(6.5 / (2 * 0.8 + 2 * 0.5 + 0.4))
    assert money.cost_per_item == 3.25
    assert money.annotators.loc["ann"].tolist() == [2.0, 4.0, 2.5]
    assert money.annotators.loc["cyd"].tolist() == [0.5, 0.5, 1.25]
    assert "6.50 spent" in describe_money(money)[0]


def test_the_table_of_annotators_may_be_in_another_order() -> None:
    import pandas as pd

    money = count_money(ANN, np.array([[0.9, 0.1], [0.2, 0.8]]), np.full(3, 0.5), np.array([2.0, 1.0, 0.5]))
    table = with_costs(pd.DataFrame({"annotator": ["cyd", "ann", "bob"]}), money)
    assert table["cost"].tolist() == [0.5, 2.0, 1.0]
    assert with_costs(table, None) is table


def test_costs_of_annotators(tmp_path: Path) -> None:
    file = tmp_path / "costs.csv"
    file.write_text("annotator,cost\nbob,0.5\nann,2\nothers,1\nsomebody else,7\n")
    assert costs_of(file, ANN).tolist() == [2, 0.5, 1]
    assert costs_of({"others": 3.0}, ANN).tolist() == [3, 3, 3]
    assert costs_of({"ann": 1.0, "bob": 2.0, "cyd": 3.0}, ANN).tolist() == [1, 2, 3]
    with pytest.raises(CrowdshotError) as error:
        costs_of({"ann": 1.0}, ANN)
    assert (error.value.argument, error.value.found) == ("cost", ["bob", "cyd"])
    with pytest.raises(CrowdshotError) as error:
        costs_of({"an": 1.0, "others": 1.0}, ANN)
    assert (error.value.argument, error.value.found) == ("cost", "an")


def test_more_accuracy_needs_more_labels() -> None:
    ann = simulated(labels_per_item=3)
    posterior = np.asarray(aggregate.learned(ann).probabilities)
    found = [labels_needed.gain_forecast(ann, posterior, gain) for gain in (0.005, 0.01, 0.02)]
    assert [each.share for each in found] == pytest.approx([posterior.max(1).mean() + g for g in (0.005, 0.01, 0.02)])
    labels = [each.labels for each in found]
    assert None not in labels
    assert labels == sorted(labels)
    assert labels[0] < labels[-1]
    for each in found:
        assert each.at_best <= each.labels
        assert each.at_worst is None or each.labels <= each.at_worst


def test_the_first_point_of_the_course_is_the_mean_confidence() -> None:
    ann = simulated(labels_per_item=2)
    posterior = np.asarray(aggregate.learned(ann).probabilities)
    course = labels_needed.course(labels_needed.begin(ann, posterior), of="accuracy")
    assert course[0] == pytest.approx(posterior.max(1).mean())
    assert (np.diff(course) >= 0).all()
    assert course[-1] <= 1


def test_no_forecast_when_everything_is_certain() -> None:
    money = count_money(ANN, np.eye(2), np.full(3, 0.9), np.ones(3))
    assert money.next_percent is None
    assert len(describe_money(money)) == 1


def simulated(labels_per_item: int) -> Annotations:
    """Return labels of six annotators of 70 % accuracy for 200 items in three classes."""
    rng = np.random.default_rng(0)
    truth = rng.integers(3, size=200)
    labels = np.where(rng.random((200, 6)) < 0.7, truth[:, None], rng.integers(3, size=(200, 6)))
    labels[rng.random((200, 6)).argsort(1) >= labels_per_item] = -1
    return Annotations.from_matrix(labels, classes=range(3), missing=-1)
