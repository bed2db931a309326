"""LabelMe-AMT: Rodrigues & Pereira, Deep learning from crowds, 2018.

Photographs of eight kinds of scene; a thousand of them, the training images, were labelled by people on Amazon
Mechanical Turk, two or three each. Only these are in the pool.
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
    """Classes by name, sorted; annotators in the order of their columns, without those who labelled nothing."""
    (path,) = paths
    files, names, numbers, rows = lists = [_lines(path, name) for name in LISTS]
    if len(set(map(len, lists))) > 1:
        found = ", ".join(f"{name} {len(lines)}" for name, lines in zip(LISTS, lists, strict=True))
        raise CrowdshotError(
            f"{shown(path)} has lists of different lengths ({found}), expected a row an image in each."
        )
    items = find_items(str(path), COLOUR.size[0])
    places = {"/".join(file.parts[-3:]): i for i, file in enumerate(paths_of(items))}
    wanted = [f"train/{name}/{file}" for name, file in zip(names, files, strict=True)]
    absent = [name for name in wanted if name not in places]
    if absent:
        raise CrowdshotError(f"{shown(path)} has no image {listing(absent, 1)}, expected all that {LISTS[0]} lists.")
    at = [places[name] for name in wanted]
    classes = [""] * len(items)
    for i, name in zip(at, names, strict=True):
        classes[i] = name
    items = replace(items, classes=classes)

    said = _answers(path, rows, dict(zip(numbers, names, strict=True)), class_names(items))
    answers = np.full((len(items), said.shape[1]), -1, dtype=np.int16)
    answers[at] = said
    return pool_of(items, answers)


def _lines(path: Path, name: str) -> list[str]:
    lines = decode(member(path, name), f"{shown(path)}/{name}").splitlines()
    return [line.strip() for line in lines if line.strip()]


def _answers(path: Path, rows: Sequence[str], name_of: dict[str, str], names: Sequence[str]) -> Answers:
    """(n, A) from lines of class numbers, as ``labels_train.txt`` has them, and -1 for nothing."""
    place = {number: names.index(name) for number, name in name_of.items()} | {"-1": -1}
    width = len(rows[0].split()) if rows else 0
    said = np.full((len(rows), width), -1, dtype=np.int16)
    for i, row in enumerate(rows):
        cells = row.split()
        strange = [cell for cell in cells if cell not in place]
        if strange or len(cells) != width:
            found = f"has the label {strange[0]!r}" if strange else f"has {len(cells)} columns"
            expected = f"one of {listing(place)}" if strange else str(width)
            raise CrowdshotError(f"{shown(path)}/answers.txt, row {i + 1} {found}, expected {expected}.")
        said[i] = [place[cell] for cell in cells]
    return said[:, (said >= 0).any(0)]


def note(pool: ClassPool) -> str:
    n_labels, n_right = count_labels(pool)
    assert pool.crowd_labels is not None
    return (
        f"LabelMe's {int(pool.counts.sum()):,} training images with {n_labels:,} labels of "
        f"{pool.crowd_labels.shape[2]} annotators, {n_right / n_labels:.0%} right, as in the paper, which does not say "
        "how it resized images to 84×84."
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
