"""What the paper's test episodes look like, and which classes they come from.

A `Cell` is one setting of a table: so many support items, so many annotators, drawn from one crowd. Its episodes depend
on the dataset, the split and the cell alone, so that every method meets the same ones and differences can be tested in
pairs.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import torch

from crowdshot import simulate
from crowdshot.annotated import Batch, draw
from crowdshot.datasets import Dataset
from crowdshot.errors import CrowdshotError
from crowdshot.recipes import Range, Recipe

QUERIES = 10  # a class
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
    """A dataset to be tested on: where its encoders learn, how many classes for learning, validation and test."""

    source: str  # the dataset that encoders are meta-trained on
    classes: tuple[int, int, int]  # of the source
    ways: int
    annotators: Range = (3, 7)  # in meta-training
    labels_per_item: Range | None = None  # of pretend annotators in validation; None: all of them
    episodes: int = 50  # of a cell, for validation as for test
    iterations: int = 30_000
    most_shots: int = 1_000  # that its classes have items for, beside the queries
    trained_ways: int = 0  # classes in an episode of meta-training, and
    trained_labels: Range | None = None  # labels per item there, if not the target's


def _real(ways: int, labels_per_item: Range) -> Target:
    """Real annotators label sparsely, and encoders for them have to be trained so; the same ones for all."""
    return Target(
        "tiny-imagenet-100",
        (70, 10, 20),
        ways,
        (20, 20),
        labels_per_item,
        10,
        16_000,
        trained_ways=8,
        trained_labels=(1, 7),
    )


TARGETS = {
    "omniglot": Target("omniglot", (764, 100, 100), 4, most_shots=10),
    "miniimagenet": Target("miniimagenet", (70, 10, 20), 4, iterations=60_000),
    "tiny-imagenet-100": Target("tiny-imagenet-100", (70, 10, 20), 4, iterations=30_000),
    "labelme": _real(8, (2, 3)),
    "cifar10h": _real(10, (1, 2)),
    "cifar10s": _real(10, (4, 7)),
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
