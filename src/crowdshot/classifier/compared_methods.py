"""Run a compared method on a user's items, for `CrowdClassifier(method=...)`.

`Compared` is the learner: a method with its settings. `ComparedFit` is the fitted model: methods keep only the labelled
items and their labels, and run again for every set of queries.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from crowdshot.classifier import episode_methods, mixture_learners
from crowdshot.classifier.encoder_choice import items_as_they_are, shipped_encoder
from crowdshot.classifier.learner_contract import (
    Learner,
    LearnerResult,
    SideInformation,
    check_setting_names,
    unscaled,
)
from crowdshot.classifier.mixture_learners import MixtureLearner, with_history
from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.image_input import ImageInput
from crowdshot.encoders.networks import MLP, Conv4, Identity, Lite0
from crowdshot.errors import CrowdshotError, Use
from crowdshot.labels.annotations import Annotations
from crowdshot.methods import MAP_EM, METHODS, Candidate, CrowdEpisodes, Method, find
from crowdshot.model import mixture, prototypes

AT_ONCE = 2**28  # numbers that the first convolution may output for one batch of queries
CHANNELS = 64  # of that convolution
MOST_CELLS = 200_000_000  # of the vote matrix
TEACHABLE = (Conv4, MLP)
STEPS = 2  # of Dawid-Skene, if the method has no setting for it
MOST_NUMBERS = 500_000  # items × features with which a method is quick enough to be fitted ten times


def learner_of(name: str, settings: Candidate, seed: int) -> Learner:
    """Return the learner of a method in `METHODS`; parameters as in `learners.learner_of`."""
    method = find(name)
    if method.run is MAP_EM:
        constants = {name: method.default[name] for name in episode_methods.CONSTANTS} | dict(settings)
        encoder = partial(shipped_encoder, method)
        return MixtureLearner(method.name, constants, seed, encoder, trained_with=("mixture", "prototypical"))
    return Compared(method, checked(method, settings), seed)


def checked(method: Method, settings: Candidate) -> dict[str, Any]:
    """Return the settings, checked to have the type of the method's default, and to be positive if it is built in."""
    check_setting_names(method.name, settings, tuple(method.default))
    is_built_in = METHODS.is_built_in(method.name)  # methods of other packages may have negative settings
    out: dict[str, Any] = {}
    for name, value in settings.items():
        kind = _kind([one[name] for one in (method.default, *method.candidates) if name in one])
        if kind is bool:
            expected, fits = "true or false", isinstance(value, bool | np.bool_)
        else:
            expected = "a whole number" if kind is int else "a number"
            fits = isinstance(value, Integral if kind is int else Real) and not isinstance(value, bool)
            fits = fits and abs(value) < math.inf
            if is_built_in:
                expected = "a whole number, 1 or more" if kind is int else "a positive number"
                fits = fits and value > 0
        if not fits:
            raise CrowdshotError(
                f"has {value!r} as {name} of {method.name}", argument="settings", found=value, expected=expected
            )
        out[name] = kind(value)
    return out


def _kind(values: Sequence[Any]) -> type:
    """Return the type of a setting with these values: bool, int or float."""
    if all(isinstance(value, bool) for value in values):
        return bool
    return int if all(isinstance(value, Integral) for value in values) else float


@dataclass(frozen=True)
class Compared(Learner):
    """A compared method with checked settings.

    A method that needs meta-training learns from the input of the encoder's network, and calls the network itself. Any
    other method learns from embeddings; its default encoder leaves feature vectors unchanged.
    """

    method: Method
    given: Candidate
    seed: int
    name: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.method.name)

    def is_quick(self, n_numbers: int) -> bool:
        return self.method.needs is None and n_numbers <= MOST_NUMBERS

    def default_encoder(self, X: Any) -> Encoder:
        return items_as_they_are(X) if self.method.needs is None else shipped_encoder(self.method, X)

    def reader(self, encoder: Encoder) -> Encoder:
        return self._parts(encoder)[0]

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, side: SideInformation) -> LearnerResult:
        side.refuse(self.name, "'auto', 'features' or 'ours'", "weight")
        side.refuse(self.name, "'auto' or 'features'", "pred_probs")
        reader, network = self._parts(encoder)
        network, shape = network.to(x.device), _shape(reader)
        shift, factor = unscaled(x)
        is_raw = not (self._takes_embeddings() and isinstance(encoder.module, (*TEACHABLE, Lite0)))
        if isinstance(network, Identity) and shape == (-1,) and "priors" not in encoder.card and is_raw:
            shift, factor = mixture_learners.standardise(x)
            factor = factor * mixture_learners.TYPICAL**0.5  # distances as with the mixture's most frequent scale
        x = (x - shift) * factor
        fit = fit_compared(self.method, self._settings(encoder), self.seed, network, x, shape, annotations, side)
        return LearnerResult(self.name, fit, dict(fit.settings), shift, factor)

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> ComparedFit:
        return ComparedFit(self.method.name, settings, self.seed, self._parts(encoder)[1], **tensors)

    def _parts(self, encoder: Encoder) -> tuple[Encoder, nn.Module]:
        """Return the reader and the network after it, which the method may train.

        For a backbone with a head, this network is the head. If methods cannot train a network, it is part of the
        reader, and the method learns from its embeddings.
        """
        if self.method.needs is not None and encoder.input is not None and not self._takes_embeddings():
            if isinstance(encoder.module, TEACHABLE):
                return replace(encoder, module=Identity()), encoder.module
            if isinstance(encoder.module, Lite0):
                return replace(encoder, module=encoder.module.body), linear_network(encoder.module.head)
        return encoder, Identity()

    def _takes_embeddings(self) -> bool:
        """Return whether items are embedded before the method sees them, as `Method.on_embeddings` promises.

        The project's own methods embed items themselves, and files that they saved contain items.
        """
        return self.method.on_embeddings and not METHODS.is_built_in(self.method.name)

    def _settings(self, encoder: Encoder) -> dict[str, Any]:
        """Return the defaults, overridden by the settings of the encoder's meta-training and then by the user's."""
        needs, recipe = self.method.needs, encoder.card.get("recipe", {})
        shared = {name: recipe[name] for name in (needs.by if needs else ()) if name in recipe}
        return {**self.method.default, **shared, **self.given}


def linear_network(layer: nn.Linear) -> MLP:
    """Return a layer as an MLP, which can be stacked; the tensors are shared."""
    with torch.device("meta"):  # draws no random weights
        network = MLP(layer.in_features, (), layer.out_features)
    network.layers[0].load_state_dict(layer.state_dict(), assign=True)
    return network


def _shape(reader: Encoder) -> tuple[int, ...]:
    """Return the shape of an item from the reader: an image if the reader only decodes, else a vector."""
    spec = reader.input
    if isinstance(spec, ImageInput) and isinstance(reader.module, Identity):
        return (spec.channels, *spec.size)
    return (-1,)


@dataclass(frozen=True, eq=False)
class ComparedFit:
    """A method and the labelled items from which it learns. A `learner_contract.FittedModel`.

    Most methods have no posterior of the labelled items. Posteriors, annotators and confusion matrices are therefore
    those of Dawid–Skene with the paper's priors, from labels alone, with the method's number of steps or `STEPS`. Items
    without labels are predicted by the method. If the class of an item is known, all annotators' labels are set to it.
    """

    method: str
    settings: dict[str, Any]
    seed: int
    network: nn.Module = field(repr=False)
    support: Tensor = field(repr=False)  # (n, *shape), the items with labels or known class
    labels: Tensor = field(repr=False)  # (n, R), -1 = missing
    responsibilities: Tensor = field(repr=False)  # (N, K), posteriors of all items
    class_probs: Tensor = field(repr=False)  # (K,)
    confusion: Tensor = field(repr=False)  # (R, K, K)

    def log_proba(self, queries: Tensor) -> Tensor:
        """Return log p(class | item): (Q, D) -> (Q, K), -inf for a class to which the method gives probability 0."""
        query = queries.reshape(-1, *self.support.shape[1:])
        parts = [self._probabilities(part) for part in torch.split(query, self._at_once(query))]
        return torch.cat(parts).log()

    def _probabilities(self, query: Tensor) -> Tensor:
        episode = CrowdEpisodes(self.support[None], self.labels[None], query[None], len(self.class_probs))
        return METHODS[self.method].predict(episode, self.network, seed=self.seed, **self.settings)[0]

    def _at_once(self, query: Tensor) -> int:
        """Return how many queries to predict together: all for MAML, which normalises over them, else a batch."""
        needs = METHODS[self.method].needs
        if needs is not None and needs.objective == "maml":
            return max(1, len(query))
        return max(1, AT_ONCE // (query[:1].numel() * (CHANNELS if query.ndim == 4 else 1)))


def fit_compared(
    method: Method,
    settings: dict[str, Any],
    seed: int,
    network: nn.Module,
    x: Tensor,
    shape: tuple[int, ...],
    annotations: Annotations,
    side: SideInformation,
) -> ComparedFit:
    """Fit a method to items x (N, D), which are reshaped to ``shape`` for the network."""
    rows = np.union1d(annotations.item, np.flatnonzero(side.gold >= 0))
    cells = len(rows) * annotations.n_annotators * annotations.n_classes
    if cells > MOST_CELLS:
        raise CrowdshotError(
            f"has {cells:,} items × annotators × classes",
            argument="labels",
            found=cells,
            expected=f"{MOST_CELLS:,} or fewer for {method.name}",
            hint=Use("to fit problems of any size", method="ours"),
        )
    labels = annotations.select_items(annotations.items[rows]).to_tensor().to(x.device)
    gold = torch.from_numpy(side.gold[rows]).to(x.device)
    nothing = x.new_zeros(len(rows), 0)
    steps, prior = settings.get("steps", STEPS), with_history(prototypes.C, side, annotations.n_classes)
    posterior = mixture.fit(
        nothing, labels, annotations.n_classes, steps=steps, b=prototypes.B, c=prior, truth=gold, track=False
    )
    responsibilities = x.new_zeros(len(x), annotations.n_classes)
    labelled = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    labelled[torch.from_numpy(rows).to(x.device)] = True
    responsibilities[labelled] = posterior.responsibilities
    labels = torch.where((gold >= 0)[:, None], gold[:, None], labels)  # all annotators chose the known class
    support = x[labelled].reshape(len(rows), *shape)
    fit = ComparedFit(
        method.name,
        settings,
        seed,
        network,
        support,
        labels,
        responsibilities,
        posterior.class_probs,
        posterior.confusion,
    )
    if len(rows) < len(x):
        responsibilities[~labelled] = fit.log_proba(x[~labelled]).exp()
    return fit
