"""Find pairs of annotators who agree more often than the true classes explain.

Two independent annotators agree because both see the true class, and because some items are difficult for everybody.
The probability that b gives item n the same label l as a is therefore the larger of two estimates. The first uses b's
confusion matrix C:

    Σ_t posterior[n, t] C[t, l]

The second is the share of l among the labels of other annotators for the item, with the first estimate counted as
`WEIGHT` additional labels. If p is this probability, the expected number of equal labels on shared items is Σ p, with
the variance Σ p (1 - p). z is the standardised excess, the smaller one of both directions.

Effects that all pairs have in common are removed: z is compared with the median and the spread of z over all pairs, if
that is wider than chance. A pair stands out if chance would produce such a z for any pair in one crowd of twenty
(Bonferroni).

A large group of copies dominates the consensus and the median of z. Therefore pairs that never differ are also tested
against outsiders: all annotators who are not connected to them by pairs that never differ. An item denies the pair if
`OUTSIDERS` or more outsiders labelled it, at least twice as many of them differently as equally. The pair agrees on
these items by chance with the probability

    Π over these items of (outsiders with the same label + 1/K) / (outsiders + 1)

There must be `DENIED` such items and more than one label: a person who always gives the same label is lazy, not a copy.

A pair need not have copied: annotators with the same instructions or the same answer list agree as well.
benchmarks/copying.py measures how often pairs are found.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtr

from crowdshot.formatting import show
from crowdshot.io.cells import Positions
from crowdshot.labels.agreement import rows_with_few_pairs
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import expected_confusion
from crowdshot.labels.consensus import Floats

ALPHA = 0.05
NAMED = 5  # pairs named in a message
FEWEST = 10  # shared items needed to compare a pair
OUTSIDERS, DENIED = 3, 5
WEIGHT = 1.0  # labels that the confusion matrix counts as, beside the other labels of the item
MOST_PAIRS = 5_000_000  # pairs of labels that are compared; with more, a subset of the items is used


def compare_pairs(ann: Annotations, posterior: Floats) -> pd.DataFrame:
    """Compare all pairs of annotators who labelled the same items.

    Parameters
    ----------
    ann : Annotations
    posterior : array of shape (N, K)

    Returns
    -------
    DataFrame
        one, other: positions of the annotators; shared: number of shared items; same: equal labels on these;
        expected: expected equal labels; stands_out: whether the difference is significant.
    """
    order = np.lexsort((ann.annotator, ann.item))
    order = order[rows_with_few_pairs(ann.item[order], MOST_PAIRS)]
    item, annotator, label = ann.item[order], ann.annotator[order], ann.label[order]
    labels = _pairs_of_labels(ann, posterior, item, annotator, label)
    keys, place = np.unique(labels.pair, return_inverse=True)
    shared = np.bincount(place, minlength=len(keys))

    def total(values: Floats) -> Floats:
        return np.asarray(np.bincount(place, values, len(keys)), dtype=np.float64)

    same = total(labels.same)
    expected = [total(p) for p in labels.p]
    variance = [total(p * (1 - p)) for p in labels.p]
    z = np.minimum(*(_deviations(same, mean, var) for mean, var in zip(expected, variance, strict=True)))
    found = pd.DataFrame(
        {
            "one": keys // ann.n_annotators,
            "other": keys % ann.n_annotators,
            "shared": shared,
            "same": same.astype(np.int64),
            "expected": np.maximum(*expected),
            "stands_out": _stands_out(z, shared >= FEWEST),
        }
    )
    never_differ = np.flatnonzero((found["same"] == shared) & (shared >= FEWEST))
    if len(never_differ):
        group = _groups(found.iloc[never_differ], ann.n_annotators)[annotator]
        agree_by_chance = _agree_by_chance(item, label, group, ann.n_classes)[labels.row]
        several = _differ(label[labels.row], place, len(keys))
        denied = np.bincount(place, agree_by_chance < 1, len(keys)) >= DENIED
        unlikely = np.bincount(place, np.log(agree_by_chance), len(keys)) < np.log(ALPHA / (shared >= FEWEST).sum())
        found.loc[never_differ, "stands_out"] |= (several & denied & unlikely)[never_differ]
    return found


class PairsOfLabels(NamedTuple):
    """Pairs of labels of the same item, (P,) each."""

    pair: Positions  # annotators, as one · R + other
    row: Positions  # of the first label
    same: Floats  # 1 if the labels are equal
    p: tuple[Floats, Floats]  # probability of equal labels: the second given the first, and the first given the second


def _pairs_of_labels(
    ann: Annotations, posterior: Floats, item: Positions, annotator: Positions, label: Positions
) -> PairsOfLabels:
    """Pair each label with the later ones of its item; labels (L,) are sorted by item and annotator."""
    answers = _expected_answers(item, annotator, posterior, expected_confusion(ann, posterior))
    _, cell, times = np.unique(item * ann.n_classes + label, return_inverse=True, return_counts=True)
    equal, size = times[cell], np.bincount(item)
    pair, row, same, forward, backward = ([np.empty(0, dtype=kind)] for kind in (int, int, float, float, float))
    a = np.arange(len(item))
    for distance in range(1, int(size.max()) if len(item) else 0):
        a = a[a < len(item) - distance]
        a = a[item[a + distance] == item[a]]
        b = a + distance
        agree = label[a] == label[b]
        pair.append(annotator[a] * ann.n_annotators + annotator[b])
        row.append(a)
        same.append(agree.astype(np.float64))
        for probabilities, first, second in ((forward, a, b), (backward, b, a)):
            by_skill = answers[second, label[first]]
            by_others = (WEIGHT * by_skill + equal[first] - 1 - agree) / (WEIGHT + size[item[a]] - 2)
            probabilities.append(np.maximum(by_skill, by_others))
    return PairsOfLabels(
        np.concatenate(pair),
        np.concatenate(row),
        np.concatenate(same),
        (np.concatenate(forward), np.concatenate(backward)),
    )


def _groups(pairs: pd.DataFrame, n_annotators: int) -> Positions:
    """Return the connected component of each annotator (R,) in the graph of pairs."""
    one, other = pairs["one"].to_numpy(), pairs["other"].to_numpy()
    links = coo_array((np.ones(len(pairs)), (one, other)), shape=(n_annotators, n_annotators))
    group: Positions = connected_components(links, directed=False)[1].astype(np.int64)
    return group


def _agree_by_chance(item: Positions, label: Positions, group: Positions, K: int) -> Floats:
    """Return the probability of each label (L,) by the outsiders of its group; 1 if these do not deny it."""

    def outsiders(values: Positions) -> Positions:
        """Count the labels (L,) outside the group that have the same value."""
        values = np.unique(values, return_inverse=True)[1]
        _, inside, n_inside = np.unique(values * (group.max() + 1) + group, return_inverse=True, return_counts=True)
        found: Positions = np.bincount(values)[values] - n_inside[inside]
        return found

    n, same = outsiders(item), outsiders(item * K + label)
    denied = (n >= OUTSIDERS) & (n - same >= 2 * np.maximum(same, 1))
    return np.where(denied, (same + 1 / K) / (n + 1), 1.0)


def _differ(label: Positions, place: Positions, n: int) -> NDArray[np.bool_]:
    """Return whether labels with the same place differ, (n,)."""
    low, high = np.full(n, label.max(initial=0)), np.zeros(n, dtype=np.int64)
    np.minimum.at(low, place, label)
    np.maximum.at(high, place, label)
    return np.asarray(low < high)


def in_words(ann: Annotations, pairs: pd.DataFrame) -> str:
    """Name the pairs that stand out; "" if there are none."""
    out = pairs[pairs["stands_out"]]
    names = zip(ann.annotators[out["one"]], ann.annotators[out["other"]], strict=True)
    alike = [f"{show(one)} and {show(other)}" for one, other in names]
    more = f" and {len(alike) - NAMED} more" if len(alike) > NAMED else ""
    return f"the same answers far too often: {', '.join(alike[:NAMED])}{more}" if alike else ""


def predictable_answers(ann: Annotations, pairs: pd.DataFrame) -> tuple[Positions, Positions]:
    """Return items and annotators (M,) of answers that a partner in a pair that stands out has already given."""
    alike = pairs[pairs["stands_out"]]
    directed = np.concatenate([alike[["one", "other"]].to_numpy(), alike[["other", "one"]].to_numpy()])
    rows = [np.flatnonzero(ann.annotator == first) for first, _ in directed]
    item = np.concatenate([ann.item[some] for some in rows] or [ann.item[:0]])
    return item, np.repeat(directed[:, 1], [len(some) for some in rows]).astype(np.int64)


def _expected_answers(item: Positions, annotator: Positions, posterior: Floats, confusion: Floats) -> Floats:
    """Return the expected distribution (L, K) of each label, given its annotator's confusion matrix."""
    answers = np.empty((len(item), posterior.shape[1]))
    order = np.argsort(annotator, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(annotator[order])) + 1):
        if len(rows):
            answers[rows] = posterior[item[rows]] @ confusion[annotator[rows[0]]]
    return answers


def _deviations(same: Floats, expected: Floats, variance: Floats) -> Floats:
    out: Floats = (same - expected) / np.sqrt(np.maximum(variance, 1e-9))
    return out


def _stands_out(z: Floats, enough: NDArray[np.bool_]) -> NDArray[np.bool_]:
    out = np.zeros(len(z), dtype=bool)
    if enough.sum() > 2:  # a pair can be compared only with other pairs
        middle = np.median(z[enough])
        spread = max(1.0, 1.4826 * float(np.median(np.abs(z[enough] - middle))))
        out = enough & (ndtr(-(z - max(middle, 0)) / spread) < ALPHA / enough.sum())
    return out
