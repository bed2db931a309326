"""The loop around a `Trainer` of another objective than the mixture's."""

from __future__ import annotations

from collections.abc import Callable

from crowdshot.encoders import Encoder
from crowdshot.trainer import Progress, Trainer


def run(trainer: Trainer, report: Callable[[Progress], None]) -> list[Encoder]:
    """Train to the end, or until all models rest; the encoders at their best validation."""
    recipe = trainer.recipe
    while trainer.iteration < recipe.iterations and not all(trainer.resting):
        trainer.step()
        if trainer.iteration % recipe.validate_every == 0 or trainer.iteration == recipe.iterations:
            report(trainer.validate())
    return trainer.finish()
