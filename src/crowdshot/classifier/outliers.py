"""Items that look like no other: damaged, out of place, or of a class that nobody thought of."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

from crowdshot.labels.annotations import Annotations
from crowdshot.labels.confidence import Floats
from crowdshot.labels.indexing import as_index
from crowdshot.model.feature_model import Standard

NEIGHBOURS = 10
FAR = 3.5  # times the usual spread above the median (Iglewicz and Hoaglin, 1993)
USUAL = 1.4826  # of the median deviation: a standard deviation, of what is normally distributed
LEAST = 1e-12


def find_outliers(x: Floats, ann: Annotations, posterior: Floats) -> pd.DataFrame:
    """A row for each item, the oddest first: item, oddness, outlier, nearest, consensus, confidence, n_labels.

    x (N, D): embeddings. ``oddness`` is the mean distance from the nearest items, over what is usual of it; features
    count in units of their spread. ``outlier``: its logarithm is `FAR` deviations above the median, by medians.
    """
    z = Standard.of(x)(x)
    n = min(NEIGHBOURS, len(z) - 1)
    if n < 1:
        distance, nearest = np.ones(len(z)), np.arange(len(z))
    else:
        distances, neighbours = NearestNeighbors(n_neighbors=n).fit(z).kneighbors()
        distance, nearest = distances.mean(1), neighbours[:, 0]
    odd = distance / max(float(np.median(distance)), LEAST)
    log = np.log(odd.clip(LEAST))
    usual = USUAL * float(np.median(np.abs(log - np.median(log))))
    table = pd.DataFrame(
        {
            ann.columns.item: as_index(ann.items),
            "oddness": odd,
            "outlier": log - np.median(log) > FAR * max(usual, LEAST),
            "nearest": as_index(ann.items).take(nearest),
            "consensus": as_index(ann.classes).take(posterior.argmax(1)),
            "confidence": posterior.max(1),
            "n_labels": np.bincount(ann.item, minlength=ann.n_items),
        }
    )
    return table.sort_values("oddness", ascending=False, kind="stable", ignore_index=True)
