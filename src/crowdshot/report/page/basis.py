"""Gather what the report is computed from: labels, posteriors, annotators and, if items have features, a classifier."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import apart, clean
from crowdshot.io.cells import Positions
from crowdshot.labels import gold_labels
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_flags import Judged, judge_each
from crowdshot.labels.annotator_quality import MIN_ACCURACY
from crowdshot.labels.consensus import THRESHOLD, Floats, is_accepted, is_overruled
from crowdshot.model.parts import PosteriorMatrix

if TYPE_CHECKING:
    from torch import Tensor

    from crowdshot.classifier.crowd_aggregator import CrowdAggregator
    from crowdshot.classifier.crowd_classifier import CrowdClassifier

MOST_CELLS = 50_000_000  # of all confusion matrices, which a report keeps in memory


@dataclass(frozen=True, eq=False)
class Basis:
    """The labels of a crowd and the results that the report shows.

    Attributes
    ----------
    annotations : Annotations
    posterior : array (N, K)
        Class probabilities of the items.
    people : DataFrame
        The table of annotators.
    compared : DataFrame
        Known true labels, compared with the consensus without them (`crowdshot.labels.gold_labels.compare`).
    known : array (N,)
        Whether the true label of each item is known.
    history : array (R, 2) or None
        The annotators' right and wrong labels in earlier projects.
    several : bool
        Whether the classes are sets of labels.
    clf, embeddings : CrowdClassifier and tensor (N, D), or None
        The classifier and the embeddings it was fitted to, if items have features.
    """

    annotations: Annotations
    posterior: Floats
    people: pd.DataFrame
    compared: pd.DataFrame
    known: NDArray[np.bool_]
    history: Floats | None = None
    several: bool = False
    clf: CrowdClassifier | None = field(default=None, repr=False)
    embeddings: Tensor | None = field(default=None, repr=False)

    @classmethod
    def of_classifier(cls, clf: CrowdClassifier, embeddings: Tensor, min_accuracy: float = MIN_ACCURACY) -> Basis:
        """Return the basis of a report on a fitted classifier and its embeddings (N, D)."""
        return cls(
            clf.annotations_,
            clf.label_proba_,
            clf.judge_annotators(min_accuracy),
            clf.gold_,
            np.asarray(clf._known.gold >= 0),
            clf._known.history,
            bool(clf.settings_.get("several")),
            clf,
            embeddings,
        )

    @classmethod
    def of_aggregator(cls, crowd: CrowdAggregator) -> Basis:
        """Return the basis of a report on labels alone."""
        ann, known = crowd.annotations_, crowd._known
        posterior = dense(crowd.label_proba_, ann)
        return cls(ann, posterior, crowd.annotators_, crowd.gold_, np.asarray(known.gold >= 0), known.history)

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
        return judge_each(self.annotations, self.posterior, names, self.history)

    @cached_property
    def accepted(self) -> NDArray[np.bool_]:
        return is_accepted(self.confidence, THRESHOLD)

    @cached_property
    def overruled(self) -> NDArray[np.bool_]:
        """Whether another class has more labels than the most probable one (N,), without known truth."""
        return is_overruled(self.votes, self.label) & ~self.known

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


def dense(posterior: PosteriorMatrix, ann: Annotations) -> Floats:
    """Return the posterior of a report as an array; refuse more classes than a report can show."""
    if not isinstance(posterior, np.ndarray) or ann.n_annotators * ann.n_classes**2 > MOST_CELLS:
        raise CrowdshotError(
            f"has {ann.n_classes:,} classes and {ann.n_annotators:,} annotators, too many for a report",
            argument="labels",
            found=ann.n_classes,
            expected=f"confusion matrices with {MOST_CELLS:,} cells or fewer",
        )
    return posterior


def compare_gold(ann: Annotations, known: Positions, without_gold: Floats) -> pd.DataFrame:
    """Compare known classes (N,), -1 for none, with the posterior (N, K) that was computed without them."""
    return gold_labels.compare(ann, known, without_gold[known >= 0])
