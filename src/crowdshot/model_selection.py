"""Cross-validate classifiers on a crowd's labels, which have gaps and several columns.

- `CrowdKFold` is a splitter for scikit-learn: ``cross_val_score(clf, X, y, cv=CrowdKFold(5))``. With ``cv=5``,
  scikit-learn refuses missing labels, and neither shuffles nor stratifies.
- `cross_val_proba` takes the place of ``cross_val_predict(…, method="predict_proba")``, which renumbers the labels of
  each annotator separately.

Examples
--------
>>> import numpy as np
>>> from sklearn.model_selection import cross_val_score
>>> from crowdshot import CrowdClassifier, model_selection
>>> truth = np.arange(40) % 2
>>> X = truth[:, None] * 4.0 + np.random.default_rng(0).normal(size=(40, 2))
>>> y = np.where(np.random.default_rng(1).random((40, 5)) < 0.85, truth[:, None], 1 - truth[:, None]).astype(float)
>>> y[0, 0] = np.nan
>>> bool(cross_val_score(CrowdClassifier(), X, y, cv=model_selection.CrowdKFold(4)).mean() > 0.9)
True
>>> model_selection.cross_val_proba(CrowdClassifier(), X, y, cv=4).shape
(40, 2)
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.extras import missing_packages_explained
from crowdshot.io.cells import Positions, positions
from crowdshot.io.dataframes import to_pandas
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.matching import annotations_of, names_of

with missing_packages_explained("crowdshot.model_selection"):
    from sklearn.base import clone
    from sklearn.model_selection import check_cv
    from sklearn.utils import _safe_indexing

__all__ = ["CrowdKFold", "cross_val_proba"]


if TYPE_CHECKING:  # scikit-learn has no types
    BaseCrossValidator = object
else:
    from sklearn.model_selection import BaseCrossValidator


class CrowdKFold(BaseCrossValidator):
    """Split items into shuffled folds, with each class spread evenly by its votes.

    Labels may have gaps. Items without labels are spread evenly too.

    Parameters
    ----------
    n_splits : int
        Number of folds.
    random_state : int
        Seed of the shuffling.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdshot.model_selection import CrowdKFold
    >>> y = [["a", None], ["a", "a"], ["b", "b"], [None, "b"]]
    >>> [len(test) for train, test in CrowdKFold(2).split(np.zeros((4, 1)), y)]
    [2, 2]
    """

    def __init__(self, n_splits: int = 5, *, random_state: int = 0) -> None:
        self.n_splits = n_splits
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def split(self, X: Any, y: Any = None, groups: Any = None) -> Iterator[tuple[Positions, Positions]]:
        """Return an iterator over the positions of the training items and of the test items of each fold.

        Parameters
        ----------
        X : array, list or DataFrame
            N items.
        y : labels in any form that `CrowdClassifier.fit` takes, or None
        groups : None
        """
        X = to_pandas(X, "X")
        n_items = X.shape[0] if hasattr(X, "shape") else len(X)
        if groups is not None:
            raise CrowdshotError("is given", argument="groups", expected="None", hint="Use GroupKFold for groups.")
        vote = np.zeros(n_items, np.int64) if y is None else _votes(annotations_of(y, n_items, names_of(X), None))
        return self._by_votes(vote)

    def _by_votes(self, vote: Positions) -> Iterator[tuple[Positions, Positions]]:
        n_items = len(vote)
        if not isinstance(self.n_splits, Integral) or not 2 <= self.n_splits <= n_items:
            raise CrowdshotError(
                f"is {self.n_splits!r}",
                argument="n_splits",
                found=self.n_splits,
                expected=f"a whole number from 2 to the number of items, {n_items}",
            )
        order = np.lexsort((np.random.default_rng(self.random_state).permutation(n_items), vote))
        fold = np.empty(n_items, np.int64)
        fold[order] = np.arange(n_items) % self.n_splits
        for number in range(self.n_splits):
            yield np.flatnonzero(fold != number), np.flatnonzero(fold == number)


def _votes(annotations: Annotations) -> Positions:
    """Return the position of each item's most frequent label, (N,); -1 for items without labels."""
    counts = annotations.vote_counts()
    return np.where(counts.any(1), counts.argmax(1), -1)


def cross_val_proba(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    cv: Any = 5,
    items: Iterable[Any] | None = None,
    classes: Iterable[Any] | None = None,
    missing: Any = "auto",
) -> NDArray[np.float64]:
    """Return class probabilities of each item, predicted by classifiers that were fitted without the item.

    The probabilities suit as ``pred_probs`` of another model.

    Parameters
    ----------
    estimator : CrowdClassifier, or a Pipeline that ends in one
        It is cloned, and not fitted itself.
    X : array, list or DataFrame
        N items.
    y, items, classes, missing
        Labels and their meaning, as in `CrowdClassifier.fit`. All folds use the same classes.
    cv : int, splitter or iterable of (train, test)
        An int is the number of folds of `CrowdKFold`. A splitter of scikit-learn gets the votes as ``y``.

    Returns
    -------
    (N, K) array
        Columns in the order of ``classes_`` of a fit to all labels.

    Raises
    ------
    CrowdshotError
        If the folds do not have each item once as a test item, or the labels of a fold cannot be fitted.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdshot import CrowdClassifier
    >>> from crowdshot.model_selection import cross_val_proba
    >>> X = np.array([[0.0], [0.1], [0.2], [0.3], [5.0], [5.1], [5.2], [5.3]])
    >>> y = [["a", "a"], ["a", None], ["a", "a"], [None, "a"], ["b", "b"], ["b", "b"], ["b", None], ["b", "a"]]
    >>> cross_val_proba(CrowdClassifier("identity"), X, y, cv=4).argmax(1).tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    X = to_pandas(X, "X")
    n_items = X.shape[0] if hasattr(X, "shape") else len(X)
    annotations = annotations_of(y, n_items, names_of(X) if items is None else items, classes, missing)
    splitter = CrowdKFold(int(cv)) if isinstance(cv, Integral) else check_cv(cv)
    votes = _votes(annotations)
    pairs = splitter._by_votes(votes) if isinstance(splitter, CrowdKFold) else splitter.split(X, votes)
    folds = [(_numbers(train, n_items), _numbers(test, n_items)) for train, test in pairs]
    tested = np.bincount(np.concatenate([test for _, test in folds]), minlength=n_items)
    if (tested != 1).any():
        item = int(np.flatnonzero(tested != 1)[0])
        raise CrowdshotError(
            f"has item {item} in {tested[item]} test folds", argument="cv", found=int(tested[item]), expected="one"
        )
    out = np.zeros((n_items, annotations.n_classes))
    for train, test in folds:
        fold, labels = _part(X, annotations, train)
        fitted = clone(estimator).fit(fold, labels)
        place = positions(annotations.classes, fitted.classes_)
        out[np.ix_(test, place)] = fitted.predict_proba(_safe_indexing(X, test))
    return out


def _numbers(rows: Any, n_items: int) -> Positions:
    """Return row numbers, also of a mask."""
    rows = np.asarray(rows)
    found: Positions = np.arange(n_items)[rows]
    return found


def _part(X: Any, annotations: Annotations, rows: Positions) -> tuple[Any, Annotations]:
    """Return some items and their labels. Tables lose their names, which the steps of a pipeline may drop."""
    part = _safe_indexing(X, rows)
    if isinstance(part, pd.DataFrame | pd.Series):
        part = part.reset_index(drop=True)
    names = names_of(part)
    ids = np.arange(len(rows)) if names is None else np.array([_as_id(name) for name in names], dtype=object)
    place = np.full(annotations.n_items, -1)
    place[rows] = np.arange(len(rows))
    return part, annotations.with_items(place, ids)


def _as_id(name: Any) -> Any:
    return os.fspath(name) if isinstance(name, os.PathLike) else name
