"""Test whether a model may replace a person: the alternative annotator test of Calderon, Reichart and Dror (2025).

For each person h and each item that h, the model and at least one other person labelled, the model's label and h's are
compared with the labels of the others. W_model is 1 if the model agrees with at least as many of them as h, and W_h the
reverse. With ordered classes, the mean squared difference of ranks takes the place of agreement. The test of h is

    H0: mean of W_h - W_model >= ε,

a one-sided t-test over items. ε is the advantage that a person may have over a model, which is cheaper: 0.2 if people
are experts, 0.15 if they are skilled, 0.1 if they are crowd workers. The false discovery rate over people is limited to
`FALSE_DISCOVERY` by the procedure of Benjamini and Yekutieli. The winning rate ω is the share of people whose H0 is
rejected. The model may replace a person if ω >= 0.5. ρ, the mean of W_model over items and then over people, is the
probability that the model is as good as a random person; it serves to compare models.

People with fewer than `FEWEST_ITEMS` such items are not tested, as the t-test needs about as many. With fewer than
`FEWEST_PEOPLE` tested people there is no verdict, because "the others" are then hardly a reference.

Reference: The Alternative Annotator Test for LLM-as-a-Judge. ACL 2025, https://aclanthology.org/2025.acl-long.782/
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

from crowdshot.io.cells import Positions
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import Floats, Share

EPSILON = {"expert": 0.2, "skilled": 0.15, "crowd": 0.1}  # as the paper recommends
FALSE_DISCOVERY = 0.05
WINS = 0.5  # winning rate from which a model may replace a person
FEWEST_ITEMS, FEWEST_PEOPLE = 30, 3


class PersonCompared(NamedTuple):
    """A person against a model: items, mean of W_model and of W_person, p-value, and whether the model wins."""

    person: str
    items: int
    model_as_good: float
    person_as_good: float
    p: float
    model_wins: bool


@dataclass(frozen=True)
class ReplacementTest:
    """The result for a model.

    Attributes
    ----------
    epsilon : float
    winning_rate : float or None
        ω; None if nobody has enough items.
    advantage : float or None
        ρ.
    may_replace : bool or None
        None if fewer than `FEWEST_PEOPLE` people have enough items.
    people : list of PersonCompared
        The tested people.
    too_few : int
        People who share items with the model, but too few.
    """

    epsilon: float
    winning_rate: float | None
    advantage: float | None
    may_replace: bool | None
    people: list[PersonCompared]
    too_few: int


def replacement_test(people: Annotations, answers: Positions, epsilon: float, ordered: bool = False) -> ReplacementTest:
    """Test whether a model may replace one of the people.

    Parameters
    ----------
    people : Annotations
        The labels of people.
    answers : array of shape (N,)
        The model's label of each item, -1 for none.
    epsilon : float
        The advantage that a person may have.
    ordered : bool
        Whether classes are sorted from the lowest to the highest.
    """
    counts = people.vote_counts()
    item, person, label = people.item, people.annotator, people.label
    use = (answers[item] >= 0) & (counts.sum(1)[item] >= 2)
    item, person, label = item[use], person[use], label[use]
    others = counts[item]
    others[np.arange(len(item)), label] -= 1
    score = _closeness if ordered else _agreeing
    difference = score(others, label) - score(others, answers[item])
    sizes = np.bincount(person, minlength=people.n_annotators)
    tested = np.flatnonzero(sizes >= FEWEST_ITEMS)
    found = [difference[person == each] for each in tested]
    p = np.array([_one_sided(np.sign(d), epsilon) for d in found])
    wins = benjamini_yekutieli(p, FALSE_DISCOVERY)
    compared = [
        PersonCompared(
            str(people.annotators[each]), len(d), float((d <= 0).mean()), float((d >= 0).mean()), float(p_h), bool(won)
        )
        for each, d, p_h, won in zip(tested, found, p, wins, strict=True)
    ]
    rate = float(wins.mean()) if len(tested) else None
    advantage = float(np.mean([each.model_as_good for each in compared])) if compared else None
    verdict = None if rate is None or len(tested) < FEWEST_PEOPLE else rate >= WINS
    return ReplacementTest(
        epsilon, rate, advantage, verdict, compared, int(((sizes > 0) & (sizes < FEWEST_ITEMS)).sum())
    )


def _agreeing(others: Floats, label: Positions) -> Floats:
    """Return how many of the others (L, K) chose each label (L,)."""
    out: Floats = others[np.arange(len(label)), label]
    return out


def _closeness(others: Floats, label: Positions) -> Floats:
    """Return minus the sum of squared differences in rank to the others."""
    distance = np.arange(others.shape[1])[None, :] - label[:, None]
    out: Floats = -(others * distance**2).sum(1)
    return out


def _one_sided(difference: Floats, epsilon: float) -> float:
    """Return the p-value of the t-test of a mean of at least epsilon against a smaller one."""
    n, mean, sd = len(difference), float(difference.mean()), float(difference.std(ddof=1))
    if sd == 0:
        return 0.0 if mean < epsilon else 1.0
    return float(stdtr(n - 1, (mean - epsilon) / (sd / np.sqrt(n))))


def benjamini_yekutieli(p: Floats, rate: float) -> NDArray[np.bool_]:
    """Return which hypotheses (n,) are rejected at this false discovery rate, whatever their dependence."""
    n = len(p)
    order = np.argsort(p, kind="stable")
    limits = np.arange(1, n + 1) / n * rate / (1 / np.arange(1, n + 1)).sum() if n else p
    below = np.flatnonzero(p[order] <= limits)
    rejected = np.zeros(n, dtype=bool)
    if len(below):
        rejected[order[: below[-1] + 1]] = True
    return rejected


def agreement_with_people(people: Annotations, answers: Positions) -> Share | None:
    """Return how many of an item's people gave the model's label, the mean over items; None without shared items.

    The interval treats an item as one answer, which makes it rather too wide.
    """
    counts = people.vote_counts()
    items = np.flatnonzero((answers >= 0) & (counts.sum(1) > 0))
    return Share.of_all(counts[items, answers[items]] / counts[items].sum(1))


def agreement_among_people(people: Annotations) -> Share | None:
    """Return how many of an item's other people gave a person's label, the mean over items with two labels."""
    counts = people.vote_counts()
    size = counts.sum(1)
    some = size >= 2
    return Share.of_all((counts * (counts - 1)).sum(1)[some] / (size * (size - 1))[some])
