"""Evaluate classifiers without true labels, by a crowd's labels of held-out items.

The scorers take (estimator, X, labels), so scikit-learn accepts them as ``scoring=``. Labels have the forms of
`CrowdClassifier.fit` that can be split by rows: an array or a DataFrame with a column for each annotator.

Inter-annotator agreement: `krippendorff_alpha`, `fleiss_kappa`, `gwet_ac1`, `gwet_ac2`, `pairwise_agreement` and
`cohen_kappa` of two annotators (`labels.agreement`).

Examples
--------
>>> import numpy as np
>>> from sklearn.model_selection import KFold, cross_val_score
>>> from crowdshot import CrowdClassifier, metrics
>>> truth = np.arange(40) % 2
>>> X = truth[:, None] * 4.0 + np.random.default_rng(0).normal(size=(40, 2))
>>> labels = np.where(np.random.default_rng(1).random((40, 5)) < 0.85, truth[:, None], 1 - truth[:, None])
>>> folds = KFold(4, shuffle=True, random_state=0)
>>> scores = cross_val_score(CrowdClassifier(), X, labels, scoring=metrics.consensus_accuracy_scorer, cv=folds)
>>> bool(scores.mean() > 0.9)
True
"""

from __future__ import annotations

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import chdtrc

from crowdshot.errors import CrowdshotError, CrowdshotWarning
from crowdshot.formatting import described
from crowdshot.io.cells import Positions, positions
from crowdshot.labels import aggregation
from crowdshot.labels.agreement import (
    cohen_kappa,
    fleiss_kappa,
    gwet_ac1,
    gwet_ac2,
    krippendorff_alpha,
    pairwise_agreement,
)
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.matching import annotations_of, mark_of, names_of

Floats = NDArray[np.float64]
FLOOR = 1e-3  # lower limit of probabilities: an "impossible" label costs seven nats
BINS = 10  # of the calibration curve
MOST_ACCURATE = 0.98  # of predictions as a source of the posterior
LEAST_INFORMATION = 0.05  # labels with less do not limit an accuracy from above
EM_STEPS = 100
TINY = 1e-9  # least probability of a class
UNLIKE = 1 / 3  # share of the items that would need another class to have the classes of the fit
P_UNLIKE = 1e-3  # p-value of the same

__all__ = [
    "AccuracyEstimate",
    "calibration_curve",
    "calibration_scorer",
    "cohen_kappa",
    "consensus_accuracy",
    "consensus_accuracy_scorer",
    "estimate_accuracy",
    "fleiss_kappa",
    "gwet_ac1",
    "gwet_ac2",
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
    """Return the estimator's accuracy, estimated from the labels alone (see `estimate_accuracy`).

    The scorer suits classifiers that were fitted to other items of the same crowd. It tends to be too low where a
    classifier has much information that labels lack, and too high where it repeats shared mistakes of annotators.

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
    >>> round(consensus_accuracy_scorer(clf, X, labels), 1)
    0.9
    """
    ann = _annotations(estimator, X, labels)
    predicted = estimator.predict(X)
    if not hasattr(estimator, "predict_proba"):
        return estimate_accuracy(predicted, ann).estimate
    pred_probs = _by_classes_of(ann, _probabilities(estimator, X), estimator.classes_)
    return estimate_accuracy(predicted, ann, pred_probs).estimate


def consensus_accuracy(predicted: Any, labels: Annotations) -> float:
    """Estimate the accuracy of predictions from labels alone; the estimate of `estimate_accuracy`.

    Parameters
    ----------
    predicted : array of shape (N,)
        A class for each item of the labels. Items without labels are ignored.
    labels : Annotations

    Returns
    -------
    float
        In [0, 1].

    Examples
    --------
    >>> from crowdshot import Annotations
    >>> from crowdshot.metrics import consensus_accuracy
    >>> ann = Annotations.from_matrix([["a", "a"], ["b", "b"], ["a", "b"], ["b", "b"]])
    >>> round(consensus_accuracy(["a", "b", "a", "b"], ann), 1)
    0.8
    """
    return estimate_accuracy(predicted, labels).estimate


class AccuracyEstimate(NamedTuple):
    """An estimate of an unknown accuracy, with limits.

    Examples
    --------
    >>> from crowdshot.metrics import AccuracyEstimate
    >>> AccuracyEstimate(0.8, low=0.75, high=0.9).high
    0.9
    """

    estimate: float
    low: float
    high: float


def estimate_accuracy(
    predicted: Any, labels: Annotations, pred_probs: Any = None, *, z: float = 1.645
) -> AccuracyEstimate:
    """Estimate the accuracy of predictions from labels alone, with limits.

    Labels cannot tell how often a classifier repeats the annotators' mistakes, so three assumptions are compared. Let
    q (N, K) be the posteriors of the items given their labels (`aggregate.learned`).

    - ``low``: the predictions contain nothing that the labels do not. The accuracy is the mean of q[n, predicted[n]].
    - ``high``: predictions and labels err independently. The accuracy a maximises
      Π_n Σ_k q[n, k] p(predicted[n] | k), with p = a for k and (1 - a) / (K - 1) for other classes.
    - ``estimate``: the predictions are one more source of the posterior, whose weight depends on how well it predicts
      the labels (``pred_probs`` of `aggregate.learned`). The accuracy is the mean posterior of the predicted classes.

    ``low`` and ``high`` are widened by ``z`` standard errors.

    Parameters
    ----------
    predicted : array of shape (N,)
        A class for each item of the labels. Items without labels are ignored.
    labels : Annotations
    pred_probs : array of shape (N, K), optional
        The classifier's probabilities of ``labels.classes``, which make the estimate more accurate. By default, those
        of a classifier with the accuracy ``high``.
    z : float
        Number of standard errors.

    Returns
    -------
    AccuracyEstimate

    Examples
    --------
    >>> from crowdshot import Annotations
    >>> from crowdshot.metrics import estimate_accuracy
    >>> ann = Annotations.from_matrix([["a", "a", "b"], ["b", "b", "b"], ["a", "b", "a"], ["b", "b", "b"]] * 20)
    >>> found = estimate_accuracy(["a", "b", "a", "a"] * 20, ann)
    >>> found.low < found.estimate < found.high
    True
    """
    by = _Evidence.of(predicted, labels, pred_probs)
    estimate = float(by.combined[by.rows].mean())
    low, high = min(float(by.labels[by.rows].mean()), estimate), max(by.independent, estimate)
    error = z * math.sqrt(estimate * (1 - estimate) / len(by.rows))
    return AccuracyEstimate(
        estimate, max(low - error, 0.0), min(high + error / max(by.information, LEAST_INFORMATION), 1.0)
    )


class _Evidence(NamedTuple):
    """Probabilities that predictions are right."""

    rows: Positions  # labelled items
    labels: Floats  # (N,) given the labels
    combined: Floats  # (N,) given labels and predictions
    independent: float  # accuracy if predictions and labels err independently
    information: float  # from 0 to 1: how well labels tell right predictions from wrong ones

    @classmethod
    def of(cls, predicted: Any, labels: Annotations, pred_probs: Any = None) -> _Evidence:
        rows, K = np.unique(labels.item), labels.n_classes
        label = positions(labels.classes, np.asarray(predicted, dtype=object))
        posterior = aggregation.learned(labels).probabilities
        by_labels = _of_classes(posterior, label)
        independent = _independent_accuracy(by_labels[rows], K)
        information = (K * float((posterior * posterior).sum(1).mean()) - 1) / max(K - 1, 1)
        combined = by_labels
        if isinstance(posterior, np.ndarray) and K > 1:  # not with very many classes
            if pred_probs is None:
                pred_probs = _probabilities_of(label, K, independent)
            both = aggregation.learned(labels, pred_probs=pred_probs).probabilities
            combined = _of_classes(both, label)
        return cls(rows, by_labels, combined, independent, information)


def _of_classes(posterior: Any, label: Positions) -> Floats:
    """Return the posterior (N, K) of one class per item; 0 for -1, a class that no annotator chose."""
    found: Floats = np.asarray(posterior[np.arange(len(label)), label.clip(0)], dtype=np.float64).ravel()
    return np.where(label >= 0, found, 0.0)


def _independent_accuracy(by_labels: Floats, K: int) -> float:
    """Return the accuracy of predictions that err independently of the labels.

    ``by_labels`` (n,) is the posterior p of the predicted classes. EM for the accuracy a, with a Beta(2, 2) prior:

        right = a p / (a p + (1 - a) (1 - p) / (K - 1)),   a = (Σ right + 1) / (n + 2)
    """
    a = 0.7
    for _ in range(EM_STEPS):
        right, wrong = a * by_labels, (1 - a) * (1 - by_labels) / max(K - 1, 1)
        shares = np.divide(right, right + wrong, out=np.zeros_like(right), where=right + wrong > 0)
        a = float(shares.sum() + 1) / (len(by_labels) + 2)
    return a


def _probabilities_of(label: Positions, K: int, accuracy: float) -> Floats:
    """Return the probabilities (N, K) of a classifier with this accuracy; uniform where it predicts no class, -1."""
    sure = min(max(accuracy, 1 / K), MOST_ACCURATE)
    p = np.full((len(label), K), (1 - sure) / (K - 1))
    p[np.arange(len(label)), label.clip(0)] = sure
    p[label < 0] = 1 / K
    return p


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
        confidence, accuracy (estimated as in `estimate_accuracy`) and items (their number) of each non-empty bin.

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
    p = np.asarray(probabilities, dtype=np.float64)
    predicted = np.asarray(classes, dtype=object)[p.argmax(1)]
    hit = _Evidence.of(predicted, labels, _by_classes_of(labels, p, classes)).combined[rows]
    confidence = p[rows].max(1)
    bins = np.minimum((confidence * BINS).astype(int), BINS - 1)
    found = [bins == place for place in np.unique(bins)]
    return pd.DataFrame(
        {
            "confidence": [confidence[some].mean() for some in found],
            "accuracy": [hit[some].mean() for some in found],
            "items": [int(some.sum()) for some in found],
        }
    )


def _by_classes_of(labels: Annotations, p: Floats, classes: Any) -> Floats:
    """Return probabilities (N, K) of the labels' classes; those of other classes are shared out in proportion."""
    place = positions(np.asarray(classes, dtype=object), labels.classes)
    found: Floats = np.where(place >= 0, p[:, place.clip(0)], 0.0) + TINY
    found /= found.sum(1, keepdims=True)
    return found


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
    missing = mark_of(clf._missing, clf.classes_) if hasattr(clf, "_missing") else "auto"
    ann = annotations_of(labels, n_items, names_of(X), None, missing)
    _warn_of_other_classes(getattr(clf, "annotations_", None), ann)
    return ann


def _warn_of_other_classes(fitted: Annotations | None, ann: Annotations) -> None:
    """Warn if the labels have very different class frequencies than those of the fit.

    So they do if scikit-learn splits items that are sorted by class: ``cv=3`` neither shuffles nor stratifies here,
    because the labels of a crowd are several columns.
    """
    if fitted is None:
        return
    counts = [np.bincount(each.label, 1 / np.bincount(each.item)[each.item], each.n_classes) for each in (fitted, ann)]
    place = positions(fitted.classes, ann.classes)
    new = np.bincount(np.where(place < 0, fitted.n_classes + np.arange(ann.n_classes), place), counts[1])
    a = np.pad(counts[0], (0, max(len(new) - fitted.n_classes, 0)))
    b = np.pad(new, (0, len(a) - len(new)))
    a, b = a[a + b > 0], b[a + b > 0]
    ratio = math.sqrt(b.sum() / a.sum())
    chi_squared = float(((a * ratio - b / ratio) ** 2 / (a + b)).sum())
    distance = np.abs(a / a.sum() - b / b.sum()).sum() / 2
    if distance > UNLIKE and chdtrc(len(a) - 1, chi_squared) < P_UNLIKE:
        message = "differ strongly in class frequencies from the labels of the fit, which distorts the score"
        hint = "In cross-validation, pass cv=crowdshot.model_selection.CrowdKFold(5), which spreads classes evenly."
        warnings.warn(CrowdshotWarning(message, argument="labels", hint=hint), stacklevel=4)


def _probabilities(estimator: Any, X: Any) -> Floats:
    p = np.asarray(estimator.predict_proba(X), dtype=np.float64)
    if p.ndim != 2 or not np.isfinite(p).all():
        raise CrowdshotError(
            f"has {described(p)} as probabilities", argument="estimator", expected="(N, K) finite numbers"
        )
    return p
