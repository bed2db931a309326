"""``crowdshot simulate``: a crowd to try things with: labels.csv, truth.csv, annotators.csv."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from crowdshot.commands.counts import Report
from crowdshot.commands.given import Output
from crowdshot.episodes import simulate as simulation
from crowdshot.files.whole import check_folder, csv_writers, write_folder
from crowdshot.progress import progress

AT_ONCE = 20_000_000  # cells of simulated labels


def simulate(
    output: Output,
    n_items: int,
    n_classes: int,
    n_annotators: int,
    crowd: Mapping[str, float],
    labels_per_item: int | None = None,
    seed: int = 0,
) -> Report:
    """A simulated crowd -> labels.csv, truth.csv and annotators.csv; classes are of (nearly) equal size."""
    check_folder(output.out, output.overwrite)
    generator = torch.Generator().manual_seed(seed)
    drawn = simulation.draw_annotators(n_annotators, n_classes, crowd, generator=generator)
    truth = (torch.arange(n_items) % n_classes)[torch.randperm(n_items, generator=generator)]
    said = partial(
        simulation.draw_labels, confusion=drawn.confusion, labels_per_item=labels_per_item, generator=generator
    )
    block = max(1, AT_ONCE // (n_annotators * n_classes))
    triples: list[NDArray[np.int64]] = []
    with progress("drawing labels") as tick:
        for start in range(0, n_items, block):
            triples.append(_triples(said(truth[start : start + block]).numpy(), start))
            tick(start + len(truth[start : start + block]), n_items)
    item, annotator, label = np.concatenate(triples, axis=1)
    names = [
        np.array([f"{word}-{i + 1:0{len(str(size))}d}" for i in range(size)], dtype=object)
        for word, size in (("item", n_items), ("annotator", n_annotators), ("class", n_classes))
    ]
    kinds = [simulation.KINDS[kind] for kind in drawn.kind.tolist()]
    accuracy = drawn.confusion.diagonal(dim1=-2, dim2=-1).mean(-1).numpy()
    tables = {
        "labels": pd.DataFrame({"item": names[0][item], "annotator": names[1][annotator], "label": names[2][label]}),
        "truth": pd.DataFrame({"item": names[0], "truth": names[2][truth.numpy()]}),
        "annotators": pd.DataFrame({"annotator": names[1], "kind": kinds, "accuracy": accuracy}),
    }
    files = write_folder(output.out, csv_writers(tables), output.overwrite)
    counts = {"items": n_items, "annotators": n_annotators, "labels": len(label), "classes": names[2].tolist()}
    return {**counts, "left_out": {}, "files": [str(file) for file in files]}


def _triples(labels: NDArray[np.int64], first_item: int) -> NDArray[np.int64]:
    """(n, R) labels -> (3, L) items, annotators, labels."""
    item, annotator = np.nonzero(labels >= 0)
    return np.stack([item + first_item, annotator, labels[item, annotator]])
