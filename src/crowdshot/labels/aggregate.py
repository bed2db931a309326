"""Consensus from labels alone: the learned inference, which is the default, votes, Dawid–Skene and the one-coin model.

`learned` and `shrunk`: see `crowdshot.labels.inferred`. The story that the two others tell: item n has a true class t,
drawn from ``class_probs``; annotator r, shown an item of class t, says l with probability ``confusion[r, t, l]``. One
EM step is an M-step (class probabilities and confusion matrices from the belief λ, (N, K)) and then an E-step (λ from
these); the first M-step takes the soft vote for λ. Labels stay sparse: with the (N, R·K) matrix that holds a 1 where
annotator r gave item n the label l, the M-step's counts are (its transpose) @ λ and the E-step's scores are (it) @ log
confusion.

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
from numpy.typing import NDArray
from scipy import sparse

from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import Consensus as Consensus
from crowdshot.labels.consensus import check_numbers, gold_positions
from crowdshot.labels.inferred import learned as learned
from crowdshot.labels.inferred import shrunk as shrunk
from crowdshot.labels.known_truth import Gold
from crowdshot.wording import listing

Floats = NDArray[np.float64]
Ties = Literal["first", "missing"]

# Without a prior, a label that an annotator did give never gets probability zero: its count is at least this.
FLOOR = 1e-10
BLOCK = 4096  # items normalised at a time, so that the working set stays in the processor's cache


def soft_vote(ann: Annotations) -> Floats:
    """(N, K): each class's part of the item's labels, so that ties share evenly; 1/K where there is no label."""
    votes = ann.vote_counts()
    total = np.bincount(ann.item, minlength=ann.n_items)
    votes /= np.maximum(total, 1)[:, None]
    votes[total == 0] = 1.0 / ann.n_classes
    return votes


def majority_vote(ann: Annotations, ties: Ties = "first") -> Consensus:
    """Each item's most frequent label, with the soft vote as probabilities.

    ``ties``: an item on which several classes lead gets the ``"first"`` of them in the order of ``ann.classes``,
    or ``None`` as its label (``"missing"``). To a vote, an item without a label is a tie of all classes.
    """
    if ties not in get_args(Ties):
        raise CrowdshotError(f"ties is {ties!r}, expected one of {listing(get_args(Ties))}.")
    shares = soft_vote(ann)
    labels = ann.classes[shares.argmax(axis=1)]
    if ties == "missing":
        tied = (shares == shares.max(axis=1, keepdims=True)).sum(axis=1) > 1
        labels = labels.astype(object)
        labels[tied] = None
    labelled = (np.bincount(ann.item, minlength=ann.n_items) > 0).astype(np.float64)
    return Consensus(labels, shares, class_probs=np.einsum("n,nk->k", labelled, shares) / labelled.sum())


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
    given = np.bincount(ann.annotator * ann.n_classes + ann.label, minlength=ann.n_annotators * ann.n_classes)
    used = given.reshape(ann.n_annotators, ann.n_classes, 1) > 0  # [annotator, observed]
    used |= ~used.any(axis=1, keepdims=True)
    floor = np.where(used, FLOOR if c == 0 else 0.0, 0.0)

    def confusion(counts: Floats) -> tuple[Floats, float]:
        # α[r, l, k] = (Σₙ λₙₖ [r said l of n] + c) / (Σₙ λₙₖ [r labelled n] + K c)
        alpha = np.maximum(counts, floor) + c
        alpha /= alpha.sum(axis=1, keepdims=True)
        return alpha, c * float(np.log(alpha).sum()) if c else 0.0

    return _em(ann, confusion, steps, b, tolerance, gold)


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
    K = ann.n_classes
    n_labels = np.bincount(ann.annotator, minlength=ann.n_annotators)
    diagonal = np.arange(K)

    def confusion(counts: Floats) -> tuple[Floats, float]:
        # q[r] = (Σₙ λₙₗ [r said l of n] + c + right) / (labels of r + K c + right)
        hits = counts[:, diagonal, diagonal].sum(axis=1) + c + right
        total = n_labels + K * c + right
        q = np.full(len(hits), 1.0 / K)
        np.divide(hits, total, out=q, where=total > 0)
        wrong = np.clip((1.0 - q) / max(K - 1, 1), FLOOR, 1.0 - FLOOR)
        q = np.clip(q, FLOOR, 1.0 - FLOOR)
        alpha = np.empty_like(counts)
        alpha[:] = wrong[:, None, None]
        alpha[:, diagonal, diagonal] = q[:, None]
        return alpha, float(((c + right) * np.log(q) + c * (K - 1) * np.log(wrong)).sum())

    return _em(ann, confusion, steps, b, tolerance, gold)


def _em(
    ann: Annotations,
    confusion: Callable[[Floats], tuple[Floats, float]],
    steps: int,
    b: float,
    tolerance: float,
    gold: Gold,
) -> Consensus:
    """``confusion`` turns counts (R, K observed, K true) into as many probabilities and their log-prior."""
    N, R, K = ann.n_items, ann.n_annotators, ann.n_classes
    gold_item, gold_label = gold_positions(ann, gold)
    elsewhere = np.where(np.eye(K, dtype=bool)[gold_label], 0.0, -np.inf)  # log-probability of a gold item's classes
    counted = np.bincount(ann.item, minlength=N) > 0
    counted[gold_item] = True
    weights = counted.astype(np.float64)

    said = _label_matrix(ann)
    belief = soft_vote(ann)
    belief[gold_item] = np.exp(elsewhere)
    history: list[float] = []
    for _ in range(steps):
        # π[k] = (Σₙ λₙₖ + b) / (N + K b)
        class_probs = (np.einsum("n,nk->k", weights, belief) + b) / (weights.sum() + K * b)
        log_class_probs = np.log(np.maximum(class_probs, 0.0 if b else FLOOR))
        counts = (said.T @ belief).reshape(R, K, K)
        alpha, log_prior = confusion(counts)

        del belief  # the largest array there is: never keep two
        log_alpha = np.log(alpha, out=np.zeros_like(alpha), where=alpha > 0)
        belief = said @ log_alpha.reshape(R * K, K)
        belief[gold_item] += elsewhere
        log_likelihood = _normalise(belief, log_class_probs)

        history.append(log_likelihood + log_prior + b * float(log_class_probs.sum()))
        if tolerance > 0 and len(history) > 1 and history[-1] - history[-2] < tolerance * len(ann):
            break
    return Consensus(
        labels=ann.classes[belief.argmax(axis=1)],
        probabilities=belief,
        class_probs=class_probs,
        confusion=np.ascontiguousarray(alpha.transpose(0, 2, 1)),
        log_posterior=np.array(history),
    )


def _label_matrix(ann: Annotations) -> "sparse.csr_array":
    """(N, R·K) with a 1 at [item, annotator · K + label], in rows by counting, not by sorting."""
    shape = (ann.n_items, ann.n_annotators * ann.n_classes)
    small = np.int32 if max(*shape, len(ann)) < 2**31 else np.int64
    cells = (ann.item.astype(small), (ann.annotator * ann.n_classes + ann.label).astype(small))
    matrix = sparse.coo_array((np.ones(len(ann)), cells), shape=shape)
    matrix.has_canonical_format = True  # no pair stands twice, so there is nothing to sort or to sum
    return matrix.tocsr()


def _normalise(scores: Floats, log_class_probs: Floats) -> float:
    """(N, K) log p(labels | class) -> p(class | labels), in place; returns the log-likelihood.

    Works on (K, block) transposes, because NumPy is slow along a short last axis.
    """
    log_likelihood = 0.0
    for start in range(0, len(scores), BLOCK):
        rows = scores[start : start + BLOCK]
        block = np.add(rows.T, log_class_probs[:, None], order="C")
        top = block.max(axis=0)
        np.exp(np.subtract(block, top, out=block), out=block)
        total = block.sum(axis=0)
        rows[:] = np.divide(block, total, out=block).T
        log_likelihood += float(top.sum() + np.log(total).sum())
    return log_likelihood


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
