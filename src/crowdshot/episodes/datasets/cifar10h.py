"""CIFAR-10H: Peterson et al., Human uncertainty makes classification more robust, 2019.

2,571 people labelled 200 of CIFAR-10's test images each, nearly always rightly. The paper keeps the 25 of lowest
accuracy, as Chu & Wang (2021) do. Accuracy is counted over all answers of the file that are no attention checks; of
people equally accurate those with more answers come first (0 of 15 is worse than 0 of 7), then those of smaller number.
In the whole file everyone has 200 answers; in a part of it people have few, and the 25 are others than the paper's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from crowdshot.episodes.datasets import cifar10
from crowdshot.episodes.datasets.files import Part, column, member, whole_numbers
from crowdshot.episodes.datasets.loader import COLOUR, Loader
from crowdshot.episodes.pools import ClassPool, answers_of, count_labels, paths_of, pool_of
from crowdshot.errors import CrowdshotError
from crowdshot.files.downloads import Download
from crowdshot.files.tables import parse_table
from crowdshot.labels.annotations import Annotations
from crowdshot.wording import shown

N_ANNOTATORS = 25
FILE = "cifar10h-raw.csv"
URL = "https://github.com/jcpeterson/cifar-10h/raw/master/data/cifar10h-raw.zip"


def read(paths: Sequence[Path]) -> ClassPool:
    """All images are in the pool; those that none of the 25 labelled have a crowd of -1.

    Annotators come from the least accurate on. Answers about images that are not there count for accuracy only.
    """
    labels, images = paths
    table = read_answers(labels)
    items = cifar10.find_test_images(images)
    if items.classes is None:
        raise CrowdshotError(f"{shown(images)} has no folders, expected one a class.")
    class_of = {file.stem: name for file, name in zip(paths_of(items), items.classes, strict=True)}
    chosen = least_accurate(table, N_ANNOTATORS)
    known = table[table["annotator"].isin(chosen) & table["item"].isin(list(class_of))]
    if len(known) == 0:
        raise CrowdshotError(
            f"{shown(labels)} has no label by its {len(chosen)} annotators of lowest accuracy for any image of "
            f"{shown(images)}, expected some."
        )
    wrong = known["truth"] != known["item"].map(class_of)
    if wrong.any():
        item, truth = known.loc[wrong.idxmax(), ["item", "truth"]]
        raise CrowdshotError(
            f"{shown(labels)} has image {item} as {truth}, expected {class_of[item]} as in {shown(images)}."
        )
    annotations = Annotations.from_frame(known, annotators=chosen, duplicates="first", source=shown(labels))
    return pool_of(items, answers_of(annotations, items, shown(labels)))


def read_answers(path: Path) -> pd.DataFrame:
    """item (five digits), annotator (a number), truth and label (names), without attention checks."""
    table = parse_table(member(path, FILE), shown(path))
    item = whole_numbers(table, "cifar10_test_test_idx")
    answers = pd.DataFrame(
        {
            "item": [f"{i:05d}" for i in item],
            "annotator": whole_numbers(table, "annotator_id"),
            "truth": column(table, "true_category"),
            "label": column(table, "chosen_category"),
        }
    )
    return answers[item >= 0]  # attention checks have a large negative number


def least_accurate(answers: pd.DataFrame, n: int) -> list[int]:
    """The n annotators of lowest accuracy, the lowest first."""
    right = (answers["truth"] == answers["label"]).groupby(answers["annotator"]).agg(["mean", "size"])
    order = np.lexsort((right.index, -right["size"], right["mean"]))
    return [int(annotator) for annotator in right.index[order[:n]]]


def note(pool: ClassPool) -> str:
    n_labels, n_right = count_labels(pool)
    n_images = int(pool.counts.sum())
    assert pool.crowd_labels is not None
    n_annotators = pool.crowd_labels.shape[2]
    crowd = f"{n_labels:,} labels ({n_right / n_labels:.0%} right) of the {n_annotators} annotators of lowest accuracy"
    if n_images >= cifar10.N_IMAGES:
        return f"CIFAR-10H, {n_images:,} images brought to 84×84 with {crowd}, as in the paper."
    n_labelled = int((pool.crowd_labels >= 0).any(2).sum())
    return (
        f"A part of CIFAR-10H, {n_images:,} of its {cifar10.N_IMAGES:,} images brought to 84×84 with {crowd}, who "
        f"labelled {n_labelled} of them, {n_labels / n_annotators:.1f} each where the paper's labelled 200."
    )


LOADER = Loader(
    folder="cifar10h",
    parts=(
        Part(
            (FILE, "cifar10h-raw.zip", "cifar10h-raw"),
            f"get {URL}",
            Download(URL, "sha256:4b0283f9b2ae72a616eeb4a2a38474cc2a238eb041bfb8df5ead3a8a47f35aa3"),
        ),
        cifar10.IMAGES,
    ),
    input=COLOUR,
    read=read,
    note=note,
)
