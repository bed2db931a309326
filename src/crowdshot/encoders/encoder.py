"""Map items (images, texts, feature vectors) to embeddings.

An `Encoder` is a network, the form of its input, and a card that records where it comes from. A saved encoder is
rebuilt from the name and arguments of its architecture; nothing is unpickled. ``ARCHITECTURES["mine"] = MyModule``
registers a further architecture. ``Encoder.wrap(module)`` uses a network that crowdshot need not save.
"""

from __future__ import annotations

import hashlib
import json
import os
import warnings
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
from crowdshot.errors import CrowdshotError, CrowdshotWarning
from crowdshot.formatting import described
from crowdshot.io.cards import Card
from crowdshot.io.embedding_store import content_key, is_active, remembered

FILES = 20_000  # items whose embeddings are looked up in the cache at a time


class Input(Protocol):
    """Turns items into the batches (tensors or lists) that an encoder's network takes."""

    kind: ClassVar[str]

    def batches(self, X: Any, batch_size: int, bad: list[BadImage] | None) -> Iterator[Any]:
        """Yield batches of items. Raise an error for an unreadable item, or append it to ``bad`` if that is a list."""

    def blank(self) -> Any | None:
        """Return a batch of one blank item; None if its shape depends on the items."""

    def describe(self) -> str:
        """Return a description for messages, such as "images of 28×28 grey pixels"."""

    def to_dict(self) -> dict[str, Any]:
        """Return the entry for the card, including ``kind``."""


@dataclass(eq=False)
class Encoder:
    """A network with the form of its input and a card that records where it comes from.

    Parameters
    ----------
    module : torch.nn.Module
        The network, (n, ...) -> (n, D).
    architecture : str or None
        Name in `ARCHITECTURES` from which the module can be built again. None for a wrapped module, which cannot be
        saved.
    arguments : dict
        Arguments of the architecture.
    input : ImageInput, FeatureInput, TextInput, TableInput or None
        Converts items into batches. None: arrays and tensors are passed on unchanged.
    card : dict
        Free JSON, such as training data, command, priors and scores.
    name : str
        The name by which it was loaded or learned, such as "photo-lite0" or "texts".

    Attributes
    ----------
    n_features_out : int or None
        Number of features D of an embedding.

    Examples
    --------
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
    name: str = ""

    def __post_init__(self) -> None:
        self.name = self.name or self.architecture or str(getattr(self.module, "name", type(self.module).__name__))

    @classmethod
    def wrap(cls, module: nn.Module, input: Input | None = None) -> Encoder:
        """Make an encoder of any network.

        Parameters
        ----------
        module : torch.nn.Module
            Maps (n, ...) to (n, D), or to more axes, which are flattened.
        input : ImageInput, FeatureInput, TextInput, TableInput or None
            Converts items into batches. None: arrays and tensors are passed on unchanged.

        Returns
        -------
        Encoder
            An encoder that computes embeddings but cannot be saved.
        """
        return cls(module, input=input)

    @property
    def n_features_out(self) -> int | None:
        """Return D, measured with a blank item; None if it depends on the items."""
        blank = None if self.input is None else self.input.blank()
        if blank is None:
            return None
        device = next((p.device for p in self.module.parameters()), torch.device("cpu"))
        with _evaluating(self.module), warnings.catch_warnings():
            warnings.simplefilter("ignore", CrowdshotWarning)  # about missing cells
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
        """Return the embeddings of items.

        The network is moved to ``device`` and stays there. It runs in evaluation mode, which is undone afterwards.
        Inside `crowdshot.embedding_cache`, embeddings that were computed before are reused.

        Parameters
        ----------
        X : array, tensor, list or DataFrame
            N items in any form that ``input`` accepts.
        batch_size : int
            Number of items that the network processes at a time.
        device : str or torch.device
            Where the network runs and the result is stored.
        bad : list or None
            None: an unreadable image is an error. A list: unreadable images are appended to it and left out.
        progress : callable or None
            Called with (items done, items in total) after each batch.
        precision : {"float32", "float16"}
            "float16" uses mixed precision on a GPU.

        Returns
        -------
        Tensor
            Embeddings (N, D), float32, without gradients.

        Raises
        ------
        CrowdshotError
            If X is empty, cannot be read or does not fit the encoder.
        """
        if isinstance(X, Iterator):
            X = list(X)
        elif hasattr(X, "__array__") and not hasattr(X, "__len__"):
            X = np.asarray(X)
        n_items = _count(X)
        if n_items == 0:
            raise CrowdshotError(f"is empty ({described(X)})", argument="X", expected="one item at least")
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
        """Yield positions and their embeddings: first cached ones, then new ones, for `FILES` items at a time."""
        items = self._cacheable(X)
        maker = self._cache_key(precision) if items else None
        for start in range(0, n_items, FILES if items else n_items):
            part = X if items is None else items[start : start + FILES]

            def make(places: list[int], part: Any = part) -> Iterator[NDArray[np.float32]]:
                wanted = X if items is None else [part[place] for place in places]
                computed = self._computed(wanted, batch_size, device, None, precision)
                return (embeddings.cpu().numpy() for embeddings in computed)

            keys = [None] * n_items if items is None else [content_key(item) for item in part]
            for places, vectors in remembered(maker, keys, make):
                yield [start + place for place in places], vectors

    def _computed(
        self, X: Any, batch_size: int, device: str | torch.device, bad: list[BadImage] | None, precision: str
    ) -> Iterator[Tensor]:
        """Yield embeddings on ``device``, batch by batch."""
        on_gpu = torch.device(device).type == "cuda"
        batches = self._batches(X, batch_size, bad)
        width: int | None = None
        half = torch.autocast("cuda", torch.float16, enabled=on_gpu and precision == "float16")
        with _evaluating(self.module), half:
            for batch in _ahead(batches) if on_gpu else batches:
                part = self._forward(_on(batch, device)).to(device)
                if width not in (None, part.shape[1]):
                    raise CrowdshotError(
                        f"returns embeddings of {width} and of {part.shape[1]} features",
                        argument="encoder",
                        found=(width, part.shape[1]),
                        expected="the same number for every item",
                    )
                width = part.shape[1]
                yield part

    def _checked(self, embeddings: Tensor) -> Tensor:
        if not bool(torch.isfinite(embeddings).all()):
            row = int((~torch.isfinite(embeddings)).any(1).nonzero()[0, 0])
            raise CrowdshotError(
                f"returns NaN or infinite values, first for item {row}",
                argument="encoder",
                found=row,
                expected="finite numbers",
                hint="Check its weights.",
            )
        return embeddings

    def _cacheable(self, X: Any) -> Sequence[str | Path] | None:
        """Return the items if their embeddings can be cached: image files, and texts for an outside network."""
        kind = None if self.input is None or self.architecture is None else self.input.kind
        if not is_active() or not (kind == "images" or self.architecture == "outside"):
            return None
        items = list(X.values()) if isinstance(X, Mapping) else X
        if not isinstance(items, list | tuple) or not all(isinstance(item, str | os.PathLike) for item in items):
            return None
        return [Path(item) for item in items] if kind == "images" else items

    def _cache_key(self, precision: str) -> str:
        """Return a key that identifies this encoder: a hash of its architecture, arguments, input and weights."""
        identity = {"architecture": self.architecture, "arguments": self.arguments, "precision": precision}
        identity["input"] = None if self.input is None else self.input.to_dict()
        found = hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode())
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
            raise CrowdshotError(f"is {described(X)}", argument="X", expected="an array or tensor of numbers")
        return iter(torch.split(x, batch_size))

    def _forward(self, x: Any) -> Tensor:
        out = self.module(x)
        if not isinstance(out, Tensor) or out.ndim < 2 or len(out) != len(x):
            raise CrowdshotError(
                f"has a network that returns {described(out)} for {len(x)} items",
                argument="encoder",
                found=described(out),
                expected=f"({len(x)}, D)",
            )
        return out.flatten(1).float()


def _ahead(batches: Iterator[Any]) -> Iterator[Any]:
    """Yield batches; read the next one in a thread while the caller computes."""
    with ThreadPoolExecutor(1) as pool:
        upcoming = pool.submit(next, batches, None)
        while (batch := upcoming.result()) is not None:
            upcoming = pool.submit(next, batches, None)
            yield batch


def _on(batch: Any, device: str | torch.device) -> Any:
    return batch.to(device) if isinstance(batch, Tensor) else batch


def _count(X: Any) -> int:
    shape = tuple(getattr(X, "shape", ()))
    try:
        return int(shape[0]) if shape else len(X)
    except TypeError:
        return 1  # a single object, for which the input raises an error


@contextmanager
def _evaluating(module: nn.Module) -> Iterator[None]:
    """Switch the network to evaluation mode without gradients; restore the mode of every part afterwards."""
    flags = [(part, part.training) for part in module.modules()]
    module.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for part, training in flags:
            part.training = training


# ---- encoders from Python functions ----


@dataclass(frozen=True)
class UnchangedInput:
    """Passes on batches of any sequence (list, array, DataFrame) without conversion."""

    kind: ClassVar[str] = "items"

    def batches(self, X: Any, batch_size: int, bad: list[Any] | None = None) -> Iterator[Any]:
        if isinstance(X, str) or not hasattr(X, "__len__"):
            raise _no_sequence(X)
        cut = getattr(X, "iloc", X)
        try:
            return iter([cut[start : start + batch_size] for start in range(0, len(X), batch_size)])
        except (TypeError, KeyError):
            raise _no_sequence(X) from None

    def blank(self) -> None:
        return None

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind}

    def describe(self) -> str:
        return "items that its function accepts"


def _no_sequence(X: Any) -> CrowdshotError:
    return CrowdshotError(f"is {described(X)}", argument="X", expected="a list, an array or a table of items")


class FunctionNetwork(nn.Module):
    """Calls a function and converts its result to a tensor."""

    name: str

    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function
        self.name = str(getattr(function, "__name__", type(function).__name__))

    def forward(self, batch: Any) -> Any:
        out = self.function(batch)
        if out is None or isinstance(out, Tensor):
            return out
        if hasattr(out, "toarray"):  # a sparse array, as of TF-IDF
            out = out.toarray()
        try:
            return torch.from_numpy(np.asarray(out, dtype=np.float32))
        except (TypeError, ValueError):
            return out  # the encoder raises the error


def function_encoder(function: Callable[[Any], Any]) -> Encoder:
    """Return an encoder that calls ``function`` with batches of n items; it returns (n, D)."""
    module = FunctionNetwork(function)
    return Encoder(module, input=UnchangedInput(), card={"about": f"a function, {module.name}"})
