"""Define the cells of the paper's tables and the datasets they are tested on.

A `Cell` is one setting of a table: the numbers of support items and annotators, and the crowd they are drawn from. Its
episodes depend on the dataset, the split and the cell only. All methods use the same episodes, so that differences can
be tested in pairs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from crowdshot.training import default_settings

if TYPE_CHECKING:  # so that experiments can be listed without importing torch
    from crowdshot.training.episodes import Range

QUERIES = 10  # per class
VALIDATION = 50  # the least number of validation episodes per cell, from the source dataset
REAL = "real"  # the crowd of a dataset with real annotators

CROWDS = {
    "".join(f"{kind[0].upper()}{share:.2g} " for kind, share in crowd.items()).strip(): crowd
    for crowd in (*default_settings.PAPER_TARGETS, *default_settings.OTHER_TARGETS)
}
"""The probability of each kind of annotator, by the name of the crowd in tables, such as "E0.1 H0.7 S0.2"."""
SOURCE_CROWD = "E0.1 H0.7 S0.2"  # the simulated annotators of meta-training and validation
TARGET_CROWDS = tuple(CROWDS)[:4]
OTHER_CROWDS = tuple(CROWDS)[4:]


@dataclass(frozen=True)
class Target:
    """A dataset for tests, the source dataset of its encoders, and the sizes of episodes.

    ``annotators`` and ``labels_per_item`` (None: all annotators label every item) are for simulated annotators. They
    apply to validation and, if the dataset is a source, to meta-training. ``iterations`` and ``precision`` of
    meta-training apply if the dataset is a source.
    """

    source: str  # the dataset that encoders are meta-trained on
    classes: tuple[int, int, int]  # the source's classes for training, validation and test
    ways: int
    annotators: Range = (3, 7)
    labels_per_item: Range | None = None
    episodes: int = 50  # per cell, for test; validation has this number or VALIDATION if that is more
    iterations: int = 30_000
    precision: str = "bfloat16"  # of the network on a GPU; on characters bfloat16 and float32 give the same accuracy
    most_shots: int = 1_000  # how many items its classes have, besides the queries


_PHOTOS = Target("miniimagenet", (70, 10, 20), 4, iterations=60_000, precision="float32")
_REAL = replace(_PHOTOS, annotators=(20, 20), episodes=10)  # there are many real annotators, and each labels few items
TARGETS = {
    "omniglot": Target("omniglot", (764, 100, 100), 4, most_shots=10),
    "miniimagenet": _PHOTOS,
    "labelme": replace(_REAL, ways=8, labels_per_item=(2, 3)),
    "cifar10h": replace(_REAL, ways=10, labels_per_item=(1, 2)),
}


@dataclass(frozen=True)
class Cell:
    """One setting of a table.

    ``n_annotators`` is 0 if the dataset has real annotators. ``scarce`` is the number of classes with a single support
    item.
    """

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
        """Return the number of support items of a class that is not scarce."""
        return (self.n_support - self.scarce) // (self.ways - self.scarce)
