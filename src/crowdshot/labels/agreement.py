"""Compute inter-annotator agreement with bootstrap intervals.

Only items with two or more labels count. Item u has m[u] labels, n[u, k] of them of class k. Of its m (m - 1) ordered
pairs of labels, same[u] = Σ_k n[u, k] (n[u, k] - 1) are equal.

- **Pairwise agreement**: the probability that two labels of the same item are equal, Σ same / Σ m (m - 1).
- **Krippendorff's alpha**: (A - E) / (1 - E). A = Σ same / (m - 1) / n is the observed agreement over all n labels.
  E = Σ_k n_k (n_k - 1) / (n (n - 1)) is the agreement of two labels drawn from all of them. Items may have different
  numbers of labels. For ordered classes, disagreements are weighted by Krippendorff's ordinal metric.
- **Fleiss' kappa**: (P - E) / (1 - E) with P the mean of same / (m (m - 1)) over items and E = Σ_k (n_k / n)². Fleiss
  (1971) assumes the same number of labels for every item; here every item has the same weight.
- **Gwet's AC1** and, for ordered classes, **AC2** (Gwet 2008, 2014): (P - E) / (1 - E). With agreement weights w (the
  identity for AC1), P is the mean of Σ_k n[u, k] (Σ_l w_kl n[u, l] - 1) / (m (m - 1)) over items with two labels, and
  E = Σ_kl w_kl / (K (K - 1)) Σ_k π_k (1 - π_k). π_k is the mean over all items of n[u, k] / m, including items with one
  label. AC1 stays high if nearly all labels are of one class; kappa and alpha then fall although annotators agree.
- **Cohen's kappa** and weighted kappa of two annotators (Cohen 1960, 1968): (P - E) / (1 - E) with P = Σ_kl w_kl p_kl
  and E = Σ_kl w_kl p_k. p_.l. p_kl is the share of shared items that the first labels k and the second l; p_k. and p_.l
  are its margins. Kappa is undefined if both gave the same single class to all shared items.

Intervals are percentiles of a bootstrap over items. The statistics depend on a few sums per item, so these sums are
resampled. With many items, the sums of `GROUPS` random groups are resampled, which gives the same variance. For few
items, the percentiles are those of Student's t distribution (expanded percentiles, Hesterberg 2015). If all labels of
each of N items are equal, every resample is perfect. The lower end is then that of an observed agreement of q, where
all of N items agree with a probability of 5 % if each does with the probability q.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.special import ndtr, stdtrit

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import apart, listing, percent
from crowdshot.io.cells import Positions, as_index
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import INTERVAL, Floats
from crowdshot.labels.matching import of_any_labels

NamedWeights = Literal["quadratic", "linear"]
Weights = NamedWeights | ArrayLike
Kind = Literal["kappa", "agreement", "ac1", "shared"]

GROUPS, FEWEST_GROUPS = 2_000, 100  # groups of items that are resampled together; fewer with very many classes
DRAWS = 1_000
AT_ONCE = 10_000_000  # numbers in memory
RELIABLE, TENTATIVE = 0.8, 0.667  # Krippendorff's thresholds for alpha
DOMINANT = 0.75  # share of the labels from which one class dominates
MISLEADING = 0.2  # difference of AC1 and alpha from which alpha and kappa mislead
FEWEST_SHARED = 10  # shared items for a pair in the matrix
MOST_PAIRS = 5_000_000  # pairs of labels; with more, a subset of the items is used
STRENGTH = {0.8: "Almost perfect", 0.6: "Substantial", 0.4: "Moderate", 0.2: "Fair", 0.0: "Slight"}  # Landis and Koch


class Statistic(NamedTuple):
    """A statistic with its 90 % interval and an interpretation; numbers are None if it is undefined."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    sentence: str


def statistics(ann: Annotations, ordered: bool = False) -> list[Statistic]:
    """Return pairwise agreement, Krippendorff's alpha, Fleiss' kappa and Gwet's AC1 (AC2 if ``ordered``).

    Ordered classes are from low to high.
    """
    sums = _sums(ann, ordered)
    return [_pairwise(sums), _alpha(sums, ordered), _kappa(sums), _gwet(sums, _alone(ann), ordered)]


def kappa_warning(ann: Annotations, found: Sequence[Statistic] | None = None) -> str | None:
    """Return a warning if kappa and alpha mislead because one class has most of the labels, else None.

    If nearly all labels are of one class, little disagreement suffices for a low kappa (Feinstein and Cicchetti 1990).
    ``found`` are the `statistics` of ``ann``, which are computed if not given.
    """
    counts = np.bincount(ann.label, minlength=ann.n_classes)
    share = float(counts.max() / max(counts.sum(), 1))
    if share < DOMINANT or np.count_nonzero(counts) < 2:
        return None
    pairwise, alpha, _, gwet = statistics(ann) if found is None else found
    if pairwise.value is None or alpha.value is None or gwet.value is None or gwet.value - alpha.value < MISLEADING:
        return None
    return (
        f"{percent(share)} of the labels are {apart(ann.classes[counts.argmax()])}. Kappa and alpha are then low even"
        f" if annotators agree: two labels are equal {percent(pairwise.value)} of the time."
        f" {gwet.name} ({gwet.value:.2f}) depends less on the class sizes."
    )


@of_any_labels
def pairwise_agreement(ann: Annotations) -> Statistic:
    """Return the probability that two labels of the same item are equal.

    Parameters
    ----------
    ann : Annotations or any form of labels that `CrowdClassifier.fit` takes

    Returns
    -------
    Statistic
        value, low and high (90 % interval), and an interpretation.

    Examples
    --------
    >>> from crowdshot import Annotations
    >>> from crowdshot.metrics import pairwise_agreement
    >>> ann = Annotations.from_matrix([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
    >>> round(pairwise_agreement(ann).value, 3)
    0.75
    """
    return _pairwise(_sums(ann))


@of_any_labels
def krippendorff_alpha(ann: Annotations, ordered: bool = False) -> Statistic:
    """Return Krippendorff's alpha: 1 for perfect agreement, 0 for chance.

    Parameters
    ----------
    ann : Annotations or any form of labels that `CrowdClassifier.fit` takes
    ordered : bool
        Weight disagreements by the distance of the classes (ordinal alpha).

    Returns
    -------
    Statistic

    Examples
    --------
    >>> from crowdshot import Annotations
    >>> from crowdshot.metrics import krippendorff_alpha
    >>> ann = Annotations.from_matrix([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
    >>> round(krippendorff_alpha(ann).value, 3)
    0.533
    """
    return _alpha(_sums(ann, ordered), ordered)


@of_any_labels
def fleiss_kappa(ann: Annotations) -> Statistic:
    """Return Fleiss' kappa: 1 for perfect agreement, 0 for chance.

    Parameters
    ----------
    ann : Annotations or any form of labels that `CrowdClassifier.fit` takes

    Returns
    -------
    Statistic

    Examples
    --------
    >>> from crowdshot import Annotations
    >>> from crowdshot.metrics import fleiss_kappa
    >>> ann = Annotations.from_matrix([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
    >>> round(fleiss_kappa(ann).value, 3)
    0.467
    """
    return _kappa(_sums(ann))


@of_any_labels
def gwet_ac1(ann: Annotations) -> Statistic:
    """Return Gwet's AC1: 1 for perfect agreement, 0 for chance; robust if one class has most of the labels.

    Parameters
    ----------
    ann : Annotations or any form of labels that `CrowdClassifier.fit` takes

    Returns
    -------
    Statistic

    Examples
    --------
    >>> from crowdshot import Annotations
    >>> from crowdshot.metrics import gwet_ac1
    >>> ann = Annotations.from_matrix([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
    >>> round(gwet_ac1(ann).value, 3)
    0.529
    """
    return _gwet(_sums(ann), _alone(ann), ordered=False)


@of_any_labels
def gwet_ac2(ann: Annotations, weights: Weights = "quadratic") -> Statistic:
    """Return Gwet's AC2, which counts close classes as partial agreement.

    Parameters
    ----------
    ann : Annotations or any form of labels that `CrowdClassifier.fit` takes
        Classes are in order, from low to high.
    weights : {"quadratic", "linear"} or array of shape (K, K)
        Agreement of each pair of classes, from 0 to 1 for equal classes.

    Returns
    -------
    Statistic

    Examples
    --------
    >>> from crowdshot import Annotations
    >>> from crowdshot.metrics import gwet_ac2
    >>> labels = [["low", "low"], ["high", "mid"], ["mid", "mid"]]
    >>> ann = Annotations.from_matrix(labels, classes=["low", "mid", "high"])
    >>> round(gwet_ac2(ann).value, 3)
    0.786
    """
    return _gwet(_sums(ann, coincidences=True), _alone(ann), ordered=True, weights=weights)


# ---- Agreement of classes ------------------------------------------------------------------------------------------


def agreement_weights(K: int, weights: Weights) -> Floats:
    """Return how much two classes agree, (K, K): 1 for equal ones, 0 for the first and the last class.

    Quadratic weights are 1 - (k - l)² / (K - 1)², linear ones 1 - |k - l| / (K - 1).
    """
    if isinstance(weights, str):
        if weights not in get_args(NamedWeights):
            expected = f"one of {listing(get_args(NamedWeights))}, or an array"
            raise CrowdshotError(f"is {weights!r}", argument="weights", found=weights, expected=expected)
        distance = np.abs(np.subtract.outer(np.arange(K), np.arange(K))) / max(K - 1, 1)
        return 1 - (distance**2 if weights == "quadratic" else distance)
    w = np.asarray(weights, dtype=np.float64)
    if w.shape != (K, K):
        raise CrowdshotError(f"has shape {w.shape}", argument="weights", found=w.shape, expected=f"({K}, {K})")
    if not (
        np.isfinite(w).all() and (w >= 0).all() and (w <= 1).all() and (np.diag(w) == 1).all() and (w == w.T).all()
    ):
        expected = "a symmetric array of numbers from 0 to 1, with 1 for equal classes"
        raise CrowdshotError("is not an agreement of classes", argument="weights", expected=expected)
    return w


# ---- Statistics as functions of sums over items --------------------------------------------------------------------


class Sums(NamedTuple):
    """Sums over items (...,), with the symbols of the module's docstring."""

    same: Floats  # same
    pairs: Floats  # m (m - 1)
    weighted: Floats  # same / (m - 1)
    agreed: Floats  # same / (m (m - 1))
    items: Floats  # 1
    counts: Floats  # n_k, (..., K)
    coincidences: Floats  # n[u, c] (n[u, k] - [c = k]) / (m - 1), (..., K, K); K is 0 unless classes are ordered
    shares: Floats  # n_k / m, (..., K)
    mean_coincidences: Floats  # coincidences / m, (..., K, K); K is 0 unless classes are ordered

    def drawn(self, weights: Floats) -> Sums:
        """Return the sums (B,) of B resamples; weights (B, G): how often each group was drawn."""
        return Sums(*(np.tensordot(weights, column, 1) for column in self))


def _pairwise(sums: Sums) -> Statistic:
    def interpret(value: float) -> str:
        return f"Two labels of the same item are equal {percent(value)} of the time."

    def compute(drawn: Sums) -> Floats:
        return _ratio(drawn.same, drawn.pairs)

    return _estimate("Pairwise agreement", compute, compute, interpret, sums)


def _alpha(sums: Sums, ordered: bool) -> Statistic:
    def nominal(drawn: Sums) -> Floats:
        n = drawn.counts.sum(-1)
        by_chance = _ratio((drawn.counts * (drawn.counts - 1)).sum(-1), n * (n - 1))
        return _beyond_chance(_ratio(drawn.weighted, n), by_chance)

    def ordinal(drawn: Sums) -> Floats:
        n_k = drawn.coincidences.sum(-1)
        n, middle = n_k.sum(-1), n_k.cumsum(-1) - n_k / 2
        distance = np.square(middle[..., :, None] - middle[..., None, :])
        observed = _ratio((drawn.coincidences * distance).sum((-2, -1)), n)
        by_chance = _ratio((n_k[..., :, None] * n_k[..., None, :] * distance).sum((-2, -1)), n * (n - 1))
        return 1 - _ratio(observed, by_chance)

    def interpret(value: float) -> str:
        rule = (
            f"is reliable by Krippendorff's rule ({RELIABLE} or more)"
            if value >= RELIABLE
            else f"allows tentative conclusions only; Krippendorff's rule requires {RELIABLE}"
            if value >= TENTATIVE
            else f"is below {TENTATIVE}, which Krippendorff requires even for tentative conclusions"
        )
        return f"On a scale from chance (0) to perfect agreement (1), this {rule}."

    name = "Krippendorff's alpha" + (" (ordinal)" if ordered else "")
    return _estimate(name, ordinal if ordered else nominal, nominal, interpret, sums)


def _kappa(sums: Sums) -> Statistic:
    def compute(drawn: Sums) -> Floats:
        shares = _ratio(drawn.counts, drawn.counts.sum(-1, keepdims=True))
        return _beyond_chance(_ratio(drawn.agreed, drawn.items), np.square(shares).sum(-1))

    def interpret(value: float) -> str:
        return f"{_strength(value)} agreement beyond chance on the scale of Landis and Koch."

    return _estimate("Fleiss' kappa", compute, compute, interpret, sums)


def _gwet(sums: Sums, alone: Floats, ordered: bool, weights: Weights = "quadratic") -> Statistic:
    """``alone`` (K,) counts the classes of items with one label."""
    K = sums.counts.shape[1]
    w = agreement_weights(K, weights) if ordered else np.eye(K)

    def beyond_chance(drawn: Sums, agreed: Floats, total: float) -> Floats:
        shares = (drawn.shares + alone) / (drawn.items + alone.sum())[..., None]
        by_chance = total / max(K * (K - 1), 1) * (shares * (1 - shares)).sum(-1)
        return _beyond_chance(_ratio(agreed, drawn.items), by_chance)

    def equal(drawn: Sums) -> Floats:
        return beyond_chance(drawn, drawn.agreed, K)

    def weighted(drawn: Sums) -> Floats:
        return beyond_chance(drawn, (drawn.mean_coincidences * w).sum((-2, -1)), float(w.sum()))

    def interpret(value: float) -> str:
        return f"{_strength(value)} agreement beyond chance. It depends less on the sizes of the classes than kappa."

    kind = weights if isinstance(weights, str) else "given"
    name = f"Gwet's AC2 ({kind} weights)" if ordered else "Gwet's AC1"
    return _estimate(name, weighted if ordered else equal, equal, interpret, sums)


def _strength(value: float) -> str:
    return next((words for least, words in STRENGTH.items() if value > least), "No")


def _beyond_chance(agreement: Floats, by_chance: Floats) -> Floats:
    return _ratio(agreement - by_chance, 1 - by_chance)


def _ratio(a: Floats, b: Floats) -> Floats:
    """Return a / b, NaN if b is 0 but for rounding."""
    out: Floats = np.divide(a, b, out=np.full(np.broadcast_shapes(a.shape, b.shape), np.nan), where=np.abs(b) > 1e-12)
    return out


# ---- Sums over items, and the bootstrap ----------------------------------------------------------------------------


def _sums(ann: Annotations, coincidences: bool = False) -> Sums:
    """Return sums over G groups of items, or over single items if there are few."""
    K, size = ann.n_classes, np.bincount(ann.item, minlength=ann.n_items)
    use = size[ann.item] > 1
    cells, times = np.unique(ann.item[use] * K + ann.label[use], return_counts=True)
    items, item = np.unique(cells // K, return_inverse=True)
    label, m = cells % K, size[items].astype(np.float64)
    group = _groups(item, label, times, K)
    G = int(group.max()) + 1 if len(items) else 0

    def total(values: Floats) -> Floats:
        return np.asarray(np.bincount(group, values, G), dtype=np.float64)

    same = np.asarray(np.bincount(item, times * (times - 1.0), len(items)), dtype=np.float64)
    votes = csr_array((times.astype(np.float64), (item, label)), (len(items), K))
    belongs = csr_array((np.ones(len(items)), (group, np.arange(len(items)))), (G, len(items)))

    def coincident(divisor: Floats) -> Floats:
        per_pair = (votes.multiply(1 / divisor[:, None])).tocsr()
        rows = [(belongs @ votes.multiply(per_pair[:, [k]])).toarray() for k in range(K)]
        diagonal = (belongs @ per_pair).toarray()
        return np.asarray(np.stack(rows, axis=1) - diagonal[:, :, None] * np.eye(K))

    none = np.zeros((G, 0, 0))
    return Sums(
        same=total(same),
        pairs=total(m * (m - 1)),
        weighted=total(same / (m - 1)),
        agreed=total(same / (m * (m - 1))),
        items=total(np.ones(len(items))),
        counts=(belongs @ votes).toarray(),
        coincidences=coincident(m - 1) if coincidences else none,
        shares=(belongs @ votes.multiply(1 / m[:, None])).toarray(),
        mean_coincidences=coincident(m * (m - 1)) if coincidences else none,
    )


def _alone(ann: Annotations) -> Floats:
    """Count the classes (K,) of items with one label."""
    single = np.bincount(ann.item, minlength=ann.n_items)[ann.item] == 1
    return np.asarray(np.bincount(ann.label[single], minlength=ann.n_classes), dtype=np.float64)


def _groups(item: Positions, label: Positions, times: Positions, K: int) -> Positions:
    """Return a random group for each item (N,). It depends only on the item's votes, not on its name or position."""
    random = np.random.default_rng(0)
    marks = random.integers(
        1 << 62, size=K, dtype=np.uint64
    )  # items have equal sums of these only if their votes are equal
    n_items = int(item.max()) + 1 if len(item) else 0
    key = np.zeros(n_items, dtype=np.uint64)
    np.add.at(key, item, marks[label] * times.astype(np.uint64))
    group = np.empty(n_items, dtype=np.int64)
    n_groups = int(np.clip(AT_ONCE // K, FEWEST_GROUPS, GROUPS))
    group[np.argsort(key, kind="stable")] = random.permutation(n_items) % n_groups
    return group


Compute = Callable[[Sums], Floats]


def _estimate(name: str, compute: Compute, equal: Compute, interpret: Callable[[float], str], sums: Sums) -> Statistic:
    """Return a statistic of all items with its interval from `DRAWS` bootstrap samples.

    ``equal`` is the statistic for which only equal labels agree.
    """
    G = len(sums.same)
    value = float(compute(sums.drawn(np.ones((1, G))))[0])
    if not np.isfinite(value):
        return Statistic(name, None, None, None, "Undefined: no item has two labels, or all labels are equal.")
    weights = np.random.default_rng(0).multinomial(G, np.full(G, 1 / G), DRAWS).astype(np.float64)
    parts = np.array_split(weights, -(-DRAWS * sums.counts.shape[1] // AT_ONCE))
    drawn = np.concatenate([compute(sums.drawn(part)) for part in parts])
    n, tail = int(sums.items.sum()), (1 - INTERVAL) / 2
    tail_of_few = float(ndtr(stdtrit(n - 1, tail) * np.sqrt(n / (n - 1)))) if n > 1 else 0.0
    low, high = np.nanquantile(drawn, [tail_of_few, 1 - tail_of_few]).tolist()
    if sums.same.sum() == sums.pairs.sum():
        q = tail ** (1 / n)
        less = sums._replace(same=q * sums.same, weighted=q * sums.weighted, agreed=q * sums.agreed)
        low = min(low, float(equal(less.drawn(np.ones((1, G))))[0]))
    return Statistic(name, value, low, high, interpret(value))


# ---- Pairs of annotators --------------------------------------------------------------------------------------------


@of_any_labels
def pairs(ann: Annotations, weights: Weights | None = None, fewest: int = 1) -> pd.DataFrame:
    """Return the agreement of each pair of annotators who labelled the same items.

    Parameters
    ----------
    ann : Annotations or any form of labels that `CrowdClassifier.fit` takes
    weights : {"quadratic", "linear"} or array of shape (K, K), optional
        Agreement of each pair of classes, for ordered classes. By default only equal classes agree.
    fewest : int
        Pairs with fewer shared items are left out.

    Returns
    -------
    DataFrame
        one, other (names), shared (items), agreement (the share of equal labels), kappa (weighted with ``weights``; NaN
        if undefined) and ac1 (Gwet's AC1). Pairs with the most shared items come first. With more than 5,000,000 pairs
        of labels, only every k-th item is used.
    """
    K = ann.n_classes
    w = None if weights is None else agreement_weights(K, weights)
    one, other, first, second = _pairs_of_labels(ann)
    keys, place, shared = np.unique(one * ann.n_annotators + other, return_inverse=True, return_counts=True)
    used = shared >= fewest
    rows, number = used[place], used.cumsum() - 1
    place, first, second = number[place[rows]], first[rows], second[rows]
    keys, n = keys[used], shared[used].astype(np.float64)

    def mean(values: Floats) -> Floats:
        return np.asarray(np.bincount(place, values, len(n)) / n)

    def margins(label: Positions) -> csr_array:
        counts = csr_array((np.ones(len(label)), (place, label)), (len(n), K))
        return csr_array(counts.multiply(1 / n[:, None])) if len(n) else counts

    a, b = margins(first), margins(second)
    equal = mean((first == second).astype(np.float64))
    observed = equal if w is None else mean(w[first, second])
    expected = np.asarray((a.multiply(b) if w is None else b.multiply(a @ w)).sum(1)).ravel()
    shares = (a + b) / 2
    by_chance = np.asarray((shares - shares.multiply(shares)).sum(1)).ravel() / max(K - 1, 1)
    found = pd.DataFrame(
        {
            "one": as_index(ann.annotators).take(keys // ann.n_annotators),
            "other": as_index(ann.annotators).take(keys % ann.n_annotators),
            "shared": n.astype(np.int64),
            "agreement": equal,
            "kappa": _beyond_chance(observed, expected),
            "ac1": _beyond_chance(equal, by_chance),
        }
    )
    return found.sort_values("shared", ascending=False, kind="stable", ignore_index=True)


@of_any_labels
def matrix(
    ann: Annotations, of: Kind = "kappa", weights: Weights | None = None, fewest: int = FEWEST_SHARED
) -> pd.DataFrame:
    """Return a symmetric matrix of annotators × annotators.

    Parameters
    ----------
    ann, weights
        As in `pairs`.
    of : {"kappa", "agreement", "ac1", "shared"}
        The column of `pairs` to show.
    fewest : int
        Pairs with fewer shared items are NaN.

    Returns
    -------
    DataFrame
        Rows and columns are annotators. The diagonal is NaN.
    """
    if of not in get_args(Kind):
        raise CrowdshotError(f"is {of!r}", argument="of", found=of, expected=f"one of {listing(get_args(Kind))}")
    table = pairs(ann, weights, fewest)
    names = as_index(ann.annotators)
    out = np.full((ann.n_annotators, ann.n_annotators), np.nan)
    one, other = names.get_indexer(table["one"]), names.get_indexer(table["other"])
    out[one, other] = out[other, one] = table[of]
    return pd.DataFrame(out, index=names, columns=names)


@of_any_labels
def cohen_kappa(ann: Annotations, weights: Weights | None = None) -> float:
    """Return Cohen's kappa, or weighted kappa, of the only two annotators; NaN if undefined.

    Parameters
    ----------
    ann, weights
        As in `pairs`.

    Examples
    --------
    >>> from crowdshot.metrics import cohen_kappa
    >>> cohen_kappa([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
    0.5
    """
    if ann.n_annotators != 2:
        expected = "two; agreement.pairs returns the kappa of each pair of more annotators"
        raise CrowdshotError(f"has {ann.n_annotators} annotators", argument="labels", expected=expected)
    table = pairs(ann, weights)
    return float(table["kappa"].iloc[0]) if len(table) else float("nan")


def rows_with_few_pairs(item: Positions, most: int) -> Positions:
    """Return the rows of labels to compare: all, or those of every k-th item if there are too many pairs.

    An item with thousands of labels has too many pairs by itself and is left out.
    """
    size = np.bincount(item) if len(item) else np.zeros(1, dtype=np.int64)
    pairs = size * (size - 1) // 2
    every = max(1, int(np.ceil(pairs.sum() / most)))
    pairs[(np.arange(len(size)) % every != 0) | (pairs > most)] = 0
    few = (pairs > 0) & (np.cumsum(pairs) <= 2 * most)  # the chosen items may have more pairs than average
    return np.flatnonzero(few[item]) if len(item) else np.empty(0, dtype=np.int64)


def _pairs_of_labels(ann: Annotations) -> tuple[Positions, Positions, Positions, Positions]:
    """Return the annotators and labels of all pairs of labels of an item, (P,) each; one < other."""
    size = np.bincount(ann.item, minlength=1)
    order = np.lexsort((ann.annotator, ann.item))
    order = order[rows_with_few_pairs(ann.item[order], MOST_PAIRS)]
    item, annotator, label = ann.item[order], ann.annotator[order], ann.label[order]
    first, second = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    a = np.arange(len(item))
    for distance in range(1, int(size.max(initial=0))):
        a = a[a < len(item) - distance]
        a = a[item[a + distance] == item[a]]
        first.append(a)
        second.append(a + distance)
    one, other = np.concatenate(first), np.concatenate(second)
    return annotator[one].astype(np.int64), annotator[other].astype(np.int64), label[one], label[other]
