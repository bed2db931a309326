"""A cell's episodes, and the classes they come from, drawn: by dataset, split and cell alone, always the same."""

from __future__ import annotations

import zlib
from dataclasses import replace

import torch

from crowdshot.episodes.crowd_labels import Batch, draw
from crowdshot.episodes.crowds import PAPER_SOURCE
from crowdshot.episodes.datasets.loader import Dataset
from crowdshot.episodes.shape import Range
from crowdshot.errors import CrowdshotError
from crowdshot.paper.plan.cells import CROWDS, QUERIES, REAL, Cell, Target
from crowdshot.training.recipe import Recipe


def split_classes(target: Target, n_classes: int, split: int) -> tuple[list[int], list[int], list[int]]:
    """The source's classes to learn from, validate on and test on; ``split`` is the seed."""
    if sum(target.classes) > n_classes:
        raise CrowdshotError(
            f"{target.source} has {n_classes} classes, expected {sum(target.classes)} for splits of "
            f"{' + '.join(map(str, target.classes))}."
        )
    order = torch.randperm(n_classes, generator=torch.Generator().manual_seed(split)).tolist()
    learn, validate, test = target.classes
    return order[:learn], order[learn : learn + validate], order[learn + validate : learn + validate + test]


def draw_episodes(
    dataset: Dataset,
    classes: list[int] | None,
    cell: Cell,
    n: int,
    split: int,
    role: str,
    labels_per_item: Range | None = None,
) -> Batch:
    """The cell's episodes on the CPU, always the same; ``classes`` None: all. ``role``: "validation" or "test".

    ``labels_per_item`` is for simulated annotators; None: everyone labels everything.
    """
    pool = dataset.pool
    if cell.crowd != REAL:
        pool = replace(pool, crowd_labels=None)
    key = (dataset.name, split, role, cell.n_support, cell.n_annotators, cell.crowd, cell.ways, cell.scarce)
    generator = torch.Generator().manual_seed(zlib.crc32(repr(key).encode()))
    annotators = max(1, cell.n_annotators)
    recipe = Recipe(
        ways=(cell.ways,) * 2,
        shots=(cell.shots,) * 2,
        annotators=(annotators,) * 2,
        labels_per_item=labels_per_item,
        queries=QUERIES,
        crowd=CROWDS.get(cell.crowd, PAPER_SOURCE),
    )
    allowed = torch.zeros(n, len(pool.names), dtype=torch.bool)
    allowed[:, range(len(pool.names)) if classes is None else classes] = True
    batch = draw(pool, recipe, allowed, torch.zeros(n, dtype=torch.bool), generator)
    return batch if cell.scarce == 0 else _scarce(batch, cell, generator)


def _scarce(batch: Batch, cell: Cell, generator: torch.Generator) -> Batch:
    """Nobody labels any but the first item of some classes, chosen anew in every episode."""
    lots = torch.rand(len(batch.labels), cell.ways, generator=generator)
    few = torch.zeros_like(lots, dtype=torch.bool).scatter_(1, lots.topk(cell.scarce).indices, True)
    later = torch.arange(cell.ways * cell.shots) % cell.shots > 0
    gone = few.gather(1, batch.support_truth) & later  # (B, N)
    return batch._replace(
        labels=batch.labels.masked_fill(gone[..., None], -1), support_truth=batch.support_truth.masked_fill(gone, -1)
    )
