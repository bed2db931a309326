"""Compare with combinations of common tools for labels and features, tuned without the truth."""

import warnings
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import numpy as np
import regression
from numpy.typing import NDArray
from regression import Features
from rivals_labels import RIVALS as FROM_LABELS
from rivals_labels import VOTE, Floats, confusion_matrices, label_matrix
from scipy.special import log_softmax
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from crowdshot import Annotations


class Judged(NamedTuple):
    """Probabilities of labelled items (N, K) and of unseen items (M, K), None if the method does not predict them."""

    consensus: Floats | None = None
    unseen: Floats | None = None


Rival = Callable[[Features, Annotations], Judged]
EM_ROUNDS = 5


def alone(name: str, features: Features, annotations: Annotations) -> Judged:
    return Judged(consensus=FROM_LABELS[name](annotations))


def then_regression(name: str, features: Features, annotations: Annotations) -> Judged:
    """Fit logistic regression to the probabilities from labels only."""
    return Judged(unseen=learn_regression(features, FROM_LABELS[name](annotations)))


def learn_regression(features: Features, targets: Floats) -> Floats:
    C, _ = regression.cross_validate(features.items, targets)
    return np.exp(regression.log_proba(features.unseen, regression.fit(features.items, targets, C)))


def then_discriminant(name: str, features: Features, annotations: Annotations) -> Judged:
    """Fit linear discriminant analysis with a shrunk covariance to the consensus from labels only."""
    consensus = FROM_LABELS[name](annotations)
    model = LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto").fit(features.columns, consensus.argmax(1))
    unseen = np.zeros((len(features.unseen), annotations.n_classes))
    unseen[:, model.classes_] = model.predict_proba(features.unseen_columns)
    return Judged(unseen=unseen)


def regression_in_em(features: Features, annotations: Annotations) -> Judged:
    """Fit logistic regression and annotators' confusion matrices together (Raykar et al. 2010).

    EM starts from the one-coin consensus, by which C is chosen once. Confusion matrices have pseudo-counts of three
    correct labels and one wrong label per annotator and class.
    """
    posterior = FROM_LABELS["one-coin"](annotations)
    said, K = label_matrix(annotations), annotations.n_classes
    C, _ = regression.cross_validate(features.items, posterior)
    weights = None
    for _ in range(EM_ROUNDS):
        weights = regression.fit(features.items, posterior, C, weights)
        confusion = confusion_matrices(said, posterior, right=3, wrong=1 / max(K - 1, 1))
        seen = regression.log_proba(features.items, weights)
        posterior = np.exp(log_softmax(seen + said @ np.log(confusion).reshape(-1, K), axis=1))
    return Judged(posterior, np.exp(regression.log_proba(features.unseen, weights)))


# ---- prototypes ----


def prototypes(features: Features, annotations: Annotations) -> Judged:
    """Use the mean of the votes as class mean; the scale of distances is chosen by cross-validation."""
    votes = FROM_LABELS[VOTE](annotations)
    sharpness = np.array([0.03, 0.1, 0.3, 1, 3, 10, 30, 100]) / features.items.shape[1]
    gain = np.zeros(len(sharpness))
    for learned, held in regression.splits(votes):
        far = distances(features.items[held], features.items[learned], votes[learned])
        gain += [(votes[held] * log_softmax(-far * each, axis=1)).sum() for each in sharpness]
    far = distances(features.unseen, features.items, votes)
    return Judged(unseen=np.exp(log_softmax(-far * sharpness[gain.argmax()], axis=1)))


def distances(items: Floats, learned: Floats, votes: Floats) -> Floats:
    """Return (N, K) squared distances to class means; a class without votes gets the largest distance."""
    total = votes.sum(0)
    means = (votes.T @ learned) / np.maximum(total, 1e-9)[:, None]
    found = ((items**2).sum(1)[:, None] - 2 * items @ means.T + (means**2).sum(1)).clip(0)
    found[:, total <= 0] = found.max(initial=0)
    return found


# ---- CROWDLAB ----


def crowdlab(features: Features, annotations: Annotations) -> Judged:
    """Run CROWDLAB: out-of-fold predictions of a regression on the vote are another annotator; then fit again."""
    from cleanlab import multiannotator  # imported here: from the extra `bench`

    K = annotations.n_classes
    voted = one_hot(FROM_LABELS[VOTE](annotations).argmax(1), K)
    _, seen = regression.cross_validate(features.items, voted)
    labels, probabilities = annotations.to_cleanlab().to_numpy(), np.exp(seen)
    labels = labels[:, ~np.isnan(labels).all(0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        majority = multiannotator.get_majority_vote_label(labels, probabilities, verbose=False)
        n_labels = (~np.isnan(labels)).sum(1)
        # the same as get_label_quality_multiannotator, which does not return the probabilities
        consensus = multiannotator._get_consensus_stats(
            labels, probabilities, n_labels, majority, quality_method="crowdlab", verbose=False
        )[2]
    return Judged(consensus, learn_regression(features, one_hot(consensus.argmax(1), K)))


def one_hot(labels: NDArray[np.int64], K: int) -> Floats:
    return np.eye(K)[labels]


ALONE = (VOTE, "one-coin", "Dawid–Skene", "EBCC", "MACE")
RIVALS: dict[str, Rival] = {
    **{name: partial(alone, name) for name in ALONE},
    **{f"{name} + regression": partial(then_regression, name) for name in ALONE},
    **{f"{name} + discriminant": partial(then_discriminant, name) for name in ("one-coin", "Dawid–Skene")},
    "regression in EM": regression_in_em,
    "prototypes": prototypes,
    "CROWDLAB": crowdlab,
}
