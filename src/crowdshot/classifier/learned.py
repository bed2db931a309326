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
from crowdshot.model.looks import Forecast
from crowdshot.model.network_file import shipped_network

LEARNED = "Learned"
AT_ONCE = 20_000  # queries
# Of what class sizes leave open of labels, what an encoder must foretell to suit the items: photographs through an
# encoder of photographs mostly 0.13 to 0.5, of characters 0.03 to 0.11 (LabelMe, CIFAR-10S, 3 to 10 items a class).
# Digits, which it was not chosen on, have 0.2 to 0.5, but with one label an item and three a class often less.
SEEN = 0.12


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
        forecast = self.forecast
        parts = [forecast(part.double().cpu().numpy()) for part in torch.split(queries, AT_ONCE)]
        return torch.from_numpy(np.log(np.concatenate(parts))).to(queries.device)


def suits(fit: Fitted) -> bool:
    """Whether the encoder sees the classes in these items; where there are too few to tell, it is taken to."""
    if not isinstance(fit, Believed):
        return True
    by_looks, by_size = fit.foretold.tolist()
    counted = float(fit.counted)
    return counted < fit.class_probs.shape[0] or by_looks - by_size >= SEEN * (1 - by_size)


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
        given, ann, rows = x.double().cpu().numpy(), annotations, None
        everything, told = given, known
        if known.weight is not None:
            rows, ann, known = repeated(annotations, known)
            given = given[rows]
        joint = learned.fit(
            given,
            ann.item,
            ann.annotator,
            ann.label,
            ann.n_annotators,
            ann.n_classes,
            shipped_network(),
            known=known.gold,
            history=known.history,
        )
        forecast = {field.name: np.asarray(getattr(joint.forecast, field.name)) for field in fields(Forecast)}
        confusion = expected_confusion(ann, joint.belief, known.history)
        belief, alone = joint.belief, joint.alone
        if rows is not None:  # back to each item once, and to those that taught nothing
            belief = judged(annotations, joint.forecast(everything), confusion, told)
            alone = judged(annotations, np.tile(joint.class_probs, (len(belief), 1)), confusion, told)
            belief[rows], alone[rows] = joint.belief, joint.alone
        found = {
            "responsibilities": belief,
            "class_probs": joint.class_probs,
            "confusion": confusion,
            "alone": alone,
            **forecast,
        }
        fit = Believed(**{name: torch.from_numpy(value) for name, value in found.items()})
        return Learned(self.name, fit, {}, *untouched(x))

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Fitted:
        return Believed(**tensors)
