"""From items and a crowd's labels to a classifier: by our own ways, or by a method that they are compared with.

`CrowdClassifier` asks `learner_of` for the way that its ``method`` names, and from there on goes one way for all. Our
own live here, the search for labelings and the mixture; every other way is `methods.adapted.Compared`, loaded only when
it is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from numbers import Integral, Real
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from crowdshot import labelings, mixture, priors, scale
from crowdshot.annotations import Annotations
from crowdshot.encoders import PROTOTYPICAL, Encoder, default_encoder, load_encoder
from crowdshot.errors import CrowdshotError

AUTO, LABELINGS, OURS, PAPER = "auto", "Labelings", "Ours", "paper"
FEW = 200  # labelled items, beyond which EM does not get lost, and a search takes long
MOST_SEARCHED = 2_000
MOST_DENSE = 20_000_000  # cells of the vote matrix; a larger crowd is kept sparse
ARGUMENTS = ("steps", "tau", "b", "c", "scale", "covariance")  # of `mixture.fit`, to be set by a user


class Fitted(Protocol):
    """What is left of a problem once learned: a `labelings.Posterior`, `mixture.Fit` or `methods.adapted.Adapted`."""

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
    @property
    def name(self) -> str:
        """The method's, as in `methods.METHODS`."""

    def default_encoder(self, X: Any) -> Encoder:
        """The one to use for X where the user names none."""

    def reader(self, encoder: Encoder) -> Encoder:
        """What turns X into the vectors that are learned from."""

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder) -> Learned:
        """x (N, D), as the reader gives it, a row for each of the annotations' items."""

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Fitted:
        """The fit again, from its tensors and the settings that it was made with."""


def learn(learner: Learner, x: Tensor, annotations: Annotations, encoder: Encoder) -> Learned:
    """As `Learner.learn`, without the classes that nobody named: they have probability 0. Two at least must be.

    A class without an item has its mean where the prior puts it, in the midst of all items, and would draw those to
    itself that lie between the others.
    """
    named = np.unique(annotations.label)
    place = np.full(annotations.n_classes, -1)
    place[named] = np.arange(len(named))
    fewer = replace(annotations, label=place[annotations.label], classes=annotations.classes[named])
    learned = learner.learn(x, fewer, encoder)
    return learned._replace(fit=among_all(learned.fit, annotations))


def among_all(fit: Fitted, annotations: Annotations) -> Fitted:
    """A fit of the classes that somebody named, as one of all."""
    K, named = annotations.n_classes, torch.from_numpy(np.unique(annotations.label)).to(fit.confusion.device)
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

    "auto" is the search for labelings, and EM where something is set that EM alone has, or, if nothing is set, where
    labelled items are many or features come from elsewhere; "paper" is Ours with the paper's constants.
    """
    if not isinstance(settings, Mapping | None):
        raise CrowdshotError(f"settings: found {settings!r}, expected a mapping like {{'steps': 3}}")
    settings, name = dict(settings or {}), str(method).lower()
    for_em = bool(given) or not set(ARGUMENTS).isdisjoint(set(settings) - {"scale", "tau"})
    if name == OURS.lower() or (name == AUTO and for_em):
        return Mixture(OURS, {**settings, **given}, seed)
    if name == PAPER:
        return Mixture(OURS, {"steps": 2, **priors.PAPER, "scale": 1.0, **settings, **given}, seed)
    if name == AUTO:
        return Searched(settings, seed, few=FEW)
    if name == LABELINGS.lower():
        refuse(LABELINGS, given)
        return Searched(settings, seed)
    from crowdshot.methods import adapted

    return adapted.learner_of(method, settings, given, seed)


def refuse(method: str, given: Mapping[str, Any]) -> None:
    """For methods that have none of `ARGUMENTS`."""
    if given:
        raise CrowdshotError(
            f"{next(iter(given))}: found with method {method!r}, expected with the mixture alone (ours, w/o PA);"
            f" settings= takes what {method} has of its own"
        )


@dataclass(frozen=True)
class Searched:
    """An average over the most probable labelings, on embeddings that were meta-trained to form round clouds.

    ``given``: arguments of `labelings.fit`; what they leave open was chosen on validation when the encoder was trained.
    Where ``few`` is a number and nothing is given, the mixture learns instead from more labelled items than that, and
    from outside features: a search that looks at all labelings believes features that say nothing of the classes, while
    EM stays near the vote.
    """

    given: Mapping[str, Any]
    seed: int
    few: int | None = None
    name = LABELINGS

    def __post_init__(self) -> None:
        check_names(self.name, self.given, ("scale", "tau", "width"))
        for name, value in self.given.items():
            if not isinstance(value, Real) or isinstance(value, bool) or not 0 < float(value) < math.inf:
                raise CrowdshotError(f"settings: {name} of {self.name} is {value!r}, expected a positive number")
        if not isinstance(self.given.get("width", 1), Integral):
            raise CrowdshotError(f"settings: width of {self.name} is {self.given['width']!r}, expected a whole number")

    def default_encoder(self, X: Any) -> Encoder:
        base = default_encoder(X)
        return load_encoder(base if base == "identity" else base + PROTOTYPICAL)

    def reader(self, encoder: Encoder) -> Encoder:
        return encoder

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder) -> Learned:
        rows = np.unique(annotations.item)
        if self.few is not None and not self.given and (len(rows) > self.few or "recipe" not in encoder.card):
            return Mixture(OURS, {}, self.seed).learn(x, annotations, encoder)
        if len(rows) > MOST_SEARCHED:
            raise CrowdshotError(
                f"labels: {len(rows):,} labelled items are too many for {self.name}, expected {MOST_SEARCHED:,} or"
                " less; method 'ours' takes any number"
            )
        labels = annotations.select_items(annotations.items[rows]).to_tensor().to(x.device)
        place = torch.from_numpy(rows).to(x.device)
        settings: dict[str, Any] = {"scale": labelings.SCALE, "tau": labelings.TAU, "width": labelings.WIDTH}
        settings |= {**encoder.card.get("labelings", {}), **self.given}
        fit = labelings.fit(x[place], labels, annotations.n_classes, **settings)
        believed = labelings.item_beliefs(fit, labels)
        everywhere = torch.full((len(fit.labelings), len(x)), -1, dtype=torch.int16, device=x.device)  # small in a file
        everywhere[:, place] = fit.labelings.to(everywhere)
        learned = replace(fit, embeddings=x, labelings=everywhere, believed=believed)
        return Learned(learned, settings, *untouched(x))

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Fitted:
        return labelings.Posterior(**tensors)


def shipped_for(X: Any) -> Encoder:
    return load_encoder(default_encoder(X))


@dataclass(frozen=True)
class Mixture:
    """MAP-EM on embeddings: Ours, and whatever differs from it in constants or encoder alone.

    ``given``: arguments of `mixture.fit`. What they leave open the encoder was trained with; for outside features it is
    what `scale` recommends, and the weight of the features is chosen by how well held-back labels are predicted. So it
    is for encoders of an objective that is not among ``at_home``.
    """

    name: str
    given: Mapping[str, Any]
    seed: int
    choose: Callable[[Any], Encoder] = shipped_for
    at_home: tuple[str, ...] = ("mixture",)

    def __post_init__(self) -> None:
        check_names(self.name, self.given, ARGUMENTS)
        steps = self.given.get("steps", 1)
        if not isinstance(steps, Integral) or int(steps) < 1:
            raise CrowdshotError(f"steps: found {steps!r}, expected a whole number, 1 or more")
        for name, value in self.given.items():
            if name == "covariance" or (name == "c" and callable(value) and not isinstance(value, type)):
                continue
            numbers = value if name == "c" and isinstance(value, tuple | list) and len(value) == 2 else [value]
            if not all(_is_number(one) and 0 <= float(one) < math.inf for one in numbers):
                pair = ", a pair (right, wrong) or a prior" if name == "c" else ""
                raise CrowdshotError(f"{name}: found {value!r}, expected a number, 0 or more{pair}")

    def default_encoder(self, X: Any) -> Encoder:
        return self.choose(X)

    def reader(self, encoder: Encoder) -> Encoder:
        return encoder

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder) -> Learned:
        objective = encoder.card.get("recipe", {}).get("objective", "mixture")
        trained = encoder.card.get("priors") if objective in self.at_home else None
        beliefs = scale.priors_of(annotations.n_classes)
        settings: dict[str, Any] = {"steps": scale.STEPS, **beliefs, "scale": None, "covariance": "identity"}
        if trained:
            settings |= {"steps": trained.get("steps", 2), **priors.from_card(trained), "scale": 1.0}
        settings |= {name: float(value) if isinstance(value, Tensor) else value for name, value in self.given.items()}
        if isinstance(settings["c"], tuple | list):
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


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) or (isinstance(value, Tensor) and value.numel() == 1)


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
