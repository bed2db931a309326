"""Define methods that aggregate labels only: {name: function from annotations to probabilities (N, K)}."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from rivals_bayesian import bwa, ebcc, ibcc, label_matrix
from scipy import sparse
from scipy.special import log_softmax

from crowdshot import Annotations, aggregate

Floats = NDArray[np.float64]
FromLabels = Callable[[Annotations], Floats]
OURS, CLOSED_FORM = "ours", "ours, closed form"


def ours(annotations: Annotations) -> Floats:
    """Run the default."""
    return aggregate.learned(annotations).probabilities


def closed_form(annotations: Annotations) -> Floats:
    """Run the closed-form start of the default, without its learned part."""
    return aggregate.shrunk(annotations).probabilities


# ---- votes ----


def pseudo_vote(annotations: Annotations) -> Floats:
    """Add a pseudo-vote to each item, divided among the classes."""
    votes = annotations.vote_counts()
    return (votes + 1 / annotations.n_classes) / (votes.sum(1, keepdims=True) + 1)


def weighted_vote(annotations: Annotations, weights: Floats) -> Floats:
    """Return shares of votes, weighted by annotator with ``weights`` (R,)."""
    votes = np.zeros((annotations.n_items, annotations.n_classes))
    np.add.at(votes, (annotations.item, annotations.label), weights[annotations.annotator])
    total = votes.sum(1, keepdims=True)
    return np.where(total > 0, votes / np.maximum(total, 1e-12), 1 / annotations.n_classes)


def agreement(annotations: Annotations, shares: Floats) -> Floats:
    """Return (R,) each annotator's agreement with the vote; classes that tie for the lead share it."""
    leads = np.isclose(shares, shares.max(1, keepdims=True), rtol=0, atol=1e-12)
    hits = (leads / leads.sum(1, keepdims=True))[annotations.item, annotations.label]
    total = np.bincount(annotations.annotator, minlength=annotations.n_annotators)
    return np.bincount(annotations.annotator, hits, annotations.n_annotators) / np.maximum(total, 1)


def wawa(annotations: Annotations) -> Floats:
    """Worker agreement with aggregate: weight votes by the agreement of their annotator with the vote."""
    return weighted_vote(annotations, agreement(annotations, aggregate.soft_vote(annotations)))


def zero_based_skill(annotations: Annotations, steps: int = 100, rate: float = 1.0) -> Floats:
    """Iterate Wawa with a learning rate that is halved every 20 steps, as crowd-kit 1.4.2 does."""
    skills = np.full(annotations.n_annotators, 1 / annotations.n_classes + 1e-5)
    for step in range(1, steps + 1):
        rate *= 0.5 if step % 20 == 0 else 1
        skills += rate * (agreement(annotations, weighted_vote(annotations, skills)) - skills)
    return weighted_vote(annotations, skills)


# ---- Dawid–Skene with pseudo-counts ----


def confusion_matrices(said: sparse.csr_array, posterior: Floats, right: float, wrong: float) -> Floats:
    """Return (R, K observed, K true), with pseudo-counts of correct labels and of each wrong label."""
    K = posterior.shape[1]
    counts = (said.T @ posterior).reshape(-1, K, K) + wrong + (right - wrong) * np.eye(K)
    return counts / counts.sum(1, keepdims=True)


def dawid_skene_prior(annotations: Annotations, right: float = 3, wrong: float = 0.5, steps: int = 50) -> Floats:
    """Run Dawid–Skene with a prior that favours annotators above chance, and one pseudo-item per class."""
    said, posterior = label_matrix(annotations), aggregate.soft_vote(annotations)
    K = annotations.n_classes
    for _ in range(steps):
        class_probs = (posterior.sum(0) + 1) / (len(posterior) + K)
        confusion = confusion_matrices(said, posterior, right, wrong)
        posterior = np.exp(log_softmax(said @ np.log(confusion).reshape(-1, K) + np.log(class_probs), axis=1))
    return posterior


# ---- crowd-kit ----


def crowd_kit(name: str) -> FromLabels:
    """Run GLAD, MACE or MMSR of crowd-kit with the results of its default settings; MMSR returns labels only."""

    def run(annotations: Annotations) -> Floats:
        import crowdkit.aggregation  # imported here: from the extra `test`

        rival, table = getattr(crowdkit.aggregation, name)(**SETTINGS.get(name, {})), annotations.to_crowdkit()
        if name in LABELS_ONLY:
            found = pd.get_dummies(rival.fit_predict(table), dtype=float)
        else:
            found = rival.fit_predict_proba(table)
        return found.reindex(index=annotations.items, columns=annotations.classes).fillna(0).to_numpy()

    return run


LABELS_ONLY = frozenset({"MMSR"})
SETTINGS = {"MACE": {"n_restarts": 1}}  # the restarts of crowd-kit 1.4.2 are all the same
CROWD_KIT = ("GLAD", "MACE", "MMSR")
SLOW = frozenset({*CROWD_KIT, "EBCC"})
VOTE = "vote"
RIVALS: dict[str, FromLabels] = {
    VOTE: aggregate.soft_vote,
    "vote, one pseudo-vote": pseudo_vote,
    "one-coin": lambda annotations: aggregate.one_coin(annotations).probabilities,
    "Dawid–Skene": lambda annotations: aggregate.dawid_skene(annotations).probabilities,
    "Dawid–Skene, prior 3 / 0.5": dawid_skene_prior,
    "Wawa": wawa,
    "ZeroBasedSkill": zero_based_skill,
    **{name: crowd_kit(name) for name in CROWD_KIT},
    "IBCC": ibcc,
    "EBCC": ebcc,
    "BWA": bwa,
}
