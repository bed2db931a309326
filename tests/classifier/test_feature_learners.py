"""The default where features come from elsewhere, and which encoder and learner the default takes for images."""

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits, load_sample_images

from crowdshot import CrowdClassifier, aggregate
from crowdshot.classifier.encoder_choice import are_drawn, default_encoder


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


def test_features_help_where_they_tell_the_class_and_not_where_they_do_not() -> None:
    random = np.random.default_rng(1)
    truth = np.arange(120) % 3
    said = crowd(truth, right=0.6, R=3)
    told, noise = np.eye(3)[truth] * 3 + random.normal(size=(120, 3)), random.normal(size=(120, 3))
    alone = (aggregate.learned(CrowdClassifier("identity").fit(noise, said).annotations_).labels == truth).mean()
    helped, left = (CrowdClassifier("identity").fit(x, said) for x in (told, noise))
    assert (helped.label_proba_.argmax(1) == truth).mean() > alone + 0.05
    assert (left.label_proba_.argmax(1) == truth).mean() > alone - 0.03
    assert left.predict_proba(noise).max() < 0.75
    by_features, by_size = helped._model.foretold.tolist()
    assert by_features > by_size + 0.1


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
    assert (clf.label_proba_.argmax(1) == truth)[60:].mean() > 0.6
    assert clf.predict([[4.0, 4.0], [0.0, 0.0]]).tolist() == [1, 0]
