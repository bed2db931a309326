"""Arrays that several parts of the report use, computed from a fitted classifier."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from crowdshot.classifier.crowd_classifier import CrowdClassifier
from crowdshot.formatting import apart, clean
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_flags import Judged, judge_each
from crowdshot.labels.confidence import THRESHOLD
from crowdshot.labels.indexing import Positions

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Basis:
    """A fitted classifier and the embeddings (N, D) that it was fitted to."""

    clf: CrowdClassifier
    embeddings: Tensor

    @property
    def annotations(self) -> Annotations:
        return self.clf.annotations_

    @cached_property
    def posterior(self) -> Floats:
        """Class probabilities (N, K)."""
        return self.clf.label_proba_

    @cached_property
    def votes(self) -> Floats:
        """Number of labels of each class (N, K)."""
        return self.annotations.vote_counts()

    @cached_property
    def label(self) -> Positions:
        """The most probable class (N,): the consensus or, for unlabelled items, the classifier's prediction."""
        return np.asarray(self.posterior.argmax(1), dtype=np.int64)

    @cached_property
    def confidence(self) -> Floats:
        return np.asarray(self.posterior.max(1))

    @cached_property
    def labelled(self) -> NDArray[np.bool_]:
        return np.asarray(self.votes.sum(1) > 0)

    @cached_property
    def judged(self) -> list[Judged | None]:
        """The judgement of each annotator (R,); None for annotators without labels."""
        names = [apart(name) for name in self.annotations.classes]
        return judge_each(self.annotations, self.posterior, names, self.clf.known_.history)

    @property
    def known(self) -> NDArray[np.bool_]:
        """Whether the true label of each item is known (N,)."""
        return np.asarray(self.clf.known_.gold >= 0)

    @cached_property
    def accepted(self) -> NDArray[np.bool_]:
        return np.asarray(self.confidence >= THRESHOLD)

    @cached_property
    def unchosen(self) -> NDArray[np.bool_]:
        """Whether an item has labels, but none of its most probable class (N,)."""
        return np.asarray(self.labelled & (self.votes_for(self.label) == 0))

    def name(self, item: int) -> str:
        return clean(self.annotations.items[item])

    def votes_for(self, label: Positions) -> Floats:
        """Return how many labels of each item equal ``label`` (N,)."""
        out: Floats = self.votes[np.arange(len(label)), label]
        return out
