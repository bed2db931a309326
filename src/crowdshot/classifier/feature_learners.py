"""The default where features come from elsewhere, or labelled items are many: `crowdshot.model.combined`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from crowdshot.classifier.encoder_choice import clean_encoder
from crowdshot.classifier.learner_contract import Fitted, Learned, posterior_of, untouched
from crowdshot.classifier.mixture_learners import OwnOrder, Searched, search
from crowdshot.classifier.side_information import Known, judged, repeated
from crowdshot.encoders.encoder import Encoder
from crowdshot.labels.aggregation import NO_YES
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import expected_confusion
from crowdshot.labels.indexing import Positions
from crowdshot.labels.label_sets import members, names_of
from crowdshot.model import combined
from crowdshot.model.combined import Joint
from crowdshot.model.feature_model import Forecast
from crowdshot.model.label_model import shipped_network
from crowdshot.model.labeling_search import Posterior

LEARNED = "features"


@dataclass(frozen=True, eq=False)
class FeatureFit:
    """What is left: the posterior in all items, and the forecast for others. A `contract.Fitted`."""

    responsibilities: Tensor  # (N, K)
    class_probs: Tensor  # (K,)
    confusion: Tensor  # (R, K, K)
    alone: Tensor  # (N, K), by labels alone; class sizes where nobody labelled an item
    centre: Tensor
    factor: Tensor
    landmarks: Tensor
    plain_slopes: Tensor
    plain_starts: Tensor
    plain_weights: Tensor
    near_slopes: Tensor
    near_starts: Tensor
    near_weights: Tensor
    means: Tensor
    unit: Tensor
    mean_weights: Tensor
    nothing: Tensor
    mean: Tensor
    size: Tensor
    foretold: Tensor
    counted: Tensor

    @property
    def forecast(self) -> Forecast:
        return Forecast(**{field.name: getattr(self, field.name).numpy() for field in fields(Forecast)})

    def log_proba(self, queries: Tensor, /) -> Tensor:
        return torch.from_numpy(np.log(self.forecast(queries.cpu().numpy()))).to(queries.device)


def fit_feature_model(x: Tensor, annotations: Annotations, known: Known) -> combined.Joint:
    ann = annotations
    return combined.fit(
        x.cpu().numpy(),
        ann.item,
        ann.annotator,
        ann.label,
        ann.n_annotators,
        ann.n_classes,
        shipped_network(),
        known=known.gold,
        history=known.history,
        pred_probs=known.pred_probs,
        ordered=known.ordered,
    )


def believe(
    joint: combined.Joint, annotations: Annotations, known: Known, confusion: combined.Floats | None = None
) -> FeatureFit:
    forecast = {field.name: np.asarray(getattr(joint.forecast, field.name)) for field in fields(Forecast)}
    found = {
        "responsibilities": joint.posterior,
        "class_probs": joint.class_probs,
        "confusion": expected_confusion(annotations, joint.posterior, known.history)
        if confusion is None
        else confusion,
        "alone": joint.alone,
        **forecast,
    }
    return FeatureFit(**{name: torch.from_numpy(value) for name, value in found.items()})


@dataclass(frozen=True)
class FeatureLearner:
    """Learns as this module says; the encoder may be any."""

    seed: int
    name = LEARNED

    def default_encoder(self, X: Any) -> Encoder:
        return clean_encoder(X)

    def reader(self, encoder: Encoder) -> Encoder:
        return encoder

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, known: Known) -> Learned:
        if known.weight is None:
            fit = believe(fit_feature_model(x, annotations, known), annotations, known)
            return Learned(self.name, fit, {}, *untouched(x))
        rows, ann, told = repeated(annotations, known)
        joint = fit_feature_model(x[torch.from_numpy(rows).to(x.device)], ann, told)
        confusion = expected_confusion(ann, joint.posterior, told.history)
        # back to each item once, and to those that taught nothing
        posterior = judged(annotations, joint.forecast(x.cpu().numpy()), confusion, known)
        alone = judged(annotations, np.tile(joint.class_probs, (len(posterior), 1)), confusion, known)
        posterior[rows], alone[rows] = joint.posterior, joint.alone
        fit = believe(joint._replace(posterior=posterior, alone=alone), annotations, known, confusion)
        return Learned(self.name, fit, {}, *untouched(x))

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Fitted:
        return FeatureFit(**tensors)


# ---- both ------------------------------------------------------------
#
# The default for few items on our own encoders: `crowdshot.model.combined`.


BOTH = "combined"
FEW = 200  # labelled items, beyond which `Learned` alone knows as much and more (docs/trust.md)


@dataclass(frozen=True)
class Pooled:
    """What both leave. A `contract.Fitted`."""

    search: Posterior
    looks: FeatureFit
    company: Tensor  # () how far labelled items have others of their class
    confusion: Tensor  # (R, K, K)

    @property
    def responsibilities(self) -> Tensor:
        """(N, K)"""
        search, looks = (_log(fit.responsibilities.to(self.company)) for fit in (self.search, self.looks))
        labelled = (self.search.labelings[0] >= 0)[:, None]
        weights = combined.weights(float(self.company))
        of_labelled, of_others = (combined.pool(search, looks, weight, self.search.sizes) for weight in weights)
        return torch.where(labelled, of_labelled, of_others).exp()

    @property
    def class_probs(self) -> Tensor:
        """(K,)"""
        return self.responsibilities[self.search.labelings[0] >= 0].mean(0)

    def log_proba(self, queries: Tensor, /) -> Tensor:
        search, looks = (fit.log_proba(queries).to(self.company) for fit in (self.search, self.looks))
        return combined.pool(search, looks, combined.weights(float(self.company))[1], self.search.sizes)


def _log(p: Tensor) -> Tensor:
    return p.clamp_min(torch.finfo(p.dtype).tiny).log()


@dataclass(frozen=True)
class CombinedLearner:
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
            return FeatureLearner(self.seed).learn(x, annotations, encoder, known)
        joint = fit_feature_model(x, annotations, known)
        looks, settings = believe(joint, annotations, known), Searched(self.given, self.seed).settings_for(encoder)
        if not self.decided and (len(joint.taught) > FEW or "recipe" not in encoder.card):
            return Learned(LEARNED, looks, {}, *untouched(x))
        own = OwnOrder.of(x, annotations, known)
        named = np.bincount(annotations.label, minlength=annotations.n_classes)
        named[known.gold[known.gold >= 0]] += 2  # what is known is no slip
        classes = own.classes.cpu().numpy()
        sizes = combined.frequencies(joint.size[classes], named[classes]).to(x.device)
        if not self.decided and not _suits(own, annotations, known, joint, settings, sizes):
            return Learned(LEARNED, looks, {}, *untouched(x))
        found = search(x, own, settings, sizes)
        company = torch.tensor(combined.company(joint).mean(), device=x.device)
        pooled = Pooled(found, looks, company, found.confusion)
        confusion = torch.from_numpy(expected_confusion(annotations, posterior_of(pooled), known.history)).to(company)
        return Learned(self.name, replace(pooled, confusion=confusion), settings, *untouched(x))

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Fitted:
        def part(name: str) -> dict[str, Tensor]:
            return {key.removeprefix(name): value for key, value in tensors.items() if key.startswith(name)}

        return Pooled(
            Posterior(**part("search.")), FeatureFit(**part("looks.")), tensors["company"], tensors["confusion"]
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
    return combined.suits(own.x, own.labels, there, settings, sizes, own.truth, own.history)


# ---- sets ------------------------------------------------------------
#
# Classes that are sets of labels, "cat;dog": a yes/no question for each label, learned as `learned` has it.
#
# Taken for classes of their own, sets would share nothing: of eight labels there are 255, most of them rare. So each
# label is learned from all items, and the probability of a set is that of all its answers together, among the sets that
# somebody named.


SEVERAL = "several"  # the setting of Learned that says so
LEAST = -700.0  # of a logarithm, so that answers that are ruled out can be added up


@dataclass(frozen=True, eq=False)
class Answered:
    """What is left of a problem of S sets. A `contract.Fitted`."""

    has: Tensor  # (S, M): 1 where a set has a label, of the labels that tell sets apart
    questions: tuple[FeatureFit, ...]  # M of them, of no and yes
    class_probs: Tensor  # (S,)
    confusion: Tensor  # (R, S, S)

    @property
    def responsibilities(self) -> Tensor:
        """(N, S)"""
        return _together(self.has, [question.responsibilities.log() for question in self.questions]).exp()

    def log_proba(self, queries: Tensor, /) -> Tensor:
        return _together(self.has, [question.log_proba(queries) for question in self.questions])


def _together(has: Tensor, answers: list[Tensor]) -> Tensor:
    """M times (n, 2), logarithms of no and yes -> (n, S)"""
    no, yes = torch.stack(answers).clamp_min(LEAST).unbind(-1)
    has = has.to(no)
    return ((1 - has) @ no + has @ yes).T.log_softmax(-1)


@dataclass(frozen=True)
class BySets(FeatureLearner):
    """Learns as this module says; the encoder may be any."""

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, known: Known) -> Learned:
        sets = annotations.classes.astype(str)
        has = members(sets, names_of(sets))
        has = has[:, ~has.all(0)]  # a label that all sets have is no question
        asked = [_question(annotations, known, one.astype(np.int64)) for one in has.T]
        one_label = FeatureLearner(self.seed)
        questions = tuple(cast(FeatureFit, one_label.learn(x, ann, encoder, told).fit) for ann, told in asked)
        of_sets = torch.from_numpy(has.astype(np.float64))
        posterior = _together(of_sets, [question.responsibilities.log() for question in questions]).exp()
        sizes = posterior[torch.from_numpy(known.rows_of(annotations))].mean(0)
        confusion = torch.from_numpy(expected_confusion(annotations, posterior.numpy(), known.history))
        return Learned(self.name, Answered(of_sets, questions, sizes, confusion), {SEVERAL: True}, *untouched(x))

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Fitted:
        def part(start: str) -> dict[str, Tensor]:
            return {name.removeprefix(start): value for name, value in tensors.items() if name.startswith(start)}

        questions = (FeatureFit(**part(f"questions.{number}.")) for number in range(tensors["has"].shape[1]))
        return Answered(tensors["has"], tuple(questions), tensors["class_probs"], tensors["confusion"])


def _question(annotations: Annotations, known: Known, has: Positions) -> tuple[Annotations, Known]:
    """The same crowd, asked whether items have a label; has (S,): 1 where a set has it."""
    said = known.pred_probs
    said = None if said is None else np.stack([said @ (1 - has), said @ has], 1)
    told = replace(known, gold=np.where(known.gold < 0, -1, has[known.gold]), pred_probs=said, ordered=False)
    return replace(annotations, label=has[annotations.label], classes=NO_YES), told
