"""Who gives the same answers as somebody else more often than the truth explains.

Two annotators who know nothing of each other agree because both see the truth, and because some items fool everybody.
What b says of an item n is therefore expected to be what a said, l, with the larger one of two probabilities: that b,
who errs as their confusion matrix C tells, says l

    sum_t posterior[n, t] C[t, l]

and the share of l among what others said of the item (with the former counted as `WEIGHT` labels more). If p is that
probability, sum p of the items that both labelled should have the same label, give or take the square root of
sum p (1 - p). z is by how many of these deviations there are more, the smaller one of both directions.

Whatever all pairs have in common is taken off: z is judged by the middle and the spread of the z of all pairs, where
that is wider than chance alone would make it. A pair stands out if chance would give its z to one of all pairs in one
crowd of twenty (Bonferroni).

A large group with one voice makes itself the consensus, and its pairs the middle of all pairs. So two who never differ
are also judged by the outsiders alone, all who are not joined to them by others who never differ: on items of which
`OUTSIDERS` of these or more said something, and twice as many something else as the same, they agree by chance with the
probability

    product over these items of (outsiders who say the same + 1/K) / (outsiders + 1)

There must be `DENIED` such items, and more than one answer: who says the same of everything is lazy, and no copy.

It need not be copying: who learned from the same person, or answers from the same list, looks alike.
benchmarks/copying.py has how often it is right.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from scipy.special import ndtr

from crowdshot.formatting import show
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import expected_confusion
from crowdshot.labels.confidence import Floats
from crowdshot.labels.indexing import Positions

ALPHA = 0.05
NAMED = 5  # pairs
FEWEST = 10  # items that both labelled, below which agreement says nothing
OUTSIDERS, DENIED = 3, 5
WEIGHT = 1.0  # labels that the model counts for beside what others said of the same item
MOST_PAIRS = 5_000_000  # of labels of the same item that are looked at: of more, those of some items


def compare_pairs(ann: Annotations, posterior: Floats) -> pd.DataFrame:
    """A row for each two annotators who labelled the same items; posterior (N, K) in the classes of the items.

    ``one``, ``other``: positions; ``shared``: how many items; ``same``: on how many of them they agree; ``expected``:
    on how many they should; ``stands_out``: whether that is more than luck explains.
    """
    order = np.lexsort((ann.annotator, ann.item))
    order = order[_few_enough(ann.item[order])]
    item, annotator, label = ann.item[order], ann.annotator[order], ann.label[order]
    says = _expected_to_say(item, annotator, posterior, expected_confusion(ann, posterior))
    _, cell, times = np.unique(item * ann.n_classes + label, return_inverse=True, return_counts=True)
    alike, size = times[cell], np.bincount(item)
    sums: dict[str, list[Floats]] = {"same": [], "forth": [], "forth_spread": [], "back": [], "back_spread": []}
    pairs, rows = [], []
    for apart in range(1, int(np.bincount(item).max()) if len(item) else 0):
        a = np.flatnonzero(item[apart:] == item[:-apart])
        b = a + apart
        agree = label[a] == label[b]
        pairs.append(annotator[a] * ann.n_annotators + annotator[b])
        rows.append(a)
        sums["same"].append(agree.astype(np.float64))
        for way, (first, second) in {"forth": (a, b), "back": (b, a)}.items():
            by_skill = says[second, label[first]]
            by_others = (WEIGHT * by_skill + alike[first] - 1 - agree) / (WEIGHT + size[item[a]] - 2)
            p = np.maximum(by_skill, by_others)
            sums[way].append(p)
            sums[f"{way}_spread"].append(p * (1 - p))
    keys, place = np.unique(np.concatenate([*pairs, np.empty(0, dtype=np.int64)]), return_inverse=True)
    shared = np.bincount(place, minlength=len(keys))
    total: dict[str, Floats] = {
        name: np.asarray(np.bincount(place, np.concatenate([*parts, np.empty(0)]), len(keys)), dtype=np.float64)
        for name, parts in sums.items()
    }
    z = np.minimum(*(_deviations(total["same"], total[way], total[f"{way}_spread"]) for way in ("forth", "back")))
    found = pd.DataFrame(
        {
            "one": keys // ann.n_annotators,
            "other": keys % ann.n_annotators,
            "shared": shared,
            "same": total["same"].astype(np.int64),
            "expected": np.maximum(total["forth"], total["back"]),
            "stands_out": _stands_out(z, shared >= FEWEST),
        }
    )
    never = np.flatnonzero((found["same"] == shared) & (shared >= FEWEST))
    if len(never):
        group = _groups(found.iloc[never], ann.n_annotators)[annotator]
        agree_by_chance = _agree_by_chance(item, label, group, ann.n_classes)[np.concatenate(rows)]
        several = _differ(label[np.concatenate(rows)], place, len(keys))
        denied = np.bincount(place, agree_by_chance < 1, len(keys)) >= DENIED
        unlikely = np.bincount(place, np.log(agree_by_chance), len(keys)) < np.log(ALPHA / (shared >= FEWEST).sum())
        found.loc[never, "stands_out"] |= (several & denied & unlikely)[never]
    return found


def _groups(pairs: pd.DataFrame, n_annotators: int) -> Positions:
    """(R,): which annotators are joined by pairs."""
    one, other = pairs["one"].to_numpy(), pairs["other"].to_numpy()
    links = coo_array((np.ones(len(pairs)), (one, other)), shape=(n_annotators, n_annotators))
    group: Positions = connected_components(links, directed=False)[1].astype(np.int64)
    return group


def _agree_by_chance(item: Positions, label: Positions, group: Positions, K: int) -> Floats:
    """(L,): how probable the label is by those who are not of its group; 1 where these do not deny it."""

    def outsiders(of: Positions) -> Positions:
        """(L,) -> (L,): how many others have the same number, but for those of the group."""
        of = np.unique(of, return_inverse=True)[1]
        _, own, n_own = np.unique(of * (group.max() + 1) + group, return_inverse=True, return_counts=True)
        found: Positions = np.bincount(of)[of] - n_own[own]
        return found

    n, same = outsiders(item), outsiders(item * K + label)
    denied = (n >= OUTSIDERS) & (n - same >= 2 * np.maximum(same, 1))
    return np.where(denied, (same + 1 / K) / (n + 1), 1.0)


def _differ(label: Positions, place: Positions, n: int) -> NDArray[np.bool_]:
    """(n,): whether labels with the same place differ from one another."""
    low, high = np.full(n, label.max(initial=0)), np.zeros(n, dtype=np.int64)
    np.minimum.at(low, place, label)
    np.maximum.at(high, place, label)
    return np.asarray(low < high)


def in_words(ann: Annotations, pairs: pd.DataFrame) -> str:
    """Who gives the same answers far too often, "" if nobody does."""
    out = pairs[pairs["stands_out"]]
    names = zip(ann.annotators[out["one"]], ann.annotators[out["other"]], strict=True)
    alike = [f"{show(one)} and {show(other)}" for one, other in names]
    more = f" and {len(alike) - NAMED} more" if len(alike) > NAMED else ""
    return f"the same answers far too often: {', '.join(alike[:NAMED])}{more}" if alike else ""


def said_by_partner(ann: Annotations, pairs: pd.DataFrame) -> tuple[Positions, Positions]:
    """Items and annotators (M,), (M,) of answers that are foretold: somebody who stands out beside them gave one."""
    alike = pairs[pairs["stands_out"]]
    ways = np.concatenate([alike[["one", "other"]].to_numpy(), alike[["other", "one"]].to_numpy()])
    rows = [np.flatnonzero(ann.annotator == first) for first, _ in ways]
    item = np.concatenate([ann.item[some] for some in rows] or [ann.item[:0]])
    return item, np.repeat(ways[:, 1], [len(some) for some in rows]).astype(np.int64)


def _few_enough(item: Positions) -> Positions:
    """The rows of labels, sorted by item, to look at: all, or those of every so-manieth item."""
    size = np.bincount(item) if len(item) else np.zeros(1, dtype=np.int64)
    every = max(1, int(np.ceil((size * (size - 1)).sum() / 2 / MOST_PAIRS)))
    return np.flatnonzero(item % every == 0)


def _expected_to_say(item: Positions, annotator: Positions, posterior: Floats, confusion: Floats) -> Floats:
    """(L, K): what the annotator of each label may be expected to say of its item."""
    says = np.empty((len(item), posterior.shape[1]))
    order = np.argsort(annotator, kind="stable")
    for rows in np.split(order, np.flatnonzero(np.diff(annotator[order])) + 1):
        if len(rows):
            says[rows] = posterior[item[rows]] @ confusion[annotator[rows[0]]]
    return says


def _deviations(same: Floats, expected: Floats, variance: Floats) -> Floats:
    out: Floats = (same - expected) / np.sqrt(np.maximum(variance, 1e-9))
    return out


def _stands_out(z: Floats, enough: NDArray[np.bool_]) -> NDArray[np.bool_]:
    out = np.zeros(len(z), dtype=bool)
    if enough.sum() > 2:  # else there is nothing to compare a pair with
        middle = np.median(z[enough])
        spread = max(1.0, 1.4826 * float(np.median(np.abs(z[enough] - middle))))
        out = enough & (ndtr(-(z - max(middle, 0)) / spread) < ALPHA / enough.sum())
    return out
