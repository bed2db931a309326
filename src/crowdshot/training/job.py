"""One model to train."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from crowdshot.encoders.encoder import Encoder
from crowdshot.training.recipe import Recipe


@dataclass(frozen=True)
class Job:
    """One model to train: a fresh encoder, the pool's classes that it learns from and is validated on, settings."""

    encoder: Encoder
    source: Sequence[int]
    validation: Sequence[int]
    recipe: Recipe
