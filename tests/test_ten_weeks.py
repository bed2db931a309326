"""The simulated operation of ten weeks, at a small size: budgets are kept, and what is noticed is written down."""

import importlib.util
import sys
from pathlib import Path

import pandas as pd
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def weeks(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    specification = importlib.util.spec_from_file_location("ten_weeks", BENCHMARKS / "ten_weeks.py")
    module = importlib.util.module_from_spec(specification)
    monkeypatch.setitem(sys.modules, "ten_weeks", module)
    specification.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["random", "next", "gold", "advice"])
def test_an_operation_keeps_its_budget_and_repeats_itself(weeks, arm):
    found = weeks.operate(arm, seed=1, weeks=3, items=20, budget=60)
    assert found["week"].tolist() == [1, 2, 3]
    assert (found["labels"] <= 60 * found["week"]).all()
    assert (found["labels"] >= 50 * found["week"]).all()
    assert found["accuracy"].between(0.5, 1).all()
    pd.testing.assert_frame_equal(weeks.operate(arm, seed=1, weeks=3, items=20, budget=60), found)


def test_nobody_answers_a_known_item_twice(weeks):
    operation = weeks.Operation("gold", 0, items=20, budget=60)
    for week in range(1, 5):
        operation.run_week(week, Path())
    pairs = [row[:2] for row in operation.rows]
    assert len(set(pairs)) == len(pairs)
    assert any(item in operation.gold for item, _ in pairs)


def test_the_tables_have_standard_errors(weeks):
    fixed = {"budget": weeks.BUDGET, "week": 10, "labels": 3000, "noticed": "bot: paused; steady-1: fell"}
    rows = pd.DataFrame(
        [
            fixed | {"arm": arm, "seed": seed, "accuracy": 0.8 + gain + seed / 50}
            for arm, gain in {"random": 0.0, "advice": 0.05}.items()
            for seed in (0, 1)
        ]
    )
    table = weeks.summarise(rows).set_index("operation")
    assert table.loc["advice", "accuracy"] == "86.0 ± 1.0"
    assert table.loc["advice", "more than random"] == "5.0 ± 0.0"
    signs = weeks.noticed(rows)
    assert set(signs["who"]) == {"bot", "steady"}
    assert (signs["share"] == 1).all()
