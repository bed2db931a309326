"""What a model is trained on, and the episodes it is validated with: the same ones at every validation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from crowdshot.episodes.crowd_labels import Batch, draw
from crowdshot.episodes.pools import ClassPool
from crowdshot.training.job import Job

PIXELS_AT_ONCE = {"cuda": 32_000_000, "cpu": 1_000_000}  # that are embedded, so that they fit in memory


def draw_all(jobs: Sequence[Job], pool: ClassPool, allowed: Tensor, clean: Tensor) -> list[Batch]:
    """Each model's own episodes, in parts that fit in memory, one model's after the other's in a part.

    ``allowed`` (G, C) are the pool's classes for validation, ``clean`` (G,) who has annotators that tell the truth.
    Where there are fewer classes for validation than an episode of training has, its episodes have no more.
    """
    few, device, trained = min(len(job.validation) for job in jobs), pool.examples.device, jobs[0].recipe
    recipe = replace(trained, ways=(min(trained.ways[0], few), min(trained.ways[1], few)))
    ways = recipe.ways[1]
    pixels = len(jobs) * ways * (recipe.shots[1] + recipe.queries) * pool.examples[0, 0].numel()
    at_once = max(1, PIXELS_AT_ONCE[device.type] // pixels)
    generators = [torch.Generator(device).manual_seed(job.recipe.seed + 1_000_003) for job in jobs]
    left, parts = recipe.validation_episodes, []
    while left > 0:
        n = min(at_once, left)
        left -= n
        drawn = [
            draw(pool, recipe, classes.expand(n, -1), honest.expand(n), generator, augmented=False)
            for classes, honest, generator in zip(allowed, clean, generators, strict=True)
        ]
        joined = (torch.cat(x) if x[0] is not None else None for x in zip(*drawn, strict=True))
        part = Batch(*joined)  # type: ignore[arg-type]
        if part.classes_in_use is None and ways < trained.ways[1]:
            part = part._replace(classes_in_use=torch.full((len(part.labels),), ways, device=device))
        parts.append(part)
    return parts
