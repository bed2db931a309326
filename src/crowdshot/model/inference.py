"""From who said what to what is believed of each item: a few rounds of EM whose constants were learned from crowds.

Each round is Dawid and Skene's, mended where it goes wrong on real crowds (docs/inference.md):

- a label is judged by everything but itself: its annotator's counts are taken without it (leave one out);
- an annotator's confusion matrix is shrunk to a skill, the difficulty of classes and the mistakes that all share;
- n labels of an item count as n^power labels, as people share mistakes;
- class sizes are believed in part; and in the end the share of votes has a third of the say.

How far each of these goes depends on the crowd. Three small networks a round say it: one sees the crowd and sets the
round's constants, one sees a label and says what it weighs, one sees an item and says how sure to be. They see numbers
that neither names nor order can change, and were learned from simulated and real crowds.

Where more is known it is a witness like the others: classes of some items, how often annotators were right before,
that classes have an order. Signs and flat arrays are those of `crowdshot.model.problem`; one body serves NumPy and
torch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from crowdshot.model.problem import Array, Floats, Problem, Total, settle, softmax, total

Network = Mapping[str, Array]

ROUNDS = 3
HIDDEN = 8
VOTE = 1 / 3  # the say of the share of votes in the end
CROWD_INPUTS, LABEL_INPUTS, ITEM_INPUTS = 11, 8, 11
START = {  # what a round's constants are before anything was learned: nearly `shrunk`
    "power": 0.2,  # n labels count as n^sigmoid(power)
    "skill": math.log(12.0),  # labels that the crowd's mean accuracy counts as, against an annotator's own
    "matrix": math.log(4.0),  # labels that skill and class difficulty count as, against an annotator's own matrix
    "sizes": math.log(40.0),  # items that equal classes count as
    "prior": 0.0,  # 2 sigmoid(prior): how far class sizes are believed
    "lift": 0.0,  # 2 sigmoid(lift): how far some classes are taken to be harder
    "shared": 0.0,  # labels that even mistakes count as, against those that all share
    "floor": 0.0,  # exp(floor) / 50: the least that a label is thought possible, over the number of classes
    "near": 0.0,  # where classes have an order: how much less likely a mistake is with every class further, in nats
}


def shapes(rounds: int = ROUNDS, hidden: int = HIDDEN) -> dict[str, tuple[int, ...]]:
    """The network's tensors: for each round and each of the three, two layers."""
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


def fresh(seed: int = 0, rounds: int = ROUNDS, hidden: int = HIDDEN) -> dict[str, Floats]:
    """A network that has learned nothing: all crowds have the constants of `START`."""
    randomness = np.random.default_rng(seed)
    out = {}
    for name, shape in shapes(rounds, hidden).items():
        if name.endswith("in.weight"):
            out[name] = randomness.normal(size=shape) / math.sqrt(shape[0])
        elif name.endswith("out.weight"):
            out[name] = randomness.normal(size=shape) * 0.02
        else:
            out[name] = (
                np.array(list(START.values())) if name.startswith("crowd") and "out" in name else np.zeros(shape)
            )
    return out


def constant(rounds: int = ROUNDS) -> dict[str, Floats]:
    """The network for which all crowds, labels and items are alike: rounds with the constants of `START`."""
    out = {name: np.zeros(shape) for name, shape in shapes(rounds, hidden=1).items()}
    for step in range(rounds):
        out[f"crowd.{step}.out.bias"] += list(START.values())
    return out


def first_rounds(network: Network, rounds: int) -> dict[str, Array]:
    """The network with so many of its rounds at most."""
    return {name: value for name, value in network.items() if int(name.split(".")[1]) < rounds}


def infer(problem: Problem, network: Network, xp: Any = np, total: Total = total) -> list[Array]:
    """log p(class | labels) of each pair, (P,), but for a constant an item: after each round, and pooled at last."""
    p, K, N, R, G = problem, problem.n_classes, problem.n_items, problem.n_annotators, problem.n_crowds
    item, who, said = p.item, p.annotator, p.label
    of_item, of_annotator = p.crowd_of_item, p.crowd_of_annotator
    of_label, of_pair = of_item[item], of_item[p.pair_item]

    def many(x: Array) -> Array:
        return xp.log(x.clip(1, 200)) / 3

    # ---- what does not change from round to round
    n_i, n_r, n = total(p.weight, item, N), total(p.weight, who, R), total(p.weight, of_label, G).clip(1, None)
    one = p.weight[:1] * 0 + 1
    labelled, active = one * (n_i > 0), one * (n_r > 0)
    items, people = total(labelled, of_item, G).clip(1, None), total(active, of_annotator, G).clip(1, None)
    votes = total(p.weight, p.label_pair, len(p.pair_item))  # (P,)
    size_of_pair = of_pair * K + p.pair_class
    by_class = total(p.weight, of_label * K + said, G * K)
    frequency = (by_class + 1) / (n[p.crowd_of_class] + K)  # (G·K,) of labels
    often = frequency[of_label * K + said]
    per_item = total(votes * 0 + 1, p.pair_item, N).clip(1, None)
    log_vote = xp.log(votes + frequency[size_of_pair]) - xp.log(n_i + 1)[p.pair_item]
    vote = xp.exp(log_vote)
    # two labels of one item: how often they agree, and how much oftener an annotator does
    others = n_i[item] - 1
    paired = one * (others > 0)
    share = (votes[p.label_pair] - 1) / others.clip(1, None)
    chance = total(frequency**2, p.crowd_of_class, G)
    pairs = total(paired, of_label, G)
    agreement = (total(share * paired, of_label, G) + 2 * (1 + chance)) / (pairs + 4)
    kappa = (agreement - chance) / (1 - chance).clip(0.02, None)
    beyond = (share - agreement[of_label]) * paired
    uneven = total(beyond**2, of_label, G) / pairs.clip(1, None)
    met = total(paired, who, R)[who] - paired
    peer = (total(beyond, who, R)[who] - beyond) / (met + 8)
    own_share = total(p.weight, who * K + said, R * K)[who * K + said] - 1
    liking = xp.log((own_share + 2 * often) / (n_r[who] + 1)) - xp.log(often)
    together = total((votes / n_i.clip(1, None)[p.pair_item]) ** 2, p.pair_item, N)
    spread = -total(vote * log_vote, p.pair_item, N)
    evenness = -total(frequency * xp.log(frequency), p.crowd_of_class, G) / math.log(K)

    nothing = kappa * 0
    order = nothing if p.ordered is None else p.ordered

    right_before = 0 if p.right is None else p.right[who]
    n_before = 0 if p.right is None or p.wrong is None else p.right[who] + p.wrong[who]
    belief = settle(xp, p, vote / total(vote, p.pair_item, N)[p.pair_item])
    mine = one * (p.pair_class[p.message_pair] == said[p.message_label])  # (M,)
    crowd_of_message = of_label[p.message_label]
    size_of_message = size_of_pair[p.message_pair]
    out = []
    for step in range(len([name for name in network if name.startswith("crowd.") and name.endswith("in.bias")])):
        # ---- counts: all that crosses items
        own = belief[p.message_pair]  # (M,)
        cells, rows = total(own, p.cell, p.n_cells), total(own, p.row, p.n_rows)
        shared = total(own, p.shared, p.n_shared)
        hit = belief[p.label_pair]  # (L,)
        hits = total(hit, who, R)
        sizes = total(belief * labelled[p.pair_item], size_of_pair, G * K)
        named = total(hit, of_label * K + said, G * K)  # (G·K,) labels that name their item's class
        met_class = total(own, size_of_message, G * K)  # (G·K,) labels of items of the class

        # ---- the crowd
        accuracy = (total(hits, of_annotator, G) + 1) / (n + 2)
        unlike = total((hits / n_r.clip(1, None) - accuracy[of_annotator]) ** 2 * n_r, of_annotator, G) / n
        crowd = xp.stack(
            [
                accuracy * 0 + math.log(K),
                xp.log(n / items),
                xp.log(n / people) / 2,
                xp.log(items) / 3,
                kappa * 2,
                logit(xp, accuracy),
                xp.sqrt(unlike + 1e-4) * 3,
                evenness,
                uneven * 4,
                (accuracy - agreement) * 2,
                order,
            ],
            -1,
        )  # (G, CROWD_INPUTS)
        constants = layers(xp, network, f"crowd.{step}", crowd)
        power, prior, lift_weight = (sigmoid(xp, constants[:, j]) for j in (0, 4, 5))
        skill_labels, matrix_labels, size_items, even_labels = (
            xp.exp(constants[:, j].clip(-4, 7)) for j in (1, 2, 3, 6)
        )
        floor = xp.exp(constants[:, 7].clip(-4, 2)) / (50 * K)
        slope = order * xp.exp(constants[:, 8].clip(-3, 2))

        # ---- each label, given everything but itself
        skill = hits[who] - hit + right_before + (skill_labels * accuracy)[of_label]
        skill = skill / (n_r[who] - 1 + n_before + skill_labels[of_label])
        seen = xp.stack(
            [
                logit(xp, skill),
                many(n_r[who] + n_before),
                many(n_i[item]),
                peer * 4,
                liking.clip(-3, 3),
                share - agreement[of_label],
                hit,
                logit(xp, skill) - logit(xp, accuracy)[of_label],
            ],
            -1,
        )
        says = layers(xp, network, f"label.{step}", xp.concatenate([seen, crowd[of_label]], -1))
        weight, ability = 2 * sigmoid(xp, says[:, 0]), logit(xp, skill) + says[:, 1]

        # ---- p(label | class): the annotator's own matrix, shrunk to ability, class difficulty and shared mistakes
        easy = (named + 4 * accuracy[p.crowd_of_class]) / (met_class + 4)
        lift = (logit(xp, easy, 0.02) - logit(xp, accuracy, 0.02)[p.crowd_of_class]) * 2 * lift_weight[p.crowd_of_class]
        is_right = sigmoid(xp, ability[p.message_label] + lift[size_of_message])
        even = even_labels[crowd_of_message] * nearness(xp, p, slope, crowd_of_message)
        misnamed = (met_class - named).clip(0, None)[size_of_message] + even_labels[crowd_of_message]
        which = (shared[p.shared] + even) / misnamed
        base = mine * is_right + (1 - mine) * (1 - is_right) * which
        strength = matrix_labels[crowd_of_message]
        likely = ((cells[p.cell] - own).clip(0, None) + strength * base) / (
            (rows[p.row] - own).clip(0, None) + strength
        )
        message = xp.log(likely + floor[crowd_of_message]) * weight[p.message_label]

        # ---- each item
        tempered = n_i.clip(1, None) ** (power[of_item] - 1)
        size = (sizes + (size_items / K)[p.crowd_of_class]) / (total(sizes, p.crowd_of_class, G) + size_items)[
            p.crowd_of_class
        ]
        score = total(message, p.message_pair, len(belief)) * tempered[p.pair_item]
        score = score + (2 * prior[p.crowd_of_class] * xp.log(size))[size_of_pair]
        score = score - (total(score, p.pair_item, N) / per_item)[p.pair_item]
        now = softmax(xp, total, p, score)
        expected = total(skill, item, N) / n_i.clip(1, None)
        seen = xp.stack(
            [
                many(n_i),
                spread,
                together,
                expected,
                together - expected,
                logit(xp, total(now**2, p.pair_item, N), 1e-4) / 4,
                xp.sqrt(n_i.clip(1, 100)) * (together - expected) / 3,
                total(now * vote, p.pair_item, N),
                -total(now * xp.log(now + 1e-9), p.pair_item, N),
                1 / n_i.clip(1, None),
                (nothing if p.known is None else surprise(xp, total, p, now))[of_item] * 4,
            ],
            -1,
        )
        sure = layers(xp, network, f"item.{step}", xp.concatenate([seen, crowd[of_item]], -1))
        heat, voice = xp.exp(sure[:, 0].clip(-3, 1.5)), sigmoid(xp, sure[:, 1] - 3)
        score = score * heat[p.pair_item] + log_vote * voice[p.pair_item]
        out.append(score)
        belief = settle(xp, p, softmax(xp, total, p, score))
    pooled = (1 - VOTE) * out[-1] + VOTE * log_vote
    return [*out, pooled - (total(pooled, p.pair_item, N) / per_item)[p.pair_item]]


def nearness(xp: Any, p: Problem, slope: Array, crowd: Array) -> Array:
    """Which other class is named by mistake, before any was seen: all alike, or (M,) by exp(-slope |label - class|)."""
    K = p.n_classes
    if p.ordered is None:
        return 1 / max(K - 1, 1)
    place = (p.crowd_of_class * 0 + 1).cumsum(0) - 1 - p.crowd_of_class * K  # (G·K,) of each class in its order
    neighbours = sum(
        ((place >= far) * 1 + (place + far < K) * 1) * xp.exp(-slope * far)[p.crowd_of_class] for far in range(1, K)
    )
    of = p.pair_class[p.message_pair]
    far = abs(p.label[p.message_label] - of)
    return xp.exp(-slope[crowd] * far) / neighbours[crowd * K + of]


def surprise(xp: Any, total: Total, p: Problem, now: Array) -> Array:
    """(G,) of items whose class is known: how much more labels say for it than beliefs as sure would on average."""
    known = xp.where(xp.isnan(p.known), now * 0, p.known)
    hit = total(now * known - now**2 * (~xp.isnan(p.known) * 1), p.pair_item, p.n_items)
    return total(hit, p.crowd_of_item, p.n_crowds) / (total(known, p.crowd_of_item[p.pair_item], p.n_crowds) + 5)


def layers(xp: Any, network: Network, name: str, x: Array) -> Array:
    hidden = xp.tanh(x @ network[f"{name}.in.weight"] + network[f"{name}.in.bias"])
    return hidden @ network[f"{name}.out.weight"] + network[f"{name}.out.bias"]


def logit(xp: Any, p: Array, edge: float = 0.01) -> Array:
    p = p.clip(edge, 1 - edge)
    return xp.log(p) - xp.log(1 - p)


def sigmoid(xp: Any, x: Array) -> Array:
    return 1 / (1 + xp.exp(-x))
