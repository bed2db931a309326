"""How good a network of the inference is: on items whose truth is known, and on projects that it learned without."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.positions import Positions
from crowdshot.model import inference
from crowdshot.model.problem import belief_of, problem_of
from crowdshot.training import projects as finished
from crowdshot.training.projects import Project
from crowdshot.wording import plural

SETTLED = 0.9  # as `crowdshot.labels.belief` has it
FLOOR = 1e-3  # of a probability, where its logarithm is scored

Floats = NDArray[np.float32] | NDArray[np.float64]


class Scores(NamedTuple):
    """Over items whose truth is known."""

    items: int
    accuracy: float  # of equally probable classes, each counts in part
    log_loss: float  # no probability counts as less than 0.001
    over: float  # mean confidence less accuracy: above 0 is too sure
    settled: float  # share of items believed with 0.9 or more
    right: float | None  # share of these that are right; None where there are none


def scores(network: Mapping[str, Floats], annotations: Annotations, truth: Positions) -> Scores:
    """Of what is believed in the end, by NumPy in double precision; ``truth`` (N,): -1 where it is not known."""
    ann, known = annotations, truth >= 0
    if not known.any():
        raise CrowdshotError("truth has no known class, expected one item at least whose class is known.")
    problem = problem_of(ann.item, ann.annotator, ann.label, ann.n_items, ann.n_annotators, ann.n_classes)
    belief = belief_of(problem, inference.infer(problem, network)[-1])
    of = problem.pair_item
    confidence = np.zeros(ann.n_items)
    np.maximum.at(confidence, of, belief)
    is_top = belief >= confidence[of] - 1e-9
    is_true = problem.pair_class == truth[of]
    right, p = np.zeros(ann.n_items), np.zeros(ann.n_items)
    right[of[is_true & is_top]] = 1.0
    right /= np.bincount(of[is_top], minlength=ann.n_items).clip(1)
    p[of[is_true]] = belief[is_true]
    right, p, confidence = right[known], p[known], confidence[known]
    settled = confidence >= SETTLED
    return Scores(
        int(known.sum()),
        float(right.mean()),
        float(-np.log(p.clip(FLOOR)).mean()),
        float(confidence.mean() - right.mean()),
        float(settled.mean()),
        float(right[settled].mean()) if settled.any() else None,
    )


def score_each(network: Mapping[str, Floats], projects: Sequence[Project]) -> dict[str, Scores]:
    return {project.name: scores(network, project.annotations, project.truth) for project in projects}


def mean_log_loss(scored: Mapping[str, Scores]) -> float:
    return float(np.mean([each.log_loss for each in scored.values()]))


@dataclass(frozen=True)
class Fold:
    """A network that learned without some projects."""

    left_out: list[Project]
    network: dict[str, NDArray[np.float32]]


def train_folds(
    projects: Sequence[Project],
    relatives: Sequence[Sequence[str]],
    learn: Callable[[int, list[Project]], dict[str, NDArray[np.float32]]],
) -> Iterator[Fold]:
    """For each group of relatives what ``learn`` makes of the number of the fold and all other projects."""
    groups = finished.leave_out(projects, relatives)
    if len(groups) < 2:
        raise CrowdshotError(
            f"projects has {plural(len(groups), 'group')} of relatives, expected two or more, so that one can be left "
            "out."
        )
    for number, (left_out, others) in enumerate(groups):
        yield Fold(left_out, learn(number, others))
