"""Test the measures, thinned crowds and compared methods of benchmarks/reality.py with values by hand."""

import importlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest

from crowdshot import Annotations

sys.path.append(str(Path(__file__).parents[1] / "benchmarks"))
annot_mix, crowds, few_items, measures, regression, rivals, rows = map(
    importlib.import_module,
    ("annot_mix", "crowds", "few_items", "measures", "regression", "rivals_labels", "rows"),
)

SAID = [[0, 0, 1], [1, 1, 1], [0, 1, None], [None, 1, 1]]


def test_score_by_hand():
    probabilities = np.array([[0.95, 0.05], [0.5, 0.5], [0.3, 0.7], [0.2, 0.8]])
    found = measures.score(probabilities, np.array([0, 0, 0, crowds.UNNAMED]))
    assert found["accuracy"] == pytest.approx((1 + 0.5) / 4)  # ties count half, unnamed classes are wrong
    assert found["log_loss"] == pytest.approx(-math.log(0.95 * 0.5 * 0.3 * 0.001) / 4)
    assert found["over"] == pytest.approx((0.95 + 0.5 + 0.7 + 0.8) / 4 - 1.5 / 4)
    assert found["calibration"] == pytest.approx((0.05 + 0 + 0.7 + 0.8) / 4)
    assert (found["accepted"], found["settled_right"]) == (0.25, 1.0)


def test_calibration_error_by_hand():
    assert measures.calibration_error(np.array([0.91, 0.99]), np.array([0.0, 1.0])) == pytest.approx(0.45)
    assert measures.calibration_error(np.array([0.89, 1.0]), np.array([0.0, 1.0])) == pytest.approx(0.445)


def test_accuracy_of_accepted_items_is_nan_without_any():
    assert math.isnan(measures.score(np.full((3, 2), 0.5), np.zeros(3, dtype=int))["settled_right"])


def test_thinned_keeps_at_most_so_many_labels_of_every_item():
    annotations = Annotations.from_matrix(np.random.default_rng(0).integers(0, 3, (50, 6)))
    before = set(annotations.to_frame().itertuples(index=False, name=None))
    less = crowds.thinned(annotations, 2, seed=0)
    assert np.bincount(less.item).tolist() == [2] * 50
    assert less.items.tolist() == annotations.items.tolist()
    assert set(less.to_frame().itertuples(index=False, name=None)) < before
    assert less.to_frame().equals(crowds.thinned(annotations, 2, seed=0).to_frame())
    assert not less.to_frame().equals(crowds.thinned(annotations, 2, seed=1).to_frame())
    assert len(crowds.thinned(annotations, 6, seed=0)) == len(annotations)


def test_draws_of_few_items_have_a_known_truth_and_all_labels():
    annotations = Annotations.from_matrix(np.random.default_rng(0).integers(0, 3, (50, 6)))
    truth = crowds.pd.Series(np.where(np.arange(50) % 2, np.nan, np.arange(50) % 3), index=annotations.items)
    parts = list(few_items.draws(crowds.Crowd(annotations, truth), 10, 3))
    assert [part.annotations.n_items for part in parts] == [10] * 3
    for part in parts:
        assert all(item % 2 == 0 for item in part.annotations.items)
        assert part.truth.index.tolist() == part.annotations.items.tolist()
        assert part.true_classes().tolist() == part.truth.astype(int).tolist()
        assert len(part.annotations) == 60
    assert not parts[0].truth.index.equals(parts[1].truth.index)


def test_networks_are_shown_at_the_learning_rate_with_the_higher_accuracy():
    table = crowds.pd.DataFrame(
        {
            "method": ["annot-mix"] * 4 + ["crowdshot"],
            "rate": [0.01, 0.01, 0.001, 0.001, np.nan],
            "accuracy": [0.5, 0.6, 0.7, 0.8, 0.9],
            "log_loss": [2.0, 2.0, 1.0, 1.0, 0.5],
            "over": [0.1, 0.1, 0.2, 0.2, 0.0],
        }
    )
    shown = annot_mix.summary(table).set_index("method")
    assert shown.loc["annot-mix", "learning rate"] == 0.001
    assert shown.loc["annot-mix", "accuracy"] == "0.750 ± 0.071"
    assert shown.loc["crowdshot", "accuracy"] == "0.900"
    assert shown.loc["MaDL", "published"] == 0.825  # published only


def test_crowds_with_common_items_are_relatives():
    assert crowds.relatives("ZC_in") == {"ZC_all", "ZC_in", "ZC_us"}
    assert crowds.relatives("dog") == {"dog"}


def test_a_project_is_written_as_two_tables(tmp_path):
    annotations = Annotations.from_matrix(SAID)
    truth = crowds.pd.Series([0, 1, np.nan, 1], index=crowds.pd.Index(annotations.items, name="item"), name="truth")
    crowds.write(crowds.Crowd(annotations, truth), tmp_path / "toy")
    assert (tmp_path / "toy" / "truth.csv").read_text() == "item,truth\n0,0\n1,1\n3,1\n"
    assert (tmp_path / "toy" / "answers.csv").read_text().startswith("item,annotator,label\n0,0,0\n0,1,0\n0,2,1\n")


def test_votes_weighted_by_agreement():
    annotations = Annotations.from_matrix(SAID)
    # the vote: 0, 1, a tie, 1; so the first is right in 2.5 of 3, the second in 3.5 of 4, the third in 2 of 3
    first, second, third = 2.5 / 3, 3.5 / 4, 2 / 3
    found = rivals.wawa(annotations)[:, 0]
    assert found == pytest.approx([(first + second) / (first + second + third), 0, first / (first + second), 0])


def test_a_pseudo_vote_is_shared_by_all_classes():
    found = rivals.pseudo_vote(Annotations.from_matrix(SAID))
    assert found[:, 0] == pytest.approx([2.5 / 4, 0.5 / 4, 1.5 / 3, 0.5 / 3])


def test_regression_equals_scikit_learns():
    from sklearn.linear_model import LogisticRegression

    random = np.random.default_rng(0)
    items, labels = random.normal(size=(60, 4)), random.integers(0, 3, 60)
    items[:, 0] += labels
    weights = regression.fit(items, np.eye(3)[labels], C=0.1)
    expected = LogisticRegression(C=0.1, tol=1e-8).fit(items, labels).predict_proba(items)
    np.testing.assert_allclose(np.exp(regression.log_proba(items, weights)), expected, atol=2e-3)


def test_rotation_of_wide_features_keeps_inner_products():
    random = np.random.default_rng(0)
    found = regression.prepare(random.normal(size=(5, 20)), random.normal(size=(3, 20)))
    assert found.items.shape == (5, 5)
    np.testing.assert_allclose(found.items @ found.items.T, found.columns @ found.columns.T, atol=1e-9)
    np.testing.assert_allclose(found.unseen @ found.items.T, found.unseen_columns @ found.columns.T, atol=1e-9)


def test_folds_are_stratified():
    labels = np.array([0] * 10 + [1] * 5)
    dealt = regression.folds(np.eye(2)[labels])
    assert np.bincount(dealt[labels == 0]).tolist() == [2] * 5
    assert np.bincount(dealt[labels == 1]).tolist() == [1] * 5


def test_rows_are_measured_once_or_replaced(tmp_path):
    kept = rows.Rows(tmp_path / "rows.parquet", ("scenario", "method"))
    kept.put([{"scenario": "a", "method": "vote", "right": 0.5}, {"scenario": "a", "method": "ours", "right": 0.6}])
    kept.put([{"scenario": "a", "method": "ours", "right": 0.7}])
    again = rows.Rows(tmp_path / "rows.parquet", ("scenario", "method"))
    assert again.measured("scenario", "method") == {("a", "vote"), ("a", "ours")}
    assert again.table["right"].tolist() == [0.7, 0.5]


def test_a_failed_method_is_recorded_with_the_reason():
    found, row = rows.attempt(lambda: 1 / 0, seconds=5)
    assert found is None
    assert row["failed"] == "ZeroDivisionError: division by zero"
