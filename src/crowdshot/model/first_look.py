"""What the inference sees of a crowd before its rounds: who agrees with whom, and how often classes are named."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from crowdshot.model.problem import Array, Problem, Total


class Seen(NamedTuple):
    """Sums over labels that do not change from round to round; G crowds, R annotators, K classes."""

    labels: Array  # (R,)
    paired: Array  # (R,) those of items that somebody else labelled too
    share: Array  # (R,) over these: which part of the item's other labels says the same
    share_squared: Array  # (R,)
    named: Array  # (R·K,) labels of each class
    by_class: Array  # (G·K,)
    items: Array  # (G,) that have a label


class Crowd(NamedTuple):
    """What follows of a crowd as a whole, before the rounds."""

    seen: Seen
    labels: Array  # (G,)
    people: Array  # (G,)
    frequency: Array  # (G·K,) of classes among the labels
    agreement: Array  # (G,) of two labels of an item
    kappa: Array  # (G,) the same beyond chance
    uneven: Array  # (G,) variance of agreement
    evenness: Array  # (G,) of the classes


class Looked(NamedTuple):
    """Of the items and labels of a part, what does not change from round to round."""

    n_i: Array  # (N,) labels
    vote: Array  # (P,) share of the votes, one more being spread as all labels are
    log_vote: Array  # (P,)
    beyond: Array  # (L,) which part of the item's other labels says the same, less what is usual
    peer: Array  # (L,) how much oftener than usual the annotator agrees with others, but for this label
    liking: Array  # (L,) how much oftener than others the annotator names this class
    together: Array  # (N,) how far labels are the same
    spread: Array  # (N,) entropy of the vote
    per_item: Array  # (N,) classes that it may have


def see(xp: Any, total: Total, p: Problem) -> Seen:
    K, G, R = p.n_classes, p.n_crowds, p.n_annotators
    n_i, votes = total(p.weight, p.item, p.n_items), total(p.weight, p.label_pair, len(p.pair_item))
    share, paired = _shares(p, n_i, votes)
    return Seen(
        total(p.weight, p.annotator, R),
        total(paired, p.annotator, R),
        total(share * paired, p.annotator, R),
        total(share**2 * paired, p.annotator, R),
        total(p.weight, p.annotator * K + p.label, p.n_rows),
        total(p.weight, p.crowd_of_item[p.item] * K + p.label, G * K),
        total(ones(p) * (n_i > 0), p.crowd_of_item, G),
    )


def describe(xp: Any, total: Total, p: Problem, seen: Seen) -> Crowd:
    K, G = p.n_classes, p.n_crowds

    def by_crowd(values: Array) -> Array:
        return total(values, p.crowd_of_annotator, G)

    n = by_crowd(seen.labels).clip(1, None)
    frequency = (seen.by_class + 1) / (n[p.crowd_of_class] + K)
    chance = total(frequency**2, p.crowd_of_class, G)
    pairs, share = by_crowd(seen.paired), by_crowd(seen.share)
    agreement = (share + 2 * (1 + chance)) / (pairs + 4)
    squared = by_crowd(seen.share_squared) - 2 * agreement * share + agreement**2 * pairs
    return Crowd(
        seen,
        n,
        by_crowd(ones(p) * (seen.labels > 0)).clip(1, None),
        frequency,
        agreement,
        (agreement - chance) / (1 - chance).clip(0.02, None),
        squared / pairs.clip(1, None),
        -total(frequency * xp.log(frequency), p.crowd_of_class, G) / math.log(K),
    )


def look(xp: Any, total: Total, p: Problem, crowd: Crowd) -> Looked:
    K, who, of_label = p.n_classes, p.annotator, p.crowd_of_item[p.item]
    seen, frequency = crowd.seen, crowd.frequency
    n_i, votes = total(p.weight, p.item, p.n_items), total(p.weight, p.label_pair, len(p.pair_item))
    share, paired = _shares(p, n_i, votes)
    log_vote = xp.log(votes + frequency[p.size_of_pair]) - xp.log(n_i + 1)[p.pair_item]
    vote = xp.exp(log_vote)
    agreement, often = crowd.agreement[of_label], frequency[of_label * K + p.label]
    beyond = (share - agreement) * paired
    oftener = (seen.share - crowd.agreement[p.crowd_of_annotator] * seen.paired)[who] - beyond
    return Looked(
        n_i,
        vote,
        log_vote,
        share - agreement,
        oftener / (seen.paired[who] - paired + 8),
        xp.log((seen.named[who * K + p.label] - 1 + 2 * often) / (seen.labels[who] + 1)) - xp.log(often),
        total((votes / n_i.clip(1, None)[p.pair_item]) ** 2, p.pair_item, p.n_items),
        -total(vote * log_vote, p.pair_item, p.n_items),
        total(vote * 0 + 1, p.pair_item, p.n_items).clip(1, None),
    )


def ones(p: Problem) -> Array:
    return p.weight.sum() * 0 + 1


def _shares(p: Problem, n_i: Array, votes: Array) -> tuple[Array, Array]:
    """(L,): which part of an item's other labels says the same; and whether there are any, as 0 and 1."""
    others = n_i[p.item] - 1
    return (votes[p.label_pair] - 1) / others.clip(1, None), ones(p) * (others > 0)
