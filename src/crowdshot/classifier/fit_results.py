"""Provide the fitted attributes of `CrowdClassifier` about its items and annotators, and old names of attributes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from crowdshot.classifier.inspection import Inspection
from crowdshot.classifier.learner_contract import (
    ARGUMENTS,
    FittedModel,
    pop_settings,
    posterior_of,
)
from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import listing
from crowdshot.io.cells import Ids, Positions, as_index
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import Consensus, Floats
from crowdshot.model.feature_model import Standard

if TYPE_CHECKING:
    from torch import Tensor


NEIGHBOURS = 10  # of an item, whose mean distance is its oddness
FAR = 3.5  # robust standard deviations above the median (Iglewicz and Hoaglin, 1993)
USUAL = 1.4826  # median absolute deviations in a standard deviation of a normal distribution
LEAST = 1e-12  # lower limit of distances
IDENTITY = "identity"  # the default covariance


class Results(Inspection):
    """FittedModel attributes of `CrowdClassifier` about the fitted items and their annotators."""

    _model: FittedModel
    settings_: dict[str, Any]
    classes_: Ids
    embeddings_: Tensor | None
    _seed: int = 0
    _named: Positions | None = None  # classes that occurred, of a classifier that was saved without labels

    def _check_labels(self) -> None:
        """Raise an error unless the classifier is fitted and has its labels."""
        check_is_fitted(self)
        if self._named is not None:
            raise CrowdshotError(
                "The classifier was saved without labels; it predicts new items only",
                hint=Use("when saving it", labels=True),
            )

    @property
    def scale_(self) -> float | None:
        """Weight of the embeddings in the labeling search or mixture; None with other methods."""
        check_is_fitted(self)
        return self.settings_.get("scale")

    @property
    def confusion_(self) -> NDArray[np.float64]:
        """Confusion matrices, (R, K, K) [annotator, true, observed]; rows sum to one."""
        self._check_labels()
        out: NDArray[np.float64] = self._model.confusion.double().cpu().numpy()
        return out

    @property
    def label_proba_(self) -> NDArray[np.float64]:
        """p(class | labels, items), (N, K), columns in the order of ``classes_``; rows sum to one."""
        self._check_labels()
        return posterior_of(self._model)

    @property
    def consensus_(self) -> pd.DataFrame:
        """Consensus label and confidence of every item."""
        probabilities = self.label_proba_
        class_probs = self._model.class_probs.double().cpu().numpy()
        best = self.classes_[probabilities.argmax(1)]
        return Consensus(best, probabilities, class_probs).to_frame(self.annotations_)

    @property
    def outliers_(self) -> pd.DataFrame:
        """Distance of every item to its nearest neighbours, most unusual first (see `find_outliers`)."""
        self._check_labels()
        if self.embeddings_ is None:
            raise without_items()
        return find_outliers(self.embeddings_.double().cpu().numpy(), self.annotations_, self.label_proba_)


def without_items() -> CrowdshotError:
    """Return the error that a loaded classifier has no items."""
    return CrowdshotError("The classifier was loaded from a file without its items", hint="Fit it again.")


def find_outliers(x: Floats, ann: Annotations, posterior: Floats) -> pd.DataFrame:
    """Return a table with a row for each item, most unusual first.

    Items far from all others may be damaged, misplaced or of a missing class. Columns are item, oddness, outlier,
    nearest, consensus, confidence and n_labels. ``oddness`` is the mean distance to the `NEIGHBOURS` nearest items,
    divided by its median; features are standardised. ``outlier``: log oddness is more than `FAR` robust standard
    deviations above the median.

    Parameters
    ----------
    x : (N, D) array
        Embeddings.
    ann : Annotations
        Labels of the N items.
    posterior : (N, K) array
        Class probabilities of the items.
    """
    z = Standard.of(x)(x)
    n = min(NEIGHBOURS, len(z) - 1)
    if n < 1:
        distance, nearest = np.ones(len(z)), np.arange(len(z))
    else:
        from sklearn.neighbors import NearestNeighbors  # imported here, because `CrowdClassifier` starts without it

        distances, neighbours = NearestNeighbors(n_neighbors=n).fit(z).kneighbors()
        distance, nearest = distances.mean(1), neighbours[:, 0]
    oddness = distance / max(float(np.median(distance)), LEAST)
    log = np.log(oddness.clip(LEAST))
    spread = USUAL * float(np.median(np.abs(log - np.median(log))))
    table = pd.DataFrame(
        {
            ann.columns.item: as_index(ann.items),
            "oddness": oddness,
            "outlier": log - np.median(log) > FAR * max(spread, LEAST),
            "nearest": as_index(ann.items).take(nearest),
            "consensus": as_index(ann.classes).take(posterior.argmax(1)),
            "confidence": posterior.max(1),
            "n_labels": np.bincount(ann.item, minlength=ann.n_items),
        }
    )
    return table.sort_values("oddness", ascending=False, kind="stable", ignore_index=True)


# ---- names of versions 0.1 and 0.2, which warn until 0.4 ----


def move_to_settings(clf: Any, arguments: Mapping[str, Any]) -> None:
    """Move arguments of the mixture to ``settings``; "auto" was the mixture if one of them was set."""
    unknown = sorted(arguments.keys() - set(ARGUMENTS))
    if unknown:
        raise TypeError(f"CrowdClassifier got an unexpected keyword argument {unknown[0]!r}")
    found = {name: value for name, value in arguments.items() if value is not None}
    if found.get("covariance") == IDENTITY:
        del found["covariance"]
    if found:
        clf.settings = {**(clf.settings or {}), **found}
        clf.method = "ours" if clf.method == "auto" else clf.method
        advice = f"use method={clf.method!r} and settings={clf.settings!r}"
    else:
        advice = "leave out what has its default value"
    many = len(arguments) > 1
    warnings.warn(
        f"the argument{'s' * many} {listing(arguments)} will be removed in version 0.4; {advice}.",
        FutureWarning,
        stacklevel=3,
    )


def _warn(old: str, new: str) -> None:
    warnings.warn(f"{old} {new} and will be removed in version 0.4.", FutureWarning, stacklevel=3)


class OldNames:
    """Old names of attributes, and old parameters of `set_params`."""

    settings: Mapping[str, Any] | None

    @property
    def belief_(self) -> Any:
        """Deprecated name of `label_proba_`."""
        _warn("belief_", "was renamed to label_proba_")
        return getattr(self, "label_proba_")  # noqa: B009

    @property
    def fit_(self) -> Any:
        """Deprecated: the fitted model is private."""
        _warn("fit_", "is private")
        return getattr(self, "_model")  # noqa: B009

    @property
    def shift_(self) -> Any:
        """Deprecated: embeddings enter the model as (x - shift) * factor."""
        _warn("shift_", "is private")
        return getattr(self, "_shift")  # noqa: B009

    @property
    def factor_(self) -> Any:
        """Deprecated: embeddings enter the model as (x - shift) * factor."""
        _warn("factor_", "is private")
        return getattr(self, "_factor")  # noqa: B009

    @property
    def reader_(self) -> Any:
        """Deprecated: use `embed`."""
        _warn("reader_", "is private")
        return getattr(self, "_reader")  # noqa: B009

    def set_params(self, **params: Any) -> Self:
        """Set parameters of the constructor; ``settings__steps=5`` sets one of the settings."""
        single = pop_settings(params)
        moved = {name: params.pop(name) for name in ARGUMENTS if name in params}
        super().set_params(**params)  # type: ignore[misc]  # of BaseEstimator
        if single:
            self.settings = {**(self.settings or {}), **single}
        if moved:
            move_to_settings(self, moved)
        return self
