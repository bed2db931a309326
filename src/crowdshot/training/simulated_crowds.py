"""The world of simulated crowds that the inference learns from (docs/inference.md): problems whose truth is known.

A `World` says how crowds may be: every ingredient has a name, a range and a switch (`World.without`).
`crowdshot.training.simulated_crowds.draw` makes a batch of crowds of it, each with its own sizes, people and items. The
ranges were set so that what can be seen of a crowd (agreement, labels an item and an annotator, class sizes, how often
the vote is right) is as in real ones.
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
    """Ranges are drawn from evenly, once a crowd; a single number is a probability."""

    # ---- sizes
    classes: tuple[int, ...] = (2, 2, 2, 2, 2, 2, 3, 3, 4, 4, 4, 5, 6, 7, 8, 10, 10, 15)  # one of these
    items: Range = (4, 4000)  # evenly in the logarithm, as the next two
    annotators: Range = (3, 300)
    labels_an_item: Range = (1, 15)  # on average, and no more than annotators
    many_labels: float = 0.15  # crowds with any number of labels an item, up to …
    most_labels: float = 60
    complete: float = 0.08  # crowds in which everybody labels everything, with as many as this:
    complete_items: Range = (40, 200)
    complete_annotators: Range = (8, 45)
    uneven_labels: float = 0.5  # crowds whose items have more and less labels than the average, times …
    uneven_by: Range = (0.3, 1.7)
    activity: Range = (0, 2)  # heavy and light annotators: spread of the logarithm of how much they label
    class_sizes: Range = (0.5, 40)  # of the Dirichlet distribution, in the logarithm; small: classes differ much
    equal_classes: float = 0.5  # crowds of few items that have as many of every class, as few-shot episodes do
    few_items: int = 60
    # ---- people
    accuracy: Range = (0.5, 0.99)  # of the annotators on items without difficulty; the better half is more frequent
    skill_spread: Range = (0, 2)  # standard deviation of the logit of that
    spammers: Range = (0, 0.5)  # share of annotators who do not look
    spammer_crowds: float = 0.5  # crowds that have any
    spammer_bias: Range = (0, 4)  # how much each of them prefers some classes
    adversaries: float = 0.01  # annotators who avoid the truth
    bias: Range = (0, 2.4)  # how much each annotator prefers some classes
    shared_bias: Range = (0, 1.2)  # how much all prefer the same classes
    shared_bias_crowds: float = 0.6
    own_confusions: Range = (0, 1)  # how much each annotator takes some classes for others
    own_confusion_crowds: float = 0.7
    look_alikes: Range = (0, 0.3)  # pairs of classes that everybody confuses; no more than one other class each
    look_alike_strength: Range = (0, 1)  # up to: 1 cannot be told apart
    ordered_crowds: float = 0.2  # crowds whose classes, if more than two, have an order: neighbours are confused
    order_slope: Range = (0.25, 1)  # how much less so a class further
    strictness: Range = (0, 1.5)  # where they have, how much each annotator names higher or lower ones
    copiers: Range = (0, 0.4)  # share of annotators who copy answers of another, whom they meet
    copier_crowds: float = 0.2
    # ---- items
    difficulty: Range = (0, 0.7)  # spread of the logarithm of how clear items are
    hard_items: Range = (0, 0.25)  # share of items that are hardly clear to anybody
    hard_item_crowds: float = 0.5
    misleading_items: Range = (0, 0.5)  # share of items that look like another class to everybody
    misleading_crowds: float = 0.85
    misleading_strength: Range = (0.6, 1.8)  # 1: as much as like their own
    # ---- what else is known
    gold_crowds: float = 0.15  # crowds of whose items some are known, as many as this share:
    gold: Range = (0.02, 0.3)
    history_crowds: float = 0.15  # crowds of whose annotators half have a history, of as many answers as this:
    history: Range = (4, 200)  # in the logarithm
    stated_order: float = 0.5  # ordered crowds of which it is known that they are

    def without(self, ingredient: str) -> Self:
        """The same world but for one of `INGREDIENTS`; the same seed then draws the same sizes, truth and people."""
        if ingredient not in INGREDIENTS:
            raise CrowdshotError(f"ingredient is {ingredient!r}, expected one of {', '.join(INGREDIENTS)}.")
        return replace(self, **INGREDIENTS[ingredient])

    def to_card(self) -> dict[str, Any]:
        """As plain JSON data."""
        values = ((field.name, getattr(self, field.name)) for field in fields(self))
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values}


NONE: Range = (0, 0)
#: What can be switched off, and which fields that sets.
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
    """G crowds with as many classes, side by side: L labels as flat triples, N items and R annotators in all."""

    item: Tensor  # (L,)
    annotator: Tensor  # (L,)
    label: Tensor  # (L,)
    truth: Tensor  # (N,), -1 where it is not known
    crowd_of_item: Tensor  # (N,)
    crowd_of_annotator: Tensor  # (R,)
    n_classes: int
    n_crowds: int
    known: Tensor | None = None  # (N,) classes that are told, -1 elsewhere
    right: Tensor | None = None  # (R,) answers that were right before
    wrong: Tensor | None = None  # (R,)
    ordered: Tensor | None = None  # (G,) 1 where it is told that classes have an order


# ---- world draws ------------------------------------------------------------
#
# Crowds drawn from a `World`: sizes, people, items, who labels what, what they say, and what else is known.
#
# How a label comes about: an annotator sees the item's class and, weaker, the classes that it is taken for; the better
# the annotator and the easier the item, the more that counts; leanings to classes and confusions are added; then the
# largest of all classes, each with noise, is named.


MOST_CROWDS = 400  # in a batch
HARD = 0.25  # what is left of an item's clearness where it is hard
LEAST_CLASS = 0.005  # of the items
SUREST = 0.985  # the mean accuracy that counts, at most
ABOVE_CHANCE = 0.08  # the mean accuracy, at least
BINARY_BIAS = 1.5  # of two classes annotators prefer one more strongly
COPIED = 0.8  # of what a copier could copy


class _Draws:
    """Random numbers of one generator, most of them one for each of G crowds."""

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
        """(G,) one number of the range for each crowd."""
        return bounds[0] + (bounds[1] - bounds[0]) * self.uniform(self.G)

    def some(self, share: float) -> Tensor:
        """(G,) which crowds have what that share of them has, as 0 and 1."""
        return (self.uniform(self.G) < share).float()

    def choice(self, weights: Tensor) -> Tensor:
        """(n, K) -> (n,): one of each row."""
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
    """Crowds of one number of classes, as many as it takes for about so many labels in all.

    ``device``: where the generator is, which is where all is drawn. Same generator, same crowds.
    """
    place = generator.device if device is None else torch.device(device)
    if place.type != generator.device.type:
        raise CrowdshotError(f"generator is on {generator.device}, expected {place}.")
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
    looks, strict, ordered = _draw_classes(world, sizes, draws)  # (G, K, K), (R, K, K), (G,)
    people = _People(people.ability, people.bias, people.confusion + strict)
    looks = _draw_items(world, sizes, looks, truth, draws)  # (N, K)
    item, annotator = _draw_who_labels_what(world, sizes, draws)
    evidence = people.ability[annotator][:, None] * looks[item]
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
    """The same crowds, of which some have items whose class is known, as in the world."""
    draws = _Draws(generator, generator.device)
    draws.G = crowds.n_crowds
    return replace(crowds, known=_draw_gold(world, crowds, draws))


def _draw_gold(world: World, crowds: Crowds, draws: _Draws) -> Tensor:
    """(N,): the truth of some items of some crowds, -1 elsewhere."""
    share = draws.each(world.gold) * draws.some(world.gold_crowds)
    told = draws.uniform(len(crowds.truth)) < share[crowds.crowd_of_item]
    return torch.where(told, crowds.truth, -1)


def _draw_history(world: World, crowds: Crowds, right: Tensor, draws: _Draws) -> tuple[Tensor, Tensor]:
    """(R,), (R,): answers that were right and wrong before; ``right`` (L,): how likely each label was to be."""
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
        N, R = int(_in_logarithm(world.items, draws)), int(_in_logarithm(world.annotators, draws))
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


def _in_logarithm(bounds: Range, draws: _Draws) -> float:
    low, high = map(math.log, bounds)
    return math.exp(draws.number() * (high - low) + low)


def _draw_people(world: World, sizes: _Sizes, draws: _Draws) -> _People:
    of, K, R = sizes.of_annotator, sizes.K, len(sizes.of_annotator)
    low, high = world.accuracy
    accuracy = low + (high - low) * draws.uniform(draws.G) ** 0.6
    mean = torch.logit(accuracy.clamp_min(1 / K + ABOVE_CHANCE).clamp(0.05, SUREST)) + math.log(max(K - 1, 1))
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
    """(G, K, K): how much a class looks like another, itself 1; what strict people make of order; (G,) which have."""
    G, K, of = draws.G, sizes.K, sizes.of_annotator
    same = torch.eye(K, device=draws.device)
    low, high = world.look_alikes
    pairs = draws.uniform(G, K, K) < draws.each((low, min(high, 1 / K)))[:, None, None]
    alike = pairs.float() * draws.uniform(G, K, K) * draws.each(world.look_alike_strength)[:, None, None]
    ordered = draws.some(world.ordered_crowds if K > 2 else 0.0)[:, None, None]
    rank = torch.arange(K, device=draws.device).float()
    above = rank[None, :] - rank[:, None]  # [true, observed]
    near = 1 - above.abs() * draws.each(world.order_slope)[:, None, None]
    looks = (1 - ordered) * (same + alike * (1 - same))
    looks = looks + ordered * torch.where(same > 0, same, near.clamp(-2, 0.9))
    strict = draws.normal(len(of)) * draws.each(world.strictness)[of]
    return looks, ordered[of] * strict[:, None, None] * above.sign(), ordered[:, 0, 0]


def _draw_items(world: World, sizes: _Sizes, looks: Tensor, truth: Tensor, draws: _Draws) -> Tensor:
    """(N, K): how much each item looks like each class, less where it is hard."""
    of, K, N = sizes.of_item, sizes.K, len(sizes.of_item)
    spread = draws.each(world.difficulty) * draws.uniform(draws.G)
    clear = torch.exp(-spread[of] * draws.normal(N).abs())
    hard = draws.uniform(N) < (draws.each(world.hard_items) * draws.some(world.hard_item_crowds))[of]
    clear = torch.where(hard, clear * HARD, clear)

    misleads = draws.uniform(N) < (draws.each(world.misleading_items) * draws.some(world.misleading_crowds))[of]
    strength = misleads * draws.each(world.misleading_strength)[of] * (0.4 + 0.8 * draws.uniform(N))
    is_true = torch.eye(K, device=draws.device)[truth] > 0
    likely = (looks[of, truth] * 2 + 0.5 * draws.normal(N, K)).masked_fill(is_true, -99)
    by_look = draws.uniform(N) < 0.5  # half of them a class that looks alike, half any
    similar = draws.choice(torch.softmax(likely, -1))
    any_other = (truth + 1 + (draws.uniform(N) * (K - 1)).long().clamp_max(K - 2)) % K
    taken_for = torch.where(by_look, similar, any_other)
    seen = looks[of, truth].scatter_add(1, taken_for[:, None], strength[:, None])
    return seen * clear[:, None]


def _draw_who_labels_what(world: World, sizes: _Sizes, draws: _Draws) -> tuple[Tensor, Tensor]:
    """(L,) items and annotators: each item is labelled by other people, the active ones more often."""
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
    """Copiers have one whom they copy, where both labelled an item."""
    of, R = sizes.of_annotator, len(sizes.of_annotator)
    size = sizes.annotators[of]
    leader = sizes.first_annotator[of] + (draws.uniform(R) * size).long().minimum(size - 1)
    copies = draws.uniform(R) < (draws.each(world.copiers) * draws.some(world.copier_crowds))[of]
    key, order = torch.sort(item * R + annotator)
    wanted = item * R + leader[annotator]
    place = torch.searchsorted(key, wanted).clamp_max(len(key) - 1)
    taken = copies[annotator] & (key[place] == wanted) & (draws.uniform(len(annotator)) < COPIED)
    return torch.where(taken, label[order][place], label)
