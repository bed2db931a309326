"""The default where features come from elsewhere, and which encoder and learner the default takes for images."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images

from crowdshot import CrowdClassifier, aggregate
from crowdshot.classifier.default_encoder import are_drawn, default_encoder
from crowdshot.classifier.learned import SEEN, Believed, suits


def crowd(truth: np.ndarray, seed: int = 0, right: float = 0.75, R: int = 4) -> np.ndarray:
    random = np.random.default_rng(seed)
    K = truth.max() + 1
    wrong = (truth[:, None] + random.integers(1, K, (len(truth), R))) % K
    return np.where(random.random((len(truth), R)) < right, truth[:, None], wrong)


def grey_photographs() -> list[np.ndarray]:
    return [
        np.asarray(Image.fromarray(photo).convert("L").crop((x, y, x + 96, y + 96)))
        for photo in load_sample_images().images
        for x in (0, 200, 400)
        for y in (0, 150)
    ]


def test_photographs_in_grey_are_not_taken_for_characters() -> None:
    photographs, digits = grey_photographs(), list(load_digits().images[:20])
    assert not are_drawn(photographs)
    assert default_encoder(photographs).startswith("photo")
    assert are_drawn(digits)
    assert default_encoder(digits) == "glyphs"
    assert are_drawn([255 - image * 15 for image in digits])  # ink may be dark or bright
    assert default_encoder([np.zeros((8, 8)), np.full((8, 8), 3.0)]) == "glyphs"  # nothing to see: as ever


def test_an_encoder_that_sees_nothing_in_the_items_is_not_searched_by() -> None:
    """Noise through the encoder of characters: labels decide."""
    random = np.random.default_rng(0)
    truth = np.arange(40) % 4
    said = crowd(truth, right=0.7)
    clf = CrowdClassifier("glyphs-protonet").fit(random.random((40, 28, 28)), said)
    assert clf.learner_ == "Learned"
    alone = aggregate.learned(clf.annotations_).probabilities
    assert (clf.belief_.argmax(1) == alone.argmax(1)).mean() > 0.9
    digits = load_digits()
    some = np.concatenate([np.flatnonzero(digits.target == k)[:10] for k in range(4)])
    assert CrowdClassifier().fit(list(digits.images[some]), crowd(digits.target[some])).learner_ == "Labelings"


def fitted(by_looks: float, by_size: float, counted: float, K: int = 4) -> Believed:
    nothing = {name: torch.zeros(0) for name in Believed.__dataclass_fields__}
    told = {"foretold": torch.tensor([by_looks, by_size]), "counted": torch.tensor(counted)}
    return Believed(**{**nothing, "class_probs": torch.full((K,), 1 / K), **told})


def test_what_suits() -> None:
    assert suits(fitted(0.25 + SEEN, 0.25, 20))
    assert not suits(fitted(0.26, 0.25, 20))
    assert suits(fitted(0.2, 0.25, 3))  # too few to tell


def test_features_help_where_they_tell_the_class_and_not_where_they_do_not() -> None:
    random = np.random.default_rng(1)
    truth = np.arange(120) % 3
    said = crowd(truth, right=0.6, R=3)
    told, noise = np.eye(3)[truth] * 3 + random.normal(size=(120, 3)), random.normal(size=(120, 3))
    alone = (aggregate.learned(CrowdClassifier("identity").fit(noise, said).annotations_).labels == truth).mean()
    helped, left = (CrowdClassifier("identity").fit(x, said) for x in (told, noise))
    assert (helped.belief_.argmax(1) == truth).mean() > alone + 0.05
    assert (left.belief_.argmax(1) == truth).mean() > alone - 0.03
    assert left.predict_proba(noise).max() < 0.7
    by_looks, by_size = helped.fit_.foretold.tolist()
    assert by_looks > by_size + 0.1


def test_a_stray_class_takes_few() -> None:
    """One label of three hundred and sixty is misspelt."""
    random = np.random.default_rng(2)
    truth = np.arange(120) % 3
    said = np.array(["cat", "dog", "eel"])[crowd(truth, right=0.85, R=3)]
    said[5, 0] = "catt"
    x = np.eye(3)[truth] * 4 + random.normal(size=(120, 3))
    clf = CrowdClassifier("identity").fit(x, said)
    assert (clf.consensus_["label"] == "catt").sum() == 0
    assert (clf.predict(np.eye(3)[np.arange(300) % 3] * 4 + random.normal(size=(300, 3))) == "catt").mean() < 0.01


@pytest.mark.parametrize("rare", [3, 6])
def test_a_rare_class_is_kept(rare: int) -> None:
    random = np.random.default_rng(3)
    truth = np.r_[np.zeros(60, int), np.ones(rare, int)]
    x = truth[:, None] * 4 + random.normal(size=(len(truth), 2))
    clf = CrowdClassifier("identity").fit(x, crowd(truth, right=0.9, R=3))
    assert (clf.belief_.argmax(1) == truth)[60:].mean() > 0.6
    assert clf.predict([[4.0, 4.0], [0.0, 0.0]]).tolist() == [1, 0]


@given(seed=st.integers(0, 10_000), K=st.integers(2, 4), a=st.integers(1, 3))
def test_neither_names_nor_order_steer_the_search(seed: int, K: int, a: int) -> None:
    random = np.random.default_rng(seed)
    truth = np.tile(np.arange(K), a)
    x = np.eye(K)[truth] * 2 + random.normal(size=(len(truth), K))
    said = crowd(truth, seed, right=0.6, R=3)
    if len(np.unique(said)) < K:
        return
    here = CrowdClassifier("identity", method="labelings").fit(x, said)
    items, people, classes = random.permutation(len(truth)), random.permutation(3), random.permutation(K)
    there = CrowdClassifier("identity", method="labelings").fit(x[items], classes[said[items][:, people]])
    np.testing.assert_allclose(there.belief_[:, classes], here.belief_[items], atol=1e-4)
    np.testing.assert_allclose(there.confusion_[:, classes][:, :, classes], here.confusion_[people], atol=1e-4)
    queries = random.normal(size=(5, K))
    np.testing.assert_allclose(there.predict_proba(queries)[:, classes], here.predict_proba(queries), atol=1e-4)
