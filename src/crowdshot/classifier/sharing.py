"""Reduce a fitted classifier to what predicts new items, for `CrowdClassifier.save(path, labels=False)`.

Labels, ids, posteriors of items, confusion matrices and embeddings are dropped. Two models predict with the embeddings
of fitted items, and are replaced:

- The labeling search compares items with the class means of many labelings. They differ by single items, which could
  be computed from them. The mean of these class means replaces them (`ClassMeans`).
- Regressions on a kernel compare items with landmarks among the fitted items. Normal draws around the class means
  replace the landmarks; the slopes are fitted to the same predictions (`_without_landmarks`).

Both change probabilities slightly. Other models predict as before.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from scipy.linalg import solve
from torch import Tensor

from crowdshot.classifier.feature_learners import CombinedFit, FeatureFit, MultiLabelFit
from crowdshot.classifier.learner_contract import FittedModel, Learner, tensors_of_part
from crowdshot.classifier.mixture_learners import LABELING_SEARCH
from crowdshot.errors import CrowdshotError, Use
from crowdshot.labels.annotations import Annotations
from crowdshot.model.feature_model import LANDMARKS
from crowdshot.model.labeling_search import Posterior
from crowdshot.model.mixture import Fit
from crowdshot.model.regressions import Floats, kernel

SEED = 0
RIDGE = 1e-10  # of the new slopes, as a share of the mean squared column of the kernel


@dataclass(frozen=True)
class ClassMeans:
    """A classifier by distances from class means, with one mean for each class. A `learner_contract.FittedModel`."""

    means: Tensor  # (K, D), times the scale
    prior: Tensor  # (K,)
    centre: Tensor  # (1, D)
    unit: Tensor  # (1, 1)
    sizes: Tensor | None = None  # (K,)

    @classmethod
    def of(cls, fit: Posterior) -> ClassMeans:
        """Average the class means of the labelings, by their weights."""
        u, share, prior = fit.terms()
        weight = fit.log_weights.exp()
        share, prior = (weight[:, None, None] * share).sum(0), (weight[:, None] * prior).sum(0)
        return cls(fit.scale * (share.mT @ u), prior, fit.centre, fit.unit, fit.sizes)

    @property
    def responsibilities(self) -> Tensor:
        return self.prior.new_zeros(0, len(self.prior))

    @property
    def class_probs(self) -> Tensor:
        return self.prior.softmax(-1)

    @property
    def confusion(self) -> Tensor:
        return self.prior.new_zeros(0, len(self.prior), len(self.prior))

    def log_proba(self, queries: Tensor, /) -> Tensor:
        return (((queries - self.centre) / self.unit) @ self.means.mT + self.prior).log_softmax(-1)


def without_items(fit: FittedModel, learner: str) -> FittedModel:
    """Return a fitted model without what it has of items and annotators.

    Raises
    ------
    CrowdshotError
        If the method predicts with its training items.
    """
    if isinstance(fit, Posterior):
        return ClassMeans.of(fit)
    if isinstance(fit, FeatureFit):
        fit = _without_landmarks(fit)
        return replace(fit, **{name: getattr(fit, name)[:0] for name in ("responsibilities", "alone", "confusion")})
    if isinstance(fit, CombinedFit):
        search, looks = without_items(fit.search, learner), without_items(fit.looks, learner)
        return replace(fit, search=cast(Any, search), looks=cast(FeatureFit, looks), confusion=fit.confusion[:0])
    if isinstance(fit, MultiLabelFit):
        questions = tuple(cast(FeatureFit, without_items(question, learner)) for question in fit.questions)
        return replace(fit, questions=questions, confusion=fit.confusion[:0])
    if isinstance(fit, Fit):
        return replace(
            fit, **{name: getattr(fit, name)[:0] for name in ("responsibilities", "log_posterior", "confusion")}
        )
    raise CrowdshotError(
        f"is False, but {learner} predicts with the items and labels it was fitted to",
        argument="labels",
        found=False,
        expected="True",
        hint=Use("to fit a model that does not", method="features"),
    )


def _without_landmarks(fit: FeatureFit) -> FeatureFit:
    """Replace the landmarks of kernel regressions by normal draws around class means.

    The new slopes have the least squared error at the landmarks, near them, between them and at further draws.
    """
    slopes: Floats = fit.near_slopes.numpy()  # (c, M, K)
    z: Floats = fit.landmarks.numpy()
    if not len(slopes):
        return replace(fit, landmarks=fit.landmarks[:0], near_slopes=fit.near_slopes[:, :0])
    random, (c, M, K) = np.random.default_rng(SEED), slopes.shape
    best = fit.forecast(z / np.where(fit.factor.numpy() > 0, fit.factor.numpy(), 1) + fit.centre.numpy()).argmax(1)
    means = np.stack([z[best == k].mean(0) if (best == k).any() else z.mean(0) for k in range(K)])
    _, spread, axes = np.linalg.svd((z - means[best]) / np.sqrt(M), full_matrices=False)
    axes *= spread[:, None]

    def draws(n: int, centres: Floats) -> Floats:
        drawn: Floats = centres + random.normal(size=(n, len(spread))) @ axes
        return drawn

    n = min(2 * M, LANDMARKS)
    centres = means[np.sort(best)]
    drawn = draws(n, np.resize(centres, (n, z.shape[1]))).astype(np.float32)
    points = [z, (z + z[random.permutation(M)]) / 2, *(draws(M, centres) for _ in range(2))]
    points += [(z + draws(M, z)) / 2 for _ in range(3)]
    gram, product = np.zeros((n, n)), np.zeros((n, c * K))
    for part in points:
        near = kernel(part, drawn.astype(np.float64))
        gram += near.T @ near
        product += near.T @ np.einsum("pm,cmk->pck", kernel(part, z), slopes).reshape(M, c * K)
    gram.flat[:: n + 1] += RIDGE * np.trace(gram) / n
    found = solve(gram, product, assume_a="pos").reshape(n, c, K)
    new = np.ascontiguousarray(found.transpose(1, 0, 2))
    return replace(fit, landmarks=torch.from_numpy(drawn), near_slopes=torch.from_numpy(new))


def no_annotations(ann: Annotations) -> Annotations:
    """Return annotations with the same classes and names of columns, without items, annotators and labels."""
    none, nobody = np.empty(0, np.int64), np.empty(0, dtype=object)
    return replace(ann, item=none, annotator=none, label=none, items=nobody, annotators=nobody)


def restore(learner: Learner, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Any) -> FittedModel:
    """Rebuild a model that `without_items` returned."""
    if "search.means" in tensors:
        return CombinedFit(
            cast(Any, ClassMeans(**tensors_of_part(tensors, "search."))),
            FeatureFit(**tensors_of_part(tensors, "looks.")),
            tensors["company"],
            tensors["confusion"],
        )
    return ClassMeans(**tensors) if learner.name == LABELING_SEARCH else learner.restore(settings, tensors, encoder)
