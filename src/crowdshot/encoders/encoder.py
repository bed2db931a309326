"""Encoders: images, texts or feature vectors -> embeddings in which classes are round clouds; saved, loaded, shipped.

An ``Encoder`` is a network together with what it must be fed and a card that says where it comes from. Saved
ones are rebuilt from the name of their architecture and its arguments, never unpickled. Own architectures join
by ``ARCHITECTURES["mine"] = MyModule``; a network that need not be saved by crowdshot: ``Encoder.wrap(module)``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from crowdshot.encoders.feature_input import as_numbers
from crowdshot.encoders.image_input import BadImage
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import described
from crowdshot.io.cards import Card
from crowdshot.io.embedding_store import content_key, is_active, remembered

FILES = 20_000  # that are looked up among kept embeddings at a time


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

    >>> import torch
    >>> from crowdshot import Encoder
    >>> Encoder.wrap(torch.nn.Linear(5, 3)).embed(torch.zeros(2, 5)).shape
    torch.Size([2, 3])
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
        precision: str = "float32",
    ) -> Tensor:
        """Items in any form that the input allows -> float32 (N, D) on ``device``, without gradients.

        The network is moved to ``device`` and stays there; it runs in evaluation mode and is then put back as it
        was. bad: collects unreadable images instead of raising (see ``read_images``); these are left out.
        progress: called with (items done, items in all) after each batch. precision: "float16" is mixed precision, on a
        GPU. Inside `crowdshot.embedding_cache` what was embedded before is found again.
        """
        if isinstance(X, Iterator):
            X = list(X)
        elif hasattr(X, "__array__") and not hasattr(X, "__len__"):
            X = np.asarray(X)
        n_items = _count(X)
        if n_items == 0:
            raise CrowdshotError(f"X is empty ({described(X)}), expected one item at least.")
        self.module.to(device)
        if bad is not None:
            parts = list(self._computed(X, batch_size, device, bad, precision))
            return self._checked(torch.cat(parts) if parts else torch.empty(0, self.n_features_out or 0, device=device))

        done, out = 0, np.empty((0, 0), np.float32)
        for places, vectors in self._remembered(X, n_items, batch_size, device, precision):
            if done == 0:
                out = np.empty((n_items, vectors.shape[1]), np.float32)
            out[places] = vectors
            done += len(places)
            if progress is not None:
                progress(done, n_items)
        return self._checked(torch.from_numpy(out).to(device))

    def _remembered(
        self, X: Any, n_items: int, batch_size: int, device: str | torch.device, precision: str
    ) -> Iterator[tuple[list[int], NDArray[np.float32]]]:
        """Positions and their embeddings, in pieces; those that were kept first, of so many files at a time."""
        items = self._in_files(X)
        maker = self._maker(precision) if items else None
        for start in range(0, n_items, FILES if items else n_items):
            some = X if items is None else items[start : start + FILES]

            def make(places: list[int], some: Any = some) -> Iterator[NDArray[np.float32]]:
                wanted = X if items is None else [some[place] for place in places]
                return (part.cpu().numpy() for part in self._computed(wanted, batch_size, device, None, precision))

            keys = [None] * n_items if items is None else [content_key(item) for item in some]
            for places, vectors in remembered(maker, keys, make):
                yield [start + place for place in places], vectors

    def _computed(
        self, X: Any, batch_size: int, device: str | torch.device, bad: list[BadImage] | None, precision: str
    ) -> Iterator[Tensor]:
        """Embeddings on ``device``, batch by batch."""
        on_gpu = torch.device(device).type == "cuda"
        batches = self._batches(X, batch_size, bad)
        width: int | None = None
        half = torch.autocast("cuda", torch.float16, enabled=on_gpu and precision == "float16")
        with _evaluating(self.module), half:
            for batch in _ahead(batches) if on_gpu else batches:
                part = self._forward(_on(batch, device)).to(device)
                if width not in (None, part.shape[1]):
                    widths = f"{width} and then {part.shape[1]}"
                    raise CrowdshotError(f"encoder has {widths} numbers an item, expected as many for each.")
                width = part.shape[1]
                yield part

    def _checked(self, embeddings: Tensor) -> Tensor:
        if not bool(torch.isfinite(embeddings).all()):
            row = int((~torch.isfinite(embeddings)).any(1).nonzero()[0, 0])
            raise CrowdshotError(
                f"encoder has NaN or infinite outputs, first for item {row}, expected finite numbers: are its weights "
                "sound?"
            )
        return embeddings

    def _in_files(self, X: Any) -> Sequence[str | Path] | None:
        """Items whose embeddings are worth keeping: images in files, and texts that an outside network reads."""
        kind = None if self.input is None or self.architecture is None else self.input.kind
        if not is_active() or not (kind == "images" or self.architecture == "outside"):
            return None
        items = list(X.values()) if isinstance(X, Mapping) else X
        if not isinstance(items, list | tuple) or not all(isinstance(item, str | os.PathLike) for item in items):
            return None
        return [Path(item) for item in items] if kind == "images" else items

    def _maker(self, precision: str) -> str:
        """Of all that this encoder is: another one never has the same."""
        told = {"architecture": self.architecture, "arguments": self.arguments, "precision": precision}
        told["input"] = None if self.input is None else self.input.to_dict()
        found = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode())
        for name, tensor in sorted(self.module.state_dict().items()):
            found.update(
                name.encode() + tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
            )
        return f"{self.architecture}-{found.hexdigest()[:24]}"

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


def _ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """The next batch is read while this one is computed."""
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, batches, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, batches, None)
            yield batch


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


# ---- functions ------------------------------------------------------------
#
# Any function from items to vectors as an encoder: it gets the items as they came, in batches.


@dataclass(frozen=True)
class AsTheyCame:
    """Anything that can be cut into pieces: a list, an array, a DataFrame."""

    kind: ClassVar[str] = "items"

    def batches(self, X: Any, batch_size: int, bad: list[Any] | None = None) -> Iterator[Any]:
        if isinstance(X, str) or not hasattr(X, "__len__"):
            raise CrowdshotError(f"X is {described(X)}, expected a list, an array or a table of items.")
        cut = getattr(X, "iloc", X)
        try:
            return iter([cut[start : start + batch_size] for start in range(0, len(X), batch_size)])
        except (TypeError, KeyError):
            raise CrowdshotError(f"X is {described(X)}, expected a list, an array or a table of items.") from None

    def blank(self) -> None:
        return None

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def describe(self) -> str:
        return "items as its function takes them"


class FunctionNetwork(nn.Module):
    """What the function returns, as a tensor."""

    name: str

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function
        self.name = str(getattr(function, "__name__", type(function).__name__))

    def forward(self, batch: Any) -> Any:
        out = self.function(batch)
        if out is None or isinstance(out, Tensor):
            return out
        try:
            return torch.from_numpy(np.asarray(out, dtype=np.float32))
        except (TypeError, ValueError):
            return out  # is told by the encoder


def function_encoder(function: Callable[[Any], Any]) -> Encoder:
    """``function``: a batch of items -> (n, D)."""
    module = FunctionNetwork(function)
    return Encoder(module, input=AsTheyCame(), card={"about": f"a function, {module.name}"})
