"""Provide `CrowdClassifier`, which learns a consensus, annotator qualities and a classifier from crowd labels.

Importing it does not import torch, which takes longer than all else: modules that need torch are imported by the
methods that use them.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, islice
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from crowdshot.classifier.inspection import Inspection
from crowdshot.classifier.learner_contract import (
    MOST_CELLS,
    FittedModel,
    Learner,
    SideInformation,
    check_classes,
    gold_of,
    keep_side_information,
    known_of,
    posterior_of,
    whole_weights,
)
from crowdshot.classifier.old_names import OldNames, move_to_settings
from crowdshot.classifier.outliers import find_outliers
from crowdshot.classifier.sklearn_bases import BaseEstimator, ClassifierMixin
from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.extras import NEEDED, missing_packages_explained, require
from crowdshot.formatting import counted, first, show
from crowdshot.io.cells import Ids, Positions
from crowdshot.io.dataframes import to_pandas
from crowdshot.labels import gold_labels
from crowdshot.labels.annotations import Annotations, warn_alphabetical_order
from crowdshot.labels.annotator_quality import MIN_ACCURACY, PriorsInput, judge, label_quality, likely_wrong
from crowdshot.labels.consensus import Consensus
from crowdshot.labels.gold_labels import Gold
from crowdshot.labels.guarantees import conformal_sets, temperature, true_classes
from crowdshot.labels.matching import annotations_of, mark_of, names_of, with_new_labels
from crowdshot.metrics import consensus_accuracy_scorer

if TYPE_CHECKING:
    from torch import Tensor, nn

    from crowdshot.encoders.encoder import Encoder
    from crowdshot.methods import MethodName

require(*NEEDED, user="CrowdClassifier")  # without importing them


class Results:
    """FittedModel attributes of `CrowdClassifier` about the fitted items and their annotators."""

    _model: FittedModel
    settings_: dict[str, Any]
    annotations_: Annotations
    classes_: Ids
    _known: SideInformation
    _without_gold: NDArray[np.float64]
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
    def gold_(self) -> pd.DataFrame:
        """Gold classes, compared with the consensus of a fit that does not know them."""
        self._check_labels()
        return gold_labels.compare(self.annotations_, self._known.gold, self._without_gold)

    @property
    def annotators_(self) -> pd.DataFrame:
        """Accuracy of every annotator against the consensus, with intervals that include the consensus' uncertainty."""
        return self.judge_annotators()

    def judge_annotators(self, min_accuracy: float = MIN_ACCURACY) -> pd.DataFrame:
        """Return ``annotators_`` with the probability ``p_below`` that the accuracy is below ``min_accuracy``."""
        self._check_labels()
        return judge(self.annotations_, self.label_proba_, self._known.history, min_accuracy)

    @property
    def label_quality_(self) -> pd.DataFrame:
        """Probability of every label that it is correct."""
        return label_quality(self.annotations_, self.label_proba_)

    @property
    def likely_wrong_(self) -> pd.DataFrame:
        """Labels that are more likely wrong than correct, most suspicious first."""
        return likely_wrong(self.annotations_, self.label_proba_)

    @property
    def outliers_(self) -> pd.DataFrame:
        """Distance of every item to its nearest neighbours, most unusual first (`crowdshot.classifier.outliers`)."""
        self._check_labels()
        if self.embeddings_ is None:
            raise _without_items()
        return find_outliers(self.embeddings_.double().cpu().numpy(), self.annotations_, self.label_proba_)


def _without_items() -> CrowdshotError:
    return CrowdshotError("The classifier was loaded from a file without its items", hint="Fit it again.")


# ---- prediction of new items ----

AT_ONCE = 1_024  # items of a generator per batch


class Predictor(ClassifierMixin):
    """Prediction methods of `CrowdClassifier`."""

    _model: FittedModel
    _reader: Encoder
    _shift: Tensor
    _factor: Tensor
    classes_: Ids
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
            raise _wrong_width(embeddings.shape[1], len(self._shift))
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


def _wrong_width(found: int, expected: int) -> CrowdshotError:
    return CrowdshotError(
        f"has {found} features, but CrowdClassifier is expecting {expected} features as input",
        argument="X",
        found=found,
    )


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


def check_columns(X: Any, fitted: Any) -> None:
    """Raise an error unless a table has the fitted columns, in the same order if the encoder depends on the order."""
    from crowdshot.encoders.table_input import TableInput

    if isinstance(fitted._reader.input, TableInput):
        return
    names, known = column_names(X), getattr(fitted, "feature_names_in_", None)
    if names is None or known is None or len(names) != len(known):  # `_wrong_width` is raised later
        return
    for place, (name, expected) in enumerate(zip(names, known, strict=True), 1):
        if name != expected:
            raise CrowdshotError(
                f"has {show(name)} as column {place}", argument="X", found=name, expected=f"{show(expected)} as in fit"
            )


def column_names(X: Any) -> NDArray[Any] | None:
    """Return the column names of a DataFrame if all are strings, else None, as in scikit-learn."""
    if not isinstance(X, pd.DataFrame) or not all(isinstance(name, str) for name in X.columns):
        return None
    return np.asarray(X.columns, dtype=object)


def _batches(stream: Iterator[Any]) -> Iterator[Any]:
    """Yield items of an iterator in lists of `AT_ONCE`; yield tables unchanged."""
    head = list(islice(stream, 1))
    whole = chain(head, stream)
    if head and isinstance(head[0], pd.DataFrame):
        yield from whole
    while part := list(islice(whole, AT_ONCE)):
        yield part


class CrowdClassifier(OldNames, Inspection, Predictor, Results, ClassifierMixin, BaseEstimator):
    """Learn a classifier and a consensus from items that several unreliable annotators labelled.

    Items are embedded by ``encoder``. The default method averages two models:

    - the labeling search: the paper's mixture of Gaussians with a confusion matrix per annotator (Kumagai et al., ICML
      2025), averaged over the most probable true labels of the items (`crowdshot.labelings`);
    - a label model (`crowdshot.aggregate.learned`) with a feature model, weighted by how well the features
      predict held-out labels (`crowdshot.model.combined`).

    The second model is used alone for features from elsewhere and for more than 200 labelled items.
    ``method="paper"`` is the paper's MAP-EM (`crowdshot.mixture`). Other methods are available for comparison.

    Parameters
    ----------
    encoder : str, path, Encoder, torch.nn.Module or callable
        - "auto": "identity" for feature vectors; an encoder that is learned from the items for texts ("texts") and
          mixed tables ("table"); "glyphs" for drawings; "photo-lite0" for photographs, or "photo" if the extra
          ``images`` is not installed. For images, the variant that was meta-trained as the method needs it
          ("glyphs-protonet" for the default). Methods without meta-training use the pixels, or "lite0" for photographs.
        - "identity": feature vectors, unchanged.
        - The name of a shipped encoder, the file of a saved one, or a model of another library by name
          ("hf:facebook/dinov2-small", see docs/items.md).
        - An `Encoder`, a ``torch.nn.Module``, or a function from items to vectors (n, D).
    method : str
        - "auto": as "combined". As "features" if more than 200 items are labelled, the encoder was not meta-trained, or
          the search predicts held-out labels too badly. As "ours" if ``settings`` has one that only the mixture has.
        - "combined": the labeling search and the feature model, averaged.
        - "labeling-search", "features": one of these models alone.
        - "ours": the mixture, fitted by MAP-EM. "paper": the same with the paper's constants.
        - Another name in `METHODS` (``crowdshot methods`` lists them). Posteriors of labelled items and annotators'
          qualities are then those of Dawid–Skene.
    settings : mapping or None
        Settings of the method. Missing ones have the defaults in `METHODS`. Those of the mixture ("ours", "paper" and
        "w/o PA") are the arguments of `mixture.fit`:

        - ``steps``, ``tau``, ``b``, ``c``: the paper's J and priors. ``c`` may also be a pair (right, wrong) or a prior
          of `crowdshot.priors`. By default, as the encoder was trained; for features from elsewhere, a prior by which
          annotators are better than chance.
        - ``scale``: weight of the embeddings. By default, as the encoder was trained; for features from elsewhere,
          selected by cross-validation on the labels.
        - ``covariance``: "identity", "isotropic", "diagonal" or "full"; all but "identity" are estimated.
    device : {"auto", "cpu", "cuda"}
        "auto" is a GPU if there is one.
    random_state : int, RandomState, Generator or None
        Seed for cross-validation and for methods with random numbers. None draws another one for every fit.

    Attributes
    ----------
    classes_ : (K,) array
        Classes, sorted, or in the order of the annotations or of an ordered categorical dtype.
    label_proba_ : (N, K) array
        Posterior class probabilities of every item of X, given all labels and all items.
    consensus_ : DataFrame
        Columns item, label, confidence, n_labels and agreement, with a row for every item of X, labelled or not. The
        columns have the names of the table of labels.
    gold_ : DataFrame
        Columns item, truth, `believed` (the consensus of a fit without known classes), confidence and n_labels, with a
        row for each item of known class.
    annotators_ : DataFrame
        Columns annotator, n_labels, accuracy, low, high (a 90 % interval), most_confused, and the expected numbers of
        correct and wrong labels, including those of earlier projects (``priors``).
    label_quality_ : DataFrame
        A row for each label; ``quality`` is the probability that it is correct.
    likely_wrong_ : DataFrame
        The rows of ``label_quality_`` below a half, worst first.
    outliers_ : DataFrame
        A row for each item with its distance to its nearest neighbours, most unusual first.
    confusion_ : (R, K, K) array
        Confusion matrices [annotator, true, observed].
    learner_ : str
        The method that was used, such as "combined" or "features" with ``method="auto"``.
    settings_ : dict
        Settings that were used.
    scale_ : float or None
        Weight of the embeddings in the labeling search or mixture; None with other methods.
    encoder_ : Encoder
        Encoder that was used.
    embeddings_ : Tensor or None
        The vectors from which the model learned, (N, D). None for a classifier loaded from a file without them.
    temperature_ : float
        Temperature of the probabilities of new items, 1 unless `calibrate` changed it.
    annotations_ : Annotations
        Labels of the fit.
    known_ : SideInformation
        Known classes, weights and other information besides the labels.
    without_gold_ : (n, K) array
        Posteriors of the items of known class, from a fit without known classes.
    missing_ : scalar
        The argument ``missing`` of the fit.
    n_features_in_ : int
        Number of features, if X are feature vectors.
    feature_names_in_ : (n_features_in_,) array
        Column names of X, if it is a DataFrame whose column names are all strings.

    Examples
    --------
    >>> import numpy as np
    >>> from crowdshot import CrowdClassifier
    >>> X = np.array([[0.0, 0.1], [0.2, 0.0], [5.0, 5.1], [5.2, 4.9]])
    >>> labels = [["cat", "cat", "dog"], ["cat", None, "cat"], ["dog", "dog", "cat"], ["dog", "dog", None]]
    >>> clf = CrowdClassifier(encoder="identity").fit(X, labels)
    >>> clf.predict([[0.1, 0.2], [4.8, 5.0]]).tolist()
    ['cat', 'dog']
    >>> clf.consensus_["label"].tolist()
    ['cat', 'cat', 'dog', 'dog']
    >>> clf.learner_, clf.label_proba_.shape
    ('features', (4, 2))
    """

    encoder_: Encoder
    _reader: Encoder
    learner_: str
    _model: FittedModel
    settings_: dict[str, Any]
    _shift: Tensor
    _factor: Tensor
    embeddings_: Tensor | None
    annotations_: Annotations
    classes_: Ids
    _known: SideInformation
    _missing: Any
    _without_gold: NDArray[np.float64]
    n_features_in_: int

    temperature_: float = 1.0

    def __init__(
        self,
        encoder: str | os.PathLike[str] | Encoder | nn.Module | Callable[[Any], Any] = "auto",
        *,
        method: MethodName = "auto",
        settings: Mapping[str, Any] | None = None,
        device: str = "auto",
        random_state: int | np.random.RandomState | np.random.Generator | None = 0,
        **moved: Any,
    ) -> None:
        self.encoder = encoder
        self.method = method
        self.settings = settings
        self.device = device
        self.random_state = random_state
        if moved:
            move_to_settings(self, moved)

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        items: Iterable[Any] | None = None,
        classes: Iterable[Any] | None = None,
        gold: Gold = None,
        priors: PriorsInput = None,
        sample_weight: Any = None,
        pred_probs: Any = None,
        ordered: bool = False,
        missing: Any = "auto",
        labels: Any = None,
    ) -> Self:
        """Embed the items and fit the model to their labels.

        Parameters
        ----------
        X : array, list or DataFrame
            N items: images (arrays, file paths, PIL images), texts, a table, or feature vectors (N, d).
        y : array, list, DataFrame, dict or Annotations
            The labels of the annotators:

            - An (N, R) array or nested list with None, NaN, -1 or "" for a missing label, or (N,) for one annotator.
            - A DataFrame with a column for each annotator. Its rows are matched by its index if it and X have names,
              else by position.
            - A DataFrame with a row for each label, a dict of dicts, or `Annotations`. These name their items.
        items : iterable or None
            Ids of the rows of X. None: the index of a DataFrame or Series, the file names in a list of paths, else
            positions.
        classes : iterable or None
            All classes, in the desired order. Two must occur; classes that do not occur get probability 0.
        gold : dict, Series, DataFrame, array or None
            Known true classes: {item: class}, a table with item and truth, or (N,) with missing values. They are fixed
            whether the item has labels or not, and annotators are judged by them. ``gold_`` compares them with the
            consensus of a fit without them.
        priors : AnnotatorPriors, dict or None
            Results of earlier projects; a dict has {annotator: (right, wrong)}.
        sample_weight : (N,) array or None
            An item of weight 2 counts twice. An item of weight 0 does not affect the model, but is classified by it.
            Only "ours" uses fractions as they are. Other methods round them up or down at random, right on average.
        pred_probs : (N, K) array, DataFrame or None
            Class probabilities from a classifier that was not trained on these labels, with a column for each of
            ``classes_``. A DataFrame is matched by its index like labels, and by its column names unless these are
            numbers that count columns. Their weight depends on how well they predict labels, so a bad classifier does
            no harm.
        ordered : bool
            Whether the classes are ordered (by ``classes`` or an ordered categorical dtype), so that confusions between
            neighbours are more likely. Only "features" and the feature model in "combined" use it.
        missing : scalar
            Value that marks a missing label in an array or a DataFrame with a column for each annotator, besides None
            and NaN. With "auto", -1 does if no cell is missing in another way and no other label is negative. With
            None, no value does. `update` and `crowdshot.metrics` use the same mark.
        labels : array, list, DataFrame, dict or Annotations
            Another name of ``y``.

        Returns
        -------
        CrowdClassifier
            The fitted classifier.

        Raises
        ------
        CrowdshotError
            If the arguments do not fit together, or fewer than two classes occur.
        """
        if X is None:
            raise CrowdshotError(
                "is None", argument="X", expected="items", hint="Use CrowdAggregator for labels alone."
            )
        y = one_of(y, labels)
        refuse_renumbered(y)
        X = to_pandas(X, "X")
        names = names_of(X) if items is None else items
        return self.fit_embeddings(
            self.embed(X),
            y,
            items=names,
            classes=classes,
            gold=gold,
            priors=priors,
            sample_weight=sample_weight,
            pred_probs=pred_probs,
            ordered=ordered,
            missing=missing,
        )

    def embed(self, X: Any, progress: Callable[[int, int], None] | None = None) -> Tensor:
        """Return the vectors from which the model learns, to call `fit_embeddings` several times.

        Parameters
        ----------
        X : array, list or DataFrame
            N items, as in `fit`.
        progress : callable or None
            Called with (items done, items in total) after each batch.

        Returns
        -------
        Tensor
            (N, D): the encoder's embeddings or, for methods that work on the network itself, its flattened input.
        """
        from crowdshot.classifier.encoder_choice import are_features
        from crowdshot.encoders.networks import choose_device

        X = to_pandas(X, "X")
        self.encoder_ = self._choose_encoder(X)
        self._reader = self._learner().reader(self.encoder_)
        if are_features(X):
            self.n_features_in_ = int(np.shape(X)[1])
        names = column_names(X)
        if names is not None:
            self.feature_names_in_ = names
        elif hasattr(self, "feature_names_in_"):  # from an earlier fit
            del self.feature_names_in_
        return self._reader.embed(X, device=choose_device(self.device), progress=progress)

    def _choose_encoder(self, X: Any) -> Encoder:
        """Return the encoder that the user named, or the one that suits X and the method."""
        from crowdshot.classifier.encoder_choice import encoder_input

        learner = self._learner()
        if isinstance(self.encoder, str) and self.encoder == "auto":
            return learner.default_encoder(X)
        return encoder_input(self.encoder, X)

    def fit_embeddings(
        self,
        embeddings: Tensor,
        labels: Any,
        *,
        items: Iterable[Any] | None = None,
        classes: Iterable[Any] | None = None,
        gold: Gold = None,
        priors: PriorsInput = None,
        sample_weight: Any = None,
        pred_probs: Any = None,
        ordered: bool = False,
        missing: Any = "auto",
    ) -> Self:
        """Fit the model to embeddings; `fit` calls it after `embed`.

        Parameters
        ----------
        embeddings : Tensor
            Vectors (N, D) that `embed` returned.
        labels, items, classes, gold, priors, sample_weight, pred_probs, ordered, missing
            As in `fit`. ``items`` defaults to positions.

        Returns
        -------
        CrowdClassifier
            The fitted classifier.
        """
        names = None if items is None else list(items)
        annotations = annotations_of(labels, len(embeddings), names, classes, missing)
        listed = classes is not None
        if ordered and not listed and not isinstance(labels, Annotations):
            warn_alphabetical_order(labels, annotations.classes, "classes=")
        annotations, known = known_of(
            annotations, gold, priors, names, listed, sample_weight, pred_probs, bool(ordered)
        )
        check_classes(annotations, known, listed=listed or isinstance(labels, Annotations))
        if not hasattr(self, "encoder_"):
            self.encoder_ = self._choose_encoder(embeddings)
        self._fit(embeddings, annotations, known, self._draw_seed())
        self._missing = mark_of(missing, self.classes_)
        return self

    def _fit(self, embeddings: Tensor, annotations: Annotations, known: SideInformation, seed: int) -> Self:
        from crowdshot.classifier.learners import learn, without_gold

        learner = self._learner(seed)
        if not learner.takes_fractions:
            known = whole_weights(known, seed)
            check_classes(annotations, known)
        self._named = None
        learned = learn(learner, embeddings, annotations, self.encoder_, known)
        self._reader = learner.reader(self.encoder_)
        self.annotations_, self.classes_, self._known, self._seed = annotations, annotations.classes, known, seed
        self.embeddings_ = embeddings
        self.learner_, self._model, self.settings_, self._shift, self._factor = learned
        self.temperature_ = 1.0
        self._without_gold = without_gold(learner, embeddings, annotations, self.encoder_, known)
        return self

    def update(self, labels: Any, X: Any = None, items: Iterable[Any] | None = None, *, gold: Gold = None) -> Self:
        """Add labels, items, annotators or known classes. Known items are not embedded again.

        The result is that of a fit with all labels and all items, the new ones last. An encoder that was learned from
        the first items is kept.

        Parameters
        ----------
        labels : array, list, DataFrame, dict or Annotations
            New labels, as in `fit`. A matrix is about the new items; other forms may be about any item. Columns with
            names are matched by name. Columns of an array, or numbered columns, are the known annotators in their
            order. A new label replaces an older one of the same annotator and item.
        X : array, list, DataFrame or None
            New items, as in `fit`.
        items : iterable or None
            Ids of the new items.
        gold : dict, Series, DataFrame, array or None
            Further known classes.

        Returns
        -------
        CrowdClassifier
            The updated classifier.
        """
        import torch

        self._check_labels()
        X = to_pandas(X, "X")
        before, added = self._old_and_new_embeddings(X)
        old, names = self.annotations_, names_of(X) if items is None else items
        more = with_new_labels(old, labels, len(added), names, self._missing)
        annotations, known = known_of(more, gold_of(old, self._known) | gold_labels.as_mapping(gold, more))
        known = keep_side_information(old, self._known, annotations, known)
        check_classes(annotations, known)
        return self._fit(torch.cat([before, added]), annotations, known, self._seed)

    def _old_and_new_embeddings(self, X: Any) -> tuple[Tensor, Tensor]:
        """Return the embeddings of the fitted items (N, D) and of new ones (n, D)."""
        before = self.embeddings_
        if before is None:
            raise _without_items()
        if X is None:
            return before, before[:0]
        check_columns(X, self)
        more = self._reader.embed(X, device=before.device)
        if more.shape[1] != before.shape[1]:
            raise _wrong_width(more.shape[1], before.shape[1])
        return before, more

    def partial_fit(
        self,
        X: Any,
        y: Any = None,
        *,
        items: Iterable[Any] | None = None,
        classes: Iterable[Any] | None = None,
        gold: Gold = None,
        labels: Any = None,
    ) -> Self:
        """Call `fit` the first time and `update` from then on, with scikit-learn's order of arguments.

        Parameters
        ----------
        X, y, items, gold, labels
            As in `fit` and `update`.
        classes : iterable or None
            As in `fit`; ignored after the first call.

        Returns
        -------
        CrowdClassifier
            The fitted classifier.
        """
        if not hasattr(self, "_model"):
            return self.fit(X, y, items=items, classes=classes, gold=gold, labels=labels)
        return self.update(one_of(y, labels), X, items, gold=gold)

    def _learner(self, seed: int = 0) -> Learner:
        """Return the learner of the method; raise an error for bad settings. Encoders do not depend on the seed."""
        from crowdshot.classifier.learners import learner_of

        return learner_of(self.method, self.settings, seed)

    def _learner_again(self) -> Learner:
        """Return the learner that fitted the model, with the settings that it selected."""
        from crowdshot.classifier.learners import learner_of

        check_is_fitted(self)
        return learner_of(self.learner_, self.settings_, self._seed)

    def _draw_seed(self) -> int:
        """Return ``random_state`` if it is a number, else draw one; raise an error if it is neither."""
        given = self.random_state
        if isinstance(given, np.random.Generator):
            return int(given.integers(2**31))
        if given is None or isinstance(given, np.random.RandomState):
            return int(check_random_state(given).randint(2**31 - 1))
        if not isinstance(given, Integral) or not 0 <= int(given) < 2**32:
            raise CrowdshotError(
                f"is {given!r}",
                argument="random_state",
                found=given,
                expected="None, a RandomState, or a whole number from 0 to 2**32 - 1",
            )
        return int(given)

    def __sklearn_is_fitted__(self) -> bool:
        """Tell scikit-learn whether the classifier is fitted."""
        return hasattr(self, "_model")

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

    def __sklearn_tags__(self) -> Any:
        """Tell scikit-learn that sparse features are accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def save(self, path: str | os.PathLike[str], *, labels: bool = True) -> None:
        """Write the encoder, the fitted model and the labels to one file. Nothing is pickled.

        Parameters
        ----------
        path : str or path
            The .safetensors file.
        labels : bool
            False writes a classifier to share: it predicts new items, and has no labels, names of annotators, ids of
            items, confusion matrices or embeddings of items. Probabilities may change slightly.
        """
        from crowdshot.classifier.saving import save_classifier

        check_is_fitted(self)
        save_classifier(self, path, labels)

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """Write an ONNX file for other runtimes. Requires the extra ``onnx``.

        It contains the encoder's network if it is one of crowdshot's; otherwise its input is the embeddings.

        Parameters
        ----------
        path : str or path
            The .onnx file.
        """
        check_is_fitted(self)
        with missing_packages_explained("to_onnx"):
            from crowdshot.classifier.onnx_export import write_onnx
        write_onnx(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str], allow_outside: bool = False) -> Self:
        """Load a classifier that `save` wrote.

        Parameters
        ----------
        path : str or path
            The .safetensors file.
        allow_outside : bool
            Whether the file may use a network of another library, which is then downloaded or read from another file.

        Returns
        -------
        CrowdClassifier
            The classifier on the CPU. Its encoder moves to ``device`` when it is used.

        Raises
        ------
        CrowdshotError
            If the file is damaged, or was fitted by a method that is not installed.
        """
        from crowdshot.classifier.saving import load_classifier
        from crowdshot.encoders.outside import allowed

        clf = cls()
        with allowed(allow_outside):
            load_classifier(clf, path)
        return clf
