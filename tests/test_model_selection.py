"""scikit-learn's model selection on a crowd's labels: right with gaps, or refused."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    learning_curve,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from crowdshot import Annotations, CrowdClassifier, CrowdshotError
from crowdshot.errors import CrowdshotWarning
from crowdshot.metrics import consensus_accuracy_scorer, held_back_labels_scorer
from crowdshot.model_selection import CrowdKFold, cross_val_proba

N = 60
RANDOM = np.random.default_rng(0)
TRUTH = np.arange(N) % 3
X = np.eye(3)[TRUTH] * 3 + RANDOM.normal(size=(N, 3))
Y = np.where(RANDOM.random((N, 5)) < 0.7, TRUTH[:, None], RANDOM.integers(3, size=(N, 5))).astype(float)
Y[RANDOM.random((N, 5)) < 0.3] = np.nan
NAMES = np.array(["cat", "dog", "emu", None], dtype=object)
WORDS = NAMES[np.where(np.isnan(Y), 3, Y).astype(int)]


@pytest.fixture
def clf():
    return CrowdClassifier("identity")


@pytest.mark.slow
@pytest.mark.parametrize("y", [Y, np.where(np.isnan(Y), -1, Y).astype(int), WORDS, pd.DataFrame(WORDS)], ids=type)
def test_scores_with_gaps(clf, y):
    scores = cross_val_score(clf, X, y, cv=CrowdKFold(3), error_score="raise")
    folds = CrowdKFold(3).split(X, y)
    y = pd.DataFrame(y)
    expected = [
        consensus_accuracy_scorer(CrowdClassifier("identity").fit(X[train], y.iloc[train]), X[test], y.iloc[test])
        for train, test in folds
    ]
    np.testing.assert_allclose(scores, expected)


@pytest.mark.parametrize("scoring", [None, held_back_labels_scorer])
def test_folds_of_a_crowd_that_is_sorted_by_class_warn(clf, scoring):
    order = np.argsort(TRUTH, kind="stable")
    y = np.where(np.isnan(Y), 0, Y)[order].astype(int)  # complete, so that scikit-learn accepts it
    with pytest.warns(CrowdshotWarning) as found:
        low = cross_val_score(clf, X[order], y, cv=3, scoring=scoring)
    warning = found[0].message
    assert warning.argument == "labels"
    assert "CrowdKFold" in warning.hint
    high = cross_val_score(clf, X[order], y, cv=CrowdKFold(3), scoring=scoring)  # does not warn
    assert high.mean() > low.mean()


def test_chance_differences_of_class_frequencies_do_not_warn():
    rng = np.random.default_rng(3)
    for n_items, n_classes in ((12, 2), (40, 20), (300, 5)):
        x = rng.normal(size=(n_items, 2))
        labels = rng.integers(n_classes, size=(n_items, 3))
        for train, test in KFold(4).split(x):
            consensus_accuracy_scorer(CrowdClassifier("identity").fit(x[train], labels[train]), x[test], labels[test])


def test_folds_have_every_item_once_and_all_classes():
    y = WORDS.copy()
    y[7:10] = None
    folds = list(CrowdKFold(4).split(X, y))
    assert sorted(np.concatenate([test for _, test in folds])) == list(range(N))
    for train, test in folds:
        assert not set(train) & set(test)
        assert set(TRUTH[test]) == {0, 1, 2}
    assert [test.tolist() for _, test in CrowdKFold(4).split(X, y)] == [test.tolist() for _, test in folds]
    other = [test.tolist() for _, test in CrowdKFold(4, random_state=1).split(X, y)]
    assert other != [test.tolist() for _, test in folds]


@pytest.mark.parametrize("n_splits", [1, 61, 2.5])
def test_impossible_folds_are_refused(n_splits):
    with pytest.raises(CrowdshotError) as error:
        next(CrowdKFold(n_splits).split(X, Y))
    assert error.value.argument == "n_splits"


def test_searches_and_curves(clf):
    grid = {"method": ["features", "ours"]}
    for scoring in (None, held_back_labels_scorer):
        search = GridSearchCV(clf, grid, scoring=scoring, cv=CrowdKFold(3), error_score="raise").fit(X, Y)
        assert np.isfinite(search.cv_results_["mean_test_score"]).all()
        assert (search.predict(X) == TRUTH).mean() > 0.9
    sizes, _, test = learning_curve(clf, X, Y, cv=CrowdKFold(3), train_sizes=[0.5, 1.0], error_score="raise")
    assert sizes.tolist() == [20, 40]
    assert np.isfinite(test).all()


def test_score_takes_true_classes_or_the_labels_of_the_crowd(clf):
    clf.fit(X, Y)
    assert clf.score(X, TRUTH) == (clf.predict(X) == TRUTH).mean()
    assert clf.score(X, Y) == consensus_accuracy_scorer(clf, X, Y)
    for y, weight, argument in ((Y[:, :1], None, "y"), (Y, np.ones(N), "sample_weight")):
        with pytest.raises(CrowdshotError) as error:
            clf.score(X, y, weight)
        assert error.value.argument == argument


@pytest.mark.parametrize("y", [Y, WORDS, np.where(np.isnan(Y), 0, Y).astype(int)], ids=["NaN", "None", "complete"])
@pytest.mark.parametrize("method", ["predict_proba", "predict_log_proba"])
@pytest.mark.parametrize("steps", [(), (StandardScaler(),)], ids=["alone", "pipeline"])
def test_probabilities_of_renumbered_labels_are_refused(clf, y, method, steps):
    with pytest.raises(CrowdshotError, match="cross_val_proba") as error:
        cross_val_predict(make_pipeline(*steps, clf), X, y, cv=CrowdKFold(3), method=method)
    assert error.value.argument == "y"


def test_predictions_and_one_annotator_without_gaps_are_right(clf):
    found = cross_val_predict(clf, X, WORDS, cv=CrowdKFold(3))
    assert (found == NAMES[TRUTH]).mean() > 0.9
    p = cross_val_predict(clf, X, NAMES[TRUTH], cv=CrowdKFold(3), method="predict_proba")
    np.testing.assert_allclose(p, cross_val_proba(clf, X, NAMES[TRUTH], cv=CrowdKFold(3)))
    with pytest.raises(CrowdshotError, match="cross_val_proba"):
        cross_val_predict(clf, X, np.where(TRUTH == 1, -1, TRUTH), cv=CrowdKFold(3), method="predict_proba")


def test_each_item_is_predicted_without_its_labels(clf):
    p = cross_val_proba(clf, X, WORDS, cv=3)
    for train, test in CrowdKFold(3).split(X, WORDS):
        expected = CrowdClassifier("identity").fit(X[train], WORDS[train]).predict_proba(X[test])
        np.testing.assert_allclose(p[test], expected)
    changed = WORDS.copy()
    changed[0] = "dog"  # changes other items' predictions at most
    folds = list(CrowdKFold(3).split(X, WORDS))
    np.testing.assert_allclose(
        cross_val_proba(clf, X, changed, cv=folds)[0], cross_val_proba(clf, X, WORDS, cv=folds)[0]
    )
    assert CrowdClassifier("identity").fit(X, WORDS, pred_probs=p).classes_.tolist() == ["cat", "dog", "emu"]


def test_all_forms_of_items_and_labels_have_the_same_probabilities(clf):
    expected = cross_val_proba(clf, X, WORDS, cv=3)
    names = [f"i{n}" for n in range(N)]
    table = pd.DataFrame(X, columns=["a", "b", "c"], index=names)
    long = Annotations.from_matrix(WORDS, items=names).to_frame()
    for items, labels in ((table, long), (table, pd.DataFrame(WORDS, index=names)), (X.tolist(), WORDS.tolist())):
        np.testing.assert_allclose(cross_val_proba(clf, items, labels, cv=3), expected)
    np.testing.assert_allclose(cross_val_proba(clf, X, long, items=names, cv=3), expected)
    scaled = make_pipeline(StandardScaler(with_std=False), clf)
    np.testing.assert_allclose(cross_val_proba(scaled, table, long, cv=3), expected, atol=1e-6)


def test_a_class_that_a_fold_lacks_keeps_its_column(clf):
    y = Y.copy()
    y[0] = 7
    p = cross_val_proba(clf, X, y, cv=4)
    assert p.shape == (N, 4)
    assert p[0, 3] == 0  # nobody else has the class
    np.testing.assert_allclose(p.sum(1), 1)


def test_other_splitters(clf):
    groups = np.arange(N) // 6
    for cv in (KFold(3), StratifiedKFold(3), list(GroupKFold(5).split(X, groups=groups))):
        assert (cross_val_proba(clf, X, Y, cv=cv).argmax(1) == TRUTH).mean() > 0.9
    with pytest.raises(CrowdshotError) as error:
        cross_val_proba(clf, X, Y, cv=[(np.arange(30), np.arange(30, 60))])
    assert error.value.argument == "cv"


def test_other_classifiers_keep_their_own_conventions():
    p = cross_val_predict(LogisticRegression(), X, TRUTH, cv=CrowdKFold(3), method="predict_proba")
    assert p.shape == (N, 3)
