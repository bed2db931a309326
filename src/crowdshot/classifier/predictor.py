"""Provide the prediction methods of `CrowdClassifier`, for new items."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from crowdshot.classifier.learner_contract import MOST_CELLS, FittedModel
from crowdshot.errors import CrowdshotError, CrowdshotWarning
from crowdshot.formatting import counted, first, show
from crowdshot.io.cells import Ids, Positions
from crowdshot.io.dataframes import column_names, to_pandas
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.guarantees import conformal_sets, temperature, true_classes
from crowdshot.metrics import consensus_accuracy_scorer

if TYPE_CHECKING:
    from torch import Tensor

    from crowdshot.encoders.encoder import Encoder

    # types for scikit-learn's base classes, which have none
    class BaseEstimator:
        """Parameters of an estimator."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Return the parameters of the constructor."""
            raise NotImplementedError

        def set_params(self, **params: Any) -> Self:
            """Set parameters of the constructor."""
            raise NotImplementedError

        def __sklearn_tags__(self) -> Any:
            """Tell scikit-learn what the estimator accepts."""
            raise NotImplementedError

    class ClassifierMixin:
        """Score of a classifier."""

        def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
            """Return the accuracy of the predictions."""
            raise NotImplementedError

else:
    from sklearn.base import BaseEstimator, ClassifierMixin


AT_ONCE = 1_024  # items of a generator per batch


class Predictor(ClassifierMixin):
    """Prediction methods of `CrowdClassifier`."""

    _model: FittedModel
    _reader: Encoder
    _shift: Tensor
    _factor: Tensor
    classes_: Ids
    confusion_: NDArray[np.float64]
    device: str
    embeddings_: Tensor | None
    annotations_: Annotations
    temperature_: float = 1.0

    def predict_log_proba(self, X: Any, progress: Callable[[int, int], None] | None = None) -> NDArray[np.float64]:
        """Return log class probabilities of items; for the mixture, equation (8) of the paper.

        Parameters
        ----------
        X : array, list, DataFrame or iterator
            N items in the form of those in `fit`. An iterator of items or of DataFrames is processed in batches.
        progress : callable or None
            Called with (items done, items in total) after each batch.

        Returns
        -------
        (N, K) array
            Columns are in the order of ``classes_``.
        """
        from crowdshot.encoders.networks import choose_device

        check_is_fitted(self)
        if isinstance(X, Iterator):
            parts = [self.predict_log_proba(part) for part in _batches(X)]
            return np.concatenate(parts) if parts else self.predict_log_proba([])
        X = to_pandas(X, "X")
        check_columns(X, self)
        embeddings = self._reader.embed(X, device=choose_device(self.device), progress=progress)
        return self._log_proba(embeddings.to(self._shift.device))  # a loaded classifier is on the CPU

    def _log_proba(self, embeddings: Tensor) -> NDArray[np.float64]:
        if embeddings.shape[1] != len(self._shift):
            raise wrong_width(embeddings.shape[1], len(self._shift))
        out = self._model.log_proba((embeddings - self._shift) * self._factor)
        result: NDArray[np.float64] = (
            (out.double() / self.temperature_).log_softmax(-1).cpu().numpy()
        )  # rows sum to 1 in double precision
        is_nan = np.isnan(result).any(1)
        if is_nan.any():
            raise CrowdshotError(
                f"has an item that is too far from the fitted items to classify, item {first(is_nan)}",
                argument="X",
                found=first(is_nan),
                expected="items as in fit",
            )
        return result

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return class probabilities of items.

        Parameters
        ----------
        X : array, list, DataFrame or iterator
            N items in the form of those in `fit`. An iterator of items, or of the DataFrames that pandas reads from a
            long file, is processed in batches; error messages count items within a batch.

        Returns
        -------
        (N, K) array
            Columns are in the order of ``classes_``.
        """
        return np.exp(self.predict_log_proba(X))

    def predict_proba_embeddings(self, embeddings: Tensor) -> NDArray[np.float64]:
        """Return class probabilities of items that `embed` has embedded.

        Parameters
        ----------
        embeddings : Tensor
            (N, D).

        Returns
        -------
        (N, K) array
            Columns are in the order of ``classes_``.
        """
        check_is_fitted(self)
        return np.exp(self._log_proba(embeddings.to(self._shift.device)))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each item.

        Parameters
        ----------
        X : array, list, DataFrame or iterator
            N items, as in `predict_proba`.

        Returns
        -------
        (N,) array
        """
        best = self.predict_log_proba(X).argmax(1)
        names: NDArray[Any] = self.classes_[best]
        return names

    def predict_annotator_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probabilities of the labels that each annotator would give to items.

        They are Σ_k p(k | item) confusion_[r, k, l], so they suit as soft labels of annotators who disagree.

        Parameters
        ----------
        X : array, list, DataFrame or iterator
            N items, as in `predict_proba`.

        Returns
        -------
        (N, R, K) array
            Annotators in the order of ``annotators_``, columns in the order of ``classes_``.
        """
        confusion = self.confusion_
        p = self.predict_proba(X)
        if p.shape[0] * confusion[:, 0].size > MOST_CELLS:
            raise CrowdshotError(
                f"has {len(p):,} items, which with {len(confusion):,} annotators give more than {MOST_CELLS:,} numbers",
                argument="X",
                found=len(p),
                hint="Predict fewer items at a time.",
            )
        out: NDArray[np.float64] = np.einsum("nk,rkl->nrl", p, confusion, optimize=True)
        return out

    def calibrate(self, X_gold: Any, y_gold: Any) -> Self:
        """Calibrate the probabilities of new items by items whose class is known (temperature scaling).

        Probabilities p of new items become p ** (1 / T), normalised, where the temperature T has the highest posterior
        for the gold items (`crowdshot.guarantees.temperature`). Predicted classes and the consensus do not change.
        Another `fit` or `update` sets T to 1.

        Parameters
        ----------
        X_gold : array, list or DataFrame
            Items from the same source as the new ones, which were not among the items of the fit.
        y_gold : (n,) array
            Their true classes.

        Returns
        -------
        self
        """
        before, self.temperature_ = self.temperature_, 1.0
        try:
            self.temperature_ = temperature(*self._checked(X_gold, y_gold))
        except BaseException:
            self.temperature_ = before
            raise
        return self

    def predict_set(self, X: Any, X_gold: Any, y_gold: Any, coverage: float = 0.9) -> NDArray[np.bool_]:
        """Return sets of classes that contain the true class with at least this probability (conformal prediction).

        This holds on average over new items that come from the same source as the gold items, whatever the annotators
        did. The gold items must not be among the items of the fit.

        Parameters
        ----------
        X : array, list or DataFrame
            N items, as in `predict_proba`.
        X_gold : array, list or DataFrame
            n further items.
        y_gold : (n,) array
            Their true classes.
        coverage : float
            Between 0 and 1; needs n >= coverage / (1 - coverage), which is 9 items for 0.9.

        Returns
        -------
        (N, K) bool array
            Columns are in the order of ``classes_``. The most probable class is always in the set.
        """
        return conformal_sets(self.predict_proba(X), *self._checked(X_gold, y_gold), coverage)

    def _checked(self, X_gold: Any, y_gold: Any) -> tuple[NDArray[np.float64], Positions]:
        """Return predictions (n, K) and true classes (n,) of gold items; warn if the fit had labels of one."""
        from crowdshot.encoders.networks import choose_device

        check_is_fitted(self)
        X_gold = to_pandas(X_gold, "X_gold")
        check_columns(X_gold, self)
        embeddings = self._reader.embed(X_gold, device=choose_device(self.device))
        p = self.predict_proba_embeddings(embeddings)
        truth = true_classes(y_gold, self.classes_, len(p))
        if self.embeddings_ is not None:  # in files of large or shared classifiers
            fitted = self.embeddings_[np.unique(self.annotations_.item)]
            labelled = {row.tobytes() for row in fitted.cpu().numpy()}
            known = sum(row.tobytes() in labelled for row in embeddings.to(fitted).cpu().numpy())
            if known:
                warnings.warn(
                    CrowdshotWarning(
                        f"has {counted(known, 'items')} with the features of labelled items of the fit",
                        argument="X_gold",
                        found=known,
                        expected="items that were not in the fit",
                        hint="Predictions of fitted items are better than those of new items.",
                    ),
                    stacklevel=3,
                )
        return p, truth

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy of `predict`, estimated if ``y`` has the labels of several annotators.

        Parameters
        ----------
        X : array, list or DataFrame
            N items.
        y : (N,) array, or labels of several annotators as in `fit`
            True classes, or labels of the crowd for `crowdshot.metrics.consensus_accuracy_scorer`.
        sample_weight : (N,) array or None
            Weights of items with true classes.

        Returns
        -------
        float
        """
        y = to_pandas(y, "y")
        axes = np.ndim(y)
        if isinstance(y, Annotations | Mapping) or (axes == 2 and np.shape(y)[1] > 1):
            if sample_weight is not None:
                raise CrowdshotError(
                    "cannot be used with labels of several annotators", argument="sample_weight", expected="None"
                )
            return consensus_accuracy_scorer(self, X, y)
        if axes != 1:
            raise CrowdshotError(
                f"has shape {np.shape(y)}",
                argument="y",
                found=np.shape(y),
                expected="the true class of each item, or the labels of several annotators",
            )
        return float(super().score(X, y, sample_weight))


def one_of(y: Any, labels: Any) -> Any:
    """Return ``y`` or its other name, ``labels``; raise an error unless exactly one of them is given."""
    if y is None and labels is None:
        raise CrowdshotError("CrowdClassifier requires y to be passed, but the target y is None", argument="y")
    if y is not None and labels is not None:
        raise CrowdshotError("is given together with y", argument="labels", expected="one of the two")
    return labels if y is None else y


RENUMBERED = ("predict_proba", "predict_log_proba", "decision_function")


def refuse_renumbered(y: Any) -> None:
    """Raise an error if scikit-learn's `cross_val_predict` has replaced the labels by numbers.

    If it predicts probabilities, it first numbers the labels in each column of y separately. Missing labels become a
    class, and a number means different classes for different annotators. The numbers themselves do not show this.
    """
    matrix = isinstance(y, np.ndarray) and y.ndim == 2
    frame = sys._getframe(1)
    while frame.f_back is not None:
        frame = frame.f_back
        if not frame.f_globals.get("__name__", "").startswith("sklearn."):
            continue
        name, found = frame.f_code.co_name, frame.f_locals
        proba = name == "_fit_and_predict" and matrix and found.get("method") in RENUMBERED
        encoder = found.get("le") if name == "cross_val_predict" else None  # of one annotator's labels
        if proba or (encoder is not None and any(pd.isna(c) or c in (-1, "") for c in encoder.classes_.tolist())):
            raise CrowdshotError(
                "was renumbered by cross_val_predict, with missing labels as a class",
                argument="y",
                hint="Use crowdshot.model_selection.cross_val_proba instead.",
            )


def wrong_width(found: int, expected: int) -> CrowdshotError:
    """Return the error that items have another number of features than in the fit."""
    return CrowdshotError(
        f"has {found} features, but CrowdClassifier is expecting {expected} features as input",
        argument="X",
        found=found,
    )


def check_columns(X: Any, fitted: Any) -> None:
    """Raise an error unless a table has the fitted columns, in the same order if the encoder depends on the order."""
    from crowdshot.encoders.table_input import TableInput

    if isinstance(fitted._reader.input, TableInput):
        return
    names, known = column_names(X), getattr(fitted, "feature_names_in_", None)
    if names is None or known is None or len(names) != len(known):  # `wrong_width` is raised later
        return
    for place, (name, expected) in enumerate(zip(names, known, strict=True), 1):
        if name != expected:
            raise CrowdshotError(
                f"has {show(name)} as column {place}", argument="X", found=name, expected=f"{show(expected)} as in fit"
            )


def _batches(stream: Iterator[Any]) -> Iterator[Any]:
    """Yield items of an iterator in lists of `AT_ONCE`; yield tables unchanged."""
    head = list(islice(stream, 1))
    whole = chain(head, stream)
    if head and isinstance(head[0], pd.DataFrame):
        yield from whole
    while part := list(islice(whole, AT_ONCE)):
        yield part


__all__ = ["BaseEstimator", "ClassifierMixin"]
