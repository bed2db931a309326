"""Conformal prediction sets of new items."""

import numpy as np
import pytest

from crowdshot import CrowdClassifier, CrowdshotError
from crowdshot.errors import CrowdshotWarning


def problem(seed, n=60, new=600, apart=1.2):
    """Three overlapping clouds; labels of the first n items, of which many are taken for the next class by all."""
    random = np.random.default_rng(seed)
    truth = random.integers(3, size=n + new)
    x = np.eye(3)[truth] * apart + random.normal(size=(n + new, 3))
    seems = np.where(random.random(n) < 0.2, (truth[:n] + 1) % 3, truth[:n])
    labels = np.where(random.random((n, 3)) < 0.7, seems[:, None], random.integers(3, size=(n, 3)))
    return x[:n], labels, x[n:], truth[n:]


@pytest.mark.slow
def test_sets_of_new_items_cover_the_truth_as_often_as_promised():
    covered, sizes = [], []
    for seed in range(60):
        x, labels, new, truth = problem(seed)
        clf = CrowdClassifier().fit(x, labels, classes=range(3))
        sets = clf.predict_set(new[50:], new[:50], truth[:50], coverage=0.9)
        covered.append(sets[np.arange(550), truth[50:]].mean())
        sizes.append(sets.sum(1).mean())
    error = np.std(covered) / np.sqrt(len(covered))
    assert np.mean(covered) > 0.9 - 2.6 * error
    assert np.mean(covered) < 0.95
    assert np.mean(sizes) < 2.9


def test_the_most_probable_class_is_in_the_set_and_more_coverage_gives_larger_sets():
    x, labels, new, truth = problem(0)
    names = np.array(["a", "b", "c"])
    clf = CrowdClassifier().fit(x, names[labels])
    small, large = (clf.predict_set(new[99:], new[:99], names[truth[:99]], coverage) for coverage in (0.3, 0.95))
    assert small[np.arange(501), clf.predict_proba(new[99:]).argmax(1)].all()
    assert (large >= small).all()
    assert large.sum() > small.sum()


@pytest.mark.parametrize(
    ("y_gold", "argument"),
    [([0, 1], "y_gold"), (["x"] * 30, "y_gold"), ([None, *[0] * 29], "y_gold"), ([[0]] * 30, "y_gold")],
)
def test_bad_gold(y_gold, argument):
    x, labels, new, _ = problem(0)
    clf = CrowdClassifier().fit(x, labels)
    with pytest.raises(CrowdshotError) as caught:
        clf.predict_set(new, new[:30], y_gold)
    assert caught.value.argument == argument


def test_too_few_gold_items():
    x, labels, new, truth = problem(0)
    clf = CrowdClassifier().fit(x, labels)
    with pytest.raises(CrowdshotError) as caught:
        clf.predict_set(new, new[:8], truth[:8])
    assert caught.value.found == 8
    assert clf.predict_set(new, new[:9], truth[:9].astype(str)).any(1).all(), "1 and '1' are one class"


# ---- temperature ----


def test_calibrate_changes_new_items_only_and_is_saved(tmp_path):
    x, labels, new, truth = problem(1, apart=3.0)
    clf = CrowdClassifier().fit(x, labels, classes=range(3))
    p, consensus = clf.predict_proba(new), clf.label_proba_
    assert clf.calibrate(new[:100], truth[:100]) is clf
    q, T = clf.predict_proba(new), clf.temperature_
    assert T != 1
    expected = p ** (1 / T)
    np.testing.assert_allclose(q, expected / expected.sum(1, keepdims=True), rtol=1e-9)
    np.testing.assert_array_equal(clf.label_proba_, consensus)
    clf.calibrate(new[:100], truth[:100])
    assert clf.temperature_ == T, "a second calibration starts from the fit"
    clf.save(tmp_path / "model.safetensors")
    again = CrowdClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.predict_proba(new), q, rtol=1e-6)
    clf.update({0: {0: 1}})
    assert clf.temperature_ == 1


def test_bad_gold_leaves_the_temperature_as_it_was():
    x, labels, new, truth = problem(1, apart=3.0)
    clf = CrowdClassifier().fit(x, labels, classes=range(3)).calibrate(new[:100], truth[:100])
    before = clf.temperature_
    with pytest.raises(CrowdshotError):
        clf.calibrate(new[:100], truth[:99])
    assert clf.temperature_ == before != 1


def test_onnx_has_the_temperature(tmp_path):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnx", reason="onnx is not installed")
    x, labels, new, truth = problem(1, apart=3.0)
    clf = CrowdClassifier().fit(x, labels, classes=range(3)).calibrate(new[:100], truth[:100])
    clf.to_onnx(tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: new.astype("f4")})
    np.testing.assert_allclose(found, clf.predict_proba(new), atol=1e-5)


@pytest.mark.slow
def test_calibrated_confidence_is_right_on_average():
    before, after = [], []
    for seed in range(30):
        x, labels, new, truth = problem(seed)
        clf = CrowdClassifier().fit(x, labels, classes=range(3))
        right = clf.score(new[50:], truth[50:])
        before.append(abs(clf.predict_proba(new[50:]).max(1).mean() - right))
        clf.calibrate(new[:50], truth[:50])
        after.append(abs(clf.predict_proba(new[50:]).max(1).mean() - right))
    assert np.mean(after) < np.mean(before)


def test_gold_items_of_the_fit_are_noticed():
    x, labels, new, truth = problem(1, apart=3.0)
    clf = CrowdClassifier().fit(x, labels, classes=range(3))
    mixed, known = np.concatenate([new[:40], x[:2]]), np.concatenate([truth[:40], [0, 1]])
    for use in (lambda: clf.calibrate(mixed, known), lambda: clf.predict_set(new, mixed, known)):
        with pytest.warns(CrowdshotWarning) as caught:
            use()
        assert caught[0].message.argument == "X_gold"
        assert caught[0].message.found == 2
