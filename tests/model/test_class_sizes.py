"""Test estimated class frequencies; unanimous labels of a common class must not be overruled."""

import numpy as np
import pytest
import torch

from crowdshot import Annotations, CrowdClassifier, aggregate, load_encoder
from crowdshot.model.posteriors import EQUAL, class_sizes, count, resized
from crowdshot.model.problem import problem_of


def test_sizes_by_hand() -> None:
    posterior = np.array([[0.8, 0.2]] * 10)
    plain = (10 * np.array([0.8, 0.2]) + EQUAL) / (10 + 2 * EQUAL)
    np.testing.assert_allclose(class_sizes(posterior, 1.0), plain)
    sharp = (10 * np.array([0.64, 0.04]) / 0.68 + EQUAL) / (10 + 2 * EQUAL)
    np.testing.assert_allclose(class_sizes(posterior, 2.0), sharp)
    np.testing.assert_allclose(class_sizes(np.full((30, 3), 1 / 3)), 1 / 3)


def test_posteriors_are_adjusted_to_sharper_sizes_by_hand() -> None:
    """Item 0 has labels 0 and 1, item 1 only 0, item 2 a known class, and item 3 no label."""
    labels = np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([0, 1, 0])
    p = problem_of(*labels, 4, 2, 3, known=np.array([-1, -1, 1, -1]))
    posterior = np.array([[0.5, 0.3, 0.2], [0.6, 0.4, 0.0], [0.0, 1.0, 0.0], [0.4, 0.3, 0.3]])
    counted = count(p, posterior, 2.0)
    np.testing.assert_allclose(counted.modest, [1.1, 1.7, 0.2])
    np.testing.assert_allclose(counted.sharp, [0.25 / 0.38 + 0.36 / 0.52, 0.09 / 0.38 + 0.16 / 0.52 + 1, 0.04 / 0.38])
    ratio = (counted.sharp + EQUAL) / (counted.modest + EQUAL)
    a, b = 0.5 * ratio[0], 0.3 * ratio[1]
    moved = resized(p, posterior, counted)
    np.testing.assert_allclose(moved[0], [0.8 * a / (a + b), 0.8 * b / (a + b), 0.2])
    np.testing.assert_allclose(moved[1:], posterior[1:], err_msg="nobody disagrees, or it is known")


@pytest.mark.parametrize(("labels", "least"), [(2, 0.05), (5, 0.01)])
def test_ties_go_to_the_frequent_class(labels: int, least: float) -> None:
    """Nine of ten items are of class 0, so nearly all ties between it and another class are of class 0."""
    random = np.random.default_rng(7)
    ahead = []
    for _ in range(6):
        truth = random.choice(4, size=300, p=[0.9, 0.05, 0.03, 0.02])
        skill = random.uniform(0.6, 0.9, 10)
        answers = np.where(
            random.random((300, 10)) < skill, truth[:, None], (truth[:, None] + random.integers(1, 4, (300, 10))) % 4
        )
        answers[np.arange(300)[:, None], random.permuted(np.tile(np.arange(10), (300, 1)), axis=1)[:, labels:]] = -1
        ann = Annotations.from_matrix(answers, classes=[0, 1, 2, 3])
        votes = aggregate.majority_vote(ann).probabilities
        lead = votes == votes.max(1, keepdims=True)
        by_vote = (lead[np.arange(300), truth] / lead.sum(1)).mean()  # ties are broken at random
        ahead.append((aggregate.learned(ann).labels == truth).mean() - by_vote)
    assert np.mean(ahead) > least


def problem(seed: int, n: int, right: float = 0.85):
    """Draw two slightly overlapping clusters, one item in twenty of class 1, and three labels of every item."""
    random = np.random.default_rng(seed)
    truth = (np.arange(n + 500) % 20 == 0).astype(int)
    x = truth[:, None] * 2.0 + random.normal(size=(n + 500, 6))
    answers = np.where(random.random((n, 3)) < right, truth[:n, None], 1 - truth[:n, None])
    return x, truth, answers


@pytest.mark.parametrize("n", [60, 300])
def test_features_do_not_make_a_rare_class_frequent(n: int) -> None:
    right, vote, unseen, share = [], [], [], []
    for seed in range(4):
        x, truth, answers = problem(seed, n)
        clf = CrowdClassifier(encoder="identity").fit(x[:n], answers)
        right.append((clf.label_proba_.argmax(1) == truth[:n]).mean())
        vote.append(((answers.sum(1) > 1) == truth[:n]).mean())
        unseen.append(clf.score(x[n:], truth[n:]))
        share.append(clf.predict_proba(x[n:])[:, 1].mean())
    assert np.mean(right) > np.mean(vote) + 0.02
    assert np.mean(unseen) > 0.95, "always the common class is right in 0.95"
    assert np.mean(share) < {60: 0.22, 300: 0.13}[n], "0.05 are"


def test_the_search_does_not_overrule_unanimous_labels_of_a_common_class() -> None:
    """Fit the combined model to 57 and 3 items; equal class sizes would divide the larger cluster."""
    overruled, both = 0, 0
    for seed in range(4):
        random = np.random.default_rng(seed)
        truth = np.array([0] * 57 + [1] * 3)
        x = torch.from_numpy(truth[:, None] * 1.2 + random.normal(size=(60, 8))).float()
        answers = np.where(random.random((60, 3)) < 0.85, truth[:, None], 1 - truth[:, None])
        clf = CrowdClassifier(load_encoder("glyphs-protonet")).fit_embeddings(x, answers)
        both += clf.learner_ == "combined"
        unanimous = (answers == truth[:, None]).all(1)
        overruled += int((clf.label_proba_.argmax(1) != truth)[unanimous].sum())
    assert both >= 2
    assert overruled <= 5, "of about 150; 12 if classes were taken for equal"
