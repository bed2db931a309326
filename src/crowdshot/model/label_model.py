"""Aggregate labels by a few rounds of EM whose constants are set by small trained networks (the label model).

The model is that of Dawid and Skene (1979): item n has an unseen class t_n ~ pi, and annotator r gives an item of class
k the label l with probability alpha^r[k, l]. Four changes make it robust on real crowds (docs/research/inference.md):

- the counts that judge a label leave this label out;
- an annotator's confusion matrix is shrunk towards their accuracy, class difficulty and the errors that all share;
- N labels of an item count as N^power labels, because annotators make the same mistakes;
- class sizes enter in part, and the final scores are averaged with the vote (`VOTE_WEIGHT`).

The constants differ between crowds, labels and items: in each round one network sets the crowd's constants, one the
weight of each label, one the temperature of each item. `round_of`, `_rate_labels` and `temper` list their inputs, which
do not depend on names or order. The networks were trained on simulated crowds.

Notation: item n has N_n labels, annotator r has L_r, and the crowd has L. The counts v_nk, v_rk and v_k are the labels
of class k of an item, of an annotator and of the crowd. The posterior is q_nk. sigma is the logistic function, and
logit_e(p) is the logit of p clipped to [e, 1 - e], with e = 0.01 unless stated. [A] is 1 if A holds, else 0. In a label
(n, r, l), annotator r gives item n the label l.

Statistics before the rounds:

    f_k = (v_k + 1) / (L + K),   chance = sum_k f_k^2
    s = (v_nl - 1) / max(N_n - 1, 1),   o = [N_n > 1]       share of an item's other labels that agree, for each label
    agreement = (sum s o + 2 (1 + chance)) / (sum o + 4)
    kappa = (agreement - chance) / max(1 - chance, 0.02)
    uneven = sum o (s - agreement)^2 / max(sum o, 1),   evenness = -sum_k f_k log f_k / log K
    w_nk = (v_nk + f_k) / (N_n + 1)                         the vote, smoothed
    excess = s - agreement                                  of each label
    peer = (sum_r o excess - o excess) / (sum_r o - o + 8)  sum_r: over the labels of annotator r
    liking = log((v_rl - 1 + 2 f_l) / (L_r + 1)) - log f_l

Counts of a round (M-step), from q = softmax of the last scores, at first q = w; known classes are held fixed:

    C_rlk = sum of q_nk over labels l of r,   C_rk = sum_l C_rlk,   C_lk = sum_r C_rlk,   hits_r = sum_r q_nl
    H_k = sum [l = k] q_nk,   M_k = sum q_nk  (over all labels),   n_k = sum of q_nk over labelled items
    accuracy = (sum_r hits_r + 1) / (L + 2)

Constants of the crowd, from the network ``crowd`` (`START` names its outputs x): power, prior, lift = sigma(x);
skill, matrix, sizes, shared = exp(x clipped to [-4, 7]); floor = exp(x clipped to [-4, 2]) / (50 K);
near = exp(x clipped to [-3, 2]) if classes are ordered, else 0.

Score of each label, leaving it out; right_r, wrong_r are an annotator's earlier labels with known outcome:

    skill_l = (hits_r - q_nl + right_r + skill accuracy) / (L_r - 1 + right_r + wrong_r + skill)
    weight = 2 sigma(x_0),   ability = logit(skill_l) + x_1                    x: output of the network ``label``
    ease_k = (H_k + 4 accuracy) / (M_k + 4)
    p_k = sigma(ability + 2 lift (logit_0.02(ease_k) - logit_0.02(accuracy)))  probability of the right label
    e_lk = (C_lk + shared u_lk) / (max(M_k - H_k, 0) + shared)                 distribution of wrong labels
    base_k = p_k if k = l else (1 - p_k) e_lk
    alpha_k = (max(C_rlk - q_nk, 0) + matrix base_k) / (max(C_rk - q_nk, 0) + matrix)
    message_k = weight log(alpha_k + floor)

with u_lk = exp(-near |l - k|) / sum_{j != k} exp(-near |j - k|), which is 1 / (K - 1) without an order.

Score of each item (E-step), where "centred" means less the mean over its classes:

    pi_k = (n_k + sizes / K) / (sum_k n_k + sizes)
    score_nk = N_n^(power - 1) sum of its messages + 2 prior log pi_k, centred
    score'_nk = exp(x_0 clipped to [-3, 1.5]) score_nk + sigma(x_1 - 3) log w_nk   x: output of the network ``item``

After the last round, score''_nk = (1 - VOTE_WEIGHT) score'_nk + VOTE_WEIGHT log w_nk, centred.

Where classes are many, an item has only the classes that somebody named for it (`crowdshot.model.problem`). The same
code runs on NumPy and on torch.

Everything that crosses items is a sum (`CrowdSums` before the rounds, `Counts` in each). A crowd can therefore be
processed in parts that each have their own items: add the sums of the parts, then score each part
(`crowdshot.model.label_model_parts`).

References: A. P. Dawid and A. M. Skene, Maximum likelihood estimation of observer error-rates using the EM algorithm,
Applied Statistics 28(1), 1979.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.io.cards import read_arrays, write_arrays
from crowdshot.model.problem import (
    Array,
    Problem,
    Total,
    logit,
    posterior_from,
    product,
    rows_at,
    sigmoid,
    softmax,
    total,
)

# ---- statistics before the rounds ------------------------------------------------------------------------------------


class CrowdSums(NamedTuple):
    """Sums over labels that stay the same in all rounds; G crowds, R annotators, K classes."""

    labels: Array  # (R,) L_r
    paired: Array  # (R,) sum of o
    share: Array  # (R,) sum of s o
    share_squared: Array  # (R,) sum of s^2 o
    named: Array  # (R·K,) v_rk
    by_class: Array  # (G·K,) v_k
    items: Array  # (G,) labelled items


class Crowd(NamedTuple):
    """Statistics of a whole crowd, before the rounds."""

    sums: CrowdSums
    labels: Array  # (G,) L
    annotators: Array  # (G,) that have labels
    frequency: Array  # (G·K,) f_k
    agreement: Array  # (G,)
    kappa: Array  # (G,)
    uneven: Array  # (G,)
    evenness: Array  # (G,)


class LabelStatistics(NamedTuple):
    """Statistics of items, pairs and labels that stay the same in all rounds."""

    n_i: Array  # (N,) N_n
    vote: Array  # (P,) w_nk
    log_vote: Array  # (P,)
    excess: Array  # (L,)
    peer: Array  # (L,)
    liking: Array  # (L,)
    concentration: Array  # (N,) sum_k (v_nk / N_n)^2
    entropy: Array  # (N,) of w_n
    n_pairs: Array  # (N,) classes that the item may have


def crowd_sums(total: Total, p: Problem) -> CrowdSums:
    K, G, R = p.n_classes, p.n_crowds, p.n_annotators
    n_i, votes = total(p.weight, p.item, p.n_items), p.sum_at_label(total, p.weight)
    share, paired = _agreeing_share(p, n_i, votes)
    return CrowdSums(
        total(p.weight, p.annotator, R),
        total(paired, p.annotator, R),
        total(share * paired, p.annotator, R),
        total(share**2 * paired, p.annotator, R),
        total(p.weight, p.annotator * K + p.label, None if p.named else R * K),
        total(p.weight, p.crowd_of_item[p.item] * K + p.label, G * K),
        total(p.one * (n_i > 0), p.crowd_of_item, G),
    )


def describe_crowd(xp: Any, total: Total, p: Problem, sums: CrowdSums) -> Crowd:
    K, G = p.n_classes, p.n_crowds

    def by_crowd(values: Array) -> Array:
        return total(values, p.crowd_of_annotator, G)

    n = by_crowd(sums.labels).clip(1, None)
    frequency = (sums.by_class + 1) / (n[p.crowd_of_class] + K)
    chance = total(frequency**2, p.crowd_of_class, G)
    pairs, share = by_crowd(sums.paired), by_crowd(sums.share)
    agreement = (share + 2 * (1 + chance)) / (pairs + 4)
    squared = by_crowd(sums.share_squared) - 2 * agreement * share + agreement**2 * pairs
    return Crowd(
        sums,
        n,
        by_crowd(p.one * (sums.labels > 0)).clip(1, None),
        frequency,
        agreement,
        (agreement - chance) / (1 - chance).clip(0.02, None),
        squared / pairs.clip(1, None),
        -total(frequency * xp.log(frequency), p.crowd_of_class, G) / math.log(K),
    )


def label_statistics(xp: Any, total: Total, p: Problem, crowd: Crowd) -> LabelStatistics:
    K, annotator = p.n_classes, p.annotator
    sums, frequency = crowd.sums, crowd.frequency
    n_i, votes = total(p.weight, p.item, p.n_items), p.sum_at_label(total, p.weight)
    share, paired = _agreeing_share(p, n_i, votes)
    log_vote = xp.log(votes + p.of_class(frequency)) - p.of_item(xp.log(n_i + 1))
    vote = xp.exp(log_vote)
    agreement, usual = p.crowds_of(crowd.agreement), p.at_class(frequency)
    own_excess = (share - agreement) * paired
    others_excess = sums.share[annotator] - agreement * sums.paired[annotator] - own_excess
    return LabelStatistics(
        n_i,
        vote,
        log_vote,
        share - agreement,
        others_excess / (sums.paired[annotator] - paired + 8),
        xp.log((sums.named[annotator * K + p.label] - 1 + 2 * usual) / (sums.labels[annotator] + 1)) - xp.log(usual),
        p.sum_of_item(xp, total, (votes / p.of_item(n_i.clip(1, None))) ** 2),
        -p.sum_of_item(xp, total, vote * log_vote),
        p.sum_of_item(xp, total, vote * 0 + 1).clip(1, None),
    )


def _agreeing_share(p: Problem, n_i: Array, votes: Array) -> tuple[Array, Array]:
    """Return s and o, (L,) each."""
    others = n_i[p.item] - 1
    return (p.at_label(votes) - 1) / others.clip(1, None), p.one * (others > 0)


# ---- networks --------------------------------------------------------------------------------------------------------


Network = Mapping[str, Array]

ROUNDS = 3
HIDDEN = 8
CROWD_INPUTS, LABEL_INPUTS, ITEM_INPUTS = 11, 8, 11
START = {  # outputs of an untrained network ``crowd``; the constants follow as in the module's docstring
    "power": 0.2,  # N labels of an item count as N^sigma(power)
    "skill": math.log(12.0),  # pseudo-labels at the crowd's accuracy, added to an annotator's labels
    "matrix": math.log(4.0),  # pseudo-labels from skill and class difficulty, added to each row of a confusion matrix
    "sizes": math.log(40.0),  # pseudo-items, equally many of every class
    "prior": 0.0,  # 2 sigma(prior) is the exponent of the class sizes
    "lift": 0.0,  # 2 sigma(lift) scales the difficulty of classes
    "shared": 0.0,  # pseudo-labels of the prior on wrong labels, added to the errors of all annotators
    "floor": 0.0,  # exp(floor) / (50 K) is the least probability of a label
    "near": 0.0,  # exp(near) nats less for each further class, where classes are ordered
}


def shapes(rounds: int = ROUNDS, hidden: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    """Return the shapes of the tensors: two layers for each of the three networks of each round."""
    sizes = {
        "crowd": (CROWD_INPUTS, len(START)),
        "label": (LABEL_INPUTS + CROWD_INPUTS, 2),
        "item": (ITEM_INPUTS + CROWD_INPUTS, 2),
    }
    out: dict[str, tuple[int, ...]] = {}
    for step in range(rounds):
        for name, (inputs, outputs) in sizes.items():
            out[f"{name}.{step}.in.weight"], out[f"{name}.{step}.in.bias"] = (inputs, hidden), (hidden,)
            out[f"{name}.{step}.out.weight"], out[f"{name}.{step}.out.bias"] = (hidden, outputs), (outputs,)
    return out


def constant(rounds: int = ROUNDS) -> dict[str, Floats]:
    """Return a network without inputs: the constants of `START` for all crowds, labels and items."""
    out = {name: np.zeros(shape) for name, shape in shapes(rounds, hidden=1).items()}
    for step in range(rounds):
        out[f"crowd.{step}.out.bias"] += list(START.values())
    return out


def first_rounds(network: Network, rounds: int) -> dict[str, Array]:
    """Return the network without the rounds after the first ``rounds``."""
    return {name: value for name, value in network.items() if int(name.split(".")[1]) < rounds}


def n_rounds(network: Network) -> int:
    return sum(name.startswith("crowd.") and name.endswith("in.bias") for name in network)


def layers(
    xp: Any,
    network: Network,
    name: str,
    x: Array,
    crowd: Array | None = None,
    repeat: Callable[[Array], Array] = lambda of_crowds: of_crowds,
) -> Array:
    """Apply the two layers of a network, (n, inputs) -> (n, outputs).

    The last inputs may be those of the ``crowd`` (G, inputs). The first layer is applied to them once for each crowd;
    ``repeat`` (G, hidden) -> (n, hidden) repeats the result.
    """
    weight, bias = network[f"{name}.in.weight"], network[f"{name}.in.bias"]
    n = x.shape[-1]
    hidden = product(x, weight[:n])
    hidden += bias if crowd is None else repeat(crowd @ weight[n:] + bias)
    out = product(xp.tanh(hidden), network[f"{name}.out.weight"])
    out += network[f"{name}.out.bias"]
    return out


# ---- rounds of EM ----------------------------------------------------------------------------------------------------


VOTE_WEIGHT = 1 / 3  # of log w in the final scores


class Counts(NamedTuple):
    """Sums over labels, weighted by the posteriors of their items."""

    cells: Array  # C_rlk, (R·K·K,)
    rows: Array  # C_rk, (R·K,)
    shared: Array  # C_lk, (G·K·K,)
    hits: Array  # (R,) hits_r
    class_hits: Array  # (G·K,) H_k
    class_labels: Array  # (G·K,) M_k
    sizes: Array  # (G·K,) n_k


class ItemScores(NamedTuple):
    """Scores of a part's items in a round, before tempering."""

    score: Array  # (P,) centred
    posterior: Array  # (P,) softmax of the score
    skill: Array  # (N,) mean skill_l of the item's labels


class Round(NamedTuple):
    """The counts of a round, the inputs of the network ``crowd``, and the constants that it sets."""

    network: Network
    step: int
    crowd: Crowd
    counts: Counts
    accuracy: Array  # (G,)
    inputs: Array  # (G, CROWD_INPUTS)
    constants: dict[str, Array]  # (G,) each, by the names of `START`


def infer(problem: Problem, network: Network, xp: Any = np, total: Total = total) -> list[Array]:
    """Return the scores of all pairs, (P,), after each round and, last, averaged with the vote.

    A score is log p(class | labels) up to a constant for each item. ``total`` is the sum by index of ``xp``.
    """
    p = problem
    crowd = describe_crowd(xp, total, p, crowd_sums(total, p))
    statistics = label_statistics(xp, total, p, crowd)
    scores: list[Array] = []
    for step in range(n_rounds(network)):
        posterior = posterior_from(xp, total, p, scores[-1] if scores else statistics.log_vote)
        this = round_of(xp, total, p, network, step, crowd, count(total, p, statistics, posterior))
        items = score_items(xp, total, p, statistics, posterior, this)
        scores.append(temper(xp, total, p, statistics, items, this, gold_excess(xp, total, p, items)))
    return [score.reshape(-1) for score in (*scores, pool(xp, total, p, statistics, scores[-1]))]


def count(total: Total, p: Problem, statistics: LabelStatistics, posterior: Array) -> Counts:
    labelled = p.of_item(p.one * (statistics.n_i > 0))
    sizes = p.sum_of_class(total, posterior * labelled)
    if p.named is None:
        R, K = p.n_annotators, p.n_classes
        return counts_of(total, p, total(p.of_pair(posterior), p.annotator * K + p.label, R * K), sizes)
    of_message, hit = p.of_pair(posterior), p.at_label(posterior)
    return Counts(
        total(of_message, p.named.cell, None),
        total(of_message, p.named.row, None),
        total(of_message, p.named.shared, None),
        total(hit, p.annotator, p.n_annotators),
        total(hit, p.label, p.n_classes),
        total(of_message, p.named.pair_class[p.named.message_pair], p.n_classes),
        sizes,
    )


def counts_of(total: Total, p: Problem, cells: Array, sizes: Array) -> Counts:
    """Return the counts of a dense problem from those of all cells, and from the class sizes n_k."""
    R, K, G = p.n_annotators, p.n_classes, p.n_crowds
    cells = cells.reshape(R, K, K)
    shared = total(cells.reshape(R, K * K), p.crowd_of_annotator, G).reshape(G, K, K)
    return Counts(
        cells.reshape(-1),
        cells.sum(1).reshape(-1),
        shared.reshape(-1),
        cells.diagonal(0, 1, 2).sum(1),
        shared.diagonal(0, 1, 2).reshape(-1) + 0,  # no view, since sums are added in place
        shared.sum(1).reshape(-1),
        sizes,
    )


def round_of(xp: Any, total: Total, p: Problem, network: Network, step: int, crowd: Crowd, counts: Counts) -> Round:
    """Apply the network ``crowd`` to the counts of a round."""
    n, n_r, crowd_of = crowd.labels, crowd.sums.labels, p.crowd_of_annotator
    items = crowd.sums.items.clip(1, None)
    accuracy = (total(counts.hits, crowd_of, p.n_crowds) + 1) / (n + 2)
    variance = total((counts.hits / n_r.clip(1, None) - accuracy[crowd_of]) ** 2 * n_r, crowd_of, p.n_crowds) / n
    inputs = xp.stack(
        [
            accuracy * 0 + math.log(p.n_classes),
            xp.log(n / items),
            xp.log(n / crowd.annotators) / 2,
            xp.log(items) / 3,
            crowd.kappa * 2,
            logit(xp, accuracy),
            xp.sqrt(variance + 1e-4) * 3,
            crowd.evenness,
            crowd.uneven * 4,
            (accuracy - crowd.agreement) * 2,
            accuracy * 0 if p.ordered is None else p.ordered,
        ],
        -1,
    )  # (G, CROWD_INPUTS)
    outputs = layers(xp, network, f"crowd.{step}", inputs)
    constants = {name: outputs[:, place] for place, name in enumerate(START)}
    for name in ("power", "prior", "lift"):
        constants[name] = sigmoid(xp, constants[name])
    for name in ("skill", "matrix", "sizes", "shared"):
        constants[name] = xp.exp(constants[name].clip(-4, 7))
    constants["floor"] = xp.exp(constants["floor"].clip(-4, 2)) / (50 * p.n_classes)
    constants["near"] = inputs[:, -1] * xp.exp(constants["near"].clip(-3, 2))
    return Round(network, step, crowd, counts, accuracy, inputs, constants)


def score_items(
    xp: Any, total: Total, p: Problem, statistics: LabelStatistics, posterior: Array, this: Round
) -> ItemScores:
    """Return the centred scores of all pairs: the messages of an item's labels and the class sizes."""
    counts, c = this.counts, this.constants
    skill, weight, ability = _rate_labels(xp, p, statistics, posterior, this)
    message = _log_likelihoods(xp, p, posterior, this, ability) * p.of_label(weight)
    tempered = statistics.n_i.clip(1, None) ** (p.item_crowds(c["power"]) - 1)
    all_sizes = total(counts.sizes, p.crowd_of_class, p.n_crowds) + c["sizes"]
    size = (counts.sizes + (c["sizes"] / p.n_classes)[p.crowd_of_class]) / all_sizes[p.crowd_of_class]
    score = p.sum_of_pair(total, message) * p.of_item(tempered)
    score = score + p.of_class(2 * c["prior"][p.crowd_of_class] * xp.log(size))
    score = score - p.of_item(p.sum_of_item(xp, total, score) / statistics.n_pairs)
    mean_skill = total(skill, p.item, p.n_items) / statistics.n_i.clip(1, None)
    return ItemScores(score, softmax(xp, total, p, score), mean_skill)


def _rate_labels(
    xp: Any, p: Problem, statistics: LabelStatistics, posterior: Array, this: Round
) -> tuple[Array, Array, Array]:
    """Return skill_l, weight and ability of each label, (L,), from everything but the label itself."""
    c, n_r, annotator = this.constants, this.crowd.sums.labels, p.annotator
    of_label = p.crowds_of
    earlier_right = 0 if p.right is None else p.right[annotator]
    earlier = 0 if p.right is None or p.wrong is None else p.right[annotator] + p.wrong[annotator]
    hit = p.at_label(posterior)
    skill = this.counts.hits[annotator] - hit + earlier_right + of_label(c["skill"] * this.accuracy)
    skill = skill / (n_r[annotator] - 1 + earlier + of_label(c["skill"]))
    ability = logit(xp, skill)
    inputs = xp.stack(
        [
            ability,
            _log_count(xp, n_r[annotator] + earlier),
            _log_count(xp, statistics.n_i)[p.item],
            statistics.peer * 4,
            statistics.liking.clip(-3, 3),
            statistics.excess,
            hit,
            ability - of_label(logit(xp, this.accuracy)),
        ],
        -1,
    )
    outputs = layers(xp, this.network, f"label.{this.step}", inputs, this.inputs, of_label)
    return skill, 2 * sigmoid(xp, outputs[:, 0]), ability + outputs[:, 1]


def _log_likelihoods(xp: Any, p: Problem, posterior: Array, this: Round, ability: Array) -> Array:
    """Return log(alpha_k + floor) of all messages; the item's posterior is taken out of the counts."""
    counts, accuracy, c, of_class = this.counts, this.accuracy, this.constants, p.crowd_of_class
    ease = (counts.class_hits + 4 * accuracy[of_class]) / (counts.class_labels + 4)
    lift = (logit(xp, ease, 0.02) - logit(xp, accuracy, 0.02)[of_class]) * 2 * c["lift"][of_class]
    itself = p.of_pair(posterior)
    right = 1 / (1 + p.of_label(xp.exp(-ability)) * p.class_of_message(xp.exp(-lift)))  # sigmoid(ability + lift)
    base = xp.where(p.names_class, right, (1 - right) * _wrong_labels(xp, p, counts, c))
    cells, rows = p.at_cell(counts.cells), p.at_row(counts.rows)
    matrix, floor = p.crowd_of_message(c["matrix"]), p.crowd_of_message(c["floor"])
    likelihood = (cells - itself).clip(0, None) + matrix * base
    return xp.log(likelihood / ((rows - itself).clip(0, None) + matrix) + floor)


def _wrong_labels(xp: Any, p: Problem, counts: Counts, c: Mapping[str, Array]) -> Array:
    """Return e_lk of all messages."""
    K = p.n_classes
    errors = (counts.class_labels - counts.class_hits).clip(0, None)
    if p.named is None:  # a table by label and class
        shared, errors = c["shared"][:, None, None], errors.reshape(-1, 1, K)
        distance = abs(p.classes[:, None] - p.classes)
        table = counts.shared.reshape(-1, K, K) + shared * error_prior(xp, p, c["near"], distance)
        return rows_at((table / (errors + shared)).reshape(-1, K), p.at_crowd_and_label)
    true = p.named.pair_class[p.named.message_pair]
    distance = abs(p.label[p.named.message_label] - true)
    table = counts.shared[p.named.shared] + c["shared"] * error_prior(xp, p, c["near"], distance, true)
    return table / (errors[true] + c["shared"])


def _log_count(xp: Any, x: Array) -> Array:
    return xp.log(x.clip(1, 200)) / 3


def error_prior(xp: Any, p: Problem, near: Array, distance: Array, true: Array | None = None) -> Array:
    """Return u_lk: a number without an order of classes, else for distances (K, K), of all crowds, or (M,)."""
    K = p.n_classes
    if p.ordered is None:
        return 1 / max(K - 1, 1)
    place, near = p.classes, near[:, None]
    within = (((place >= far) * 1 + (place + far < K) * 1) * xp.exp(-near * far) for far in range(1, K))
    neighbours = sum(within)  # (G, K)
    if true is not None:
        return xp.exp(-near[0] * distance) / neighbours[0][true]
    return xp.exp(-near[:, None] * distance) / neighbours[:, None]


class GoldExcess(NamedTuple):
    """Probability of the known classes, in excess of what the posteriors expect; sums over items with known class."""

    excess: Array  # (G,) sum of q_n,true - sum_k q_nk^2
    items: Array  # (G,)


def gold_excess(xp: Any, total: Total, p: Problem, items: ItemScores) -> GoldExcess:
    if p.known is None:
        none = total(p.weight[:0], p.crowd_of_item[:0], p.n_crowds)
        return GoldExcess(none, none)
    known = xp.where(xp.isnan(p.known), items.posterior * 0, p.known)
    excess = items.posterior * known - items.posterior**2 * (~xp.isnan(p.known) * 1)
    by_item = (p.sum_of_item(xp, total, values) for values in (excess, known))
    return GoldExcess(*(total(values, p.crowd_of_item, p.n_crowds) for values in by_item))


def temper(
    xp: Any, total: Total, p: Problem, statistics: LabelStatistics, items: ItemScores, this: Round, gold: GoldExcess
) -> Array:
    """Return score', (P,): the network ``item`` sets the temperature of each item and the weight of its vote."""
    n_i, concentration, skill = statistics.n_i, statistics.concentration, items.skill
    posterior = items.posterior
    inputs = xp.stack(
        [
            _log_count(xp, n_i),
            statistics.entropy,
            concentration,
            skill,
            concentration - skill,
            logit(xp, p.sum_of_item(xp, total, posterior**2), 1e-4) / 4,
            xp.sqrt(n_i.clip(1, 100)) * (concentration - skill) / 3,
            p.sum_of_item(xp, total, posterior * statistics.vote),
            -p.sum_of_item(xp, total, posterior * xp.log(posterior + 1e-9)),
            1 / n_i.clip(1, None),
            (gold.excess / (gold.items + 5))[p.crowd_of_item] * 4,
        ],
        -1,
    )
    outputs = layers(xp, this.network, f"item.{this.step}", inputs, this.inputs, p.item_crowds)
    factor, vote_weight = xp.exp(outputs[:, 0].clip(-3, 1.5)), sigmoid(xp, outputs[:, 1] - 3)
    return items.score * p.of_item(factor) + statistics.log_vote * p.of_item(vote_weight)


def pool(xp: Any, total: Total, p: Problem, statistics: LabelStatistics, score: Array) -> Array:
    """Return score'', (P,): scores averaged with the log vote, centred."""
    pooled = (1 - VOTE_WEIGHT) * score + VOTE_WEIGHT * statistics.log_vote
    return pooled - p.of_item(p.sum_of_item(xp, total, pooled) / statistics.n_pairs)


# ---- network files ---------------------------------------------------------------------------------------------------
# Safetensors and a card, read and written without torch.


KIND = "inference"
SHIPPED = Path(__file__).parent / "weights" / "label_model.safetensors"

Floats = NDArray[np.float64]


def network_of(source: str | os.PathLike[str] | Mapping[str, Floats] | None) -> Mapping[str, Floats]:
    """Return the network of a file, a network as it is, or for None the shipped one."""
    if isinstance(source, Mapping):
        return source
    return shipped_network() if source is None else load_network(source)


@cache
def shipped_network() -> dict[str, Floats]:
    """Return the network that `aggregate` uses by default."""
    return load_network(SHIPPED)


def load_network(path: str | os.PathLike[str]) -> dict[str, Floats]:
    """Read the tensors of a network file, in double precision.

    Raises
    ------
    CrowdshotError
        The file holds other tensors, other shapes, or numbers that are not finite.
    """
    found, _ = read_arrays(path, KIND)
    hidden = found.get("crowd.0.in.bias", np.empty(0)).size
    expected = shapes(n_rounds(found), hidden) if hidden else {"crowd.0.in.bias": (HIDDEN,)}
    for name in expected.keys() ^ found.keys():
        has = "an unknown tensor" if name in found else "no tensor"
        raise CrowdshotError(f"has {has} {name}", where=path, found=name, expected="the tensors of a label model")
    for name, shape in expected.items():
        tensor = found[name]
        if tensor.shape != shape:
            message = f"has the tensor {name} of shape {tensor.shape}"
            raise CrowdshotError(message, where=path, found=tensor.shape, expected=f"{shape}")
        if tensor.dtype.kind != "f" or not np.isfinite(tensor).all():
            message = f"has values in the tensor {name} that are not finite"
            raise CrowdshotError(message, where=path, found=name, expected="finite numbers")
    return {name: found[name].astype(np.float64) for name in expected}


def save_network(path: str | os.PathLike[str], network: Mapping[str, NDArray[Any]], card: Mapping[str, Any]) -> None:
    """Write a network in single precision, with a card. A failed write leaves no partial file."""
    write_arrays(path, {name: np.asarray(value, np.float32) for name, value in network.items()}, {**card, "kind": KIND})
