"""Compare groups of items, or of people: accuracy, agreement, and how groups of people label the same items.

- **Accuracy**: the labels of a group are judged as if they were those of one annotator (`annotator_quality.judge`). The
  estimate of a small group is drawn to the mean of all groups.
- **Agreement**: for groups of items, that of two labels of the same item. For groups of people, that of two people of
  the group.
- **Perspectives**: on items that people of several groups labelled, the mean over items of the share of each class
  among a group's labels. If groups differ, there may be more than one truth.

Whether groups of people label the same items differently is tested by permutation: people are distributed to groups of
the same sizes at random, `DRAWS` times. With n_gk labels of class k by group g for an item, the variation between
groups and its mean over random orders of the item's labels are

    V = Σ_g Σ_k (n_gk - n_g n_k / n)² / n_g,   E = (groups - 1) (1 - Σ_k n_k² / n²) n / (n - 1)

There are two statistics: the excess Σ (V - E) / Σ E over items, and the groups' preferences for classes over all items,
Σ_g Σ_k (Σ_n n_gk - n_g n_k / n)² / variance_g. Both compare groups only on items that they share, so it does not matter
how many items those are, for real or random groups. The p-value is twice the smaller one. A person keeps all labels, so
the test allows for people who label in their own way, whatever their group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from scipy.sparse import csr_array

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing
from crowdshot.io.cells import Positions, as_index
from crowdshot.labels.agreement import Statistic, krippendorff_alpha, pairwise_agreement
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import Floats, Share, is_accepted
from crowdshot.labels.judge_quality import RightShare, judge_groups

SMALL = 30  # labels below which a group is called small
DRAWS = 999
MOST_GROUPS = 50
MOST_LABELS = 100_000  # in the permutation test; with more, every k-th item is used
ALPHA = 0.05

Kind = Literal["items", "people", "labels"]


class ClassShare(NamedTuple):
    """The share of a class among a group's labels, the mean over items, with its 90 % interval."""

    name: str
    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Group:
    """A group of items, of people or of labels.

    Attributes
    ----------
    name : str
    items, people : int
        How many items have a label of the group, and how many people gave one.
    right : RightShare
        The labels, and how many of them are right.
    agreement, alpha : Statistic
        Pairwise agreement and Krippendorff's alpha.
    accepted : float
        The share of the items that are accepted.
    shares : list of ClassShare
        The perspective of a group of people, else the shares of all labels.
    small : bool
        Whether the group has fewer than `SMALL` labels.
    """

    name: str
    items: int
    people: int
    right: RightShare
    agreement: Statistic
    alpha: Statistic
    accepted: float
    shares: list[ClassShare]
    small: bool


@dataclass(frozen=True)
class Perspectives:
    """Whether groups of people label the same items differently: shared items, p-value, items that differ most."""

    items: int
    p: float
    differing: list[DifferingItem]

    @property
    def differ(self) -> bool:
        return self.p < ALPHA


class DifferingItem(NamedTuple):
    """An item with the labels of each group, ``{group: {class: number}}``, and its part of the statistic."""

    item: str
    variation: float
    labels: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Subgroups:
    """The groups by the values of a column; ``unknown`` labels have no value."""

    by: str
    of: Kind
    groups: list[Group]
    unknown: int
    perspectives: Perspectives | None


def kind_of(ann: Annotations, group: Positions) -> Kind:
    """Return whether the groups of labels (L,), -1 for none, are groups of items, of people or just of labels."""
    for kind, ids in (("items", ann.item), ("people", ann.annotator)):
        pairs = np.unique(np.stack([ids, group])[:, group >= 0], axis=1)
        if len(np.unique(pairs[0])) == pairs.shape[1]:
            return "items" if kind == "items" else "people"
    return "labels"


def compare_groups(
    ann: Annotations, posterior: Floats, by: str, values: Sequence[str], group: Positions, ordered: bool = False
) -> Subgroups:
    """Compare the groups of labels.

    Parameters
    ----------
    ann : Annotations
    posterior : array of shape (N, K)
        Class probabilities of the items.
    by : str
        The column.
    values : sequence of str
        The names of the groups.
    group : array of shape (L,)
        The group of each label, a position in ``values``; -1 for none.
    ordered : bool
        Whether classes are sorted from the lowest to the highest.
    """
    if not 2 <= len(values) <= MOST_GROUPS:
        message = f"has {len(values)} different values in the column {by!r}: {listing(values, 5)}"
        raise CrowdshotError(message, argument="by", found=len(values), expected=f"2 to {MOST_GROUPS}")
    known = group >= 0
    kind = kind_of(ann, group)
    right = judge_groups(ann.item[known], ann.label[known], group[known], len(values), posterior)
    accepted = is_accepted(posterior.max(1))
    shared = _shared_items(ann, group) if kind == "people" else None
    groups = []
    for place, name in enumerate(values):
        labels = ann.keep(group == place)
        items = np.unique(labels.item)
        groups.append(
            Group(
                name,
                len(items),
                len(np.unique(labels.annotator)),
                right[place],
                pairwise_agreement(labels),
                krippendorff_alpha(labels, ordered),
                float(accepted[items].mean()),
                _shares(labels if shared is None else labels.keep(shared[labels.item])),
                right[place].labels < SMALL,
            )
        )
    perspectives = None if shared is None else _perspectives(ann, values, group, shared)
    return Subgroups(by, kind, groups, int((~known).sum()), perspectives)


def _shared_items(ann: Annotations, group: Positions) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return which items (N,) have labels of two groups or more."""
    known = group >= 0
    pairs = np.unique(np.stack([ann.item[known], group[known]]), axis=1)
    out: np.ndarray[tuple[int, ...], np.dtype[np.bool_]] = np.bincount(pairs[0], minlength=ann.n_items) > 1
    return out


def _shares(ann: Annotations) -> list[ClassShare]:
    """Return the share of each class, the mean over items with a label."""
    votes = ann.vote_counts()
    size = votes.sum(1)
    of_items = votes[size > 0] / size[size > 0][:, None]
    found = [Share.of_all(of_items[:, k]) for k in range(ann.n_classes)]
    names = [str(name) for name in ann.classes]
    return [ClassShare(n, s.share, s.low, s.high) for n, s in zip(names, found, strict=True) if s is not None]


# ---- perspectives ----


def _perspectives(
    ann: Annotations,
    values: Sequence[str],
    group: Positions,
    shared: np.ndarray[tuple[int, ...], np.dtype[np.bool_]],
) -> Perspectives | None:
    keep = shared[ann.item] & (group >= 0)
    if not keep.any():
        return None
    labels, of_label = ann.keep(keep), group[keep]
    items, item = np.unique(labels.item, return_inverse=True)
    size = (len(items), len(values), ann.n_classes)
    p = _permutation_test(ann.keep(group >= 0), group[group >= 0], len(values))
    each = variation(item, of_label, labels.label, size)
    most = np.argsort(-each, kind="stable")[:20]
    differing = [
        DifferingItem(str(ann.items[items[n]]), float(each[n]), _counts(labels, of_label, item == n, values))
        for n in most
        if each[n] > 0
    ]
    return Perspectives(len(items), p, differing)


def _permutation_test(ann: Annotations, group: Positions, n_groups: int) -> float:
    """Return the p-value of the labels (L,) of groups of people; items with one label say nothing."""
    several = np.bincount(ann.item, minlength=ann.n_items) > 1
    rows = several[ann.item]
    labels = ann.keep(rows)
    items, item = np.unique(labels.item, return_inverse=True)
    every = -(-labels.n_labels // MOST_LABELS)
    tested = item % every == 0
    item, person, label = item[tested] // every, labels.annotator[tested], labels.label[tested]
    of_person = np.full(ann.n_annotators, -1, dtype=np.int64)
    of_person[ann.annotator] = group
    people = np.unique(person)
    statistics = group_statistics(item, person, label, (-(-len(items) // every), n_groups, ann.n_classes))
    observed, shuffled = statistics(of_person), of_person.copy()
    random = np.random.default_rng(0)
    at_least = np.zeros(2)
    for _ in range(DRAWS):
        shuffled[people] = random.permutation(of_person[people])
        at_least += statistics(shuffled) >= observed - 1e-9
    return float(min(2 * (1 + at_least.min()) / (1 + DRAWS), 1.0))


def group_statistics(
    item: Positions, person: Positions, label: Positions, size: tuple[int, int, int]
) -> Callable[[Positions], Floats]:
    """Return a function of the groups of people (R,) with both statistics of these labels; ``size`` is (N, G, K)."""
    N, G, K = size
    n_k = np.bincount(item * K + label, minlength=N * K).reshape(N, K)
    n = n_k.sum(1)
    share = n_k / n[:, None]
    unequal = (1 - np.square(share).sum(1)) * n / np.maximum(n - 1, 1)
    people, place = np.unique(person, return_inverse=True)
    items_of = csr_array((np.ones(len(item)), (place, item)), (len(people), N))
    surplus = np.bincount(place * K + label, minlength=len(people) * K).reshape(-1, K) - items_of @ share

    def statistics(group: Positions) -> Floats:
        cells, n_g = np.unique(item * G + group[person], return_counts=True)
        of_cell, of_group = cells // G, cells % G
        expected = float(unequal[of_cell].sum() - unequal.sum())
        between = float(variation(item, group[person], label, size).sum())
        variance = np.bincount(of_group, n_g * (n[of_cell] - n_g) * unequal[of_cell] / n[of_cell], G)
        total = np.zeros((G, K))
        np.add.at(total, group[people], surplus)
        preference = np.square(total).sum(1)[variance > 1e-9] / variance[variance > 1e-9]
        return np.array([(between - expected) / expected if expected > 1e-9 else 0.0, preference.sum()])

    return statistics


def variation(item: Positions, group: Positions, label: Positions, size: tuple[int, int, int]) -> Floats:
    """Return the variation between groups of each item (N,); ``size`` is (N, G, K)."""
    N, G, K = size
    cells, n_gk = np.unique((item * G + group) * K + label, return_counts=True)
    n_g = np.bincount(item * G + group, minlength=N * G).astype(np.float64)
    n_k = np.bincount(item * K + label, minlength=N * K).astype(np.float64)
    n = np.bincount(item, minlength=N).astype(np.float64)
    squares = np.bincount(cells // (G * K), n_gk**2 / n_g[cells // K], N)
    # Σ_gk (n_gk - n_g n_k / n)² / n_g = Σ_gk n_gk² / n_g - Σ_k n_k² / n
    out: Floats = squares - np.square(n_k).reshape(N, K).sum(1) / np.maximum(n, 1)
    return out


def _counts(
    ann: Annotations, group: Positions, rows: np.ndarray[tuple[int, ...], np.dtype[np.bool_]], values: Sequence[str]
) -> dict[str, dict[str, int]]:
    out: dict[str, dict[str, int]] = {}
    for g, k in zip(group[rows].tolist(), ann.label[rows].tolist(), strict=True):
        of_group = out.setdefault(values[g], {})
        of_group[str(ann.classes[k])] = of_group.get(str(ann.classes[k]), 0) + 1
    return out


def label_distributions(ann: Annotations, values: Sequence[str], group: Positions) -> pd.DataFrame:
    """Return the label distribution of each item by each group: item, group, n_labels, and the share of each class."""
    known = group >= 0
    G, K = len(values), ann.n_classes
    cell = ann.item[known] * G + group[known]
    cells, place = np.unique(cell, return_inverse=True)
    counts = np.bincount(place * K + ann.label[known], minlength=len(cells) * K).reshape(-1, K)
    n_labels = counts.sum(1)
    names = [f"p_{name}" for name in ann.classes.tolist()]
    column = ann.columns.item if ann.columns.item not in ("group", "n_labels", *names) else "item"
    table = pd.DataFrame(
        {
            column: as_index(ann.items).take(cells // G),
            "group": [values[g] for g in (cells % G).tolist()],
            "n_labels": n_labels,
        }
    )
    shares = {name: counts[:, k] / n_labels for k, name in enumerate(names)}
    return pd.concat([table, pd.DataFrame(shares)], axis=1)


def groups_of_ids(ids: Sequence[str], value_of: Mapping[str, str]) -> tuple[list[str], Positions]:
    """Return the different values and the value's position of each id, -1 for ids without one."""
    values = sorted({value_of[name] for name in ids if value_of.get(name)})
    place = {value: position for position, value in enumerate(values)}
    return values, np.array([place.get(value_of.get(name, ""), -1) for name in ids], dtype=np.int64)


def without_empty(found: Subgroups) -> Subgroups:
    """Leave out groups without labels."""
    return replace(found, groups=[each for each in found.groups if each.right.labels])
