"""Logistic regression on soft labels, its C chosen by cross-validation: what rivals learn from features with.

The same as scikit-learn's (a test holds it to that), but a label may be probabilities, and fits of one problem begin
where others of it ended, which makes many of them affordable.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax

Floats = NDArray[np.float64]
Positions = NDArray[np.int64]
STRENGTHS = (0.0001, 0.001, 0.01, 0.1, 1.0)  # C
FOLDS = 5


class Features(NamedTuple):
    """Standardised by the labelled items, and turned: what has more columns than items loses those that say nothing.

    Items are in a space of as many dimensions as there are items, so a turn into it changes neither distances to class
    means (but for a constant) nor a regression whose weights are kept small. ``columns``: standardised alone.
    """

    items: Floats
    unseen: Floats
    columns: Floats
    unseen_columns: Floats


def prepare(items: Floats, unseen: Floats) -> Features:
    spread = items.std(0)
    spread[spread == 0] = 1
    centre = items.mean(0)
    items, unseen = (items - centre) / spread, (unseen - centre) / spread
    if items.shape[1] <= len(items):
        return Features(items, unseen, items, unseen)
    turn = np.linalg.svd(items, full_matrices=False)[2].T
    return Features(items @ turn, unseen @ turn, items, unseen)


def fit(items: Floats, targets: Floats, C: float, start: Floats | None = None) -> Floats:
    """Weights (D + 1, K), the last row added to all items: least C · cross-entropy + ½ weights², as in scikit-learn."""
    shape = (items.shape[1] + 1, targets.shape[1])
    scale = 1 / (C * len(items))

    def loss(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(shape)
        log_probs = log_proba(items, weights)
        wrong = (np.exp(log_probs) - targets) / len(items)
        slope = np.vstack([items.T @ wrong + scale * weights[:-1], wrong.sum(0)])
        return -(targets * log_probs).sum() / len(items) + scale / 2 * (weights[:-1] ** 2).sum(), slope.ravel()

    first = np.zeros(shape) if start is None else start
    found = minimize(loss, first.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": 200, "gtol": 1e-4})
    return found.x.reshape(shape)


def log_proba(items: Floats, weights: Floats) -> Floats:
    return log_softmax(items @ weights[:-1] + weights[-1], axis=1)


def folds(targets: Floats, seed: int = 0) -> Positions:
    """(N,): which fold each item is held back in; each class (the likeliest) is dealt out evenly."""
    lots = np.random.default_rng(seed).random(len(targets))
    order = np.lexsort((lots, targets.argmax(1)))
    dealt = np.empty(len(targets), dtype=np.int64)
    dealt[order] = np.arange(len(targets)) % min(FOLDS, len(targets))
    return dealt


def splits(targets: Floats) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Learned from, held back."""
    dealt = folds(targets)
    for fold in np.unique(dealt):
        yield dealt != fold, dealt == fold


def cross_validate(items: Floats, targets: Floats) -> tuple[float, Floats]:
    """The C that predicts the targets of items held back best, and its log-probabilities of them (N, K)."""
    held_back = np.zeros((len(STRENGTHS), *targets.shape))
    for learned, held in splits(targets):
        weights = None
        for i, C in enumerate(STRENGTHS):
            weights = fit(items[learned], targets[learned], C, weights)
            held_back[i, held] = log_proba(items[held], weights)
    best = int((held_back * targets).sum((1, 2)).argmax())
    return STRENGTHS[best], held_back[best]
