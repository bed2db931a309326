"""Forecast the questions that `crowdshot next` would ask in the next round."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np

from crowdshot.classifier.feature_learners import SEVERAL
from crowdshot.formatting import apart
from crowdshot.labels import aggregation, asking
from crowdshot.labels.annotator_flags import useful_questions
from crowdshot.labels.confidence import THRESHOLD
from crowdshot.report.page.basis import Basis, Floats

ROUND = 100  # most questions in a round: their answers change which questions are best afterwards


class Asked(NamedTuple):
    """The numbers of questions and of items that they are about, and the questions for each annotator by name."""

    questions: int
    items: int
    people: list[tuple[str, int]]


def plan_round(n_open: int, fully_labelled: Floats, confidence: float = THRESHOLD) -> tuple[int, int, int]:
    """Return the numbers of open items, of those that every annotator has labelled, and of questions in a round."""
    exhausted = int((fully_labelled < confidence).sum())
    return n_open, exhausted, min(n_open - exhausted, ROUND)


def ask_next(basis: Basis, budget: int) -> Asked:
    """Return what `crowdshot next` would ask with this budget."""
    if not budget:
        return Asked(0, 0, [])
    ann = basis.annotations
    parts = aggregation.questions(ann, basis.posterior, bool(basis.clf.settings_.get(SEVERAL)))
    posterior = asking.at_once([p for _, p in parts])
    confusion = asking.at_once([asking.expected_confusion(*part) for part in parts])
    can = useful_questions(basis.judged)
    most = np.where(can, asking.fair_share(budget, int(can.sum())), 0)
    questions = asking.choose(posterior, confusion, (ann.item, ann.annotator), budget, most=most)
    asked = Counter(question.annotator for question in questions).most_common()
    people = [(apart(ann.annotators[annotator]), number) for annotator, number in asked]
    return Asked(len(questions), len({question.item for question in questions}), people)


def confidence_if_fully_labelled(basis: Basis) -> Floats:
    """Return the confidence of the items that every annotator has labelled."""
    n_people = len(np.unique(basis.annotations.annotator))
    return np.asarray(basis.confidence[basis.votes.sum(1) >= n_people])
