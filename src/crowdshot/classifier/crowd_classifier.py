"""CrowdClassifier: items and a crowd's labels in; consensus, annotators and a classifier out."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain, islice
from numbers import Integral
from pathlib import PurePath
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from crowdshot.classifier import saving
from crowdshot.classifier.encoder_choice import are_features, encoder_input
from crowdshot.classifier.learner_contract import Fitted, Learner, posterior_of
from crowdshot.classifier.learners import learn, learner_of, without_gold
from crowdshot.classifier.mixture_learners import ARGUMENTS
from crowdshot.classifier.outliers import find_outliers
from crowdshot.classifier.side_information import Known, check_classes, known_of
from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.networks import choose_device
from crowdshot.encoders.table_input import TableInput
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import counted, first, listing, show
from crowdshot.io.cells import Ids
from crowdshot.labels import gold_labels
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_priors import PriorsInput
from crowdshot.labels.annotator_quality import judge, label_quality, likely_wrong
from crowdshot.labels.consensus import Consensus
from crowdshot.labels.gold_labels import Gold
from crowdshot.labels.indexing import ordered, positions, unique_ids
from crowdshot.labels.label_values import categories_order, warn_alphabetical_order
from crowdshot.labels.matching import annotations_of, mark_of, names_of
from crowdshot.labels.wide_tables import wide_table
from crowdshot.model import priors

# ---- findings ------------------------------------------------------------
#
# What a fitted classifier says of its items and annotators.


class Findings:
    """Of `CrowdClassifier`, once it is fitted."""

    fit_: Fitted
    settings_: dict[str, Any]
    annotations_: Annotations
    classes_: Ids
    known_: Known
    without_gold_: NDArray[np.float64]
    embeddings_: Tensor | None

    @property
    def scale_(self) -> float | None:
        check_is_fitted(self, "fit_")
        return self.settings_.get("scale")

    @property
    def confusion_(self) -> NDArray[np.float64]:
        check_is_fitted(self, "fit_")
        out: NDArray[np.float64] = self.fit_.confusion.double().cpu().numpy()
        return out

    @property
    def label_proba_(self) -> NDArray[np.float64]:
        """p(class | labels, items), (N, K), columns in the order of ``classes_``; rows sum to one."""
        check_is_fitted(self, "fit_")
        return posterior_of(self.fit_)

    @property
    def belief_(self) -> NDArray[np.float64]:
        """Return `label_proba_`, under the name that it had before version 0.3."""
        warnings.warn(
            "belief_ is called label_proba_ now; the old name goes with version 0.4.", FutureWarning, stacklevel=2
        )
        return self.label_proba_

    @property
    def consensus_(self) -> pd.DataFrame:
        probabilities = self.label_proba_
        class_probs = self.fit_.class_probs.double().cpu().numpy()
        best = self.classes_[probabilities.argmax(1)]
        return Consensus(best, probabilities, class_probs).to_frame(self.annotations_)

    @property
    def gold_(self) -> pd.DataFrame:
        """item, truth, consensus, confidence, n_labels: gold items, and their consensus without gold."""
        check_is_fitted(self, "fit_")
        return gold_labels.compare(self.annotations_, self.known_.gold, self.without_gold_)

    @property
    def annotators_(self) -> pd.DataFrame:
        """Accuracy is judged by the consensus, whose own doubt widens the interval (`crowdshot.labels.annotator_quality`)."""
        return judge(self.annotations_, self.label_proba_, self.known_.history)

    @property
    def label_quality_(self) -> pd.DataFrame:
        """A row for each label: how probable it is that it is right (`crowdshot.labels.annotator_quality`)."""
        return label_quality(self.annotations_, self.label_proba_)

    @property
    def likely_wrong_(self) -> pd.DataFrame:
        """The labels that are rather wrong than right, the worst first."""
        return likely_wrong(self.annotations_, self.label_proba_)

    @property
    def outliers_(self) -> pd.DataFrame:
        """A row for each item, those first that look like no other (`crowdshot.classifier.outliers`)."""
        check_is_fitted(self, "fit_")
        if self.embeddings_ is None:
            raise CrowdshotError("the classifier has been loaded without its items, expected them; fit it again.")
        return find_outliers(self.embeddings_.double().cpu().numpy(), self.annotations_, self.label_proba_)


# ---- predicting ------------------------------------------------------------
#
# What a fitted classifier says of other items.


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


# ---- updating ------------------------------------------------------------
#
# What a classifier was fitted with, and more of it: labels, items, annotators.


def updated(old: Annotations, labels: Any, n_added: int, names: Iterable[Any] | None, missing: Any = -1) -> Annotations:
    """All labels, about the old items and then the added ones; of an annotator's labels of an item the last.

    ``names``: of the added items, else they are counted on. A matrix of labels is about the added items or, where there
    are none, the old ones, row by row; labels that name their items may speak of all. Columns without names are the
    annotators that are known, in their order. ``missing``: as in the fit.
    """
    added = list(range(old.n_items, old.n_items + n_added)) if names is None else list(names)
    if len(added) != n_added:
        raise CrowdshotError(f"items has {len(added)} ids, expected {n_added}, one for each row of X.")
    known = list(old.items)
    there = set(known)
    twice = next((name for name in added if name in there), None)
    if twice is not None:
        raise CrowdshotError(f"X has item {show(twice)}, which is known already, expected new ones alone.")
    if any(isinstance(name, PurePath) for name in added) and all(isinstance(name, str) for name in known):
        known = [PurePath(name) for name in known]  # files: labels may call them by less than their whole path
    named = isinstance(labels, dict | Annotations) or (isinstance(labels, pd.DataFrame) and wide_table(labels) is None)
    about = [*known, *added] if named or not n_added else added
    new = annotations_of(labels, len(about), about, None, mark_of(missing, old.classes))
    if not named:
        new = _by_the_same_people(old, new)
    called = [*old.items.tolist(), *new.items[len(about) - n_added :].tolist()]
    items = unique_ids(called, "items")
    new = new.with_items(np.arange(len(items) - len(about), len(items)), items)
    frames = [part.to_frame().set_axis(list(old.columns), axis=1) for part in (old, new)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # labels that were given again are what an update is for
        return Annotations.from_frame(
            pd.concat(frames, ignore_index=True),
            old.columns,
            items=items,
            annotators=dict.fromkeys([*old.annotators.tolist(), *new.annotators.tolist()]),
            classes=_together(old.classes, new.classes, labels),
        )


def _by_the_same_people(old: Annotations, new: Annotations) -> Annotations:
    """A matrix whose columns are counted by annotators who have names; one that names numbered annotators is refused.

    Where the known annotators are numbered themselves, columns without names go by number, and more are new people.
    """
    R, width = old.n_annotators, new.n_annotators
    known, called = old.annotators.tolist(), new.annotators.tolist()
    if called == list(range(width)) and not set(range(min(R, width))) <= set(known):
        if width != R:
            columns = counted(width, "columns without names")
            raise CrowdshotError(
                f"labels has {columns}, expected {R}, one for each of {listing(known, 3)}; a DataFrame can name others."
            )
        return replace(new, annotators=old.annotators)
    if known == list(range(R)) and width == R and not set(called) & set(known):
        raise CrowdshotError(
            f"labels has columns {listing(called, 3)}, expected {listing(known, 3)} as in fit; labels.to_numpy() has"
            " them in this order, and a table with a row for each label may add annotators."
        )
    return new


def _together(old: Ids, new: Ids, labels: Any) -> Ids:
    """Old and new classes: as an ordered dtype of the labels has both, sorted if the old ones are, else new ones last.

    An order in which the old ones stand otherwise is none.
    """
    classes = unique_ids(dict.fromkeys([*old.tolist(), *new.tolist()]), "classes")
    said = categories_order(labels, classes)
    if said is not None and (said[np.sort(positions(said, old))] == old).all():
        return said
    return ordered(classes) if (ordered(old) == old).all() else classes


def gold_of(ann: Annotations, known: Known) -> dict[Any, Any]:
    rows = (known.gold >= 0).nonzero()[0]
    return dict(zip(ann.items[rows].tolist(), ann.classes[known.gold[rows]].tolist(), strict=True))


def carried(old: Annotations, before: Known, new: Annotations, known: Known) -> Known:
    """What was known besides, of old items and annotators; new ones count once, and no classifier spoke of them."""
    added = new.n_items - old.n_items
    history = weight = said = None
    if before.history is not None:
        history = np.zeros((new.n_annotators, 2))
        history[positions(new.annotators, old.annotators)] = before.history
    if before.weight is not None:
        weight = np.append(before.weight, np.ones(added))
    if before.pred_probs is not None:
        said = np.zeros((new.n_items, new.n_classes))
        said[: old.n_items, positions(new.classes, old.classes)] = before.pred_probs
        said[old.n_items :] = np.nan
    return replace(known, history=history, weight=weight, pred_probs=said, ordered=before.ordered)


# ---- classifier ------------------------------------------------------------


class CrowdClassifier(Predicting, Findings, ClassifierMixin, BaseEstimator):
    """Learn a classifier from a few items that several unreliable annotators labelled.

    Items are embedded by ``encoder``. Few items on an encoder of ours are explained by the paper's mixture of Gaussians
    with a confusion matrix per annotator (Kumagai et al., ICML 2025), whose parameters are integrated over: the
    classifier is an average over the most probable true labels (`crowdshot.labelings`). Else labels are believed as
    `crowdshot.aggregate.learned` does, and features as far as they foretell labels of other items
    (`crowdshot.model.combined`). ``method="paper"`` is the paper's MAP-EM (`crowdshot.mixture`); other names are methods
    to compare with.

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

    Parameters
    ----------
    encoder : the name of a shipped encoder, the file of a saved one, somebody else's network by name
        ("hf:facebook/dinov2-small", see docs/items.md), an `Encoder`, any ``torch.nn.Module``, any function from items
        to (n, D), or "identity" for feature vectors. "auto": "identity" for feature vectors, for texts and mixed tables
        one that is learned from them ("texts", "table"), "glyphs" for drawings, "photo-lite0" for photographs, or
        "photo" where the extra ``lite0`` is not installed; of these, the variant that was
        meta-trained as the method needs it ("glyphs-protonet" for the default), or for methods that need no
        meta-training the items as they are ("lite0" for photographs).
    method : "auto" is "both", "labelings" and "learned" each believed as far as it foretells hidden labels; "learned"
        where more than 200 items are labelled, features come from elsewhere or the encoder sees nothing in the items;
        "ours" where an argument of the mixture is set. "paper" is "ours" with the paper's constants.
        Else a name in `crowdshot_paper.registry.METHODS` (``crowdshot methods`` lists them); with these, what is said of
        labelled items and annotators is Dawid–Skene's.
    settings : the method's, as a mapping; what is left out is as `METHODS` has it.
    steps, tau, b, c, scale : the paper's J and priors, and the weight of the embedding's evidence, as in
        `mixture.fit`; ``c`` may also be a pair (right, wrong) or any prior of `crowdshot.priors`. None takes what
        the encoder was trained with; for outside features (identity, a module of yours) it takes a prior that
        expects people to be better than chance, and chooses the scale by how well held-back labels are predicted.
    covariance : "identity", or "isotropic", "diagonal", "full", estimated from the items. This and the five before it
        are the mixture's ("ours", "paper" and "w/o PA") alone.
    device : "auto" is a GPU where there is one.
    random_state : a whole number, which seeds the choice of held-back labels, and methods that draw lots.

    Attributes
    ----------
    classes_ : the classes, sorted, or as the annotations or an ordered categorical dtype list them.
    label_proba_ : (N, K) array, how probable each class is for each item of X, by all labels and all items.
    consensus_ : DataFrame with item, label, confidence, n_labels, agreement; a row for every item of X, those that
        nobody labelled included. Columns are named as in the table of labels.
    gold_ : DataFrame with item, truth, consensus, confidence, n_labels; a row for each item whose true class was given,
        and what would be believed of it without that.
    annotators_ : DataFrame with annotator, n_labels, accuracy, low, high (a 90 % interval), most_confused, and how many
        labels are expected to be right and wrong, those of earlier projects (``priors``) included.
    label_quality_ : DataFrame with a row for each label and ``quality``, how probable it is that it is right;
        likely_wrong_ has those below a half, the worst first.
    outliers_ : DataFrame with a row for each item, those first that look like no other.
    confusion_ : (R, K, K) array [annotator, true, observed].
    learner_ : the name of what learned, as in `METHODS`: "combined" or "features" where ``method`` is "auto".
    settings_ : what it was run with.
    scale_ : the weight of the embedding's evidence that labelings and mixture used; None with other methods.
    """

    encoder_: Encoder
    reader_: Encoder
    learner_: str
    fit_: Fitted
    settings_: dict[str, Any]
    shift_: Tensor
    factor_: Tensor
    embeddings_: Tensor | None
    annotations_: Annotations
    classes_: Ids
    known_: Known
    missing_: Any
    without_gold_: NDArray[np.float64]
    n_features_in_: int

    def __init__(
        self,
        encoder: str | os.PathLike[str] | Encoder | nn.Module | Callable[[Any], Any] = "auto",
        *,
        method: str = "auto",
        settings: Mapping[str, Any] | None = None,
        steps: int | None = None,
        tau: float | None = None,
        b: float | None = None,
        c: float | tuple[float, float] | priors.ConfusionPrior | None = None,
        scale: float | None = None,
        covariance: str = "identity",
        device: str = "auto",
        random_state: int = 0,
    ) -> None:
        self.encoder = encoder
        self.method = method
        self.settings = settings
        self.steps = steps
        self.tau = tau
        self.b = b
        self.c = c
        self.scale = scale
        self.covariance = covariance
        self.device = device
        self.random_state = random_state

    # ---- fitting --------------------------------------------------------------------------------------------------

    def fit(
        self,
        X: Any,
        labels: Any,
        *,
        items: Iterable[Any] | None = None,
        classes: Iterable[Any] | None = None,
        gold: Gold = None,
        priors: PriorsInput = None,
        sample_weight: Any = None,
        pred_probs: Any = None,
        ordered: bool = False,
        missing: Any = -1,
    ) -> Self:
        """Embed the items and adapt to their labels.

        X: images (arrays, file paths, PIL images), texts, a table, or feature vectors (N, d). labels: an (N, R) array
        or nested list (None, NaN, -1 or "" where there is none), or (N,) for one annotator; a DataFrame with a column
        for each annotator, whose names they get; a table with a row for each label, a dict of dicts, or `Annotations`.
        In the latter three an item is named by ``items``, which gives X's ids in order; without it, by the index of a
        DataFrame or Series, by the file's name in a list of paths, else by its position. Rows of a DataFrame with a
        column for each annotator go by its index where that and X have names, else in X's order.
        classes: all there are, in the order wanted; one that nobody named has probability 0 (two must be named).
        gold: true classes that are known, {item: class}, a Series, a table with item and truth, or (N,) with missing
        ones. They are held fixed, labelled or not, and annotators are judged by them; ``gold_`` tells how well the rest
        would have known them.
        priors: what is known of annotators from earlier projects, `AnnotatorPriors` or {annotator: (right, wrong)}.
        sample_weight: (N,), what each item teaches: one of 0 is judged and teaches nothing, one of 2 counts twice.
        pred_probs: (N, K), what any classifier that never met these labels says of the items, a column for each of
        ``classes_``; a DataFrame's rows go by its index as those of labels do, its columns by the classes' names unless
        they merely count. It is believed as far as it foretells labels, so that a bad one does no harm.
        ordered: the classes are in order (as ``classes`` or an ordered categorical dtype of pandas lists them), so that
        near misses are likelier than far ones.
        The search of "labelings", the mixture and compared methods pay no heed to it.
        missing: the number that stands for no label in an array or a DataFrame with a column for each annotator; None
        where only None and NaN do, so that -1 is a class. Updates and `crowdshot.metrics` go by it, too.
        """
        names = names_of(X) if items is None else items
        besides: dict[str, Any] = {"gold": gold, "priors": priors, "sample_weight": sample_weight}
        besides |= {"pred_probs": pred_probs, "classes": classes, "ordered": ordered, "missing": missing}
        return self.fit_embeddings(self.embed(X), labels, items=names, **besides)

    def embed(self, X: Any, progress: Callable[[int, int], None] | None = None) -> Tensor:
        """What is learned from, (N, D): to be kept and given to `fit_embeddings` more than once.

        These are the encoder's embeddings; for methods that work on the network itself, what the network takes, flat.
        progress: called with (items done, items in all) after each batch.
        """
        self.encoder_ = self.choose_encoder(X)
        self.reader_ = self.learner().reader(self.encoder_)
        if are_features(X):
            self.n_features_in_ = int(np.shape(X)[1])
        names = column_names(X)
        if names is not None:
            self.feature_names_in_ = names
        elif hasattr(self, "feature_names_in_"):  # of an earlier fit
            del self.feature_names_in_
        return self.reader_.embed(X, device=choose_device(self.device), progress=progress)

    def choose_encoder(self, X: Any) -> Encoder:
        """The one that was given, or the one that suits X and the method."""
        learner = self.learner()
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
        missing: Any = -1,
    ) -> Self:
        """The part of `fit` behind `embed`: with the mixture, a few milliseconds for a few hundred labels."""
        names = None if items is None else list(items)
        annotations = annotations_of(labels, len(embeddings), names, classes, missing)
        closed = classes is not None
        if ordered and not closed and not isinstance(labels, Annotations):
            warn_alphabetical_order(labels, annotations.classes, "classes=")
        annotations, known = known_of(
            annotations, gold, priors, names, closed, sample_weight, pred_probs, bool(ordered)
        )
        check_classes(annotations, known, listed=classes is not None or isinstance(labels, Annotations))
        if not hasattr(self, "encoder_"):
            self.encoder_ = self.choose_encoder(embeddings)
        self._fit(embeddings, annotations, known)
        self.missing_ = missing
        return self

    def _fit(self, embeddings: Tensor, annotations: Annotations, known: Known) -> Self:
        learner = self.learner()
        learned = learn(learner, embeddings, annotations, self.encoder_, known)
        self.reader_ = learner.reader(self.encoder_)
        self.annotations_, self.classes_, self.known_ = annotations, annotations.classes, known
        self.embeddings_ = embeddings
        self.learner_, self.fit_, self.settings_, self.shift_, self.factor_ = learned
        self.without_gold_ = without_gold(learner, embeddings, annotations, self.encoder_, known)
        return self

    def update(self, labels: Any, X: Any = None, items: Iterable[Any] | None = None, *, gold: Gold = None) -> Self:
        """More labels, of items that are known or of new ones, and more annotators; nothing is embedded again.

        The same as a fit with all items, the new ones last, and all labels; a label that an annotator gives an item
        again takes the place of the old one. X: new items, as in `fit`, which ``items`` may name; a matrix of labels is
        about these, any other form may speak of all. Its columns go by name; in an array, or where they merely count,
        they are the annotators that are known, in their order. gold: more true classes. An encoder that was learned
        from the first items stays as it is.
        """
        check_is_fitted(self, "fit_")
        before, added = self._before_and_more(X)
        old, names = self.annotations_, names_of(X) if items is None else items
        more = updated(old, labels, len(added), names, self.missing_)
        annotations, known = known_of(more, gold_of(old, self.known_) | gold_labels.as_mapping(gold, more))
        known = carried(old, self.known_, annotations, known)
        check_classes(annotations, known)
        return self._fit(torch.cat([before, added]), annotations, known)

    def _before_and_more(self, X: Any) -> tuple[Tensor, Tensor]:
        """(N, D) and (n, D): what was learned from, and new items, seen by the same encoder."""
        before = self.embeddings_
        if before is None:
            raise CrowdshotError("the classifier has been loaded without its items, expected them; fit it again.")
        if X is None:
            return before, before[:0]
        check_columns(X, self)
        more = self.reader_.embed(X, device=before.device)
        if more.shape[1] != before.shape[1]:
            raise CrowdshotError(f"X has {more.shape[1]} features, expected {before.shape[1]} as in fit.")
        return before, more

    def partial_fit(
        self,
        X: Any,
        labels: Any,
        *,
        items: Iterable[Any] | None = None,
        classes: Iterable[Any] | None = None,
        gold: Gold = None,
    ) -> Self:
        """`fit` at first and `update` from then on, in scikit-learn's order. classes: at first alone, as in `fit`."""
        if not hasattr(self, "fit_"):
            return self.fit(X, labels, items=items, classes=classes, gold=gold)
        return self.update(labels, X, items, gold=gold)

    def learner(self) -> Learner:
        """How the chosen method learns; bad settings are told here."""
        return learner_of(self.method, self.settings, self.arguments(), self.seed)

    def arguments(self) -> dict[str, Any]:
        """Those of the mixture that were set one by one."""
        given = {name: getattr(self, name) for name in ARGUMENTS if getattr(self, name) is not None}
        if self.covariance == "identity":
            del given["covariance"]
        return given

    def learner_again(self) -> Learner:
        """The one that fitted, with the settings it found: what learns the same from the same."""
        check_is_fitted(self, "fit_")
        return learner_of(self.learner_, self.settings_, {}, self.seed)

    @property
    def seed(self) -> int:
        """``random_state``, checked."""
        if not isinstance(self.random_state, Integral) or not 0 <= int(self.random_state) < 2**32:
            raise CrowdshotError(f"random_state is {self.random_state!r}, expected a whole number from 0 to 2**32 - 1.")
        return int(self.random_state)

    # ---- for others ------------------------------------------------------------------------------------------------

    def __sklearn_tags__(self) -> Any:
        """For scikit-learn: sparse features are taken, and there is nothing to fit without labels."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def save(self, path: str | os.PathLike[str]) -> None:
        """One file with the encoder, the fitted model and the labels; nothing in it is ever unpickled."""
        check_is_fitted(self, "fit_")
        saving.save_classifier(self, path)

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """One ONNX file for other runtimes, with the network if it is ours (`crowdshot.classifier.onnx_export`)."""
        check_is_fitted(self, "fit_")
        try:
            from crowdshot.classifier.onnx_export import write_onnx  # an extra
        except ImportError:
            advice = "pip install 'crowdshot[onnx]' brings it"
            raise CrowdshotError(f"onnx is not installed, expected it to write such a file; {advice}.") from None
        write_onnx(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The classifier that `save` wrote; its encoder goes where ``device`` says, all else is on the CPU."""
        clf = cls()
        saving.load_classifier(clf, path)
        return clf
