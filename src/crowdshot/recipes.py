"""What an encoder is trained for, and how: the settings of meta-training as data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from crowdshot import simulate
from crowdshot.augmentation import AUGMENTATIONS
from crowdshot.errors import CrowdshotError
from crowdshot.priors import CONFUSION_PRIORS

Range = tuple[int, int]  # from, to, both included

OBJECTIVES: dict[str, dict[str, Any]] = {
    # The paper: query loss (10) of the classifier that MAP-EM fits.
    "mixture": {},
    # Snell et al. 2017: distances to class averages. That is the mixture without its priors, after one M-step.
    "prototypical": {"steps": 1, "tau": 0.0, "b": 1e6},
    # Liang et al. 2022: averages that listen less to items far from the rest of their noisy class (`methods.lnl`).
    "lnl": {},
    # Finn et al. 2017: three gradient steps from weights that are learned (`methods.maml`).
    "maml": {},
}
ALONE = ("maml",)  # objectives whose models stand in a stack of their own


@dataclass(frozen=True)
class Recipe:
    """Settings of one training run; the defaults are the paper's, with a range of shots and annotators for four-way
    episodes, so that one encoder serves the paper's nine cells.

    Ranges are drawn anew for every episode. ``pseudo_annotation=False`` gives every annotator the true labels (the
    paper's "w/o PA"). ``prior`` is "paper" or a kind of learned prior (`crowdshot.priors.CONFUSION_PRIORS`).
    ``augment`` "photo" flips and shifts the items of training episodes (`crowdshot.augmentation`). Where the source
    carries real annotators' labels, these are used, and ``annotators``, ``labels_per_item`` and ``crowd`` are not.
    """

    ways: Range = (4, 4)
    shots: Range = (1, 5)
    annotators: Range = (3, 7)
    labels_per_item: Range | None = None  # None: everyone labels everything
    queries: int = 10
    crowd: Mapping[str, float] = field(default_factory=lambda: dict(simulate.PAPER_SOURCE))
    episodes: int = 1  # in each step
    iterations: int = 30_000
    validate_every: int = 1_000
    validation_episodes: int = 200
    patience: int = 0  # validations without a new best before a model rests; 0: never
    prior: str = "paper"
    prior_learning_rate: float = 1e-2
    augment: str = "none"
    cool_down: float = 0.0  # share of the steps, the last ones, in which the learning rate falls to zero
    # From here on, models trained in one stack may differ.
    objective: str = "mixture"
    pseudo_annotation: bool = True
    steps: int = 2  # EM steps, the paper's J
    tau: float = 1.0
    b: float = 100.0
    step_size: float = 0.1  # MAML's
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("ways", "shots", "annotators", "labels_per_item"):
            value = getattr(self, name)
            if value is None:
                continue
            low, high = value
            least = 2 if name == "ways" else 1
            if not least <= low <= high:
                raise CrowdshotError(f"{name}: found {low}:{high}, expected a range from {least} upwards, such as 3:7")
            object.__setattr__(self, name, (int(low), int(high)))
        if self.labels_per_item is not None and self.labels_per_item[1] > self.annotators[1]:
            raise CrowdshotError(
                f"labels_per_item: found up to {self.labels_per_item[1]}, expected at most the "
                f"{self.annotators[1]} annotators"
            )
        choices = {"objective": OBJECTIVES, "prior": ("paper", *CONFUSION_PRIORS), "augment": AUGMENTATIONS}
        for name, allowed in choices.items():
            if getattr(self, name) not in allowed:
                raise CrowdshotError(f"{name}: found {getattr(self, name)!r}, expected one of {', '.join(allowed)}")
        for name in ("queries", "episodes", "iterations", "validate_every", "validation_episodes", "steps"):
            if getattr(self, name) < 1:
                raise CrowdshotError(f"{name}: found {getattr(self, name)}, expected 1 or more")
        for name in ("learning_rate", "prior_learning_rate", "step_size"):
            if not getattr(self, name) > 0:
                raise CrowdshotError(f"{name}: found {getattr(self, name)}, expected a positive number")
        if not 0 <= self.cool_down <= 1:
            raise CrowdshotError(f"cool_down: found {self.cool_down}, expected a share of the steps, from 0 to 1")
        for name, value in OBJECTIVES[self.objective].items():
            object.__setattr__(self, name, value)

    def to_card(self) -> dict[str, Any]:
        """As plain JSON data."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def as_range(text: str, name: str) -> Range:
    """ "3:7" -> (3, 7), "4" -> (4, 4); ``name`` is for the message."""
    low, colon, high = text.partition(":")
    try:
        return int(low), int(high if colon else low)
    except ValueError:
        raise CrowdshotError(f"{name}: found {text!r}, expected a number or a range, such as 5 or 3:7") from None


#: What the models of one stack must share, because it gives the step its shape.
SHARED = tuple(f.name for f in fields(Recipe))[: [f.name for f in fields(Recipe)].index("objective")]


def check_stackable(recipes: Sequence[Recipe]) -> None:
    for number, recipe in enumerate(recipes):
        for name in SHARED:
            ours, theirs = getattr(recipe, name), getattr(recipes[0], name)
            if ours != theirs:
                raise CrowdshotError(
                    f"recipe {number}: {name} is {ours}, but {theirs} in recipe 0; models of one stack share it"
                )
    objectives = {recipe.objective for recipe in recipes}
    if len(objectives) > 1 and not objectives.isdisjoint(ALONE):
        raise CrowdshotError(f"objective: found {', '.join(sorted(objectives))}; maml cannot be stacked with others")


def sweep(base: Recipe, **values: Sequence[Any]) -> list[Recipe]:
    """Every combination of the given values: ``sweep(Recipe(), steps=[1, 2], seed=range(5))`` is ten recipes."""
    recipes = [base]
    for name, options in values.items():
        recipes = [replace(recipe, **{name: option}) for recipe in recipes for option in options]
    return recipes
