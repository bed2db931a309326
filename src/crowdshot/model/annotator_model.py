"""Marginal likelihood of annotators' labels given the true classes, integrated over annotators' skills and kinds.

An annotator has a skill rho in [0, 1]: labels are right with probability q = 1/K + (1 - 1/K) rho, at most
`NEVER_WRONG`. The prior on skills lives on the grid `SKILLS`, so integrals over the posterior are sums:

    coin(right, wrong) = sum_rho p(rho) q^right (1 - q)^wrong

There are three kinds of annotators, with prior `P_KIND`:

    one coin    one skill for all classes; wrong labels are uniform over the other classes
    by class    an independent skill for every true class; wrong labels are uniform
    flips       one skill; for every true class, wrong labels have a distribution ~ Dirichlet(alpha)

All results are functions of counts (..., K true, K observed, M): how often the annotator labelled an item of one class
as another, under each of M labelings. The predictive probability of the next label y of an item of class k is

    one coin    a       if y = k, else (1 - a) / (K - 1)        a: E[q | all right and wrong labels]
    by class    a_k     if y = k, else (1 - a_k) / (K - 1)      a_k: E[q | labels of items of class k]
    flips       a       if y = k, else (1 - a) (alpha + times y was given for k) / ((K - 1) alpha + errors on class k)

Functions of the numbers of right and wrong labels are tabulated; their index, right * side + wrong, is called a
*place*.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from crowdshot.model.array_api import Array, ArrayApi

SKILLS = tuple(i / 11 for i in range(12))
NEVER_WRONG = 0.995  # upper bound of q: nobody is never wrong
KINDS = ("one coin", "by class", "flips")

# Trained by gradient descent on the query loss of episodes whose crowds mix experts, hammers, spammers, flippers and
# class-wise spammers. Embeddings of characters and of photographs gave values that agree to about 0.03
# (docs/research/beyond-details.md describes these episodes).
P_SKILL = (0.12, 0.10, 0.07, 0.06, 0.06, 0.08, 0.10, 0.11, 0.10, 0.08, 0.06, 0.06)
P_KIND = (0.45, 0.37, 0.18)
ALPHA = 0.5


@dataclass(frozen=True)
class Tables:
    """Tables indexed by places. Those of twice the length hold values for wrong labels from ``missed`` on."""

    K: int
    side: int
    coin: Array  # log coin(right, wrong)
    next: Array  # a; then (1 - a) / (K - 1)
    repeated: Array  # 1 / alpha; then (K - 1) / ((K - 1) alpha + wrong): ratio of flips to one coin, per alpha + times
    alpha: Array  # ()
    log_alike: Array  # of n: log-probability of n wrong labels that are uniform over the other classes
    log_rising: Array  # of n: log Γ(alpha + n) / Γ(alpha)
    log_rising_all: Array  # the same for (K - 1) alpha
    start: Array | None = None  # (2, ..., R): first place of each annotator, for all labels and for those of a class

    @property
    def missed(self) -> int:
        return self.side * self.side


def tables_for(most: int, K: int, api: ArrayApi, history: Tensor | None = None) -> Tables:
    """Return tables for annotators with up to ``most`` labels.

    ``history`` (..., R, 2): labels of each annotator that were right and wrong elsewhere. They change the prior on the
    annotator's skill, so each distinct history has its own tables, which begin at `Tables.start`. The classes of these
    labels are unknown; for skills by class they are divided evenly.
    """
    side = 1 << most.bit_length()  # few distinct sizes, so that cached tables are reused
    if history is None:
        return _tables(side, K, ((0.0, 0.0),), api)
    counts = history.double().cpu().numpy()
    pairs = np.stack([counts, counts / K])
    distinct, which = np.unique(pairs.reshape(-1, 2), axis=0, return_inverse=True)
    start = api.array(torch.from_numpy(2 * side * side * which.reshape(pairs.shape[:-1])))
    return replace(_tables(side, K, tuple(map(tuple, distinct.tolist())), api), start=start)


@lru_cache(maxsize=16)
def _tables(side: int, K: int, histories: tuple[tuple[float, ...], ...], api: ArrayApi) -> Tables:
    """Return the tables of all histories, one after the other."""
    number = np.arange(side)
    coin, following = zip(*(_coin(side, K, *history) for history in histories), strict=True)
    repeated = np.tile((K - 1) / ((K - 1) * ALPHA + number), side)
    repeated = np.tile(np.concatenate([np.full(side**2, 1 / ALPHA), repeated]), len(histories))
    rising = (np.cumsum(np.log(np.concatenate([[1.0], alpha + number[:-1]]))) for alpha in (ALPHA, (K - 1) * ALPHA))
    joined = np.concatenate(coin), np.concatenate(following), repeated
    found = *joined, np.array(ALPHA), -number * np.log(K - 1), *rising
    return Tables(K, side, *(api.array(torch.from_numpy(x)) for x in found))


def _coin(side: int, K: int, earlier_right: float, earlier_wrong: float) -> tuple[Array, Array]:
    """Return by places: log coin, twice, to match the second table's length; and a, then (1 - a) / (K - 1)."""
    q = np.minimum(1 / K + (1 - 1 / K) * np.array(SKILLS), NEVER_WRONG)
    prior = np.log(P_SKILL) + earlier_right * np.log(q) + earlier_wrong * np.log(1 - q)
    prior -= np.logaddexp.reduce(prior)
    number = np.arange(side)
    chances = prior + number[:, None, None] * np.log(q) + number[:, None] * np.log(1 - q)  # (right, wrong, skills)
    top = chances.max(-1)
    np.exp(chances - top[..., None], out=chances)
    total = chances.sum(-1)
    coin, a = (np.log(total) + top).ravel(), (chances @ q / total).ravel()
    return np.concatenate([coin, coin]), np.concatenate([a, (1 - a) / (K - 1)])


def next_label(places: Array, times: Array, tables: Tables) -> tuple[Array, Array]:
    """Return p(label | class, kind): (2, ...) for one coin and by class, (...) for flips.

    ``places`` (2, ...) are those of all labels and of labels of items of the class, plus `Tables.missed` for wrong
    labels. ``times`` (...): earlier labels of the annotator with the same true and observed class; 0 for right labels.
    """
    p = tables.next.take(places)
    flips = times + tables.alpha
    flips *= tables.repeated.take(places[1])
    flips *= p[0]
    return p, flips


def judge(counts: Array, tables: Tables, api: ArrayApi) -> tuple[Array, Array]:
    """Return p(kind | labels), (3, ..., M), and log p(labels), (..., M), given classes, from counts (..., K, K, M)."""
    xp = api.xp
    overall, by_class, mistakes = _places(counts, tables, api)
    wrong = mistakes.sum(-2)
    coin, coins = tables.coin.take(overall), tables.coin.take(by_class).sum(-2)
    alike = tables.log_alike.take(wrong.sum(-2))
    flips = tables.log_rising.take(mistakes).sum(-2).sum(-2) - tables.log_rising_all.take(wrong).sum(-2)
    kinds = coin + alike, coins + alike, coin + flips
    joint = xp.stack([kind + math.log(p) for kind, p in zip(kinds, P_KIND, strict=True)])
    evidence = xp.logaddexp(xp.logaddexp(joint[0], joint[1]), joint[2])
    return xp.exp(joint - evidence), evidence


def expected_confusion(counts: Array, tables: Tables, api: ArrayApi) -> Array:
    """Return annotators' confusion matrices averaged over skills and kinds, (..., K, K, M)."""
    other = 1 - api.eye(tables.K)[..., None]
    overall, by_class, mistakes = _places(counts, tables, api)
    places = api.xp.stack([overall[..., None, None, :] + 0 * counts, by_class[..., None, :] + 0 * counts])
    p, flips = next_label(places + other * tables.missed, mistakes, tables)
    kinds = judge(counts, tables, api)[0][..., None, None, :]
    return (kinds[:2] * p).sum(0) + kinds[2] * flips


def _places(counts: Array, tables: Tables, api: ArrayApi) -> tuple[Array, Array, Array]:
    """Return places of all labels, (..., M), and of those of each class, (..., K, M); and counts of wrong labels."""
    mistakes = counts * (1 - api.eye(tables.K)[..., None])
    labels, wrong = counts.sum(-2), mistakes.sum(-2)
    by_class = (labels - wrong) * tables.side + wrong
    overall = by_class.sum(-2)
    if tables.start is not None:
        overall, by_class = overall + tables.start[0][..., None], by_class + tables.start[1][..., None, None]
    return overall, by_class, mistakes


def counts_of(labelings: Array, labels: Array, K: int, api: ArrayApi) -> Array:
    """Count annotators' labels by true and observed class, (B, R, K true, K observed, M) int.

    The true classes are those of labelings (B, M, N); labels are (B, N, R).
    """
    (B, M, _), R = labelings.shape, labels.shape[-1]
    annotator, observed = (x[..., None] for x in compact(labels, api))  # (B, N, L, 1)
    annotator = api.numbers(B, 1, 1, 1) * R + annotator
    true = api.xp.swapaxes(labelings, 1, 2)[:, :, None]  # (B, N, 1, M)
    at = ((annotator * K + true) * K + observed) * M + api.numbers(M)
    present = at[api.xp.broadcast_to(observed >= 0, at.shape)]
    return api.xp.bincount(present, minlength=B * R * K * K * M).reshape(B, R, K, K, M)


def evidence_of_each(labelings: Array, labels: Array, K: int, api: ArrayApi, history: Tensor | None = None) -> Array:
    """Return log p(labels of item n | its class, all other items and labels), (N, K, M), for labelings (M, N)."""
    xp, classes = api.xp, api.numbers(K, 1)
    tables = tables_for(int((labels >= 0).sum(0).max()), K, api, history)
    counts = counts_of(labelings[None], labels[None], K, api)[0]  # (R, K, K, M)
    kinds, _ = judge(counts, tables, api)
    overall, by_class, _ = _places(counts, tables, api)
    found = []
    for i in range(len(labels)):
        annotator = (labels[i] >= 0).nonzero()[0] if xp is np else (labels[i] >= 0).nonzero()[:, 0]
        label, true = labels[i][annotator][:, None], labelings[:, i]  # (L, 1), (M,)
        is_true, hit, missed = classes == true, label == true, label[..., None] != classes  # (K, M), (L, M), (L, K, 1)
        less = xp.where(hit, tables.side, 1)  # leaves out the item itself
        places = xp.stack(
            [(overall[annotator] - less)[:, None] + 0 * is_true, by_class[annotator] - less[:, None] * is_true]
        )
        times = (counts[annotator, :, label[:, 0]] - 1 * is_true) * missed
        p, flips = next_label(places + missed * tables.missed, times, tables)
        p = xp.concatenate([p, flips[None]])  # (3, L, K, M)
        kinds_without = kinds[:, annotator] / (p * is_true).sum(2)  # p(kind) without the item's labels, up to a factor
        found.append(xp.log((kinds_without[:, :, None] * p).sum(0) / kinds_without.sum(0)[:, None]).sum(0))
    return xp.stack(found)


def compact(labels: Array, api: ArrayApi) -> tuple[Array, Array]:
    """Return annotators and labels of each item, (..., L) each, from labels (..., R).

    L is the largest number of labels of an item; missing labels are -1.
    """
    present = labels >= 0
    if present.all():
        return api.xp.broadcast_to(api.numbers(labels.shape[-1]), labels.shape), labels
    most = max(1, int(present.sum(-1).max()))
    annotator = api.sorted_places(~present)[..., :most]
    return annotator, api.along(labels, annotator)


# ---- counts in a beam search ----


TOGETHER = 16  # probabilities multiplied before a logarithm is taken; more could underflow


class AnnotatorCounts:
    """The counts of each annotator in every labeling kept, updated item by item.

    Counts of an annotator are the numbers of right and wrong labels, overall and for each true class, as places in
    `Tables`, and p(kind | labels). Counts of an annotator and an observed class are the numbers of errors by true
    class.

    Counts are updated only when the annotator labels an item. ``past`` gives, for each labeling kept now, the labeling
    and class from which it descends at the annotator's previous label. A step therefore costs K numbers for each label,
    however many annotators there are.
    """

    def __init__(self, api: ArrayApi, labels: Array, M: int, K: int, history: Tensor | None = None) -> None:
        """Prepare the search over labels (B, n, R), in the order in which items are added."""
        tables = tables_for(int((labels >= 0).sum(1).max()), K, api, history)
        self.api, self.M, side, (B, n, R) = api, M, tables.side, labels.shape
        xp, numbers = api.xp, api.numbers
        who, observed = (xp.moveaxis(x, 0, -1) for x in compact(labels, api))  # (n, L, B)
        L, present = who.shape[1], observed >= 0
        self.present, self.complete = present[..., None, None], present.all(-1).all(-1).tolist()
        who = xp.where(present, who, R) + (R + 1) * numbers(B)  # R means a missing label
        observed = xp.where(present, observed, 0)
        place = who
        who, n_who, last = repeats(api, who)
        cell, n_cells, last_in_cell = repeats(api, who * K + observed)

        # counts, in rows of M: places of all labels, places by class, and errors
        self.counts = api.full((n_who * (1 + K) + n_cells * K, M), 0)
        if tables.start is not None:
            start = api.full((2, B, R + 1), 0)
            start[..., :R] = tables.start
            begin = api.full((2, n_who), 0)
            begin[:, who.reshape(-1)] = start.reshape(2, -1)[:, place.reshape(-1)]
            self.counts[:n_who] += begin[0][:, None]
            self.counts[n_who : n_who * (1 + K)] += begin[1][numbers(n_who * K) // K][:, None]
        rows = [who[..., None] + 0 * numbers(K), n_who + who[..., None] * K + numbers(K)]
        rows.append(n_who * (1 + K) + cell[..., None] * K + numbers(K))
        self.rows = xp.stack(rows, 1).reshape(n, -1)  # (n, 3 L B K)
        # p(kind), in rows of K M
        self.kinds = xp.concatenate([api.full((n_who, K * M), p) for p in P_KIND])
        self.kind_rows = (numbers(3, 1, 1) * n_who + who[:, None]).reshape(n, -1)  # (n, 3 L B)

        # what a label adds to the counts, by true class: a row for each kind of row, class, and label or none
        row, column, label, true = numbers(3, 1, 1, 1), numbers(K, 1, 1), numbers(K + 1, 1), numbers(K)
        more = xp.where(row < 2, xp.where(label == true, side, 1), 1 * (label != true))
        self.more = (more * (((row == 0) | (column == true)) & (label < K))).reshape(-1, K)
        before = xp.where(present[:, None], xp.stack([last, last, last_in_cell], 1), -1)  # (n, 3, L, B)
        label = xp.where(before < 0, K, observed.reshape(-1)[before])
        self.more_rows = ((numbers(3, 1, 1, 1) * K + numbers(K)) * (K + 1) + label[..., None]).reshape(n, -1)
        item = xp.where(before < 0, 0, before // (L * B) + 1)[:, 1:, :, None]  # (n, 2, L, 1, B), 0 for none
        self.items = (item * 3 + numbers(3, 1)) * B + numbers(B)  # (n, 2, L, 3, B)

        self.tables, self.missed = tables, api.filled(numbers(2, 1) * tables.missed, (2, M))
        missed = 1 * (observed[..., None] != numbers(K))  # (n, L, B, K)
        self.missed_rows = xp.stack([missed, missed], 1).reshape(n, -1)

        # indices of (3, L, B, K, M): into (2, L, 3, B, M), where a labeling's parent, class and child are, and the rows
        # of the counts, of what a label adds, and of the kinds, to which these are added
        shape = 3, L, B, K, M
        label, labeling, place = numbers(L, 1, 1, 1), numbers(B, 1, M), numbers(3, L, B, K, 1)
        true = api.filled((numbers(3, 1, 1, 1, 1) // 2 * L + label) * (3 * B * M) + labeling, shape)
        child = api.filled((label * 3 + 2) * (B * M) + labeling, shape)
        self.in_past = xp.stack([true + B * M, true, child])
        self.in_rows = xp.stack([api.filled(each, shape) for each in (place * M, place * K, place // K * (K * M))])

    def gain(self, i: int, past: Array) -> Array:
        """Return log p(labels of the i-th item | its class, earlier items), (B, K, M), and update the counts."""
        api, M, rows, kind_rows = self.api, self.M, self.rows[i], self.kind_rows[i]
        previous = api.rows(past.reshape(-1, M), self.items[i])  # (2, L, 3, B, M)
        parent, true, child = previous.take(self.in_past) + self.in_rows
        counts = api.rows(self.counts, rows).take(parent)
        counts += api.rows(self.more, self.more_rows[i]).take(true)
        self.counts[rows] = counts.reshape(-1, M)
        kinds = api.rows(self.kinds, kind_rows).take(child)

        places = counts[:2] + api.rows(self.missed, self.missed_rows[i]).reshape(counts[:2].shape)
        p, flips = next_label(places, counts[2], self.tables)
        kinds[:2] *= p
        kinds[2] *= flips
        p = kinds.sum(0)
        kinds /= p
        self.kinds[kind_rows] = kinds.reshape(len(kind_rows), -1)
        if not self.complete[i]:
            p = api.xp.where(self.present[i], p, 1.0)
        found = api.xp.log(p[:TOGETHER].prod(0))
        for j in range(TOGETHER, len(p), TOGETHER):
            found += api.xp.log(p[j : j + TOGETHER].prod(0))
        return found


def repeats(api: ArrayApi, keys: Array) -> tuple[Array, int, Array]:
    """Return keys renumbered from 0, their number, and the flat index of each key's previous occurrence, or -1."""
    flat = keys.reshape(-1)
    order = api.sorted_places(flat)
    flat = flat[order]
    new = flat[1:] != flat[:-1]
    number, before = api.full(order.shape, 0), api.full(order.shape, -1)
    number[order[1:]] = new.cumsum(0)
    before[order[1:]] = api.xp.where(new, -1, order[:-1])
    return number.reshape(keys.shape), int(number.max()) + 1, before.reshape(keys.shape)
