"""Provide `CrowdAggregator`, which learns consensus labels and annotator qualities from labels alone."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.classifier.inspection import Inspection
from crowdshot.classifier.learner_contract import (
    SideInformation,
    check_classes,
    gold_of,
    keep_side_information,
    known_of,
    pop_settings,
    posterior_of_untaught,
    repeated,
    whole_weights,
)
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing
from crowdshot.io.cells import Ids
from crowdshot.labels import aggregation, agreement, gold_labels
from crowdshot.labels.annotations import Annotations, warn_alphabetical_order
from crowdshot.labels.annotator_quality import (
    PriorsInput,
    expected_confusion,
)
from crowdshot.labels.consensus import Consensus
from crowdshot.labels.gold_labels import Gold
from crowdshot.labels.matching import as_annotations, mark_of, names_items, with_new_labels
from crowdshot.model.parts import PosteriorMatrix

AggregationMethod = Literal["auto", "learned", "shrunk", "dawid-skene", "one-coin", "majority"]
FUNCTIONS: Mapping[str, Callable[..., Consensus]] = {
    "auto": aggregation.learned,
    "learned": aggregation.learned,
    "shrunk": aggregation.shrunk,
    "dawid-skene": aggregation.dawid_skene,
    "one-coin": aggregation.one_coin,
    "majority": aggregation.majority_vote,
}
SEED = 0  # of the rounding of fractional weights
ARGUMENTS_OF_FIT = {"ann", "gold", "ordered", "history", "pred_probs"}


class CrowdAggregator(Inspection):
    """Learn consensus labels and annotator qualities from labels alone.

    For items with features, texts or images, `CrowdClassifier` has the same methods and results, is usually more
    accurate, and predicts new items.

    Parameters
    ----------
    method : {"auto", "learned", "shrunk", "dawid-skene", "one-coin", "majority"}
        The aggregation method (`crowdshot.aggregate`); "auto" is "learned".
    settings : mapping or None
        Further arguments of the method's function, such as ``{"steps": 20}`` for "dawid-skene".

    Attributes
    ----------
    classes_ : (K,) array
        Classes, sorted, or in the order of the annotations or of an ordered categorical dtype.
    consensus_ : DataFrame
        Columns item, label, confidence, n_labels and agreement, with a row for each item.
    label_proba_ : (N, K) array
        Posterior class probabilities of the items, with rows in the order of ``consensus_`` and columns in that of
        ``classes_``; a SciPy sparse array with very many classes.
    annotators_ : DataFrame
        Columns annotator, n_labels, accuracy, low and high (a 90 % interval), most_confused, the expected numbers of
        right and wrong labels, including those of earlier projects (``priors``), and p_below (see `judge_annotators`).
    confusion_ : (R, K, K) array
        Confusion matrices [annotator, true, observed], in the order of ``annotators_`` and ``classes_``.
    label_quality_ : DataFrame
        A row for each label; ``quality`` is the probability that it is right.
    likely_wrong_ : DataFrame
        The rows of ``label_quality_`` below a half, worst first.
    agreement_ : DataFrame
        Pairwise agreement, Krippendorff's alpha and Fleiss' kappa with 90 % intervals.
    gold_ : DataFrame
        Items of known class, compared with the consensus of a fit without them.
    metrics_ : dict
        Numbers about the fit for an experiment tracker.
    annotations_ : Annotations
        The labels.

    Examples
    --------
    >>> from crowdshot import CrowdAggregator
    >>> labels = [["cat", "cat", "dog"], ["cat", None, "cat"], ["dog", "dog", "cat"], ["dog", "dog", None]]
    >>> crowd = CrowdAggregator().fit(labels)
    >>> crowd.consensus_["label"].tolist()
    ['cat', 'cat', 'dog', 'dog']
    >>> crowd.annotators_[["annotator", "n_labels"]].values.tolist()
    [[0, 4], [1, 3], [2, 3]]
    """

    settings: Mapping[str, Any] | None
    annotations_: Annotations
    classes_: Ids
    _found: Consensus
    _missing: Any

    def __init__(self, method: AggregationMethod = "auto", *, settings: Mapping[str, Any] | None = None) -> None:
        self.method = method
        self.settings = settings

    def fit(
        self,
        labels: Any,
        *,
        classes: Iterable[Any] | None = None,
        gold: Gold = None,
        priors: PriorsInput = None,
        sample_weight: Any = None,
        pred_probs: Any = None,
        ordered: bool = False,
        missing: Any = "auto",
    ) -> Self:
        """Aggregate the labels.

        Parameters
        ----------
        labels : array, list, DataFrame, dict or Annotations
            Labels in any form that `CrowdClassifier.fit` takes, or the result of `read_labels`.
        classes, gold, missing
            As in `CrowdClassifier.fit`.
        priors, pred_probs, ordered
            As in `CrowdClassifier.fit`; only the methods "auto" and "learned" use them.
        sample_weight : (N,) array or None
            An item of weight 2 counts twice, in the order of the items. An item of weight 0 does not affect the
            annotators' qualities, but gets a consensus. Fractions are rounded as in `CrowdClassifier.fit`.

        Returns
        -------
        CrowdAggregator
            The fitted aggregator.

        Raises
        ------
        CrowdshotError
            If the labels cannot be understood, the arguments do not fit together, or fewer than two classes occur.
        """
        annotations = as_annotations(labels, classes, missing)
        listed = classes is not None
        if ordered and not listed and not isinstance(labels, Annotations):
            warn_alphabetical_order(labels, annotations.classes, "classes=")
        known = known_of(annotations, gold, priors, None, listed, sample_weight, pred_probs, bool(ordered))
        self._missing = mark_of(missing, known[0].classes)
        return self._fit(*known)

    def fit_predict(self, labels: Any, **arguments: Any) -> pd.Series[Any]:
        """Aggregate the labels and return the consensus labels.

        Parameters
        ----------
        labels : array, list, DataFrame, dict or Annotations
            As in `fit`.
        **arguments
            Further arguments of `fit`.

        Returns
        -------
        Series
            The column ``label`` of ``consensus_``, indexed by item.
        """
        self.fit(labels, **arguments)
        columns = self.annotations_.columns
        return self.consensus_.set_index(columns.item)[columns.label]

    def partial_fit(self, labels: Any, *, gold: Gold = None) -> Self:
        """Add labels, items, annotators or known classes; call `fit` the first time.

        Parameters
        ----------
        labels : array, list, DataFrame, dict or Annotations
            New labels. Rows of an array, or of a wide table with numbered rows, are new items. A new label replaces an
            older one of the same annotator and item.
        gold : dict, Series, DataFrame, array or None
            Further known classes.

        Returns
        -------
        CrowdAggregator
            The aggregator, as if fitted to all labels.
        """
        if not hasattr(self, "annotations_"):
            return self.fit(labels, gold=gold)
        old = self.annotations_
        if names_items(labels):
            labels = as_annotations(labels, missing=self._missing)
            before = set(old.items.tolist())
            added = [item for item in labels.items.tolist() if item not in before]
            more = with_new_labels(old, labels, len(added), added)
        else:
            more = with_new_labels(old, labels, len(labels), None, self._missing)
        annotations, known = known_of(more, gold_of(old, self._known) | gold_labels.as_mapping(gold, more))
        return self._fit(annotations, keep_side_information(old, self._known, annotations, known))

    def _fit(self, annotations: Annotations, known: SideInformation) -> Self:
        known = whole_weights(known, SEED)
        check_classes(annotations, known)
        self._found = self._aggregate(annotations, known)
        self.annotations_, self.classes_, self._known = annotations, annotations.classes, known
        is_gold = known.gold >= 0
        without = self._aggregate(annotations, known.without_gold()) if is_gold.any() else self._found
        self._without_gold = without.probabilities[is_gold]
        return self

    def _aggregate(self, annotations: Annotations, known: SideInformation) -> Consensus:
        if known.weight is None:
            return self._run(annotations, known)
        rows, taught, side = repeated(annotations, known)
        found = self._run(taught, side)
        confusion = expected_confusion(taught, found.probabilities) if found.confusion is None else found.confusion
        frequencies = np.tile(found.class_probs, (annotations.n_items, 1))
        posterior = posterior_of_untaught(annotations, frequencies, confusion, known)
        posterior[rows] = found.probabilities
        labels = annotations.classes[posterior.argmax(1)].astype(found.labels.dtype)
        labels[rows] = found.labels
        return Consensus(labels, posterior, found.class_probs, confusion, annotations=annotations)

    def _run(self, annotations: Annotations, known: SideInformation) -> Consensus:
        if self.method not in FUNCTIONS:
            raise CrowdshotError(
                f"is {self.method!r}",
                argument="method",
                found=self.method,
                expected=f"one of {listing(get_args(AggregationMethod))}",
            )
        function = FUNCTIONS[self.method]
        takes = set(inspect.signature(function).parameters)
        settings = dict(self.settings or {})
        unknown = sorted(settings.keys() - (takes - ARGUMENTS_OF_FIT))
        if unknown:
            raise CrowdshotError(
                f"has {listing(unknown)}",
                argument="settings",
                found=unknown,
                expected=f"settings of {self.method!r}: {listing(sorted(takes - ARGUMENTS_OF_FIT)) or 'none'}",
            )
        gold = gold_of(annotations, known)
        history = None
        if known.history is not None:
            history = dict(zip(annotations.annotators.tolist(), map(tuple, known.history.tolist()), strict=True))
        given = {"gold": gold or None, "history": history, "pred_probs": known.pred_probs, "ordered": known.ordered}
        given = {name: value for name, value in given.items() if value is not None and value is not False}
        unused = sorted(given.keys() - takes)
        if unused:
            raise CrowdshotError(
                f"cannot be used with method {self.method!r}",
                argument="priors" if unused[0] == "history" else unused[0],
                found=self.method,
                expected="method 'auto'",
            )
        return function(annotations, **settings, **given)

    @property
    def consensus_(self) -> pd.DataFrame:
        """Consensus label and confidence of every item."""
        self._check_labels()
        return self._found.to_frame()

    @property
    def label_proba_(self) -> PosteriorMatrix:
        """p(class | labels), (N, K), columns in the order of ``classes_``; rows sum to one."""
        self._check_labels()
        return self._found.probabilities

    @property
    def confusion_(self) -> NDArray[np.float64]:
        """Confusion matrices, (R, K, K) [annotator, true, observed]; rows sum to one."""
        self._check_labels()
        if self._found.confusion is not None:
            return self._found.confusion
        if not isinstance(self.label_proba_, np.ndarray):
            raise CrowdshotError(
                f"has {len(self.classes_):,} classes, too many for confusion matrices",
                argument="labels",
                found=len(self.classes_),
            )
        expected: NDArray[np.float64] = expected_confusion(self.annotations_, self.label_proba_, self._known.history)
        return expected

    @property
    def agreement_(self) -> pd.DataFrame:
        """Agreement of the annotators with each other: statistic, value, low, high (a 90 % interval), meaning."""
        self._check_labels()
        found = agreement.statistics(self.annotations_, self._known.ordered)
        return pd.DataFrame(found).rename(columns={"name": "statistic", "sentence": "meaning"})

    def _check_labels(self) -> None:
        if not hasattr(self, "annotations_"):
            raise CrowdshotError("The aggregator is not fitted", hint="Call fit first.")

    # ---- what scikit-learn's clone and Pipeline need; scikit-learn itself is not

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the constructor's arguments."""
        return {"method": self.method, "settings": self.settings}

    def set_params(self, **params: Any) -> Self:
        """Set arguments of the constructor; ``settings__steps=5`` sets one of the settings."""
        single = pop_settings(params)
        for name, value in params.items():
            if name not in self.get_params():
                raise CrowdshotError(
                    f"is no parameter of CrowdAggregator; these are {listing(self.get_params())}",
                    argument=name,
                    found=name,
                )
            setattr(self, name, value)
        if single:
            self.settings = {**(self.settings or {}), **single}
        return self

    def __repr__(self) -> str:
        settings = "" if self.settings is None else f", settings={self.settings!r}"
        return f"CrowdAggregator(method={self.method!r}{settings})"
