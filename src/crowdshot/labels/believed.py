"""What is believed by labels alone: of classes or, where answers name several labels, of sets of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.files.cells import Ids
from crowdshot.labels import yes_no
from crowdshot.labels.aggregate import AGGREGATORS, DEFAULT, STEPS, Consensus
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.choices import names_of
from crowdshot.labels.formats.labels import LabelsRead
from crowdshot.labels.inferred import Network, learned


class Believed(NamedTuple):
    """``probabilities`` (N, K) of ``names``: of classes or, where answers name several, of yes to each label."""

    annotations: Annotations
    consensus: Consensus
    names: Ids
    probabilities: NDArray[np.float64]

    @property
    def belief(self) -> NDArray[np.float64]:
        """(N, K) in the annotations' classes; of all sets those that somebody named, and the likeliest."""
        belief = self.consensus.probabilities
        return belief if self.names is self.annotations.classes else belief / belief.sum(1, keepdims=True)


def believe(
    read: LabelsRead,
    ann: Annotations,
    method: str = DEFAULT,
    steps: int = STEPS,
    gold: Mapping[Any, Any] | None = None,
    network: Network = None,
) -> Believed:
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
        several = yes_no.believe(ann, consensus_of, gold)
        return Believed(several[0], several[1], names_of(ann.classes), several[2])
    consensus = consensus_of(ann, gold)
    return Believed(ann, consensus, ann.classes, consensus.probabilities)


def of_default_alone(method: str, **given: object) -> None:
    """Refuses what only the default can use, with another method."""
    for name, value in given.items():
        if value and method != DEFAULT:
            raise CrowdshotError(f"{name} is given with method {method!r}, expected {DEFAULT!r} with it.")
