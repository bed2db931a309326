"""What the paper's test episodes look like, and which classes they come from.

A `Cell` is one setting of a table: so many support items, so many annotators, drawn from one crowd. Its episodes depend
on the dataset, the split and the cell alone, so that every method meets the same ones and differences can be tested in
pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from crowdshot.training import default_settings

if TYPE_CHECKING:  # what there is to run can be told without waiting for torch
    from crowdshot.training.episodes import Range

QUERIES = 10  # a class
VALIDATION = 50  # episodes of a cell at least, from the source, which has plenty
REAL = "real"  # the crowd of a dataset that has one

CROWDS = {
    "".join(f"{kind[0].upper()}{share:.2g} " for kind, share in crowd.items()).strip(): crowd
    for crowd in (*default_settings.PAPER_TARGETS, *default_settings.OTHER_TARGETS)
}
"""How a crowd is written in tables -> how probable each kind is: "E0.1 H0.7 S0.2"."""
SOURCE_CROWD = "E0.1 H0.7 S0.2"  # the simulated annotators of meta-training and validation
TARGET_CROWDS = tuple(CROWDS)[:4]
OTHER_CROWDS = tuple(CROWDS)[4:]


@dataclass(frozen=True)
class Target:
    """A dataset to be tested on: where its encoders learn, how many classes for learning, validation and test.

    ``annotators`` and ``labels_per_item`` (None: all of them) are those of simulated ones, in validation and, of a
    dataset that is a source, in meta-training. ``iterations`` and ``precision`` of meta-training apply to a source.
    """

    source: str  # the dataset that encoders are meta-trained on
    classes: tuple[int, int, int]  # of the source
    ways: int
    annotators: Range = (3, 7)
    labels_per_item: Range | None = None
    episodes: int = 50  # of a cell, for test; validation has VALIDATION or as many
    iterations: int = 30_000
    precision: str = "bfloat16"  # of the network on a GPU; on characters it gives float32's accuracies
    most_shots: int = 1_000  # that its classes have items for, beside the queries


_PHOTOS = Target("miniimagenet", (70, 10, 20), 4, iterations=60_000, precision="float32")
_REAL = replace(_PHOTOS, annotators=(20, 20), episodes=10)  # real annotators are many and label few items each
TARGETS = {
    "omniglot": Target("omniglot", (764, 100, 100), 4, most_shots=10),
    "miniimagenet": _PHOTOS,
    "labelme": replace(_REAL, ways=8, labels_per_item=(2, 3)),
    "cifar10h": replace(_REAL, ways=10, labels_per_item=(1, 2)),
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
