"""Draw the classes of a split and the episodes of a cell.

The same dataset, split and cell always give the same episodes, so that all methods are compared on them.
"""

from __future__ import annotations

import zlib
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor

from crowdshot.encoders.image_input import ImageInput
from crowdshot.errors import CrowdshotError
from crowdshot.training import default_settings, simulated_annotators
from crowdshot.training.default_settings import PAPER_SOURCE
from crowdshot.training.episodes import Batch, Range, draw
from crowdshot.training.pools import ClassPool
from crowdshot.training.recipe import Recipe
from crowdshot_paper.datasets.dataset_files import Dataset
from crowdshot_paper.episode_cells import CROWDS, QUERIES, REAL, Cell, Target


def split_classes(target: Target, n_classes: int, split: int) -> tuple[list[int], list[int], list[int]]:
    """Return the source's classes for training, validation and test; ``split`` is the seed."""
    if sum(target.classes) > n_classes:
        expected = f"{sum(target.classes)} for splits of {' + '.join(map(str, target.classes))}"
        raise CrowdshotError(f"has {n_classes} classes", where=target.source, found=n_classes, expected=expected)
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
    """Draw the episodes of a cell, on the CPU.

    Parameters
    ----------
    dataset : Dataset
        The dataset to draw from.
    classes : list of int, optional
        The classes to draw from (default: all).
    cell : Cell
        The sizes and the crowd.
    n : int
        The number of episodes.
    split : int
        The split, part of the seed.
    role : str
        "validation" or "test".
    labels_per_item : (int, int), optional
        How many simulated annotators label an item (default: all).
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


def first_episodes(batch: Batch, n: int) -> Batch:
    """Return the first ``n`` episodes of a batch."""
    return Batch(*(None if part is None else part[:n] for part in batch))  # type: ignore[arg-type]


def _scarce(batch: Batch, cell: Cell, generator: torch.Generator) -> Batch:
    """Keep the labels of the first item only, for ``cell.scarce`` random classes of every episode."""
    lots = torch.rand(len(batch.labels), cell.ways, generator=generator)
    few = torch.zeros_like(lots, dtype=torch.bool).scatter_(1, lots.topk(cell.scarce).indices, True)
    later = torch.arange(cell.ways * cell.shots) % cell.shots > 0
    removed = few.gather(1, batch.support_truth) & later  # (B, N)
    return batch._replace(
        labels=batch.labels.masked_fill(removed[..., None], -1),
        support_truth=batch.support_truth.masked_fill(removed, -1),
    )


# ---- toy datasets: small, with the shapes and crowds of the real ones, to test that everything runs ----


CLASSES, EXAMPLES, SIZE = 32, 20, 16  # SIZE is the smallest that Conv4 takes
GREY = ImageInput((SIZE, SIZE), 1, ink=True)
COLOUR = ImageInput((SIZE, SIZE), 3, mean=(0.5,) * 3, std=(0.25,) * 3)
REAL_CROWDS = {"labelme": (8, 59), "cifar10h": (10, 25)}  # classes, annotators


@cache
def toy_dataset(name: str) -> Dataset:
    """Return grey patterns for Omniglot, coloured ones for photographs, and simulated labels for real annotators."""
    generator = torch.Generator().manual_seed(0)
    grey = name.startswith("omniglot")
    n_classes, n_annotators = REAL_CROWDS.get(name, (CLASSES, 0))
    counts = torch.full((n_classes,), EXAMPLES)
    names = tuple(f"pattern {i}" for i in range(n_classes))
    crowd = _labels(n_classes, n_annotators, generator) if n_annotators else None
    pool = ClassPool(_patterns(n_classes, 1 if grey else 3, generator), counts, names, crowd)
    note = f"a toy dataset in place of {name}: random patterns"
    return Dataset(name, pool, GREY if grey else COLOUR, note)


def _patterns(n_classes: int, channels: int, generator: torch.Generator) -> Tensor:
    """Return bytes (C, M, [channels,] H, W): a pattern of four by four squares per class, with noise."""
    squares = torch.rand(n_classes, 1, channels, 4, 4, generator=generator)
    clean = squares.repeat_interleave(SIZE // 4, -1).repeat_interleave(SIZE // 4, -2)
    noise = 0.25 * torch.randn(n_classes, EXAMPLES, channels, SIZE, SIZE, generator=generator)
    pixels = ((clean + noise).clamp(0, 1) * 255).to(torch.uint8)
    return pixels[:, :, 0] if channels == 1 else pixels


def _labels(n_classes: int, n_annotators: int, generator: torch.Generator) -> Tensor:
    """Return labels (C, M, A): three per item, except for the last item of each class, which has none."""
    truth = torch.arange(n_classes)[:, None].expand(-1, EXAMPLES).flatten()
    crowd = simulated_annotators.draw_annotators(
        n_annotators, n_classes, default_settings.PAPER_SOURCE, generator=generator
    )
    labels = simulated_annotators.draw_labels(truth, crowd.confusion, labels_per_item=3, generator=generator)
    labels = labels.reshape(n_classes, EXAMPLES, n_annotators).to(torch.int16)
    labels[:, -1] = -1
    return labels
