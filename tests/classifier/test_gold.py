"""Test gold labels: they are fixed, inform the model, and are compared with the consensus without them."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from crowdshot import Annotations, CrowdClassifier, aggregate, labelings, mixture
from crowdshot.errors import CrowdshotError
from crowdshot.labels.gold_labels import agreement

RANDOM = np.random.default_rng(0)
TRUTH = np.repeat(["cat", "dog"], 10)
X = np.where(TRUTH == "cat", -2.0, 2.0)[:, None] + 0.3 * RANDOM.normal(size=(20, 2))
LABELS = np.where(RANDOM.random((20, 3)) < 0.9, TRUTH[:, None], "cat").astype(object)
LABELS[[4, 14]] = None  # unlabelled
METHODS = ["auto", "features", "labeling-search", "ours", "paper", "LRDS", "PrSV"]


@pytest.mark.parametrize("method", METHODS)
def test_gold_is_held_fixed_against_everyone_and_without_labels(method):
    gold = {0: "dog", 4: "owl", 15: "dog"}  # all labels of 0 are cat; 4 has no label; no annotator uses owl
    x = X.copy()
    x[[0, 4]] = [2, 0], [0, 5]
    clf = CrowdClassifier("identity", method=method).fit(x, LABELS, gold=gold)
    assert clf.classes_.tolist() == ["cat", "dog", "owl"]
    consensus = clf.consensus_
    assert consensus["label"][[0, 4, 15]].tolist() == ["dog", "owl", "dog"]
    assert consensus["confidence"][[0, 4, 15]].tolist() == [1, 1, 1]
    assert (consensus["label"] == TRUTH).drop([0, 4]).mean() > 0.8
    assert consensus["confidence"].drop([0, 4, 15]).max() < 1
    np.testing.assert_allclose(clf.label_proba_.sum(1), 1)


@pytest.mark.parametrize("method", METHODS)
def test_without_gold_nothing_changes(method):
    plain, none = (CrowdClassifier("identity", method=method).fit(X, LABELS, gold=gold) for gold in (None, {}))
    np.testing.assert_array_equal(plain.label_proba_, none.label_proba_)
    assert len(none.gold_) == 0


@pytest.mark.parametrize(
    "gold",
    [
        pd.Series({0: "dog", 4: "cat"}),
        pd.DataFrame({"item": [0, 4, 7], "truth": ["dog", "cat", None]}),
        ["dog", None, None, None, "cat", *[None] * 15],
    ],
)
def test_gold_is_accepted_in_any_form(gold):
    expected = CrowdClassifier("identity").fit(X, LABELS, gold={0: "dog", 4: "cat"})
    found = CrowdClassifier("identity").fit(X, LABELS, gold=gold)
    np.testing.assert_array_equal(found.label_proba_, expected.label_proba_)


def test_numbers_may_be_text_and_minus_one_is_missing_gold():
    numbers = np.where(LABELS == "cat", 0, np.where(LABELS == "dog", 1, -1))
    expected = CrowdClassifier("identity").fit(X, numbers, gold={0: 1})
    for gold in ({0: "1"}, {0: 1.0}, [1, *[-1] * 19]):
        found = CrowdClassifier("identity").fit(X, numbers, gold=gold)
        assert found.classes_.tolist() == [0, 1]
        np.testing.assert_array_equal(found.label_proba_, expected.label_proba_)


def test_gold_is_matched_by_item_names():
    paths = [f"photos/{i}.png" for i in range(20)]
    table = Annotations.from_matrix(LABELS, items=[f"{i}.png" for i in range(20)])
    clf = CrowdClassifier("identity")
    embeddings = clf.embed(X)
    files = [Path(path) for path in paths]
    clf.fit_embeddings(
        embeddings, table, items=files, gold={"0.png": "dog", "photos/5.png": "dog", "elsewhere/7": "dog"}
    )
    assert clf.consensus_["label"][[0, 5, 7]].tolist() == ["dog"] * 3
    with pytest.raises(CrowdshotError, match=r"gold names item '5.png' more than once, expected each item once"):
        clf.fit_embeddings(embeddings, table, items=files, gold={"5.png": "dog", "photos/5.png": "cat"})


def test_gold_is_compared_with_the_consensus_without_it():
    gold = {0: "dog", 1: "cat", 4: "owl", 15: "dog"}
    clf = CrowdClassifier("identity").fit(X, LABELS, gold=gold)
    without = CrowdClassifier("identity").fit(X, LABELS).consensus_
    table = clf.gold_
    assert table.columns.tolist() == ["item", "truth", "consensus", "confidence", "n_labels"]
    assert table["item"].tolist() == [0, 1, 4, 15]
    assert table["truth"].tolist() == ["dog", "cat", "owl", "dog"]
    assert table["consensus"].tolist() == without["label"][[0, 1, 4, 15]].tolist()
    np.testing.assert_allclose(table["confidence"], without["confidence"][[0, 1, 4, 15]])
    found = agreement(table)
    assert (found.right.hits, found.right.of, found.unlabelled.hits, found.unlabelled.of) == (2, 3, 0, 1)
    assert found.confidence == pytest.approx(without["confidence"][[0, 1, 15]].mean())


def test_gold_informs_annotator_accuracies():
    """Two annotators always agree and are wrong on gold items; the third disagrees with them and is right there."""
    random = np.random.default_rng(1)
    truth = random.integers(2, size=60)
    wrong = np.where(random.random(60) < 0.5, truth, 1 - truth)
    said = np.stack([wrong, wrong, truth], 1)
    x = random.normal(size=(60, 2))  # uninformative
    gold = {i: int(truth[i]) for i in range(40)}
    before, after = (CrowdClassifier("identity").fit(x, said, gold=g).annotators_["accuracy"] for g in (None, gold))
    assert before[0] > before[2]
    assert after[2] > 0.8 > 0.65 > after[0]


def test_shared_mistakes_on_gold_are_reported():
    gold = dict(enumerate(np.where(TRUTH == "cat", "dog", "cat")))
    assert agreement(CrowdClassifier("identity").fit(X, LABELS, gold=gold).gold_).shared_mistakes
    gold = dict(enumerate(TRUTH))
    assert not agreement(CrowdClassifier("identity").fit(X, LABELS, gold=gold).gold_).shared_mistakes


def test_gold_may_add_a_class_that_no_annotator_chose():
    said = np.full((6, 2), "cat")
    clf = CrowdClassifier("identity").fit(X[[0, 1, 2, 3, 11, 12]], said, gold={4: "dog", 5: "dog"})
    assert clf.consensus_["label"].tolist() == ["cat"] * 4 + ["dog"] * 2
    assert clf.gold_["consensus"].tolist() == ["cat", "cat"]
    assert clf.predict(X[[5, 15]]).tolist() == ["cat", "dog"]


def test_gold_is_saved(tmp_path):
    clf = CrowdClassifier("identity").fit(X, LABELS, gold={0: "dog", 4: "owl"})
    clf.save(tmp_path / "model.safetensors")
    again = CrowdClassifier.load(tmp_path / "model.safetensors")
    pd.testing.assert_frame_equal(again.gold_, clf.gold_)
    pd.testing.assert_frame_equal(again.consensus_, clf.consensus_)
    np.testing.assert_allclose(again.predict_proba(X), clf.predict_proba(X))


@pytest.mark.parametrize(
    ("gold", "classes", "message"),
    [
        ({20: "cat"}, None, "gold names item 20, expected items of X, such as 0."),
        ("cat", None, "gold is a str, expected {item: label}, a Series or a table."),
        (["cat"], None, "gold has shape (1,), expected (20,), or {item: label}."),
        ({0: "owl"}, ["cat", "dog"], "gold has 'owl', expected one of the classes 'cat', 'dog'."),
        (pd.Series(["cat", "dog"], index=[0, 0]), None, "gold names item 0 more than once, expected each item once."),
        (pd.DataFrame({"item": [0]}), None, "gold has 1 column, expected the item and its true label."),
    ],
)
def test_invalid_gold_is_refused(gold, classes, message):
    with pytest.raises(CrowdshotError) as error:
        CrowdClassifier("identity").fit(X, LABELS, gold=gold, classes=classes)
    assert str(error.value) == message


# ---- the models -----------------------------------------------------------------------------------------------------


def test_the_mixture_without_embeddings_is_dawid_skene_with_gold():
    random = np.random.default_rng(2)
    said = np.where(random.random((30, 4)) < 0.3, -1, random.integers(3, size=(30, 4)))
    said[7] = -1
    gold = {0: 2, 7: 1, 12: 0}
    ann = Annotations.from_matrix(said, classes=range(3))
    expected = aggregate.dawid_skene(ann, steps=4, b=1.5, c=0.5, tolerance=0, gold=gold)
    truth = torch.tensor([gold.get(i, -1) for i in range(30)])
    nothing = torch.zeros(30, 0, dtype=torch.float64)
    fit = mixture.fit(nothing, torch.from_numpy(said), 3, steps=4, b=1.5, c=0.5, truth=truth)
    np.testing.assert_allclose(fit.responsibilities, expected.probabilities, atol=1e-12)
    np.testing.assert_allclose(fit.confusion, expected.confusion, atol=1e-12)
    # both have priors, with different constants
    np.testing.assert_allclose(fit.log_posterior.diff(), np.diff(expected.log_posterior), atol=1e-9)


def test_gold_conditions_the_labeling_posterior():
    """If the search keeps all labelings, gold must equal conditioning the posterior on it."""
    torch.manual_seed(0)
    u, said = torch.randn(5, 3, dtype=torch.float64), torch.randint(3, (5, 3))
    truth = torch.tensor([-1, 2, -1, -1, 0])
    every = labelings.fit(u, said, 3, scale=2.0, tau=0.5, width=3**5)
    weight = {tuple(z): w for z, w in zip(every.labelings.tolist(), every.log_weights.exp().tolist(), strict=True)}
    wanted = {z: w for z, w in weight.items() if (z[1], z[4]) == (2, 0)}
    held = labelings.fit(u, said, 3, scale=2.0, tau=0.5, width=3**5, truth=truth)
    found = {tuple(z): w for z, w in zip(held.labelings.tolist(), held.log_weights.exp().tolist(), strict=True) if w}
    assert found == pytest.approx({z: w / sum(wanted.values()) for z, w in wanted.items()})
    believed = labelings.item_posteriors(held, said, truth)
    share = sum(w * torch.eye(3, dtype=torch.float64)[list(z)] for z, w in found.items())
    np.testing.assert_allclose(believed, share, atol=1e-6)  # the Rao-Blackwell average of all labelings is exact
