"""What is believed before any label is seen.

The paper fixes three constants: a precision ``tau`` that pulls class means towards the origin, and Dirichlet
weights ``b`` (class probabilities) and ``c`` (every entry of every annotator's confusion matrix). ``b`` and ``c``
are pseudo-counts: labels that one pretends to have seen.

A prior on confusion matrices is any function from the counts so far, (..., R, K, K) in the order [annotator, true,
observed], and the number of classes, a number or one for each batch element, to pseudo-counts of the counts' shape
(R may be 1: the same for all). The M-step adds the two and normalises.
Three such priors live here:

- `Symmetric`: the paper's constant c, which takes an unknown annotator for a spammer.
- `Diagonal`: other weights on the diagonal than off it; people are usually better than chance.
- `OneCoin`: hierarchical; the annotator's overall accuracy is estimated first, and fills in the cells that few
  labels have reached.

`LearnedPriors` makes their numbers trainable together with the encoder; `from_card` gives them back.

>>> import torch
>>> from crowdshot import priors
>>> priors.OneCoin(right=3, wrong=1, weight=5)(torch.zeros(1, 2, 2), 2)  # pseudo-counts before any label
tensor([[[3.7500, 1.2500],
         [1.2500, 3.7500]]])
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

import torch
from torch import Tensor, nn

from crowdshot.errors import CrowdshotError

Number = float | Tensor
ConfusionPrior = Callable[[Tensor, int | Tensor], Tensor]


class Priors(TypedDict):
    """The arguments of `crowdshot.model.mixture.fit` that carry posteriors."""

    tau: Number
    b: Number
    c: Number | ConfusionPrior


def as_number(value: Number, like: Tensor) -> Tensor:
    """As a tensor of the same kind and place; a plain number is made there, so that nothing waits for a copy."""
    if isinstance(value, Tensor):
        return value.to(like)
    return torch.full((), value, dtype=like.dtype, device=like.device)


def per_matrix(value: Number, like: Tensor) -> Tensor:
    """A number for each batch element, (...), shaped to meet counts (..., R, K, K)."""
    return as_number(value, like)[..., None, None, None]


@dataclass(frozen=True)
class Symmetric:
    """The paper's prior, equation (4): the same weight c on every entry."""

    c: Number = 1.0

    def __call__(self, counts: Tensor, n_classes: int | Tensor) -> Tensor:
        return per_matrix(self.c, counts) * torch.ones_like(counts[..., :1, :, :])


@dataclass(frozen=True)
class Diagonal:
    """Weight ``right`` on the diagonal, ``wrong`` on every entry off it."""

    right: Number = 3.0
    wrong: Number = 0.5

    def __call__(self, counts: Tensor, n_classes: int | Tensor) -> Tensor:
        eye = torch.eye(counts.shape[-1], dtype=counts.dtype, device=counts.device)
        right, wrong = per_matrix(self.right, counts), per_matrix(self.wrong, counts)
        return right * eye + wrong * (1 - eye)


@dataclass(frozen=True)
class OneCoin:
    """Each annotator's accuracy first, then a Dirichlet of total weight ``weight`` a row around that accuracy.

    q_r = (hits_r + right) / (labels_r + right + wrong), and the pseudo-counts are ``weight`` times the one-coin
    matrix of q_r: q_r on the diagonal, (1 - q_r) / (K - 1) elsewhere.

    >>> from crowdshot import CrowdClassifier, OneCoin
    >>> X, labels = [[0.0], [0.1], [5.0], [5.1]], [["a", "a"], ["a", "b"], ["b", "b"], ["b", None]]
    >>> clf = CrowdClassifier("identity", method="ours", c=OneCoin(right=9, wrong=1)).fit(X, labels)
    >>> clf.predict([[0.2]]).tolist()
    ['a']
    """

    right: Number = 3.0
    wrong: Number = 1.0
    weight: Number = 5.0

    def __call__(self, counts: Tensor, n_classes: int | Tensor) -> Tensor:
        right, wrong = per_matrix(self.right, counts), per_matrix(self.wrong, counts)
        hits = counts.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]
        labels = counts.sum((-2, -1))[..., None, None]
        q = (hits + right) / (labels + right + wrong)
        K = per_matrix(n_classes, counts)
        eye = torch.eye(counts.shape[-1], dtype=counts.dtype, device=counts.device)
        one_coin = q * eye + (1 - q) / (K - 1) * (1 - eye)
        return per_matrix(self.weight, counts) * one_coin


CONFUSION_PRIORS: dict[str, type[Symmetric] | type[Diagonal] | type[OneCoin]] = {
    "symmetric": Symmetric,
    "diagonal": Diagonal,
    "one-coin": OneCoin,
}

PAPER: Priors = {"tau": 1.0, "b": 100.0, "c": 1.0}


def as_confusion_prior(c: Number | ConfusionPrior) -> ConfusionPrior:
    """The paper writes a bare number for its symmetric prior."""
    return c if callable(c) and not isinstance(c, Tensor) else Symmetric(c)


class LearnedPriors(nn.Module):
    """The numbers of one kind of prior as parameters, kept positive through their logarithms.

    ``weight`` of the one-coin prior is kept below ``max_weight``: simulated experts, hammers and spammers are
    one-coin, so that training would let it grow without end, and annotators who err on some classes only would
    then be misjudged. ``shape`` gives every element of a batch, or every model of a stack, numbers of its own.
    """

    kind: str
    b: Number
    max_weight: float
    log_tau: nn.Parameter
    log_confusion: nn.ParameterDict

    def __init__(
        self, kind: str = "one-coin", b: Number = 100.0, max_weight: float = 20.0, shape: tuple[int, ...] = ()
    ) -> None:
        super().__init__()
        if kind not in CONFUSION_PRIORS:
            raise CrowdshotError(f"kind is {kind!r}, expected one of {', '.join(CONFUSION_PRIORS)}.")
        self.kind, self.b, self.max_weight = kind, b, max_weight
        start = asdict(CONFUSION_PRIORS[kind]())
        self.log_tau = nn.Parameter(torch.zeros(shape))
        self.log_confusion = nn.ParameterDict(
            {k: nn.Parameter(torch.full(shape, math.log(v))) for k, v in start.items()}
        )

    def numbers(self) -> dict[str, Tensor]:
        """The confusion prior's numbers, positive and, for ``weight``, bounded."""
        numbers = {name: log.exp() for name, log in self.log_confusion.items()}
        if "weight" in numbers:
            numbers["weight"] = self.max_weight * numbers["weight"] / (self.max_weight + numbers["weight"])
        return numbers

    def forward(self) -> Priors:
        return {"tau": self.log_tau.exp(), "b": self.b, "c": CONFUSION_PRIORS[self.kind](**self.numbers())}


def repeated(priors: Priors, times: int) -> Priors:
    """Each batch element's priors so many times, one element after the other: numbers (G,) -> (G · times,)."""

    def many(value: Number) -> Number:
        return value.repeat_interleave(times) if isinstance(value, Tensor) and value.ndim else value

    c = priors["c"]
    if isinstance(c, Symmetric | Diagonal | OneCoin):
        c = type(c)(**{name: many(value) for name, value in vars(c).items()})
    elif isinstance(c, Tensor):
        c = many(c)
    return {"tau": many(priors["tau"]), "b": many(priors["b"]), "c": c}


def to_card(priors: Priors, index: int | None = None) -> dict[str, Any]:
    """Priors as plain numbers, for an encoder's card; ``index`` picks one where there is one for each model."""

    def plain(value: Number) -> float:
        value = torch.as_tensor(value).detach()
        return float(value if index is None or value.ndim == 0 else value[index])

    prior = as_confusion_prior(priors["c"])
    kind = next((name for name, cls in CONFUSION_PRIORS.items() if type(prior) is cls), None)
    if kind is None:
        raise CrowdshotError(f"c is a {type(prior).__name__}, expected a prior of crowdshot.priors, to be stored.")
    numbers = {name: plain(value) for name, value in vars(prior).items()}
    return {"tau": plain(priors["tau"]), "b": plain(priors["b"]), "confusion": {"kind": kind, **numbers}}


def from_card(card: dict[str, Any]) -> Priors:
    """The priors that a card describes."""
    confusion = dict(card["confusion"])
    return {"tau": card["tau"], "b": card["b"], "c": CONFUSION_PRIORS[confusion.pop("kind")](**confusion)}
