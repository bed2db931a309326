"""What features were worth, on problems that can be checked by hand."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from crowdshot import Annotations, CrowdClassifier
from crowdshot.classifier.diagnostics import feature_value
from crowdshot.classifier.learner_contract import SideInformation

NOISE = np.random.default_rng(0).normal(size=(40, 3))
TRUTH = np.arange(40) % 2


def fitted(x, said, **how):
    clf = CrowdClassifier("identity", **how)
    embeddings = clf.embed(np.asarray(x, dtype=np.float32))
    return clf.fit_embeddings(embeddings, said), embeddings


@pytest.mark.parametrize("method", ["auto", "labeling-search"])
def test_features_that_tell_the_classes_apart_foretell_labels(method):
    x = 20.0 * TRUTH[:, None] + NOISE
    found = feature_value(*fitted(x, np.column_stack([TRUTH] * 3), method=method))
    assert found.informative is True
    assert found.held_out_probability > 0.8
    assert found.by_class_sizes == pytest.approx(0.5, abs=0.01)
    assert (len(found.changed), len(found.unchosen)) == (0, 0)


def test_features_that_say_nothing_did_not_help():
    x = NOISE
    found = feature_value(*fitted(x, np.column_stack([TRUTH] * 3)))
    assert found.informative is False
    assert found.held_out_probability == pytest.approx(found.by_class_sizes, abs=0.1)
    assert feature_value(*fitted(x, np.column_stack([TRUTH] * 3), method="labeling-search")).informative is None


def test_an_item_a_class_tells_nothing_of_what_features_are_worth():
    found = feature_value(*fitted(np.eye(3), [[0, 0], [1, 1], [2, 2]]))
    assert found.informative is None
    assert found.held_out_probability is not None


def test_classes_that_nobody_named_do_not_count():
    x = 20.0 * TRUTH[:, None] + NOISE
    clf, embeddings = fitted(x, np.column_stack([TRUTH] * 3))
    clf.fit_embeddings(embeddings, np.column_stack([TRUTH] * 3), classes=range(5))
    assert feature_value(clf, embeddings).by_class_sizes == pytest.approx(0.5, abs=0.01)


def test_where_the_consensus_is_not_what_labels_alone_give():
    said = np.array([[0, 0], [1, 1], [0, 0], [0, 1], [-1, -1]])
    posterior = torch.tensor(
        [
            [0.9, 0.1, 0.0],  # as labels alone have it
            [0.6, 0.4, 0.0],  # both said the other
            [0.1, 0.2, 0.7],  # nobody said this
            [0.4, 0.6, 0.0],  # labels alone are a tie
            [0.0, 0.0, 1.0],  # nobody said anything
        ]
    )
    clf = CrowdClassifier("identity")
    clf.annotations_ = Annotations.from_matrix(said, classes=range(3))
    clf.learner_, clf.settings_, clf._model = "LRDS", {}, SimpleNamespace(responsibilities=posterior)
    clf._known = SideInformation.nothing(5)
    found = feature_value(clf, torch.zeros(5, 2))
    assert (found.held_out_probability, found.by_class_sizes, found.informative) == (None, None, None)
    assert found.unchosen.tolist() == [1, 2]  # neither of the labels of item 1 is class 0
    assert found.changed.tolist() == [1, 2]
