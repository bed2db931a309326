"""The world of simulated crowds that the inference learns from (docs/inference.md): problems whose truth is known.

A `World` says how crowds may be: every ingredient has a name, a range and a switch (`World.without`).
`crowdshot.episodes.world_draws.draw` makes a batch of crowds of it, each with its own sizes, people and items. The
ranges were set so that what can be seen of a crowd (agreement, labels an item and an annotator, class sizes, how often
the vote is right) is as in real ones.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, Self

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
    told_order: float = 0.5  # ordered crowds of which it is known that they are

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
    "told-order": {"told_order": 0.0},
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
