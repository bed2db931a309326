"""From items and a crowd's labels to a classifier: by the mixture, or by a method that it is compared with.

`CrowdClassifier` asks `learner_of` for the way that its ``method`` names, and from there on goes one way for all. The
mixture lives here; every other way is `methods.adapted.Compared`, loaded only when it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from crowdshot import mixture, priors, scale
from crowdshot.annotations import Annotations
from crowdshot.encoders import Encoder, default_encoder, load_encoder
from crowdshot.errors import CrowdshotError

OURS = "Ours"
MOST_DENSE = 20_000_000  # cells of the vote matrix; a larger crowd is kept sparse
ARGUMENTS = ("steps", "tau", "b", "c", "scale", "covariance")  # of `mixture.fit`, to be set by a user


class Fitted(Protocol):
    """What is left of a problem once it is learned: `mixture.Fit` or `methods.adapted.Adapted`."""

    @property
    def responsibilities(self) -> Tensor:
        """(N, K)"""

    @property
    def class_probs(self) -> Tensor:
        """(K,)"""

    @property
    def confusion(self) -> Tensor:
        """(R, K, K) [annotator, true, observed]"""

    def log_proba(self, queries: Tensor, /) -> Tensor:
        """(Q, D) -> (Q, K)"""


class Learned(NamedTuple):
    """The fit, what it was made with, and the shift (D,) and factor () that items need before they meet it."""

    fit: Fitted
    settings: dict[str, Any]
    shift: Tensor
    factor: Tensor


class Learner(Protocol):
    def default_encoder(self, X: Any) -> Encoder:
        """The one to use for X where the user names none."""

    def reader(self, encoder: Encoder) -> Encoder:
        """What turns X into the vectors that are learned from."""

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder) -> Learned:
        """x (N, D), as the reader gives it, a row for each of the annotations' items."""

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Fitted:
        """The fit again, from its tensors and the settings that it was made with."""


def learner_of(method: str, settings: Mapping[str, Any] | None, given: Mapping[str, Any], seed: int) -> Learner:
    """``settings`` are the method's own; ``given`` those among `ARGUMENTS` that a user set one by one."""
    if not isinstance(settings, Mapping | None):
        raise CrowdshotError(f"settings: found {settings!r}, expected a mapping like {{'steps': 3}}")
    settings = dict(settings or {})
    if str(method).lower() == OURS.lower():
        return Mixture(OURS, {**settings, **given}, seed)
    from crowdshot.methods import adapted

    return adapted.learner_of(method, settings, given, seed)


def shipped_for(X: Any) -> Encoder:
    return load_encoder(default_encoder(X))


@dataclass(frozen=True)
class Mixture:
    """MAP-EM on embeddings: Ours, and whatever differs from it in constants or encoder alone.

    ``given``: arguments of `mixture.fit`. What they leave open the encoder was trained with; for outside features it is
    what `scale` recommends, and the weight of the features is chosen by how well held-back labels are predicted.
    """

    name: str
    given: Mapping[str, Any]
    seed: int
    choose: Callable[[Any], Encoder] = shipped_for

    def __post_init__(self) -> None:
        check_names(self.name, self.given, ARGUMENTS)
        steps = self.given.get("steps", 1)
        if not isinstance(steps, Integral) or int(steps) < 1:
            raise CrowdshotError(f"steps: found {steps!r}, expected a whole number, 1 or more")
        for name, value in self.given.items():
            if isinstance(value, Real) and not 0 <= float(value) < math.inf:
                raise CrowdshotError(f"{name}: found {value!r}, expected a number, 0 or more")

    def default_encoder(self, X: Any) -> Encoder:
        return self.choose(X)

    def reader(self, encoder: Encoder) -> Encoder:
        return encoder

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder) -> Learned:
        trained = encoder.card.get("priors")
        settings: dict[str, Any] = {"steps": scale.STEPS, **scale.PRIORS, "scale": None, "covariance": "identity"}
        if trained:
            settings |= {"steps": trained.get("steps", 2), **priors.from_card(trained), "scale": 1.0}
        settings |= self.given
        if isinstance(settings["c"], tuple):
            settings["c"] = priors.Diagonal(*settings["c"])
        shift, factor = untouched(x) if trained else scale.standardise(x)
        x = (x - shift) * factor
        if settings["scale"] is None:
            beliefs = priors.Priors(tau=settings["tau"], b=settings["b"], c=settings["c"])
            settings["scale"] = scale.choose_scale(
                x, annotations, steps=settings["steps"], seed=self.seed, priors=beliefs
            )
        fit = mixture.fit(x, _votes(annotations).to(x.device), annotations.n_classes, **settings)
        return Learned(fit, settings, shift, factor)

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Fitted:
        fields: dict[str, Any] = {"covariance": None, **tensors}
        return mixture.Fit(**fields, covariance_kind=settings["covariance"])


def untouched(x: Tensor) -> tuple[Tensor, Tensor]:
    """The shift (D,) and the factor () that change nothing."""
    return x.new_zeros(x.shape[1]), x.new_ones(())


def check_names(method: str, settings: Mapping[str, Any], known: tuple[str, ...]) -> None:
    strange = sorted(set(settings) - set(known))
    if strange:
        expected = f"some of {', '.join(known)}" if known else "none"
        raise CrowdshotError(f"settings: {strange[0]!r} is not a setting of {method}, expected {expected}")


def _votes(ann: Annotations) -> Tensor:
    """What `mixture.fit` takes for labels: a dense matrix, or a sparse one where that would be too large."""
    if ann.n_items * ann.n_annotators * ann.n_classes <= MOST_DENSE:
        return ann.to_tensor()
    item, annotator, label = (torch.from_numpy(x) for x in (ann.item, ann.annotator, ann.label))
    return mixture.sparse_votes(item, annotator, label, (ann.n_items, ann.n_annotators, ann.n_classes))
