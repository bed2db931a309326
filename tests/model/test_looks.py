"""What features say of an item without its own labels: each formula against doing it over without the item."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crowdshot import CrowdClassifier
from crowdshot.model import combined
from crowdshot.model.feature_model import RIDGES, TAU, FeatureModel, Regression, Standard, distances, near, spread_out
from crowdshot.model.label_model import shipped_network


def soft(n: int, K: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(K, 0.4), n)


@pytest.mark.parametrize(("n", "r"), [(12, 3), (6, 20)], ids=["more items", "more features"])
def test_a_regression_without_an_item_is_one_that_never_met_it(n: int, r: int) -> None:
    """The ridge is on slopes alone; the mean, which every forecast starts from, is that of the items that teach."""
    random = np.random.default_rng(0)
    phi, q = random.normal(size=(n, r)), soft(n, 3, 1)
    regression = Regression(phi)
    for place in range(len(RIDGES)):
        ridge = regression.ridges[place]
        found = regression.without_own(q, ridge)
        for item in range(n):
            others = np.delete(np.arange(n), item)
            x, y = phi[others] - phi[others].mean(0), q[others] - q[others].mean(0)
            slope = np.linalg.solve(x.T @ x + ridge * np.eye(r), x.T @ y)
            again = q[others].mean(0) + (phi[item] - phi[others].mean(0)) @ slope
            np.testing.assert_allclose(found[item], again, atol=1e-8)


def test_weights_of_a_regression_give_its_forecast() -> None:
    phi, q = np.random.default_rng(0).normal(size=(9, 4)), soft(9, 2, 0)
    regression = Regression(phi)
    slope, start = regression.weights(q, regression.ridges[2])
    x, y = phi - phi.mean(0), q - q.mean(0)
    by_hand = np.linalg.solve(x.T @ x + regression.ridges[2] * np.eye(4), x.T @ y)
    np.testing.assert_allclose(slope, by_hand, atol=1e-10)
    np.testing.assert_allclose(start, q.mean(0) - phi.mean(0) @ by_hand, atol=1e-10)


def test_distances_are_from_means_without_the_item() -> None:
    x, q = np.random.default_rng(2).normal(size=(7, 3)), soft(7, 3, 2)
    looks = FeatureModel(x)
    for u in looks.units:
        assert (u * u).sum(1).mean() == pytest.approx(1)
        squared, means = distances(u, q)
        for item in range(7):
            others = np.delete(np.arange(7), item)
            mean = q[others].T @ u[others] / (TAU + q[others].sum(0))[:, None]
            np.testing.assert_allclose(squared[item], ((u[item] - mean) ** 2).sum(1), atol=1e-10)
        np.testing.assert_allclose(means, q.T @ u / (TAU + q.sum(0))[:, None])


def test_an_items_own_belief_does_not_reach_what_is_told_of_it() -> None:
    """But for the sizes of classes and how ways are weighed, which one of forty hardly moves."""
    random = np.random.default_rng(3)
    truth = np.arange(40) % 2
    x = truth[:, None] * 3 + random.normal(size=(40, 2))
    q, evidence = np.eye(2)[truth] * 0.8 + 0.1, np.log(np.eye(2)[truth] * 0.8 + 0.1)
    looks = FeatureModel(x)
    told, _ = looks.believed(q, evidence, q.mean(0))
    turned = q.copy()
    turned[5] = q[5, ::-1]
    again, _ = looks.believed(turned, evidence, turned.mean(0))
    assert told[5].argmax() == again[5].argmax() == truth[5]
    assert abs(told[5] - again[5]).max() < 0.35 * abs(told[5]).max()


def test_features_that_say_nothing_say_nothing() -> None:
    random = np.random.default_rng(0)
    q, evidence = soft(200, 3, 0), np.log(soft(200, 3, 0) + 0.05)
    told, forecast = FeatureModel(random.normal(size=(200, 5))).believed(q, evidence, q.mean(0))
    assert abs(told).mean() < 0.15
    np.testing.assert_allclose(forecast(random.normal(size=(50, 5))), np.tile(forecast.size, (50, 1)), atol=0.15)


def test_features_that_tell_the_class_are_believed() -> None:
    random = np.random.default_rng(1)
    truth = np.arange(90) % 3
    x = np.eye(3)[truth] * 6 + random.normal(size=(90, 3))
    q = np.eye(3)[truth] * 0.7 + 0.1
    told, forecast = FeatureModel(x).believed(q, np.log(q), q.mean(0))
    assert (told.argmax(1) == truth).mean() > 0.97
    found = forecast(np.eye(3) * 6)
    np.testing.assert_allclose(found.sum(1), 1)
    assert found.diagonal().min() > 0.6
    assert forecast.foretold[0] > forecast.foretold[1] + 0.15


def test_nearness_by_hand() -> None:
    np.testing.assert_allclose(near(np.zeros((1, 2)), np.array([[0.0, 0.0], [2.0, 0.0]])), [[1, np.exp(-1)]])
    standard = Standard.of(np.array([[1.0, 5.0], [3.0, 5.0]]))
    np.testing.assert_allclose(standard(np.array([[3.0, 9.0]])), [[1.0, 0.0]])  # what never changes counts for nothing


def test_a_few_of_many_items_are_the_same_in_any_order() -> None:
    z = np.random.default_rng(0).normal(size=(500, 4))
    order = np.random.default_rng(1).permutation(500)
    here, there = z[spread_out(z, 60)], z[order][spread_out(z[order], 60)]
    np.testing.assert_array_equal(np.sort(here, 0), np.sort(there, 0))
    assert len(here) == 60


@given(seed=st.integers(0, 10_000), K=st.integers(2, 4), N=st.integers(4, 30))
def test_neither_names_nor_order_matter(seed: int, K: int, N: int) -> None:
    random = np.random.default_rng(seed)
    x = random.normal(size=(N, 3))
    item, annotator = np.repeat(np.arange(N), 2), random.integers(5, size=2 * N)
    label = np.concatenate([random.integers(K, size=2 * N - K), np.arange(K)])
    network = shipped_network()
    here = combined.fit(x, item, annotator, label, 5, K, network)
    items, people, classes, rows = (random.permutation(n) for n in (N, 5, K, 2 * N))
    there = combined.fit(
        x[items],
        np.argsort(items)[item[rows]],
        np.argsort(people)[annotator[rows]],
        np.argsort(classes)[label[rows]],
        5,
        K,
        network,
    )
    np.testing.assert_allclose(there.posterior, here.posterior[items][:, classes], atol=1e-6)
    queries = random.normal(size=(4, 3))
    np.testing.assert_allclose(there.forecast(queries), here.forecast(queries)[:, classes], atol=1e-6)


def test_labels_decide_alone_where_all_items_look_the_same() -> None:
    labels = [["a", "a"], ["b", "b"], ["a", None], ["b", "a"], ["b", "b"]]
    clf = CrowdClassifier("identity").fit(np.ones((5, 3)), labels)
    np.testing.assert_allclose(clf.fit_.alone, clf.label_proba_, atol=0.02)  # but for class sizes without the item
    assert np.isfinite(clf.predict_proba([[1.0, 1.0, 1.0], [9.0, 0.0, 2.0]])).all()


def test_what_is_said_of_an_item_does_not_depend_on_those_beside_it() -> None:
    X = np.array(
        [[1.0, 1.0], [1.0, 0.0], [-1.0, -1.0], [-1.0, 0.0]] * 6
    )  # of mean 0: a query may have nothing but means
    labels = np.where(np.random.default_rng(0).random((24, 3)) < 0.85, X[:, :1] < 0, X[:, :1] > 0).astype(int)
    clf = CrowdClassifier("identity").fit(X, labels)
    alone = np.concatenate([clf.predict_proba(X[[row]]) for row in range(24)])
    np.testing.assert_allclose(alone, clf.predict_proba(X), atol=1e-12)
