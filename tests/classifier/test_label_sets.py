"""Test answers that name several labels: compare with one yes/no classifier per label."""

from itertools import product

import numpy as np
import pytest
import torch

from crowdshot import Annotations, CrowdClassifier, CrowdshotError
from crowdshot.classifier.diagnostics import feature_value

NAMES = np.array(["bird", "cat", "dog", "owl", "pig", "rat"])
SEVERAL = {"method": "features", "settings": {"several": True}}


def problem(n=60, M=4, annotators=4, right=0.85, seed=0, noise=1.0):
    """Return X (n, 8), to which every label adds its own direction, the true sets (n, M), and the crowd's labels."""
    random = np.random.default_rng(seed)
    truth = random.random((n, M)) < 0.35
    truth[np.arange(n), random.integers(M, size=n)] |= ~truth.any(1)
    X = 2 * truth @ random.normal(size=(M, 8)) + noise * random.normal(size=(n, 8))
    said = truth[:, None] ^ (random.random((n, annotators, M)) > right)
    said[..., 0] |= ~said.any(-1)
    return X.astype(np.float32), truth, [[";".join(NAMES[:M][one]) for one in row] for row in said]


def holds(sets, M):
    return np.array([[name in label.split(";") for name in NAMES[:M]] for label in sets])


def each_alone(X, labels, M):
    """Return (n, M) probabilities of yes from M separate classifiers, one per label."""
    yes = []
    for k in range(M):
        words = [["yes" if NAMES[k] in label.split(";") else "no" for label in row] for row in labels]
        clf = CrowdClassifier("identity", method="features").fit(X, words)
        yes.append(clf.label_proba_[:, list(clf.classes_).index("yes")])
    return np.stack(yes, 1)


def test_set_probability_is_the_normalised_product_over_its_labels():
    X, _, labels = problem()
    clf = CrowdClassifier("identity", **SEVERAL).fit(X, labels)
    yes, has = each_alone(X, labels, 4), holds(clf.classes_, 4)
    expected = np.stack([np.where(one, yes, 1 - yes).prod(1) for one in has], 1)
    np.testing.assert_allclose(clf.label_proba_, expected / expected.sum(1, keepdims=True), atol=1e-9)
    assert clf.predict_proba(X[:7]).shape == (7, len(clf.classes_))
    np.testing.assert_allclose(clf.predict_proba(X).sum(1), 1)
    assert (clf.learner_, clf.settings_) == ("features", {"several": True})


@pytest.mark.slow
def test_separate_labels_are_more_accurate_than_sets_as_classes():
    X, truth, labels = problem(250, M=6, seed=1)
    new, sought, X, truth, labels = X[150:], truth[150:], X[:150], truth[:150], labels[:150]
    found, as_classes = (CrowdClassifier("identity", **how).fit(X, labels) for how in (SEVERAL, {"method": "features"}))
    assert len(found.classes_) > 40
    for clf in (found, as_classes):
        clf.right = (holds(clf.consensus_["label"], 6) == truth).all(1).mean()
    assert found.right > as_classes.right + 0.1
    assert (holds(found.predict(new), 6) == sought).mean() > 0.9


def test_a_label_in_every_set_and_gold_sets(tmp_path):
    X, _, labels = problem(30, M=3)
    labels = [[f"{label};owl" for label in row] for row in labels]
    gold = {0: "bird;cat;dog;owl", 1: "dog;owl"}
    clf = CrowdClassifier("identity", **SEVERAL).fit(X, labels, gold=gold)
    assert clf.consensus_["label"].tolist()[:2] == list(gold.values())
    assert clf.consensus_["confidence"].tolist()[:2] == pytest.approx([1, 1])
    clf.save(tmp_path / "sets.safetensors")
    again = CrowdClassifier.load(tmp_path / "sets.safetensors")
    np.testing.assert_allclose(again.predict_proba(X), clf.predict_proba(X))
    np.testing.assert_allclose(again.label_proba_, clf.label_proba_)
    assert again.update({2: {9: "cat;owl"}}).settings_ == {"several": True}


def test_feature_value_is_that_of_the_yes_no_questions():
    X, _, labels = problem(noise=0.3)
    clf = CrowdClassifier("identity", **SEVERAL)
    embeddings = clf.embed(X)
    value = feature_value(clf.fit_embeddings(embeddings, labels), embeddings)
    one_by_one = []
    for k in range(4):
        words = [["yes" if NAMES[k] in label.split(";") else "no" for label in row] for row in labels]
        alone = CrowdClassifier("identity", method="features")
        seen = alone.embed(X)
        one_by_one.append(feature_value(alone.fit_embeddings(seen, words), seen))
    assert value.held_out_probability == pytest.approx(np.mean([each.held_out_probability for each in one_by_one]))
    assert value.by_class_sizes == pytest.approx(np.mean([each.by_class_sizes for each in one_by_one]))
    assert value.informative is True
    nothing = torch.from_numpy(np.random.default_rng(5).normal(size=(60, 8)).astype(np.float32))
    clf = CrowdClassifier("identity", **SEVERAL).fit_embeddings(nothing, labels)
    assert feature_value(clf, nothing).informative is False


def test_probabilities_of_another_classifier_are_split_among_the_questions():
    X, truth, labels = problem(40, M=2, right=0.6, noise=9)
    ann = Annotations.from_matrix(np.array(labels, dtype=object))
    has = holds(ann.classes, 2)
    knows = (truth[:, None] == has).all(-1) * 0.97 + 0.01
    known = CrowdClassifier("identity", **SEVERAL).fit(X, ann, pred_probs=knows / knows.sum(1, keepdims=True))
    assert (holds(known.consensus_["label"], 2) == truth).all(1).mean() > 0.9


def test_an_invalid_setting_is_refused():
    X, _, labels = problem(10)
    with pytest.raises(CrowdshotError, match=r"^settings has 'yes' for several, expected true or false.$"):
        CrowdClassifier("identity", method="features", settings={"several": "yes"}).fit(X, labels)


def test_members_are_all_labels_that_occur():
    labels = [[";".join(one)] for one in product(["cat"], ["dog", "owl"])] * 6
    X = np.tile([[0.0, 1.0], [5.0, 1.0]], (6, 1)).astype(np.float32)
    clf = CrowdClassifier("identity", **SEVERAL).fit(X, labels)
    assert clf.predict(X[:2]).tolist() == ["cat;dog", "cat;owl"]
