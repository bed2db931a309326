"""The default where features come from elsewhere, or labelled items are many: `crowdshot.model.learned`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from crowdshot.classifier.contract import Fitted, Learned, untouched
from crowdshot.classifier.default_encoder import clean_encoder
from crowdshot.classifier.known import Known
from crowdshot.classifier.weights import judged, repeated
from crowdshot.encoders.encoder import Encoder
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotators import expected_confusion
from crowdshot.model import learned
from crowdshot.model.forecast import Forecast
from crowdshot.model.network_file import shipped_network

LEARNED = "Learned"


@dataclass(frozen=True, eq=False)
class Believed:
    """What is left: the belief in all items, and the forecast for others. A `contract.Fitted`."""

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


def look_at(x: Tensor, annotations: Annotations, known: Known) -> learned.Joint:
    ann = annotations
    return learned.fit(
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
    joint: learned.Joint, annotations: Annotations, known: Known, confusion: learned.Floats | None = None
) -> Believed:
    forecast = {field.name: np.asarray(getattr(joint.forecast, field.name)) for field in fields(Forecast)}
    found = {
        "responsibilities": joint.belief,
        "class_probs": joint.class_probs,
        "confusion": expected_confusion(annotations, joint.belief, known.history) if confusion is None else confusion,
        "alone": joint.alone,
        **forecast,
    }
    return Believed(**{name: torch.from_numpy(value) for name, value in found.items()})


@dataclass(frozen=True)
class ByLooks:
    """Learns as this module says; the encoder may be any."""

    seed: int
    name = LEARNED

    def default_encoder(self, X: Any) -> Encoder:
        return clean_encoder(X)

    def reader(self, encoder: Encoder) -> Encoder:
        return encoder

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, known: Known) -> Learned:
        if known.weight is None:
            fit = believe(look_at(x, annotations, known), annotations, known)
            return Learned(self.name, fit, {}, *untouched(x))
        rows, ann, told = repeated(annotations, known)
        joint = look_at(x[torch.from_numpy(rows).to(x.device)], ann, told)
        confusion = expected_confusion(ann, joint.belief, told.history)
        # back to each item once, and to those that taught nothing
        belief = judged(annotations, joint.forecast(x.cpu().numpy()), confusion, known)
        alone = judged(annotations, np.tile(joint.class_probs, (len(belief), 1)), confusion, known)
        belief[rows], alone[rows] = joint.belief, joint.alone
        fit = believe(joint._replace(belief=belief, alone=alone), annotations, known, confusion)
        return Learned(self.name, fit, {}, *untouched(x))

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Fitted:
        return Believed(**tensors)
