"""``crowdshot simulate``: a crowd to try things with: labels.csv, truth.csv, annotators.csv."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from crowdshot.commands.counts import Report
from crowdshot.commands.given import Output
from crowdshot.episodes import simulate as simulation
from crowdshot.episodes.world_draws import draw
from crowdshot.episodes.worlds import World
from crowdshot.files.whole import check_folder, csv_writers, write_folder
from crowdshot.progress import progress

AT_ONCE = 20_000_000  # cells of simulated labels


@dataclass(frozen=True)
class Sizes:
    """``labels_per_item``: by how many annotators; None: by all."""

    items: int
    classes: int
    annotators: int
    labels_per_item: int | None = None


def simulate(output: Output, sizes: Sizes, crowd: Mapping[str, float], seed: int = 0) -> Report:
    """Annotators of a few kinds who err independently; classes are of (nearly) equal size."""
    check_folder(output.out, output.overwrite)
    generator = torch.Generator().manual_seed(seed)
    drawn = simulation.draw_annotators(sizes.annotators, sizes.classes, crowd, generator=generator)
    truth = (torch.arange(sizes.items) % sizes.classes)[torch.randperm(sizes.items, generator=generator)]
    said = partial(
        simulation.draw_labels, confusion=drawn.confusion, labels_per_item=sizes.labels_per_item, generator=generator
    )
    block = max(1, AT_ONCE // (sizes.annotators * sizes.classes))
    triples: list[NDArray[np.int64]] = []
    with progress("drawing labels") as tick:
        for start in range(0, sizes.items, block):
            triples.append(_triples(said(truth[start : start + block]).numpy(), start))
            tick(start + len(truth[start : start + block]), sizes.items)
    accuracy = drawn.confusion.diagonal(dim1=-2, dim2=-1).mean(-1).numpy()
    people = {"kind": [simulation.KINDS[kind] for kind in drawn.kind.tolist()], "accuracy": accuracy}
    return _write(output, sizes, np.concatenate(triples, axis=1), truth.numpy(), people)


def simulate_world(output: Output, sizes: Sizes, without: Sequence[str] = (), seed: int = 0) -> Report:
    """One crowd of the `World` that the inference learns from: people who share mistakes, classes of any size."""
    check_folder(output.out, output.overwrite)
    per_item = sizes.labels_per_item or sizes.annotators
    world = World()
    for ingredient in ("many-labels", "complete", *without):
        world = world.without(ingredient)
    world = replace(
        world,
        classes=(sizes.classes,),
        items=(sizes.items + 0.5,) * 2,  # the world rounds down
        annotators=(sizes.annotators + 0.5,) * 2,
        labels_an_item=(per_item, per_item),
        equal_classes=0.0,
    )
    c = draw(world, 1, torch.Generator().manual_seed(seed))
    triples, truth = torch.stack([c.item, c.annotator, c.label]).numpy(), c.truth.numpy()
    right, n = (np.bincount(triples[1], w, sizes.annotators) for w in (triples[2] == truth[triples[0]], None))
    accuracy = np.divide(right, n, out=np.full(sizes.annotators, np.nan), where=n > 0)
    return _write(output, sizes, triples, truth, {"accuracy": accuracy})


def _write(
    output: Output, sizes: Sizes, triples: NDArray[np.int64], truth: NDArray[np.int64], people: Mapping[str, Any]
) -> Report:
    """Triples (3, L) of items, annotators and labels, the truth (N,) and columns of annotators -> files."""
    item, annotator, label = triples
    names = [
        np.array([f"{word}-{i + 1:0{len(str(size))}d}" for i in range(size)], dtype=object)
        for word, size in (("item", sizes.items), ("annotator", sizes.annotators), ("class", sizes.classes))
    ]
    tables = {
        "labels": pd.DataFrame({"item": names[0][item], "annotator": names[1][annotator], "label": names[2][label]}),
        "truth": pd.DataFrame({"item": names[0], "truth": names[2][truth]}),
        "annotators": pd.DataFrame({"annotator": names[1], **people}),
    }
    files = write_folder(output.out, csv_writers(tables), output.overwrite)
    counts = {"items": sizes.items, "annotators": sizes.annotators, "labels": len(label), "classes": names[2].tolist()}
    return {**counts, "left_out": {}, "files": [str(file) for file in files]}


def _triples(labels: NDArray[np.int64], first_item: int) -> NDArray[np.int64]:
    """(n, R) labels -> (3, L) items, annotators, labels."""
    item, annotator = np.nonzero(labels >= 0)
    return np.stack([item + first_item, annotator, labels[item, annotator]])
