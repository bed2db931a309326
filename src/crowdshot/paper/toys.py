"""Small drawn datasets with the shapes and crowds of the real ones: to see that everything runs, not how well."""

from __future__ import annotations

from functools import cache

import torch

from crowdshot import simulate
from crowdshot.datasets import Dataset
from crowdshot.datasets.glyphs import glyph_pool
from crowdshot.episodes import ClassPool
from crowdshot.images import ImageInput

CLASSES, EXAMPLES = 26, 20
REAL_CROWDS = {"labelme": (8, 59), "cifar10h": (10, 25), "cifar10s": (10, 248)}  # classes, annotators


@cache
def toy_dataset(name: str) -> Dataset:
    """Drawn characters for Omniglot, tinted ones for photos; a pretend crowd where the dataset has a real one."""
    glyphs = glyph_pool(CLASSES, EXAMPLES)
    note = f"a toy in the place of {name}: drawn characters"
    if name.startswith("omniglot"):
        return Dataset(name, glyphs, ImageInput((28, 28), 1, ink=True), note)
    tint = torch.tensor([1.0, 0.8, 0.6])[:, None, None]
    tinted = (glyphs.examples[:, :, None] * tint).to(torch.uint8)  # (C, M, 3, 28, 28)
    spec = ImageInput((28, 28), 3, mean=(0.5,) * 3, std=(0.25,) * 3)
    pool = ClassPool(tinted, glyphs.counts, glyphs.names)
    if name not in REAL_CROWDS:
        return Dataset(name, pool, spec, note)
    n_classes, n_annotators = REAL_CROWDS[name]
    generator = torch.Generator().manual_seed(0)
    truth = torch.arange(n_classes)[:, None].expand(-1, EXAMPLES).flatten()
    crowd = simulate.draw_annotators(n_annotators, n_classes, simulate.PAPER_SOURCE, generator=generator)
    said = simulate.draw_labels(truth, crowd.confusion, labels_per_item=3, generator=generator)
    some = pool.take(range(n_classes))
    crowd_labels = said.reshape(n_classes, EXAMPLES, n_annotators).to(torch.int16)
    return Dataset(name, ClassPool(some.examples, some.counts, some.names, crowd_labels), spec, note)
