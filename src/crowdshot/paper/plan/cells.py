"""What the paper's test episodes look like, and which classes they come from.

A `Cell` is one setting of a table: so many support items, so many annotators, drawn from one crowd. Its episodes depend
on the dataset, the split and the cell alone, so that every method meets the same ones and differences can be tested in
pairs.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import torch

from crowdshot.episodes import simulate
from crowdshot.episodes.crowd_labels import Batch, draw
from crowdshot.episodes.datasets.loader import Dataset
from crowdshot.episodes.shape import Range
from crowdshot.errors import CrowdshotError
from crowdshot.training.recipe import Recipe

QUERIES = 10  # a class
VALIDATION = 50  # episodes of a cell at least, from the source, which has plenty
REAL = "real"  # the crowd of a dataset that has one

CROWDS = {
    "".join(f"{kind[0].upper()}{share:.2g} " for kind, share in crowd.items()).strip(): crowd
    for crowd in (*simulate.PAPER_TARGETS, *simulate.OTHER_TARGETS)
}
"""How a crowd is written in tables -> how probable each kind is: "E0.1 H0.7 S0.2"."""
SOURCE_CROWD = "E0.1 H0.7 S0.2"  # who pretends to annotate in meta-training, and validates
TARGET_CROWDS = tuple(CROWDS)[:4]
OTHER_CROWDS = tuple(CROWDS)[4:]


@dataclass(frozen=True)
class Target:
    """A dataset to be tested on: where its encoders learn, how many classes for learning, validation and test.

    ``annotators`` and ``labels_per_item`` (None: all of them) are those of pretend annotators, in validation and, of a
    dataset that is a source, in meta-training.
    """

    source: str  # the dataset that encoders are meta-trained on
    classes: tuple[int, int, int]  # of the source
    ways: int
    annotators: Range = (3, 7)
    labels_per_item: Range | None = None
    episodes: int = 50  # of a cell, for test; validation has VALIDATION or as many
    iterations: int = 30_000  # of meta-training, where it is a source
    most_shots: int = 1_000  # that its classes have items for, beside the queries


_PHOTOS = Target("tiny-imagenet-100", (70, 10, 20), 4)
_REAL = replace(_PHOTOS, annotators=(20, 20), episodes=10)  # real annotators are many and label few items each
TARGETS = {
    "omniglot": Target("omniglot", (764, 100, 100), 4, most_shots=10),
    "miniimagenet": replace(_PHOTOS, source="miniimagenet", iterations=60_000),
    "tiny-imagenet-100": _PHOTOS,
    "labelme": replace(_REAL, ways=8, labels_per_item=(2, 3)),
    "cifar10h": replace(_REAL, ways=10, labels_per_item=(1, 2)),
    "cifar10s": replace(_REAL, ways=10, labels_per_item=(4, 7)),
}


@dataclass(frozen=True)
class Cell:
    """``n_annotators`` is 0 where the dataset brings its own. ``scarce``: classes that have one support item only."""

    n_support: int
    n_annotators: int
    crowd: str
    ways: int = 4
    scarce: int = 0

    @property
    def size(self) -> tuple[int, int]:
        return self.n_support, self.n_annotators

    @property
    def shots(self) -> int:
        """Of a class that is not scarce."""
        return (self.n_support - self.scarce) // (self.ways - self.scarce)


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

    ``labels_per_item`` is for pretend annotators; None: everyone labels everything.
    """
    pool = dataset.pool
    if cell.crowd != REAL:
        pool = replace(pool, crowd=None)
    key = (dataset.name, split, role, cell.n_support, cell.n_annotators, cell.crowd, cell.ways, cell.scarce)
    generator = torch.Generator().manual_seed(zlib.crc32(repr(key).encode()))
    annotators = max(1, cell.n_annotators)
    recipe = Recipe(
        ways=(cell.ways,) * 2,
        shots=(cell.shots,) * 2,
        annotators=(annotators,) * 2,
        labels_per_item=labels_per_item,
        queries=QUERIES,
        crowd=CROWDS.get(cell.crowd, simulate.PAPER_SOURCE),
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
