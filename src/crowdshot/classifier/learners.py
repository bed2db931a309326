"""Choose the learner for `CrowdClassifier(method=...)` and fit it to the classes that occur.

The mixture and the labeling search are in `mixture_learners`, the default method in `feature_learners`. Every other
method is `compared_methods.Compared`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdshot.classifier import compared_methods
from crowdshot.classifier.feature_learners import (
    COMBINED,
    FEATURES,
    SEVERAL,
    CombinedLearner,
    FeatureFit,
    FeatureLearner,
    MultiLabelLearner,
)
from crowdshot.classifier.learner_contract import (
    ARGUMENTS,
    FittedModel,
    Learner,
    LearnerResult,
    SideInformation,
    check_setting_names,
    posterior_of,
)
from crowdshot.classifier.mixture_learners import LABELING_SEARCH, OURS, MixtureLearner, SearchLearner
from crowdshot.encoders.encoder import Encoder
from crowdshot.errors import CrowdshotError
from crowdshot.io.cells import Positions
from crowdshot.labels.annotations import Annotations
from crowdshot.methods import current_name
from crowdshot.model import priors
from crowdshot.model.parts import one_thread

AUTO, PAPER = "auto", "paper"


def learn(
    learner: Learner, x: Tensor, annotations: Annotations, encoder: Encoder, side: SideInformation
) -> LearnerResult:
    """Fit a learner to the classes that occur, of which there must be two; the others get probability 0.

    The mean of a class without items would be at its prior, in the middle of all items, and attract items that lie
    between the other classes.
    """
    named = side.classes_of(annotations)
    place = np.full(annotations.n_classes, -1)
    place[named] = np.arange(len(named))
    kept = annotations.keep(place[annotations.label] >= 0)
    fewer = replace(kept, label=place[kept.label], classes=annotations.classes[named])
    with one_thread():
        result = learner.learn(x, fewer, encoder, side.with_classes(place))
    return result._replace(fit=with_all_classes(result.fit, annotations, side))


def without_gold(
    learner: Learner, x: Tensor, annotations: Annotations, encoder: Encoder, side: SideInformation
) -> NDArray[np.float64]:
    """Return the posteriors (n, K) of the n items of known class, from a fit without known classes."""
    rows = np.flatnonzero(side.gold >= 0)
    posterior = np.zeros((len(rows), annotations.n_classes))
    unknown = side.without_gold()
    classes = unknown.classes_of(annotations)
    if len(classes) == 1:
        posterior[:, classes] = 1
    elif len(rows):
        posterior = posterior_of(learn(learner, x, annotations, encoder, unknown).fit)[rows]
    return posterior


def with_all_classes(
    fit: FittedModel, annotations: Annotations, side: SideInformation, named: Positions | None = None
) -> FittedModel:
    """Return a fit of the classes that occur, or that are ``named``, as a fit of all classes."""
    K, occurring = annotations.n_classes, side.classes_of(annotations) if named is None else named
    found = torch.from_numpy(occurring).to(fit.confusion.device)
    return fit if fit.confusion.shape[-1] == K else AllClassesFit(fit, found, K)


def of_named_classes(fit: FittedModel) -> FittedModel:
    """Undo `with_all_classes`."""
    return fit.fit if isinstance(fit, AllClassesFit) else fit


@dataclass(frozen=True)
class AllClassesFit:
    """Extends a fit of the classes ``named`` (k,) to K classes; the others have probability 0.

    Confusion matrices are uniform for the other classes.
    """

    fit: FittedModel
    named: Tensor
    n_classes: int

    @property
    def feature_fits(self) -> tuple[FeatureFit, ...]:
        found: tuple[FeatureFit, ...] = getattr(self.fit, "feature_fits", ())
        return found

    @property
    def responsibilities(self) -> Tensor:
        return self._spread(self.fit.responsibilities, 0.0)

    @property
    def class_probs(self) -> Tensor:
        return self._spread(self.fit.class_probs, 0.0)

    @property
    def confusion(self) -> Tensor:
        known = self._spread(self.fit.confusion, 0.0)  # (R, k, K)
        return self._spread(known.mT, 1 / self.n_classes).mT

    def log_proba(self, queries: Tensor, /) -> Tensor:
        return self._spread(self.fit.log_proba(queries), -torch.inf)

    def _spread(self, values: Tensor, other: float) -> Tensor:
        """Extend (..., k) to (..., K), with ``other`` for the other classes."""
        out = values.new_full((*values.shape[:-1], self.n_classes), other)
        out[..., self.named] = values
        return out


def learner_of(method: str, settings: Mapping[str, Any] | None, seed: int) -> Learner:
    """Return the learner of a method.

    "auto" is `CombinedLearner`; the labeling search if one of its settings is set; or the mixture if one of the
    mixture's own settings is set. "paper" is the mixture with the paper's constants.

    Parameters
    ----------
    method : str
        "auto", "paper" or a name in `METHODS`, in any case.
    settings : mapping or None
        The method's own settings.
    seed : int
    """
    if not isinstance(settings, Mapping | None):
        raise CrowdshotError(
            f"is {settings!r}", argument="settings", found=settings, expected="a mapping such as {'steps': 3}"
        )
    settings, name = dict(settings or {}), str(current_name(method)).lower()
    only_mixture_has = not set(ARGUMENTS).isdisjoint(set(settings) - {"scale", "tau"})
    if name == OURS.lower() or (name == AUTO and only_mixture_has):
        return MixtureLearner(OURS, settings, seed)
    if name == PAPER:
        return MixtureLearner(OURS, {"steps": 2, **priors.PAPER, "scale": 1.0, **settings}, seed)
    if name == AUTO:
        return SearchLearner(settings, seed) if settings else CombinedLearner(seed)
    if name == COMBINED:
        return CombinedLearner(seed, SearchLearner(settings, seed).given, always_search=True)
    if name == FEATURES:
        return _feature_learner(settings, seed)
    if name == LABELING_SEARCH:
        return SearchLearner(settings, seed)
    return compared_methods.learner_of(method, settings, seed)


def _feature_learner(settings: Mapping[str, Any], seed: int) -> FeatureLearner:
    check_setting_names(FEATURES, settings, (SEVERAL,))
    several = settings.get(SEVERAL, False)
    if not isinstance(several, bool):
        raise CrowdshotError(
            f"has {several!r} for several", argument="settings", found=several, expected="true or false"
        )
    return MultiLabelLearner(seed) if several else FeatureLearner(seed)
