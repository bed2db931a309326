"""Estimate how many accepted labels are right from a stratified random sample that a person checked.

Strata are intervals of confidence. The sample is allocated in proportion to their sizes and, within a stratum, in
proportion to the consensus classes (systematic sampling of items sorted by class and then by a random number). Random
numbers are hashes of the seed and the item's name, so the order of the items does not matter. Every item has a place in
one random order, of which a sample is the beginning, so a larger sample with the same seed contains the smaller one.

With W_h the share of the accepted items in stratum h, x_h of m_h checked labels right:

    accuracy  P = Σ_h W_h x_h / m_h
    interval  Clopper-Pearson for P n right of n labels, n = min(1 / Σ_h W_h² / m_h, P (1 - P) / Var(P))

With proportional allocation n is the number of checked labels. The number of right labels then is a sum of independent
draws with different probabilities, whose tails are lighter than those of a binomial distribution with the same mean
(Hoeffding 1956), so the interval covers the accuracy with at least the stated probability. It is also valid without
replacement (Hoeffding 1963). Where skipped items make the allocation uneven, n is the effective sample size (Korn and
Graubard 1998), and coverage is approximate. `tests/labels/test_auditing.py` simulates it.

The corrected confidence of a label with confidence c is the posterior mean of 1 / (1 + exp(-(a + b logit c))), where a
and b have weak priors (Platt scaling with uncertainty, integrated on a grid).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, expit, logit, xlogy

from crowdshot.io.cells import Positions
from crowdshot.io.json_text import OMITTED
from crowdshot.labels.consensus import INTERVAL, THRESHOLD, Floats, is_accepted

EDGES = (0.5, 0.7, 0.8, 0.9, 0.95, 0.99)  # strata begin at the threshold and at the higher ones of these
FEWEST = 5  # expected checks in a stratum; smaller strata are merged with the next lower one
CERTAIN = (1 + INTERVAL) / 2  # probability of a lower bound: that of the lower end of the interval
FARTHEST = 1e-4  # confidences are moved this far from 0 and 1 before they are corrected
GRID = np.meshgrid(np.linspace(-7, 4, 111), np.exp(np.linspace(np.log(0.05), np.log(3), 81)), indexing="ij")
PRIOR = -np.square(GRID[0] / 2) / 2 - np.square(np.log(GRID[1]) / 0.5) / 2  # a ~ N(0, 2), log b ~ N(0, 0.5)


class Stratum(NamedTuple):
    """Items with a confidence from ``low`` to below ``high``: their number, how many were drawn, mean confidence."""

    low: float
    high: float
    items: int
    drawn: int
    confidence: float


@dataclass(frozen=True)
class Sample:
    """A random sample of accepted items.

    Attributes
    ----------
    threshold : float
    strata : list of Stratum
        By confidence, the lowest first.
    rows : array (n,)
        Positions of the drawn items, in random order.
    stratum : array (n,)
        The stratum of each.
    """

    threshold: float
    strata: list[Stratum]
    rows: Positions
    stratum: Positions


class Estimate(NamedTuple):
    """The accuracy of the labels above a threshold, with a 90 % interval, and the mean ``confidence`` of these labels.

    ``at_least`` is a lower bound that holds with probability `CERTAIN` for all thresholds of a table together.
    """

    threshold: float
    items: int
    confidence: float
    checked: int
    right: int
    accuracy: float
    low: float
    high: float
    at_least: float


class Checked(NamedTuple):
    """A checked item: its stratum, its consensus label, the true label, the confidence, and whether it is right."""

    item: str
    stratum: int
    label: str
    truth: str
    confidence: float
    is_right: bool


@dataclass(frozen=True)
class Audit:
    """The result of an audit.

    Attributes
    ----------
    promise : float
        The accuracy that labels should have.
    estimates : list of Estimate
        One for each threshold; the first is about all accepted labels.
    checked : list of Checked
    sampled : int
        The number of drawn items.
    others : list of str
        Items in the answers that were not drawn.
    outdated : bool
        Whether the results have changed since the sample was drawn.
    unchecked : list of Stratum
        Strata of which no item was checked; their accuracy is taken from a neighbour.
    known : int
        How many more labels are accepted because the item's true label is known. The audit is not about them.
    """

    promise: float
    estimates: list[Estimate]
    checked: list[Checked] = field(metadata=OMITTED)
    sampled: int = 0
    others: list[str] = field(default_factory=list)
    outdated: bool = False
    unchecked: list[Stratum] = field(default_factory=list)
    known: int = 0

    @property
    def threshold(self) -> float:
        return self.estimates[0].threshold

    @property
    def overall(self) -> Estimate:
        return self.estimates[0]

    @property
    def keeps(self) -> Estimate | None:
        """The lowest threshold that keeps the promise by its lower bound; None if there is none."""
        return next((each for each in self.estimates if each.at_least >= self.promise), None)

    @property
    def mistakes(self) -> list[Checked]:
        """The labels that are wrong, the most confident first."""
        return sorted((each for each in self.checked if not each.is_right), key=lambda each: -each.confidence)

    @property
    def confidences(self) -> Floats:
        """Confidences of the checked labels (n,)."""
        return np.array([each.confidence for each in self.checked], dtype=np.float64)

    @property
    def right(self) -> NDArray[np.bool_]:
        """Whether each checked label is right (n,)."""
        return np.array([each.is_right for each in self.checked], dtype=bool)


class Band(NamedTuple):
    """Corrected confidences with 90 % intervals, three arrays."""

    middle: Floats
    low: Floats
    high: Floats


# ---- drawing ----


def draw(
    items: Sequence[Any] | NDArray[Any],
    labels: Sequence[Any],
    confidence: Floats,
    size: int,
    threshold: float = THRESHOLD,
    seed: int = 0,
    known: NDArray[np.bool_] | None = None,
) -> Sample:
    """Draw a stratified random sample of accepted items; all of them if there are not more than ``size``.

    Parameters
    ----------
    items, labels, confidence : sequences of length N
        Names, consensus labels and confidences.
    size : int
        Number of items to draw.
    threshold : float
        Least confidence of an accepted item.
    seed : int
    known : array (N,), optional
        Items whose true label is known, which are not drawn.
    """
    accepted = is_accepted(confidence, threshold)
    rows = np.flatnonzero(accepted if known is None else accepted & ~known)
    names = [str(label) for label in labels]
    keys = {row: _hash(seed, items[row]) for row in rows.tolist()}
    lows = np.array([threshold, *(edge for edge in EDGES if edge > threshold)])
    finest = (np.searchsorted(lows, confidence, side="right") - 1).clip(0)
    order: list[tuple[float, int]] = []
    for place in range(len(lows)):
        inside = sorted(rows[finest[rows] == place].tolist(), key=lambda row: (names[row], keys[row]))
        start = _hash(seed, f"{place} start")
        order += [
            ((turn + start) / len(inside), inside[at]) for turn, at in enumerate(_spread(len(inside), seed, place))
        ]
    chosen = np.array([row for _, row in sorted(order)[:size]], dtype=np.int64)
    chosen = chosen[np.argsort([_hash(seed, f"{items[row]} order") for row in chosen], kind="stable")]
    strata = _strata(confidence[rows], size, threshold)
    stratum = np.searchsorted([each.low for each in strata], confidence[chosen], side="right").clip(1) - 1
    n_drawn = np.bincount(stratum, minlength=len(strata)).tolist()
    strata = [each._replace(drawn=n) for each, n in zip(strata, n_drawn, strict=True)]
    return Sample(threshold, strata, chosen, stratum)


def _spread(n: int, seed: int, place: int) -> list[int]:
    """Return positions 0 to n - 1 in a random order of which each beginning is spread evenly (bit reversal)."""
    bits = max(n - 1, 0).bit_length()
    flips, shift = int(_hash(seed, f"{place} flips") * 2**bits), int(_hash(seed, f"{place} shift") * n)
    order = sorted(range(n), key=lambda at: int(f"{at ^ flips:0{bits or 1}b}"[::-1], 2))
    return [(at + shift) % n for at in order]


def _hash(seed: int, text: Any) -> float:
    """Return a pseudo-random number in [0, 1)."""
    digest = hashlib.sha256(f"{seed}\0{text}".encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:6], "big") / 2**48


def _strata(confidence: Floats, size: int, threshold: float) -> list[Stratum]:
    """Cut accepted confidences into strata, and allocate the sample in proportion to their sizes."""
    n = len(confidence)
    size = min(size, n)
    if n == 0:
        return []
    lows: list[float] = []
    counts: list[int] = []
    count, high = 0, np.inf
    for low in sorted({threshold, *(edge for edge in EDGES if edge > threshold)}, reverse=True):
        count += int(((confidence >= low) & (confidence < high)).sum())
        high = low
        if count * size >= FEWEST * n or (low == threshold and not lows):
            lows.append(low)
            counts.append(count)
            count = 0
    if count:  # too few at the bottom: merge them with the stratum above
        counts[-1] += count
    lows[-1] = threshold
    lows, counts = lows[::-1], counts[::-1]
    return [
        Stratum(low, high, items, drawn, float(confidence[(confidence >= low) & (confidence < high)].mean()))
        for low, high, items, drawn in zip(lows, [*lows[1:], np.inf], counts, _in_proportion(counts, size), strict=True)
    ]


def _in_proportion(counts: Sequence[int], size: int) -> list[int]:
    """Split ``size`` in proportion to counts, rounding by the largest remainders."""
    exact = np.array(counts) * (size / sum(counts))
    drawn = np.floor(exact + 1e-9).astype(np.int64)
    for place in np.argsort(drawn - exact, kind="stable")[: size - int(drawn.sum())]:
        drawn[place] += 1
    return [int(number) for number in drawn]


# ---- estimating ----


def estimate(sizes: Sequence[int], checked: Sequence[int], right: Sequence[int], level: float = INTERVAL) -> Floats:
    """Return the stratified estimate of the accuracy and the ends of its interval, three numbers.

    Parameters
    ----------
    sizes, checked, right : sequences of length H
        For each stratum its number of items, how many were checked, and how many of these are right. Strata without
        checked items are merged with a neighbour.
    level : float
        The probability of the interval.
    """
    N, m, x = (np.array(each, dtype=np.float64) for each in _collapse(sizes, checked, right))
    if m.sum() == 0:
        return np.array([np.nan, 0.0, 1.0])
    W, tail = N / N.sum(), (1 - level) / 2
    accuracy = float(W @ (x / m))
    rough = (x + 0.5) / (m + 1)  # a stratum without mistakes has a variance above 0
    middle = float(W @ rough)
    variance = float(np.square(W) @ (rough * (1 - rough) / m))
    n = min(1 / float(np.square(W) @ (1 / m)), max(middle * (1 - middle) / variance, 1.0))
    hits, misses = accuracy * n, (1 - accuracy) * n
    low = 0.0 if hits < 1e-9 else float(betaincinv(hits, misses + 1, tail))
    high = 1.0 if misses < 1e-9 else float(betaincinv(hits + 1, misses, 1 - tail))
    known_right, known_wrong = x.sum() / N.sum(), (m - x).sum() / N.sum()  # whatever the others are
    return np.array([accuracy, max(low, known_right), min(high, 1 - known_wrong)])


def _collapse(*columns: Sequence[int]) -> NDArray[np.int64]:
    """Merge each stratum without checked items (second column) with the stratum below, the lowest with the one above.

    Return the columns (3, H).
    """
    merged: list[NDArray[np.int64]] = []
    for stratum in np.array(columns, dtype=np.int64).T:
        if merged and (stratum[1] == 0 or merged[-1][1] == 0):
            merged[-1] = merged[-1] + stratum
        else:
            merged.append(stratum)
    return np.array(merged, dtype=np.int64).reshape(-1, len(columns)).T


def by_threshold(strata: Sequence[Stratum], checked: Sequence[int], right: Sequence[int]) -> list[Estimate]:
    """Return the accuracy of the labels from the lower end of each stratum upwards."""
    tail = (1 - CERTAIN) / max(len(strata), 1)  # Bonferroni, as the reader chooses a threshold after seeing the data
    out = []
    for first, stratum in enumerate(strata):
        counts = [each.items for each in strata[first:]], list(checked[first:]), list(right[first:])
        items, n_checked, n_right = map(sum, counts)
        accuracy, low, high = estimate(*counts).tolist()
        at_least = float(estimate(*counts, level=1 - 2 * tail)[1])
        claimed = sum(each.items * each.confidence for each in strata[first:]) / items
        out.append(Estimate(stratum.low, items, claimed, n_checked, n_right, accuracy, low, high, at_least))
    return out


def evaluate(strata: Sequence[Stratum], checked: Sequence[Checked], promise: float) -> Audit:
    """Return the result of an audit; thresholds above which nothing was checked are left out."""
    places = [each.stratum for each in checked]
    n_checked = np.bincount(places, minlength=len(strata)).tolist()
    n_right = np.bincount(places, [each.is_right for each in checked], len(strata)).astype(np.int64).tolist()
    estimates = [each for each in by_threshold(strata, n_checked, n_right) if each.checked]
    unchecked = [each for each, n in zip(strata, n_checked, strict=True) if n == 0]
    return Audit(promise, estimates, list(checked), unchecked=unchecked)


# ---- correcting confidences ----


def correct(confidence: Floats, checked: Floats, right: NDArray[np.bool_]) -> Band:
    """Return corrected confidences (N,), given the confidences (n,) of checked labels and whether each is right."""
    a, b = (axis.ravel() for axis in GRID)
    p = expit(a[:, None] + b[:, None] * _logit(checked))
    log_weight = PRIOR.ravel() + (xlogy(right, p) + xlogy(~right, 1 - p)).sum(1)
    weight = np.exp(log_weight - log_weight.max())
    weight /= weight.sum()
    lowest, highest = _logit(np.array([0.0, 1.0])).tolist()
    knots = np.linspace(lowest, highest, 61)
    curves = [_summary(expit(a + b * knot), weight) for knot in knots]
    return Band(*(np.interp(_logit(confidence), knots, column) for column in np.array(curves).T))


def _logit(confidence: Floats) -> Floats:
    return np.asarray(logit(np.clip(confidence, FARTHEST, 1 - FARTHEST)))


def _summary(values: Floats, weight: Floats) -> tuple[float, float, float]:
    """Return the mean and the ends of the central `INTERVAL` of weighted values."""
    order = np.argsort(values, kind="stable")
    total = weight[order].cumsum()
    ends = np.searchsorted(total, (1 - CERTAIN, CERTAIN)).clip(max=len(total) - 1)
    low, high = values[order][ends].tolist()
    return float(weight @ values), low, high
