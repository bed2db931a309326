"""The likeliest few classes of each item, as a long table: what stays readable where classes are many."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.labels.annotations import Annotations
from crowdshot.labels.positions import as_index
from crowdshot.model.parts import Belief

Positions = NDArray[np.int64]


def top_classes(belief: Belief, most: int) -> tuple[Positions, Positions, Positions, NDArray[np.float64]]:
    """Item, rank from 1, class and probability of the likeliest of each item, so many at most; none that are 0."""
    item, label = belief.nonzero()
    p = np.asarray(belief[item, label], dtype=np.float64).ravel()
    order = np.lexsort((label, -p, item))
    item, label, p = item[order], label[order], p[order]
    first = np.searchsorted(item, item)
    rank = np.arange(1, len(item) + 1) - first
    kept = rank <= most
    return item[kept], rank[kept], label[kept], p[kept]


def likeliest_table(ann: Annotations, belief: Belief, most: int) -> pd.DataFrame:
    """item, rank, label, probability"""
    item, rank, label, p = top_classes(belief, most)
    return pd.DataFrame(
        {
            ann.columns.item: as_index(ann.items).take(item),
            "rank": rank,
            ann.columns.label: as_index(ann.classes).take(label),
            "probability": p,
        }
    )
