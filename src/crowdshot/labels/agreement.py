"""How far annotators agree with each other: the statistics that contracts ask for, with intervals.

Only items with two labels or more count. Of item u, n[u, k] of m[u] labels are k, and of the ordered pairs of its
labels same[u] = sum_k n[u, k] (n[u, k] - 1) are equal.

- **Pairwise agreement**: how often two labels of the same item are equal, sum same / sum m (m - 1).
- **Krippendorff's alpha**: (A - E) / (1 - E) with the agreement A = sum same / (m - 1) / n of all n labels and E what
  two labels drawn from all of them would have, sum_k n_k (n_k - 1) / (n (n - 1)). Items may have any number of labels.
  For ordered classes the same with disagreements that weigh more the further apart they are, by Krippendorff's ordinal
  metric.
- **Fleiss' kappa**: (P - E) / (1 - E) with P the mean of same / (m (m - 1)) over items and E = sum_k (n_k / n)². Fleiss
  (1971) has as many labels of each item; where that differs, each item counts once all the same.

Intervals are percentiles of a bootstrap over items. All that is needed of an item are a few sums, so these are drawn
instead of labels; of many items, sums of `GROUPS` groups, whose spread is that of the items.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from crowdshot.formatting import percent
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.confidence import INTERVAL, Floats
from crowdshot.labels.indexing import Positions
from crowdshot.labels.matching import of_any_labels

GROUPS, FEWEST_GROUPS = 2_000, 100  # of items that are drawn together; fewer where classes are very many
DRAWS = 1_000
AT_ONCE = 10_000_000  # numbers in memory
RELIABLE, TENTATIVE = 0.8, 0.667  # what Krippendorff asks of alpha
STRENGTH = {0.8: "Almost perfect", 0.6: "Substantial", 0.4: "Moderate", 0.2: "Fair", 0.0: "Slight"}  # Landis and Koch


class Statistic(NamedTuple):
    """A number with the interval in which it lies with 90 % probability, and what it says; None where there is none."""

    name: str
    value: float | None
    low: float | None
    high: float | None
    sentence: str


def statistics(ann: Annotations, ordered: bool = False) -> list[Statistic]:
    """Pairwise agreement, Krippendorff's alpha and Fleiss' kappa; ``ordered``: classes are, from low to high."""
    sums = _sums(ann, ordered)
    return [_pairwise(sums), _alpha(sums, ordered), _kappa(sums)]


@of_any_labels
def pairwise_agreement(ann: Annotations) -> Statistic:
    """How often two labels of an item are the same.

    >>> from crowdshot import Annotations
    >>> from crowdshot.metrics import pairwise_agreement
    >>> said = Annotations.from_matrix([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
    >>> round(pairwise_agreement(said).value, 3)
    0.75
    """
    return _pairwise(_sums(ann))


@of_any_labels
def krippendorff_alpha(ann: Annotations, ordered: bool = False) -> Statistic:
    """Krippendorff's alpha: 1 if all agree, 0 if as by chance; ordered classes count by how far apart they are.

    >>> from crowdshot import Annotations
    >>> from crowdshot.metrics import krippendorff_alpha
    >>> said = Annotations.from_matrix([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
    >>> round(krippendorff_alpha(said).value, 3)
    0.533
    """
    return _alpha(_sums(ann, ordered), ordered)


@of_any_labels
def fleiss_kappa(ann: Annotations) -> Statistic:
    """Fleiss' kappa: 1 if all agree, 0 if as by chance.

    >>> from crowdshot import Annotations
    >>> from crowdshot.metrics import fleiss_kappa
    >>> said = Annotations.from_matrix([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
    >>> round(fleiss_kappa(said).value, 3)
    0.467
    """
    return _kappa(_sums(ann))


# ---- the statistics, of sums over items ---------------------------------------------------------------------------


class Sums(NamedTuple):
    """Sums over items (...,), as above: same, m (m - 1), same / (m - 1), same / (m (m - 1)), 1, and n_k (..., K).

    ``coincidences`` (..., K, K): n[u, c] (n[u, k] - [c = k]) / (m - 1); K is 0 where nobody asks for them.
    """

    same: Floats
    pairs: Floats
    weighed: Floats
    agreed: Floats
    items: Floats
    counts: Floats
    coincidences: Floats

    def drawn(self, weights: Floats) -> Sums:
        """weights (B, G): how often each group is drawn -> sums (B,)."""
        return Sums(*(np.tensordot(weights, column, 1) for column in self))


def _pairwise(sums: Sums) -> Statistic:
    def say(value: float) -> str:
        return f"Two labels of the same item are the same {percent(value)} of the time."

    return _estimate("Pairwise agreement", lambda drawn: _ratio(drawn.same, drawn.pairs), say, sums)


def _alpha(sums: Sums, ordered: bool) -> Statistic:
    def nominal(drawn: Sums) -> Floats:
        n = drawn.counts.sum(-1)
        by_chance = _ratio((drawn.counts * (drawn.counts - 1)).sum(-1), n * (n - 1))
        return _beyond_chance(_ratio(drawn.weighed, n), by_chance)

    def ordinal(drawn: Sums) -> Floats:
        n_k = drawn.coincidences.sum(-1)
        n, middle = n_k.sum(-1), n_k.cumsum(-1) - n_k / 2
        distance = np.square(middle[..., :, None] - middle[..., None, :])
        observed = _ratio((drawn.coincidences * distance).sum((-2, -1)), n)
        by_chance = _ratio((n_k[..., :, None] * n_k[..., None, :] * distance).sum((-2, -1)), n * (n - 1))
        return 1 - _ratio(observed, by_chance)

    def say(value: float) -> str:
        rule = (
            f"is reliable by Krippendorff's rule, which asks for {RELIABLE}"
            if value >= RELIABLE
            else f"allows tentative conclusions only; Krippendorff's rule asks for {RELIABLE}"
            if value >= TENTATIVE
            else f"is below the {TENTATIVE} that Krippendorff asks for even tentative conclusions"
        )
        return f"Between chance (0) and agreement (1), this {rule}."

    name = "Krippendorff's alpha" + (" (ordinal)" if ordered else "")
    return _estimate(name, ordinal if ordered else nominal, say, sums)


def _kappa(sums: Sums) -> Statistic:
    def compute(drawn: Sums) -> Floats:
        shares = _ratio(drawn.counts, drawn.counts.sum(-1, keepdims=True))
        return _beyond_chance(_ratio(drawn.agreed, drawn.items), np.square(shares).sum(-1))

    def say(value: float) -> str:
        strength = next((words for least, words in STRENGTH.items() if value > least), "No")
        return f"{strength} agreement beyond chance, as Landis and Koch call it."

    return _estimate("Fleiss' kappa", compute, say, sums)


def _beyond_chance(agreement: Floats, by_chance: Floats) -> Floats:
    return _ratio(agreement - by_chance, 1 - by_chance)


def _ratio(a: Floats, b: Floats) -> Floats:
    """NaN where there is nothing to divide by."""
    out: Floats = np.divide(a, b, out=np.full(np.broadcast_shapes(a.shape, b.shape), np.nan), where=b != 0)
    return out


# ---- sums over items, and the bootstrap ---------------------------------------------------------------------------


def _sums(ann: Annotations, coincidences: bool = False) -> Sums:
    """Of groups of items, (G,) each: of single items, if these are few enough."""
    K, size = ann.n_classes, np.bincount(ann.item, minlength=ann.n_items)
    use = size[ann.item] > 1
    cells, times = np.unique(ann.item[use] * K + ann.label[use], return_counts=True)
    items, item = np.unique(cells // K, return_inverse=True)
    label, m = cells % K, size[items].astype(np.float64)
    group = _groups(item, label, times, K)
    G = int(group.max()) + 1 if len(items) else 0

    def total(of_items: Floats) -> Floats:
        return np.asarray(np.bincount(group, of_items, G), dtype=np.float64)

    same = np.asarray(np.bincount(item, times * (times - 1.0), len(items)), dtype=np.float64)
    votes = csr_array((times.astype(np.float64), (item, label)), (len(items), K))
    belongs = csr_array((np.ones(len(items)), (group, np.arange(len(items)))), (G, len(items)))
    pairs = np.zeros((G, 0, 0))
    if coincidences:
        weighed = (votes.multiply(1 / (m - 1)[:, None])).tocsr()
        rows = [(belongs @ votes.multiply(weighed[:, [k]])).toarray() for k in range(K)]
        alone = (belongs @ weighed).toarray()
        pairs = np.stack(rows, axis=1) - alone[:, :, None] * np.eye(K)
    return Sums(
        same=total(same),
        pairs=total(m * (m - 1)),
        weighed=total(same / (m - 1)),
        agreed=total(same / (m * (m - 1))),
        items=total(np.ones(len(items))),
        counts=(belongs @ votes).toarray(),
        coincidences=pairs,
    )


def _groups(item: Positions, label: Positions, times: Positions, K: int) -> Positions:
    """(N,) the group of each item, by lot, and by what was said of it alone: neither its name nor its place matters."""
    random = np.random.default_rng(0)
    marks = random.integers(1 << 62, size=K, dtype=np.uint64)  # of an item, sums that only equal votes share
    n_items = int(item.max()) + 1 if len(item) else 0
    key = np.zeros(n_items, dtype=np.uint64)
    np.add.at(key, item, marks[label] * times.astype(np.uint64))
    group = np.empty(n_items, dtype=np.int64)
    n_groups = int(np.clip(AT_ONCE // K, FEWEST_GROUPS, GROUPS))
    group[np.argsort(key, kind="stable")] = random.permutation(n_items) % n_groups
    return group


def _estimate(name: str, compute: Callable[[Sums], Floats], say: Callable[[float], str], sums: Sums) -> Statistic:
    """The statistic of all items, and of `DRAWS` draws of as many."""
    G = len(sums.same)
    value = float(compute(sums.drawn(np.ones((1, G))))[0])
    if not np.isfinite(value):
        return Statistic(name, None, None, None, "There is none: no item has two labels, or all labels are the same.")
    weights = np.random.default_rng(0).multinomial(G, np.full(G, 1 / G), DRAWS).astype(np.float64)
    parts = np.array_split(weights, -(-DRAWS * sums.counts.shape[1] // AT_ONCE))
    drawn = np.concatenate([compute(sums.drawn(part)) for part in parts])
    low, high = np.nanquantile(drawn, [(1 - INTERVAL) / 2, (1 + INTERVAL) / 2]).tolist()
    return Statistic(name, value, low, high, say(value))
