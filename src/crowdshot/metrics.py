"""How good a classifier is where nobody knows the truth: by a crowd's labels of items that it has not met.

The scorers take (estimator, X, labels) and go straight into ``scoring=`` of scikit-learn; labels are what
`CrowdClassifier.fit` takes, cut by rows: an array or a DataFrame with a column for each annotator.

>>> import numpy as np
>>> from sklearn.model_selection import KFold, cross_val_score
>>> from crowdshot import CrowdClassifier
>>> from crowdshot.metrics import consensus_accuracy_scorer
>>> truth = np.arange(40) % 2
>>> X = truth[:, None] * 4.0 + np.random.default_rng(0).normal(size=(40, 2))
>>> labels = np.where(np.random.default_rng(1).random((40, 5)) < 0.85, truth[:, None], 1 - truth[:, None])
>>> folds = KFold(4, shuffle=True, random_state=0)
>>> scores = cross_val_score(CrowdClassifier(), X, labels, scoring=consensus_accuracy_scorer, cv=folds)
>>> bool(scores.mean() > 0.9)
True

`krippendorff_alpha`, `fleiss_kappa` and `pairwise_agreement` tell how far annotators agree (`labels.agreement`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import described
from crowdshot.labels import aggregation
from crowdshot.labels.agreement import fleiss_kappa, krippendorff_alpha, pairwise_agreement
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.indexing import positions
from crowdshot.labels.matching import annotations_of, mark_of, names_of

Floats = NDArray[np.float64]
FLOOR = 1e-3  # of probabilities: a label that was held impossible costs seven nats
BINS = 10

__all__ = [
    "calibration_curve",
    "calibration_scorer",
    "consensus_accuracy",
    "consensus_accuracy_scorer",
    "fleiss_kappa",
    "held_back_labels_scorer",
    "krippendorff_alpha",
    "pairwise_agreement",
]


def held_back_labels_scorer(estimator: Any, X: Any, labels: Any) -> float:
    """The mean log-probability of the labels, (-inf, 0]: of each, Σ_k p(k | item) p(this annotator says it | k).

    That is what a model of items and annotators can be held to, with no truth and no consensus. What an annotator says
    of each class is as ``confusion_`` of the fitted classifier has it, of unknown ones as all others on average.

    >>> import numpy as np
    >>> from crowdshot import CrowdClassifier
    >>> from crowdshot.metrics import held_back_labels_scorer
    >>> X = np.array([[0.0], [0.2], [0.1], [5.0], [5.1], [5.2]])
    >>> labels = np.array([["a", "a"], ["a", "a"], ["a", "b"], ["b", "b"], ["b", "b"], ["b", "b"]])
    >>> clf = CrowdClassifier().fit(X, labels)
    >>> round(held_back_labels_scorer(clf, X, labels), 1)
    -0.3
    """
    clf, ann = _last(estimator), _annotations(estimator, X, labels)
    if not hasattr(clf, "confusion_"):
        raise CrowdshotError(f"estimator is {type(clf).__name__}, expected a CrowdClassifier, which knows annotators.")
    known = positions(clf.annotations_.annotators, ann.annotators)
    confusion = np.concatenate([clf.confusion_, clf.confusion_.mean(0, keepdims=True)])[known]  # -1: the last
    said = positions(clf.classes_, ann.classes)[ann.label]
    of_classes = confusion[ann.annotator, :, said]  # (L, K)
    p = (_probabilities(estimator, X)[ann.item] * of_classes).sum(1)
    return float(np.log(np.where(said < 0, 0, p).clip(FLOOR)).mean())


def consensus_accuracy_scorer(estimator: Any, X: Any, labels: Any) -> float:
    """How often the estimator is right, by the consensus of these labels, as far as that can be trusted.

    >>> import numpy as np
    >>> from crowdshot import CrowdClassifier
    >>> from crowdshot.metrics import consensus_accuracy_scorer
    >>> X = np.array([[0.0], [0.2], [0.1], [5.0], [5.1], [5.2]])
    >>> labels = np.array([["a", "a"], ["a", "a"], ["a", "b"], ["b", "b"], ["b", "b"], ["b", "b"]])
    >>> clf = CrowdClassifier().fit(X, labels)
    >>> consensus_accuracy_scorer(clf, X, labels)
    1.0
    """
    return consensus_accuracy(estimator.predict(X), _annotations(estimator, X, labels))


def consensus_accuracy(predicted: Any, labels: Annotations) -> float:
    """How often ``predicted`` (N,) is the true class of labelled items, which only ``labels`` tell of.

    The labels' posterior q (`aggregate.learned`) is not certain: one who knows the truth would find it there with
    s = mean Σ_k q_k² alone, and one who errs with (1 - s) / (K - 1). The accuracy is where the prediction's own mean of
    q lies between the two; at least 0, at most 1.

    >>> from crowdshot import Annotations
    >>> from crowdshot.metrics import consensus_accuracy
    >>> said = Annotations.from_matrix([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
    >>> consensus_accuracy(["a", "b", "a", "b"], said)
    1.0
    """
    rows = np.unique(labels.item)
    posterior = aggregation.learned(labels).probabilities[rows]
    said = positions(labels.classes, np.asarray(predicted, dtype=object)[rows])
    hit = np.where(said >= 0, posterior[np.arange(len(rows)), said], 0.0).mean()
    return _beyond_doubt(hit, posterior)


def calibration_scorer(estimator: Any, X: Any, labels: Any) -> float:
    """Minus the mean distance of confidence from accuracy over ten bins, [-1, 0]; the best is 0.

    >>> import numpy as np
    >>> from crowdshot import CrowdClassifier
    >>> from crowdshot.metrics import calibration_scorer
    >>> X = np.array([[0.0], [0.2], [0.1], [5.0], [5.1], [5.2]])
    >>> labels = np.array([["a", "a"], ["a", "a"], ["a", "b"], ["b", "b"], ["b", "b"], ["b", "b"]])
    >>> clf = CrowdClassifier().fit(X, labels)
    >>> bool(calibration_scorer(clf, X, labels) > -0.3)
    True
    """
    ann = _annotations(estimator, X, labels)
    curve = calibration_curve(_probabilities(estimator, X), estimator.classes_, ann)
    return -float(np.average(np.abs(curve["confidence"] - curve["accuracy"]), weights=curve["items"]))


def calibration_curve(probabilities: Floats, classes: Any, labels: Annotations) -> pd.DataFrame:
    """Confidence, accuracy and number of labelled items by bins of confidence; accuracy as in `consensus_accuracy`.

    ``probabilities`` (N, K) of ``classes`` (K,), a row for each item of the labels.

    >>> from crowdshot import Annotations
    >>> from crowdshot.metrics import calibration_curve
    >>> said = Annotations.from_matrix([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
    >>> curve = calibration_curve([[0.9, 0.1], [0.1, 0.9], [0.6, 0.4], [0.1, 0.9]], ["a", "b"], said)
    >>> curve[["confidence", "items"]]
       confidence  items
    0         0.6      1
    1         0.9      3
    """
    rows = np.unique(labels.item)
    posterior = aggregation.learned(labels).probabilities[rows]
    p = np.asarray(probabilities, dtype=np.float64)[rows]
    confidence = p.max(1)
    said = positions(labels.classes, np.asarray(classes, dtype=object)[p.argmax(1)])
    hit = np.where(said >= 0, posterior[np.arange(len(rows)), said], 0.0)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    found = [bins == place for place in np.unique(bins)]
    return pd.DataFrame(
        {
            "confidence": [confidence[some].mean() for some in found],
            "accuracy": [_beyond_doubt(hit[some].mean(), posterior[some]) for some in found],
            "items": [int(some.sum()) for some in found],
        }
    )


def _beyond_doubt(hit: float, posterior: Floats) -> float:
    """Where ``hit`` lies between what one who always errs would have (0) and one who is always right (1)."""
    right = float((posterior * posterior).sum(1).mean())
    wrong = (1 - right) / max(posterior.shape[1] - 1, 1)
    if right - wrong < 1e-9:
        return float("nan")  # the labels say nothing at all
    return float(np.clip((hit - wrong) / (right - wrong), 0, 1))


def _last(estimator: Any) -> Any:
    """What a pipeline or a search over settings ends in."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    return estimator[-1] if hasattr(estimator, "named_steps") else estimator


def _annotations(estimator: Any, X: Any, labels: Any) -> Annotations:
    """The labels of X's items; what stands for none in them is as in the fit of a CrowdClassifier, else -1."""
    if labels is None:
        raise CrowdshotError("labels is None, expected the labels of X's items.")
    n_items = X.shape[0] if hasattr(X, "shape") else len(X)
    clf = _last(estimator)
    missing = mark_of(clf.missing_, clf.classes_) if hasattr(clf, "missing_") else -1
    return annotations_of(labels, n_items, names_of(X), None, missing)


def _probabilities(estimator: Any, X: Any) -> Floats:
    p = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    if p.ndim != 2 or not np.isfinite(p).all():
        raise CrowdshotError(f"estimator has {described(p)} as probabilities, expected (N, K) of finite numbers.")
    return p
