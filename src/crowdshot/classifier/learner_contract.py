"""What a way to learn promises, and what it leaves when it has learned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from crowdshot.classifier.side_information import Known
from crowdshot.encoders.encoder import Encoder
from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations


class Fitted(Protocol):
    """What is left of a problem once learned: a `labelings.Posterior`, `mixture.Fit` or `compared.Adapted`."""

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
    """The fit, what it was made with, and the shift (D,) and factor () that items need before they meet it.

    ``learner``: the name of the one that really did it, which learns the same again with the same settings.
    """

    learner: str
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

    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, known: Known) -> Learned:
        """x (N, D), as the reader gives it, a row for each of the annotations' items."""

    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> Fitted:
        """The fit again, from its tensors and the settings that it was made with."""


def posterior_of(fit: Fitted) -> NDArray[np.float64]:
    """p(class | labels, items), (N, K); rows of single precision sum to nearly one, these to one."""
    posterior = fit.responsibilities.double()
    out: NDArray[np.float64] = (posterior / posterior.sum(-1, keepdim=True)).cpu().numpy()
    return out


def refuse(method: str, given: Mapping[str, Any]) -> None:
    """For methods that have none of `ARGUMENTS`."""
    if given:
        raise CrowdshotError(
            f"{next(iter(given))} is given with method {method!r}, expected with the mixture alone (ours, w/o PA);"
            f" settings= takes what {method} has of its own."
        )


def untouched(x: Tensor) -> tuple[Tensor, Tensor]:
    """The shift (D,) and the factor () that change nothing."""
    return x.new_zeros(x.shape[1]), x.new_ones(())


def check_names(method: str, settings: Mapping[str, Any], known: tuple[str, ...]) -> None:
    strange = sorted(set(settings) - set(known))
    if strange:
        expected = f"some of {', '.join(known)}" if known else "none"
        raise CrowdshotError(f"settings has {strange[0]!r}, expected {expected} for {method}.")
