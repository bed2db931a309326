"""From who said what to what is believed of each item: a few rounds of EM whose constants were learned from crowds.

Each round is Dawid and Skene's, mended where it goes wrong on real crowds (docs/inference.md):

- a label is judged by everything but itself: its annotator's counts are taken without it (leave one out);
- an annotator's confusion matrix is shrunk to a skill, the difficulty of classes and the mistakes that all share;
- n labels of an item count as n^power labels, as people share mistakes;
- class sizes are believed in part; and in the end the share of votes has a third of the say.

How far each of these goes depends on the crowd. Three small networks a round say it: one sees the crowd and sets the
round's constants, one sees a label and says what it weighs, one sees an item and says how sure to be. They see numbers
that neither names nor order can change, and were learned from simulated crowds.

Where more is known it is a witness like the others: classes of some items, how often annotators were right before,
that classes have an order. Signs and flat arrays are those of `crowdshot.model.problem`; one body serves NumPy and
torch.

All that crosses items is a sum (`first_look.Seen` before the rounds, `Counts` in each), so a problem may come in parts,
each with its own items: the sums of the parts are added, and every part is believed by them (`rounds`).
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
from crowdshot.io.cards import Card, read_arrays, read_card, write_arrays
from crowdshot.model.problem import Array, Problem, Total, settle, softmax, total

# ---- first look ------------------------------------------------------------
#
# What the inference sees of a crowd before its rounds: who agrees with whom, and how often classes are named.


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


# ---- inference network ------------------------------------------------------------
#
# The three small networks of the learned inference: what they are made of, and what they begin with.


Network = Mapping[str, Array]

ROUNDS = 3
HIDDEN = 8
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


def n_rounds(network: Network) -> int:
    return sum(name.startswith("crowd.") and name.endswith("in.bias") for name in network)


def layers(
    xp: Any,
    network: Network,
    name: str,
    x: Array,
    crowd: Array | None = None,
    own: Callable[[Array], Array] = lambda of_crowds: of_crowds,
) -> Array:
    """(n, inputs) -> (n, outputs). The last inputs may be what is seen of its ``crowd`` (G, inputs): each has its own.

    What the first layer makes of those is computed once for a crowd.
    """
    weight, bias = network[f"{name}.in.weight"], network[f"{name}.in.bias"]
    n = x.shape[-1]
    hidden = xp.tanh(x @ weight[:n] + (bias if crowd is None else own(crowd @ weight[n:] + bias)))
    return hidden @ network[f"{name}.out.weight"] + network[f"{name}.out.bias"]


def logit(xp: Any, p: Array, edge: float = 0.01) -> Array:
    p = p.clip(edge, 1 - edge)
    return xp.log(p) - xp.log(1 - p)


def sigmoid(xp: Any, x: Array) -> Array:
    return 1 / (1 + xp.exp(-x))


# ---- inference ------------------------------------------------------------


VOTE = 1 / 3  # the say of the share of votes in the end


class Counts(NamedTuple):
    """Sums over labels, each with what is believed of its item."""

    cells: Array  # of annotator, label and class, as `Problem.cell` numbers them
    rows: Array  # of annotator and class
    shared: Array  # of label and class
    hits: Array  # (R,) labels that are right
    named: Array  # (G·K,) labels that name their item's class
    met: Array  # (G·K,) labels of items of the class
    sizes: Array  # (G·K,) items of the class


class Weighed(NamedTuple):
    """What the labels of a part say in a round, before it is asked how sure to be."""

    score: Array  # (P,) centred
    now: Array  # (P,) what would be believed
    expected: Array  # (N,) of the labels: how many are right


class Turn(NamedTuple):
    """A round: what was counted, what the crowd's network sees of it, and the constants it sets (`START`)."""

    network: Network
    step: int
    crowd: Crowd
    counts: Counts
    accuracy: Array  # (G,)
    inputs: Array  # (G, CROWD_INPUTS)
    constants: dict[str, Array]  # (G,) each


def infer(problem: Problem, network: Network, xp: Any = np, total: Total = total) -> list[Array]:
    """log p(class | labels) of each pair, (P,), but for a constant an item: after each round, and pooled at last."""
    p = problem
    crowd = describe(xp, total, p, see(xp, total, p))
    looked = look(xp, total, p, crowd)
    scores: list[Array] = []
    for step in range(n_rounds(network)):
        posterior = believe(xp, total, p, scores[-1] if scores else looked.log_vote)
        turn = turn_of(xp, total, p, network, step, crowd, count(xp, total, p, looked, posterior))
        weighed = weigh(xp, total, p, looked, posterior, turn)
        scores.append(temper(xp, total, p, looked, weighed, turn, surprise(xp, total, p, weighed)))
    return [*scores, pool(xp, total, p, looked, scores[-1])]


def believe(xp: Any, total: Total, p: Problem, score: Array) -> Array:
    """(P,); what is known is believed."""
    return settle(xp, p, softmax(xp, total, p, score))


# ---- a round --------------------------------------------------------------------------------------------------------


def count(xp: Any, total: Total, p: Problem, looked: Looked, posterior: Array) -> Counts:
    size = p.n_crowds * p.n_classes
    own, hit = posterior[p.message_pair], posterior[p.label_pair]  # (M,), (L,)
    labelled = ones(p) * (looked.n_i > 0)
    return Counts(
        total(own, p.cell, p.n_cells),
        total(own, p.row, p.n_rows),
        total(own, p.shared, p.n_shared),
        total(hit, p.annotator, p.n_annotators),
        total(hit, p.size_of_pair[p.label_pair], size),
        total(own, p.size_of_pair[p.message_pair], size),
        total(posterior * labelled[p.pair_item], p.size_of_pair, size),
    )


def turn_of(xp: Any, total: Total, p: Problem, network: Network, step: int, crowd: Crowd, counts: Counts) -> Turn:
    n, n_r, of = crowd.labels, crowd.seen.labels, p.crowd_of_annotator
    items = crowd.seen.items.clip(1, None)
    accuracy = (total(counts.hits, of, p.n_crowds) + 1) / (n + 2)
    unlike = total((counts.hits / n_r.clip(1, None) - accuracy[of]) ** 2 * n_r, of, p.n_crowds) / n
    inputs = xp.stack(
        [
            accuracy * 0 + math.log(p.n_classes),
            xp.log(n / items),
            xp.log(n / crowd.people) / 2,
            xp.log(items) / 3,
            crowd.kappa * 2,
            logit(xp, accuracy),
            xp.sqrt(unlike + 1e-4) * 3,
            crowd.evenness,
            crowd.uneven * 4,
            (accuracy - crowd.agreement) * 2,
            accuracy * 0 if p.ordered is None else p.ordered,
        ],
        -1,
    )  # (G, CROWD_INPUTS)
    said = layers(xp, network, f"crowd.{step}", inputs)
    constants = {name: said[:, place] for place, name in enumerate(START)}
    for name in ("power", "prior", "lift"):
        constants[name] = sigmoid(xp, constants[name])
    for name in ("skill", "matrix", "sizes", "shared"):
        constants[name] = xp.exp(constants[name].clip(-4, 7))
    constants["floor"] = xp.exp(constants["floor"].clip(-4, 2)) / (50 * p.n_classes)
    constants["near"] = inputs[:, -1] * xp.exp(constants["near"].clip(-3, 2))
    return Turn(network, step, crowd, counts, accuracy, inputs, constants)


def weigh(xp: Any, total: Total, p: Problem, looked: Looked, posterior: Array, turn: Turn) -> Weighed:
    counts, accuracy, n_r, c = turn.counts, turn.accuracy, turn.crowd.seen.labels, turn.constants
    who, of_class, N = p.annotator, p.crowd_of_class, p.n_items
    size_of_message = p.size_of_pair[p.message_pair]

    def of_label(values: Array) -> Array:
        return own(values, lambda: p.crowd_of_item[p.item])

    def of_message(values: Array) -> Array:
        return own(values, lambda: p.crowd_of_item[p.pair_item][p.message_pair])

    right_before = 0 if p.right is None else p.right[who]
    n_before = 0 if p.right is None or p.wrong is None else p.right[who] + p.wrong[who]

    # ---- each label, given everything but itself
    hit, itself = posterior[p.label_pair], posterior[p.message_pair]  # (L,), (M,)
    skill = counts.hits[who] - hit + right_before + of_label(c["skill"] * accuracy)
    skill = skill / (n_r[who] - 1 + n_before + of_label(c["skill"]))
    seen = xp.stack(
        [
            logit(xp, skill),
            _many(xp, n_r[who] + n_before),
            _many(xp, looked.n_i[p.item]),
            looked.peer * 4,
            looked.liking.clip(-3, 3),
            looked.beyond,
            hit,
            logit(xp, skill) - of_label(logit(xp, accuracy)),
        ],
        -1,
    )
    says = layers(xp, turn.network, f"label.{turn.step}", seen, turn.inputs, of_label)
    weight, ability = 2 * sigmoid(xp, says[:, 0]), logit(xp, skill) + says[:, 1]

    # ---- p(label | class): the annotator's own matrix, shrunk to ability, class difficulty and shared mistakes
    easy = (counts.named + 4 * accuracy[of_class]) / (counts.met + 4)
    lift = (logit(xp, easy, 0.02) - logit(xp, accuracy, 0.02)[of_class]) * 2 * c["lift"][of_class]
    is_right = sigmoid(xp, ability[p.message_label] + lift[size_of_message])
    even = of_message(c["shared"])
    misnamed = (counts.met - counts.named).clip(0, None)[size_of_message] + even
    which = (counts.shared[p.shared] + even * nearness(xp, p, c["near"], of_message)) / misnamed
    mine = ones(p) * (p.pair_class[p.message_pair] == p.label[p.message_label])  # (M,)
    base = mine * is_right + (1 - mine) * (1 - is_right) * which
    strength = of_message(c["matrix"])
    likely = (counts.cells[p.cell] - itself).clip(0, None) + strength * base
    likely = likely / ((counts.rows[p.row] - itself).clip(0, None) + strength)
    message = xp.log(likely + of_message(c["floor"])) * weight[p.message_label]

    # ---- each item
    tempered = looked.n_i.clip(1, None) ** (own(c["power"], lambda: p.crowd_of_item) - 1)
    all_sizes = total(counts.sizes, of_class, p.n_crowds) + c["sizes"]
    size = (counts.sizes + (c["sizes"] / p.n_classes)[of_class]) / all_sizes[of_class]
    score = total(message, p.message_pair, len(posterior)) * tempered[p.pair_item]
    score = score + (2 * c["prior"][of_class] * xp.log(size))[p.size_of_pair]
    score = score - (total(score, p.pair_item, N) / looked.per_item)[p.pair_item]
    return Weighed(score, softmax(xp, total, p, score), total(skill, p.item, N) / looked.n_i.clip(1, None))


def _many(xp: Any, x: Array) -> Array:
    return xp.log(x.clip(1, 200)) / 3


def own(values: Array, crowd: Callable[[], Array]) -> Array:
    """Of each its crowd's, (G, ...) -> (n, ...); of one crowd (1, ...), which is the same for all and takes no time."""
    return values if len(values) == 1 else values[crowd()]


def nearness(xp: Any, p: Problem, slope: Array, of_message: Callable[[Array], Array]) -> Array:
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
    return xp.exp(-of_message(slope) * far) / neighbours[p.size_of_pair[p.message_pair]]


class Surprise(NamedTuple):
    """Of items whose class is known: how much more labels say for it than posteriors as sure would on average."""

    more: Array  # (G,)
    items: Array  # (G,)


def surprise(xp: Any, total: Total, p: Problem, weighed: Weighed) -> Surprise:
    if p.known is None:
        none = total(p.weight[:0], p.crowd_of_item[:0], p.n_crowds)
        return Surprise(none, none)
    known = xp.where(xp.isnan(p.known), weighed.now * 0, p.known)
    more = weighed.now * known - weighed.now**2 * (~xp.isnan(p.known) * 1)
    of_pair = p.crowd_of_item[p.pair_item]
    return Surprise(total(more, of_pair, p.n_crowds), total(known, of_pair, p.n_crowds))


def temper(
    xp: Any, total: Total, p: Problem, looked: Looked, weighed: Weighed, turn: Turn, surprised: Surprise
) -> Array:
    """(P,): how sure to be of each item, and how far to hear the vote."""
    n_i, together, expected, now, N = looked.n_i, looked.together, weighed.expected, weighed.now, p.n_items
    seen = xp.stack(
        [
            _many(xp, n_i),
            looked.spread,
            together,
            expected,
            together - expected,
            logit(xp, total(now**2, p.pair_item, N), 1e-4) / 4,
            xp.sqrt(n_i.clip(1, 100)) * (together - expected) / 3,
            total(now * looked.vote, p.pair_item, N),
            -total(now * xp.log(now + 1e-9), p.pair_item, N),
            1 / n_i.clip(1, None),
            (surprised.more / (surprised.items + 5))[p.crowd_of_item] * 4,
        ],
        -1,
    )
    sure = layers(
        xp, turn.network, f"item.{turn.step}", seen, turn.inputs, lambda values: own(values, lambda: p.crowd_of_item)
    )
    heat, voice = xp.exp(sure[:, 0].clip(-3, 1.5)), sigmoid(xp, sure[:, 1] - 3)
    return weighed.score * heat[p.pair_item] + looked.log_vote * voice[p.pair_item]


def pool(xp: Any, total: Total, p: Problem, looked: Looked, score: Array) -> Array:
    """(P,): with the vote, centred."""
    pooled = (1 - VOTE) * score + VOTE * looked.log_vote
    return pooled - (total(pooled, p.pair_item, p.n_items) / looked.per_item)[p.pair_item]


# ---- network file ------------------------------------------------------------
#
# The learned inference's network as a file: safetensors and a card, written and read without torch.


KIND = "inference"
SHIPPED = Path(__file__).parent / "weights" / "label_model.safetensors"

Floats = NDArray[np.float64]


def network_of(given: str | os.PathLike[str] | Mapping[str, Floats] | None) -> Mapping[str, Floats]:
    """By its file, as it is, or the shipped one."""
    if isinstance(given, Mapping):
        return given
    return shipped_network() if given is None else load_network(given)


@cache
def shipped_network() -> dict[str, Floats]:
    """The one that `aggregate` uses."""
    return load_network(SHIPPED)


def load_network(path: str | os.PathLike[str]) -> dict[str, Floats]:
    """Its tensors, in double precision; a file that holds anything else is refused."""
    found, _ = read_arrays(path, KIND)
    rounds = sum(name.startswith("crowd.") and name.endswith(".in.bias") for name in found)
    hidden = found.get("crowd.0.in.bias", np.empty(0)).size
    expected = shapes(rounds, hidden) if hidden else {}
    for name in (expected.keys() ^ found.keys()) or ([] if expected else ["crowd.0.in.bias"]):
        what = "a tensor" if name in found else "no tensor"
        raise CrowdshotError(f"{path} has {what} {name}, expected those of an inference network.")
    for name, shape in expected.items():
        if found[name].shape != shape:
            raise CrowdshotError(f"{path} has {name} of shape {found[name].shape}, expected {shape}.")
        if found[name].dtype.kind != "f" or not np.isfinite(found[name]).all():
            raise CrowdshotError(f"{path} has a number in {name} that is not finite, expected finite ones.")
    return {name: found[name].astype(np.float64) for name in expected}


def network_card(path: str | os.PathLike[str] = SHIPPED) -> Card:
    """What a network learned from, and how it scored."""
    return read_card(path, KIND)


def save_network(path: str | os.PathLike[str], network: Mapping[str, NDArray[Any]], card: Mapping[str, Any]) -> None:
    """In single precision, with a card that says what it learned from; all or nothing."""
    write_arrays(path, {name: np.asarray(value, np.float32) for name, value in network.items()}, {**card, "kind": KIND})
