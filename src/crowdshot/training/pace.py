"""How long a training run will take on this machine, by a few steps of a copy of it."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Sequence
from dataclasses import replace

from crowdshot.episodes.pools import ClassPool
from crowdshot.training.job import Job
from crowdshot.training.loop import trainer_of
from crowdshot.training.processes import Processes

STEPS, LONGEST = 5, 3.0  # so many are timed, or as many as begin within so many seconds
QUICK = 1.0  # seconds
EPISODES = 2  # of a validation


def expected_seconds(jobs: Sequence[Job], pool: ClassPool, precision: str = "float32") -> float:
    """Of all iterations and validations; the jobs stay as they are."""
    recipe = jobs[0].recipe
    short = [
        replace(job, encoder=copy.deepcopy(job.encoder), recipe=replace(job.recipe, validation_episodes=EPISODES))
        for job in jobs
    ]
    trial = trainer_of(short, pool, precision, Processes())
    began = time.monotonic()
    trial.step()
    step = time.monotonic() - began
    if step < QUICK:  # the first one takes longer, which does not count where all take long
        done, began = 0, time.monotonic()
        while done < STEPS and (done == 0 or time.monotonic() - began < LONGEST):
            trial.step()
            done += 1
        step = (time.monotonic() - began) / done
    began = time.monotonic()
    trial.validate()
    episode = (time.monotonic() - began) / EPISODES
    validations = math.ceil(recipe.iterations / recipe.validate_every)
    return recipe.iterations * step + validations * recipe.validation_episodes * episode
