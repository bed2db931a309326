"""Small made-up datasets with the shapes and crowds of the real ones: to see that everything runs, not how well."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from crowdshot.encoders.images import ImageInput
from crowdshot.episodes import simulate
from crowdshot.episodes.datasets.loader import Dataset
from crowdshot.episodes.pools import ClassPool

CLASSES, EXAMPLES, SIZE = 32, 20, 16  # SIZE is the smallest that Conv4 takes
GREY = ImageInput((SIZE, SIZE), 1, ink=True)
COLOUR = ImageInput((SIZE, SIZE), 3, mean=(0.5,) * 3, std=(0.25,) * 3)
REAL_CROWDS = {"labelme": (8, 59), "cifar10h": (10, 25), "cifar10s": (10, 60)}  # classes, annotators


@cache
def toy_dataset(name: str) -> Dataset:
    """Grey patterns for Omniglot, coloured ones for photos; a simulated crowd where the dataset has a real one."""
    generator = torch.Generator().manual_seed(0)
    grey = name.startswith("omniglot")
    n_classes, n_annotators = REAL_CROWDS.get(name, (CLASSES, 0))
    counts = torch.full((n_classes,), EXAMPLES)
    names = tuple(f"pattern {i}" for i in range(n_classes))
    crowd = _said(n_classes, n_annotators, generator) if n_annotators else None
    pool = ClassPool(_patterns(n_classes, 1 if grey else 3, generator), counts, names, crowd)
    note = f"a toy in the place of {name}: made-up patterns"
    return Dataset(name, pool, GREY if grey else COLOUR, note)


def _patterns(n_classes: int, channels: int, generator: torch.Generator) -> Tensor:
    """Bytes (C, M, [channels,] H, W): four by four squares, those of a class alike but for noise."""
    squares = torch.rand(n_classes, 1, channels, 4, 4, generator=generator)
    clean = squares.repeat_interleave(SIZE // 4, -1).repeat_interleave(SIZE // 4, -2)
    noise = 0.25 * torch.randn(n_classes, EXAMPLES, channels, SIZE, SIZE, generator=generator)
    pixels = ((clean + noise).clamp(0, 1) * 255).to(torch.uint8)
    return pixels[:, :, 0] if channels == 1 else pixels


def _said(n_classes: int, n_annotators: int, generator: torch.Generator) -> Tensor:
    """(C, M, A): three of the annotators label each item, and nobody a class's last one."""
    truth = torch.arange(n_classes)[:, None].expand(-1, EXAMPLES).flatten()
    crowd = simulate.draw_annotators(n_annotators, n_classes, simulate.PAPER_SOURCE, generator=generator)
    said = simulate.draw_labels(truth, crowd.confusion, labels_per_item=3, generator=generator)
    said = said.reshape(n_classes, EXAMPLES, n_annotators).to(torch.int16)
    said[:, -1] = -1
    return said
