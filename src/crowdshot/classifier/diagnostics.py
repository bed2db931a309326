"""What the classifier can be expected to get right on new items, as far as labelled ones can tell.

All labels of a tenth of the items are hidden, the rest is learned from, and what is then said of the hidden ones from
their image or features alone counts as far as it is believed with the labels; ten times over, so that each item is
hidden once or, of many items, until `MOST` have been. The truth nobody told. Two things bend it. It learns from a tenth
less than the real classifier, which makes it too low where classes have only a few items; and a posterior in an item of
few labels leans on the same image or features, which makes it too high where these promise more than they hold. (To
count agreement with the likeliest class is worse: that takes for certain what the same features have decided.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from crowdshot.classifier.compared_methods import Compared
from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.classifier.feature_learners import (
    BOTH,
    LEARNED,
    SEVERAL,
    Answered,
    CombinedLearner,
    FeatureFit,
    FeatureLearner,
    Pooled,
)
from crowdshot.classifier.learner_contract import posterior_of
from crowdshot.classifier.learners import AmongAll, learn
from crowdshot.classifier.mixture_learners import LABELINGS
from crowdshot.labels import aggregation
from crowdshot.labels.confidence import Floats, Share
from crowdshot.labels.indexing import Positions
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
    posterior: NDArray[np.float64]
    probabilities: NDArray[np.float64]
    besides: Mapping[int, NDArray[np.float64]] = field(default_factory=dict)

    @property
    def consensus(self) -> Positions:
        best: Positions = self.posterior.argmax(1)
        return best

    @property
    def said(self) -> Positions:
        best: Positions = self.probabilities.argmax(1)
        return best

    def when_sure(self, confidence: float = 0.0) -> Share | None:
        """How often it is right when it is at least so sure; None if it never is."""
        sure = self.probabilities.max(1) >= confidence
        return Share.of_all(self.posterior[sure, self.said[sure]])


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
    if (
        isinstance(learner, CombinedLearner | FeatureLearner) and known.pred_probs is None
    ):  # to which other items are nothing
        place = np.full(ann.n_items, -1)
        place[told] = np.arange(len(told))
        ann, known, embeddings = ann.with_items(place, ann.items[told]), known.of(told), embeddings[told]
    else:
        told = np.arange(ann.n_items)
    posterior = clf.label_proba_[told]
    rows = np.unique(ann.item)
    part = np.full(ann.n_items, -1)
    part[rows] = _parts(posterior[rows].argmax(1), np.random.default_rng(clf.seed))
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
            said = posterior_of(learn(learner, embeddings, rest, clf.encoder_, left).fit)[hidden]  # which have no label
        probabilities |= zip(hidden.tolist(), said, strict=True)
    return Check(
        told[rows],
        posterior[rows],
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


# ---- worth ------------------------------------------------------------
#
# What images or features were worth to a fitted classifier, and where the consensus is not what labels alone give.


# Of what class sizes leave open of labels, what noise for features foretells in one crowd of twenty, times the root of
# how many items tell (2 classes, 20 items: 0.69; 3 classes or more: 0.5 at most). Features two standard deviations
# apart have 0.9 or more with 2 or 3 classes; with 10 classes 0.3 from 20 items and 0.9 from 40, by the median, so some
# of that help is not seen.
BY_LUCK = 0.7
LEAST = 0.01
TIE = 1e-6  # of probabilities


class FeatureValue(NamedTuple):
    """How probable labels are on average, by images or features of items whose labels were hidden, and by class sizes.

    These are None where the learner is none of Learned, Labelings and Both. ``helped``: None where that is not known.
    ``differ``, ``unsaid``: labelled items whose consensus labels alone would not give, and those whose consensus nobody
    said.
    """

    foretold: float | None
    by_class_sizes: float | None
    helped: bool | None
    differ: Positions
    unsaid: Positions


def feature_value(clf: CrowdClassifier, embeddings: Tensor) -> FeatureValue:
    """Embeddings (N, D): those that ``clf`` was fitted with."""
    ann, posterior = clf.annotations_, clf.label_proba_
    best = posterior.argmax(1)
    rows = np.setdiff1d(ann.item, np.flatnonzero(clf.known_.gold >= 0))  # what gold decides, neither did
    alone = _by_labels_alone(clf)
    differ = rows[alone[rows, best[rows]] < alone[rows].max(1) - TIE]
    unsaid = rows[ann.vote_counts()[rows, best[rows]] == 0]
    if clf.learner_ not in (LEARNED, LABELINGS, BOTH):
        return FeatureValue(None, None, None, differ, unsaid)
    fit = clf.fit_
    if clf.learner_ == LABELINGS:
        fit = learn(FeatureLearner(clf.seed), embeddings, ann, clf.encoder_, clf.known_).fit
    fit = fit.fit if isinstance(fit, AmongAll) else fit
    fit = fit.looks if isinstance(fit, Pooled) else fit
    looks = fit.questions if isinstance(fit, Answered) else (cast(FeatureFit, fit),)  # of several, the mean
    foretold, by_size = np.mean([each.foretold.tolist() for each in looks], 0).tolist()
    counted = float(np.mean([float(each.counted) for each in looks]))
    helped = _helped(foretold, by_size, counted, len(looks[0].class_probs), clf.learner_)
    return FeatureValue(foretold, by_size, helped, differ, unsaid)


def _by_labels_alone(clf: CrowdClassifier) -> Floats:
    """(N, K), or more columns where answers name several labels and sets are likely that nobody named."""
    if clf.settings_.get(SEVERAL):
        return aggregation.aggregate_sets(clf.annotations_, lambda ann, _: aggregation.learned(ann))[1].probabilities
    return aggregation.learned(clf.annotations_).probabilities


def _helped(foretold: float, by_size: float, counted: float, n_classes: int, learner: str) -> bool | None:
    """What is not foretold was not believed, but by a search, which may have believed it all the same."""
    if counted < n_classes:
        return None
    if (foretold - by_size) / max(1 - by_size, LEAST) >= max(LEAST, BY_LUCK / math.sqrt(counted)):
        return True
    return False if learner == LEARNED else None
