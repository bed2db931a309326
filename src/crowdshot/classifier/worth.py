"""What images or features were worth to a fitted classifier, and where the consensus is not what labels alone give."""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
from torch import Tensor

from crowdshot.classifier.both import BOTH, Pooled
from crowdshot.classifier.classifier import CrowdClassifier
from crowdshot.classifier.learned import LEARNED, Believed, ByLooks
from crowdshot.classifier.learners import AmongAll, learn
from crowdshot.classifier.own import LABELINGS
from crowdshot.classifier.sets import SEVERAL, Answered
from crowdshot.labels import aggregate, yes_no
from crowdshot.labels.belief import Floats
from crowdshot.labels.positions import Positions

# Of what class sizes leave open of labels, what noise for features foretells in one crowd of twenty, times the root of
# how many items tell (2 classes, 20 items: 0.69; 3 classes or more: 0.5 at most). Features two standard deviations
# apart have 0.9 or more with 2 or 3 classes; with 10 classes 0.3 from 20 items and 0.9 from 40, by the median, so some
# of that help is not seen.
BY_LUCK = 0.7
LEAST = 0.01
TIE = 1e-6  # of probabilities


class Worth(NamedTuple):
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


def worth_of(clf: CrowdClassifier, embeddings: Tensor) -> Worth:
    """Embeddings (N, D): those that ``clf`` was fitted with."""
    ann, belief = clf.annotations_, clf.belief_
    best = belief.argmax(1)
    rows = np.setdiff1d(ann.item, np.flatnonzero(clf.known_.gold >= 0))  # what gold decides, neither did
    alone = _by_labels_alone(clf)
    differ = rows[alone[rows, best[rows]] < alone[rows].max(1) - TIE]
    unsaid = rows[ann.vote_counts()[rows, best[rows]] == 0]
    if clf.learner_ not in (LEARNED, LABELINGS, BOTH):
        return Worth(None, None, None, differ, unsaid)
    fit = clf.fit_
    if clf.learner_ == LABELINGS:
        fit = learn(ByLooks(clf.seed), embeddings, ann, clf.encoder_, clf.known_).fit
    fit = fit.fit if isinstance(fit, AmongAll) else fit
    fit = fit.looks if isinstance(fit, Pooled) else fit
    looks = fit.questions if isinstance(fit, Answered) else (cast(Believed, fit),)  # of several, the mean
    foretold, by_size = np.mean([each.foretold.tolist() for each in looks], 0).tolist()
    counted = float(np.mean([float(each.counted) for each in looks]))
    helped = _helped(foretold, by_size, counted, len(looks[0].class_probs), clf.learner_)
    return Worth(foretold, by_size, helped, differ, unsaid)


def _by_labels_alone(clf: CrowdClassifier) -> Floats:
    """(N, K), or more columns where answers name several labels and sets are likely that nobody named."""
    if clf.settings_.get(SEVERAL):
        return yes_no.believe(clf.annotations_, lambda ann, _: aggregate.learned(ann))[1].probabilities
    return aggregate.learned(clf.annotations_).probabilities


def _helped(foretold: float, by_size: float, counted: float, n_classes: int, learner: str) -> bool | None:
    """What is not foretold was not believed, but by a search, which may have believed it all the same."""
    if counted < n_classes:
        return None
    if (foretold - by_size) / max(1 - by_size, LEAST) >= max(LEAST, BY_LUCK / math.sqrt(counted)):
        return True
    return False if learner == LEARNED else None
