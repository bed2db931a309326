"""Consensus from labels alone: the learned inference, which is the default, votes, Dawid–Skene and the one-coin model.

`learned` and `shrunk`: see `crowdshot.labels.aggregation`. The story that the two others tell: item n has a true class t,
drawn from ``class_probs``; annotator r, shown an item of class t, says l with probability ``confusion[r, t, l]``. One
EM step is an M-step (class probabilities and confusion matrices from the posterior λ, (N, K)) and then an E-step (λ from
these); the first M-step takes the soft vote for λ (`crowdshot.model.dawid_skene`).

A. P. Dawid and A. M. Skene. Maximum likelihood estimation of observer error-rates using the EM algorithm.
Applied Statistics 28(1), 1979. With Dirichlet priors: Kumagai et al., ICML 2025, equations for λ, π and α.

>>> from crowdshot import Annotations, aggregate
>>> said = Annotations.from_dict({"a": {"ann": "cat", "bob": "cat", "cyd": "dog"}, "b": {"ann": "dog", "bob": "dog"}})
>>> aggregate.learned(said).labels.tolist()
['cat', 'dog']
>>> aggregate.majority_vote(said).probabilities.round(2).tolist()
[[0.67, 0.33], [0.0, 1.0]]
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, listing, show
from crowdshot.io.cells import Ids
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import expected_confusion
from crowdshot.labels.consensus import Consensus, check_numbers, in_parts
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.labels.gold_labels import Gold, find_items
from crowdshot.labels.indexing import positions, unique_ids
from crowdshot.labels.label_sets import JOINED, members, names_of, parts
from crowdshot.labels.matching import of_any_labels, row_by_row
from crowdshot.model import feature_model, label_model
from crowdshot.model.dawid_skene import Coins, Em, Matrices
from crowdshot.model.label_model import network_of
from crowdshot.model.label_model_parts import Rounds
from crowdshot.model.parts import Aggregator, PosteriorMatrix, Sizes
from crowdshot.model.posteriors import SHARPER, Votes, likeliest

# ---- inferred ------------------------------------------------------------
#
# Consensus by the learned inference (`crowdshot.model.label_model`), and by the closed form that it starts from.


Floats = NDArray[np.float64]
History = Mapping[Any, tuple[float, float]]
Network = str | os.PathLike[str] | Mapping[str, Floats] | None
LEAST = 1e-9  # of a probability, where its logarithm is taken


@of_any_labels
def learned(
    ann: Annotations,
    steps: int = 100,
    gold: Gold = None,
    network: Network = None,
    *,
    ordered: bool = False,
    history: History | None = None,
    pred_probs: ArrayLike | None = None,
) -> Consensus:
    """The default: a few rounds of EM whose constants were learned from simulated crowds.

    More careful than Dawid–Skene's: never much below a vote, and as sure as it is right (`crowdshot.model.label_model`,
    docs/inference.md). ``steps``: rounds at most; it has three. ``gold``: as in `dawid_skene`. ``network``: the file of
    another than the shipped one, or its tensors. ``ordered``: the classes are in order (low, medium, high), so that a
    neighbour is the likelier mistake. ``history``: ``{annotator: (right, wrong)}``, counts from earlier projects; who
    is not among these annotators is passed over. ``pred_probs`` (N, K): what any classifier that never met these labels
    says of the items, trusted by how well it foretells them; a DataFrame that names items and classes goes by these.

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
    return _inferred(ann, gold, rounds, ordered, history, pred_probs)


@of_any_labels
def shrunk(ann: Annotations, steps: int = 3, gold: Gold = None) -> Consensus:
    """What `learned` starts from, with the same constants for every crowd: a closed form, of ``steps`` rounds."""
    check_numbers(steps)
    return _inferred(ann, gold, label_model.constant(steps), power=1.0)


def _inferred(
    ann: Annotations,
    gold: Gold,
    network: Mapping[str, Floats],
    ordered: bool = False,
    history: History | None = None,
    pred_probs: ArrayLike | None = None,
    power: float = SHARPER,
) -> Consensus:
    crowd = in_parts(ann, gold)
    N, K = ann.n_items, ann.n_classes
    known = crowd.known
    said = None if pred_probs is None else check_probabilities(ann, pred_probs, ann.items.tolist())
    right, wrong = (None, None) if history is None else _counts(ann, history)
    if K < 2:
        return Consensus(np.repeat(ann.classes, N), np.ones((N, K)), np.ones(K))
    way = Rounds(crowd.sizes, network, ordered, right, wrong, gold=bool((known >= 0).any()), power=power)
    posterior = crowd.believe(way)[1]
    told = (np.bincount(ann.item, minlength=N) > 0) | (known >= 0)
    class_probs = told @ posterior / told.sum()
    if not isinstance(posterior, np.ndarray):
        if said is not None:
            raise CrowdshotError(f"pred_probs is given with {K} classes, expected fewer where items are so many.")
        return Consensus(ann.classes[likeliest(posterior)[0]], posterior, class_probs)
    posterior[~told] = class_probs  # of items that nobody labelled the class sizes are all that is known
    if said is not None:
        evidence = np.log(posterior.clip(LEAST)) - np.log(class_probs.clip(LEAST))
        beside = posterior * np.exp(feature_model.BESIDE_LABELS * feature_model.trusted(said, evidence, told))
        posterior = np.where((known >= 0)[:, None], posterior, beside / beside.sum(axis=1, keepdims=True))
        class_probs = posterior[told].sum(axis=0) / told.sum()
    return Consensus(
        labels=ann.classes[posterior.argmax(axis=1)],
        probabilities=posterior,
        class_probs=class_probs,
        confusion=expected_confusion(ann, posterior),
    )


def _counts(ann: Annotations, history: History) -> tuple[Floats, Floats]:
    """(R,), (R,): answers that were right and wrong before; 0 of who has no history."""
    right, wrong = np.zeros(ann.n_annotators), np.zeros(ann.n_annotators)
    for place, name in enumerate(ann.annotators):
        if name in history:
            right[place], wrong[place] = history[name]
    bad = ~(np.isfinite(right) & np.isfinite(wrong) & (right >= 0) & (wrong >= 0))
    if bad.any():
        who = first(bad)
        raise CrowdshotError(
            f"history has {right[who]:g} right and {wrong[who]:g} wrong of annotator {show(ann.annotators[who])}, "
            "expected numbers, 0 or more."
        )
    return right, wrong


def check_probabilities(ann: Annotations, pred_probs: Any, names: Sequence[Any] | None = None) -> Floats:
    """(N, K), a row for each item and a column for each class; a DataFrame's go by ``names`` of items and by classes.

    ``names`` (N,): None where rows are in order whatever they are called.
    """
    if isinstance(pred_probs, pd.DataFrame):
        pred_probs = _with_rows_of(_with_columns_of(pred_probs, ann), ann, names)
    try:
        p: Floats = np.ascontiguousarray(pred_probs, dtype=np.float64)  # a reversed view could not be saved
    except (TypeError, ValueError):
        raise CrowdshotError("pred_probs is no table of numbers, expected a row an item, a column a class.") from None
    if p.shape != (ann.n_items, ann.n_classes):
        columns = f"a column for each of {listing(ann.classes)}"
        raise CrowdshotError(f"pred_probs has shape {p.shape}, expected {(ann.n_items, ann.n_classes)}, {columns}.")
    wrong = ~((p >= 0).all(axis=1) & (np.abs(p.sum(axis=1) - 1) < 1e-3))  # NaN is neither
    if wrong.any():
        raise CrowdshotError(
            f"pred_probs has no probabilities for item {show(ann.items[first(wrong)])}, expected numbers, 0 or more, "
            "that sum to 1."
        )
    return p


def _with_columns_of(table: pd.DataFrame, ann: Annotations) -> pd.DataFrame:
    """Columns in the order of the classes that they are called by; as they are where they are merely counted."""
    called = [str(name) for name in unique_ids(table.columns, "pred_probs").tolist()]
    classes = [str(name) for name in ann.classes.tolist()]
    if sorted(called) == sorted(classes):
        return table.iloc[:, positions(np.array(called, dtype=object), classes)]
    if called == [str(place) for place in range(len(called))]:
        return table
    strange = [name for name, word in zip(table.columns, called, strict=True) if word not in classes]
    found = f"has column {show(strange[0])}" if strange else f"has {len(called)} columns"
    raise CrowdshotError(f"pred_probs {found}, expected one for each of {listing(ann.classes)}.")


def _with_rows_of(table: pd.DataFrame, ann: Annotations, names: Sequence[Any] | None) -> pd.DataFrame:
    """Rows in the order of the items that they are called by."""
    if names is None or row_by_row(table.index, names):
        return table
    row = find_items(list(table.index), ann.items, names, "pred_probs")
    lost = np.setdiff1d(np.arange(ann.n_items), row)
    if len(lost):
        raise CrowdshotError(f"pred_probs has no row for item {show(ann.items[lost[0]])}, expected one for each item.")
    if (row < 0).any():
        stranger = show(table.index[first(row < 0)])
        raise CrowdshotError(
            f"pred_probs has a row for {stranger}, expected items that are there, as {listing(ann.items, 1)}."
        )
    return table.iloc[np.argsort(row)]


# ---- aggregate ------------------------------------------------------------


Ties = Literal["first", "missing"]


@of_any_labels
def soft_vote(ann: Annotations) -> PosteriorMatrix:
    """(N, K): each class's part of the item's labels, so that ties share evenly; 1/K where there is no label.

    Where classes are many the table is sparse, and items without a label have nothing in it.
    """
    crowd = in_parts(ann)
    return crowd.believe(Votes(crowd.sizes))[1]


@of_any_labels
def majority_vote(ann: Annotations, ties: Ties = "first") -> Consensus:
    """Each item's most frequent label, with the soft vote as probabilities.

    ``ties``: an item on which several classes lead gets the ``"first"`` of them in the order of ``ann.classes``,
    or ``None`` as its label (``"missing"``). To a vote, an item without a label is a tie of all classes.
    """
    if ties not in get_args(Ties):
        raise CrowdshotError(f"ties is {ties!r}, expected one of {listing(get_args(Ties))}.")
    shares = soft_vote(ann)
    best, top = likeliest(shares)
    labels = ann.classes[best]
    if ties == "missing":
        rows, columns = shares.nonzero()
        named = np.asarray(shares[rows, columns]).ravel()  # of a sparse table, older SciPy gives a row
        tied = np.bincount(rows, named == top[rows], minlength=ann.n_items) > 1
        labels = labels.astype(object)
        labels[tied] = None
    labelled = (np.bincount(ann.item, minlength=ann.n_items) > 0).astype(np.float64)
    return Consensus(labels, shares, class_probs=labelled @ shares / labelled.sum())


@of_any_labels
def dawid_skene(
    ann: Annotations,
    steps: int = 100,
    b: float = 0.0,
    c: float = 0.0,
    tolerance: float = 1e-6,
    gold: Gold = None,
) -> Consensus:
    """Dawid–Skene: a confusion matrix an annotator. b = c = 0 is maximum likelihood.

    ``b``, ``c``: the paper's Dirichlet priors, pseudo-counts for each class and for each cell of a confusion
    matrix. c > 0 takes an annotator with few labels for one who guesses, which costs accuracy where classes are many.
    ``tolerance``: stop before ``steps`` are done once a step gains less than this a label; 0 never does.
    ``gold``: ``{item: label}`` known to be true, held fixed throughout (missing values are passed over).

    An item without a label gets the class probabilities and has no part in estimating them; an annotator
    without a label gets uniform rows.
    """
    check_numbers(steps, b=b, c=c, tolerance=tolerance)
    return _em(ann, Matrices(c), steps, b, tolerance, gold)


@of_any_labels
def one_coin(
    ann: Annotations,
    steps: int = 100,
    b: float = 100.0,
    c: float = 1.0,
    tolerance: float = 1e-6,
    gold: Gold = None,
    right: float = 2.0,
) -> Consensus:
    """Dawid–Skene with one number an annotator: right with probability q, wrong evenly over the other classes.

    The model of choice where annotators gave few labels. ``c`` is the pseudo-count of the right label and of each wrong
    one, ``right`` a further one of the right label: with few labels EM must be told that people are better than chance,
    or it may take them all for guessers. The other arguments are those of ``dawid_skene``; the paper's b = 100 keeps
    classes from dying out, and b = c = right = 0 is maximum likelihood. ``confusion`` holds the matrices q implies.
    """
    check_numbers(steps, b=b, c=c, tolerance=tolerance, right=right)
    return _em(ann, Coins(c, right), steps, b, tolerance, gold)


def _em(ann: Annotations, model: Matrices | Coins, steps: int, b: float, tolerance: float, gold: Gold) -> Consensus:
    crowd = in_parts(ann, gold)
    way = Em(crowd.sizes, len(ann), model, steps, b, tolerance)
    state, posterior = crowd.believe(way)
    return Consensus(
        labels=ann.classes[likeliest(posterior)[0]],
        probabilities=posterior,
        class_probs=way.class_probs(state),
        confusion=None if crowd.sizes.sparse else way.confusion(state),
        log_posterior=state.log_posterior,
    )


def _vote(ann: Annotations, steps: int, gold: Gold) -> Consensus:
    if gold is not None:
        raise CrowdshotError("method is a vote, expected another method with gold=.")
    return majority_vote(ann)


STEPS = 100  # of EM at most, where labels are all there is
VOTES = ("majority", "soft")  # which can use no known truth
# One number an annotator is what a few labels can support.
# Dawid-Skene is the textbook's: with few labels its many numbers are guesses, and c > 0 makes them worse, not better.
DEFAULT = "learned"
AGGREGATORS: dict[str, Callable[[Annotations, int, Gold], Consensus]] = {
    "learned": lambda ann, steps, gold: learned(ann, steps, gold),
    "shrunk": lambda ann, steps, gold: shrunk(ann, min(steps, 3), gold),
    "one-coin": lambda ann, steps, gold: one_coin(ann, steps, gold=gold),
    "dawid-skene": lambda ann, steps, gold: dawid_skene(ann, steps, gold=gold),
    **dict.fromkeys(VOTES, _vote),
}


# ---- ways ------------------------------------------------------------
#
# The ways to a consensus by their names, for a crowd that lies anywhere (`crowdshot.model.parts`).


def aggregator_of(
    method: str,
    sizes: Sizes,
    n_labels: int,
    steps: int,
    *,
    ordered: bool = False,
    history: Floats | None = None,
    gold: bool = False,
    network: Network = None,
) -> Aggregator:
    """As `aggregate.AGGREGATORS` has them. ``history`` (R, 2): labels that were right and wrong before."""
    if method in VOTES or sizes.classes < 2:
        return Votes(sizes)
    if method == "one-coin":
        return Em(sizes, n_labels, Coins(), steps, b=100.0, tolerance=1e-6)
    if method == "dawid-skene":
        return Em(sizes, n_labels, Matrices(), steps, b=0.0, tolerance=1e-6)
    if method == "shrunk":
        return Rounds(sizes, label_model.constant(min(steps, 3)), gold=gold, power=1.0)
    right, wrong = (None, None) if history is None else history.T
    return Rounds(sizes, label_model.first_rounds(network_of(network), steps), ordered, right, wrong, gold)


# ---- yes no ------------------------------------------------------------
#
# Consensus of sets of labels: a yes/no question for each label that anybody named.
#
# Whoever labels an item answers every question about it: yes for what they name, no for all else. The questions are
# believed one by one; the probability of a set is that of all its answers together.


NO_YES = np.array(["no", "yes"], dtype=object)


def aggregate_sets(
    ann: Annotations,
    aggregate: Callable[[Annotations, Mapping[Any, str] | None], Consensus],
    gold: Mapping[Any, str] | None = None,
) -> tuple[Annotations, Consensus, NDArray[np.float64]]:
    """The annotations with all sets that are believed among their classes, the consensus, and (N, K) p(yes).

    ``aggregate``: how one yes/no question is believed. The consensus is the likeliest set that is not empty; of the
    others its ``probabilities`` have those that somebody named.
    """
    names = names_of(ann.classes)
    said = members(ann.classes, names)
    yes = np.empty((ann.n_items, len(names)))
    for k in range(len(names)):
        question = _about(ann, said[:, k])
        truth = None if gold is None else {item: NO_YES[int(names[k] in parts(label))] for item, label in gold.items()}
        yes[:, k] = aggregate(question, truth).probabilities[:, 1]
    likeliest = yes > 0.5
    likeliest[np.arange(len(yes)), yes.argmax(1)] = True
    new = {JOINED.join(names[row]) for row in np.unique(likeliest, axis=0)} - set(ann.classes)
    classes = np.array([*ann.classes, *sorted(new)], dtype=object)
    posterior = _probability(yes, members(classes, names))
    ann = replace(ann, classes=classes)
    return ann, Consensus(classes[posterior.argmax(1)], posterior, posterior.mean(0)), yes


def questions(
    ann: Annotations, posterior: NDArray[np.float64], several: bool = True
) -> list[tuple[Annotations, NDArray[np.float64]]]:
    """For each label, what was answered about it and (N, 2) what is believed; posterior (N, S) in the sets.

    Where answers do not name ``several`` labels, there is one question: the labels and the posterior as they are.
    """
    if not several:
        return [(ann, posterior)]
    said = members(ann.classes, names_of(ann.classes))
    yes = (posterior @ said).clip(0, 1)
    return [(_about(ann, said[:, k]), np.stack([1 - yes[:, k], yes[:, k]], 1)) for k in range(yes.shape[1])]


def _about(ann: Annotations, said: NDArray[np.bool_]) -> Annotations:
    """The answers to one question; said (S,): whether a set says yes."""
    return replace(ann, label=said[ann.label].astype(np.int64), classes=NO_YES)


def _probability(yes: NDArray[np.float64], sets: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(N, S): of each set of answers, given (N, K) those of yes."""
    with np.errstate(divide="ignore"):
        log_yes, log_no = np.log(yes), np.log1p(-yes)
    terms = [np.where(chosen, log_yes, log_no).sum(1) for chosen in sets]
    together: NDArray[np.float64] = np.exp(np.stack(terms, 1)).round(12)  # so that ties are ties
    return together


# ---- believed ------------------------------------------------------------
#
# What is believed by labels alone: of classes or, where answers name several labels, of sets of them.


class LabelsAggregated(NamedTuple):
    """``probabilities`` (N, K) of ``names``: of classes or, where answers name several, of yes to each label."""

    annotations: Annotations
    consensus: Consensus
    names: Ids
    probabilities: NDArray[np.float64]

    @property
    def posterior(self) -> NDArray[np.float64]:
        """(N, K) in the annotations' classes; of all sets those that somebody named, and the likeliest."""
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
    """``ann``: the labels as read, with items and classes of gold.

    The default takes what annotators did before into account and, where classes are ordered, near misses for likelier
    than far ones; to others the order is nothing. ``network``: as in `aggregate.learned`.
    """
    of_default_alone(method, history=read.history, network=network)

    def consensus_of(labels: Annotations, truth: Mapping[Any, Any] | None) -> Consensus:
        if method == DEFAULT:
            ordered = read.ordered and not read.several
            return learned(labels, steps, truth, network, ordered=ordered, history=read.history)
        return AGGREGATORS[method](labels, steps, truth)

    if read.several:
        several = aggregate_sets(ann, consensus_of, gold)
        return LabelsAggregated(several[0], several[1], names_of(ann.classes), several[2])
    consensus = consensus_of(ann, gold)
    return LabelsAggregated(ann, consensus, ann.classes, consensus.probabilities)


def of_default_alone(method: str, **given: object) -> None:
    """Refuses what only the default can use, with another method."""
    for name, value in given.items():
        if value and method != DEFAULT:
            raise CrowdshotError(f"{name} is given with method {method!r}, expected {DEFAULT!r} with it.")
