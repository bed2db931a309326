"""Consensus from labels alone: the learned inference, which is the default, votes, Dawid–Skene and the one-coin model.

`learned` and `shrunk`: see `crowdshot.labels.inferred`. The story that the two others tell: item n has a true class t,
drawn from ``class_probs``; annotator r, shown an item of class t, says l with probability ``confusion[r, t, l]``. One
EM step is an M-step (class probabilities and confusion matrices from the belief λ, (N, K)) and then an E-step (λ from
these); the first M-step takes the soft vote for λ (`crowdshot.model.em`).

A. P. Dawid and A. M. Skene. Maximum likelihood estimation of observer error-rates using the EM algorithm.
Applied Statistics 28(1), 1979. With Dirichlet priors: Kumagai et al., ICML 2025, equations for λ, π and α.

>>> from crowdshot import Annotations, aggregate
>>> said = Annotations.from_dict({"a": {"ann": "cat", "bob": "cat", "cyd": "dog"}, "b": {"ann": "dog", "bob": "dog"}})
>>> aggregate.learned(said).labels.tolist()
['cat', 'dog']
>>> aggregate.majority_vote(said).probabilities.round(2).tolist()
[[0.67, 0.33], [0.0, 1.0]]
"""

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import Consensus as Consensus
from crowdshot.labels.consensus import check_numbers, in_parts
from crowdshot.labels.inferred import learned as learned
from crowdshot.labels.inferred import shrunk as shrunk
from crowdshot.labels.known_truth import Gold
from crowdshot.labels.matching import of_any_labels
from crowdshot.model.beliefs import Votes, likeliest
from crowdshot.model.em import Coins, Em, Matrices
from crowdshot.model.parts import Belief
from crowdshot.wording import listing

Ties = Literal["first", "missing"]


@of_any_labels
def soft_vote(ann: Annotations) -> Belief:
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
    state, belief = crowd.believe(way)
    return Consensus(
        labels=ann.classes[likeliest(belief)[0]],
        probabilities=belief,
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
