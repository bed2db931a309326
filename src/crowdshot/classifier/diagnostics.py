"""Estimate the accuracy of a fitted classifier on new items, and how much the features contribute.

`leave_out` estimates the accuracy by ten-fold cross-validation: all labels of a tenth of the items are hidden, a
classifier is fitted to the rest, and its prediction of a hidden item counts with the posterior probability that the
real classifier gives to the predicted class. With many items, folds are left out once `MOST` items have been hidden.

No true classes are known, so the estimate is biased in two ways. The fold's classifier has a tenth less data, which
makes the estimate too low if classes have few items. The posterior of an item with few labels relies on the same
features as the prediction, which makes the estimate too high if the features are misleading. (Counting agreement with
the most probable class is worse: it treats as certain what these features have decided.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.classifier.feature_learners import COMBINED, FEATURES, SEVERAL, FeatureFit, FeatureLearner
from crowdshot.classifier.learner_contract import posterior_of
from crowdshot.classifier.learners import learn
from crowdshot.classifier.mixture_learners import LABELING_SEARCH
from crowdshot.io.cells import Positions
from crowdshot.labels import aggregation
from crowdshot.labels.consensus import Floats, Share
from crowdshot.labels.label_sets import aggregate_sets

PARTS = 10
MOST = 3_000  # hidden items, rounded up to whole folds; more would hardly make the estimate more precise
FEWEST = 10  # labelled items needed for an estimate


@dataclass(frozen=True)
class Check:
    """Predictions of labelled items by classifiers that did not see their labels.

    Attributes
    ----------
    rows : (n,) array
        Positions of the hidden items.
    posterior : (n, K) array
        Their posteriors with labels.
    probabilities : (n, K) array
        Their predictions without labels.
    besides : mapping
        Predictions (K,) of further items that were hidden on request, by position.
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
        """Return the expected accuracy of predictions with at least this confidence; None if there are none."""
        sure = self.probabilities.max(1) >= confidence
        return Share.of_all(self.posterior[sure, self.said[sure]])


def why_not(clf: CrowdClassifier, embeddings: Tensor) -> str:
    """Return why the accuracy cannot be estimated, as the end of a sentence; "" if it can."""
    n_labelled = len(np.unique(clf.annotations_.item))
    if n_labelled < FEWEST:
        return f"{n_labelled} labelled items are too few for cross-validation"
    if not clf._learner_again().is_quick(embeddings.numel()):
        return f"{clf.learner_} takes too long to fit {PARTS} times"
    return ""


def leave_out(clf: CrowdClassifier, embeddings: Tensor, besides: Sequence[int] = ()) -> Check:
    """Predict labelled items with classifiers that are fitted without their labels.

    Parameters
    ----------
    clf : CrowdClassifier
        The fitted classifier, whose settings (including a selected scale) are used for all folds.
    embeddings : Tensor
        Embeddings (N, D) with which it was fitted.
    besides : sequence of int
        Items to predict in any case. If not all folds are used, those of other folds are added to the first one and do
        not count for the estimate.
    """
    ann, known, learner = clf.annotations_, clf._known, clf._learner_again()
    kept = known.rows_of(ann)
    if learner.ignores_unlabelled and known.pred_probs is None:  # other items have no effect
        place = np.full(ann.n_items, -1)
        place[kept] = np.arange(len(kept))
        ann, known, embeddings = ann.with_items(place, ann.items[kept]), known.of(kept), embeddings[kept]
    else:
        kept = np.arange(ann.n_items)
    posterior = clf.label_proba_[kept]
    rows = np.unique(ann.item)
    part = np.full(ann.n_items, -1)
    part[rows] = _parts(posterior[rows].argmax(1), np.random.default_rng(clf._seed))
    enough = min(part.max() + 1, -(-PARTS * MOST // len(rows)))
    rows = rows[part[rows] < enough]
    others = np.setdiff1d(np.intersect1d(np.flatnonzero(np.isin(kept, besides)), ann.item), rows)
    part[others] = 0
    probabilities = dict[int, NDArray[np.float64]]()
    for number in range(enough):
        rest = ann.keep(part[ann.item] != number)
        hidden = np.flatnonzero(part == number)
        left = known.hide(hidden)
        classes = left.classes_of(rest)
        if len(classes) == 1:  # nothing to fit
            predicted = np.tile(np.eye(ann.n_classes)[classes], (len(hidden), 1))
        else:
            predicted = posterior_of(learn(learner, embeddings, rest, clf.encoder_, left).fit)[hidden]
        probabilities |= zip(hidden.tolist(), predicted, strict=True)
    return Check(
        kept[rows],
        posterior[rows],
        np.array([probabilities[row] for row in rows.tolist()]),
        {int(kept[row]): probabilities[row] for row in others.tolist()},
    )


def _parts(consensus: Positions, random: np.random.Generator) -> Positions:
    """Return the fold of each item, 0 to 9, (n,); every class is spread evenly over the folds.

    scikit-learn's StratifiedKFold is not used: it warns if a class has fewer items than there are folds, and raises an
    error if all have. Both are common with few labelled items.
    """
    lots = random.permutation(len(consensus))
    order = np.lexsort((lots, consensus))
    part = np.empty(len(consensus), dtype=np.int64)
    part[order] = np.arange(len(consensus)) % PARTS
    return part


# ---- how much the features contribute ----

# By how much features must improve held-out prediction to count as informative: BY_LUCK / sqrt(n), as a share of the
# possible improvement over class frequencies, with n the effective number of items. One crowd of twenty with random
# features exceeds it (2 classes, 20 items: 0.69; 3 classes or more: 0.5 at most). Features two standard deviations
# apart reach 0.9 or more with 2 or 3 classes; with 10 classes 0.3 from 20 items and 0.9 from 40 (medians), so that some
# informative features are not recognised.
BY_LUCK = 0.7
LEAST = 0.01  # improvement that counts, however many items there are
TIE = 1e-6  # difference of probabilities below which two classes are equally probable


class FeatureValue(NamedTuple):
    """How well features predict held-out labels, and what they changed.

    Attributes
    ----------
    held_out_probability, by_class_sizes : float or None
        Mean probability of held-out labels, predicted from features and from class frequencies. None if the learner has
        no feature model.
    informative : bool or None
        Whether the features are informative. None if there is too little data to tell.
    changed : (n,) array
        Labelled items whose consensus would be different from labels alone.
    unchosen : (n,) array
        Labelled items whose consensus no annotator chose.
    """

    held_out_probability: float | None
    by_class_sizes: float | None
    informative: bool | None
    changed: Positions
    unchosen: Positions


def feature_value(clf: CrowdClassifier, embeddings: Tensor) -> FeatureValue:
    """Measure the contribution of the features; embeddings (N, D) are those with which ``clf`` was fitted."""
    ann, posterior = clf.annotations_, clf.label_proba_
    best = posterior.argmax(1)
    rows = np.setdiff1d(ann.item, np.flatnonzero(clf._known.gold >= 0))  # neither labels nor features decide gold
    alone = _by_labels_alone(clf)
    changed = rows[alone[rows, best[rows]] < alone[rows].max(1) - TIE]
    unchosen = rows[ann.vote_counts()[rows, best[rows]] == 0]
    if clf.learner_ not in (FEATURES, LABELING_SEARCH, COMBINED):
        return FeatureValue(None, None, None, changed, unchosen)
    fit: Any = clf._model
    if clf.learner_ == LABELING_SEARCH:  # has no feature model of its own
        fit = learn(FeatureLearner(clf._seed), embeddings, ann, clf.encoder_, clf._known).fit
    models: Sequence[FeatureFit] = fit.feature_fits  # several for sets of labels: the mean counts
    by_features, by_size = np.mean([model.foretold.tolist() for model in models], 0).tolist()
    n_effective = float(np.mean([float(model.counted) for model in models]))
    n_classes = len(models[0].class_probs)
    informative = _are_informative(by_features, by_size, n_effective, n_classes, clf.learner_)
    return FeatureValue(by_features, by_size, informative, changed, unchosen)


def _by_labels_alone(clf: CrowdClassifier) -> Floats:
    """Return posteriors from labels alone, (N, K); sets of labels may add columns for sets that nobody named."""
    if clf.settings_.get(SEVERAL):
        return aggregate_sets(clf.annotations_, lambda ann, _: aggregation.learned(ann))[1].probabilities
    return aggregation.learned(clf.annotations_).probabilities


def _are_informative(
    by_features: float, by_size: float, n_effective: float, n_classes: int, learner: str
) -> bool | None:
    """Return whether features improve held-out prediction; None if there is too little data to tell.

    If they do not, the answer is False for the feature model, and None if a labeling search may have used them.
    """
    if n_effective < n_classes:
        return None
    if (by_features - by_size) / max(1 - by_size, LEAST) >= max(LEAST, BY_LUCK / math.sqrt(n_effective)):
        return True
    return False if learner == FEATURES else None
