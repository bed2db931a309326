"""Estimate what it saves to label with models first and to send uncertain items to people.

Models' labels are combined by Bayes' rule with the confusion matrices that people's labels show. A model in a family
of m models that err together counts as 1/m of a model. Items are split into `FOLDS` parts; each part is labelled with
confusion matrices from the others, so the estimates hold for new items.

For each threshold, items whose label is at least as probable are left to the models. The share of right labels among
them is estimated from people's labels on these items (`judge_quality.judge_groups`), which models did not see. The
others go to people, who label them as they do now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.io.cells import Positions
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import Floats
from crowdshot.labels.judge_quality import RightShare, confusion_given, judge_groups

FOLDS = 5
THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99)
FEWEST_KEPT = 30  # items, for a plan


class Stage(NamedTuple):
    """A threshold: the share of items left to models, how many of their labels are right, and the cost of all items.

    ``accuracy`` is that of all items, with people's labels where models are uncertain. ``cost`` is None without prices.
    """

    threshold: float
    share: float
    right: RightShare
    accuracy: float
    cost: float | None


@dataclass(frozen=True)
class ModelsFirst:
    """The curve of thresholds, and the lowest one whose models' labels keep the promise; ``plan`` is None if none does.

    ``people_accuracy`` and ``people_cost`` are those of labelling everything by people, as now.
    """

    items: int
    promise: float
    stages: list[Stage]
    plan: Stage | None
    people_accuracy: float
    people_labels: float
    people_cost: float | None

    @property
    def saving(self) -> float | None:
        """The share of the cost (without prices: of people's labels) that the plan saves."""
        if self.plan is None:
            return None
        if self.plan.cost is None or not self.people_cost:
            return self.plan.share
        return 1 - self.plan.cost / self.people_cost


class PricePerItem(NamedTuple):
    """The cost of all models' labels of an item, and of people's labels of an item."""

    models: float
    people: float


def plan_models_first(
    answers: Sequence[Positions],
    weights: Sequence[float],
    people: Annotations,
    posterior: Floats,
    judged_by: NDArray[np.bool_],
    promise: float,
    price: PricePerItem | None = None,
    people_label: Positions | None = None,
) -> ModelsFirst | None:
    """Estimate the accuracy and the cost for several thresholds.

    Parameters
    ----------
    answers : sequence of arrays of shape (N,)
        The label of each item by each model, -1 for none.
    weights : sequence of float
        The weight of each model, 1 for independent ones.
    people : Annotations
        The labels of people.
    posterior : array of shape (N, K)
        The posterior by people's labels.
    judged_by : array of shape (N,)
        The items by which the accuracy is judged, such as those with a known label.
    promise : float
        The accuracy that models' labels should have, at the lower limit of its interval.
    price : PricePerItem, optional
    people_label : array of shape (N,), optional
        The consensus by people's labels without known labels; by default the most probable class.

    Returns
    -------
    ModelsFirst or None
        None if too few items have labels of models and people.
    """
    by_people = np.bincount(people.item, minlength=people.n_items) > 0
    known = (posterior.max(1) > 1 - 1e-9) | by_people
    items = np.flatnonzero(known & np.any([each >= 0 for each in answers], axis=0))
    if len(items) < FEWEST_KEPT:
        return None
    predicted = combine_held_out([each[items] for each in answers], weights, posterior[items])
    label, confidence = predicted.argmax(1), predicted.max(1)
    q = posterior[items]
    people_right = q.max(1) if people_label is None else q[np.arange(len(items)), people_label[items]]
    if by_people[items].any():  # people are as good on items that they have not labelled yet
        people_right = np.where(by_people[items], people_right, people_right[by_people[items]].mean())
    stages = []
    for threshold in THRESHOLDS:
        kept = confidence >= threshold
        if (kept & judged_by[items]).sum() < FEWEST_KEPT:
            continue
        rows = np.flatnonzero(kept & judged_by[items])
        right = judge_groups(rows, label[rows], np.zeros_like(rows), 1, q)[0]
        share = float(kept.mean())
        accuracy = share * right.share + float(people_right[~kept].sum()) / len(items)
        cost = None if price is None else len(items) * (price.models + (1 - share) * price.people)
        stages.append(Stage(threshold, share, right, accuracy, cost))
    plan = next((stage for stage in stages if stage.right.low >= promise), None)
    size = np.bincount(people.item, minlength=people.n_items)[items].mean()
    everything = None if price is None else len(items) * price.people
    return ModelsFirst(len(items), promise, stages, plan, float(people_right.mean()), float(size), everything)


def combine_held_out(answers: Sequence[Positions], weights: Sequence[float], posterior: Floats) -> Floats:
    """Return the class probabilities (n, K) by models' labels, with confusion matrices of the items' other folds."""
    n = len(posterior)
    fold = np.random.default_rng(0).permutation(n) % FOLDS
    out = np.empty_like(posterior)
    for each in range(FOLDS):
        train, test = fold != each, fold == each
        out[test] = _combine(answers, weights, posterior, train, test)
    return out


def _combine(
    answers: Sequence[Positions],
    weights: Sequence[float],
    posterior: Floats,
    train: NDArray[np.bool_],
    test: NDArray[np.bool_],
) -> Floats:
    log = np.log(posterior[train].mean(0).clip(1e-6)) + np.zeros((int(test.sum()), 1))
    for answer, weight in zip(answers, weights, strict=True):
        confusion = confusion_given(np.where(train, answer, -1), posterior)
        label = answer[test]
        labelled = label >= 0
        log[labelled] += weight * np.log(confusion[:, label[labelled]].T)
    p = np.exp(log - log.max(1, keepdims=True))
    out: Floats = p / p.sum(1, keepdims=True)
    return out
