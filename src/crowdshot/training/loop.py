"""Meta-training, the paper's Algorithm 1: learn an encoder by solving many small problems with simulated annotators.

Each step draws an episode from the source classes, lets simulated annotators label its support set (`crowd_labels`),
fits the mixture to what they said, and moves the encoder so that the fitted classifier gets the query items right
(`trainer`). One model or many: jobs that share shapes are trained side by side, each with its own classes, settings,
episodes, best checkpoint and early rest.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from crowdshot.encoders.encoder import Encoder
from crowdshot.episodes.pools import ClassPool
from crowdshot.training import checkpoints
from crowdshot.training.job import Job
from crowdshot.training.maml_trainer import MAMLTrainer
from crowdshot.training.processes import Processes
from crowdshot.training.trainer import Progress, Trainer

__all__ = ["Job", "Progress", "Trainer", "train"]


CHECK_EVERY = 100  # steps between two looks whether the loss is finite; a look waits for the device


def train(
    jobs: Sequence[Job],
    pool: ClassPool,
    *,
    precision: str = "float32",
    checkpoint: Path | None = None,
    checkpoint_every: int | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    tick: Callable[[int, int], None] = lambda done, total: None,
    stop: Callable[[], bool] = lambda: False,
    world: Processes | None = None,
) -> list[Encoder] | None:
    """Train every job on the pool's device; returns the encoders at their best validation, their cards filled in.

    ``precision`` "bfloat16" is for the network alone, the mixture stays in float32. With ``checkpoint``, progress is
    kept there after every validation, and every ``checkpoint_every`` steps, and taken up again from there; on the CPU
    the result is the same to the bit as that of an undisturbed run. The file stays: remove it once the encoders are in
    safety. ``report`` is called after every validation, ``tick`` after every step with (done, in all). When ``stop``
    says so, the step is finished, a checkpoint written and None returned.

    >>> import torch
    >>> from crowdshot import ClassPool, Job, Recipe, build_encoder, train
    >>> from crowdshot.encoders.features import FeatureInput
    >>> pool = ClassPool.from_arrays(torch.randn(80, 6), [f"class {i % 8}" for i in range(80)])
    >>> encoder = build_encoder("mlp", {"n_features": 6, "n_out": 4}, FeatureInput(6))
    >>> recipe = Recipe(ways=(3, 3), shots=(1, 2), queries=3, iterations=4, validate_every=2, validation_episodes=2)
    >>> (trained,) = train([Job(encoder, range(5), range(5, 8), recipe)], pool)
    >>> trained.card["recipe"]["iterations"]
    4
    """
    trainer = trainer_of(jobs, pool, precision, world or Processes())
    recipe = trainer.recipe
    if checkpoint is not None and checkpoint.exists():
        checkpoints.load(checkpoint, trainer)
    while trainer.iteration < recipe.iterations and not all(trainer.resting):
        trainer.step()
        tick(trainer.iteration, recipe.iterations)
        stopping = trainer.world.any(stop())
        due = trainer.iteration % recipe.validate_every == 0 or trainer.iteration == recipe.iterations
        saving = due or stopping or (checkpoint_every is not None and trainer.iteration % checkpoint_every == 0)
        if saving or trainer.iteration % CHECK_EVERY == 0:
            trainer.check_finite()
        if due:
            report(trainer.validate())
        if checkpoint is not None and saving and trainer.world.leads:
            checkpoints.save(checkpoint, trainer)
        if stopping and trainer.iteration < recipe.iterations:
            return None
    return trainer.finish()


def trainer_of(jobs: Sequence[Job], pool: ClassPool, precision: str, world: Processes) -> Trainer:
    kind = MAMLTrainer if jobs[0].recipe.objective == "maml" else Trainer
    return kind(jobs, pool, precision, world)
