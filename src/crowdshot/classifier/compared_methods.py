"""A compared method on one problem of a user's, for `CrowdClassifier(method=...)`.

`Compared` is a method with its settings, before it has seen anything: a `learners.Learner`. `Adapted` is what is left
after it has: methods keep nothing but the labelled items and their labels, and run again for every set of queries.
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
from crowdshot.classifier.learner_contract import Learned, Learner, check_names, refuse, untouched
from crowdshot.classifier.mixture_learners import Mixture, with_history
from crowdshot.classifier.side_information import Known
from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.image_input import ImageInput
from crowdshot.encoders.lite0 import Lite0
from crowdshot.encoders.networks import MLP, Conv4, Identity
from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations
from crowdshot.methods import MAP_EM, METHODS, Candidate, CrowdEpisodes, Method, find
from crowdshot.model import mixture, prototypes

AT_ONCE = 2**28  # numbers that a piece of queries may fill behind a first convolution
CHANNELS = 64  # of that convolution
MOST_CELLS = 200_000_000  # of the vote matrix
TEACHABLE = (Conv4, MLP)
STEPS = 2  # of Dawid-Skene, where the method has no number of its own


# ---- before -----------------------------------------------------------------------------------------------------


def learner_of(name: str, settings: Candidate, given: Mapping[str, Any], seed: int) -> Learner:
    """As `learners.learner_of`."""
    method = find(name)
    if method.run is MAP_EM:
        constants = {name: method.default[name] for name in episode_methods.CONSTANTS} | {**settings, **given}
        encoder = partial(shipped_encoder, method)
        return Mixture(method.name, constants, seed, encoder, at_home=("mixture", "prototypical"))
    refuse(method.name, given)
    return Compared(method, checked(method, settings), seed)


def checked(method: Method, settings: Candidate) -> dict[str, Any]:
    """Each setting of the kind that its default and its candidates are of; positive, if the method is built in."""
    check_names(method.name, settings, tuple(method.default))
    is_built_in = METHODS.is_built_in(method.name)  # others may have settings that are negative
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
            raise CrowdshotError(f"settings has {value!r} as {name} of {method.name}, expected {expected}.")
        out[name] = kind(value)
    return out


def _kind(values: Sequence[Any]) -> type:
    """What a setting is that has these values: one of true or false, of whole numbers, or of any."""
    if all(isinstance(value, bool) for value in values):
        return bool
    return int if all(isinstance(value, Integral) for value in values) else float


@dataclass(frozen=True)
class Compared:
    """A method with its settings, checked.

    One that builds on meta-training learns from what the encoder's network takes, and goes through the network itself;
    one that does not, from what the encoder makes of an item, which by default is the item.
    """

    method: Method
    given: Candidate
    seed: int

    @property
    def name(self) -> str:
        return self.method.name

    def default_encoder(self, X: Any) -> Encoder:
        return items_as_they_are(X) if self.method.needs is None else shipped_encoder(self.method, X)

    def reader(self, encoder: Encoder) -> Encoder:
        return self._parts(encoder)[0]

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, known: Known) -> Learned:
        known.refuse(self.name, "'auto', 'learned' or 'ours'", "weight")
        known.refuse(self.name, "'auto' or 'learned'", "pred_probs")
        reader, network = self._parts(encoder)
        network, shape = network.to(x.device), _shape(reader)
        shift, factor = untouched(x)
        if isinstance(network, Identity) and shape == (-1,) and "priors" not in encoder.card:
            shift, factor = mixture_learners.standardise(x)
            factor = (
                factor * mixture_learners.TYPICAL**0.5
            )  # the distances to which the mixture's own scale mostly leads
        x = (x - shift) * factor
        fit = adapt(self.method, self._settings(encoder), self.seed, network, x, shape, annotations, known)
        return Learned(self.name, fit, dict(fit.settings), shift, factor)

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Adapted:
        return Adapted(self.method.name, settings, self.seed, self._parts(encoder)[1], **tensors)

    def _parts(self, encoder: Encoder) -> tuple[Encoder, nn.Module]:
        """The reader, and the network behind it, which the method may teach.

        Of a backbone with a head the network is the head. A network that methods cannot teach stays as it is; what it
        makes of items is then taken for items.
        """
        if self.method.needs is not None and encoder.input is not None:
            if isinstance(encoder.module, TEACHABLE):
                return replace(encoder, module=Identity()), encoder.module
            if isinstance(encoder.module, Lite0):
                return replace(encoder, module=encoder.module.body), linear_network(encoder.module.head)
        return encoder, Identity()

    def _settings(self, encoder: Encoder) -> dict[str, Any]:
        """The default's, those that the encoder's meta-training shares, and the user's, which come first."""
        needs, recipe = self.method.needs, encoder.card.get("recipe", {})
        shared = {name: recipe[name] for name in (needs.by if needs else ()) if name in recipe}
        return {**self.method.default, **shared, **self.given}


def linear_network(layer: nn.Linear) -> MLP:
    """A layer as a network that can be stacked, with the layer's own tensors."""
    with torch.device("meta"):  # draws no lots
        network = MLP(layer.in_features, (), layer.out_features)
    network.layers[0].load_state_dict(layer.state_dict(), assign=True)
    return network


def _shape(reader: Encoder) -> tuple[int, ...]:
    """Of an item as the reader gives it: an image where nothing was made of it yet, else a vector."""
    spec = reader.input
    if isinstance(spec, ImageInput) and isinstance(reader.module, Identity):
        return (spec.channels, *spec.size)
    return (-1,)


# ---- after ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Adapted:
    """A method and the crowd-labelled items it learns from. A `contract.Fitted`.

    What is said of labelled items and of annotators is Dawid–Skene's with the paper's priors, from the labels alone
    (`consensus_`, `annotators_` and `confusion_` of the classifier), after as many steps as the method's own
    Dawid–Skene takes, or `STEPS`: most methods have no posterior about an item that could be told. An item that nobody
    labelled is the method's to predict. Where an item's class is known, it learns as if everybody had named that.
    """

    method: str
    settings: dict[str, Any]
    seed: int
    network: nn.Module = field(repr=False)
    support: Tensor = field(repr=False)  # (n, *shape), the items that someone labelled
    labels: Tensor = field(repr=False)  # (n, R), -1 = missing
    responsibilities: Tensor = field(repr=False)  # (N, K), of all items
    class_probs: Tensor = field(repr=False)  # (K,)
    confusion: Tensor = field(repr=False)  # (R, K, K)

    def log_proba(self, queries: Tensor) -> Tensor:
        """log p(class | item): (Q, D) -> (Q, K), -inf for a class that the method holds impossible."""
        query = queries.reshape(-1, *self.support.shape[1:])
        parts = [self._probabilities(part) for part in torch.split(query, self._at_once(query))]
        return torch.cat(parts).log()

    def _probabilities(self, query: Tensor) -> Tensor:
        episode = CrowdEpisodes(self.support[None], self.labels[None], query[None], len(self.class_probs))
        return METHODS[self.method].predict(episode, self.network, seed=self.seed, **self.settings)[0]

    def _at_once(self, query: Tensor) -> int:
        """MAML normalises queries together; all others may come in pieces, though some then learn again for each."""
        needs = METHODS[self.method].needs
        if needs is not None and needs.objective == "maml":
            return max(1, len(query))
        return max(1, AT_ONCE // (query[:1].numel() * (CHANNELS if query.ndim == 4 else 1)))


def adapt(
    method: Method,
    settings: dict[str, Any],
    seed: int,
    network: nn.Module,
    x: Tensor,
    shape: tuple[int, ...],
    annotations: Annotations,
    known: Known,
) -> Adapted:
    """x (N, D) flat, of which ``shape`` makes an item as the network takes it."""
    rows = np.union1d(annotations.item, np.flatnonzero(known.gold >= 0))
    cells = len(rows) * annotations.n_annotators * annotations.n_classes
    if cells > MOST_CELLS:
        raise CrowdshotError(
            f"labels has {cells:,} items × annotators × classes, expected {MOST_CELLS:,} or less for {method.name};"
            " method='ours' takes any number."
        )
    labels = annotations.select_items(annotations.items[rows]).to_tensor().to(x.device)
    gold = torch.from_numpy(known.gold[rows]).to(x.device)
    nothing = x.new_zeros(len(rows), 0)
    steps, prior = settings.get("steps", STEPS), with_history(prototypes.C, known, annotations.n_classes)
    posterior = mixture.fit(
        nothing, labels, annotations.n_classes, steps=steps, b=prototypes.B, c=prior, truth=gold, track=False
    )
    responsibilities = x.new_zeros(len(x), annotations.n_classes)
    labelled = torch.zeros(len(x), dtype=torch.bool, device=x.device)
    labelled[torch.from_numpy(rows).to(x.device)] = True
    responsibilities[labelled] = posterior.responsibilities
    labels = torch.where((gold >= 0)[:, None], gold[:, None], labels)  # for the method, everybody knew
    support = x[labelled].reshape(len(rows), *shape)
    adapted = Adapted(
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
        responsibilities[~labelled] = adapted.log_proba(x[~labelled]).exp()
    return adapted
