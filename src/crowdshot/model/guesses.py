"""What any classifier says of items, trusted as far as it foretells the labels that it never met."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SHARPNESS = np.array([0.0, 0.25, 0.5, 0.75, 1.0])  # of what it claims; 0: it says nothing
BEFORE = np.array([0.5, 0.075, 0.1, 0.125, 0.2])  # how far each is believed, before labels are foretold
LEAST = 1e-6  # no classifier is surer than this
CAUTION = 0.3  # of several witnesses: evidence of n items counts as that of n^(1 - this)
BESIDE_LABELS = 0.6  # what is said counts for so much: people and classifiers err on the same items


def trusted(p: Floats, evidence: Floats, counted: NDArray[np.bool_]) -> Floats:
    """log p(class | the classifier) - log(class size), (N, K).

    ``p`` (N, K): what it says. ``evidence`` (N, K): log p(labels | class), by which it is judged on the items that are
    ``counted``, (N,). With its tilt t = log p - log size, each sharpness β says q ∝ size exp(β t), is believed by

        Σ_n log Σ_k q_nk p(labels of n | k)

    and what they say is averaged.
    """
    p = p.clip(LEAST)
    size = p.mean(0) / p.mean(0).sum()
    tilt = np.log(p) - np.log(size)
    likely = np.exp(evidence - evidence.max(1, keepdims=True))[counted]
    said = np.exp(SHARPNESS[:, None, None] * tilt) * size
    said /= said.sum(-1, keepdims=True)
    worth = np.log((said[:, counted] * likely).sum(-1)).sum(-1)
    weight = BEFORE * np.exp(worth - worth.max())
    out: Floats = np.log(np.tensordot(weight / weight.sum(), said, 1)) - np.log(size)
    return out


def weigh(witnesses: Sequence[Floats], evidence: Floats, size: Floats) -> Floats:
    """How far each is believed, by how well it foretells labels: log p(class | witness) - log(size), (n, K) each."""
    likely = np.exp(evidence - evidence.max(1, keepdims=True))
    worth = np.array([np.log((_claims(told, size) * likely).sum(1)).sum() for told in witnesses])
    weight = np.exp((worth - worth.max()) * max(len(evidence), 1) ** -CAUTION)
    out: Floats = weight / weight.sum()
    return out


def together(witnesses: Sequence[Floats], weights: Floats, size: Floats) -> Floats:
    """What witnesses say that may all have it from the same source: their average, never their product."""
    p = sum(weight * _claims(told, size) for told, weight in zip(witnesses, weights, strict=True))
    out: Floats = np.log(p) - np.log(size)
    return out


def _claims(told: Floats, size: Floats) -> Floats:
    p: Floats = np.exp(told) * size
    p /= p.sum(1, keepdims=True)
    return p
