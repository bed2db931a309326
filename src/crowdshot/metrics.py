"""Evaluate classifiers without true labels, by a crowd's labels of held-out items.

The scorers take (estimator, X, labels), so scikit-learn accepts them as ``scoring=``. Labels have the forms of
`CrowdClassifier.fit` that can be split by rows: an array or a DataFrame with a column for each annotator.

Inter-annotator agreement: `krippendorff_alpha`, `fleiss_kappa` and `pairwise_agreement` (`labels.agreement`).

Examples
--------
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
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import described
from crowdshot.io.cells import positions
from crowdshot.labels import aggregation
from crowdshot.labels.agreement import fleiss_kappa, krippendorff_alpha, pairwise_agreement
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.matching import annotations_of, mark_of, names_of

Floats = NDArray[np.float64]
FLOOR = 1e-3  # lower limit of probabilities: an "impossible" label costs seven nats
BINS = 10  # of the calibration curve

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
    """Return the mean held-out log-likelihood of the labels, log Σ_k p(k | item) p(label | k, annotator).

    It evaluates a model of items and annotators without true or consensus labels. The annotators' confusion matrices
    are the classifier's ``confusion_``; new annotators have their mean.

    Parameters
    ----------
    estimator : fitted CrowdClassifier, or a pipeline that ends in one
    X : array, DataFrame or list
        Items.
    labels : array or DataFrame of shape (N, R)
        The crowd's labels of these items.

    Returns
    -------
    float
        In (-inf, 0].

    Examples
    --------
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
        raise CrowdshotError(
            f"is {type(clf).__name__}",
            argument="estimator",
            expected="a fitted CrowdClassifier, which has confusion matrices",
        )
    known = positions(clf.annotations_.annotators, ann.annotators)
    confusion = np.concatenate([clf.confusion_, clf.confusion_.mean(0, keepdims=True)])[
        known
    ]  # -1, a new annotator, takes the last: the mean
    label = positions(clf.classes_, ann.classes)[ann.label]
    likelihood = confusion[ann.annotator, :, label]  # (L, K)
    p = (_probabilities(estimator, X)[ann.item] * likelihood).sum(1)
    return float(np.log(np.where(label < 0, 0, p).clip(FLOOR)).mean())


def consensus_accuracy_scorer(estimator: Any, X: Any, labels: Any) -> float:
    """Return the estimator's accuracy, estimated from the labels' consensus (see `consensus_accuracy`).

    Parameters
    ----------
    estimator : fitted classifier
    X : array, DataFrame or list
        Items.
    labels : array or DataFrame of shape (N, R)
        The crowd's labels of these items.

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
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
    """Estimate the accuracy of predictions from labels alone, corrected for the uncertainty of the consensus.

    Let q be the posterior of the labels (`aggregate.learned`). Correct predictions have the mean probability
    s = mean Σ_k q_k² under it, and wrong ones (1 - s) / (K - 1). The estimate interpolates linearly between the two,
    limited to [0, 1]. Items without labels are ignored.

    Parameters
    ----------
    predicted : array of shape (N,)
        A class for each item of the labels.
    labels : Annotations

    Returns
    -------
    float
        NaN if the labels have no information.

    Examples
    --------
    >>> from crowdshot import Annotations
    >>> from crowdshot.metrics import consensus_accuracy
    >>> ann = Annotations.from_matrix([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
    >>> consensus_accuracy(["a", "b", "a", "b"], ann)
    1.0
    """
    rows = np.unique(labels.item)
    posterior = aggregation.learned(labels).probabilities[rows]
    label = positions(labels.classes, np.asarray(predicted, dtype=object)[rows])
    hit = np.where(label >= 0, posterior[np.arange(len(rows)), label], 0.0).mean()
    return _corrected(hit, posterior)


def calibration_scorer(estimator: Any, X: Any, labels: Any) -> float:
    """Return minus the expected calibration error over ten bins (see `calibration_curve`).

    Parameters
    ----------
    estimator : fitted classifier
    X : array, DataFrame or list
        Items.
    labels : array or DataFrame of shape (N, R)
        The crowd's labels of these items.

    Returns
    -------
    float
        In [-1, 0]; 0 is best.

    Examples
    --------
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
    """Return confidence and accuracy in bins of confidence, for labelled items.

    Parameters
    ----------
    probabilities : array of shape (N, K)
        Class probabilities, a row for each item of the labels.
    classes : array of shape (K,)
    labels : Annotations

    Returns
    -------
    DataFrame
        confidence, accuracy (estimated as in `consensus_accuracy`) and items (their number) of each non-empty bin.

    Examples
    --------
    >>> from crowdshot import Annotations
    >>> from crowdshot.metrics import calibration_curve
    >>> ann = Annotations.from_matrix([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
    >>> curve = calibration_curve([[0.9, 0.1], [0.1, 0.9], [0.6, 0.4], [0.1, 0.9]], ["a", "b"], ann)
    >>> curve[["confidence", "items"]]
       confidence  items
    0         0.6      1
    1         0.9      3
    """
    rows = np.unique(labels.item)
    posterior = aggregation.learned(labels).probabilities[rows]
    p = np.asarray(probabilities, dtype=np.float64)[rows]
    confidence = p.max(1)
    label = positions(labels.classes, np.asarray(classes, dtype=object)[p.argmax(1)])
    hit = np.where(label >= 0, posterior[np.arange(len(rows)), label], 0.0)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    found = [bins == place for place in np.unique(bins)]
    return pd.DataFrame(
        {
            "confidence": [confidence[some].mean() for some in found],
            "accuracy": [_corrected(hit[some].mean(), posterior[some]) for some in found],
            "items": [int(some.sum()) for some in found],
        }
    )


def _corrected(hit: float, posterior: Floats) -> float:
    """Return the accuracy that a mean probability ``hit`` under the posteriors implies."""
    right = float((posterior * posterior).sum(1).mean())
    wrong = (1 - right) / max(posterior.shape[1] - 1, 1)
    if right - wrong < 1e-9:
        return float("nan")  # the labels have no information
    return float(np.clip((hit - wrong) / (right - wrong), 0, 1))


def _last(estimator: Any) -> Any:
    """Return the last step of a pipeline, or of the best estimator of a search."""
    estimator = getattr(estimator, "best_estimator_", estimator)
    return estimator[-1] if hasattr(estimator, "named_steps") else estimator


def _annotations(estimator: Any, X: Any, labels: Any) -> Annotations:
    """Convert labels of X's items; missing labels are marked as when the classifier was fitted, otherwise by -1."""
    if labels is None:
        raise CrowdshotError("is None", argument="labels", expected="the labels of X's items")
    n_items = X.shape[0] if hasattr(X, "shape") else len(X)
    clf = _last(estimator)
    missing = mark_of(clf.missing_, clf.classes_) if hasattr(clf, "missing_") else -1
    return annotations_of(labels, n_items, names_of(X), None, missing)


def _probabilities(estimator: Any, X: Any) -> Floats:
    p = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    if p.ndim != 2 or not np.isfinite(p).all():
        raise CrowdshotError(
            f"has {described(p)} as probabilities", argument="estimator", expected="(N, K) finite numbers"
        )
    return p
