"""How many more labels would settle a share of the items.

What is believed of the items is played on: each item's class is drawn from its posterior, the most doubtful item that is
not accepted is asked about, of somebody like those who labelled so far, who answers by their confusion matrix, and
Bayes' rule says what is believed then. People share mistakes, the more so the more classes there are, so with K of
them an answer's evidence counts for `EXPECTED` · 2 / K of what independent answers would have; `BEST` and `WORST` are
how far crowds differ in that: labels of real crowds that were
held back and given back, a few at a time, mostly accepted as many items as with something between the two
(benchmarks/labels_needed.py). The forecast is for a label or two an item: further ahead nobody has looked.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import expected_confusion
from crowdshot.labels.confidence import THRESHOLD, Floats, uncertainty
from crowdshot.labels.indexing import Positions

BEST, EXPECTED, WORST = 1.28, 0.8, 0.32
MOST = 20  # labels an item that are looked ahead
ROUND = 0.1  # labels for an item that are bought at a time
ITEMS = 1_000  # that are played with, of more
DRAWS = 4  # of answers
SMALL = 1e-6  # what a computer makes of a whole number


class Start(NamedTuple):
    """What is played with."""

    posterior: Floats  # (n, K)
    confusion: Floats  # (R, K, K)
    often: Floats  # (R,) how often each annotator answers


class Forecast(NamedTuple):
    """More labels until ``share`` of the items is accepted; None where `MOST` an item would not do."""

    share: float
    labels: int | None
    at_best: int | None
    at_worst: int | None


def forecast(ann: Annotations, posterior: Floats, share: float, accepted_at: float = THRESHOLD) -> Forecast:
    """posterior (N, K): what is believed of the annotations' items, by labels alone or not."""
    return reached(share, ann.n_items, *courses(begin(ann, posterior), accepted_at))


def reached(share: float, n_items: int, expected: Floats, best: Floats, worst: Floats) -> Forecast:
    """When three courses have it."""
    needed = (until(course, share) for course in (expected, best, worst))
    return Forecast(share, *(None if n is None else math.ceil(n * n_items - SMALL) for n in needed))


def begin(ann: Annotations, posterior: Floats) -> Start:
    """Of very many items some, as doubtful as all."""
    rows = np.argsort(posterior.max(1), kind="stable")  # the same whatever the order of items
    if len(rows) > ITEMS:
        rows = rows[np.linspace(0, len(rows) - 1, ITEMS).round().astype(np.int64)]
    often = np.bincount(ann.annotator, minlength=ann.n_annotators) / ann.n_labels
    return Start(posterior[rows], expected_confusion(ann, posterior), often)


def courses(start: Start, accepted_at: float = THRESHOLD) -> tuple[Floats, Floats, Floats]:
    """As expected, at best and at worst; luck in what is drawn does not put one on the wrong side of another."""
    expected, best, worst = (course(start, counts, accepted_at) for counts in (EXPECTED, BEST, WORST))
    return expected, np.maximum(best, expected), np.minimum(worst, expected)


def course(start: Start, counts: float = EXPECTED, accepted_at: float = THRESHOLD) -> Floats:
    """The share of items that is accepted after 0, `ROUND`, 2 `ROUND`, … more labels an item, up to `MOST`.

    ``counts``: what an answer's evidence counts for with two classes, 1 for independent answers.
    """
    counts *= 2 / max(2, start.posterior.shape[1])
    draws = [_played(*start, counts, accepted_at, seed) for seed in range(DRAWS)]
    out: Floats = np.mean(draws, axis=0)
    return out


def until(shares: Floats, share: float) -> float | None:
    """Labels an item after which a `course` has reached this share, between two rounds on a straight line."""
    reached = np.flatnonzero(shares >= share)
    if len(reached) == 0:
        return None
    after = int(reached[0])
    back = 0.0 if after == 0 else (shares[after] - share) / (shares[after] - shares[after - 1])
    return float(after - back) * ROUND


def _played(
    posterior: Floats, confusion: Floats, often: Floats, counts: float, accepted_at: float, seed: int
) -> Floats:
    random = np.random.default_rng(seed)
    posterior, at_a_time = posterior.copy(), max(1, round(ROUND * len(posterior)))
    truth = _drawn(posterior, random)
    shares = np.empty(round(MOST / ROUND) + 1)
    for place in range(len(shares)):
        accepted = posterior.max(1) >= accepted_at
        shares[place] = accepted.mean()
        if accepted.all():
            shares[place:] = 1
            break
        open_ = np.flatnonzero(~accepted)
        asked = open_[np.argsort(-uncertainty(posterior[open_]), kind="stable")[:at_a_time]]
        who = random.choice(len(often), len(asked), p=often)
        said = _drawn(confusion[who, truth[asked]], random)
        after = posterior[asked] * confusion[who, :, said] ** counts
        posterior[asked] = after / after.sum(1, keepdims=True)
    return np.maximum.accumulate(shares)


def _drawn(probabilities: Floats, random: np.random.Generator) -> Positions:
    """(n, K) -> (n,)"""
    above = random.random(len(probabilities))[:, None] > probabilities.cumsum(1)
    out: Positions = above.sum(1).clip(max=probabilities.shape[1] - 1)
    return out
