"""What a fitted classifier says of other items."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from crowdshot.classifier.contract import Fitted
from crowdshot.encoders.devices import choose_device
from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.tables import TableInput
from crowdshot.errors import CrowdshotError
from crowdshot.files.cells import Ids
from crowdshot.wording import first, show

AT_ONCE = 1_024  # items of a generator


class Predicting(ClassifierMixin):
    """Of `CrowdClassifier`, once it is fitted."""

    fit_: Fitted
    reader_: Encoder
    shift_: Tensor
    factor_: Tensor
    classes_: Ids
    device: str

    def predict_log_proba(self, X: Any, progress: Callable[[int, int], None] | None = None) -> NDArray[np.float64]:
        """log p(class | item), (N, K): with the mixture, equation (8) of the paper. progress: as in `embed`."""
        check_is_fitted(self, "fit_")
        if isinstance(X, Iterator):
            parts = [self.predict_log_proba(part) for part in _pieces(X)]
            return np.concatenate(parts) if parts else self.predict_log_proba([])
        check_columns(X, self)
        embeddings = self.reader_.embed(X, device=choose_device(self.device), progress=progress)
        return self._log_proba(embeddings.to(self.shift_.device))  # which a file that was loaded has on the CPU

    def _log_proba(self, embeddings: Tensor) -> NDArray[np.float64]:
        if embeddings.shape[1] != len(self.shift_):
            raise CrowdshotError(f"X has {embeddings.shape[1]} features, expected {len(self.shift_)} as in fit.")
        out = self.fit_.log_proba((embeddings - self.shift_) * self.factor_)
        result: NDArray[np.float64] = out.double().log_softmax(-1).cpu().numpy()  # single precision sums to nearly 1
        lost = np.isnan(result).any(1)
        if lost.any():
            raise CrowdshotError(f"X, item {first(lost)} is too far off to be told apart, expected items as in fit.")
        return result

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """p(class | item), (N, K), columns in the order of ``classes_``.

        A generator of items, or of the DataFrames in which pandas reads a long file, is taken piece by piece
        (in which errors count).
        """
        return np.exp(self.predict_log_proba(X))

    def predict_proba_embeddings(self, embeddings: Tensor) -> NDArray[np.float64]:
        """The part of `predict_proba` behind `embed`, as `fit_embeddings` is of `fit`: (N, D) -> (N, K)."""
        check_is_fitted(self, "fit_")
        return np.exp(self._log_proba(embeddings.to(self.shift_.device)))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class of each item, (N,)."""
        best = self.predict_log_proba(X).argmax(1)
        names: NDArray[Any] = self.classes_[best]
        return names

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """How often `predict` is right, where ``y`` (N,) has the true classes; a crowd's labels are no truth."""
        if np.ndim(y) != 1:
            raise CrowdshotError(
                f"y has {np.ndim(y)} axes, expected one with the true class of each item; crowdshot.metrics has scorers"
                " for labels."
            )
        return float(super().score(X, y, sample_weight))


def check_columns(X: Any, fitted: Any) -> None:
    """A table has the columns of the one that was fitted with, in the same order unless the encoder goes by name."""
    if isinstance(fitted.reader_.input, TableInput):
        return
    names, known = column_names(X), getattr(fitted, "feature_names_in_", None)
    if names is None or known is None or len(names) != len(known):  # their number is checked elsewhere
        return
    for place, (name, expected) in enumerate(zip(names, known, strict=True), 1):
        if name != expected:
            raise CrowdshotError(f"X, column {place} is {show(name)}, expected {show(expected)} as in fit.")


def column_names(X: Any) -> NDArray[Any] | None:
    """Those of a DataFrame whose columns have names, as scikit-learn has it."""
    if not isinstance(X, pd.DataFrame) or not all(isinstance(name, str) for name in X.columns):
        return None
    return np.asarray(X.columns, dtype=object)


def _pieces(stream: Iterator[Any]) -> Iterator[Any]:
    """Items in lists that fit into memory; tables as they come."""
    head = list(islice(stream, 1))
    whole = chain(head, stream)
    if head and isinstance(head[0], pd.DataFrame):
        yield from whole
    while part := list(islice(whole, AT_ONCE)):
        yield part
