"""The feature model: leave-one-out formulas against refitting without the item, known answers, and symmetries."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from crowdshot import CrowdClassifier
from crowdshot.model import combined, regressions
from crowdshot.model.feature_model import TAU, FeatureModel, Standard, distances, spread_rows
from crowdshot.model.label_model import shipped_network
from crowdshot.model.regressions import RIDGES, Logistic, Regression, kernel


def soft(n: int, K: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(K, 0.4), n)


@pytest.mark.parametrize(("n", "r"), [(12, 3), (6, 20)], ids=["more items", "more features"])
def test_leave_one_out_of_a_regression_equals_a_fit_without_the_item(n: int, r: int) -> None:
    """The ridge is on slopes alone; the mean, which every forecast starts from, is that of the items that teach."""
    random = np.random.default_rng(0)
    phi, q = random.normal(size=(n, r)), soft(n, 3, 1)
    regression = Regression.on_features(phi)
    [(_, predictions)] = regression.fit(q).leave_one_out(range(len(RIDGES)))
    for ridge, found in zip(regression.ridges, predictions, strict=True):
        for item in range(n):
            others = np.delete(np.arange(n), item)
            x, y = phi[others] - phi[others].mean(0), q[others] - q[others].mean(0)
            slope = np.linalg.solve(x.T @ x + ridge * np.eye(r), x.T @ y)
            again = q[others].mean(0) + (phi[item] - phi[others].mean(0)) @ slope
            np.testing.assert_allclose(found[:, item], again, atol=1e-8)


def test_weights_of_a_regression_by_hand() -> None:
    phi, q = np.random.default_rng(0).normal(size=(9, 4)), soft(9, 2, 0)
    regression = Regression.on_features(phi)
    slope, start = regression.fit(q).weights(2)
    x, y = phi - phi.mean(0), q - q.mean(0)
    by_hand = np.linalg.solve(x.T @ x + regression.ridges[2] * np.eye(4), x.T @ y)
    np.testing.assert_allclose(slope, by_hand, atol=1e-10)
    np.testing.assert_allclose(start, q.mean(0) - phi.mean(0) @ by_hand, atol=1e-10)


@pytest.mark.parametrize(("n", "D", "most"), [(40, 3, 40), (40, 3, 15), (60, 1, 60)], ids=["all", "some", "few kept"])
def test_kernel_regression_equals_ridge_regression_on_nystroem_features(n: int, D: int, most: int) -> None:
    z = Standard.of(x := np.random.default_rng(4).normal(size=(n, D)))(x)
    q, landmarks = soft(n, 3, 5), spread_rows(z, most)
    size, V = np.linalg.eigh(kernel(z[landmarks], z[landmarks]))
    kept = size > size.max() * 1e-8
    root = V[:, kept] / np.sqrt(size[kept])
    phi = kernel(z, z[landmarks]) @ root
    regression = Regression.on_kernel(z, landmarks)
    fit, centred = regression.fit(q), phi - phi.mean(0)
    np.testing.assert_allclose(regression.ridges, RIDGES * (centred**2).sum() / n)
    [(_, predictions)] = fit.leave_one_out(range(len(RIDGES)))
    for place, ridge in enumerate(regression.ridges):
        inverse = np.linalg.inv(centred.T @ centred + ridge * np.eye(phi.shape[1]))
        hat = centred @ inverse @ centred.T + 1 / n
        held_out = (hat @ q - hat.diagonal()[:, None] * q) / (1 - hat.diagonal()[:, None])
        np.testing.assert_allclose(predictions[place].T, held_out, atol=1e-6)
        slope, start = fit.weights(place)
        np.testing.assert_allclose(kernel(z, z[landmarks]) @ slope + start, hat @ q, atol=1e-6)


def test_a_large_basis_in_single_precision_changes_little(monkeypatch: pytest.MonkeyPatch) -> None:
    random = np.random.default_rng(6)
    z, q = random.normal(size=(300, 4)), soft(300, 3, 6)
    landmarks = spread_rows(z, 80)
    [(_, expected)] = Regression.on_kernel(z, landmarks).fit(q).leave_one_out(range(len(RIDGES)))
    monkeypatch.setattr(regressions, "COMPACT", 1)
    monkeypatch.setattr(regressions, "AT_ONCE", 10_000)
    compact = Regression.on_kernel(z, landmarks)
    assert compact.blocks[0][1].dtype == np.float32
    pieces = list(compact.fit(q).leave_one_out(range(len(RIDGES))))
    assert len(pieces) > 1
    np.testing.assert_allclose(np.concatenate([f for _, f in pieces], 2), expected, atol=1e-6)


def test_distances_are_from_means_without_the_item() -> None:
    x, q = np.random.default_rng(2).normal(size=(7, 3)), soft(7, 3, 2)
    model = FeatureModel(x)
    for unit, norm in zip(model.units, model.squared_norms, strict=True):
        u = model.z * unit
        assert (u * u).sum(1).mean() == pytest.approx(1)
        squared, means = distances(model.z, unit, norm, q)
        for item in range(7):
            others = np.delete(np.arange(7), item)
            mean = q[others].T @ u[others] / (TAU + q[others].sum(0))[:, None]
            np.testing.assert_allclose(squared[:, item], ((u[item] - mean) ** 2).sum(1), atol=1e-10)
        np.testing.assert_allclose(means, q.T @ u / (TAU + q.sum(0))[:, None])


def test_an_items_prediction_hardly_depends_on_its_own_posterior() -> None:
    """Except through class sizes and weights, which one of forty items hardly moves."""
    random = np.random.default_rng(3)
    truth = np.arange(40) % 2
    x = truth[:, None] * 3 + random.normal(size=(40, 2))
    q, evidence = np.eye(2)[truth] * 0.8 + 0.1, np.log(np.eye(2)[truth] * 0.8 + 0.1)
    model = FeatureModel(x)
    log_ratio = model.fit(q, evidence, q.mean(0)).log_ratio
    turned = q.copy()
    turned[5] = q[5, ::-1]
    again = model.fit(turned, evidence, turned.mean(0)).log_ratio
    assert log_ratio[5].argmax() == again[5].argmax() == truth[5]
    assert abs(log_ratio[5] - again[5]).max() < 0.35 * abs(log_ratio[5]).max()


def test_uninformative_features_give_class_sizes() -> None:
    random = np.random.default_rng(0)
    q, evidence = soft(200, 3, 0), np.log(soft(200, 3, 0) + 0.05)
    fit = FeatureModel(random.normal(size=(200, 5))).fit(q, evidence, q.mean(0))
    log_ratio, forecast = fit.log_ratio, fit.forecast
    assert abs(log_ratio).mean() < 0.15
    np.testing.assert_allclose(forecast(random.normal(size=(50, 5))), np.tile(forecast.size, (50, 1)), atol=0.15)


def test_informative_features_predict_the_class() -> None:
    random = np.random.default_rng(1)
    truth = np.arange(90) % 3
    x = np.eye(3)[truth] * 6 + random.normal(size=(90, 3))
    q = np.eye(3)[truth] * 0.7 + 0.1
    fit = FeatureModel(x).fit(q, np.log(q), q.mean(0))
    log_ratio, forecast = fit.log_ratio, fit.forecast
    assert (log_ratio.argmax(1) == truth).mean() > 0.97
    found = forecast(np.eye(3) * 6)
    np.testing.assert_allclose(found.sum(1), 1)
    assert found.diagonal().min() > 0.6
    assert forecast.foretold[0] > forecast.foretold[1] + 0.15


def test_kernel_and_standard_by_hand() -> None:
    np.testing.assert_allclose(kernel(np.zeros((1, 2)), np.array([[0.0, 0.0], [2.0, 0.0]])), [[1, np.exp(-1)]])
    standard = Standard.of(np.array([[1.0, 5.0], [3.0, 5.0]]))
    np.testing.assert_allclose(standard(np.array([[3.0, 9.0]])), [[1.0, 0.0]])  # what never changes counts for nothing


def test_a_few_of_many_items_are_the_same_in_any_order() -> None:
    z = np.random.default_rng(0).normal(size=(500, 4))
    order = np.random.default_rng(1).permutation(500)
    here, there = z[spread_rows(z, 60)], z[order][spread_rows(z[order], 60)]
    np.testing.assert_array_equal(np.sort(here, 0), np.sort(there, 0))
    assert len(here) == 60


@pytest.mark.slow
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


def test_labels_decide_alone_where_all_features_are_equal() -> None:
    labels = [["a", "a"], ["b", "b"], ["a", None], ["b", "a"], ["b", "b"]]
    clf = CrowdClassifier("identity").fit(np.ones((5, 3)), labels)
    np.testing.assert_allclose(clf._model.alone, clf.label_proba_, atol=0.02)  # but for class sizes without the item
    assert np.isfinite(clf.predict_proba([[1.0, 1.0, 1.0], [9.0, 0.0, 2.0]])).all()


def test_a_prediction_does_not_depend_on_other_queries() -> None:
    X = np.array(
        [[1.0, 1.0], [1.0, 0.0], [-1.0, -1.0], [-1.0, 0.0]] * 6
    )  # of mean 0: a query may have nothing but means
    labels = np.where(np.random.default_rng(0).random((24, 3)) < 0.85, X[:, :1] < 0, X[:, :1] > 0).astype(int)
    clf = CrowdClassifier("identity").fit(X, labels)
    alone = np.concatenate([clf.predict_proba(X[[row]]) for row in range(24)])
    np.testing.assert_allclose(alone, clf.predict_proba(X), atol=1e-12)


# ---- logistic regression


def planes(n, D, K, seed=0):
    """Return items and their classes: the largest of K linear functions."""
    random = np.random.default_rng(seed)
    x = random.normal(size=(n, D))
    return x, (x @ random.normal(size=(D, K))).argmax(1)


def soft_truth(truth, K, sure=0.9):
    return np.eye(K)[truth] * (sure - (1 - sure) / (K - 1)) + (1 - sure) / (K - 1)


def test_logistic_equals_scikit_learn():
    x, truth = planes(150, 4, 3)
    q = soft_truth(truth, 3)
    found = Logistic(x, np.arange(150))
    slope, start = found.weights(found.fit(q, np.full(3, 1 / 3), 2.0))
    rows, classes = np.repeat(np.arange(150), 3), np.tile(np.arange(3), 150)  # a soft label is three weighted ones
    theirs = LogisticRegression(C=0.5, tol=1e-9, max_iter=5_000).fit(x[rows], classes, sample_weight=q.ravel())
    ours = x @ slope + start
    expected = theirs.decision_function(x)
    np.testing.assert_allclose(
        ours - ours.mean(1, keepdims=True), expected - expected.mean(1, keepdims=True), atol=2e-3
    )


def test_logistic_separates_class_sizes_from_features():
    x, truth = planes(200, 3, 2)
    sizes = np.array([0.9, 0.1])
    found = Logistic(x, np.arange(200))
    even = found.fit(soft_truth(truth, 2), np.full(2, 0.5), 1.0)[-1]
    found.found.clear()
    uneven = found.fit(soft_truth(truth, 2), sizes, 1.0)[-1]
    moved = np.diff(uneven - even)[0]
    assert moved == pytest.approx(np.log(9), abs=0.01)  # what the first class is more frequent than it teaches


@pytest.mark.parametrize(("n", "D", "ridge"), [(120, 5, 1.0), (60, 40, 10.0), (80, 10, 100.0)])
def test_leave_one_out_of_logistic_is_close_to_refitting(n, D, ridge):
    x, truth = planes(n, D, 3)
    q, size = soft_truth(truth, 3), np.full(3, 1 / 3)
    found = Logistic(x, np.arange(n))
    W, quick = found.leave_one_out(q, size, ridge)
    with_own = found.phi @ W

    def centred(z):
        return z - z.mean(1, keepdims=True)

    slow = np.empty_like(quick)
    for i in range(n):
        others = Logistic(x, np.delete(np.arange(n), i))
        slope, start = others.weights(others.fit(q, size, ridge))
        slow[i] = x[i] @ slope + start
    near, far = (np.abs(centred(z) - centred(slow)).mean() for z in (quick, with_own))
    assert near < 0.5 * far


def test_logistic_predicts_items_that_it_was_not_fitted_to():
    x, truth = planes(300, 3, 2)
    some = np.arange(0, 300, 3)
    found = Logistic(x, some)
    W, z = found.leave_one_out(soft_truth(truth, 2), np.full(2, 0.5), 1.0)
    slope, start = found.weights(W)
    others = np.setdiff1d(np.arange(300), some)
    np.testing.assert_allclose(z[others], x[others] @ slope + start)
    assert (z.argmax(1) == truth).mean() > 0.9


@pytest.mark.parametrize(("D", "K", "n", "right"), [(30, 6, 600, 0.85), (10, 3, 300, 0.88)])
def test_classes_separated_by_planes(D, K, n, right):
    """Ridge regressions and the kernel alone are 0.05 to 0.1 below a plain regression on votes here."""
    x, truth = planes(n + 500, D, K)
    random = np.random.default_rng(1)
    wrong = (truth[:n, None] + random.integers(1, K, (n, 3))) % K
    said = np.where(random.random((n, 3)) < 0.85, truth[:n, None], wrong)
    votes = np.array([np.bincount(row).argmax() for row in said])
    plain = LogisticRegression(max_iter=500).fit(x[:n], votes).score(x[n:], truth[n:])
    ours = CrowdClassifier().fit(x[:n], said).score(x[n:], truth[n:])
    assert ours > max(right, plain)


def test_item_predictions_are_weighted_by_the_first_posteriors():
    """Features get no more weight when later posteriors follow noise in them."""
    random = np.random.default_rng(0)
    x, evidence, size = random.normal(size=(80, 40)), 2 * random.random((80, 2)), np.full(2, 0.5)
    model = FeatureModel(x)
    alone = np.exp(evidence) / np.exp(evidence).sum(1, keepdims=True)
    first = model.fit(alone, evidence, size).log_ratio
    follows = np.eye(2)[(x @ random.normal(size=40) > 0).astype(int)]
    later = model.fit(follows, evidence, size).log_ratio
    assert np.abs(first).mean() < 0.2
    assert np.abs(later).mean() < 0.4
