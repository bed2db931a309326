"""Items that count more than once, or not at all (``sample_weight``).

An item that counts twice is taken twice: what is learned then is what two such items teach. One that counts nothing
teaches nothing, and is judged by what the others taught.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from crowdshot.classifier.known import Known
from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.belief import Floats
from crowdshot.labels.positions import Positions
from crowdshot.wording import first, show

POWER = 0.55  # n labels of an item count as n^POWER, as in `model.inference` before anything is known of a crowd
LEAST = 1e-12


def repeated(annotations: Annotations, known: Known) -> tuple[Positions, Annotations, Known]:
    """Which item each of those is that are learned from, (n,), and what is said and known of these."""
    assert known.weight is not None
    if (known.weight != np.round(known.weight)).any():
        row = first(known.weight != np.round(known.weight))
        raise CrowdshotError(
            f"sample_weight has {known.weight[row]:g} for item {show(annotations.items[row])}, expected whole numbers,"
            " as an item that counts twice is taken twice; method='ours' takes any."
        )
    times = known.weight.astype(np.int64)
    rows = np.repeat(np.arange(len(times)), times)
    start = np.cumsum(times) - times
    label = np.repeat(np.arange(len(annotations)), times[annotations.item])
    begin = np.cumsum(times[annotations.item]) - times[annotations.item]
    copy = np.arange(len(label)) - begin[label]
    taught = replace(
        annotations,
        item=start[annotations.item[label]] + copy,
        annotator=annotations.annotator[label],
        label=annotations.label[label],
        items=np.arange(len(rows)),
    )
    said = None if known.pred_probs is None else known.pred_probs[rows]
    return rows, taught, replace(known, gold=known.gold[rows], weight=None, pred_probs=said)


def judged(ann: Annotations, predicted: Floats, confusion: Floats, known: Known) -> Floats:
    """What is believed of items that taught nothing, (N, K): by a classifier (N, K), and labels by (R, K, K)."""
    score = np.log(predicted.clip(LEAST))
    said = np.zeros_like(score)
    np.add.at(said, ann.item, np.log(confusion.clip(LEAST))[ann.annotator, :, ann.label])
    score += said * np.bincount(ann.item, minlength=ann.n_items).clip(1)[:, None] ** (POWER - 1)
    belief: Floats = np.exp(score - score.max(1, keepdims=True))
    belief /= belief.sum(1, keepdims=True)
    told = known.gold >= 0
    belief[told] = np.eye(belief.shape[1])[known.gold[told]]
    return belief
