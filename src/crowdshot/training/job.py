"""One model to train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crowdshot.encoders.encoder import Encoder
from crowdshot.training.recipe import Recipe


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
