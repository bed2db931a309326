"""Forecast how many more labels are needed until a share of the items is accepted.

The forecast is a simulation. Each item's class is drawn from its posterior. The most uncertain item that is not
accepted gets a label from a random annotator, in proportion to how many labels annotators gave so far. The label is
drawn from their confusion matrix, and Bayes' rule updates the posterior. Annotators share mistakes, the more so the
more classes there are. With K classes, the log-likelihood of a label is therefore multiplied by `EXPECTED` · 2 / K.
`BEST` and `WORST` are limits: when labels of real crowds were hidden and restored a few at a time, the accepted share
was mostly between the two (benchmarks/labels_needed.py). The forecast was checked for one or two more labels per
item, not beyond.

`gain_forecast` uses the same simulation for the mean confidence of all items, the expected accuracy of the consensus.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import numpy as np

from crowdshot.formatting import percent
from crowdshot.io.cells import Positions
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import expected_confusion
from crowdshot.labels.consensus import THRESHOLD, Floats, uncertainty

BEST, EXPECTED, WORST = 1.28, 0.8, 0.32  # weights of a label's evidence with two classes
MOST = 20  # largest number of labels per item that is simulated
ROUND = 0.1  # labels per item in a round
ITEMS = 1_000  # items in the simulation; with more, a sample
DRAWS = 4  # simulations
SMALL = 1e-6  # rounding error of a whole number


class Start(NamedTuple):
    """The start of the simulation."""

    posterior: Floats  # (n, K)
    confusion: Floats  # (R, K, K)
    often: Floats  # (R,) probability that each annotator gives the next label


class Forecast(NamedTuple):
    """Number of further labels until ``share`` of the items is accepted; None if `MOST` per item are not enough."""

    share: float
    labels: int | None
    at_best: int | None
    at_worst: int | None


def forecast(ann: Annotations, posterior: Floats, share: float, accepted_at: float = THRESHOLD) -> Forecast:
    """Forecast the labels that are needed.

    Parameters
    ----------
    ann : Annotations
    posterior : array of shape (N, K)
        Class probabilities of the items, from labels alone or from features too.
    share : float
        Share of the items that should be accepted.
    accepted_at : float
        Probability from which an item is accepted.
    """
    return reached(share, ann.n_items, *courses(begin(ann, posterior), accepted_at))


def reached(share: float, n_items: int, expected: Floats, best: Floats, worst: Floats) -> Forecast:
    """Return the forecast for three simulated curves of accepted shares."""
    needed = (until(course, share) for course in (expected, best, worst))
    return Forecast(share, *(None if n is None else math.ceil(n * n_items - SMALL) for n in needed))


def gain_forecast(ann: Annotations, posterior: Floats, gain: float, accepted_at: float = THRESHOLD) -> Forecast:
    """Forecast the labels until the expected accuracy of the consensus has risen by ``gain``.

    ``share`` of the result is the accuracy that is reached then.
    """
    start = begin(ann, posterior)
    wanted = float(start.posterior.max(1).mean()) + gain
    expected, best, worst = (course(start, counts, accepted_at, "accuracy") for counts in (EXPECTED, BEST, WORST))
    return reached(wanted, ann.n_items, expected, np.maximum(best, expected), np.minimum(worst, expected))


def begin(ann: Annotations, posterior: Floats) -> Start:
    """Return the start of the simulation; subsample many items, keeping the distribution of confidence."""
    rows = np.argsort(posterior.max(1), kind="stable")  # independent of the order of items
    if len(rows) > ITEMS:
        rows = rows[np.linspace(0, len(rows) - 1, ITEMS).round().astype(np.int64)]
    often = np.bincount(ann.annotator, minlength=ann.n_annotators) / ann.n_labels
    return Start(posterior[rows], expected_confusion(ann, posterior), often)


def courses(start: Start, accepted_at: float = THRESHOLD) -> tuple[Floats, Floats, Floats]:
    """Return the expected, best and worst curves; random draws cannot change their order."""
    expected, best, worst = (course(start, counts, accepted_at) for counts in (EXPECTED, BEST, WORST))
    return expected, np.maximum(best, expected), np.minimum(worst, expected)


def course(
    start: Start,
    counts: float = EXPECTED,
    accepted_at: float = THRESHOLD,
    of: Literal["accepted", "accuracy"] = "accepted",
) -> Floats:
    """Return the share of accepted items after 0, `ROUND`, 2 `ROUND`, … further labels per item, up to `MOST`.

    ``counts`` is the weight of a label's evidence with two classes, 1 for independent labels. With ``of`` "accuracy",
    return the mean confidence instead.
    """
    counts *= 2 / max(2, start.posterior.shape[1])
    draws = [_simulate(*start, counts, accepted_at, seed, of == "accuracy") for seed in range(DRAWS)]
    out: Floats = np.mean(draws, axis=0)
    return out


def until(shares: Floats, share: float) -> float | None:
    """Return the labels per item at which a curve reaches this share, interpolated linearly; None if it does not."""
    found = np.flatnonzero(shares >= share)
    if len(found) == 0:
        return None
    after = int(found[0])
    back = 0.0 if after == 0 else (shares[after] - share) / (shares[after] - shares[after - 1])
    return float(after - back) * ROUND


def _simulate(
    posterior: Floats,
    confusion: Floats,
    often: Floats,
    counts: float,
    accepted_at: float,
    seed: int,
    of_accuracy: bool = False,
) -> Floats:
    random = np.random.default_rng(seed)
    posterior, size = posterior.copy(), max(1, round(ROUND * len(posterior)))
    truth = _draw(posterior, random)
    shares = np.empty(round(MOST / ROUND) + 1)
    for place in range(len(shares)):
        accepted = posterior.max(1) >= accepted_at
        shares[place] = posterior.max(1).mean() if of_accuracy else accepted.mean()
        if accepted.all():
            shares[place:] = shares[place]
            break
        open_ = np.flatnonzero(~accepted)
        asked = open_[np.argsort(-uncertainty(posterior[open_]), kind="stable")[:size]]
        annotator = random.choice(len(often), len(asked), p=often)
        label = _draw(confusion[annotator, truth[asked]], random)
        after = posterior[asked] * confusion[annotator, :, label] ** counts
        posterior[asked] = after / after.sum(1, keepdims=True)
    return np.maximum.accumulate(shares)


def _draw(probabilities: Floats, random: np.random.Generator) -> Positions:
    """Draw a class (n,) from each row (n, K)."""
    above = random.random(len(probabilities))[:, None] > probabilities.cumsum(1)
    out: Positions = above.sum(1).clip(max=probabilities.shape[1] - 1)
    return out


def until_accepted(forecast: Forecast) -> str:
    """Return how many more labels are needed until a share of the items is accepted."""
    share, labels, best, worst = forecast
    if labels == 0:
        return f"{percent(share)} of the items or more are already accepted"
    if labels is None:
        least = "" if best is None else f" ({best:,} labels at best)"
        people = "annotators like these"
        return f"more labels from {people} are not expected to be enough to accept {percent(share)} of the items{least}"
    low = "" if best is None else f"{best:,} at best, "
    high = "many more at worst" if worst is None else f"{worst:,} at worst"
    return f"about {labels:,} more labels are needed until {percent(share)} of the items are accepted ({low}{high})"
