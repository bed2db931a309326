"""From items and a crowd's labels to a classifier: by our own ways, or by a method that they are compared with.

`CrowdClassifier` asks `learner_of` for the way that its ``method`` names, and from there on goes one way for all. Our
own are in `own`, the search for labelings and the mixture, in `learned` and in `both`; every other way is
`compared.Compared`, loaded only when it is asked for.
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
from crowdshot.classifier.feature_learners import BOTH, LEARNED, SEVERAL, BySets, CombinedLearner, FeatureLearner
from crowdshot.classifier.learner_contract import Fitted, Learned, Learner, check_names, posterior_of, refuse
from crowdshot.classifier.mixture_learners import ARGUMENTS, LABELINGS, OURS, Mixture, Searched
from crowdshot.classifier.side_information import Known
from crowdshot.encoders.encoder import Encoder
from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations
from crowdshot.methods import current_name
from crowdshot.model import priors

AUTO, PAPER = "auto", "paper"


def learn(learner: Learner, x: Tensor, annotations: Annotations, encoder: Encoder, known: Known) -> Learned:
    """As `Learner.learn`, without the classes that nobody named: they have probability 0. Two at least must be.

    A class without an item has its mean where the prior puts it, in the midst of all items, and would draw those to
    itself that lie between the others.
    """
    named = known.classes_of(annotations)
    place = np.full(annotations.n_classes, -1)
    place[named] = np.arange(len(named))
    kept = annotations.keep(place[annotations.label] >= 0)
    fewer = replace(kept, label=place[kept.label], classes=annotations.classes[named])
    learned = learner.learn(x, fewer, encoder, known.among(place))
    return learned._replace(fit=among_all(learned.fit, annotations, known))


def without_gold(
    learner: Learner, x: Tensor, annotations: Annotations, encoder: Encoder, known: Known
) -> NDArray[np.float64]:
    """(n, K): what would be believed of the n items whose class is known, had nobody told of any."""
    rows = np.flatnonzero(known.gold >= 0)
    posterior = np.zeros((len(rows), annotations.n_classes))
    unknown = known.without_gold()
    classes = unknown.classes_of(annotations)
    if len(classes) == 1:
        posterior[:, classes] = 1
    elif len(rows):
        posterior = posterior_of(learn(learner, x, annotations, encoder, unknown).fit)[rows]
    return posterior


def among_all(fit: Fitted, annotations: Annotations, known: Known) -> Fitted:
    """A fit of the classes that somebody named, as one of all."""
    K, named = annotations.n_classes, torch.from_numpy(known.classes_of(annotations)).to(fit.confusion.device)
    return fit if fit.confusion.shape[-1] == K else AmongAll(fit, named, K)


@dataclass(frozen=True)
class AmongAll:
    """``fit`` knows ``named`` (k,) of K classes; of how annotators call the others nothing is known."""

    fit: Fitted
    named: Tensor
    n_classes: int

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
        """(..., k) -> (..., K)"""
        out = values.new_full((*values.shape[:-1], self.n_classes), other)
        out[..., self.named] = values
        return out


def learner_of(method: str, settings: Mapping[str, Any] | None, given: Mapping[str, Any], seed: int) -> Learner:
    """``settings`` are the method's own; ``given`` those among `ARGUMENTS` that a user set one by one.

    "auto" is both, the search for labelings and Learned, or Learned alone where labelled items are many, or features
    come from elsewhere or mislead the search; the search alone where something is set that it has, and EM where
    something is set that EM alone has; "paper" is Ours with the paper's constants.
    """
    if not isinstance(settings, Mapping | None):
        raise CrowdshotError(f"settings is {settings!r}, expected a mapping like {{'steps': 3}}.")
    settings, name = dict(settings or {}), str(current_name(method)).lower()
    for_em = bool(given) or not set(ARGUMENTS).isdisjoint(set(settings) - {"scale", "tau"})
    if name == OURS.lower() or (name == AUTO and for_em):
        return Mixture(OURS, {**settings, **given}, seed)
    if name == PAPER:
        return Mixture(OURS, {"steps": 2, **priors.PAPER, "scale": 1.0, **settings, **given}, seed)
    if name == AUTO:
        return Searched(settings, seed) if settings else CombinedLearner(seed)
    if name == BOTH.lower():
        refuse(BOTH, given)
        return CombinedLearner(seed, Searched(settings, seed).given, decided=True)
    if name == LEARNED.lower():
        refuse(LEARNED, given)
        check_names(LEARNED, settings, (SEVERAL,))
        several = settings.get(SEVERAL, False)
        if not isinstance(several, bool):
            raise CrowdshotError(f"settings has several {several!r}, expected true or false.")
        return BySets(seed) if several else FeatureLearner(seed)
    if name == LABELINGS.lower():
        refuse(LABELINGS, given)
        return Searched(settings, seed)
    return compared_methods.learner_of(method, settings, given, seed)
