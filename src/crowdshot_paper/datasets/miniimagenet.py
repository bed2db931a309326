"""miniImageNet: Vinyals et al., Matching networks for one shot learning, 2016.

The layout is that of Ravi & Larochelle (2017): all images in one folder, and three tables (filename, label) with the
class of each image. The split into three tables is ignored: the paper draws its own splits of 70, 10 and 20 classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, shown
from crowdshot.io.tables import read_table
from crowdshot.labels.matching import match_files
from crowdshot.training.pools import ClassPool, paths_of, pool_of
from crowdshot.training.source_files import find_items
from crowdshot_paper.datasets.dataset_files import COLOUR, Loader, Part, column

ADVICE = (
    "make them from ImageNet's ILSVRC-2012 images with the tables in "
    "https://github.com/twitter-research/meta-learning-lstm (the cached pickles, mini-imagenet-cache-*.pkl, are not "
    "read, because a pickle can run any program)"
)


def read(paths: Sequence[Path]) -> ClassPool:
    """Read the images that a table lists."""
    images, *tables = paths
    items = find_items(str(images), COLOUR.size[0])
    classes = [""] * len(items)
    for path in tables:
        table = read_table(path)
        files, labels = column(table, "filename"), column(table, "label")
        row = match_files(files, paths_of(items))
        at = table.header.index("filename")
        if (row < 0).any():
            lost = first(row < 0)
            raise CrowdshotError(
                f"is {files[lost]!r}",
                where=table.place(lost, at),
                found=files[lost],
                expected=f"an image in {shown(images)} ({(row < 0).sum()} of {len(row)} are missing)",
            )
        twice = np.array([bool(classes[i]) for i in row], dtype=bool) | (np.bincount(row)[row] > 1)
        if twice.any():
            repeated = files[first(twice)]
            raise CrowdshotError(
                f"repeats {repeated!r}",
                where=table.place(first(twice), at),
                found=repeated,
                expected="each image in one row only",
            )
        for i, label in zip(row, labels, strict=True):
            classes[i] = label
    return pool_of(replace(items, classes=classes))


LOADER = Loader(
    folder="miniimagenet",
    parts=(
        Part(("images", "images.zip"), ADVICE),
        *(Part((f"{split}.csv",), ADVICE) for split in ("train", "val", "test")),
    ),
    input=COLOUR,
    read=read,
    note=lambda pool: (
        f"miniImageNet, {len(pool.names)} classes with {pool.smallest} images each; the classes of its three tables "
        "are pooled for the paper's random splits (it has 100 classes with 600 images)."
    ),
)
