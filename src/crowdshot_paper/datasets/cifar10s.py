"""CIFAR-10S: Collins, Bhatt & Weller, Eliciting and learning with soft labels from every annotator, 2022.

Each of 248 annotators chose the most probable class of 25 of CIFAR-10's test images. The images are harder than the
average of the test set, so these annotators make more mistakes than CIFAR-10H's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, shown
from crowdshot.io.tables import read_table
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.matching import match_files
from crowdshot.training.pools import ClassPool, answers_of, count_labels, paths_of, pool_of
from crowdshot.training.source_files import SourceItems
from crowdshot_paper.datasets import cifar10h
from crowdshot_paper.datasets.dataset_files import COLOUR, Loader, Part, column

ADVICE = (
    "make annotations.csv and truth.csv from raw_human_data.csv of https://github.com/cambridge-mlg/cifar-10s: "
    "annotations.csv has a row (task, worker, label) for each first answer, with the image (00022.png is image 22), "
    "the subject and the most probable class in lower case; truth.csv has a row (task, label) for each image"
)


def read(paths: Sequence[Path]) -> ClassPool:
    """Read the images that ``truth.csv`` lists, with the labels of all annotators."""
    answers, truth, images = paths
    items = _with_truth(cifar10h.find_test_images(images), truth)
    table = read_table(answers)
    frame = pd.DataFrame({name: column(table, name) for name in ("task", "worker", "label")})
    annotations = Annotations.from_frame(frame, source=shown(answers))
    return pool_of(items, answers_of(annotations, items, shown(answers)))


def _with_truth(items: SourceItems, path: Path) -> SourceItems:
    table = read_table(path)
    names, truth = column(table, "task"), column(table, "label")
    row = match_files(names, paths_of(items))
    if (row < 0).any():
        lost = first(row < 0)
        where = table.place(lost, table.header.index("task"))
        expected = "the name of an image of CIFAR-10's test set"
        raise CrowdshotError(f"is {names[lost]!r}", where=where, found=names[lost], expected=expected)
    classes = np.full(len(items), "", dtype=object)
    classes[row] = truth
    return replace(items, classes=classes.tolist())


def note(pool: ClassPool) -> str:
    n_labels, n_right = count_labels(pool)
    assert pool.crowd_labels is not None
    return (
        f"CIFAR-10S, {int(pool.counts.sum()):,} of CIFAR-10's test images resized to 84×84, with {n_labels:,} labels "
        f"of {pool.crowd_labels.shape[2]} annotators, {n_right / n_labels:.0%} right; the paper does not use it."
    )


LOADER = Loader(
    folder="cifar10s",
    parts=(Part(("annotations.csv",), ADVICE), Part(("truth.csv",), ADVICE), cifar10h.IMAGES),
    input=COLOUR,
    read=read,
    note=note,
)
