"""Aggregate answers with several labels as one yes/no question per label.

An answer "cat;dog" says yes to cat and dog, and no to every other label. The questions are aggregated one by one, and
the probability of a set of labels is the product of the probabilities of its answers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdshot.labels.annotations import Annotations
from crowdshot.labels.consensus import Consensus
from crowdshot.labels.spelling import JOINED, members, names_of, parts

NO_YES = np.array(["no", "yes"], dtype=object)


def aggregate_sets(
    ann: Annotations,
    aggregate: Callable[[Annotations, Mapping[Any, str] | None], Consensus],
    gold: Mapping[Any, str] | None = None,
) -> tuple[Annotations, Consensus, NDArray[np.float64]]:
    """Aggregate answers that name several labels.

    Parameters
    ----------
    ann : Annotations
        Classes are sets of labels, such as "cat;dog".
    aggregate : callable
        Aggregates the answers to one yes/no question.
    gold : mapping, optional
        Known sets of labels.

    Returns
    -------
    annotations : Annotations
        With the consensus sets added to the classes.
    consensus : Consensus
        The likeliest set that is not empty. ``probabilities`` cover the sets that somebody named or that are
        consensus labels.
    yes : array of shape (N, K)
        Probability of each label.
    """
    names = names_of(ann.classes)
    member = members(ann.classes, names)
    yes = np.empty((ann.n_items, len(names)))
    for k in range(len(names)):
        question = _question(ann, member[:, k])
        truth = None if gold is None else {item: NO_YES[int(names[k] in parts(label))] for item, label in gold.items()}
        yes[:, k] = aggregate(question, truth).probabilities[:, 1]
    likeliest = yes > 0.5
    likeliest[np.arange(len(yes)), yes.argmax(1)] = True
    new = {JOINED.join(names[row]) for row in np.unique(likeliest, axis=0)} - set(ann.classes)
    classes = np.array([*ann.classes, *sorted(new)], dtype=object)
    posterior = _set_probabilities(yes, members(classes, names))
    ann = replace(ann, classes=classes)
    return ann, Consensus(classes[posterior.argmax(1)], posterior, posterior.mean(0), annotations=ann), yes


def yes_no_questions(ann: Annotations, posterior: NDArray[np.float64]) -> list[tuple[Annotations, NDArray[np.float64]]]:
    """Split answers that name several labels into one yes/no question per label.

    Parameters
    ----------
    ann : Annotations
    posterior : array of shape (N, S)
        Probabilities of the S sets.

    Returns
    -------
    list of (Annotations, array of shape (N, 2))
        The answers to each question and the probabilities of no and yes.
    """
    member = members(ann.classes, names_of(ann.classes))
    yes = (posterior @ member).clip(0, 1)
    return [(_question(ann, member[:, k]), np.stack([1 - yes[:, k], yes[:, k]], 1)) for k in range(yes.shape[1])]


def _question(ann: Annotations, member: NDArray[np.bool_]) -> Annotations:
    """Return the answers to one question; member (S,): whether a set contains the label."""
    return replace(ann, label=member[ann.label].astype(np.int64), classes=NO_YES)


def _set_probabilities(yes: NDArray[np.float64], sets: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return (N, S) probabilities of sets (S, K) from the probabilities of their labels, yes (N, K)."""
    with np.errstate(divide="ignore"):
        log_yes, log_no = np.log(yes), np.log1p(-yes)
    terms = [np.where(chosen, log_yes, log_no).sum(1) for chosen in sets]
    product: NDArray[np.float64] = np.exp(np.stack(terms, 1)).round(12)  # rounding keeps ties equal
    return product
