"""The default for few items on our own encoders: `crowdshot.model.both`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crowdshot.classifier.contract import Fitted, Learned, belief_of, untouched
from crowdshot.classifier.default_encoder import clean_encoder
from crowdshot.classifier.known import Known
from crowdshot.classifier.learned import LEARNED, Believed, ByLooks, believe, look_at
from crowdshot.classifier.own import OwnOrder, Searched, search
from crowdshot.encoders.encoder import Encoder
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotators import expected_confusion
from crowdshot.model import both
from crowdshot.model.labelings import Posterior
from crowdshot.model.learned import Joint

BOTH = "Both"
FEW = 200  # labelled items, beyond which `Learned` alone knows as much and more (docs/trust.md)


@dataclass(frozen=True)
class Pooled:
    """What both leave. A `contract.Fitted`."""

    search: Posterior
    looks: Believed
    company: Tensor  # () how far labelled items have others of their class
    confusion: Tensor  # (R, K, K)

    @property
    def responsibilities(self) -> Tensor:
        """(N, K)"""
        search, looks = (_log(fit.responsibilities.to(self.company)) for fit in (self.search, self.looks))
        labelled = (self.search.labelings[0] >= 0)[:, None]
        weights = both.weights(float(self.company))
        of_labelled, of_others = (both.pool(search, looks, weight, self.search.sizes) for weight in weights)
        return torch.where(labelled, of_labelled, of_others).exp()

    @property
    def class_probs(self) -> Tensor:
        """(K,)"""
        return self.responsibilities[self.search.labelings[0] >= 0].mean(0)

    def log_proba(self, queries: Tensor, /) -> Tensor:
        search, looks = (fit.log_proba(queries).to(self.company) for fit in (self.search, self.looks))
        return both.pool(search, looks, both.weights(float(self.company))[1], self.search.sizes)


def _log(p: Tensor) -> Tensor:
    return p.clamp_min(torch.finfo(p.dtype).tiny).log()


@dataclass(frozen=True)
class Both:
    """Learns as this module says; as `Learned` does where items are many, or features from elsewhere or misleading.

    ``given``: arguments of `labelings.fit`. ``decided``: to believe the search.
    """

    seed: int
    given: Mapping[str, Any] = field(default_factory=dict)
    decided: bool = False
    name = BOTH

    def default_encoder(self, X: Any) -> Encoder:
        return clean_encoder(X)

    def reader(self, encoder: Encoder) -> Encoder:
        return encoder

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, known: Known) -> Learned:
        if known.weight is not None:  # of which the search knows nothing
            if self.decided or "recipe" in encoder.card:
                warnings.warn(
                    "with sample_weight items are learned from by Learned alone, and not by the search that is the "
                    "other half of the default for images; items of weight 0 may be left out of fit instead.",
                    UserWarning,
                    stacklevel=2,
                )
            return ByLooks(self.seed).learn(x, annotations, encoder, known)
        joint = look_at(x, annotations, known)
        looks, settings = believe(joint, annotations, known), Searched(self.given, self.seed).settings_for(encoder)
        if not self.decided and (len(joint.taught) > FEW or "recipe" not in encoder.card):
            return Learned(LEARNED, looks, {}, *untouched(x))
        own = OwnOrder.of(x, annotations, known)
        named = np.bincount(annotations.label, minlength=annotations.n_classes)
        named[known.gold[known.gold >= 0]] += 2  # what is known is no slip
        classes = own.classes.cpu().numpy()
        sizes = both.frequencies(joint.size[classes], named[classes]).to(x.device)
        if not self.decided and not _suits(own, annotations, known, joint, settings, sizes):
            return Learned(LEARNED, looks, {}, *untouched(x))
        found = search(x, own, settings, sizes)
        company = torch.tensor(both.company(joint).mean(), device=x.device)
        pooled = Pooled(found, looks, company, found.confusion)
        confusion = torch.from_numpy(expected_confusion(annotations, belief_of(pooled), known.history)).to(company)
        return Learned(self.name, replace(pooled, confusion=confusion), settings, *untouched(x))

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Fitted:
        def part(name: str) -> dict[str, Tensor]:
            return {key.removeprefix(name): value for key, value in tensors.items() if key.startswith(name)}

        return Pooled(
            Posterior(**part("search.")), Believed(**part("looks.")), tensors["company"], tensors["confusion"]
        )


def _suits(
    own: OwnOrder,
    annotations: Annotations,
    known: Known,
    looks: Joint,
    settings: dict[str, Any],
    sizes: Tensor,
) -> bool:
    items = np.searchsorted(known.rows_of(annotations), own.place.cpu().numpy())
    classes = own.classes.cpu().numpy()
    told = {name: getattr(looks, name)[items][:, classes] for name in ("taught", "unmet", "evidence")}
    there = looks._replace(**told, size=looks.size[classes])
    return both.suits(own.x, own.labels, there, settings, sizes, own.truth, own.history)
