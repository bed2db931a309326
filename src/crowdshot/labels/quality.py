"""How probably each label is right, and which are likely wrong: what to look at again, label by label."""

from __future__ import annotations

import pandas as pd

from crowdshot.labels.annotations import Annotations
from crowdshot.labels.belief import Floats
from crowdshot.labels.positions import as_index

LIKELY_WRONG = 0.5


def label_quality(ann: Annotations, belief: Floats) -> pd.DataFrame:
    """A row for each label: item, annotator, label, quality, believed, confidence; belief (N, K) in the items' classes.

    ``quality`` is how probable it is that the label is right; ``believed`` the likeliest class, with its confidence.

    >>> from crowdshot import Annotations, aggregate
    >>> ann = Annotations.from_dict({"a": {"ann": "cat", "bob": "cat", "cy": "dog"}, "b": {"ann": "dog", "cy": "dog"}})
    >>> table = label_quality(ann, aggregate.majority_vote(ann).probabilities)
    >>> table["label"].tolist(), table["quality"].round(2).tolist()
    (['cat', 'cat', 'dog', 'dog', 'dog'], [0.67, 0.67, 0.33, 1.0, 1.0])
    """
    best = belief.argmax(1)
    return ann.to_frame().assign(
        quality=belief[ann.item, ann.label],
        believed=as_index(ann.classes).take(best[ann.item]),
        confidence=belief.max(1)[ann.item],
    )


def likely_wrong(ann: Annotations, belief: Floats, below: float = LIKELY_WRONG) -> pd.DataFrame:
    """Those rows of `label_quality` whose quality is lower, the worst first."""
    table = label_quality(ann, belief)
    return table[table["quality"] < below].sort_values("quality", kind="stable", ignore_index=True)
