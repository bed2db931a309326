"""A fitted `CrowdClassifier` as one file, and back."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from crowdshot import mixture, priors
from crowdshot.annotations import Annotations
from crowdshot.cards import read_safetensors, write_safetensors
from crowdshot.columns import Columns
from crowdshot.encoders import encoder_from_state, encoder_state
from crowdshot.errors import CrowdshotError
from crowdshot.ids import unique_ids

if TYPE_CHECKING:
    from crowdshot.classifier import CrowdClassifier

TRIPLES = ("item", "annotator", "label")
IDS = ("items", "annotators", "classes")


def save_classifier(clf: CrowdClassifier, path: str | os.PathLike[str]) -> None:
    ann = clf.annotations_
    tensors, encoder_card = encoder_state(clf.encoder_)
    tensors = {f"encoder.{name}": value for name, value in tensors.items()}
    tensors |= {f"fit.{k}": v for k, v in vars(clf.fit_).items() if isinstance(v, Tensor)}
    tensors |= {f"labels.{k}": torch.from_numpy(getattr(ann, k)) for k in TRIPLES}
    tensors |= {"shift": clf.shift_, "factor": clf.factor_}
    card = {
        "kind": "classifier",
        "encoder": encoder_card,
        "covariance": clf.covariance,
        "steps": clf.steps_,
        "scale": clf.scale_,
        "priors": priors.to_card(clf.priors_),
        "n_features_in": getattr(clf, "n_features_in_", None),
        "columns": list(ann.columns),
        **{k: getattr(ann, k).tolist() for k in IDS},
    }
    write_safetensors(path, tensors, card)


def load_classifier(clf: CrowdClassifier, path: str | os.PathLike[str]) -> None:
    """Fill a fresh classifier with what `save_classifier` wrote."""
    tensors, card = read_safetensors(path, "classifier")

    def part(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

    try:
        encoder = encoder_from_state(part("encoder."), card["encoder"], str(path))
        steps, scale, covariance = card["steps"], card["scale"], card["covariance"]
        beliefs = priors.from_card(card["priors"])
        clf.set_params(encoder=encoder, steps=steps, scale=scale, covariance=covariance, **beliefs)
        triples = {k: v.numpy() for k, v in part("labels.").items()}
        ids = {k: unique_ids(card[k], k) for k in IDS}
        clf.annotations_ = Annotations(**triples, **ids, columns=Columns(*card["columns"]))
        clf.fit_ = mixture.Fit(**{"covariance": None, **part("fit.")}, covariance_kind=covariance)  # type: ignore[arg-type]
        clf.shift_, clf.factor_ = tensors["shift"], tensors["factor"]
        n_features = card["n_features_in"]
    except CrowdshotError:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise CrowdshotError(f"{path} is damaged or incomplete ({type(error).__name__}: {error})") from None
    clf.encoder_, clf.classes_ = encoder, clf.annotations_.classes
    clf.steps_, clf.scale_, clf.priors_ = steps, scale, beliefs
    if n_features is not None:
        clf.n_features_in_ = n_features
