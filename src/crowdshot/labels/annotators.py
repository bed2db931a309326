"""How good each annotator is, judged by what is believed of the items.

A label is right with probability p, the belief in the class it names. With h = sum p expected hits in n labels,
accuracy has the mean (h + 1/2) / (n + 1) of Jeffreys' Beta(h + 1/2, n - h + 1/2). Its variance is that Beta's plus
sum p (1 - p) / (n + 1)^2, as h itself is not known; ``low`` to ``high`` is the middle 90 % of the Beta with that mean
and variance.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import csr_array

from crowdshot.labels.annotations import Annotations
from crowdshot.labels.belief import interval
from crowdshot.labels.positions import as_index


def judge(ann: Annotations, belief: NDArray[np.float64]) -> pd.DataFrame:
    """annotator, n_labels, accuracy, low, high, most_confused; belief (N, K) in the classes of the items."""
    right = belief[ann.item, ann.label]

    def total(values: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(np.bincount(ann.annotator, values, ann.n_annotators), dtype=np.float64)

    n_labels = total(np.ones_like(right))
    mean = (total(right) + 0.5) / (n_labels + 1)
    spread = mean * (1 - mean)
    variance = spread / (n_labels + 2) + total(right * (1 - right)) / (n_labels + 1) ** 2
    strength = spread / variance - 1
    low, high = interval(mean * strength, (1 - mean) * strength)
    return pd.DataFrame(
        {
            ann.columns.annotator: as_index(ann.annotators),
            "n_labels": n_labels.astype(np.int64),
            "accuracy": np.where(n_labels > 0, mean, np.nan),  # of one who said nothing nothing is known
            "low": np.where(n_labels > 0, low, 0.0),
            "high": np.where(n_labels > 0, high, 1.0),
            "most_confused": _most_confused(ann, belief),
        }
    )


def _most_confused(ann: Annotations, belief: NDArray[np.float64]) -> list[str]:
    """For each annotator the likeliest mistake, "true → said (how often, as expected)"; "" if there is hardly any."""
    R, K = ann.n_annotators, ann.n_classes
    labels = (ann.annotator * K + ann.label, ann.item)
    said = csr_array((np.ones(ann.n_labels), labels), (R * K, ann.n_items)) @ belief  # [annotator, said; true]
    wrong = said.reshape(R, K, K) * (1 - np.eye(K))
    worst = wrong.reshape(R, -1).argmax(1)
    times = wrong.reshape(R, -1).max(1)
    return [
        f"{ann.classes[cell % K]} → {ann.classes[cell // K]} ({_times(n)})" if n >= 0.5 else ""
        for cell, n in zip(worst, times, strict=True)
    ]


def _times(n: float) -> str:
    return "once" if n < 1.5 else f"{n:.0f} times"
