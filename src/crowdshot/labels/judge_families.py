"""Find families of models that err together, by comparing them with people's labels.

Let q (N, K) be the posterior by people's labels and C_j the confusion matrix of model j given q. If models a and b err
independently given the class, b gives item n the label l of a with the probability

    p_n = Σ_t r_n(t) C_b[t, l],   r_n ∝ q_n C_a[:, l]

Equal labels beyond Σ p_n are excess agreement; κ = (same - Σ p) / (items - Σ p) is its share of what could be. Some
items are difficult for everybody, and q may be too certain. Both give models excess agreement with *people* as well.
The κ of all pairs of a model and a person, pooled, is therefore allowed to pairs of models:

    p'_n = p_n + κ_people (1 - p_n)

A pair errs together if chance would give any pair of models such an excess in one project of twenty (Bonferroni), and
if κ is at least `LEAST_EXCESS` above κ_people. Families are the connected components of such pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtr

from crowdshot.io.cells import Positions
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import expected_confusion
from crowdshot.labels.consensus import Floats
from crowdshot.labels.judge_quality import confusion_given

ALPHA = 0.05
FEWEST_SHARED = 30  # items that two models share, for a comparison
LEAST_EXCESS = 0.25  # separated models of one training set from others (film reviews, docs/research/measured.md)


class ModelPair(NamedTuple):
    """Two models: shared items, equal labels, their expected number, κ above that with people, p-value, verdict."""

    one: str
    other: str
    items: int
    same: int
    expected: float
    excess: float
    p: float
    errs_together: bool


class Families(NamedTuple):
    """All compared pairs, the families of two models or more, and the excess agreement of models with people."""

    pairs: list[ModelPair]
    families: list[list[str]]
    with_people: float


def find_families(
    models: Annotations, answers: Sequence[Positions], people: Annotations, posterior: Floats
) -> Families:
    """Find families of models.

    Parameters
    ----------
    models : Annotations
        The labels of models, whose names are its annotators.
    answers : sequence of arrays of shape (N,)
        The label of each item by each model, -1 for none.
    people : Annotations
        The labels of people for the same items and classes.
    posterior : array of shape (N, K)
        The posterior by people's labels.
    """
    confusion = [confusion_given(each, posterior) for each in answers]
    excess, error = _with_people(answers, confusion, people, posterior)
    found = []
    for a, b in combinations(range(len(answers)), 2):
        items = np.flatnonzero((answers[a] >= 0) & (answers[b] >= 0))
        if len(items) < FEWEST_SHARED:
            continue
        q = posterior[items]
        first, second = answers[a][items], answers[b][items]
        p = (_expected(q, confusion[a], confusion[b], first) + _expected(q, confusion[b], confusion[a], second)) / 2
        found.append((a, b, len(items), int((first == second).sum()), p))
    pairs = [
        _compare(str(models.annotators[a]), str(models.annotators[b]), n, same, p, excess, error, len(found))
        for a, b, n, same, p in found
    ]
    linked = [(a, b) for (a, b, *_), pair in zip(found, pairs, strict=True) if pair.errs_together]
    return Families(pairs, _components(linked, [str(name) for name in models.annotators]), excess)


def _expected(q: Floats, one: Floats, other: Floats, label: Positions) -> Floats:
    """Return the probability (n,) that ``other`` gives the label of ``one``, given people's posterior q (n, K)."""
    true = q * one[:, label].T
    true /= np.maximum(true.sum(1, keepdims=True), 1e-300)
    out: Floats = (true * other[:, label].T).sum(1)
    return out


def _with_people(
    answers: Sequence[Positions], confusion: Sequence[Floats], people: Annotations, posterior: Floats
) -> tuple[float, float]:
    """Return the pooled excess agreement of models with people, and its standard error; both 0 without people."""
    if not people.n_labels:
        return 0.0, 0.0
    of_people = np.asarray(expected_confusion(people, posterior))[people.annotator, :, people.label]  # (L, K)
    without = posterior[people.item] / np.maximum(of_people, 1e-9)  # the posterior without this person's label
    without /= np.maximum(without.sum(1, keepdims=True), 1e-300)
    above = open_ = variance = 0.0
    for answer, matrix in zip(answers, confusion, strict=True):
        use = np.flatnonzero(answer[people.item] >= 0)
        label, theirs = answer[people.item[use]], people.label[use]
        true = without[use] * of_people[use]
        true /= np.maximum(true.sum(1, keepdims=True), 1e-300)
        p = (true * matrix[:, theirs].T).sum(1)
        above += float(((label == theirs) - p).sum())
        open_ += float((1 - p).sum())
        variance += float((p * (1 - p)).sum())
    if open_ <= 0:
        return 0.0, 0.0
    return min(max(above / open_, 0.0), 0.9), variance**0.5 / open_


def _compare(
    one: str, other: str, n: int, same: int, p: Floats, excess: float, error: float, n_pairs: int
) -> ModelPair:
    allowed = p + excess * (1 - p)
    expected, left = float(allowed.sum()), float((1 - p).sum())
    variance = float((allowed * (1 - allowed)).sum()) + (left * error) ** 2
    chance = float(ndtr(-(same - 0.5 - expected) / max(variance, 1e-9) ** 0.5))
    above = (same - expected) / max(n - expected, 1e-9)
    return ModelPair(one, other, n, same, expected, above, chance, chance < ALPHA / n_pairs and above >= LEAST_EXCESS)


def _components(linked: list[tuple[int, int]], names: list[str]) -> list[list[str]]:
    """Return the names of each connected component with two members or more."""
    if not linked:
        return []
    one, other = np.array(linked).T
    links = coo_array((np.ones(len(one)), (one, other)), shape=(len(names), len(names)))
    group = connected_components(links, directed=False)[1]
    families = [[names[r] for r in np.flatnonzero(group == each)] for each in np.unique(group)]
    return [family for family in families if len(family) > 1]
