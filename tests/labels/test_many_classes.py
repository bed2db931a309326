"""Test aggregation with very many classes, whose posteriors are sparse."""

import tracemalloc

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from crowdshot import Annotations, CrowdshotError, aggregate
from crowdshot.labels import asking
from crowdshot.labels.annotator_quality import expected_confusion, judge
from crowdshot.labels.consensus import uncertainty
from crowdshot.model import parts
from crowdshot.report.result_tables import with_probabilities

METHODS = tuple(aggregate.AGGREGATORS)


def crowd(N, R, K, per_item, seed=0):
    random = np.random.default_rng(seed)
    item = np.repeat(np.arange(N), per_item)
    truth = random.integers(K, size=N)
    label = np.where(random.random(len(item)) < 0.8, truth[item], random.integers(K, size=len(item)))
    annotator = (random.integers(R, size=N)[:, None] + np.arange(per_item)).ravel() % R
    names = {"items": np.arange(N), "annotators": np.arange(R), "classes": np.arange(K)}
    return Annotations(item=item, annotator=annotator, label=label, **names), truth


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
def test_memory_of_three_thousand_classes_and_fifty_annotators(method) -> None:
    ann, truth = crowd(2_000, 50, 3_000, 5)
    tracemalloc.start()
    found = aggregate.AGGREGATORS[method](ann, 3, None)
    table, people = found.to_frame(ann), judge(ann, found.probabilities)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sparse.issparse(found.probabilities)
    assert found.probabilities.shape == (2_000, 3_000)
    assert found.confusion is None
    assert peak < 50e6  # dense confusion matrices would take 3.6 GB
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1)
    if method != "dawid-skene":  # overfits classes with few labels
        assert (table["label"] == truth).mean() > 0.95
        assert people["accuracy"].between(0.6, 0.95).all()


def test_confusion_and_accuracy_are_the_same_for_a_sparse_posterior() -> None:
    ann, _ = crowd(40, 6, 4, 3)
    posterior = aggregate.soft_vote(ann)
    pd.testing.assert_frame_equal(judge(ann, sparse.csr_array(posterior)), judge(ann, posterior))


def test_confusion_among_some_classes_pools_other_labels() -> None:
    ann, _ = crowd(60, 6, 5, 4)
    posterior = aggregate.soft_vote(ann)
    whole, few = (asking.expected_confusion(ann, held) for held in (posterior, sparse.csr_array(posterior)))
    assert whole.shape == (6, 5, 5)
    some = np.array([3, 1])
    found = few.among(some)
    np.testing.assert_allclose(found[..., :2], whole[:, some][..., some])
    np.testing.assert_allclose(found[..., 2], whole[:, some][..., [0, 2, 4]].sum(-1))
    np.testing.assert_allclose(few.among(np.arange(5))[..., :5], whole)


@pytest.mark.parametrize("budget", [1, 5, 40])
def test_dense_and_sparse_posteriors_give_the_same_questions(budget) -> None:
    """If every class of an item has a positive posterior, the sparse form omits nothing."""
    ann, _ = crowd(30, 8, 4, 3)
    share = np.random.default_rng(0).dirichlet(np.ones(4), 30)  # avoids ties of gains
    posterior = 0.7 * aggregate.soft_vote(ann) + 0.3 * share
    asked = []
    for held in (posterior, sparse.csr_array(posterior)):
        confusion = asking.expected_confusion(ann, held)
        found = asking.choose(held, confusion, (ann.item, ann.annotator), budget, most=6)
        plain = expected_confusion(ann, held)
        asked.append((found, asking.mended(held, plain, found), uncertainty(held)))
    (whole, mended, doubts), (few, mended_too, doubts_too) = asked
    assert [q[:2] for q in few] == [q[:2] for q in whole]
    assert len(whole) == budget
    np.testing.assert_allclose([q.gain for q in few], [q.gain for q in whole])
    assert mended_too == pytest.approx(mended)
    np.testing.assert_allclose(doubts_too, doubts)


def test_memory_of_questions_about_three_thousand_classes() -> None:
    ann, _ = crowd(1_000, 50, 3_000, 4)
    tracemalloc.start()
    posterior = aggregate.learned(ann).probabilities
    confusion = asking.expected_confusion(ann, posterior)
    found = asking.choose(posterior, confusion, (ann.item, ann.annotator), 20, most=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(found) == 20
    assert peak < 50e6
    certain = posterior.max(axis=1).toarray().ravel()
    assert max(certain[q.item] for q in found) < np.median(certain)


def test_dense_and_sparse_votes_are_equal(monkeypatch) -> None:
    ann, _ = crowd(60, 9, 4, 4)
    dense = aggregate.majority_vote(ann, ties="missing")
    monkeypatch.setattr(parts, "MOST_CELLS", 0)
    named = aggregate.majority_vote(ann, ties="missing")
    assert None in named.labels
    assert named.labels.tolist() == dense.labels.tolist()
    np.testing.assert_allclose(named.probabilities.toarray(), dense.probabilities)
    np.testing.assert_allclose(named.class_probs, dense.class_probs)


def test_gold_classes_without_labels_are_fixed(monkeypatch) -> None:
    monkeypatch.setattr(parts, "MOST_CELLS", 0)
    ann, _ = crowd(20, 5, 6, 3)
    gold = {3: (int(ann.label[ann.item == 3][0]) + 1) % 6}
    for method in ("learned", "one-coin", "dawid-skene"):
        found = aggregate.AGGREGATORS[method](ann, 3, gold)
        assert found.labels[3] == gold[3]
        assert found.probabilities[3, gold[3]] == 1.0


def test_pred_probs_need_a_dense_posterior(monkeypatch) -> None:
    monkeypatch.setattr(parts, "MOST_CELLS", 0)
    ann, _ = crowd(20, 5, 6, 3)
    with pytest.raises(CrowdshotError, match=r"^pred_probs cannot be used with 6 classes .*, expected fewer"):
        aggregate.learned(ann, pred_probs=np.full((20, 6), 1 / 6))


def test_tables_of_many_classes_have_no_column_per_class() -> None:
    table = pd.DataFrame({"item": ["a"]})
    assert len(with_probabilities(table, range(100), np.ones((1, 100))).columns) == 101
    assert with_probabilities(table, range(101), np.ones((1, 101))).columns.tolist() == ["item"]
