"""Simulate crowds with known truth, to train and test aggregation methods (docs/research/inference.md).

A `World` is a distribution over crowds. Every ingredient has a name, a range of values, and can be switched off
(`World.without`). `draw` returns a batch of crowds, each with its own sizes, annotators and items. The ranges were
chosen such that the observable properties of crowds match real ones: agreement, labels per item and per annotator,
class frequencies, and the accuracy of the majority vote.

A label is generated as follows. An item gives evidence for its class and, less, for classes that it resembles. Evidence
is multiplied by the annotator's ability and reduced for hard items. The annotator's biases and confusions are added.
With independent Gumbel noise, the annotator names the class with the largest value.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import torch
from torch import Tensor

from crowdshot.errors import CrowdshotError

Range = tuple[float, float]


@dataclass(frozen=True)
class World:
    """The distribution of simulated crowds.

    For a range, each crowd draws a value uniformly. A single number is a probability, unless noted.
    """

    # sizes
    classes: tuple[int, ...] = (2, 2, 2, 2, 2, 2, 3, 3, 4, 4, 4, 5, 6, 7, 8, 10, 10, 15)  # one of these
    items: Range = (4, 4000)  # log-uniform, as the next two
    annotators: Range = (3, 300)
    labels_an_item: Range = (1, 15)  # mean per item, at most the number of annotators
    many_labels: float = 0.15  # crowds with a uniform mean number of labels per item, up to `most_labels`
    most_labels: float = 60  # a number, not a probability
    complete: float = 0.08  # crowds in which every annotator labels every item, of these sizes:
    complete_items: Range = (40, 200)
    complete_annotators: Range = (8, 45)
    uneven_labels: float = 0.5  # crowds in which the number of labels varies between items, by these factors:
    uneven_by: Range = (0.3, 1.7)
    activity: Range = (0, 2)  # standard deviation of the logarithm of annotators' activity
    class_sizes: Range = (0.5, 40)  # Dirichlet concentration, log-uniform; small values give very unequal classes
    equal_classes: float = 0.5  # crowds of up to `few_items` items with equally frequent classes, like episodes
    few_items: int = 60
    # annotators
    accuracy: Range = (0.5, 0.99)  # mean accuracy on easy items; higher values are more frequent
    skill_spread: Range = (0, 2)  # standard deviation of the logit of an annotator's accuracy
    spammers: Range = (0, 0.5)  # share of annotators whose labels do not depend on the item
    spammer_crowds: float = 0.5  # crowds with spammers
    spammer_bias: Range = (0, 4)  # strength of a spammer's preference for some classes
    adversaries: float = 0.01  # annotators who avoid the true class
    bias: Range = (0, 2.4)  # strength of an annotator's preference for some classes
    shared_bias: Range = (0, 1.2)  # strength of a preference that all annotators share
    shared_bias_crowds: float = 0.6  # crowds with such a preference
    own_confusions: Range = (0, 1)  # strength of an annotator's confusions between classes
    own_confusion_crowds: float = 0.7  # crowds with such confusions
    look_alikes: Range = (0, 0.3)  # share of class pairs that all annotators confuse; at most 1 / K
    look_alike_strength: Range = (0, 1)  # upper bound of their similarity; 1 is indistinguishable
    ordered_crowds: float = 0.2  # crowds with ordered classes, if more than two: neighbours are confused
    order_slope: Range = (0.25, 1)  # decrease of similarity per step in the order
    strictness: Range = (0, 1.5)  # in such crowds, strength of an annotator's preference for higher or lower classes
    copiers: Range = (0, 0.4)  # share of annotators who copy the labels of another annotator
    copier_crowds: float = 0.2  # crowds with copiers
    # items
    difficulty: Range = (0, 0.7)  # spread of the logarithm of the items' clarity
    hard_items: Range = (0, 0.25)  # share of hard items
    hard_item_crowds: float = 0.5  # crowds with hard items
    misleading_items: Range = (0, 0.5)  # share of items that resemble a wrong class for all annotators
    misleading_crowds: float = 0.85  # crowds with misleading items
    misleading_strength: Range = (0.6, 1.8)  # resemblance to the wrong class, relative to the true one
    resistant_crowds: float = 0.0  # crowds in which misleading items mislead some annotators only, the same ones
    resistant: Range = (0.2, 0.9)  # share of annotators whom they do not mislead
    # additional information
    gold_crowds: float = 0.15  # crowds with gold labels
    gold: Range = (0.02, 0.3)  # share of items with gold labels in these
    history_crowds: float = 0.15  # crowds in which half of the annotators have earlier answers
    history: Range = (4, 200)  # number of earlier answers, log-uniform
    stated_order: float = 0.5  # ordered crowds whose order is known

    def without(self, ingredient: str) -> Self:
        """Return the world without one of `INGREDIENTS`; the same seed gives the same sizes, truth and annotators."""
        if ingredient not in INGREDIENTS:
            raise CrowdshotError(
                f"is {ingredient!r}",
                argument="ingredient",
                found=ingredient,
                expected=f"one of {', '.join(INGREDIENTS)}",
            )
        return replace(self, **INGREDIENTS[ingredient])

    def to_card(self) -> dict[str, Any]:
        """Return the fields as JSON data."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values}


NONE: Range = (0, 0)
#: Ingredients that can be switched off, and the fields that this sets.
INGREDIENTS: dict[str, dict[str, Any]] = {
    "skills": {"skill_spread": NONE},
    "biases": {"bias": NONE},
    "shared-bias": {"shared_bias": NONE},
    "own-confusions": {"own_confusions": NONE},
    "look-alikes": {"look_alikes": NONE},
    "order": {"ordered_crowds": 0.0},
    "strictness": {"strictness": NONE},
    "difficulty": {"difficulty": NONE},
    "hard-items": {"hard_items": NONE},
    "misleading-items": {"misleading_items": NONE},
    "spammers": {"spammers": NONE},
    "adversaries": {"adversaries": 0.0},
    "copies": {"copiers": NONE},
    "class-sizes": {"class_sizes": (1e6, 1e6), "equal_classes": 0.0},
    "activity": {"activity": NONE},
    "uneven-labels": {"uneven_labels": 0.0},
    "many-labels": {"many_labels": 0.0},
    "complete": {"complete": 0.0},
    "gold": {"gold_crowds": 0.0},
    "history": {"history_crowds": 0.0},
    "told-order": {"stated_order": 0.0},
}


@dataclass(frozen=True)
class Crowds:
    """G crowds with the same number of classes, concatenated: L labels, N items and R annotators in all."""

    item: Tensor  # (L,)
    annotator: Tensor  # (L,)
    label: Tensor  # (L,)
    truth: Tensor  # (N,), -1 if unknown
    crowd_of_item: Tensor  # (N,)
    crowd_of_annotator: Tensor  # (R,)
    n_classes: int
    n_crowds: int
    known: Tensor | None = None  # (N,) gold labels, -1 if there is none
    right: Tensor | None = None  # (R,) earlier answers that were correct
    wrong: Tensor | None = None  # (R,) earlier answers that were wrong
    ordered: Tensor | None = None  # (G,) 1 if the classes are known to be ordered


MOST_CROWDS = 400  # in a batch
HARD = 0.25  # factor of the clarity of hard items
LEAST_CLASS = 0.005  # share of a class, before normalisation, at least
HIGHEST_MEAN = 0.985  # upper bound of the mean accuracy
ABOVE_CHANCE = 0.08  # lower bound of the mean accuracy, relative to chance
BINARY_BIAS = 1.5  # factor of annotators' biases if there are two classes
COPIED = 0.8  # probability that a copier copies a label that the other annotator gave


class _Draws:
    """Random numbers from one generator; most methods return one for each of G crowds."""

    def __init__(self, generator: torch.Generator, device: torch.device) -> None:
        self.generator, self.device, self.G = generator, device, 0

    def uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self.generator, device=self.device)

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self.generator, device=self.device)

    def gumbel(self, *shape: int) -> Tensor:
        return -torch.log(-torch.log(self.uniform(*shape).clamp(1e-7, 1 - 1e-6)))

    def number(self) -> float:
        return float(self.uniform(1))

    def each(self, bounds: Range) -> Tensor:
        """Return (G,) uniform numbers from a range."""
        return bounds[0] + (bounds[1] - bounds[0]) * self.uniform(self.G)

    def some(self, share: float) -> Tensor:
        """Return (G,) ones with probability ``share``, else zeros."""
        return (self.uniform(self.G) < share).float()

    def choice(self, weights: Tensor) -> Tensor:
        """Return (n,) random columns, drawn with the weights of each row (n, K)."""
        return torch.multinomial(weights, 1, generator=self.generator)[:, 0]


@dataclass(frozen=True)
class _Sizes:
    items: Tensor  # (G,)
    annotators: Tensor  # (G,)
    labels_an_item: Tensor  # (G,)
    K: int
    of_item: Tensor  # (N,) the crowd
    of_annotator: Tensor  # (R,)

    @property
    def first_annotator(self) -> Tensor:  # (G,)
        return torch.cumsum(self.annotators, 0) - self.annotators


@dataclass(frozen=True)
class _People:
    ability: Tensor  # (R,)
    bias: Tensor  # (R, K)
    confusion: Tensor  # (R, K, K) [annotator, true, observed]


def draw(world: World, labels: int, generator: torch.Generator, device: torch.device | str | None = None) -> Crowds:
    """Draw a batch of crowds with the same number of classes and about ``labels`` labels in all.

    Parameters
    ----------
    world : World
        The distribution of crowds.
    labels : int
        Approximate number of labels.
    generator : torch.Generator
        Randomness. The same state gives the same crowds.
    device : torch.device or str, optional
        The generator's device.
    """
    place = generator.device if device is None else torch.device(device)
    if place.type != generator.device.type:
        raise CrowdshotError(
            f"is on the device {generator.device}",
            argument="generator",
            found=str(generator.device),
            expected=str(place),
        )
    draws = _Draws(generator, place)
    sizes = _draw_sizes(world, labels, draws)
    of_item = sizes.of_item
    log_low, log_high = (math.log(bound) for bound in world.class_sizes)
    concentration = torch.exp(draws.each((log_low, log_high)))[:, None].expand(-1, sizes.K).contiguous()
    share = torch._standard_gamma(concentration, generator=generator) + 1e-3
    share = (share / share.sum(-1, keepdim=True)).clamp_min(LEAST_CLASS)
    truth = draws.choice(share[of_item])
    in_turn = torch.arange(len(of_item), device=place) % sizes.K
    equal = (draws.some(world.equal_classes) > 0) & (sizes.items <= world.few_items)
    truth = torch.where(equal[of_item], in_turn, truth)

    people = _draw_people(world, sizes, draws)
    similarity, strict, ordered = _draw_classes(world, sizes, draws)  # (G, K, K), (R, K, K), (G,)
    people = _People(people.ability, people.bias, people.confusion + strict)
    item_evidence, misleading = _draw_items(world, sizes, similarity, truth, draws)  # (N, K) each
    item, annotator = _draw_assignments(world, sizes, draws)
    misled = misleading[item] * _draw_misled(world, sizes, draws)[annotator][:, None]
    evidence = people.ability[annotator][:, None] * (item_evidence[item] + misled)
    evidence = evidence + people.bias[annotator] + people.confusion[annotator, truth[item]]
    label = (evidence + draws.gumbel(*evidence.shape)).argmax(-1)
    label = _copied(world, sizes, item, annotator, label, draws)
    crowds = Crowds(item, annotator, label, truth, of_item, sizes.of_annotator, sizes.K, draws.G)
    likely = torch.softmax(evidence, -1).gather(1, truth[item][:, None])[:, 0]
    right, wrong = _draw_history(world, crowds, likely, draws)
    ordered = ordered * draws.some(world.stated_order)
    known = _draw_gold(world, crowds, draws)
    return replace(crowds, known=known, right=right, wrong=wrong, ordered=ordered)


def with_gold(world: World, crowds: Crowds, generator: torch.Generator) -> Crowds:
    """Return the crowds with gold labels, drawn as the world says."""
    draws = _Draws(generator, generator.device)
    draws.G = crowds.n_crowds
    return replace(crowds, known=_draw_gold(world, crowds, draws))


def _draw_gold(world: World, crowds: Crowds, draws: _Draws) -> Tensor:
    """Return (N,) the truth of some items of some crowds, -1 elsewhere."""
    share = draws.each(world.gold) * draws.some(world.gold_crowds)
    is_gold = draws.uniform(len(crowds.truth)) < share[crowds.crowd_of_item]
    return torch.where(is_gold, crowds.truth, -1)


def _draw_history(world: World, crowds: Crowds, right: Tensor, draws: _Draws) -> tuple[Tensor, Tensor]:
    """Return (R,), (R,) correct and wrong earlier answers; ``right`` (L,) is the probability of each correct label."""
    of, R = crowds.crowd_of_annotator, len(crowds.crowd_of_annotator)
    zeros = torch.zeros(R, device=draws.device)
    labels = zeros.index_add(0, crowds.annotator, torch.ones_like(right)).clamp_min(1)
    accuracy = (zeros.index_add(0, crowds.annotator, right) / labels).clamp(0, 1)
    low, high = (math.log(bound) for bound in world.history)
    answers = torch.exp(low + (high - low) * draws.uniform(R)).round() * (draws.uniform(R) < 0.5)
    answers = answers * draws.some(world.history_crowds)[of]
    hits = torch.binomial(answers, accuracy, generator=draws.generator)
    return hits, answers - hits


def _draw_sizes(world: World, labels: int, draws: _Draws) -> _Sizes:
    K = world.classes[int(draws.number() * len(world.classes))]
    items: list[int] = []
    annotators: list[int] = []
    per_item: list[float] = []
    used = 0
    while used < labels and len(items) < MOST_CROWDS:
        N, R = int(_log_uniform(world.items, draws)), int(_log_uniform(world.annotators, draws))
        low, high = world.labels_an_item
        many, place = draws.number() < world.many_labels, draws.number()
        each = place * min(R, world.most_labels) if many else low * ((min(R, high) + 0.5) / low) ** place
        if draws.number() < world.complete:
            N, R = (int(a + (b - a) * draws.number()) for a, b in (world.complete_items, world.complete_annotators))
            each = R
        each = max(1.0, min(each, R))
        items.append(N)
        annotators.append(R)
        per_item.append(each)
        used += int(N * each)
    draws.G = len(items)
    of = torch.arange(draws.G, device=draws.device)
    n_items, n_annotators = (torch.tensor(n, device=draws.device) for n in (items, annotators))
    return _Sizes(
        n_items,
        n_annotators,
        torch.tensor(per_item, device=draws.device),
        K,
        of.repeat_interleave(n_items),
        of.repeat_interleave(n_annotators),
    )


def _log_uniform(bounds: Range, draws: _Draws) -> float:
    low, high = map(math.log, bounds)
    return math.exp(draws.number() * (high - low) + low)


def _draw_people(world: World, sizes: _Sizes, draws: _Draws) -> _People:
    of, K, R = sizes.of_annotator, sizes.K, len(sizes.of_annotator)
    low, high = world.accuracy
    accuracy = low + (high - low) * draws.uniform(draws.G) ** 0.6
    mean = torch.logit(accuracy.clamp_min(1 / K + ABOVE_CHANCE).clamp(0.05, HIGHEST_MEAN)) + math.log(max(K - 1, 1))
    spread = draws.each(world.skill_spread) * (0.3 + 0.7 * draws.uniform(draws.G))
    ability = mean[of] + spread[of] * draws.normal(R)
    spams = draws.uniform(R) < (draws.each(world.spammers) * draws.some(world.spammer_crowds))[of]
    ability = torch.where(spams, torch.zeros_like(ability), ability)
    ability = torch.where(draws.uniform(R) < world.adversaries, -ability, ability)

    strength = draws.normal(R, K), draws.each(world.bias) * draws.uniform(draws.G) * (BINARY_BIAS if K == 2 else 1.0)
    bias = strength[0] * strength[1][of][:, None]
    bias = bias + spams[:, None] * draws.normal(R, K) * draws.each(world.spammer_bias)[of][:, None]
    shared = draws.normal(draws.G, K) * draws.each(world.shared_bias)[:, None]
    bias = bias + (shared * draws.some(world.shared_bias_crowds)[:, None])[of]

    own = draws.normal(R, K, K)
    how_much = draws.each(world.own_confusions) * draws.uniform(draws.G) * draws.some(world.own_confusion_crowds)
    own = own * how_much[of][:, None, None] * (~spams)[:, None, None]
    return _People(ability, bias, own)


def _draw_classes(world: World, sizes: _Sizes, draws: _Draws) -> tuple[Tensor, Tensor, Tensor]:
    """Return class similarities (G, K, K), 1 for a class itself, effects of strictness (R, K, K), and order (G,)."""
    G, K, of = draws.G, sizes.K, sizes.of_annotator
    same = torch.eye(K, device=draws.device)
    low, high = world.look_alikes
    pairs = draws.uniform(G, K, K) < draws.each((low, min(high, 1 / K)))[:, None, None]
    alike = pairs.float() * draws.uniform(G, K, K) * draws.each(world.look_alike_strength)[:, None, None]
    ordered = draws.some(world.ordered_crowds if K > 2 else 0.0)[:, None, None]
    rank = torch.arange(K, device=draws.device).float()
    above = rank[None, :] - rank[:, None]  # [true, observed]
    near = 1 - above.abs() * draws.each(world.order_slope)[:, None, None]
    similarity = (1 - ordered) * (same + alike * (1 - same))
    similarity = similarity + ordered * torch.where(same > 0, same, near.clamp(-2, 0.9))
    strict = draws.normal(len(of)) * draws.each(world.strictness)[of]
    return similarity, ordered[of] * strict[:, None, None] * above.sign(), ordered[:, 0, 0]


def _draw_misled(world: World, sizes: _Sizes, draws: _Draws) -> Tensor:
    """Return (R,) 1 for annotators whom misleading items mislead, else 0."""
    of, R = sizes.of_annotator, len(sizes.of_annotator)
    if not world.resistant_crowds:
        return torch.ones(R, device=draws.device)
    share = draws.each(world.resistant) * draws.some(world.resistant_crowds)
    return (draws.uniform(R) >= share[of]).float()


def _draw_items(world: World, sizes: _Sizes, similarity: Tensor, truth: Tensor, draws: _Draws) -> tuple[Tensor, Tensor]:
    """Return the evidence of each item for each class, and what a misleading item adds to it, (N, K) each.

    Both are reduced for hard items.
    """
    of, K, N = sizes.of_item, sizes.K, len(sizes.of_item)
    spread = draws.each(world.difficulty) * draws.uniform(draws.G)
    clear = torch.exp(-spread[of] * draws.normal(N).abs())
    hard = draws.uniform(N) < (draws.each(world.hard_items) * draws.some(world.hard_item_crowds))[of]
    clear = torch.where(hard, clear * HARD, clear)

    misleads = draws.uniform(N) < (draws.each(world.misleading_items) * draws.some(world.misleading_crowds))[of]
    strength = misleads * draws.each(world.misleading_strength)[of] * (0.4 + 0.8 * draws.uniform(N))
    is_true = torch.eye(K, device=draws.device)[truth] > 0
    likely = (similarity[of, truth] * 2 + 0.5 * draws.normal(N, K)).masked_fill(is_true, -99)
    by_similarity = draws.uniform(N) < 0.5  # half of the wrong classes are similar ones, half uniform
    similar = draws.choice(torch.softmax(likely, -1))
    any_other = (truth + 1 + (draws.uniform(N) * (K - 1)).long().clamp_max(K - 2)) % K
    wrong_class = torch.where(by_similarity, similar, any_other)
    misleading = torch.zeros_like(likely).scatter(1, wrong_class[:, None], strength[:, None])
    return similarity[of, truth] * clear[:, None], misleading * clear[:, None]


def _draw_assignments(world: World, sizes: _Sizes, draws: _Draws) -> tuple[Tensor, Tensor]:
    """Return (L,) items and annotators; each item draws its annotators at random, active ones more often."""
    of, R, N, first = sizes.of_annotator, len(sizes.of_annotator), len(sizes.of_item), sizes.first_annotator
    active = draws.normal(R) * draws.each(world.activity)[of]
    most = int(sizes.annotators.max())
    table = torch.full((draws.G, most), -1e9, device=draws.device)
    table[of, torch.arange(R, device=draws.device) - first[of]] = active
    preferred = table[sizes.of_item] + draws.gumbel(N, most)
    uneven = draws.some(world.uneven_labels)[sizes.of_item] > 0
    low, high = world.uneven_by
    times = torch.where(uneven, low + (high - low) * draws.uniform(N), torch.ones(N, device=draws.device))
    count = (sizes.labels_an_item[sizes.of_item] * times).round().long().clamp_min(1)
    count = torch.minimum(count, sizes.annotators[sizes.of_item])
    places = int(count.max())
    who = preferred.topk(places, -1).indices + first[sizes.of_item][:, None]
    there = torch.arange(places, device=draws.device) < count[:, None]
    item = torch.arange(N, device=draws.device)[:, None].expand(N, places)
    return item[there], who[there]


def _copied(world: World, sizes: _Sizes, item: Tensor, annotator: Tensor, label: Tensor, draws: _Draws) -> Tensor:
    """Replace labels of copiers by those of one other annotator, for items that both labelled."""
    of, R = sizes.of_annotator, len(sizes.of_annotator)
    size = sizes.annotators[of]
    leader = sizes.first_annotator[of] + (draws.uniform(R) * size).long().minimum(size - 1)
    copies = draws.uniform(R) < (draws.each(world.copiers) * draws.some(world.copier_crowds))[of]
    key, order = torch.sort(item * R + annotator)
    wanted = item * R + leader[annotator]
    place = torch.searchsorted(key, wanted).clamp_max(len(key) - 1)
    taken = copies[annotator] & (key[place] == wanted) & (draws.uniform(len(annotator)) < COPIED)
    return torch.where(taken, label[order][place], label)
