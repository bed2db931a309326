"""Encoders: images, texts or feature vectors -> embeddings in which classes are round clouds; saved, loaded, shipped.

An ``Encoder`` is a network together with what it must be fed and a card that says where it comes from. Saved
ones are rebuilt from the name of their architecture and its arguments, never unpickled. Own architectures join
by ``ARCHITECTURES["mine"] = MyModule``; a network that need not be saved by crowdshot: ``Encoder.wrap(module)``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn

from crowdshot.encoders.features import as_numbers
from crowdshot.encoders.images import BadImage
from crowdshot.errors import CrowdshotError
from crowdshot.files.cards import Card
from crowdshot.wording import described


class Input(Protocol):
    """What an encoder is fed: how items become batches that its network takes, tensors or lists."""

    kind: ClassVar[str]

    def batches(self, X: Any, batch_size: int, bad: list[BadImage] | None) -> Iterator[Any]:
        """Items in any form that this allows; what cannot be read is an error or, given a list, put there."""

    def blank(self) -> Any | None:
        """A batch of one item that says nothing; None where that depends on the items."""

    def describe(self) -> str:
        """For messages: "images of 28×28 grey pixels"."""

    def to_dict(self) -> dict[str, Any]:
        """For a card, with its ``kind``."""


@dataclass(eq=False)
class Encoder:
    """A network, what it is fed, and where it comes from.

    architecture, arguments: how ``ARCHITECTURES`` builds the module again; None for a wrapped one.
    input: None takes arrays and tensors as they are. card: free JSON: what it was trained on, with which command,
    priors, scores.
    """

    module: nn.Module
    architecture: str | None = None
    arguments: dict[str, Any] = field(default_factory=dict)
    input: Input | None = None
    card: Card = field(default_factory=dict)

    @classmethod
    def wrap(cls, module: nn.Module, input: Input | None = None) -> Encoder:
        """Someone else's network, (n, ...) -> (n, D) or more axes, which are flattened."""
        return cls(module, input=input)

    @property
    def n_features_out(self) -> int | None:
        """D, found by encoding a blank item; None where that depends on what comes in."""
        blank = None if self.input is None else self.input.blank()
        if blank is None:
            return None
        device = next((p.device for p in self.module.parameters()), torch.device("cpu"))
        with _evaluating(self.module):
            return self._forward(_on(blank, device)).shape[1]

    def embed(
        self,
        X: Any,
        batch_size: int = 64,
        device: str | torch.device = "cpu",
        bad: list[BadImage] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> Tensor:
        """Items in any form that the input allows -> float32 (N, D) on ``device``, without gradients.

        The network is moved to ``device`` and stays there; it runs in evaluation mode and is then put back as it
        was. bad: collects unreadable images instead of raising (see ``read_images``); these are left out.
        progress: called with (items done, items in all) after each batch.
        """
        if isinstance(X, Iterator):
            X = list(X)
        n_items = _count(X)
        if n_items == 0:
            raise CrowdshotError(f"X is empty ({described(X)}), expected one item at least.")
        self.module.to(device)
        parts: list[Tensor] = []
        done = 0
        with _evaluating(self.module):
            for batch in self._batches(X, batch_size, bad):
                parts.append(self._forward(_on(batch, device)).to(device))
                if parts[-1].shape[1] != parts[0].shape[1]:
                    widths = f"{parts[0].shape[1]} and then {parts[-1].shape[1]}"
                    raise CrowdshotError(f"encoder has {widths} numbers an item, expected as many for each.")
                done += len(batch)
                if progress is not None:
                    progress(done, n_items)
        if not parts:  # every image was bad
            return torch.empty(0, self.n_features_out or 0, device=device)
        embeddings = torch.cat(parts)
        if not bool(torch.isfinite(embeddings).all()):
            row = int((~torch.isfinite(embeddings)).any(1).nonzero()[0, 0])
            raise CrowdshotError(
                f"encoder has NaN or infinite outputs, first for item {row}, expected finite numbers: are its weights "
                "sound?"
            )
        return embeddings

    def _batches(self, X: Any, batch_size: int, bad: list[BadImage] | None) -> Iterator[Any]:
        if self.input is not None:
            return self.input.batches(X, batch_size, bad)
        x = as_numbers(X)
        if x is None or x.ndim == 0:
            raise CrowdshotError(f"X is {described(X)}, expected an array or tensor of numbers.")
        return iter(torch.split(x, batch_size))

    def _forward(self, x: Any) -> Tensor:
        out = self.module(x)
        if not isinstance(out, Tensor) or out.ndim < 2 or len(out) != len(x):
            raise CrowdshotError(
                f"encoder has {described(out)} as its network's output for {len(x)} items, expected ({len(x)}, D)."
            )
        return out.flatten(1).float()


def _on(batch: Any, device: str | torch.device) -> Any:
    return batch.to(device) if isinstance(batch, Tensor) else batch


def _count(X: Any) -> int:
    shape = tuple(getattr(X, "shape", ()))
    try:
        return int(shape[0]) if shape else len(X)
    except TypeError:
        return 1  # one thing alone, which is refused where it is read


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients inside; afterwards every part of the network is as it was."""
    flags = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in flags:
            part.training = training
