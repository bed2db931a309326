"""Test duplicate annotators: by hand, and on simulated crowds with known copies."""

import numpy as np
import pandas as pd
import pytest

from crowdshot.labels import agreement, duplicate_annotators
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import expected_confusion
from crowdshot.labels.duplicate_annotators import compare_pairs


def crowd(n_items, right, copies=(), seed=0, hard=0.3):
    """Return labels (N, R) of four classes and the truth; ``copies`` are pairs (copier, source)."""
    random = np.random.default_rng(seed)
    truth, decoy = random.integers(4, size=(2, n_items))
    fooled = (random.random(n_items) < hard)[:, None] & (random.random((n_items, len(right))) < 0.4)
    lucky = random.random((n_items, len(right))) < right
    said = np.where(lucky, truth[:, None], random.integers(4, size=lucky.shape))
    said = np.where(fooled, decoy[:, None], said)
    for who, whose in copies:
        said[:, who] = said[:, whose]
    return said, np.eye(4)[truth]


def found(said, posterior) -> set[tuple[int, int]]:
    pairs = compare_pairs(Annotations.from_matrix(said, classes=range(4)), posterior)
    return set(map(tuple, pairs.loc[pairs["stands_out"], ["one", "other"]].to_numpy().tolist()))


def test_expected_agreement_by_hand():
    said = np.array([[0, 0, 1], [1, 1, -1], [0, 1, 0]])
    posterior = np.array([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    ann = Annotations.from_matrix(said)
    C = expected_confusion(ann, posterior)
    pairs = compare_pairs(ann, posterior).set_index(["one", "other"])
    assert pairs[["shared", "same"]].to_numpy().tolist() == [[3, 2], [2, 1], [2, 0]]
    says = posterior[:, None, :] @ C.transpose(1, 0, 2).reshape(2, -1)  # [item, 0, (annotator, label)]
    says = says.reshape(3, 3, 2)

    def likely(item, who, label, others):
        """``others`` are the item's labels by annotators outside the pair."""
        by_skill = says[item, who, label]
        return max(by_skill, (by_skill + others.count(label)) / (1 + len(others)))

    forth = likely(0, 1, 0, [1]) + likely(1, 1, 1, []) + likely(2, 1, 0, [0])
    back = likely(0, 0, 0, [1]) + likely(1, 0, 1, []) + likely(2, 0, 1, [0])
    assert pairs.loc[(0, 1), "expected"] == pytest.approx(max(forth, back))
    assert not pairs["stands_out"].any()  # three items are too few


def test_only_copiers_are_found():
    right = np.array([0.9, 0.8, 0.75, 0.7, 0.7, 0.8, 0.6, 0.85])
    assert found(*crowd(150, right)) == set()
    assert found(*crowd(150, right, [(6, 3)])) == {(3, 6)}
    assert found(*crowd(150, right, [(4, 3), (6, 3)])) == {(3, 4), (3, 6), (4, 6)}


def test_half_a_crowd_of_copies_is_found():
    """The copies determine the consensus, so posterior and skill explain their agreement as correctness."""
    right = np.array([0.6, 0.6, 0.6, 0.6, 0.6, 0.7, 0.65, 0.7, 0.6, 0.65])
    said, _ = crowd(100, right, [(who, 0) for who in range(1, 5)], hard=0)
    posterior = 0.96 * np.eye(4)[said[:, 0]] + 0.01
    assert found(said, posterior) == {(a, b) for a in range(5) for b in range(a + 1, 5)}
    said[0, 4] = (said[0, 0] + 1) % 4  # an annotator who differs once is not one who always agrees
    assert found(said, posterior) == {(a, b) for a in range(4) for b in range(a + 1, 4)}


def test_differing_annotators_by_hand():
    """Annotators with constant labels are judged by the first rule only."""
    assert duplicate_annotators._differ(np.array([2, 2, 0, 1, 1]), np.array([0, 0, 1, 1, 2]), 4).tolist() == [
        False,
        True,
        False,
        False,
    ]


def test_probability_of_chance_agreement_by_hand():
    """One of four outsiders agrees on item 0, two of four on item 1, and none of two on item 2."""
    item = np.array([0] * 6 + [1] * 6 + [2] * 4)
    label = np.array([0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1])
    group = np.array([9, 9, 1, 2, 3, 4, 9, 9, 1, 2, 3, 4, 9, 9, 1, 2])
    p = duplicate_annotators._agree_by_chance(item, label, group, K=2)
    np.testing.assert_allclose(p[[0, 6, 12]], [(1 + 0.5) / 5, 1, 1])


def test_experts_and_unanimous_crowds_are_not_copies():
    assert found(*crowd(200, np.array([0.99, 0.99, 0.5, 0.5, 0.4, 0.6]), hard=0)) == set()
    said, posterior = crowd(200, np.array([0.98] * 6), hard=0)
    said[:] = said[:, :1]
    assert found(said, posterior) == set()


def test_two_annotators_are_too_few():
    said, posterior = crowd(100, np.array([0.6, 0.6]), [(1, 0)])
    assert found(said, posterior) == set()


def test_order_does_not_matter_and_one_annotator_has_no_pairs():
    said, posterior = crowd(60, np.array([0.8, 0.7, 0.6, 0.7]), [(1, 0)])
    said[np.random.default_rng(0).random(said.shape) < 0.3] = -1
    ann = Annotations.from_matrix(said, classes=range(4))
    shuffled = np.random.default_rng(1).permutation(ann.n_labels)
    again = Annotations(
        ann.item[shuffled], ann.annotator[shuffled], ann.label[shuffled], ann.items, ann.annotators, ann.classes
    )
    one, two = compare_pairs(ann, posterior), compare_pairs(again, posterior)
    np.testing.assert_allclose(one.to_numpy(dtype=float), two.to_numpy(dtype=float))
    alone = Annotations.from_matrix(said[:, :1], classes=range(4))
    assert compare_pairs(alone, posterior).empty


def test_with_too_many_pairs_a_subset_of_items_is_compared(monkeypatch):
    said, posterior = crowd(100, np.array([0.8, 0.7, 0.6, 0.7]))
    ann = Annotations.from_matrix(said, classes=range(4))
    monkeypatch.setattr(duplicate_annotators, "MOST_PAIRS", 150)  # 100 items have 600
    assert compare_pairs(ann, posterior)["shared"].tolist() == [25] * 6


@pytest.mark.parametrize("module", [duplicate_annotators, agreement])
def test_an_item_with_too_many_labels_is_left_out(monkeypatch, module):
    """Of 5 items, the first has 100 labels (4,950 pairs) and the others three."""
    rows = [(0, f"a{person}", "x") for person in range(100)]
    rows += [(item, f"a{person}", "x") for item in range(1, 5) for person in range(3)]
    ann = Annotations.from_frame(pd.DataFrame(rows, columns=["item", "annotator", "label"]), classes=["x", "y"])
    compare = {
        duplicate_annotators: lambda: compare_pairs(ann, np.tile([0.9, 0.1], (5, 1))),
        agreement: lambda: agreement.pairs(ann, fewest=1),
    }[module]
    assert len(compare()) == 4950
    monkeypatch.setattr(module, "MOST_PAIRS", 2481)  # half of the 4,962 pairs: every second item
    assert compare()["shared"].tolist() == [2] * 3
