"""LabelMe-AMT: Rodrigues & Pereira, Deep learning from crowds, 2018.

Photographs of eight kinds of scene. Annotators on Amazon Mechanical Turk labelled a thousand of them, the training
images; each has labels of two or three annotators. Only these images are in the pool.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing, shown
from crowdshot.io.tables import decode
from crowdshot.training.pools import Answers, ClassPool, class_names, count_labels, paths_of, pool_of
from crowdshot.training.source_files import find_items
from crowdshot_paper.datasets.dataset_files import COLOUR, Loader, Part, member

LISTS = ("filenames_train.txt", "labels_train_names.txt", "labels_train.txt", "answers.txt")


def read(paths: Sequence[Path]) -> ClassPool:
    """Read the training images and their labels.

    Classes are sorted by name. Annotators are in the order of their columns, without those who have no label.
    """
    (path,) = paths
    files, names, numbers, rows = lists = [_lines(path, name) for name in LISTS]
    if len(set(map(len, lists))) > 1:
        counts = ", ".join(f"{name} {len(lines)}" for name, lines in zip(LISTS, lists, strict=True))
        message = f"has lists of different lengths ({counts})"
        raise CrowdshotError(message, where=shown(path), expected="one row per image in each list")
    items = find_items(str(path), COLOUR.size[0])
    places = {"/".join(file.parts[-3:]): i for i, file in enumerate(paths_of(items))}
    wanted = [f"train/{name}/{file}" for name, file in zip(names, files, strict=True)]
    absent = [name for name in wanted if name not in places]
    if absent:
        message = f"lacks images that {LISTS[0]} lists: {listing(absent, 1)}"
        raise CrowdshotError(message, where=shown(path), found=absent[0])
    at = [places[name] for name in wanted]
    classes = [""] * len(items)
    for i, name in zip(at, names, strict=True):
        classes[i] = name
    items = replace(items, classes=classes)

    labels = _answers(path, rows, dict(zip(numbers, names, strict=True)), class_names(items))
    answers = np.full((len(items), labels.shape[1]), -1, dtype=np.int16)
    answers[at] = labels
    return pool_of(items, answers)


def _lines(path: Path, name: str) -> list[str]:
    lines = decode(member(path, name), f"{shown(path)}/{name}").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _answers(path: Path, rows: Sequence[str], name_of: dict[str, str], names: Sequence[str]) -> Answers:
    """Return labels (n, A) from lines of the class numbers of ``labels_train.txt``; -1 means no label."""
    place = {number: names.index(name) for number, name in name_of.items()} | {"-1": -1}
    width = len(rows[0].split()) if rows else 0
    labels = np.full((len(rows), width), -1, dtype=np.int16)
    for i, row in enumerate(rows):
        cells = row.split()
        strange = [cell for cell in cells if cell not in place]
        if strange or len(cells) != width:
            message = f"has the label {strange[0]!r}" if strange else f"has {len(cells)} columns"
            expected = f"one of {listing(place)}" if strange else str(width)
            where = f"{shown(path)}/answers.txt, row {i + 1}"
            raise CrowdshotError(message, where=where, found=strange[0] if strange else len(cells), expected=expected)
        labels[i] = [place[cell] for cell in cells]
    return labels[:, (labels >= 0).any(0)]


def note(pool: ClassPool) -> str:
    n_labels, n_right = count_labels(pool)
    assert pool.crowd_labels is not None
    return (
        f"LabelMe's {int(pool.counts.sum()):,} training images with {n_labels:,} labels of "
        f"{pool.crowd_labels.shape[2]} annotators, {n_right / n_labels:.0%} right, as in the paper. The paper does not "
        "describe how it resized images to 84×84."
    )


LOADER = Loader(
    folder="labelme",
    parts=(
        Part(
            ("LabelMe.zip", "LabelMe"),
            "get http://fprodrigues.com/deep_LabelMe.tar.gz (of http://fprodrigues.com/publications/deep-crowds/) and "
            "unpack it there",
        ),
    ),
    input=COLOUR,
    read=read,
    note=note,
)
