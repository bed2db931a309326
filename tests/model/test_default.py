"""The compared methods "features" and "combined" against `CrowdClassifier`: one default, reached in two ways."""

import numpy as np
import pytest
import torch

from crowdshot import METHODS, CrowdClassifier, load_encoder
from crowdshot.classifier.mixture_learners import SearchLearner
from crowdshot.encoders.networks import Identity
from crowdshot.methods import CrowdEpisodes

ENCODER = load_encoder("glyphs-protonet")
SETTINGS = SearchLearner({}, 0).settings_for(ENCODER)


def episode(seed, apart, N=30, Q=20, R=4, K=3, missing=0.3):
    """Return embeddings (N + Q, D) and labels (N, R), with every class named and every item labelled."""
    random = np.random.default_rng(seed)
    truth = np.arange(N + Q) % K
    x = random.normal(size=(K, 8))[truth] * apart + random.normal(size=(N + Q, 8))
    wrong = (truth[:N, None] + random.integers(1, K, (N, R))) % K
    labels = np.where(random.random((N, R)) < 0.75, truth[:N, None], wrong)
    labels[(random.random((N, R)) < missing) & (np.arange(R) > 0)] = -1
    return torch.from_numpy(x).float(), labels


def compare(name, learner, x, labels, **settings):
    N = len(labels)
    clf = CrowdClassifier(ENCODER, method=name if learner is None else "auto").fit_embeddings(x[:N], labels)
    if learner is not None:
        assert clf.learner_ == learner
    episodes = CrowdEpisodes(x[None, :N], torch.from_numpy(labels)[None], x[None, N:], 3)
    found = METHODS[name].predict(episodes, Identity(), **settings)[0]
    expected = clf._model.log_proba(x[N:]).exp()
    np.testing.assert_allclose(found, expected, atol=1e-5, rtol=0)
    assert expected.std() > 0.1, "a comparison of constants proves nothing"


@pytest.mark.parametrize("seed", range(3))
def test_features_equal_the_classifiers_learner(seed):
    compare("features", None, *episode(seed, 2.0))


@pytest.mark.parametrize("seed", range(3))
def test_combined_equals_the_classifiers_default(seed):
    """Through `suits`, class sizes and pooling, where the search is used."""
    compare("combined", "combined", *episode(seed, 2.0), **SETTINGS)


def test_combined_falls_back_to_features_where_the_classifier_does():
    x, labels = episode(0, 0.0)
    x = x + 5 * torch.from_numpy(np.random.default_rng(1).choice([-1.0, 1.0], (len(x), 1))).float()  # misleading clouds
    clf = CrowdClassifier(ENCODER).fit_embeddings(x[:30], labels)
    episodes = CrowdEpisodes(x[None, :30], torch.from_numpy(labels)[None], x[None, 30:], 3)
    both, features = (
        METHODS[name].predict(episodes, Identity(), **more)[0]
        for name, more in (("combined", SETTINGS), ("features", {}))
    )
    assert clf.learner_ == "features"
    np.testing.assert_array_equal(both, features)
    np.testing.assert_allclose(both, clf._model.log_proba(x[30:]).exp(), atol=1e-5, rtol=0)
