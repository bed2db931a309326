"""Define what learners and fitted models have in common, so that `CrowdClassifier` treats all of them alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from crowdshot.classifier.side_information import SideInformation
from crowdshot.errors import CrowdshotError
from crowdshot.labels.annotations import Annotations

if TYPE_CHECKING:
    from torch import Tensor

    from crowdshot.encoders.encoder import Encoder

ARGUMENTS = ("steps", "tau", "b", "c", "scale", "covariance")  # of `mixture.fit` that a user may set


class FittedModel(Protocol):
    """A model fitted to N items with K classes and R annotators.

    Examples are `labeling_search.Posterior`, `mixture.Fit`, `feature_learners.FeatureFit` and
    `compared_methods.ComparedFit`. Fields of theirs that are tensors are saved.
    """

    @property
    def responsibilities(self) -> Tensor:
        """Posterior class probabilities of the items, (N, K)."""

    @property
    def class_probs(self) -> Tensor:
        """Class frequencies, (K,)."""

    @property
    def confusion(self) -> Tensor:
        """Confusion matrices, (R, K, K) [annotator, true, observed]."""

    def log_proba(self, queries: Tensor, /) -> Tensor:
        """Return log p(class | item) of new items: (Q, D) -> (Q, K)."""


class LearnerResult(NamedTuple):
    """A fitted model and how it was obtained.

    ``learner`` is the name of the learner that fitted it; with ``settings``, that learner fits the same model again.
    Embeddings are transformed by (x - shift) * factor before the model sees them; shift is (D,), factor ().
    """

    learner: str
    fit: FittedModel
    settings: dict[str, Any]
    shift: Tensor
    factor: Tensor


class Learner(ABC):
    """Fits a model to embeddings and labels.

    Attributes
    ----------
    name : str
        Name of the method, as in `methods.METHODS`.
    ignores_unlabelled : bool
        Whether items without labels or known class have no influence on the model.
    """

    name: str
    ignores_unlabelled: ClassVar[bool] = False

    def default_encoder(self, X: Any) -> Encoder:
        """Return the encoder for X when the user names none."""
        from crowdshot.classifier.encoder_choice import clean_encoder  # imports torch

        return clean_encoder(X)

    def reader(self, encoder: Encoder) -> Encoder:
        """Return the encoder that turns X into the vectors that `learn` takes."""
        return encoder

    def is_quick(self, n_numbers: int) -> bool:
        """Return whether the model can be fitted several times to embeddings of this size, for cross-validation."""
        return True

    @abstractmethod
    def learn(self, x: Tensor, annotations: Annotations, encoder: Encoder, side: SideInformation) -> LearnerResult:
        """Fit a model to vectors x (N, D) of the reader, one row for each of the annotations' items."""

    @abstractmethod
    def restore(self, settings: dict[str, Any], tensors: Mapping[str, Tensor], encoder: Encoder) -> FittedModel:
        """Rebuild a saved model from its tensors and settings."""


def posterior_of(fit: FittedModel) -> NDArray[np.float64]:
    """Return p(class | labels, items), (N, K), in double precision with rows that sum to one."""
    posterior = fit.responsibilities.double()
    out: NDArray[np.float64] = (posterior / posterior.sum(-1, keepdim=True)).cpu().numpy()
    return out


def refuse_mixture_arguments(method: str, arguments: Mapping[str, Any]) -> None:
    """Raise an error if arguments of the mixture are set for a method that has none of them."""
    for name, value in arguments.items():
        raise CrowdshotError(
            f"is an argument of the mixture, not of method {method!r}",
            argument=name,
            found=value,
            expected="method 'ours' or 'w/o PA' with it",
            hint=f"The settings of {method} belong in settings.",
        )


def unscaled(x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the shift (D,) and the factor () that leave x unchanged."""
    return x.new_zeros(x.shape[1]), x.new_ones(())


def check_setting_names(method: str, settings: Mapping[str, Any], known: tuple[str, ...]) -> None:
    """Raise an error if a setting is not one of the method's."""
    unknown = sorted(set(settings) - set(known))
    if unknown:
        expected = f"some of {', '.join(known)} for {method}" if known else f"none for {method}"
        raise CrowdshotError(f"has {unknown[0]!r}", argument="settings", found=unknown[0], expected=expected)


def tensors_of_part(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return the tensors whose names begin with a prefix, without the prefix."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
