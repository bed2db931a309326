"""The default for few items: when the search is believed beside what looks tell, and how far."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits

from crowdshot import CrowdClassifier, aggregate, load_encoder
from crowdshot.model import combined
from crowdshot.model.combined import Joint

ENCODER = load_encoder("glyphs-protonet")


def crowd(truth: np.ndarray, seed: int = 0, right: float = 0.75, R: int = 4) -> np.ndarray:
    random = np.random.default_rng(seed)
    K = truth.max() + 1
    wrong = (truth[:, None] + random.integers(1, K, (len(truth), R))) % K
    return np.where(random.random((len(truth), R)) < right, truth[:, None], wrong)


def clouds(truth: np.ndarray, seed: int = 0, apart: float = 3.0) -> torch.Tensor:
    """Embeddings as an encoder that suits would give them."""
    random = np.random.default_rng(seed)
    means = random.normal(size=(truth.max() + 1, 8)) * apart
    return torch.from_numpy(means[truth] + random.normal(size=(len(truth), 8))).float()


def test_an_encoder_that_sees_nothing_in_the_items_is_not_searched_by() -> None:
    """Noise through the encoder of characters: labels decide."""
    random = np.random.default_rng(0)
    truth = np.arange(40) % 4
    said = crowd(truth, right=0.7)
    clf = CrowdClassifier(ENCODER).fit(random.random((40, 28, 28)), said)
    assert clf.learner_ == "features"
    alone = aggregate.learned(clf.annotations_).probabilities
    assert (clf.label_proba_.argmax(1) == alone.argmax(1)).mean() > 0.9


@pytest.mark.parametrize(("items", "labels"), [(10, 4), (3, 1)])
def test_one_that_sees_the_classes_is(items: int, labels: int) -> None:
    digits = load_digits()
    some = np.concatenate([np.flatnonzero(digits.target == k)[:items] for k in range(4)])
    said = crowd(digits.target[some], R=labels)
    clf = CrowdClassifier().fit(list(digits.images[some]), said)
    assert clf.learner_ == "combined"
    alone = aggregate.learned(clf.annotations_).labels
    truth = digits.target[some]
    assert (clf.label_proba_.argmax(1) == truth).mean() > (alone == truth).mean()


@pytest.mark.slow
def test_labels_that_are_hidden_are_not_known() -> None:
    """The predictive probability of an item does not depend on its own labels, and hidden truth is not used."""
    truth = np.arange(24) % 3
    x, said = clouds(truth), torch.from_numpy(crowd(truth, right=0.6))
    gold = torch.where(torch.arange(24) < 2, torch.from_numpy(truth), -1)
    plain = {"scale": 5.0, "tau": 0.5}
    before = combined.held_back(x, said, 3, plain, truth=gold)
    assert (before.argmax(1).numpy() == truth).mean() > 0.9
    for hidden in (0, 17):
        other, told = said.clone(), gold.clone()
        other[hidden] = (other[hidden] + 1) % 3
        told[hidden] = (told[hidden] + 1) % 3 if told[hidden] >= 0 else -1
        after = combined.held_back(x, other, 3, plain, truth=told)
        torch.testing.assert_close(after[hidden], before[hidden])
        assert not torch.allclose(after, before, atol=1e-6)


def test_the_search_is_believed_unless_it_foretells_labels_worse(monkeypatch) -> None:
    """Ten items with company; each label is predicted with 0.5 by class sizes, and better by features."""
    taught = np.tile([[1.0, 0.0], [0.0, 1.0]], (5, 1))
    evidence = np.where(taught > 0, 0.0, -50.0)
    nothing = np.zeros(0)
    size = np.full(2, 0.5)

    def joint(unmet: float) -> Joint:
        told = np.where(taught > 0, unmet, 1 - unmet)
        return Joint(nothing, nothing, nothing, None, taught, told, evidence, size)

    c = combined.company(joint(0.5))
    np.testing.assert_allclose(c, 4 / 6)  # four others of its class, and two for doubt

    def believed(by_search: float, by_looks: float) -> bool:
        foretold = torch.from_numpy(np.where(taught > 0, by_search, 1 - by_search))
        monkeypatch.setattr(combined, "held_back", lambda *_: foretold)
        return combined.suits(torch.zeros(10, 2), torch.zeros(10, 1).long(), joint(by_looks), {})

    for worse, expected in ((0.99, True), (1.01, False)):
        assert believed(0.5 * np.exp(-worse * combined.WORSE / c.sum()), 0.5) is expected
        slack = combined.WORSE + 10 * combined.WORSE_EACH
        assert believed(0.9 * np.exp(-worse * slack / c.sum()), 0.9) is expected


def test_beliefs_are_averaged_by_the_company_that_items_have() -> None:
    search, looks = torch.tensor([[0.8, 0.2]]).log(), torch.tensor([[0.5, 0.5]]).log()
    np.testing.assert_allclose(
        combined.pool(search, looks, 0.5).exp(), [[2 / 3, 1 / 3]], rtol=1e-6
    )  # 2 : 1, root of 4 : 1
    np.testing.assert_allclose(combined.weights(0.0), (0.0, 1.0))
    np.testing.assert_allclose(combined.weights(0.5), (0.5, 1.0))
    np.testing.assert_allclose(combined.weights(1.0), (0.5, 0.5))
    truth = np.arange(24) % 3
    x, said = clouds(truth), crowd(truth)
    clf = CrowdClassifier(ENCODER).fit_embeddings(x, np.where(np.arange(24)[:, None] < 21, said, -1))
    assert clf.learner_ == "combined"
    parts = [clf._model.search, clf._model.looks]
    labelled, others = combined.weights(float(clf._model.company))
    by_search, by_looks = (part.responsibilities.double().log() for part in parts)
    expected = torch.cat(
        [combined.pool(by_search, by_looks, labelled)[:21], combined.pool(by_search, by_looks, others)[21:]]
    )
    np.testing.assert_allclose(clf.label_proba_, expected.exp(), atol=1e-6)
    np.testing.assert_allclose(clf.predict_proba_embeddings(x)[21:], expected[21:].exp(), atol=1e-6)


def test_a_class_named_once_is_left_to_looks() -> None:
    size = np.array([0.5, 0.3, 0.2])
    assert combined.frequencies(size, np.array([5, 5, 1])).tolist() == [0.5, 0.3, 0]
    for named in ([4, 5, 1], [5, 5, 2], [1, 1, 1]):  # others were not named often
        assert combined.frequencies(size, np.array(named)).tolist() == size.tolist()
    search, looks = torch.tensor([[0.8, 0.2, 0.0]]).log(), torch.tensor([[0.45, 0.45, 0.1]]).log()
    pooled = combined.pool(search, looks, 0.5, torch.tensor([1.0, 1.0, 0.0])).exp()
    np.testing.assert_allclose(pooled, [[0.6, 0.3, 0.1]], rtol=1e-6)  # 2 : 1 among what is left
    truth = np.arange(40) % 4
    x, said = clouds(truth), crowd(truth, right=0.9, R=3).astype(object)
    said[5, 0] = "a slip"
    clf = CrowdClassifier(ENCODER).fit_embeddings(x, said)
    assert clf.learner_ == "combined"
    slip = clf.classes_.tolist().index("a slip")
    sizes = clf._model.search.sizes.numpy()
    assert sizes[slip] == 0
    np.testing.assert_allclose(np.delete(sizes, slip), 0.23, atol=0.03)  # ten items each
    assert (clf.label_proba_.argmax(1) != slip).all()
    np.testing.assert_allclose(clf.label_proba_[:, slip], clf._model.looks.responsibilities[:, slip], atol=1e-9)
    assert (clf.predict_proba_embeddings(x).argmax(1) != slip).all()
    told = CrowdClassifier(ENCODER).fit_embeddings(x, said, gold={5: "a slip"})  # it was none
    assert (told._model.search.sizes > 0).all()
    assert told.consensus_["label"][5] == "a slip"


def same_by_other_names(seed: int, K: int, a: int, method: str) -> None:
    random = np.random.default_rng(seed)
    truth = np.tile(np.arange(K), a)
    x = torch.from_numpy(np.eye(K, 6)[truth] * 2 + random.normal(size=(len(truth), 6))).float()
    said = crowd(truth, seed, right=0.6, R=3)
    said[random.random(said.shape) < 0.2] = -1
    if len(np.unique(said[said >= 0])) < K:
        return
    here = CrowdClassifier(ENCODER, method=method).fit_embeddings(x, said)
    items, people, classes = random.permutation(len(truth)), random.permutation(3), random.permutation(K)
    renamed = np.append(classes, -1)[said[items][:, people]]
    there = CrowdClassifier(ENCODER, method=method).fit_embeddings(x[items], renamed)
    assert there.learner_ == here.learner_
    np.testing.assert_allclose(there.label_proba_[:, classes], here.label_proba_[items], atol=1e-4)
    seen = (said >= 0).any(0)  # who said nothing has no place in the labels' order
    matrices = there.confusion_[:, classes][:, :, classes]
    np.testing.assert_allclose(matrices[seen[people]], here.confusion_[people][seen[people]], atol=1e-4)
    queries = torch.from_numpy(random.normal(size=(5, 6))).float()
    there, here = (clf.predict_proba_embeddings(queries) for clf in (there, here))
    np.testing.assert_allclose(there[:, classes], here, atol=1e-4)


@pytest.mark.slow
@given(st.integers(0, 10_000), st.integers(2, 4), st.integers(1, 4), st.sampled_from(["auto", "labeling-search"]))
@settings(max_examples=10, deadline=None)
def test_neither_names_nor_order_matter(seed: int, K: int, a: int, method: str) -> None:
    same_by_other_names(seed, K, a, method)


@pytest.mark.slow
@pytest.mark.parametrize("method", ["auto", "labeling-search"])
def test_neither_names_nor_order_matter_in_many_problems(method: str) -> None:
    for seed in range(100):
        same_by_other_names(seed, 2 + seed % 4, 1 + seed % 5, method)
