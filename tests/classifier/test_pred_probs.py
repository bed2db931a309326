"""`fit(…, pred_probs=…)`: another classifier is one more witness, believed as far as it foretells labels."""

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from crowdshot import Annotations, CrowdClassifier, CrowdshotError, aggregate
from crowdshot.model import feature_model

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
    return (clf.label_proba_.argmax(1) == TRUTH)[rows].mean()


def test_a_good_one_helps_where_features_do_not():
    plain = CrowdClassifier("identity").fit(NOISE, SAID)
    told = CrowdClassifier("identity").fit(NOISE, SAID, pred_probs=claims(0.95))
    assert accuracy(told, slice(0, 100)) > max(0.93, accuracy(plain, slice(0, 100)) + 0.1)
    assert accuracy(told, slice(100, N)) > 0.85 > accuracy(plain, slice(100, N))  # of them nobody else knows anything
    np.testing.assert_allclose(told.label_proba_.sum(1), 1)


@pytest.mark.parametrize("features", [NOISE, CLOUDS], ids=["noise", "clouds"])
@pytest.mark.parametrize("bad", [claims(1 / 3), claims(0, 0.99), RANDOM.dirichlet(np.ones(K) / 10, N)])
def test_a_bad_one_does_no_harm(features, bad):
    plain = CrowdClassifier("identity").fit(features, SAID)
    told = CrowdClassifier("identity").fit(features, SAID, pred_probs=bad)
    assert accuracy(told, slice(0, 100)) >= accuracy(plain, slice(0, 100)) - 0.03
    assert accuracy(told, slice(100, N)) >= accuracy(plain, slice(100, N)) - 0.1


def test_it_says_of_items_and_not_of_the_classifier():
    """New items have no predictions: they are classified by features alone, which a better posterior has trained."""
    told = CrowdClassifier("identity").fit(CLOUDS, SAID, pred_probs=claims(0.95))
    assert (told.predict(CLOUDS) == TRUTH).mean() > 0.9


def test_the_average_is_of_probabilities():
    """By hand: two witnesses of one item, weighed 1 to 3."""
    size = np.array([0.5, 0.5])
    told = [np.log([[0.8, 0.2]]) - np.log(size), np.log([[0.4, 0.6]]) - np.log(size)]
    found = np.exp(feature_model.together(told, np.array([0.25, 0.75]), size)) * size
    np.testing.assert_allclose(found, [[0.25 * 0.8 + 0.75 * 0.4, 0.25 * 0.2 + 0.75 * 0.6]])
    evidence = np.log([[0.9, 0.1]])
    worth = np.array([0.8 * 0.9 + 0.2 * 0.1, 0.4 * 0.9 + 0.6 * 0.1])
    np.testing.assert_allclose(feature_model.weigh(told, evidence, size), worth / worth.sum())


def test_columns_go_by_classes_and_gold_stays():
    p = claims(0.95)
    names = np.array(["x", "y", "z"])
    labels = np.where(SAID < 0, None, names[SAID])
    expected = CrowdClassifier("identity").fit(NOISE, SAID, pred_probs=p, gold={0: 1})
    found = CrowdClassifier("identity").fit(NOISE, labels, pred_probs=p, gold={0: "y"})
    np.testing.assert_allclose(found.label_proba_, expected.label_proba_, atol=1e-12)
    assert found.consensus_["confidence"][0] == 1
    back = CrowdClassifier("identity").fit(NOISE, labels, pred_probs=p[:, ::-1], gold={0: "y"}, classes=["z", "y", "x"])
    np.testing.assert_allclose(back.label_proba_[:, ::-1], expected.label_proba_, atol=1e-6)
    wider = np.hstack([p, np.zeros((N, 1))])
    four = CrowdClassifier("identity").fit(NOISE, labels, pred_probs=wider, gold={0: "y"}, classes=["x", "y", "z", "w"])
    np.testing.assert_allclose(four.label_proba_[:, :3], expected.label_proba_, atol=1e-12)


WORDS = np.array(["x", "y", "z"], dtype=object)
IDS = [f"i{n:03}" for n in range(N)]
NAMED = pd.DataFrame(NOISE, index=IDS)
WIDE = pd.DataFrame(np.where(SAID < 0, None, WORDS[SAID]), index=IDS, columns=["ann", "bob", "cyd"])
TOLD = pd.DataFrame(claims(0.9), index=IDS, columns=WORDS)


@pytest.mark.parametrize(
    "table",
    [
        TOLD[["z", "x", "y"]],
        TOLD.sample(frac=1, random_state=0)[["y", "z", "x"]],
        TOLD.set_axis(range(K), axis=1),
        TOLD.set_axis(["0", "1", "2"], axis=1).sample(frac=1, random_state=0),
        TOLD.reset_index(drop=True)[["z", "y", "x"]],
    ],
    ids=["columns", "both", "counted columns", "columns counted in words", "counted rows"],
)
def test_tables_go_by_the_names_of_items_and_classes(table):
    expected = CrowdClassifier("identity").fit(NAMED, WIDE, pred_probs=TOLD.to_numpy())
    found = CrowdClassifier("identity").fit(NAMED, WIDE, pred_probs=table)
    np.testing.assert_array_equal(found._known.pred_probs, expected._known.pred_probs)
    crowd = Annotations.from_matrix(WIDE)
    by_labels = aggregate.learned(crowd, pred_probs=TOLD.to_numpy()).probabilities
    np.testing.assert_array_equal(aggregate.learned(crowd, pred_probs=table).probabilities, by_labels)


def test_numbers_are_names_where_classes_are_these_numbers():
    p = claims(0.9)
    for columns in ([2, 0, 1], [2.0, 0.0, 1.0], ["2", "0", "1"]):
        table = pd.DataFrame(p[:, [2, 0, 1]], columns=columns)
        np.testing.assert_array_equal(
            CrowdClassifier("identity").fit(NOISE, SAID, pred_probs=table)._known.pred_probs, p
        )


def test_rows_go_by_the_names_of_files(tmp_path):
    paths = [tmp_path / f"{i}.png" for i in range(6)]
    for place, path in enumerate(paths):
        Image.fromarray(np.full((8, 8), 255 * (place % 2), np.uint8)).save(path)
    labels = {f"{i}.png": {"ann": "xy"[i % 2], "bob": "xy"[i % 2]} for i in range(6)}
    p = np.where(np.arange(6)[:, None] % 2 == [0, 1], 0.9, 0.1)
    for names in ([path.name for path in paths], [str(path) for path in paths], paths):
        table = pd.DataFrame(p, index=names, columns=["x", "y"]).iloc[[1, 0, 3, 5, 2, 4]]
        clf = CrowdClassifier("glyphs", method="features").fit(paths, labels, pred_probs=table)
        np.testing.assert_array_equal(clf._known.pred_probs, p)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (TOLD.rename(columns={"z": "w"}), "pred_probs has column 'w', expected one for each of 'x', 'y', 'z'."),
        (TOLD[["x", "y"]], "pred_probs has 2 columns, expected one for each of 'x', 'y', 'z'."),
        (TOLD.rename(columns={"z": "x"}), "pred_probs lists 'x' more than once, expected different ids."),
        (TOLD.rename(index={"i004": "j004"}), "pred_probs has no row for item 'i004', expected one for each item."),
        (TOLD[1:], "pred_probs has no row for item 'i000', expected one for each item."),
        (
            pd.concat([TOLD, TOLD[:1].set_axis(["j"])]),
            "pred_probs has a row for 'j', which is not an item, expected items such as 'i000' and 119 more.",
        ),
    ],
)
def test_names_that_are_not_there_are_refused(table, message):
    with pytest.raises(CrowdshotError) as error:
        CrowdClassifier("identity").fit(NAMED, WIDE, pred_probs=table)
    assert str(error.value) == message
    with pytest.raises(CrowdshotError) as error:
        aggregate.learned(Annotations.from_matrix(WIDE), pred_probs=table)
    assert str(error.value) == message


def test_it_stays_with_updates_and_files(tmp_path):
    p = claims(0.9)
    clf = CrowdClassifier("identity").fit(NOISE[:90], SAID[:90], pred_probs=p[:90])
    clf.save(tmp_path / "model.safetensors")
    again = CrowdClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.label_proba_, clf.label_proba_)
    again.update(SAID[90:], NOISE[90:])
    assert again._known.pred_probs.shape == (N, K)
    assert accuracy(again, slice(0, 90)) > 0.85


def test_a_reversed_view_can_be_saved(tmp_path):
    p = claims(0.9)
    turned = CrowdClassifier("identity").fit(NOISE, SAID, pred_probs=p[:, ::-1], sample_weight=np.arange(N)[::-1])
    turned.save(tmp_path / "model.safetensors")
    again = CrowdClassifier.load(tmp_path / "model.safetensors")
    np.testing.assert_allclose(again.label_proba_, turned.label_proba_)
    np.testing.assert_array_equal(again._known.pred_probs, p[:, ::-1])


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
            "pred_probs has no valid probabilities for item 0, expected numbers, 0 or more, that sum to 1.",
        ),
        ("auto", np.full((N, K), np.nan), "pred_probs has no valid probabilities for item 0"),
        (
            "auto",
            [["a"] * K] * N,
            "pred_probs is not a table of numbers, expected a row for each item, a column for each class.",
        ),
        (
            "labeling-search",
            np.ones((N, K)) / K,
            "pred_probs is given with method 'labeling-search', expected the method 'auto' or 'features'",
        ),
        ("ours", np.ones((N, K)) / K, "pred_probs is given with method 'Ours', expected the method 'auto' or"),
        ("LRDS", np.ones((N, K)) / K, "pred_probs is given with method 'LRDS', expected the method 'auto' or"),
    ],
)
def test_what_is_wrong_is_told(method, p, message):
    with pytest.raises(CrowdshotError) as error:
        CrowdClassifier("identity", method=method).fit(NOISE, SAID, pred_probs=p)
    assert message in str(error.value)
