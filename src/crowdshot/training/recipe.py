"""Define the settings of a training run (`Recipe`) and one model to train (`Job`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from crowdshot.encoders.encoder import Encoder
from crowdshot.errors import CrowdshotError
from crowdshot.model.priors import CONFUSION_PRIORS
from crowdshot.training.episodes import EpisodeShape

OBJECTIVES: dict[str, dict[str, Any]] = {
    # The paper: query loss, eq. (10), of the classifier that MAP-EM fits.
    "mixture": {},
    # Snell et al. 2017: distances to class means, which is the mixture without priors after one M step.
    "prototypical": {"steps": 1, "tau": 0.0, "b": 1e6},
    # Liang et al. 2022: class means in which items far from the rest of their noisy class weigh less (method LNL).
    "lnl": {},
    # Finn et al. 2017: three gradient steps from learned initial weights (method MaMV).
    "maml": {},
}


ALONE = ("maml",)  # objectives that cannot share a stack with other objectives


@dataclass(frozen=True)
class Recipe(EpisodeShape):
    """Settings of a training run: the shape of its episodes, and the optimisation. The defaults are the paper's.

    Episodes have four classes and a range of shots and annotators, so that one encoder serves all nine cells of the
    paper's tables. For the parameters of episodes see `crowdshot.training.episodes.EpisodeShape`.

    Parameters
    ----------
    episodes : int
        Episodes per iteration.
    iterations, validate_every, validation_episodes : int
        Length of the run, and how often and on how many episodes it is validated.
    patience : int
        Validations without a new best before a model stops; 0 for never.
    prior : str
        "paper", or a kind of learned prior (`crowdshot.model.priors.CONFUSION_PRIORS`).
    prior_learning_rate : float
        Learning rate of a learned prior.
    cool_down : float
        The last share of the iterations, in which the learning rate falls linearly to zero.
    objective : str
        "mixture", "prototypical", "lnl" or "maml".
    pseudo_annotation : bool
        Whether labels come from simulated annotators. If False, every label is true (the paper's "w/o PA").
    steps : int
        EM steps, the paper's J.
    tau, b : float
        The paper's prior parameters.
    step_size : float
        MAML's inner learning rate.
    learning_rate : float
        Adam's learning rate.
    seed : int
        Seed of the episodes.

    Examples
    --------
    >>> from crowdshot import Recipe
    >>> Recipe(ways=(2, 8), objective="prototypical", pseudo_annotation=False).shots
    (1, 5)
    """

    episodes: int = 1
    iterations: int = 30_000
    validate_every: int = 1_000
    validation_episodes: int = 200
    patience: int = 0
    prior: str = "paper"
    prior_learning_rate: float = 1e-2
    cool_down: float = 0.0
    # Models in one stack may differ in the fields from here on (see `SHARED`).
    objective: str = "mixture"
    pseudo_annotation: bool = True
    steps: int = 2
    tau: float = 1.0
    b: float = 100.0
    step_size: float = 0.1
    learning_rate: float = 1e-3
    seed: int = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, allowed in {"objective": OBJECTIVES, "prior": ("paper", *CONFUSION_PRIORS)}.items():
            if getattr(self, name) not in allowed:
                raise _wrong(name, getattr(self, name), f"one of {', '.join(allowed)}")
        for name in ("episodes", "iterations", "validate_every", "validation_episodes", "steps"):
            if getattr(self, name) < 1:
                raise _wrong(name, getattr(self, name), "1 or more")
        for name in ("learning_rate", "prior_learning_rate", "step_size"):
            if not getattr(self, name) > 0:
                raise _wrong(name, getattr(self, name), "a positive number")
        if not 0 <= self.cool_down <= 1:
            raise _wrong("cool_down", self.cool_down, "a share of the iterations, from 0 to 1")
        for name, value in OBJECTIVES[self.objective].items():
            object.__setattr__(self, name, value)

    def to_card(self) -> dict[str, Any]:
        """Return the settings as JSON data."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}


def _wrong(name: str, value: Any, expected: str) -> CrowdshotError:
    return CrowdshotError(f"is {value!r}", argument=name, found=value, expected=expected)


#: Fields in which all models of a stack must agree, because they determine tensor shapes and the schedule.
SHARED = tuple(f.name for f in fields(Recipe))[: [f.name for f in fields(Recipe)].index("objective")]


def check_stackable(recipes: Sequence[Recipe]) -> None:
    """Raise an error if models with these recipes cannot be trained in one stack."""
    for number, recipe in enumerate(recipes):
        for name in SHARED:
            ours, theirs = getattr(recipe, name), getattr(recipes[0], name)
            if ours != theirs:
                raise CrowdshotError(
                    f"is {ours} in recipe {number}",
                    argument=name,
                    found=ours,
                    expected=f"{theirs} as in recipe 0 of the same stack",
                )
    objectives = {recipe.objective for recipe in recipes}
    if len(objectives) > 1 and not objectives.isdisjoint(ALONE):
        raise CrowdshotError(
            f"is {', '.join(sorted(objectives))} in one stack",
            argument="objective",
            found=sorted(objectives),
            hint="Train maml in a stack of its own",
        )


def sweep(base: Recipe, **values: Sequence[Any]) -> list[Recipe]:
    """Return a recipe for every combination of values: ``sweep(Recipe(), steps=[1, 2], seed=range(5))`` has ten."""
    recipes = [base]
    for name, options in values.items():
        recipes = [replace(recipe, **{name: option}) for recipe in recipes for option in options]
    return recipes


@dataclass(frozen=True)
class Job:
    """One model to train.

    Parameters
    ----------
    encoder : Encoder
        A new encoder. Training changes it.
    source, validation : sequence of int
        Indices of the pool's classes for training and for validation.
    recipe : Recipe
        The settings.

    Examples
    --------
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
