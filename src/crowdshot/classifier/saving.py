"""A fitted `CrowdClassifier` as one file, and back."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from crowdshot.classifier.learner_contract import Learner, posterior_of
from crowdshot.classifier.learners import AUTO, PAPER, AmongAll, among_all, learner_of
from crowdshot.classifier.mixture_learners import LABELINGS, OURS
from crowdshot.classifier.side_information import Known
from crowdshot.encoders.encoder_files import encoder_from_state, encoder_state
from crowdshot.errors import CrowdshotError
from crowdshot.io.cards import Card, read_safetensors, write_safetensors
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import Columns
from crowdshot.labels.indexing import unique_ids
from crowdshot.methods import METHODS, current_name
from crowdshot.model import priors

if TYPE_CHECKING:
    from crowdshot.classifier.crowd_classifier import CrowdClassifier


MOST_KEPT = 100_000_000  # numbers of embeddings that a file has, so that a classifier can be updated once it is loaded
BESIDES = ("history", "weight", "pred_probs")  # of `Known`, where there are any
TRIPLES = ("item", "annotator", "label")
IDS = ("items", "annotators", "classes")


def save_classifier(clf: CrowdClassifier, path: str | os.PathLike[str]) -> None:
    write_safetensors(path, *state_of(clf))


def state_of(clf: CrowdClassifier) -> tuple[dict[str, Tensor], Card]:
    """What a file has of a fitted classifier: tensors and a card."""
    ann = clf.annotations_
    tensors, encoder_card = encoder_state(clf.encoder_)
    tensors = {f"encoder.{name}": value for name, value in tensors.items()}
    fit = clf.fit_.fit if isinstance(clf.fit_, AmongAll) else clf.fit_
    tensors |= _tensors(fit, "fit.")
    tensors |= {f"labels.{k}": torch.from_numpy(getattr(ann, k)) for k in TRIPLES}
    tensors |= {"shift": clf.shift_, "factor": clf.factor_}
    if clf.embeddings_ is not None and clf.embeddings_.numel() <= MOST_KEPT and "fit.embeddings" not in tensors:
        tensors["embeddings"] = clf.embeddings_
    tensors |= {"gold": torch.from_numpy(clf.known_.gold), "without_gold": torch.from_numpy(clf.without_gold_)}
    besides = {name: getattr(clf.known_, name) for name in BESIDES}
    tensors |= {name: torch.from_numpy(value) for name, value in besides.items() if value is not None}
    card = {
        "kind": "classifier",
        "encoder": encoder_card,
        "method": clf.method,
        "learner": clf.learner_,
        "settings": _to_card(clf.settings_),
        "asked": sorted({*(clf.settings or {}), *clf.arguments()}),  # what is not was chosen, and may be again
        "random_state": clf.seed,
        "ordered": clf.known_.ordered,
        "missing": _mark_to_card(clf.missing_),
        "n_features_in": getattr(clf, "n_features_in_", None),
        "feature_names_in": list(getattr(clf, "feature_names_in_", ())),
        "columns": list(ann.columns),
        **{k: getattr(ann, k).tolist() for k in IDS},
    }
    return tensors, card


def load_classifier(clf: CrowdClassifier, path: str | os.PathLike[str]) -> None:
    """Fill a fresh classifier with what `save_classifier` wrote."""
    fill(clf, *read_safetensors(path, "classifier"), path)


def fill(clf: CrowdClassifier, tensors: Mapping[str, Tensor], card: Card, path: str | os.PathLike[str]) -> None:
    """A fresh classifier by the state of a fitted one; ``path`` is where that was read."""

    def part(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}

    try:
        encoder = encoder_from_state(part("encoder."), card["encoder"], str(path))
        settings = _from_card(card["settings"])
        asked = {name: settings[name] for name in card.get("asked", settings) if name in settings}
        clf.set_params(
            encoder=encoder,
            method=current_name(card["method"], warn=False),
            settings=asked,
            random_state=card["random_state"],
        )
        triples = {k: v.numpy() for k, v in part("labels.").items()}
        ids = {k: unique_ids(card[k], k) for k in IDS}
        clf.annotations_ = Annotations(**triples, **ids, columns=Columns(*map(str, card["columns"])))
        name = card["learner"] if "learner" in card else _learner_of_old(card["method"], settings)
        name = current_name(name, warn=False)
        learner = _find(name, settings, clf.seed, path)
        gold = tensors["gold"].numpy() if "gold" in tensors else np.full(clf.annotations_.n_items, -1)
        besides = {name: tensors[name].numpy() for name in BESIDES if name in tensors}
        clf.known_ = Known(gold, **besides, ordered=bool(card.get("ordered", False)))
        clf.missing_ = card.get("missing", -1)
        clf.without_gold_ = tensors["without_gold"].numpy() if "gold" in tensors else np.zeros((0, len(ids["classes"])))
        clf.fit_ = among_all(learner.restore(settings, part("fit."), encoder), clf.annotations_, clf.known_)
        clf.shift_, clf.factor_ = tensors["shift"], tensors["factor"]
        kept = next((name for name in ("embeddings", "fit.embeddings") if name in tensors), None)
        clf.embeddings_ = None if kept is None else tensors[kept]
        n_features, names = card["n_features_in"], card.get("feature_names_in")
        _check(clf)
    except CrowdshotError:
        raise
    except Exception as error:  # a card may say anything, and each library stumbles over it in its own way
        raise CrowdshotError(
            f"{path} is damaged or incomplete ({type(error).__name__}: {error}), expected a classifier that crowdshot "
            "saved; fit and save it again."
        ) from None
    clf.encoder_, clf.reader_, clf.settings_ = encoder, learner.reader(encoder), settings
    clf.learner_ = learner.name
    clf.classes_ = clf.annotations_.classes
    if n_features is not None:
        clf.n_features_in_ = n_features
    if names:
        clf.feature_names_in_ = np.array(names, dtype=object)


def _check(clf: CrowdClassifier) -> None:
    """Do the parts of a file fit each other? A file of 0.1.0 has no checksum, and that of a stranger any."""
    ann, known = clf.annotations_, clf.known_
    N, R, K, D = ann.n_items, ann.n_annotators, ann.n_classes, len(clf.shift_)
    positions = {
        "item": (ann.item, ann.n_labels, 0, N),
        "annotator": (ann.annotator, ann.n_labels, 0, R),
        "label": (ann.label, ann.n_labels, 0, K),
        "gold": (known.gold, N, -1, K),
    }
    for name, (held, length, lowest, end) in positions.items():
        if held.shape != (length,) or held.dtype != np.int64:
            raise ValueError(f"{name} is of shape {held.shape} and type {held.dtype}, not ({length},) and int64")
        if length and not lowest <= held.min() <= held.max() < end:
            raise ValueError(f"{name} holds positions from {held.min()} to {held.max()} among {end}")
    said = clf.fit_.log_proba(torch.zeros(1, D, dtype=clf.shift_.dtype))
    numbers: dict[str, tuple[Any, tuple[int, ...]]] = {
        "shift": (clf.shift_, (D,)),
        "factor": (clf.factor_, ()),
        "log_proba": (said.exp(), (1, K)),
        "belief": (posterior_of(clf.fit_), (N, K)),
        "class_probs": (clf.fit_.class_probs, (K,)),
        "confusion": (clf.fit_.confusion, (R, K, K)),
        "without_gold": (torch.from_numpy(clf.without_gold_), (int((known.gold >= 0).sum()), K)),
        "history": (known.history, (R, 2)),
        "weight": (known.weight, (N,)),
        "embeddings": (clf.embeddings_, (N, D)),
    }
    for name, (values, shape) in numbers.items():
        if values is None:
            continue
        if tuple(values.shape) != shape:
            raise ValueError(f"{name} is of shape {tuple(values.shape)}, not {shape}")
        if not np.isfinite(np.asarray(values)).all():
            raise ValueError(f"{name} holds numbers that are not finite")


def _tensors(fit: Any, prefix: str) -> dict[str, Tensor]:
    """Of a fit, and of fits that it is made of."""
    out = {}
    for name, value in vars(fit).items():
        if isinstance(value, Tensor):
            out[prefix + name] = value
        elif is_dataclass(value):
            out |= _tensors(value, f"{prefix}{name}.")
        elif isinstance(value, tuple):
            for number, part in enumerate(value):
                out |= _tensors(part, f"{prefix}{name}.{number}.")
    return out


def _find(name: str, settings: dict[str, Any], seed: int, path: str | os.PathLike[str]) -> Learner:
    """By the name that its card has; where a method came from another package, that has to be there too."""
    if name.lower() not in (known.lower() for known in METHODS):
        raise CrowdshotError(
            f"{path} is fitted by {name!r}, expected one of {', '.join(METHODS)}; install the package that adds it."
        )
    return learner_of(name, settings, {}, seed)


def _learner_of_old(method: str, settings: Mapping[str, Any]) -> str:
    """What fitted a classifier that 0.1.0 saved, whose card does not say it: EM alone has a covariance."""
    if method.lower() in (AUTO, PAPER):
        return OURS if "covariance" in settings else LABELINGS
    return method


def _mark_to_card(missing: Any) -> Any:
    """As JSON, which has no NumPy numbers and no NaN; that is missing in any case."""
    return None if pd.isna(missing) else missing.item() if isinstance(missing, np.generic) else missing


def _to_card(settings: Mapping[str, Any]) -> Card:
    """As JSON: a prior on confusion matrices, the one setting that is no number or word, by its name and numbers."""
    if "c" not in settings:
        return dict(settings)
    held = priors.to_card(priors.Priors(tau=settings["tau"], b=settings["b"], c=settings["c"]))
    return {**settings, "tau": held["tau"], "b": held["b"], "c": held["confusion"]}


def _from_card(card: Mapping[str, Any]) -> dict[str, Any]:
    if "c" not in card:
        return dict(card)
    return {**card, **priors.from_card({"tau": card["tau"], "b": card["b"], "confusion": card["c"]})}
