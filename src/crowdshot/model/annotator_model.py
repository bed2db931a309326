"""What annotators are like, integrated over: how probable a crowd's labels are if the true classes were known.

An annotator has a skill rho, from 0 (guesses) to 1 (never wrong): right with probability q = 1/K + (1 - 1/K) rho. On
the grid `SKILLS` any posterior about skills is integrated by a sum:

    coin(right, wrong) = sum_rho p(rho) q^right (1 - q)^wrong

Annotators come in three kinds, and are summed over these too:

    one coin    one skill for all classes; a wrong label is any other class, all alike
    by class    a skill for every class, drawn apart
    flips       one skill; for every true class, wrong labels have a distribution of their own, ~ Dirichlet(alpha)

Everything is a function of counts (..., K true, K observed, M): how often the annotator called what by what, in each of
M labelings. The next label y of an item of class k is, by an annotator of one of these kinds,

    one coin    a       if y = k, else (1 - a) / (K - 1)        a: q as expected after all right and wrong labels
    by class    a_k     if y = k, else (1 - a_k) / (K - 1)      a_k: the same after those of items of class k
    flips       a       if y = k, else (1 - a) (alpha + times k was called y) / ((K - 1) alpha + times k was mistaken)

Numbers of right and wrong labels are looked up in tables, at a *place*, ``right * side + wrong``.
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
NEVER_WRONG = 0.995  # nobody is
KINDS = ("one coin", "by class", "flips")

# Learned by gradient on episodes whose crowds mix experts, hammers, spammers, flippers and class-wise spammers, through
# the loss of the queries, on embeddings of characters and of photographs, which agree to about 0.03;
# which these were is told in docs/beyond-details.md.
P_SKILL = (0.12, 0.10, 0.07, 0.06, 0.06, 0.08, 0.10, 0.11, 0.10, 0.08, 0.06, 0.06)
P_KIND = (0.45, 0.37, 0.18)
ALPHA = 0.5


@dataclass(frozen=True)
class Tables:
    """By places, and from ``missed`` on by places for a label that is not the class."""

    K: int
    side: int
    coin: Array  # its logarithm
    next: Array  # a; then (1 - a) / (K - 1)
    repeated: Array  # 1 / alpha; then (K - 1) / ((K - 1) alpha + wrong): of flips against one coin, times alpha + times
    alpha: Array  # ()
    log_alike: Array  # of n wrong labels: log p of these ones, if all were alike
    log_rising: Array  # of n: log Γ(alpha + n) / Γ(alpha)
    log_rising_all: Array  # the same for (K - 1) alpha
    start: Array | None = None  # (2, ..., R): where annotators' places begin, of all labels and of those of a class

    @property
    def missed(self) -> int:
        return self.side * self.side


def tables_for(most: int, K: int, ways: ArrayApi, history: Tensor | None = None) -> Tables:
    """For annotators of up to ``most`` labels, as arrays.

    ``history`` (..., R, 2): how many labels of each annotator were right and wrong elsewhere. That changes what is
    believed of their skill before anything is seen, so that they have tables of their own, which `start` leads to. Of
    which classes these were is not known: where a skill is a class's own, they are shared out evenly.
    """
    side = 1 << most.bit_length()  # few sizes, so that they need not be made again
    if history is None:
        return _tables(side, K, ((0.0, 0.0),), ways)
    counts = history.double().cpu().numpy()
    both = np.stack([counts, counts / K])
    different, which = np.unique(both.reshape(-1, 2), axis=0, return_inverse=True)
    start = ways.array(torch.from_numpy(2 * side * side * which.reshape(both.shape[:-1])))
    return replace(_tables(side, K, tuple(map(tuple, different.tolist())), ways), start=start)


@lru_cache(maxsize=16)
def _tables(side: int, K: int, told: tuple[tuple[float, ...], ...], ways: ArrayApi) -> Tables:
    """One after the other for each pair of right and wrong labels that was ``told`` beforehand."""
    number = np.arange(side)
    coin, following = zip(*(_coin(side, K, *before) for before in told), strict=True)
    repeated = np.tile((K - 1) / ((K - 1) * ALPHA + number), side)
    repeated = np.tile(np.concatenate([np.full(side**2, 1 / ALPHA), repeated]), len(told))
    rising = (np.cumsum(np.log(np.concatenate([[1.0], alpha + number[:-1]]))) for alpha in (ALPHA, (K - 1) * ALPHA))
    joined = np.concatenate(coin), np.concatenate(following), repeated
    found = *joined, np.array(ALPHA), -number * np.log(K - 1), *rising
    return Tables(K, side, *(ways.array(torch.from_numpy(x)) for x in found))


def _coin(side: int, K: int, right_before: float, wrong_before: float) -> tuple[Array, Array]:
    """By places: the coin's logarithm, twice, so that it is as long as the other; and a, then (1 - a) / (K - 1)."""
    q = np.minimum(1 / K + (1 - 1 / K) * np.array(SKILLS), NEVER_WRONG)
    prior = np.log(P_SKILL) + right_before * np.log(q) + wrong_before * np.log(1 - q)
    prior -= np.logaddexp.reduce(prior)
    number = np.arange(side)
    chances = prior + number[:, None, None] * np.log(q) + number[:, None] * np.log(1 - q)  # (right, wrong, skills)
    top = chances.max(-1)
    np.exp(chances - top[..., None], out=chances)
    total = chances.sum(-1)
    coin, a = (np.log(total) + top).ravel(), (chances @ q / total).ravel()
    return np.concatenate([coin, coin]), np.concatenate([a, (1 - a) / (K - 1)])


def next_label(places: Array, times: Array, tables: Tables) -> tuple[Array, Array]:
    """p(label | class, kind), (2, ...) for one coin and by class, (...) for flips.

    ``places`` (2, ...) of all labels and of those of items of the class, in the part of the tables for labels that are
    the class or are not. ``times`` (...) the class was called so before; 0 where it is the class.
    """
    p = tables.next.take(places)
    flips = times + tables.alpha
    flips *= tables.repeated.take(places[1])
    flips *= p[0]
    return p, flips


def judge(counts: Array, tables: Tables, ways: ArrayApi) -> tuple[Array, Array]:
    """Annotators by their counts (..., K, K, M), ints: p(kind), (3, ..., M), and log p(labels | classes), (..., M)."""
    xp = ways.xp
    everything, by_class, mistakes = _places(counts, tables, ways)
    wrong = mistakes.sum(-2)
    coin, coins = tables.coin.take(everything), tables.coin.take(by_class).sum(-2)
    alike = tables.log_alike.take(wrong.sum(-2))
    flips = tables.log_rising.take(mistakes).sum(-2).sum(-2) - tables.log_rising_all.take(wrong).sum(-2)
    kinds = coin + alike, coins + alike, coin + flips
    joint = xp.stack([kind + math.log(p) for kind, p in zip(kinds, P_KIND, strict=True)])
    evidence = xp.logaddexp(xp.logaddexp(joint[0], joint[1]), joint[2])
    return xp.exp(joint - evidence), evidence


def expected_confusion(counts: Array, tables: Tables, ways: ArrayApi) -> Array:
    """Annotators' confusion matrices, averaged over skills and kinds: (..., K, K, M)."""
    other = 1 - ways.eye(tables.K)[..., None]
    everything, by_class, mistakes = _places(counts, tables, ways)
    places = ways.xp.stack([everything[..., None, None, :] + 0 * counts, by_class[..., None, :] + 0 * counts])
    p, flips = next_label(places + other * tables.missed, mistakes, tables)
    kinds = judge(counts, tables, ways)[0][..., None, None, :]
    return (kinds[:2] * p).sum(0) + kinds[2] * flips


def _places(counts: Array, tables: Tables, ways: ArrayApi) -> tuple[Array, Array, Array]:
    """Of all labels (..., M) and of those of each true class (..., K, M), by counts; and counts without right ones."""
    mistakes = counts * (1 - ways.eye(tables.K)[..., None])
    labels, wrong = counts.sum(-2), mistakes.sum(-2)
    by_class = (labels - wrong) * tables.side + wrong
    everything = by_class.sum(-2)
    if tables.start is not None:
        everything, by_class = everything + tables.start[0][..., None], by_class + tables.start[1][..., None, None]
    return everything, by_class, mistakes


def counts_of(labelings: Array, labels: Array, K: int, ways: ArrayApi) -> Array:
    """How often annotators called what by what, if labelings were true: (B, R, K true, K observed, M) int.

    Labelings (B, M, N), labels (B, N, R).
    """
    (B, M, _), R = labelings.shape, labels.shape[-1]
    who, said = (x[..., None] for x in compact(labels, ways))  # (B, N, L, 1)
    annotator = ways.numbers(B, 1, 1, 1) * R + who
    true = ways.xp.swapaxes(labelings, 1, 2)[:, :, None]  # (B, N, 1, M)
    at = ((annotator * K + true) * K + said) * M + ways.numbers(M)
    some = at[ways.xp.broadcast_to(said >= 0, at.shape)]
    return ways.xp.bincount(some, minlength=B * R * K * K * M).reshape(B, R, K, K, M)


def evidence_of_each(labelings: Array, labels: Array, K: int, ways: ArrayApi, history: Tensor | None = None) -> Array:
    """log p(labels of item n | it is of class k; all other items and labels), (N, K, M); labelings (M, N)."""
    xp, classes = ways.xp, ways.numbers(K, 1)
    tables = tables_for(int((labels >= 0).sum(0).max()), K, ways, history)
    counts = counts_of(labelings[None], labels[None], K, ways)[0]  # (R, K, K, M)
    kinds, _ = judge(counts, tables, ways)
    everything, by_class, _ = _places(counts, tables, ways)
    found = []
    for i in range(len(labels)):
        annotator = (labels[i] >= 0).nonzero()[0] if xp is np else (labels[i] >= 0).nonzero()[:, 0]
        label, true = labels[i][annotator][:, None], labelings[:, i]  # (L, 1), (M,)
        own, hit, missed = classes == true, label == true, label[..., None] != classes  # (K, M), (L, M), (L, K, 1)
        less = xp.where(hit, tables.side, 1)  # the item itself is taken out
        places = xp.stack(
            [(everything[annotator] - less)[:, None] + 0 * own, by_class[annotator] - less[:, None] * own]
        )
        times = (counts[annotator, :, label[:, 0]] - 1 * own) * missed
        p, flips = next_label(places + missed * tables.missed, times, tables)
        p = xp.concatenate([p, flips[None]])  # (3, L, K, M)
        before = kinds[:, annotator] / (p * own).sum(2)  # kinds, without having foretold the item's labels
        found.append(xp.log((before[:, :, None] * p).sum(0) / before.sum(0)[:, None]).sum(0))
    return xp.stack(found)


def compact(labels: Array, ways: ArrayApi) -> tuple[Array, Array]:
    """(..., R) -> who labelled an item and how, (..., L), L the most labels an item has; -1 fills up the latter."""
    given = labels >= 0
    if given.all():
        return ways.xp.broadcast_to(ways.numbers(labels.shape[-1]), labels.shape), labels
    most = max(1, int(given.sum(-1).max()))
    who = ways.sorted_places(~given)[..., :most]
    return who, ways.along(labels, who)
