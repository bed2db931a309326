"""How good each annotator is, judged by what is believed of the items.

A label is right with probability p, the belief in the class it names. Of n labels h = sum p are expected to be right,
and the crowd's mean accuracy m counts for `CROWD` labels more:

    accuracy = (h + CROWD m) / (n + CROWD)

so that of someone of whom little is known, little else is said than how good the crowd is. Nobody confirms themselves:
the default's belief takes each label for what its annotator is worth without it. The variance is that of a Beta with so
many labels, plus that of the beliefs, of which `SHARED` does not average out, as people share mistakes; ``low`` to
``high`` is the middle 90 % of the Beta with that mean and variance. `SHARED` was set so that on
real crowds, in full and with 1, 2, 3 and 5 labels an item, it holds the true accuracy of 90 % of the annotators
(benchmarks/intervals.py).
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

EXPECTED = 0.7  # how often people are right, before anything is known of them
CROWD = 4.0  # labels that the crowd's accuracy counts for in what is thought of each annotator
SHARED = 0.06  # of the variance of a belief: what all labels of an annotator have in common
ANNOTATOR = 20.0  # labels that an annotator's accuracy counts for in what they are thought to say of each class


def judge(ann: Annotations, belief: NDArray[np.float64], history: NDArray[np.float64] | None = None) -> pd.DataFrame:
    """annotator, n_labels, accuracy, low, high, most_confused, right, wrong; belief (N, K) in the items' classes.

    ``right``, ``wrong``: of how many labels that is expected, those of earlier projects included, which ``history``
    (R, 2) tells; accuracy is by all of them.
    """
    right = belief[ann.item, ann.label]
    before = np.zeros((ann.n_annotators, 2)) if history is None else history

    def total(values: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(np.bincount(ann.annotator, values, ann.n_annotators), dtype=np.float64)

    n_labels = total(np.ones_like(right))
    crowd = (right.sum() + CROWD * EXPECTED) / (len(right) + CROWD)
    hits, all_labels = total(right) + before[:, 0], n_labels + before.sum(1)
    weight = all_labels + CROWD
    mean = ((hits + CROWD * crowd) / weight).clip(1e-3, 1 - 1e-3)
    spread = mean * (1 - mean)
    doubt = total(right * (1 - right))
    typical = (doubt + CROWD * (right * (1 - right)).mean()) / weight
    variance = np.minimum(spread / (weight + 1) + doubt / weight**2 + SHARED * typical, 0.9 * spread)
    strength = spread / variance - 1
    low, high = interval(mean * strength, (1 - mean) * strength)
    return pd.DataFrame(
        {
            ann.columns.annotator: as_index(ann.annotators),
            "n_labels": n_labels.astype(np.int64),
            "accuracy": np.where(all_labels > 0, mean, np.nan),  # of one who said nothing nothing is known
            "low": np.where(all_labels > 0, low, 0.0),
            "high": np.where(all_labels > 0, high, 1.0),
            "most_confused": _most_confused(ann, belief),
            "right": hits,
            "wrong": all_labels - hits,
        }
    )


def expected_confusion(
    ann: Annotations, belief: NDArray[np.float64], history: NDArray[np.float64] | None = None
) -> NDArray[np.float64]:
    """(R, K true, K observed): what annotators said of each class, shrunk to how often they are right at all."""
    K = ann.n_classes
    right = judge(ann, belief, history)["accuracy"].fillna(EXPECTED).to_numpy()[:, None, None]
    even = np.where(np.eye(K, dtype=bool), right, (1 - right) / max(K - 1, 1))
    out: NDArray[np.float64] = said(ann, belief).transpose(0, 2, 1) + ANNOTATOR * even
    out /= out.sum(2, keepdims=True)
    return out


def said(ann: Annotations, belief: NDArray[np.float64]) -> NDArray[np.float64]:
    """(R, K said, K true) labels, as many as are expected"""
    R, K = ann.n_annotators, ann.n_classes
    cells = (ann.annotator * K + ann.label, ann.item)
    counts = csr_array((np.ones(ann.n_labels), cells), (R * K, ann.n_items)) @ belief
    out: NDArray[np.float64] = counts.reshape(R, K, K)
    return out


def _most_confused(ann: Annotations, belief: NDArray[np.float64]) -> list[str]:
    """For each annotator the likeliest mistake, "true → said (how often, as expected)"; "" if there is hardly any."""
    R, K = ann.n_annotators, ann.n_classes
    wrong = said(ann, belief) * (1 - np.eye(K))
    worst = wrong.reshape(R, -1).argmax(1)
    times = wrong.reshape(R, -1).max(1)
    return [
        f"{ann.classes[cell % K]} → {ann.classes[cell // K]} ({_times(n)})" if n >= 0.5 else ""
        for cell, n in zip(worst, times, strict=True)
    ]


def _times(n: float) -> str:
    return "once" if n < 1.5 else f"{n:.0f} times"
