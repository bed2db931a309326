"""Simulate crowds that share mistakes, as real ones do, for items with known classes."""

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Positions = NDArray[np.int64]
ANNOTATORS = 12
HARD, PULL = 0.2, 0.7  # share of hard items; probability that an annotator gives the common wrong label
LOOK_ALIKE = 0.3  # probability of the similar class for an item of a class that has one
COPIES, COPIED = 1 / 3, 0.8  # share of annotators who copy from one other, and the share of copied labels


class Skill(NamedTuple):
    """Annotators have an accuracy between ``low`` and ``high``, except the share ``guess``, who guess."""

    guess: float
    low: float
    high: float


SKILLS = {"noisy": Skill(0.2, 0.55, 0.95), "decent": Skill(0, 0.75, 0.95)}
KINDS = ("independent", "hard items", "confusions", "copied")


def draw_answers(
    truth: Positions, K: int, kind: str, skill: Skill, per_item: int, random: np.random.Generator
) -> pd.DataFrame:
    """Return a table item, annotator, label, with ``per_item`` labels of each item."""
    right = random.uniform(skill.low, skill.high, ANNOTATORS)
    right[: round(skill.guess * ANNOTATORS)] = 1 / K
    said = answer(truth, right, K, random)
    if kind == "hard items":
        taken_for = other(truth, K, random)
        pulled = (random.random(len(truth)) < HARD)[:, None] & (random.random(said.shape) < PULL)
        said = np.where(pulled, taken_for[:, None], said)
    elif kind == "confusions":
        double = np.roll(np.arange(K), 1)  # the similar class, for the first half of the classes
        pulled = (truth < (K + 1) // 2)[:, None] & (random.random(said.shape) < LOOK_ALIKE)
        said = np.where(pulled, double[truth][:, None], said)
    elif kind == "copied":
        copies = random.permutation(ANNOTATORS)[: round(COPIES * ANNOTATORS) + 1]
        for annotator in copies[1:]:
            said[:, annotator] = np.where(random.random(len(truth)) < COPIED, said[:, copies[0]], said[:, annotator])
    asked = random.random(said.shape).argsort(1)[:, :per_item]
    item = np.arange(len(truth)).repeat(per_item)
    return pd.DataFrame({"item": item, "annotator": asked.ravel(), "label": said[item, asked.ravel()]})


def answer(truth: Positions, right: NDArray[np.float64], K: int, random: np.random.Generator) -> Positions:
    """Return (N, R) labels: the true class with the annotator's probability ``right`` (R,), else another class."""
    wrong = other(truth.repeat(len(right)), K, random).reshape(len(truth), len(right))
    return np.where(random.random(wrong.shape) < right, truth[:, None], wrong)


def other(truth: Positions, K: int, random: np.random.Generator) -> Positions:
    return (truth + random.integers(1, K, len(truth))) % K
