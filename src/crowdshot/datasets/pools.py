"""Items that were found, and what annotators said of them, as a class pool."""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath

import numpy as np
import torch
from numpy.typing import NDArray

from crowdshot.annotations import Annotations
from crowdshot.episodes import ClassPool
from crowdshot.errors import CrowdshotError
from crowdshot.ids import first, listing, positions, show
from crowdshot.matching import match_files
from crowdshot.progress import progress
from crowdshot.source_items import SourceItems

Answers = NDArray[np.int16]
"""(N, A): what each of A annotators said of each of N items, as a place among the sorted classes; -1 = nothing."""


def pool_of(items: SourceItems, answers: Answers | None = None) -> ClassPool:
    """The pool of all items that have a class ("" is none), classes sorted and items in their order."""
    names = class_names(items)
    place_of = {name: place for place, name in enumerate(names)}
    place = np.array([place_of.get(name, -1) for name in items.classes or ()])
    order = np.argsort(place, kind="stable")[(place < 0).sum() :]
    batches = []
    with progress("reading images") as tick:
        done = 0
        for batch in items.load(order.tolist()):
            batches.append(batch)
            done += len(batch)
            tick(done, len(order))
    ends = np.bincount(place[order], minlength=len(names)).cumsum()[:-1].tolist()
    pool = ClassPool.from_lists(dict(zip(names, torch.cat(batches).tensor_split(ends), strict=True)))
    if answers is None:
        return pool
    said = ClassPool.from_lists(dict(zip(names, np.split(answers[order] + np.int16(1), ends), strict=True)))
    return replace(pool, crowd=said.examples - 1)  # what fills a small class up is 0 there and nothing here


def class_names(items: SourceItems) -> list[str]:
    return sorted({name for name in items.classes or () if name})


def paths_of(items: SourceItems) -> list[PurePosixPath]:
    """Items that are image files, by where each lies in its folder or zip."""
    return [PurePosixPath(str(name)) for name in items.ids]


def answers_of(annotations: Annotations, items: SourceItems, source: str) -> Answers:
    """Labels, which name items by file and classes by name, beside the items."""
    row = match_files(annotations.items, paths_of(items))
    if (row < 0).any():
        stranger = show(annotations.items[first(row < 0)])
        raise CrowdshotError(f"{source} labels {stranger}, expected only items of which there is an image.")
    names = class_names(items)
    place = positions(np.array(names, dtype=object), annotations.classes)
    if (place < 0).any():
        stranger = show(annotations.classes[first(place < 0)])
        raise CrowdshotError(f"{source} has the label {stranger}, expected one of {listing(names)}.")
    answers = np.full((len(items), annotations.n_annotators), -1, dtype=np.int16)
    answers[row[annotations.item], annotations.annotator] = place[annotations.label]
    return answers


def count_labels(pool: ClassPool) -> tuple[int, int]:
    """How many labels there are, and how many of them are right."""
    assert pool.crowd is not None
    right = pool.crowd == torch.arange(len(pool.names))[:, None, None]
    return int((pool.crowd >= 0).sum()), int(right.sum())
