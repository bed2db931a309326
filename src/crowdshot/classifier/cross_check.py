"""What the classifier can be expected to get right on new items, as far as labelled ones can tell.

All labels of a tenth of the items are hidden, the rest is learned from, and what is then said of the hidden ones from
their image or features alone counts as far as it is believed with the labels; ten times over, so that each item is
hidden once or, of many items, until `MOST` have been. The truth nobody told. Two things bend it. It learns from a tenth
less than the real classifier, which makes it too low where classes have only a few items; and a belief in an item of
few labels leans on the same image or features, which makes it too high where these promise more than they hold. (To
count agreement with the likeliest class is worse: that takes for certain what the same features have decided.)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from crowdshot.classifier.both import Both
from crowdshot.classifier.classifier import CrowdClassifier
from crowdshot.classifier.compared import Compared
from crowdshot.classifier.contract import belief_of
from crowdshot.classifier.learned import ByLooks
from crowdshot.classifier.learners import learn
from crowdshot.labels.belief import Share
from crowdshot.labels.positions import Positions
from crowdshot.methods import find

PARTS = 10
MOST = 3_000  # items that are hidden, or one part: more would tell little more
FEWEST = 10  # labelled items, below which a share means nothing
MOST_NUMBERS = 500_000  # items × features that another method than our own is made to learn ten times


@dataclass(frozen=True)
class Check:
    """``rows`` (n,): labelled items that were hidden; what is believed of them (n, K), and said without labels (n, K).

    ``besides``: the same of items that were hidden though no lot fell on them, by row.
    """

    rows: Positions
    belief: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    besides: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def consensus(self) -> Positions:
        best: Positions = self.belief.argmax(1)
        return best

    @property
    def said(self) -> Positions:
        best: Positions = self.probabilities.argmax(1)
        return best

    def when_sure(self, confidence: float = 0.0) -> Share | None:
        """How often it is right when it is at least so sure; None if it never is."""
        sure = self.probabilities.max(1) >= confidence
        return Share.of_all(self.belief[sure, self.said[sure]])


def why_not(clf: CrowdClassifier, embeddings: Tensor) -> str:
    """Why there can be no estimate, as the rest of a sentence; "" if there can."""
    n_labelled = len(np.unique(clf.annotations_.item))
    if n_labelled < FEWEST:
        return f"{n_labelled} labelled items are too few to hide some of them"
    if not isinstance(clf.learner_again(), Compared):
        return ""
    if find(clf.learner_).needs is not None or embeddings.numel() > MOST_NUMBERS:
        return f"{clf.learner_} would take too long to learn {PARTS} times"
    return ""


def leave_out(clf: CrowdClassifier, embeddings: Tensor, besides: Sequence[int] = ()) -> Check:
    """Embeddings (N, D), those that ``clf`` was fitted with; its settings are kept, the chosen scale among them.

    ``besides``: items that are to be hidden too. Where not all are, these go with the first part and do not count.
    """
    ann, known, learner = clf.annotations_, clf.known_, clf.learner_again()
    told = known.rows_of(ann)
    if isinstance(learner, Both | ByLooks) and known.pred_probs is None:  # to which other items are nothing
        place = np.full(ann.n_items, -1)
        place[told] = np.arange(len(told))
        ann, known, embeddings = ann.with_items(place, ann.items[told]), known.of(told), embeddings[told]
    else:
        told = np.arange(ann.n_items)
    belief = clf.belief_[told]
    rows = np.unique(ann.item)
    part = np.full(ann.n_items, -1)
    part[rows] = _parts(belief[rows].argmax(1), np.random.default_rng(clf.seed))
    enough = min(part.max() + 1, -(-PARTS * MOST // len(rows)))
    rows = rows[part[rows] < enough]
    others = np.setdiff1d(np.intersect1d(np.flatnonzero(np.isin(told, besides)), ann.item), rows)
    part[others] = 0
    probabilities = dict[int, NDArray[np.float64]]()
    for number in range(enough):
        rest = ann.keep(part[ann.item] != number)
        hidden = np.flatnonzero(part == number)
        left = known.hide(hidden)
        classes = left.classes_of(rest)
        if len(classes) == 1:  # nobody knows of another
            said = np.tile(np.eye(ann.n_classes)[classes], (len(hidden), 1))
        else:
            said = belief_of(learn(learner, embeddings, rest, clf.encoder_, left).fit)[hidden]  # which have no label
        probabilities |= zip(hidden.tolist(), said, strict=True)
    return Check(
        told[rows],
        belief[rows],
        np.array([probabilities[row] for row in rows.tolist()]),
        {int(told[row]): probabilities[row] for row in others.tolist()},
    )


def _parts(consensus: Positions, random: np.random.Generator) -> Positions:
    """(n,) -> the part, 0 to 9, that each item is in; every class is spread evenly over all parts.

    Not by scikit-learn's StratifiedKFold, which warns where a class has fewer items than there are parts and refuses
    where all have: with a handful of labelled items that is the rule.
    """
    lots = random.permutation(len(consensus))
    order = np.lexsort((lots, consensus))
    part = np.empty(len(consensus), dtype=np.int64)
    part[order] = np.arange(len(consensus)) % PARTS
    return part
