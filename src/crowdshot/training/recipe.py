"""What an encoder is trained for, and how: the settings of meta-training as data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from crowdshot.encoders.encoder import Encoder
from crowdshot.errors import CrowdshotError
from crowdshot.model.priors import CONFUSION_PRIORS
from crowdshot.training.episodes import EpisodeShape

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
class Recipe(EpisodeShape):
    """Settings of one training run: the episodes' shape, and how it learns from them; the defaults are the paper's.

    A range of shots and annotators for four-way episodes lets one encoder serve the paper's nine cells.
    ``pseudo_annotation=False`` gives every annotator the true labels (the paper's "w/o PA"). ``prior`` is "paper" or a
    kind of learned prior (`crowdshot.model.priors.CONFUSION_PRIORS`).

    >>> from crowdshot import Recipe
    >>> Recipe(ways=(2, 8), objective="prototypical", pseudo_annotation=False).shots
    (1, 5)
    """

    episodes: int = 1  # in each iteration
    iterations: int = 30_000
    validate_every: int = 1_000
    validation_episodes: int = 200
    patience: int = 0  # validations without a new best before a model rests; 0: never
    prior: str = "paper"
    prior_learning_rate: float = 1e-2
    cool_down: float = 0.0  # share of the iterations, the last ones, in which the learning rate falls to zero
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
        super().__post_init__()
        for name, allowed in {"objective": OBJECTIVES, "prior": ("paper", *CONFUSION_PRIORS)}.items():
            if getattr(self, name) not in allowed:
                raise CrowdshotError(f"{name} is {getattr(self, name)!r}, expected one of {', '.join(allowed)}.")
        for name in ("episodes", "iterations", "validate_every", "validation_episodes", "steps"):
            if getattr(self, name) < 1:
                raise CrowdshotError(f"{name} is {getattr(self, name)}, expected 1 or more.")
        for name in ("learning_rate", "prior_learning_rate", "step_size"):
            if not getattr(self, name) > 0:
                raise CrowdshotError(f"{name} is {getattr(self, name)}, expected a positive number.")
        if not 0 <= self.cool_down <= 1:
            raise CrowdshotError(f"cool_down is {self.cool_down}, expected a share of the iterations, from 0 to 1.")
        for name, value in OBJECTIVES[self.objective].items():
            object.__setattr__(self, name, value)

    def to_card(self) -> dict[str, Any]:
        """As plain JSON data."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


#: What the models of one stack must share, because it gives the step its shape.
SHARED = tuple(f.name for f in fields(Recipe))[: [f.name for f in fields(Recipe)].index("objective")]


def check_stackable(recipes: Sequence[Recipe]) -> None:
    for number, recipe in enumerate(recipes):
        for name in SHARED:
            ours, theirs = getattr(recipe, name), getattr(recipes[0], name)
            if ours != theirs:
                raise CrowdshotError(
                    f"{name} is {ours} in recipe {number}, expected {theirs} as in recipe 0 of the same stack."
                )
    objectives = {recipe.objective for recipe in recipes}
    if len(objectives) > 1 and not objectives.isdisjoint(ALONE):
        raise CrowdshotError(f"objective is {', '.join(sorted(objectives))} in one stack, expected maml alone.")


def sweep(base: Recipe, **values: Sequence[Any]) -> list[Recipe]:
    """Every combination of the given values: ``sweep(Recipe(), steps=[1, 2], seed=range(5))`` is ten recipes."""
    recipes = [base]
    for name, options in values.items():
        recipes = [replace(recipe, **{name: option}) for recipe in recipes for option in options]
    return recipes


# ---- job ------------------------------------------------------------
#
# One model to train.


@dataclass(frozen=True)
class Job:
    """One model to train: a fresh encoder, the pool's classes that it learns from and is validated on, settings.

    >>> from crowdshot import ImageInput, Job, Recipe, build_encoder
    >>> encoder = build_encoder("conv4", {"width": 8}, ImageInput((16, 16)))
    >>> job = Job(encoder, source=range(6), validation=range(6, 10), recipe=Recipe(iterations=100))
    >>> job.recipe.iterations
    100
    """

    encoder: Encoder
    source: Sequence[int]
    validation: Sequence[int]
    recipe: Recipe
