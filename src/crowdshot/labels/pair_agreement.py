"""Compute the agreement of each pair of annotators: Cohen's kappa and weighted kappa.

On the items that both labelled, with agreement weights w of classes (the identity for Cohen's kappa):

    kappa = (P - E) / (1 - E),   P = Σ_kl w_kl p_kl,   E = Σ_kl w_kl p_k. p_.l

p_kl is the share of shared items that the first labels k and the second l; p_k. and p_.l are its margins (Cohen 1960,
1968). Kappa is undefined if both gave the same single class to all shared items. AC1 of the pair is Gwet's, with the
classes of all annotators; it stays high if nearly all labels are of one class.

Examples
--------
>>> from crowdshot import Annotations
>>> ann = Annotations.from_matrix([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
>>> pairs(ann)[["shared", "agreement", "kappa"]].round(3).to_numpy().tolist()
[[4.0, 0.75, 0.5]]
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing
from crowdshot.io.cells import Positions, as_index
from crowdshot.labels.agreement import Weights, agreement_weights
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import Floats
from crowdshot.labels.matching import of_any_labels

FEWEST = 10  # shared items for a pair in the matrix
MOST_PAIRS = 5_000_000  # pairs of labels; with more, a subset of the items is used
Kind = Literal["kappa", "agreement", "ac1", "shared"]


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
def matrix(ann: Annotations, of: Kind = "kappa", weights: Weights | None = None, fewest: int = FEWEST) -> pd.DataFrame:
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
        expected = "two; pair_agreement.pairs returns the kappa of each pair of more annotators"
        raise CrowdshotError(f"has {ann.n_annotators} annotators", argument="labels", expected=expected)
    table = pairs(ann, weights)
    return float(table["kappa"].iloc[0]) if len(table) else float("nan")


def _pairs_of_labels(ann: Annotations) -> tuple[Positions, Positions, Positions, Positions]:
    """Return the annotators and labels of all pairs of labels of an item, (P,) each; one < other."""
    size = np.bincount(ann.item, minlength=1)
    every = max(1, int(np.ceil((size * (size - 1)).sum() / 2 / MOST_PAIRS)))
    order = np.lexsort((ann.annotator, ann.item))
    order = order[ann.item[order] % every == 0]
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


def _beyond_chance(agreement: Floats, by_chance: Floats) -> Floats:
    room = 1 - by_chance
    out: Floats = np.divide(agreement - by_chance, room, out=np.full(len(room), np.nan), where=room > 1e-12)
    return out
