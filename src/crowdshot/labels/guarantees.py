"""Draw conclusions that hold whatever the annotators did, from a random sample of items whose class was checked.

The true classes of a random sample of n of the N items are known, and the consensus was computed without them. Then

- `prediction_sets` gives each item a set of classes that contains the true one with a chosen probability (split
  conformal prediction; Vovk et al. 2005). The checked items and the others are exchangeable. So if p_1 <= ... <= p_n
  are the posteriors of the true classes of checked items, the set of another item has the classes of posterior

      p >= p_j,   j = n + 1 - ceil((n + 1) coverage)

  and the most probable class. No assumption on the posteriors is made. If they are poor, the sets are large.

- `accuracy` and `class_shares` estimate means over all N items, with an interval (prediction-powered inference,
  PPI++; Angelopoulos, Duchi and Zrnic 2023). With y_n the value that was checked, such as 1 if the consensus is right,
  and f_n what the posterior predicts for it,

      estimate = mean of y over checked items + lambda (mean of f over all items - mean of f over checked items)

  The factor lambda in [0, 1] minimises the estimated variance, shrunk to 1 by `CALIBRATED` pseudo-items. Poor
  posteriors get a small lambda; they make the interval wider but not wrong. The estimate is about these N items, so
  its variance has the finite population correction 1 - n/N.

- `calibrated` changes the confidence of all items such that it fits the checked ones (temperature scaling; Guo et al.
  2017): p becomes p ** (1 / T), normalised, with the T of highest posterior. This is an estimate without a guarantee.

A stratified sample draws a number of items in each stratum, such as accepted and other items. Then sets are calibrated
in each stratum, and means are weighted by the strata's sizes.

The interval of a share is that of a binomial share with the same variance (an effective number of items), because a
normal approximation fails for shares near 1. `MOST_GAIN` limits the effective number.

Examples
--------
>>> from crowdshot import Annotations, aggregate, guarantees
>>> labels = [["a", "a", "a"], ["b", "b", "b"], ["a", "b", "a"], ["b", "b", "a"]] * 20
>>> consensus = aggregate.learned(Annotations.from_matrix(labels))
>>> checked = {item: "ab"[item % 2] for item in range(30)}  # items drawn at random; here all of them are right
>>> round(guarantees.accuracy(consensus, checked).share, 2)
1.0
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import betaincinv, logsumexp, ndtri, softmax, stdtrit

from crowdshot.errors import CrowdshotError, CrowdshotWarning
from crowdshot.formatting import counted, first, listing, show
from crowdshot.io.cells import Ids, Positions, as_index, as_whole, fold, positions
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import THRESHOLD, Consensus
from crowdshot.labels.gold_labels import Gold, as_mapping, find_items, warn_new_classes
from crowdshot.model.parts import PosteriorMatrix
from crowdshot.model.posteriors import dense, likeliest

__all__ = ["PoweredShare", "accuracy", "calibrated", "class_shares", "prediction_sets", "temperature"]

Floats = NDArray[np.float64]
Sets = NDArray[np.bool_]

CALIBRATED = 10.0  # pseudo-items by which lambda is shrunk to 1, its value for calibrated posteriors
MOST_GAIN = 2.0  # most effective items per checked item; the variance estimated from few mistakes can be far too small
RARE = 1e-4  # chance of a random sample below which a warning says that it may be none
RARE_IF_ACCEPTED = 0.02  # the same, if all checked items are accepted ones, as in an audit, which is a common mistake
ROUNDING = 1e-9  # of a rank
USUAL_TEMPERATURE = 0.5  # standard deviation of log T, around 0, before any item is checked
TEMPERATURES = (0.1, 20.0)  # limits of T
TINY = 1e-12  # least probability in temperature scaling


@dataclass(frozen=True)
class PoweredShare:
    """An estimated share of all items, with an interval.

    Attributes
    ----------
    share, low, high : float
    checked : int
        Number of items that were checked.
    by_sample : float
        The estimate from the checked items alone.
    by_posterior : float
        The estimate from the posteriors alone, such as the mean confidence.
    weight : float
        lambda, the weight of the posteriors.

    Examples
    --------
    >>> from crowdshot.labels.guarantees import PoweredShare
    >>> PoweredShare(0.9, low=0.8, high=0.95, checked=40, by_sample=0.88, by_posterior=0.93, weight=1.0).low
    0.8
    """

    share: float
    low: float
    high: float
    checked: int
    by_sample: float
    by_posterior: float
    weight: float


# ---- with a consensus ------------------------------------------------------------------------------------------------


def prediction_sets(fitted: Any, gold: Gold, coverage: float = 0.9, *, strata: Any = None) -> pd.DataFrame:
    """Return a set of classes for each item that contains the true class with at least this probability.

    The probability is over the choice of the checked items. It holds on average over all items, not for each class or
    annotator, and in each stratum if there are strata.

    Parameters
    ----------
    fitted : Consensus, CrowdAggregator or CrowdClassifier
        The consensus, computed without the gold labels.
    gold : mapping, Series, table or (N,) array
        True classes of a random sample of the items.
    coverage : float
        Between 0 and 1. A stratum needs coverage / (1 - coverage) checked items: 9 for 0.9 and 19 for 0.95.
    strata : (N,) array, optional
        The stratum of each item, if a number of items was drawn in each.

    Returns
    -------
    DataFrame
        True and False, with a row for each item and a column for each class. The set of a checked item is its true
        class.

    Examples
    --------
    >>> from crowdshot import Annotations, aggregate
    >>> from crowdshot.labels.guarantees import prediction_sets
    >>> labels = [["a", "a", "a"], ["b", "b", "b"], ["a", "b", "a"], ["b", "b", "a"]] * 20
    >>> gold = {item: "ab"[item % 2] for item in range(30)}
    >>> sets = prediction_sets(aggregate.learned(Annotations.from_matrix(labels)), gold, coverage=0.9)
    >>> sets.iloc[-2:].values.tolist()
    [[True, False], [False, True]]
    """
    sample = _Sample.of(fitted, gold, strata)
    p = dense(sample.posterior)
    sets = np.zeros(p.shape, dtype=bool)
    for number, name in enumerate(sample.names):
        inside = sample.stratum == number
        some = inside[sample.rows]
        checked = p[sample.rows[some]], sample.truth[some]
        where = "" if strata is None else f" in stratum {show(name)}"
        sets[inside] = conformal_sets(p[inside], *checked, coverage, where)
    sets[sample.rows] = sample.truth[:, None] == np.arange(p.shape[1])
    ann = sample.annotations
    return pd.DataFrame(sets, index=as_index(ann.items), columns=as_index(ann.classes))


def accuracy(fitted: Any, gold: Gold, *, strata: Any = None, level: float = 0.9) -> PoweredShare:
    """Estimate the share of all items whose consensus label is right.

    Parameters
    ----------
    fitted : Consensus, CrowdAggregator or CrowdClassifier
        The consensus, computed without the gold labels.
    gold : mapping, Series, table or (N,) array
        True classes of a random sample of the items.
    strata : (N,) array, optional
        The stratum of each item, if a number of items was drawn in each.
    level : float
        Probability that the interval contains the share.

    Examples
    --------
    >>> from crowdshot import Annotations, aggregate
    >>> from crowdshot.labels import guarantees
    >>> labels = [["a", "a", "a"], ["b", "b", "b"], ["a", "b", "a"], ["b", "b", "a"]] * 20
    >>> consensus = aggregate.learned(Annotations.from_matrix(labels))
    >>> found = guarantees.accuracy(consensus, {item: "ab"[item % 2] for item in range(30)})
    >>> found.low < found.share <= found.high
    True
    """
    sample = _Sample.of(fitted, gold, strata)
    consensus, confidence = likeliest(sample.posterior)
    right = (consensus[sample.rows] == sample.truth).astype(np.float64)
    return powered_shares(confidence[:, None], right[:, None], sample.rows, sample.stratum, level)[0]


def class_shares(fitted: Any, gold: Gold, *, strata: Any = None, level: float = 0.9) -> pd.DataFrame:
    """Estimate the share of each true class among all items.

    Parameters
    ----------
    fitted, gold, strata, level
        As in `accuracy`.

    Returns
    -------
    DataFrame
        class, share, low, high, `by_sample` and `by_posterior` (`PoweredShare`). A class that only gold labels name is
        added.

    Examples
    --------
    >>> from crowdshot import Annotations, aggregate
    >>> from crowdshot.labels import guarantees
    >>> labels = [["a", "a", "a"], ["b", "b", "b"], ["a", "b", "a"], ["b", "b", "a"]] * 20
    >>> consensus = aggregate.learned(Annotations.from_matrix(labels))
    >>> found = guarantees.class_shares(consensus, {item: "ab"[item % 2] for item in range(30)})
    >>> found[["class", "share"]].round(2).values.tolist()
    [['a', 0.5], ['b', 0.5]]
    """
    sample = _Sample.of(fitted, gold, strata)
    others = list(dict.fromkeys(label for label, place in zip(sample.labels, sample.truth, strict=True) if place < 0))
    names = [*sample.annotations.classes.tolist(), *others]
    p = dense(sample.posterior)
    p = np.hstack([p, np.zeros((len(p), len(others)))])
    truth = positions(np.array(names, dtype=object), sample.labels)
    found = powered_shares(p, np.eye(len(names))[truth], sample.rows, sample.stratum, level)
    columns = ("share", "low", "high", "by_sample", "by_posterior")
    values = {column: [getattr(one, column) for one in found] for column in columns}
    return pd.DataFrame({"class": as_index(names), **values})


def calibrated(fitted: Any, gold: Gold, *, strata: Any = None) -> pd.DataFrame:
    """Return the class probabilities of all items, calibrated by the checked items.

    Parameters
    ----------
    fitted, gold, strata
        As in `accuracy`. In a stratified sample, a checked item has the weight of its share of the stratum.

    Returns
    -------
    DataFrame
        A row for each item, a column for each class. The most probable class of an item does not change, except that
        checked items have their true class.

    Examples
    --------
    >>> from crowdshot import Annotations, aggregate
    >>> from crowdshot.labels import guarantees
    >>> labels = [["a", "a", "a"], ["b", "b", "b"], ["a", "b", "a"], ["b", "b", "a"]] * 20
    >>> consensus = aggregate.learned(Annotations.from_matrix(labels))
    >>> found = guarantees.calibrated(consensus, {item: "ab"[item % 2] for item in range(30)})
    >>> bool(found.iloc[-1]["b"] > consensus.probabilities[-1, 1])
    True
    """
    sample = _Sample.of(fitted, gold, strata)
    p = dense(sample.posterior)
    size, drawn = (
        np.bincount(part, minlength=len(sample.names)) for part in (sample.stratum, sample.stratum[sample.rows])
    )
    if not drawn.all():
        name = sample.names[first(drawn == 0)]
        raise CrowdshotError(
            f"has no item of stratum {show(name)}", argument="gold", found=0, expected="items of each stratum"
        )
    weight = (size / drawn)[sample.stratum[sample.rows]] * len(sample.rows) / len(p)
    out = tempered(p, temperature(p[sample.rows], sample.truth, weight))
    named = sample.truth >= 0
    out[sample.rows[named]] = np.eye(p.shape[1])[sample.truth[named]]
    ann = sample.annotations
    return pd.DataFrame(out, index=as_index(ann.items), columns=as_index(ann.classes))


class _Sample(NamedTuple):
    """The checked items among all items."""

    annotations: Annotations
    posterior: PosteriorMatrix
    rows: Positions  # (n,) positions of the checked items
    labels: list[Any]  # (n,) their true classes
    truth: Positions  # (n,) positions of these among the classes, -1 for others
    stratum: Positions  # (N,) number of the stratum
    names: list[Any]  # of the strata

    @classmethod
    def of(cls, fitted: Any, gold: Gold, strata: Any) -> _Sample:
        posterior, ann = _posterior_of(fitted)
        known = as_mapping(gold, ann)
        rows = find_items(list(known), ann.items)
        if (rows < 0).any():
            unknown = list(known)[first(rows < 0)]
            raise CrowdshotError(
                f"names item {show(unknown)}", argument="gold", found=unknown, expected="items of the consensus"
            )
        if not len(rows):
            raise CrowdshotError(
                "has no item", argument="gold", found=0, expected="the true classes of a random sample of the items"
            )
        labels = _spelled(known.values(), ann.classes, "gold")
        stratum, names = _strata(strata, ann.n_items)
        for number in range(len(names)):
            _warn_selected(likeliest(posterior)[1], stratum == number, rows[stratum[rows] == number])
        return cls(ann, posterior, rows, labels, positions(ann.classes, labels), stratum, names)


def _warn_selected(confidence: Floats, inside: NDArray[np.bool_], rows: Positions) -> None:
    """Warn if the checked items ``rows`` leave out all items of low or of high confidence, such as those of an audit.

    Of N items in random order, k have at least the lowest checked confidence. All n checked items are among these with
    the probability C(k, n) / C(N, n).
    """
    n, N = len(rows), int(inside.sum())
    if n == 0:
        return
    lowest, highest = float(confidence[rows].min()), float(confidence[rows].max())
    for k, which, rare in (
        (int((confidence[inside] >= lowest).sum()), f"below {lowest:.3g}", RARE),
        (int((confidence[inside] <= highest).sum()), f"above {highest:.3g}", RARE),
        (int((confidence[inside] >= min(lowest, THRESHOLD)).sum()), f"below {THRESHOLD:g}", RARE_IF_ACCEPTED),
    ):
        chance = math.exp(_log_choose(k, n) - _log_choose(N, n))
        if chance < rare and (rare == RARE or lowest >= THRESHOLD):
            warnings.warn(
                CrowdshotWarning(
                    f"has no item of a confidence {which}, where {counted(N - k, 'items')} of {N:,} are: with a random"
                    f" sample the chance of this is {chance:.1g}, so the result may be wrong",
                    argument="gold",
                    found=n,
                    expected="a random sample of all items",
                    hint="`crowdshot audit` draws accepted items only. If strata were drawn, give each item's stratum.",
                ),
                stacklevel=4,
            )
            return


def _log_choose(N: int, n: int) -> float:
    return math.lgamma(N + 1) - math.lgamma(n + 1) - math.lgamma(N - n + 1)


def _posterior_of(fitted: Any) -> tuple[PosteriorMatrix, Annotations]:
    if isinstance(fitted, Consensus):
        posterior, ann = fitted.probabilities, fitted.annotations
    else:
        posterior, ann = getattr(fitted, "label_proba_", None), getattr(fitted, "annotations_", None)
    if posterior is None or ann is None:
        raise CrowdshotError(
            f"is {type(fitted).__name__}",
            argument="fitted",
            found=type(fitted).__name__,
            expected="a consensus with its annotations, or a fitted CrowdAggregator or CrowdClassifier",
        )
    gold = getattr(fitted, "gold_", None)
    if gold is not None and len(gold):
        raise CrowdshotError(
            f"was fitted with the true classes of {counted(len(gold), 'items')}",
            argument="fitted",
            found=len(gold),
            expected="a consensus that was computed without them",
            hint="Fit without gold labels first, and give them here.",
        )
    return posterior, ann


def _strata(strata: Any, n_items: int) -> tuple[Positions, list[Any]]:
    if strata is None:
        return np.zeros(n_items, dtype=np.int64), [None]
    if np.shape(strata) != (n_items,):
        raise CrowdshotError(
            f"has shape {np.shape(strata)}", argument="strata", found=np.shape(strata), expected=f"({n_items},)"
        )
    stratum, names = pd.factorize(np.asarray(strata), sort=True, use_na_sentinel=False)
    return stratum.astype(np.int64), list(names)


# ---- conformal prediction --------------------------------------------------------------------------------------------


def conformal_sets(p: Floats, checked: Floats, truth: Positions, coverage: float = 0.9, where: str = "") -> Sets:
    """Return conformal prediction sets, (N, K), of items with probabilities p (N, K).

    Parameters
    ----------
    p : (N, K) array
    checked : (n, K) array
        Probabilities of the checked items, which are exchangeable with the others.
    truth : (n,) int array
        Their true classes, -1 for classes that are none of the K.
    coverage : float
    where : str
        Completes error messages.
    """
    _check_probability(coverage, "coverage")
    n = len(truth)
    rank = math.ceil((n + 1) * coverage - ROUNDING)
    if rank > n:
        least = math.ceil(coverage / (1 - coverage) - ROUNDING)
        raise CrowdshotError(
            f"has {counted(n, 'items')}{where}, too few for coverage {coverage:g}",
            argument="gold",
            found=n,
            expected=f"{least} or more",
        )
    of_truth = np.where(truth >= 0, checked[np.arange(n), truth], -np.inf)
    sets: Sets = p >= np.sort(of_truth)[n - rank]
    sets[np.arange(len(p)), p.argmax(1)] = True
    return sets


def true_classes(labels: Any, classes: Ids, n: int) -> Positions:
    """Return the positions of n true labels among the classes, -1 for other classes."""
    found = np.asarray(labels, dtype=object)
    if found.shape != (n,):
        raise CrowdshotError(
            f"has shape {found.shape}",
            argument="y_gold",
            found=found.shape,
            expected=f"one true class for each item, ({n},)",
        )
    missing = np.asarray(pd.isna(found))
    if missing.any():
        raise CrowdshotError(
            f"has no class for item {first(missing)}", argument="y_gold", found=None, expected="the class of each item"
        )
    return positions(classes, _spelled(found, classes, "y_gold"))


def _spelled(labels: Iterable[Any], classes: Ids, argument: str) -> list[Any]:
    """Return labels as the classes are written: 1, 1.0 and "1" are one class.

    A label that is no class counts as a mistake. So refuse other spellings of a class, and warn about others.
    """
    spelled = {str(name): name for name in classes}
    out = [spelled.get(str(label), spelled.get(as_whole(str(label)), label)) for label in labels]
    others = [label for label in dict.fromkeys(out) if str(label) not in spelled]
    folded = {fold(name): name for name in spelled}
    for label in others:
        if fold(str(label)) in folded:
            raise CrowdshotError(
                f"has {show(label)}",
                argument=argument,
                found=label,
                expected=f"the spelling of the class, {folded[fold(str(label))]!r}",
            )
    if others and all(str(label) not in spelled for label in out):
        raise CrowdshotError(
            f"has none of the classes: {show(others[0])}",
            argument=argument,
            found=others[0],
            expected=f"classes such as {listing(classes)}",
        )
    warn_new_classes(map(str, others), classes, argument)
    return out


def _check_probability(value: float, argument: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not 0 < value < 1:
        raise CrowdshotError(f"is {value!r}", argument=argument, found=value, expected="a number between 0 and 1")


# ---- temperature scaling ---------------------------------------------------------------------------------------------


def temperature(p: Floats, truth: Positions, weight: Floats | None = None) -> float:
    """Return the temperature of probabilities p (n, K) with the highest posterior, given true classes (n,).

    The prior of log T is normal with mean 0. A true class that is none of the K (-1) counts as the least probable one.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdshot import guarantees
    >>> p, truth = np.tile([0.99, 0.01], (40, 1)), np.arange(40) % 4 == 0  # 99 % confident, 75 % right
    >>> bool(guarantees.temperature(p, truth.astype(int)) > 2)
    True
    """
    from scipy.optimize import (
        minimize_scalar,
    )  # imported here: it takes longer than all else, and nothing else needs it

    score = np.log(p.clip(TINY))
    of_truth = np.where(truth >= 0, score[np.arange(len(truth)), truth], score.min(1))
    weight = np.ones(len(truth)) if weight is None else weight

    def loss(log_t: float) -> float:
        beta = math.exp(-log_t)
        log_likelihood = weight @ (beta * of_truth - logsumexp(beta * score, axis=1))
        return float((log_t / USUAL_TEMPERATURE) ** 2 / 2 - log_likelihood)

    low, high = map(math.log, TEMPERATURES)
    return math.exp(float(minimize_scalar(loss, bounds=(low, high), method="bounded", options={"xatol": 1e-6}).x))


def tempered(p: Floats, temperature: float) -> Floats:
    """Return p ** (1 / temperature), normalised."""
    out: Floats = softmax(np.log(p.clip(TINY)) / temperature, axis=1)
    return out


# ---- prediction-powered inference ------------------------------------------------------------------------------------


def powered_shares(
    predicted: Floats, observed: Floats, rows: Positions, stratum: Positions | None = None, level: float = 0.9
) -> list[PoweredShare]:
    """Estimate the means of M variables in [0, 1] over N items, from n checked ones. The variables share one lambda.

    Parameters
    ----------
    predicted : (N, M) array
        f.
    observed : (n, M) array
        y of the checked items.
    rows : (n,) int array
        Positions of the checked items.
    stratum : (N,) int array, optional
        Number of each item's stratum, from 0 without gaps.
    level : float
        Probability of the intervals.
    """
    _check_probability(level, "level")
    stratum = np.zeros(len(predicted), dtype=np.int64) if stratum is None else stratum
    size, drawn = np.bincount(stratum), np.bincount(stratum[rows], minlength=stratum.max() + 1)
    too_few = (drawn < 2) & (drawn < size)
    if too_few.any():
        found = int(drawn[first(too_few)])
        raise CrowdshotError(
            f"has {counted(found, 'items')}" + " of a stratum" * (len(size) > 1),
            argument="gold",
            found=found,
            expected="2 or more" + " of each stratum" * (len(size) > 1),
        )
    member = np.eye(len(size))[stratum[rows]]  # (n, H)
    of_sample = (member / drawn).T
    share = size / len(predicted)
    # the variance of an estimate is the sum over strata of these factors times the variance of y - lambda f
    factor = share**2 * (1 - drawn / size) / drawn
    y, f = of_sample @ observed, of_sample @ predicted[rows]  # (H, M)
    everywhere = (np.eye(len(size))[stratum] / size).T @ predicted
    rest_y, rest_f = observed - member @ y, predicted[rows] - member @ f

    def variance(a: Floats, b: Floats) -> Floats:
        within: Floats = (member / np.maximum(drawn - 1, 1)).T @ (a * b)
        out: Floats = factor @ within
        return out

    n, of_f = len(rows), variance(rest_f, rest_f).sum()
    best = variance(rest_y, rest_f).sum() / of_f if of_f > 0 else 1.0
    weight = float(np.clip((n * best + CALIBRATED) / (n + CALIBRATED), 0, 1))
    estimates = np.clip(share @ (y + weight * (everywhere - f)), 0, 1)
    rest = rest_y - weight * rest_f
    by_sample, by_posterior = share @ y, predicted.mean(0)
    ends = [
        _interval(float(mean), float(spread), float(factor.sum()), n - len(size), level)
        for mean, spread in zip(estimates, variance(rest, rest), strict=True)
    ]
    return [
        PoweredShare(float(mean), *end, n, float(a), float(b), weight)
        for mean, end, a, b in zip(estimates, ends, by_sample, by_posterior, strict=True)
    ]


def _interval(mean: float, variance: float, factor: float, freedom: int, level: float) -> tuple[float, float]:
    """Return the Jeffreys interval of a binomial share with this variance.

    ``factor`` is the variance of the mean of y if that of y is 1, the reciprocal of the number of checked items.
    """
    if factor <= 0:  # every item was checked
        return mean, mean
    effective, binomial = 1 / factor, mean * (1 - mean)
    if binomial > 0 and variance > 0:
        effective = min(binomial / variance, MOST_GAIN * effective)
    tail = (1 - level) / 2
    effective *= float(ndtri(tail) / stdtrit(max(freedom, 1), tail)) ** 2
    hits, misses = mean * effective + 0.5, (1 - mean) * effective + 0.5
    return float(min(betaincinv(hits, misses, tail), mean)), float(max(betaincinv(hits, misses, 1 - tail), mean))
