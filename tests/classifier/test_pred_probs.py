"""`fit(…, pred_probs=…)`: another classifier is one more witness, believed as far as it foretells labels."""

import numpy as np
import pytest

from crowdshot import CrowdClassifier, CrowdshotError
from crowdshot.model import guesses

RANDOM = np.random.default_rng(0)
K, N = 3, 120
TRUTH = RANDOM.integers(K, size=N)
SAID = np.where(RANDOM.random((N, 3)) < 0.6, TRUTH[:, None], RANDOM.integers(K, size=(N, 3)))
SAID[100:] = -1  # nobody labelled these
NOISE = RANDOM.normal(size=(N, 2))  # features that say nothing
CLOUDS = 3 * np.eye(K)[TRUTH] + RANDOM.normal(size=(N, K))


def claims(right: float, sure: float = 0.9) -> np.ndarray:
    """Probabilities of a classifier that is so often right and always that sure."""
    said = np.where(RANDOM.random(N) < right, TRUTH, RANDOM.integers(K, size=N))
    return np.where(np.eye(K, dtype=bool)[said], sure, (1 - sure) / (K - 1))


def accuracy(clf: CrowdClassifier, rows=slice(None)) -> float:
    return (clf.belief_.argmax(1) == TRUTH)[rows].mean()


def test_a_good_one_helps_where_features_do_not():
    plain = CrowdClassifier("identity").fit(NOISE, SAID)
    told = CrowdClassifier("identity").fit(NOISE, SAID, pred_probs=claims(0.95))
    assert accuracy(told, slice(0, 100)) > max(0.93, accuracy(plain, slice(0, 100)) + 0.1)
    assert accuracy(told, slice(100, N)) > 0.85 > accuracy(plain, slice(100, N))  # of them nobody else knows anything
    np.testing.assert_allclose(told.belief_.sum(1), 1)


@pytest.mark.parametrize("features", [NOISE, CLOUDS], ids=["noise", "clouds"])
@pytest.mark.parametrize("bad", [claims(1 / 3), claims(0, 0.99), RANDOM.dirichlet(np.ones(K) / 10, N)])
def test_a_bad_one_does_no_harm(features, bad):
    plain = CrowdClassifier("identity").fit(features, SAID)
    told = CrowdClassifier("identity").fit(features, SAID, pred_probs=bad)
    assert accuracy(told, slice(0, 100)) >= accuracy(plain, slice(0, 100)) - 0.03
    assert accuracy(told, slice(100, N)) >= accuracy(plain, slice(100, N)) - 0.1


def test_it_says_of_items_and_not_of_the_classifier():
    """New items have no such witness: what is learned for them comes from features alone, taught by a better belief."""
    told = CrowdClassifier("identity").fit(CLOUDS, SAID, pred_probs=claims(0.95))
    assert (told.predict(CLOUDS) == TRUTH).mean() > 0.9


def test_the_average_is_of_probabilities():
    """By hand: two witnesses of one item, weighed 1 to 3."""
    size = np.array([0.5, 0.5])
    told = [np.log([[0.8, 0.2]]) - np.log(size), np.log([[0.4, 0.6]]) - np.log(size)]
    found = np.exp(guesses.together(told, np.array([0.25, 0.75]), size)) * size
    np.testing.assert_allclose(found, [[0.25 * 0.8 + 0.75 * 0.4, 0.25 * 0.2 + 0.75 * 0.6]])
    evidence = np.log([[0.9, 0.1]])
    worth = np.array([0.8 * 0.9 + 0.2 * 0.1, 0.4 * 0.9 + 0.6 * 0.1])
    np.testing.assert_allclose(guesses.weigh(told, evidence, size), worth / worth.sum())


def test_columns_go_by_classes_and_gold_stays():
    p = claims(0.95)
    names = np.array(["x", "y", "z"])
    labels = np.where(SAID < 0, None, names[SAID])
    expected = CrowdClassifier("identity").fit(NOISE, SAID, pred_probs=p, gold={0: 1})
    found = CrowdClassifier("identity").fit(NOISE, labels, pred_probs=p, gold={0: "y"})
    np.testing.assert_allclose(found.belief_, expected.belief_, atol=1e-12)
    assert found.consensus_["confidence"][0] == 1
    back = CrowdClassifier("identity").fit(NOISE, labels, pred_probs=p[:, ::-1], gold={0: "y"}, classes=["z", "y", "x"])
    np.testing.assert_allclose(back.belief_[:, ::-1], expected.belief_, atol=1e-6)
    wider = np.hstack([p, np.zeros((N, 1))])
    four = CrowdClassifier("identity").fit(NOISE, labels, pred_probs=wider, gold={0: "y"}, classes=["x", "y", "z", "w"])
    np.testing.assert_allclose(four.belief_[:, :3], expected.belief_, atol=1e-12)


def test_it_stays_with_updates_and_files(tmp_path):
    p = claims(0.9)
    clf = CrowdClassifier("identity").fit(NOISE[:90], SAID[:90], pred_probs=p[:90])
    clf.save(tmp_path / "model.safetensors")
    again = CrowdClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.belief_, clf.belief_)
    again.update(SAID[90:], NOISE[90:])
    assert again.known_.pred_probs.shape == (N, K)
    assert accuracy(again, slice(0, 90)) > 0.85


def test_a_reversed_view_can_be_saved(tmp_path):
    p = claims(0.9)
    turned = CrowdClassifier("identity").fit(NOISE, SAID, pred_probs=p[:, ::-1], sample_weight=np.arange(N)[::-1])
    turned.save(tmp_path / "model.safetensors")
    again = CrowdClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.belief_, turned.belief_)
    np.testing.assert_array_equal(again.known_.pred_probs, p[:, ::-1])


@pytest.mark.parametrize(
    ("method", "p", "message"),
    [
        (
            "auto",
            np.ones((N, 2)) / 2,
            "pred_probs has shape (120, 2), expected (120, 3), a column for each of 0, 1, 2.",
        ),
        (
            "auto",
            np.ones((N, K)),
            "pred_probs has no probabilities for item 0, expected numbers, 0 or more, that sum to 1.",
        ),
        ("auto", np.full((N, K), np.nan), "pred_probs has no probabilities for item 0"),
        ("auto", [["a"] * K] * N, "pred_probs is no table of numbers, expected a row an item, a column a class."),
        ("labelings", np.ones((N, K)) / K, "pred_probs is given with method 'Labelings', expected 'auto' or 'learned'"),
        ("ours", np.ones((N, K)) / K, "pred_probs is given with method 'Ours', expected 'auto' or 'learned' with it."),
        ("LRDS", np.ones((N, K)) / K, "pred_probs is given with method 'LRDS', expected 'auto' or 'learned' with it."),
    ],
)
def test_what_is_wrong_is_told(method, p, message):
    with pytest.raises(CrowdshotError) as error:
        CrowdClassifier("identity", method=method).fit(NOISE, SAID, pred_probs=p)
    assert message in str(error.value)
