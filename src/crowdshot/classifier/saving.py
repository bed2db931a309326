"""Save a fitted `CrowdClassifier` to one file (safetensors with a JSON card), and load it.

``CrowdClassifier.save(path, labels=False)`` saves only what predicts new items. Labels, ids, posteriors of items,
confusion matrices and embeddings are dropped. Two models predict with the embeddings of fitted items, and are replaced:

- The labeling search compares items with the class means of many labelings. They differ by single items, which could
  be computed from them. The mean of these class means replaces them (`ClassMeans`).
- Regressions on a kernel compare items with landmarks among the fitted items. Normal draws around the class means
  replace the landmarks; the slopes are fitted to the same predictions (`_without_landmarks`).

Both change probabilities slightly. Other models predict as before.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.linalg import solve
from torch import Tensor

from crowdshot.classifier.feature_learners import CombinedFit, FeatureFit, MultiLabelFit
from crowdshot.classifier.learner_contract import FittedModel, Learner, SideInformation, posterior_of, tensors_of_part
from crowdshot.classifier.learners import AUTO, PAPER, learner_of, of_named_classes, with_all_classes
from crowdshot.classifier.mixture_learners import LABELING_SEARCH, OURS
from crowdshot.encoders.encoder_files import encoder_from_state, encoder_state
from crowdshot.errors import CrowdshotError, Use
from crowdshot.io.cards import Card, read_safetensors, write_safetensors
from crowdshot.io.cells import Positions, unique_ids
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import Columns
from crowdshot.methods import METHODS, current_name
from crowdshot.model import priors
from crowdshot.model.feature_model import LANDMARKS
from crowdshot.model.labeling_search import Posterior
from crowdshot.model.mixture import Fit
from crowdshot.model.regressions import Floats, kernel

if TYPE_CHECKING:
    from crowdshot.classifier.crowd_classifier import CrowdClassifier


MOST_KEPT = 100_000_000  # numbers of embeddings to save; they are needed to update a loaded classifier
OPTIONAL = ("history", "weight", "pred_probs")  # fields of `SideInformation` that may be None
TRIPLES = ("item", "annotator", "label")
IDS = ("items", "annotators", "classes")
SEED = 0  # of the draws that replace landmarks
RIDGE = 1e-10  # of the new slopes, as a share of the mean squared column of the kernel


def save_classifier(clf: CrowdClassifier, path: str | os.PathLike[str], labels: bool = True) -> None:
    write_safetensors(path, *state_of(clf if labels else without_labels(clf)))


def without_labels(clf: CrowdClassifier) -> CrowdClassifier:
    """Return a copy of a fitted classifier that has nothing of its items, labels and annotators."""
    shared = copy.copy(clf)
    shared._named = clf._known.classes_of(clf.annotations_) if clf._named is None else clf._named
    shared._model = without_items(of_named_classes(clf._model), clf.learner_)
    shared.annotations_ = no_annotations(clf.annotations_)
    shared._known, shared._without_gold = SideInformation.nothing(0), np.zeros((0, len(clf.classes_)))
    shared.embeddings_ = None
    return shared


def state_of(clf: CrowdClassifier) -> tuple[dict[str, Tensor], Card]:
    """Return the tensors and the card of a fitted classifier, as a file contains them."""
    ann = clf.annotations_
    tensors, encoder_card = encoder_state(clf.encoder_)
    tensors = {f"encoder.{name}": value for name, value in tensors.items()}
    tensors |= _tensors(of_named_classes(clf._model), "fit.")
    tensors |= {f"labels.{k}": torch.from_numpy(_small(getattr(ann, k))) for k in TRIPLES}
    tensors |= {"shift": clf._shift, "factor": clf._factor}
    if clf.embeddings_ is not None and clf.embeddings_.numel() <= MOST_KEPT and "fit.embeddings" not in tensors:
        tensors["embeddings"] = clf.embeddings_
    tensors |= {"gold": torch.from_numpy(clf._known.gold), "without_gold": torch.from_numpy(clf._without_gold)}
    optional = {name: getattr(clf._known, name) for name in OPTIONAL}
    tensors |= {name: torch.from_numpy(value) for name, value in optional.items() if value is not None}
    card = {
        "kind": "classifier",
        "encoder": encoder_card,
        "method": clf.method,
        "learner": clf.learner_,
        "settings": _to_card(clf.settings_),
        "asked": sorted(clf.settings or {}),  # others were selected by the fit
        "random_state": clf._seed,
        "ordered": clf._known.ordered,
        **({"temperature": clf.temperature_} if clf.temperature_ != 1 else {}),
        "missing": _mark_to_card(clf._missing),
        "named": None if clf._named is None else clf._named.tolist(),
        "n_features_in": getattr(clf, "n_features_in_", None),
        "feature_names_in": list(getattr(clf, "feature_names_in_", ())),
        "columns": list(ann.columns),
        **{k: getattr(ann, k).tolist() for k in IDS},
    }
    return tensors, card


def load_classifier(clf: CrowdClassifier, path: str | os.PathLike[str]) -> None:
    """Restore the state that `save_classifier` wrote, in a new classifier."""
    fill(clf, *read_safetensors(path, "classifier"), path)


def fill(clf: CrowdClassifier, tensors: Mapping[str, Tensor], card: Card, path: str | os.PathLike[str]) -> None:
    """Restore the state of a fitted classifier from its tensors and card; ``path`` is for error messages."""
    try:
        learner = _restore(clf, tensors, card, path)
        _check(clf)
    except CrowdshotError as error:
        error.where = error.where or str(path)
        raise
    except Exception as error:  # a damaged card can make any library raise anything
        raise CrowdshotError(
            f"is damaged or incomplete ({type(error).__name__}: {error})",
            where=path,
            expected="a classifier that crowdshot saved",
            hint="Fit and save it again.",
        ) from None
    clf._reader, clf.learner_ = learner.reader(clf.encoder_), learner.name
    clf.classes_ = clf.annotations_.classes
    if card["n_features_in"] is not None:
        clf.n_features_in_ = card["n_features_in"]
    if card.get("feature_names_in"):
        clf.feature_names_in_ = np.array(card["feature_names_in"], dtype=object)


def _restore(clf: CrowdClassifier, tensors: Mapping[str, Tensor], card: Card, path: str | os.PathLike[str]) -> Learner:
    """Set parameters and fitted attributes; return the learner that fitted the model."""
    encoder = encoder_from_state(tensors_of_part(tensors, "encoder."), card["encoder"], str(path))
    settings = _from_card(card["settings"])
    name = current_name(card["learner"] if "learner" in card else _learner_of_old(card["method"], settings), warn=False)
    asked = {name: settings[name] for name in card.get("asked", settings) if name in settings}
    method = current_name(card["method"], warn=False)
    if method == AUTO and "scale" in asked and name == OURS:
        method = "ours"  # as an argument, the scale chose the mixture
    clf.set_params(encoder=encoder, method=method, settings=asked, random_state=card["random_state"])
    clf._seed = clf._draw_seed()
    triples = {name: _large(tensor.numpy()) for name, tensor in tensors_of_part(tensors, "labels.").items()}
    ids = {name: unique_ids(card[name], name) for name in IDS}
    clf.annotations_ = Annotations(**triples, **ids, columns=Columns(*map(str, card["columns"])))
    learner = _find(name, settings, clf._seed, path)
    gold = tensors["gold"].numpy() if "gold" in tensors else np.full(clf.annotations_.n_items, -1)
    optional = {name: tensors[name].numpy() for name in OPTIONAL if name in tensors}
    clf._known = SideInformation(gold, **optional, ordered=bool(card.get("ordered", False)))
    clf._missing = card.get("missing", -1)
    clf._without_gold = tensors["without_gold"].numpy() if "gold" in tensors else np.zeros((0, len(ids["classes"])))
    named = card.get("named")
    clf._named = None if named is None else np.array(named, dtype=np.int64)
    restore = learner.restore if named is None else partial(_restore_reduced, learner)
    fit = restore(settings, tensors_of_part(tensors, "fit."), encoder)
    clf._model = with_all_classes(fit, clf.annotations_, clf._known, clf._named)
    clf._shift, clf._factor = tensors["shift"], tensors["factor"]
    clf.temperature_ = float(card.get("temperature", 1.0))
    embeddings = next((name for name in ("embeddings", "fit.embeddings") if name in tensors), None)
    clf.embeddings_ = None if embeddings is None else tensors[embeddings]
    clf.encoder_, clf.settings_ = encoder, settings
    card["n_features_in"]  # a card without it is damaged
    return learner


def _check(clf: CrowdClassifier) -> None:
    """Raise an error if the parts of a file are inconsistent. Files of 0.1.0 have no checksum."""
    ann, known = clf.annotations_, clf._known
    N, R, K, D = ann.n_items, ann.n_annotators, ann.n_classes, len(clf._shift)
    positions = {
        "item": (ann.item, ann.n_labels, 0, N),
        "annotator": (ann.annotator, ann.n_labels, 0, R),
        "label": (ann.label, ann.n_labels, 0, K),
        "gold": (known.gold, N, -1, K),
    }
    for name, (array, length, lowest, end) in positions.items():
        if array.shape != (length,) or array.dtype != np.int64:
            raise ValueError(f"{name} has shape {array.shape} and type {array.dtype}, not ({length},) and int64")
        if length and not lowest <= array.min() <= array.max() < end:
            raise ValueError(f"{name} has positions from {array.min()} to {array.max()} among {end}")
    predicted = clf._model.log_proba(torch.zeros(1, D, dtype=clf._shift.dtype))
    numbers: dict[str, tuple[Any, tuple[int, ...]]] = {
        "shift": (clf._shift, (D,)),
        "factor": (clf._factor, ()),
        "temperature": (torch.tensor(1 / clf.temperature_), ()),
        "log_proba": (predicted.exp(), (1, K)),
        "without_gold": (torch.from_numpy(clf._without_gold), (int((known.gold >= 0).sum()), K)),
        "history": (known.history, (R, 2)),
        "weight": (known.weight, (N,)),
        "embeddings": (clf.embeddings_, (N, D)),
    }
    if clf._named is None:  # saved with labels
        numbers |= {
            "label_proba": (posterior_of(clf._model), (N, K)),
            "class_probs": (clf._model.class_probs, (K,)),
            "confusion": (clf._model.confusion, (R, K, K)),
        }
    for name, (values, shape) in numbers.items():
        if values is None:
            continue
        if tuple(values.shape) != shape:
            raise ValueError(f"{name} has shape {tuple(values.shape)}, not {shape}")
        if not np.isfinite(np.asarray(values)).all():
            raise ValueError(f"{name} has values that are not finite")


def _small(positions: Positions) -> NDArray[Any]:
    """Return positions in the smallest type that holds them all."""
    return positions.astype(np.min_scalar_type(-1 - int(positions.max(initial=0))))


def _large(positions: NDArray[Any]) -> NDArray[Any]:
    return positions.astype(np.int64) if positions.dtype.kind == "i" else positions


def _tensors(fit: Any, prefix: str) -> dict[str, Tensor]:
    """Return the tensors of a fit and of the fits inside it, with prefixed names."""
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
    """Return the learner of a saved classifier; a method of another package requires this package."""
    if name.lower() not in (known.lower() for known in METHODS):
        raise CrowdshotError(
            f"was fitted by {name!r}",
            where=path,
            found=name,
            expected=f"one of {', '.join(METHODS)}",
            hint="Install the package that adds this method.",
        )
    return learner_of(name, settings, seed)


def _learner_of_old(method: str, settings: Mapping[str, Any]) -> str:
    """Return the learner of a file of 0.1.0, whose card does not name it; only the mixture has a covariance."""
    if method.lower() in (AUTO, PAPER):
        return OURS if "covariance" in settings else LABELING_SEARCH
    return method


def _mark_to_card(missing: Any) -> Any:
    """Return the value for JSON, which has neither NumPy numbers nor NaN. NaN always counts as missing."""
    return None if pd.isna(missing) else missing.item() if isinstance(missing, np.generic) else missing


def _to_card(settings: Mapping[str, Any]) -> Card:
    """Return settings for JSON. A prior on confusion matrices becomes its name and numbers."""
    if "c" not in settings:
        return dict(settings)
    prior = priors.to_card(priors.Priors(tau=settings["tau"], b=settings["b"], c=settings["c"]))
    return {**settings, "tau": prior["tau"], "b": prior["b"], "c": prior["confusion"]}


def _from_card(card: Mapping[str, Any]) -> dict[str, Any]:
    if "c" not in card:
        return dict(card)
    return {**card, **priors.from_card({"tau": card["tau"], "b": card["b"], "confusion": card["c"]})}


# ---- Without items and labels ----------------------------------------------------------------------------------------


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


def _restore_reduced(
    learner: Learner, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Any
) -> FittedModel:
    """Rebuild a model that `without_items` returned."""
    if "search.means" in tensors:
        return CombinedFit(
            cast(Any, ClassMeans(**tensors_of_part(tensors, "search."))),
            FeatureFit(**tensors_of_part(tensors, "looks.")),
            tensors["company"],
            tensors["confusion"],
        )
    return ClassMeans(**tensors) if learner.name == LABELING_SEARCH else learner.restore(settings, tensors, encoder)
