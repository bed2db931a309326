"""Give scikit-learn's base classes types, which scikit-learn does not have.

Type checkers see the classes here. Programs use those of scikit-learn, whose methods are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:

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

__all__ = ["BaseEstimator", "ClassifierMixin"]
