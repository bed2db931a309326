"""Find outliers: items far from all others, which may be damaged, misplaced or of a missing class."""

from __future__ import annotations

import numpy as np
import pandas as pd
from sklearn.neighbors import NearestNeighbors

from crowdshot.io.cells import as_index
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import Floats
from crowdshot.model.feature_model import Standard

NEIGHBOURS = 10
FAR = 3.5  # robust standard deviations above the median (Iglewicz and Hoaglin, 1993)
USUAL = 1.4826  # median absolute deviations in a standard deviation of a normal distribution
LEAST = 1e-12


def find_outliers(x: Floats, ann: Annotations, posterior: Floats) -> pd.DataFrame:
    """Return a table with a row for each item, most unusual first.

    Columns are item, oddness, outlier, nearest, consensus, confidence and n_labels. ``oddness`` is the
    mean distance to the `NEIGHBOURS` nearest items, divided by its median; features are standardised. ``outlier``: log
    oddness is more than `FAR` robust standard deviations above the median.

    Parameters
    ----------
    x : (N, D) array
        Embeddings.
    ann : Annotations
        Labels of the N items.
    posterior : (N, K) array
        Class probabilities of the items.
    """
    z = Standard.of(x)(x)
    n = min(NEIGHBOURS, len(z) - 1)
    if n < 1:
        distance, nearest = np.ones(len(z)), np.arange(len(z))
    else:
        distances, neighbours = NearestNeighbors(n_neighbors=n).fit(z).kneighbors()
        distance, nearest = distances.mean(1), neighbours[:, 0]
    oddness = distance / max(float(np.median(distance)), LEAST)
    log = np.log(oddness.clip(LEAST))
    spread = USUAL * float(np.median(np.abs(log - np.median(log))))
    table = pd.DataFrame(
        {
            ann.columns.item: as_index(ann.items),
            "oddness": oddness,
            "outlier": log - np.median(log) > FAR * max(spread, LEAST),
            "nearest": as_index(ann.items).take(nearest),
            "consensus": as_index(ann.classes).take(posterior.argmax(1)),
            "confidence": posterior.max(1),
            "n_labels": np.bincount(ann.item, minlength=ann.n_items),
        }
    )
    return table.sort_values("oddness", ascending=False, kind="stable", ignore_index=True)
