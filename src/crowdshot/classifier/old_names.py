"""Keep names of `CrowdClassifier` that versions 0.1 and 0.2 had, until 0.4. They warn."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Self

from crowdshot.classifier.learner_contract import ARGUMENTS
from crowdshot.formatting import listing

IDENTITY = "identity"  # the default covariance


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
        """Set parameters of the constructor."""
        moved = {name: params.pop(name) for name in ARGUMENTS if name in params}
        super().set_params(**params)  # type: ignore[misc]  # of BaseEstimator
        if moved:
            move_to_settings(self, moved)
        return self
