"""What a fitted classifier says of its items and annotators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from crowdshot.classifier.contract import Fitted, belief_of
from crowdshot.classifier.known import Known
from crowdshot.classifier.outliers import find_outliers
from crowdshot.errors import CrowdshotError
from crowdshot.files.cells import Ids
from crowdshot.labels import known_truth
from crowdshot.labels.aggregate import Consensus
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotators import judge
from crowdshot.labels.quality import label_quality, likely_wrong


class Findings:
    """Of `CrowdClassifier`, once it is fitted."""

    fit_: Fitted
    settings_: dict[str, Any]
    annotations_: Annotations
    classes_: Ids
    known_: Known
    without_gold_: NDArray[np.float64]
    embeddings_: Tensor | None

    @property
    def scale_(self) -> float | None:
        check_is_fitted(self, "fit_")
        return self.settings_.get("scale")

    @property
    def confusion_(self) -> NDArray[np.float64]:
        check_is_fitted(self, "fit_")
        out: NDArray[np.float64] = self.fit_.confusion.double().cpu().numpy()
        return out

    @property
    def belief_(self) -> NDArray[np.float64]:
        """p(class | labels, items), (N, K), columns in the order of ``classes_``; rows sum to one."""
        check_is_fitted(self, "fit_")
        return belief_of(self.fit_)

    @property
    def consensus_(self) -> pd.DataFrame:
        probabilities = self.belief_
        class_probs = self.fit_.class_probs.double().cpu().numpy()
        best = self.classes_[probabilities.argmax(1)]
        return Consensus(best, probabilities, class_probs).to_frame(self.annotations_)

    @property
    def gold_(self) -> pd.DataFrame:
        """item, truth, believed, confidence, n_labels: gold, and what would be believed of these items without it."""
        check_is_fitted(self, "fit_")
        return known_truth.compare(self.annotations_, self.known_.gold, self.without_gold_)

    @property
    def annotators_(self) -> pd.DataFrame:
        """Accuracy is judged by the consensus, whose own doubt widens the interval (`crowdshot.labels.annotators`)."""
        return judge(self.annotations_, self.belief_, self.known_.history)

    @property
    def label_quality_(self) -> pd.DataFrame:
        """A row for each label: how probable it is that it is right (`crowdshot.labels.quality`)."""
        return label_quality(self.annotations_, self.belief_)

    @property
    def likely_wrong_(self) -> pd.DataFrame:
        """The labels that are rather wrong than right, the worst first."""
        return likely_wrong(self.annotations_, self.belief_)

    @property
    def outliers_(self) -> pd.DataFrame:
        """A row for each item, those first that look like no other (`crowdshot.classifier.outliers`)."""
        check_is_fitted(self, "fit_")
        if self.embeddings_ is None:
            raise CrowdshotError("the classifier has been loaded without its items, expected them; fit it again.")
        return find_outliers(self.embeddings_.double().cpu().numpy(), self.annotations_, self.belief_)
