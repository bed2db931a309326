"""Provide `CrowdClassifier`, which learns a consensus, annotator qualities and a classifier from crowd labels.

Importing it does not import torch, which takes longer than all else: modules that need torch are imported by the
methods that use them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from crowdshot.classifier.fit_results import OldNames, Results, move_to_settings, without_items
from crowdshot.classifier.learner_contract import (
    FittedModel,
    Learner,
    SideInformation,
    check_classes,
    gold_of,
    keep_side_information,
    known_of,
    whole_weights,
)
from crowdshot.classifier.predictor import (
    BaseEstimator,
    ClassifierMixin,
    Predictor,
    check_columns,
    one_of,
    refuse_renumbered,
    wrong_width,
)
from crowdshot.errors import CrowdshotError
from crowdshot.extras import NEEDED, missing_packages_explained, require
from crowdshot.io.cells import Ids
from crowdshot.io.dataframes import column_names, to_pandas
from crowdshot.labels import gold_labels
from crowdshot.labels.annotations import Annotations, warn_alphabetical_order
from crowdshot.labels.annotator_quality import PriorsInput
from crowdshot.labels.gold_labels import Gold
from crowdshot.labels.matching import annotations_of, mark_of, names_of, refuse_column_of_items, with_new_labels

if TYPE_CHECKING:
    from torch import Tensor, nn

    from crowdshot.encoders.encoder import Encoder
    from crowdshot.methods import MethodName

require(*NEEDED, user="CrowdClassifier")  # without importing them


class CrowdClassifier(OldNames, Predictor, Results, ClassifierMixin, BaseEstimator):
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

        ``set_params(settings__steps=5)`` sets one of them, as do grids of scikit-learn.
    device : {"auto", "cpu", "cuda"}
        "auto" is a GPU if there is one.
    random_state : int, RandomState, Generator or None
        Seed for cross-validation and for methods with random numbers. None draws another one for every fit.

    Attributes
    ----------
    classes_ : (K,) array
        Classes, sorted, or in the order of the annotations or of an ordered categorical dtype.
    label_proba_ : (N, K) array
        Posterior class probabilities of every item of X, given all labels and all items. Rows are in the order of
        ``consensus_``, columns in that of ``classes_``.
    consensus_ : DataFrame
        Columns item, label, confidence, n_labels and agreement, with a row for every item of X, labelled or not. The
        columns have the names of the table of labels.
    gold_ : DataFrame
        Columns item, truth, consensus (the consensus of a fit without known classes), confidence and n_labels, with a
        row for each item of known class.
    annotators_ : DataFrame
        Columns annotator, n_labels, accuracy, low, high (a 90 % interval), most_confused, the expected numbers of right
        and wrong labels, including those of earlier projects (``priors``), and p_below (see `judge_annotators`).
    label_quality_ : DataFrame
        A row for each label; ``quality`` is the probability that it is correct.
    likely_wrong_ : DataFrame
        The rows of ``label_quality_`` below a half, worst first.
    outliers_ : DataFrame
        A row for each item with its distance to its nearest neighbours, most unusual first.
    confusion_ : (R, K, K) array
        Confusion matrices [annotator, true, observed], in the order of ``annotators_`` and ``classes_``.
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
    metrics_ : dict
        Numbers about the fit for an experiment tracker.
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
            Value that marks a missing label, besides None and NaN. With "auto", -1 does in an array or a DataFrame with
            a column for each annotator if no cell is missing in another way and no other label is negative; in other
            tables as in `Annotations.from_frame`. With None, no value does. `update` and `crowdshot.metrics` use the
            same mark.
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
        if items is None:
            refuse_column_of_items(X, y)
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
            raise without_items()
        if X is None:
            return before, before[:0]
        check_columns(X, self)
        more = self._reader.embed(X, device=before.device)
        if more.shape[1] != before.shape[1]:
            raise wrong_width(more.shape[1], before.shape[1])
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
