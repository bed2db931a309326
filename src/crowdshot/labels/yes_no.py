"""Consensus of sets of labels: a yes/no question for each label that anybody named.

Whoever labels an item answers every question about it: yes for what they name, no for all else. The questions are
believed one by one; the probability of a set is that of all its answers together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdshot.labels.aggregate import Consensus
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.choices import JOINED, members, names_of, parts

NO_YES = np.array(["no", "yes"], dtype=object)


def believe(
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
    belief = _probability(yes, members(classes, names))
    ann = replace(ann, classes=classes)
    return ann, Consensus(classes[belief.argmax(1)], belief, belief.mean(0)), yes


def questions(
    ann: Annotations, belief: NDArray[np.float64], several: bool = True
) -> list[tuple[Annotations, NDArray[np.float64]]]:
    """For each label, what was answered about it and (N, 2) what is believed; belief (N, S) in the sets.

    Where answers do not name ``several`` labels, there is one question: the labels and the belief as they are.
    """
    if not several:
        return [(ann, belief)]
    said = members(ann.classes, names_of(ann.classes))
    yes = (belief @ said).clip(0, 1)
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
