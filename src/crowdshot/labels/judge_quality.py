"""Estimate how often a model's labels are right, and its confusion matrix, given what people's labels show.

People's labels give each item a posterior (N, K), in which known items are certain. A model's labels are judged against
it by `annotator_quality.judge`, as any annotator is: the intervals contain what the labels leave open. The labels of
one class, or those that a rule accepts, are judged in the same way, as if each such group were an annotator.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from crowdshot.io.cells import Positions
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import judge
from crowdshot.labels.consensus import Floats

ROUNDS = 50  # EM steps for a confusion matrix
PSEUDO, EXPECTED_RIGHT = 2.0, 0.7  # labels per class of the prior of a confusion matrix, and their accuracy

FEWEST_OF_CLASS = 0.5  # expected items of a class; with fewer, there is probably none


class RightShare(NamedTuple):
    """An estimated share of right labels among ``labels``, with its 90 % interval."""

    labels: int
    share: float
    low: float
    high: float


class OnClass(NamedTuple):
    """A model's labels of one class: how often they are right, and the share of the class's items that get them.

    ``found`` is None if the model labelled no item of the class.
    """

    name: str
    right: RightShare
    found: float | None


def answers_of(ann: Annotations, annotator: int) -> Positions:
    """Return the label of each item (N,) by one annotator, -1 for none."""
    out = np.full(ann.n_items, -1, dtype=np.int64)
    rows = ann.annotator == annotator
    out[ann.item[rows]] = ann.label[rows]
    return out


def judge_groups(item: Positions, label: Positions, group: Positions, n: int, posterior: Floats) -> list[RightShare]:
    """Estimate how many labels of each of n groups are right.

    Parameters
    ----------
    item, label, group : arrays of shape (L,)
        The labels; ``group`` is 0 to n - 1.
    posterior : array of shape (N, K)
        The posterior by people's labels.
    """
    p, labels = posterior[item, label], np.arange(len(item))
    wrong_or_right = np.stack([1 - p, p], axis=1)  # two classes, as n confusion matrices of many are too large
    table = judge(Annotations(labels, group, np.ones_like(labels), labels, np.arange(n), np.arange(2)), wrong_or_right)
    columns = (table["n_labels"], table["accuracy"], table["low"], table["high"])
    return [RightShare(int(size), *map(float, rest)) for size, *rest in zip(*columns, strict=True)]


def judge_models(models: Annotations, posterior: Floats) -> list[RightShare]:
    """Estimate how many labels of each model are right."""
    return judge_groups(models.item, models.label, models.annotator, models.n_annotators, posterior)


def judge_classes(models: Annotations, posterior: Floats) -> list[list[OnClass]]:
    """Estimate how good each model's labels of each class are."""
    K = models.n_classes
    right = judge_groups(
        models.item, models.label, models.annotator * K + models.label, models.n_annotators * K, posterior
    )
    out = []
    for model in range(models.n_annotators):
        answers = answers_of(models, model)
        items = np.flatnonzero(answers >= 0)
        size = posterior[items].sum(0)
        hits = np.bincount(answers[items], posterior[items, answers[items]], K)
        found = [float(h / n) if n >= FEWEST_OF_CLASS else None for h, n in zip(hits, size, strict=True)]
        out.append([OnClass(str(models.classes[k]), right[model * K + k], found[k]) for k in range(K)])
    return out


def confusion_given(answers: Positions, posterior: Floats) -> Floats:
    """Fit a confusion matrix (K true, K observed) by EM, with the posterior by people's labels as the prior of items.

    A row has `PSEUDO` further labels, of which `EXPECTED_RIGHT` are right.
    """
    items = np.flatnonzero(answers >= 0)
    label, q, K = answers[items], posterior[items], posterior.shape[1]
    wrong = (1 - EXPECTED_RIGHT) / max(K - 1, 1)
    pseudo = PSEUDO * np.where(np.eye(K, dtype=bool), EXPECTED_RIGHT, wrong)
    confusion = pseudo / pseudo.sum(1, keepdims=True)
    observed = np.eye(K)[label]
    for _ in range(ROUNDS):
        true = q * confusion[:, label].T
        true /= np.maximum(true.sum(1, keepdims=True), 1e-300)
        counts = true.T @ observed + pseudo
        confusion = counts / counts.sum(1, keepdims=True)
    out: Floats = confusion
    return out


def take_annotators(ann: Annotations, wanted: Sequence[int]) -> Annotations:
    """Return the labels of some annotators; all items and classes are kept."""
    place = np.full(ann.n_annotators, -1, dtype=np.int64)
    place[list(wanted)] = np.arange(len(wanted))
    kept = ann.keep(place[ann.annotator] >= 0)
    return replace(kept, annotator=place[kept.annotator], annotators=ann.annotators[list(wanted)])
