"""Fit logistic regression to soft labels, with C chosen by cross-validation; compared methods use it for features.

Results equal scikit-learn's (a test checks this), but labels may be probabilities, and fits of one problem start from
earlier solutions, which makes many fits affordable.
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
    """Features standardised by the labelled items and rotated.

    The rotation to as many dimensions as items drops the null space. It changes neither distances to class means (up to
    a constant) nor a regression with an L2 penalty. ``columns`` are standardised, but not rotated.
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
    """Minimise C · cross-entropy + ½ weights², as scikit-learn does; return (D + 1, K), the intercept last."""
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
    """Return (N,) folds; each class (the likeliest of an item) is divided evenly."""
    lots = np.random.default_rng(seed).random(len(targets))
    order = np.lexsort((lots, targets.argmax(1)))
    dealt = np.empty(len(targets), dtype=np.int64)
    dealt[order] = np.arange(len(targets)) % min(FOLDS, len(targets))
    return dealt


def splits(targets: Floats) -> Iterator[tuple[NDArray[np.bool_], NDArray[np.bool_]]]:
    """Yield training and validation masks."""
    dealt = folds(targets)
    for fold in np.unique(dealt):
        yield dealt != fold, dealt == fold


def cross_validate(items: Floats, targets: Floats) -> tuple[float, Floats]:
    """Return the C with the best validation likelihood, and its log-probabilities of validation items (N, K)."""
    held_back = np.zeros((len(STRENGTHS), *targets.shape))
    for learned, held in splits(targets):
        weights = None
        for i, C in enumerate(STRENGTHS):
            weights = fit(items[learned], targets[learned], C, weights)
            held_back[i, held] = log_proba(items[held], weights)
    best = int((held_back * targets).sum((1, 2)).argmax())
    return STRENGTHS[best], held_back[best]
