"""Priors of the mixture model.

The paper fixes three constants: a precision ``tau`` that pulls class means towards the origin, and Dirichlet
weights ``b`` (class probabilities) and ``c`` (every entry of every annotator's confusion matrix). ``b`` and ``c`` are
pseudo-counts.

A prior on confusion matrices is a function from counts (..., R, K, K), in the order [annotator, true, observed], and
the number of classes (one number, or one for each batch element) to pseudo-counts of the same shape, where R may be 1.
The M-step adds the two and normalises rows:

    alpha^r[k, l] = (counts^r[k, l] + pseudo^r[k, l]) / sum_l (counts^r[k, l] + pseudo^r[k, l])

Three such priors are defined here:

- `Symmetric`: pseudo[k, l] = c, the paper's. An annotator without labels then guesses uniformly.
- `Diagonal`: ``right`` where k = l, else ``wrong``. With right > wrong, annotators are better than chance.
- `OneCoin`: hierarchical. The annotator's overall accuracy is estimated first, and fills the cells with few labels.

`LearnedPriors` makes their numbers trainable together with the encoder. `to_card` and `from_card` store and restore
them.

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
    """The arguments of `crowdshot.model.mixture.fit` that set priors."""

    tau: Number
    b: Number
    c: Number | ConfusionPrior


def as_number(value: Number, like: Tensor) -> Tensor:
    """Return a tensor of the type and device of ``like``. A plain number is created on the device, without a copy."""
    if isinstance(value, Tensor):
        return value.to(like)
    return torch.full((), value, dtype=like.dtype, device=like.device)


def per_matrix(value: Number, like: Tensor) -> Tensor:
    """Reshape a number for each batch element, (...), to broadcast against counts (..., R, K, K)."""
    return as_number(value, like)[..., None, None, None]


@dataclass(frozen=True)
class Symmetric:
    """The paper's prior, equation (4): c pseudo-counts in every cell."""

    c: Number = 1.0

    def __call__(self, counts: Tensor, n_classes: int | Tensor) -> Tensor:
        return per_matrix(self.c, counts) * torch.ones_like(counts[..., :1, :, :])


@dataclass(frozen=True)
class Diagonal:
    """``right`` pseudo-counts in each cell of the diagonal, ``wrong`` in each other cell."""

    right: Number = 3.0
    wrong: Number = 0.5

    def __call__(self, counts: Tensor, n_classes: int | Tensor) -> Tensor:
        eye = torch.eye(counts.shape[-1], dtype=counts.dtype, device=counts.device)
        right, wrong = per_matrix(self.right, counts), per_matrix(self.wrong, counts)
        return right * eye + wrong * (1 - eye)


@dataclass(frozen=True)
class OneCoin:
    """Hierarchical prior: rows are shrunk to a one-coin matrix with the annotator's estimated accuracy q_r.

        q_r = (hits_r + right) / (labels_r + right + wrong)
        pseudo^r[k, k] = weight q_r,   pseudo^r[k, l] = weight (1 - q_r) / (K - 1)

    Parameters
    ----------
    right, wrong : float or Tensor
        Pseudo-counts of right and wrong labels in q_r.
    weight : float or Tensor
        Pseudo-counts in each row of the matrix.

    Examples
    --------
    >>> from crowdshot import CrowdClassifier, OneCoin
    >>> X, labels = [[0.0], [0.1], [5.0], [5.1]], [["a", "a"], ["a", "b"], ["b", "b"], ["b", None]]
    >>> clf = CrowdClassifier("identity", method="ours", settings={"c": OneCoin(right=9, wrong=1)}).fit(X, labels)
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
    """Turn a number, the paper's c, into a `Symmetric` prior."""
    return c if callable(c) and not isinstance(c, Tensor) else Symmetric(c)


class LearnedPriors(nn.Module):
    """The numbers of a prior as trainable parameters, stored as logarithms so that they stay positive.

    Parameters
    ----------
    kind : str
        A key of `CONFUSION_PRIORS`.
    b : float or Tensor
        Pseudo-counts of classes, not trained.
    max_weight : float
        Upper bound of the one-coin prior's ``weight``. Simulated experts, hammers and spammers are one-coin. Without a
        bound training would let ``weight`` grow, and annotators who err on some classes only would be misjudged.
    shape : tuple of int
        Shape of each number: one for every batch element or every model of a stack.
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
            raise CrowdshotError(
                f"is {kind!r}", argument="kind", found=kind, expected=f"one of {', '.join(CONFUSION_PRIORS)}"
            )
        self.kind, self.b, self.max_weight = kind, b, max_weight
        start = asdict(CONFUSION_PRIORS[kind]())
        self.log_tau = nn.Parameter(torch.zeros(shape))
        self.log_confusion = nn.ParameterDict(
            {k: nn.Parameter(torch.full(shape, math.log(v))) for k, v in start.items()}
        )

    def numbers(self) -> dict[str, Tensor]:
        """Return the numbers of the confusion prior, with ``weight`` below its bound."""
        numbers = {name: log.exp() for name, log in self.log_confusion.items()}
        if "weight" in numbers:
            numbers["weight"] = self.max_weight * numbers["weight"] / (self.max_weight + numbers["weight"])
        return numbers

    def forward(self) -> Priors:
        return {"tau": self.log_tau.exp(), "b": self.b, "c": CONFUSION_PRIORS[self.kind](**self.numbers())}


def repeated(priors: Priors, times: int) -> Priors:
    """Repeat each batch element's priors consecutively: numbers (G,) -> (G · times,)."""

    def repeat(value: Number) -> Number:
        return value.repeat_interleave(times) if isinstance(value, Tensor) and value.ndim else value

    c = priors["c"]
    if isinstance(c, Symmetric | Diagonal | OneCoin):
        c = type(c)(**{name: repeat(value) for name, value in vars(c).items()})
    elif isinstance(c, Tensor):
        c = repeat(c)
    return {"tau": repeat(priors["tau"]), "b": repeat(priors["b"]), "c": c}


def to_card(priors: Priors, index: int | None = None) -> dict[str, Any]:
    """Return priors as plain numbers, for an encoder's card; ``index`` selects one model of a stack.

    Raises
    ------
    CrowdshotError
        The confusion prior is none of `CONFUSION_PRIORS`.
    """

    def plain(value: Number) -> float:
        value = torch.as_tensor(value).detach()
        return float(value if index is None or value.ndim == 0 else value[index])

    prior = as_confusion_prior(priors["c"])
    kind = next((name for name, cls in CONFUSION_PRIORS.items() if type(prior) is cls), None)
    if kind is None:
        raise CrowdshotError(
            f"is a {type(prior).__name__}, which cannot be saved",
            argument="c",
            found=type(prior).__name__,
            expected="a prior of crowdshot.priors",
        )
    numbers = {name: plain(value) for name, value in vars(prior).items()}
    return {"tau": plain(priors["tau"]), "b": plain(priors["b"]), "confusion": {"kind": kind, **numbers}}


def from_card(card: dict[str, Any]) -> Priors:
    """Return the priors that `to_card` stored."""
    confusion = dict(card["confusion"])
    return {"tau": card["tau"], "b": card["b"], "c": CONFUSION_PRIORS[confusion.pop("kind")](**confusion)}
