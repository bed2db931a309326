"""Aggregate the labels of several annotators into consensus labels, without features of the items.

`AGGREGATORS` lists the methods by name:

- ``learned``, the default: three rounds of Dawid–Skene-like updates. A network that was trained on simulated crowds
  sets their shrinkage and weights (`crowdshot.model.label_model`).
- ``shrunk``: the same updates with constant shrinkage and weights.
- ``dawid-skene``: one confusion matrix per annotator, fitted by EM.
- ``one-coin``: one accuracy per annotator, fitted by EM.
- ``majority`` and ``soft``: the share of an item's labels that each class has.

Dawid–Skene and the one-coin model assume that item n has a true class t, drawn from ``class_probs``, and that annotator
r gives it the label l with probability ``confusion[r, t, l]``. The M-step estimates the class probabilities and the
confusion matrices from the posteriors λ (N, K); the E-step computes λ from these. EM starts from the soft vote
(`crowdshot.model.dawid_skene`).

References
----------
A. P. Dawid and A. M. Skene. Maximum likelihood estimation of observer error-rates using the EM algorithm.
Applied Statistics 28(1), 1979. With Dirichlet priors: Kumagai et al., ICML 2025, equations for λ, π and α.

Examples
--------
>>> from crowdshot import Annotations, aggregate
>>> ann = Annotations.from_dict({"a": {"ann": "cat", "bob": "cat", "cyd": "dog"}, "b": {"ann": "dog", "bob": "dog"}})
>>> aggregate.learned(ann).labels.tolist()
['cat', 'dog']
>>> aggregate.majority_vote(ann).probabilities.round(2).tolist()
[[0.67, 0.33], [0.0, 1.0]]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, listing, show
from crowdshot.io.cells import Ids, positions, unique_ids
from crowdshot.io.dataframes import to_pandas
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import expected_confusion
from crowdshot.labels.consensus import Consensus, check_numbers
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.labels.gold_labels import Gold, crowd_of, find_items
from crowdshot.labels.label_sets import aggregate_sets
from crowdshot.labels.matching import of_any_labels, row_by_row
from crowdshot.labels.spelling import names_of
from crowdshot.model import feature_model, label_model
from crowdshot.model.dawid_skene import Coins, Em, Matrices
from crowdshot.model.label_model import network_of
from crowdshot.model.label_model_parts import Rounds
from crowdshot.model.parts import Aggregator, PosteriorMatrix, Sizes
from crowdshot.model.posteriors import SHARPER, Votes, likeliest
from crowdshot.model.subtypes import corrected

Floats = NDArray[np.float64]
History = Mapping[Any, tuple[float, float]]
Network = str | os.PathLike[str] | Mapping[str, Floats] | None
Ties = Literal["first", "missing"]

LEAST = 1e-9  # lower limit of a probability before its logarithm is taken
STEPS = 100  # EM steps at most
SHRUNK_ROUNDS = 3


# ---- The label model: learned and shrunk ---------------------------------------------------------------------------


@of_any_labels
def learned(
    ann: Annotations,
    steps: int = STEPS,
    gold: Gold = None,
    network: Network = None,
    *,
    ordered: bool = False,
    history: History | None = None,
    pred_probs: ArrayLike | None = None,
) -> Consensus:
    """Aggregate labels with the label model, the default method.

    It runs a few rounds of EM whose shrinkage and weights were learned from simulated crowds
    (docs/research/inference.md).

    Parameters
    ----------
    ann : Annotations or any form of labels that `CrowdClassifier.fit` takes
    steps : int
        Largest number of rounds; the shipped network has three.
    gold : mapping, Series, DataFrame or array of shape (N,), optional
        Known true labels, as in `dawid_skene`.
    network : path or mapping of arrays, optional
        A network to use instead of the shipped one.
    ordered : bool
        The classes are in order (low, medium, high): confusing neighbouring classes is more likely.
    history : mapping, optional
        ``{annotator: (right, wrong)}``: numbers of right and wrong labels in earlier projects. Annotators who are not
        in ``ann`` are ignored.
    pred_probs : array of shape (N, K) or DataFrame, optional
        Class probabilities from a classifier that was not trained on these labels. Its weight depends on how well it
        predicts the labels. The rows and columns of a DataFrame are matched to items and classes by name.

    Returns
    -------
    Consensus

    Examples
    --------
    >>> from crowdshot import Annotations, aggregate
    >>> ann = Annotations.from_dict({"a": {"ann": "cat", "bob": "cat"}, "b": {"ann": "dog", "cy": "dog"}})
    >>> aggregate.learned(ann).labels.tolist()
    ['cat', 'dog']
    >>> ann = Annotations.from_dict({"a": {"ann": "cat", "bob": "dog"}, "b": {"ann": "dog", "bob": "dog"}})
    >>> aggregate.learned(ann, history={"ann": (97, 3), "bob": (50, 50)}).labels.tolist()
    ['cat', 'dog']
    """
    check_numbers(steps)
    rounds = label_model.first_rounds(network_of(network), steps)
    return _label_model(ann, gold, rounds, ordered, history, pred_probs)


@of_any_labels
def shrunk(ann: Annotations, steps: int = SHRUNK_ROUNDS, gold: Gold = None) -> Consensus:
    """Aggregate labels with ``steps`` rounds of the label model, with the same constants for every crowd.

    Parameters
    ----------
    ann, gold
        As in `learned`.
    steps : int
        Number of rounds.

    Returns
    -------
    Consensus
    """
    check_numbers(steps)
    return _label_model(ann, gold, label_model.constant(steps), power=1.0, subtypes=False)


def _label_model(
    ann: Annotations,
    gold: Gold,
    network: Mapping[str, Floats],
    ordered: bool = False,
    history: History | None = None,
    pred_probs: ArrayLike | None = None,
    power: float = SHARPER,
    subtypes: bool = True,
) -> Consensus:
    crowd = crowd_of(ann, gold)
    N, K = ann.n_items, ann.n_classes
    known = crowd.known
    predicted = None if pred_probs is None else check_probabilities(ann, pred_probs, ann.items.tolist())
    right, wrong = (None, None) if history is None else _counts(ann, history)
    if K < 2:
        return Consensus(np.repeat(ann.classes, N), np.ones((N, K)), np.ones(K), annotations=ann)
    rounds = Rounds(crowd.sizes, network, ordered, right, wrong, gold=bool((known >= 0).any()), power=power)
    posterior = crowd.run(corrected(rounds, len(ann)) if subtypes else rounds)[1]
    observed = (np.bincount(ann.item, minlength=N) > 0) | (known >= 0)
    class_probs = observed @ posterior / observed.sum()
    if not isinstance(posterior, np.ndarray):
        if predicted is not None:
            raise CrowdshotError(
                f"cannot be used with {K} classes and {N} items", argument="pred_probs", expected="fewer classes"
            )
        return Consensus(ann.classes[likeliest(posterior)[0]], posterior, class_probs, annotations=ann)
    posterior[~observed] = class_probs
    if predicted is not None:
        posterior = _with_predictions(posterior, class_probs, predicted, observed, known)
        class_probs = posterior[observed].sum(axis=0) / observed.sum()
    return Consensus(
        labels=ann.classes[posterior.argmax(axis=1)],
        probabilities=posterior,
        class_probs=class_probs,
        confusion=expected_confusion(ann, posterior),
        annotations=ann,
    )


def _with_predictions(
    posterior: Floats, class_probs: Floats, predicted: Floats, observed: NDArray[np.bool_], known: NDArray[np.int64]
) -> Floats:
    """Multiply the posterior by a classifier's likelihood ratio; keep the classes of gold items."""
    evidence = np.log(posterior.clip(LEAST)) - np.log(class_probs.clip(LEAST))
    combined = posterior * np.exp(feature_model.BESIDE_LABELS * feature_model.trusted(predicted, evidence, observed))
    return np.where((known >= 0)[:, None], posterior, combined / combined.sum(axis=1, keepdims=True))


def _counts(ann: Annotations, history: History) -> tuple[Floats, Floats]:
    """Return two arrays (R,): right and wrong labels in earlier projects, 0 for annotators without history."""
    right, wrong = np.zeros(ann.n_annotators), np.zeros(ann.n_annotators)
    for place, name in enumerate(ann.annotators):
        if name in history:
            right[place], wrong[place] = history[name]
    bad = ~(np.isfinite(right) & np.isfinite(wrong) & (right >= 0) & (wrong >= 0))
    if bad.any():
        row = first(bad)
        raise CrowdshotError(
            f"has {right[row]:g} right and {wrong[row]:g} wrong labels for annotator {show(ann.annotators[row])}",
            argument="history",
            found=(float(right[row]), float(wrong[row])),
            expected="two numbers, 0 or more",
        )
    return right, wrong


def check_probabilities(ann: Annotations, pred_probs: Any, names: Sequence[Any] | None = None) -> Floats:
    """Return class probabilities as an array (N, K), a row for each item and a column for each class.

    The rows and columns of a DataFrame are matched by name.

    Parameters
    ----------
    ann : Annotations
    pred_probs : array or DataFrame
    names : sequence of length N, optional
        Names of the items by which the rows of a DataFrame are matched; None if rows are in the order of items.

    Raises
    ------
    CrowdshotError
        If the shape or the names do not fit, or a row is no probability distribution.
    """
    pred_probs = to_pandas(pred_probs, "pred_probs")
    if isinstance(pred_probs, pd.DataFrame):
        pred_probs = _with_rows_of(_with_columns_of(pred_probs, ann), ann, names)
    try:
        p: Floats = np.ascontiguousarray(pred_probs, dtype=np.float64)  # a reversed view could not be saved
    except (TypeError, ValueError):
        raise CrowdshotError(
            "is not a table of numbers", argument="pred_probs", expected="a row for each item, a column for each class"
        ) from None
    if p.shape != (ann.n_items, ann.n_classes):
        raise CrowdshotError(
            f"has shape {p.shape}",
            argument="pred_probs",
            found=p.shape,
            expected=f"{(ann.n_items, ann.n_classes)}, a column for each of {listing(ann.classes)}",
        )
    wrong = ~((p >= 0).all(axis=1) & (np.abs(p.sum(axis=1) - 1) < 1e-3))  # NaN is neither
    if wrong.any():
        raise CrowdshotError(
            f"has no valid probabilities for item {show(ann.items[first(wrong)])}",
            argument="pred_probs",
            found=p[first(wrong)].tolist(),
            expected="numbers, 0 or more, that sum to 1",
        )
    return p


def _with_columns_of(table: pd.DataFrame, ann: Annotations) -> pd.DataFrame:
    """Sort the columns by class; keep their order if they are only numbered."""
    called = [str(name) for name in unique_ids(table.columns, "pred_probs").tolist()]
    classes = [str(name) for name in ann.classes.tolist()]
    if sorted(called) == sorted(classes):
        return table.iloc[:, positions(np.array(called, dtype=object), classes)]
    if called == [str(place) for place in range(len(called))]:
        return table
    unknown = [name for name, text in zip(table.columns, called, strict=True) if text not in classes]
    raise CrowdshotError(
        f"has column {show(unknown[0])}" if unknown else f"has {len(called)} columns",
        argument="pred_probs",
        found=list(table.columns[:10]),
        expected=f"one for each of {listing(ann.classes)}",
    )


def _with_rows_of(table: pd.DataFrame, ann: Annotations, names: Sequence[Any] | None) -> pd.DataFrame:
    """Sort the rows by item."""
    if names is None or row_by_row(table.index, names):
        return table
    row = find_items(list(table.index), ann.items, names, "pred_probs")
    missing = np.setdiff1d(np.arange(ann.n_items), row)
    if len(missing):
        item = ann.items[missing[0]]
        raise CrowdshotError(
            f"has no row for item {show(item)}", argument="pred_probs", expected="one for each item", found=item
        )
    if (row < 0).any():
        unknown = table.index[first(row < 0)]
        raise CrowdshotError(
            f"has a row for {show(unknown)}, which is not an item",
            argument="pred_probs",
            found=unknown,
            expected=f"items such as {listing(ann.items, 1)}",
        )
    return table.iloc[np.argsort(row)]


# ---- Votes ---------------------------------------------------------------------------------------------------------


@of_any_labels
def soft_vote(ann: Annotations) -> PosteriorMatrix:
    """Return the share of an item's labels that each class has, (N, K).

    Items without labels have 1/K for every class. With very many classes the result is a sparse array, in which such
    items have no entries.
    """
    crowd = crowd_of(ann)
    return crowd.run(Votes(crowd.sizes))[1]


@of_any_labels
def majority_vote(ann: Annotations, ties: Ties = "first") -> Consensus:
    """Return each item's most frequent label, with the soft vote as probabilities.

    Parameters
    ----------
    ann : Annotations or any form of labels that `CrowdClassifier.fit` takes
    ties : {"first", "missing"}
        Label of an item with several most frequent labels: the first of them in the order of ``ann.classes``, or None.
        An item without labels counts as a tie of all classes.

    Returns
    -------
    Consensus
    """
    if ties not in get_args(Ties):
        raise CrowdshotError(f"is {ties!r}", argument="ties", found=ties, expected=f"one of {listing(get_args(Ties))}")
    shares = soft_vote(ann)
    best, top = likeliest(shares)
    labels = ann.classes[best]
    if ties == "missing":
        rows, columns = shares.nonzero()
        share = np.asarray(shares[rows, columns]).ravel()  # older SciPy returns a row of a sparse array as a matrix
        tied = np.bincount(rows, share == top[rows], minlength=ann.n_items) > 1
        labels = labels.astype(object)
        labels[tied] = None
    labelled = (np.bincount(ann.item, minlength=ann.n_items) > 0).astype(np.float64)
    return Consensus(labels, shares, class_probs=labelled @ shares / labelled.sum(), annotations=ann)


# ---- EM: Dawid–Skene and one-coin ----------------------------------------------------------------------------------


@of_any_labels
def dawid_skene(
    ann: Annotations,
    steps: int = STEPS,
    b: float = 0.0,
    c: float = 0.0,
    tolerance: float = 1e-6,
    gold: Gold = None,
) -> Consensus:
    """Fit a confusion matrix for every annotator by EM (Dawid and Skene, 1979).

    b = c = 0 is maximum likelihood. Items without labels get the class probabilities and do not affect the estimates.
    Annotators without labels get uniform confusion matrices.

    Parameters
    ----------
    ann : Annotations or any form of labels that `CrowdClassifier.fit` takes
    steps : int
        Largest number of EM steps.
    b, c : float
        Pseudo-counts of the paper's Dirichlet priors: for each class, and for each cell of a confusion matrix. c > 0
        makes annotators with few labels look like guessers, which costs accuracy with many classes.
    tolerance : float
        Stop when a step improves the log-posterior by less than this per label; 0 never stops early.
    gold : mapping, Series, DataFrame or array of shape (N,), optional
        Known true labels, ``{item: label}``. They stay fixed. Missing values are ignored.

    Returns
    -------
    Consensus
    """
    check_numbers(steps, b=b, c=c, tolerance=tolerance)
    return _em(ann, Matrices(c), steps, b, tolerance, gold)


@of_any_labels
def one_coin(
    ann: Annotations,
    steps: int = STEPS,
    b: float = 100.0,
    c: float = 1.0,
    tolerance: float = 1e-6,
    gold: Gold = None,
    right: float = 2.0,
) -> Consensus:
    """Fit one accuracy q for every annotator by EM; wrong labels are uniform over the other classes.

    Suits annotators with few labels. b = c = right = 0 is maximum likelihood.

    Parameters
    ----------
    ann, steps, tolerance, gold
        As in `dawid_skene`.
    b : float
        Pseudo-count of each class. The paper's 100 keeps classes from vanishing.
    c : float
        Pseudo-count of the right label and of each wrong label.
    right : float
        Additional pseudo-count of the right label. With few labels, EM needs a prior that annotators are better than
        chance; otherwise it may take all of them for guessers.

    Returns
    -------
    Consensus
        ``confusion`` holds the matrices that q implies.
    """
    check_numbers(steps, b=b, c=c, tolerance=tolerance, right=right)
    return _em(ann, Coins(c, right), steps, b, tolerance, gold)


def _em(ann: Annotations, model: Matrices | Coins, steps: int, b: float, tolerance: float, gold: Gold) -> Consensus:
    crowd = crowd_of(ann, gold)
    em = Em(crowd.sizes, len(ann), model, steps, b, tolerance)
    state, posterior = crowd.run(em)
    return Consensus(
        labels=ann.classes[likeliest(posterior)[0]],
        probabilities=posterior,
        class_probs=em.class_probs(state),
        confusion=None if crowd.sizes.sparse else em.confusion(state),
        log_posterior=state.log_posterior,
        annotations=ann,
    )


# ---- The registry --------------------------------------------------------------------------------------------------


class Settings(NamedTuple):
    """Settings of an aggregator for a crowd in parts (`crowdshot.model.parts`)."""

    sizes: Sizes
    n_labels: int
    steps: int
    ordered: bool = False
    history: Floats | None = None  # (R, 2) numbers of right and wrong labels in earlier projects
    gold: bool = False  # whether any item has a known class
    network: Network = None


@dataclass(frozen=True)
class Method:
    """An aggregation method: a function for annotations in memory, and an aggregator for a crowd in parts.

    Calling it aggregates annotations in memory: ``AGGREGATORS["one-coin"](ann, steps, gold)``.
    """

    aggregate: Callable[[Annotations, int, Gold], Consensus]
    in_parts: Callable[[Settings], Aggregator]
    uses_gold: bool = True

    def __call__(self, ann: Annotations, steps: int = STEPS, gold: Gold = None) -> Consensus:
        return self.aggregate(ann, steps, gold)


def _vote(ann: Annotations, steps: int, gold: Gold) -> Consensus:
    if gold is not None:
        others = [name for name, method in AGGREGATORS.items() if method.uses_gold]
        raise CrowdshotError(
            "A majority vote cannot use gold labels", argument="method", expected=f"a method among {listing(others)}"
        )
    return majority_vote(ann)


def _learned_in_parts(s: Settings) -> Aggregator:
    right, wrong = (None, None) if s.history is None else s.history.T
    network = label_model.first_rounds(network_of(s.network), s.steps)
    return corrected(Rounds(s.sizes, network, s.ordered, right, wrong, s.gold), s.n_labels)


_VOTE = Method(_vote, lambda s: Votes(s.sizes), uses_gold=False)
DEFAULT = "learned"  # the only method that uses history, ordered classes and another network
AGGREGATORS: dict[str, Method] = {
    "learned": Method(lambda ann, steps, gold: learned(ann, steps, gold), _learned_in_parts),
    "shrunk": Method(
        lambda ann, steps, gold: shrunk(ann, min(steps, SHRUNK_ROUNDS), gold),
        lambda s: Rounds(s.sizes, label_model.constant(min(s.steps, SHRUNK_ROUNDS)), gold=s.gold, power=1.0),
    ),
    "one-coin": Method(
        lambda ann, steps, gold: one_coin(ann, steps, gold=gold),
        lambda s: Em(s.sizes, s.n_labels, Coins(), s.steps, b=100.0, tolerance=1e-6),
    ),
    # c = 0 as in the textbook: with few labels per annotator, c > 0 was less accurate.
    "dawid-skene": Method(
        lambda ann, steps, gold: dawid_skene(ann, steps, gold=gold),
        lambda s: Em(s.sizes, s.n_labels, Matrices(), s.steps, b=0.0, tolerance=1e-6),
    ),
    "majority": _VOTE,
    "soft": _VOTE,
}
VOTES = tuple(name for name, method in AGGREGATORS.items() if not method.uses_gold)


def aggregator_of(method: str, settings: Settings) -> Aggregator:
    """Return the aggregator of this name in `AGGREGATORS` for a crowd in parts."""
    return Votes(settings.sizes) if settings.sizes.classes < 2 else AGGREGATORS[method].in_parts(settings)


# ---- Aggregation of labels that were read from files ---------------------------------------------------------------


class LabelsAggregated(NamedTuple):
    """The consensus of labels from files.

    ``probabilities`` (N, K) belong to ``names``: the classes or, if answers name several labels, the single labels.
    """

    annotations: Annotations
    consensus: Consensus
    names: Ids
    probabilities: NDArray[np.float64]

    @property
    def posterior(self) -> NDArray[np.float64]:
        """Return class probabilities (N, K) that sum to 1 over the classes: sets somebody named, and consensus sets."""
        posterior = self.consensus.probabilities
        return posterior if self.names is self.annotations.classes else posterior / posterior.sum(1, keepdims=True)


def aggregate_labels(
    read: LabelsRead,
    ann: Annotations,
    method: str = DEFAULT,
    steps: int = STEPS,
    gold: Mapping[Any, Any] | None = None,
    network: Network = None,
) -> LabelsAggregated:
    """Aggregate labels that were read from files.

    Only the default method uses the annotators' history and the order of classes.

    Parameters
    ----------
    read : LabelsRead
    ann : Annotations
        The labels as read, with the items and classes of ``gold`` added.
    method : str
        A name in `AGGREGATORS`.
    steps, gold, network
        As in `learned`.
    """
    require_default(method, history=read.history, network=network)

    def consensus_of(labels: Annotations, truth: Mapping[Any, Any] | None) -> Consensus:
        if method == DEFAULT:
            ordered = read.ordered and not read.several
            return learned(labels, steps, truth, network, ordered=ordered, history=read.history)
        return AGGREGATORS[method](labels, steps, truth)

    if read.several:
        ann_of_sets, consensus, yes = aggregate_sets(ann, consensus_of, gold)
        return LabelsAggregated(ann_of_sets, consensus, names_of(ann.classes), yes)
    consensus = consensus_of(ann, gold)
    return LabelsAggregated(ann, consensus, ann.classes, consensus.probabilities)


def require_default(method: str, **arguments: object) -> None:
    """Raise an error if an argument that only the default method uses is set with another method."""
    for name, value in arguments.items():
        if value and method != DEFAULT:
            raise CrowdshotError(
                f"cannot be used with method {method!r}", argument=name, found=method, expected=f"method {DEFAULT!r}"
            )
