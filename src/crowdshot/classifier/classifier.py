"""CrowdClassifier: items and a crowd's labels in; consensus, annotators and a classifier out."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from crowdshot.classifier import saved
from crowdshot.classifier.contract import Fitted, Learner
from crowdshot.classifier.default_encoder import are_features, given_encoder
from crowdshot.classifier.findings import Findings
from crowdshot.classifier.known import Known, check_classes, known_of
from crowdshot.classifier.learners import learn, learner_of, without_gold
from crowdshot.classifier.own import ARGUMENTS
from crowdshot.classifier.predicting import Predicting, check_columns, column_names
from crowdshot.classifier.updating import carried, gold_of, updated
from crowdshot.encoders.devices import choose_device
from crowdshot.encoders.encoder import Encoder
from crowdshot.errors import CrowdshotError
from crowdshot.files.cells import Ids
from crowdshot.labels import known_truth
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_priors import GivenPriors
from crowdshot.labels.class_order import tell_alphabet
from crowdshot.labels.known_truth import Gold
from crowdshot.labels.matching import annotations_of, names_of
from crowdshot.model import priors


class CrowdClassifier(Predicting, Findings, ClassifierMixin, BaseEstimator):
    """Learn a classifier from a few items that several unreliable annotators labelled.

    Items are embedded by ``encoder``. Few items on an encoder of ours are explained by the paper's mixture of Gaussians
    with a confusion matrix per annotator (Kumagai et al., ICML 2025), whose parameters are integrated over: the
    classifier is an average over the most probable true labels (`crowdshot.labelings`). Else labels are believed as
    `crowdshot.aggregate.learned` does, and features as far as they foretell labels of other items
    (`crowdshot.model.learned`). ``method="paper"`` is the paper's MAP-EM (`crowdshot.mixture`); other names are methods
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
    >>> clf.learner_, clf.belief_.shape
    ('Learned', (4, 2))

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
        Else a name in `crowdshot.methods.METHODS` (``crowdshot methods`` lists them); with these, what is said of
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
    belief_ : (N, K) array, how probable each class is for each item of X, by all labels and all items.
    consensus_ : DataFrame with item, label, confidence, n_labels, agreement; a row for every item of X, those that
        nobody labelled included. Columns are named as in the table of labels.
    gold_ : DataFrame with item, truth, believed, confidence, n_labels; a row for each item whose true class was given,
        and what would be believed of it without that.
    annotators_ : DataFrame with annotator, n_labels, accuracy, low, high (a 90 % interval), most_confused, and how many
        labels are expected to be right and wrong, those of earlier projects (``priors``) included.
    label_quality_ : DataFrame with a row for each label and ``quality``, how probable it is that it is right;
        likely_wrong_ has those below a half, the worst first.
    outliers_ : DataFrame with a row for each item, those first that look like no other.
    confusion_ : (R, K, K) array [annotator, true, observed].
    learner_ : the name of what learned, as in `METHODS`: "Both" or "Learned" where ``method`` is "auto".
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
        priors: GivenPriors = None,
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
        return given_encoder(self.encoder, X)

    def fit_embeddings(
        self,
        embeddings: Tensor,
        labels: Any,
        *,
        items: Iterable[Any] | None = None,
        classes: Iterable[Any] | None = None,
        gold: Gold = None,
        priors: GivenPriors = None,
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
            tell_alphabet(labels, annotations.classes, "classes=")
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
        annotations, known = known_of(more, gold_of(old, self.known_) | known_truth.as_mapping(gold, more))
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
        saved.save_classifier(self, path)

    def to_onnx(self, path: str | os.PathLike[str]) -> None:
        """One ONNX file for other runtimes, with the network if it is ours (`crowdshot.classifier.onnx_file`)."""
        check_is_fitted(self, "fit_")
        try:
            from crowdshot.classifier.onnx_file import write_onnx  # an extra
        except ImportError:
            advice = "pip install 'crowdshot[onnx]' brings it"
            raise CrowdshotError(f"onnx is not installed, expected it to write such a file; {advice}.") from None
        write_onnx(self, path)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """The classifier that `save` wrote; its encoder goes where ``device`` says, all else is on the CPU."""
        clf = cls()
        saved.load_classifier(clf, path)
        return clf
