"""Encoders: images or feature vectors -> embeddings in which classes are round clouds; saved, loaded, shipped.

An ``Encoder`` is a network together with what it must be fed and a card that says where it comes from. Saved
ones are rebuilt from the name of their architecture and its arguments, never unpickled. Own architectures join
by ``ARCHITECTURES["mine"] = MyModule``; a network that need not be saved by crowdshot: ``Encoder.wrap(module)``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crowdshot.cards import Card, read_safetensors, write_safetensors
from crowdshot.errors import CrowdshotError
from crowdshot.features import FeatureInput, as_numbers, read_features
from crowdshot.images import BadImage, ImageInput, image_batches, in_colour
from crowdshot.lite0 import MEAN, SIDE, STD, Lite0, Lite0Features, is_installed
from crowdshot.pixels import describe

WEIGHTS = Path(__file__).parent / "weights"
PROTOTYPICAL = "-protonet"  # what the name of a shipped encoder's clean twin ends with
PIXELS_AT_ONCE = 60_000  # that Conv4 takes on a CPU: activations of more do not fit in its cache

# ---- architectures --------------------------------------------------------------------------------------------


class Conv4(nn.Module):
    """(n, channels, H, W) -> (n, width · ⌊H/16⌋ · ⌊W/16⌋): 64 for 28×28, 1,600 for 84×84.

    Snell, Swersky, Zemel: Prototypical Networks for Few-shot Learning, 2017; the paper's embedding network. Four
    blocks of 3×3 convolution, batch normalisation, ReLU and 2×2 max-pooling.
    """

    def __init__(self, channels: int = 1, width: int = 64) -> None:
        super().__init__()
        self.blocks = nn.Sequential(*(self._block(width if i else channels, width) for i in range(4)))

    @staticmethod
    def _block(n_in: int, n_out: int) -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(n_in, n_out, kernel_size=3, padding=1), nn.BatchNorm2d(n_out), nn.ReLU(), nn.MaxPool2d(2)
        )

    def forward(self, x: Tensor) -> Tensor:
        if self.training or x.is_cuda:
            return torch.flatten(self.blocks(x), 1)
        parts = torch.split(x, max(1, PIXELS_AT_ONCE // x.shape[-2:].numel()))
        last = torch.channels_last
        return torch.cat([torch.flatten(self.blocks(part.contiguous(memory_format=last)), 1) for part in parts])


class MLP(nn.Module):
    """(n, n_features) -> (n, n_out): linear layers with a ReLU between each two; ``hidden=()`` is one linear map."""

    def __init__(self, n_features: int, hidden: Sequence[int] = (128,), n_out: int = 64) -> None:
        super().__init__()
        sizes = [n_features, *hidden, n_out]
        layers: list[nn.Module] = []
        for n_in, n_next in pairwise(sizes):
            layers += [nn.Linear(n_in, n_next), nn.ReLU()]
        self.layers = nn.Sequential(*layers[:-1])

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers(x)
        return out


class Identity(nn.Module):
    """(n, D) -> (n, D): feature vectors from elsewhere, taken as they are."""

    def forward(self, x: Tensor) -> Tensor:
        return x


ARCHITECTURES: dict[str, type[nn.Module]] = {
    "conv4": Conv4,
    "mlp": MLP,
    "identity": Identity,
    "lite0": Lite0,
    "lite0-features": Lite0Features,
}

INPUTS: dict[str, type[ImageInput] | type[FeatureInput]] = {"images": ImageInput, "features": FeatureInput}

# ---- the encoder ----------------------------------------------------------------------------------------------


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
    input: ImageInput | FeatureInput | None = None
    card: Card = field(default_factory=dict)

    @classmethod
    def wrap(cls, module: nn.Module, input: ImageInput | FeatureInput | None = None) -> Encoder:
        """Someone else's network, (n, ...) -> (n, D) or more axes, which are flattened."""
        return cls(module, input=input)

    @property
    def n_features_out(self) -> int | None:
        """D, found by encoding a blank item; None where that depends on what comes in."""
        if isinstance(self.input, ImageInput):
            blank = torch.zeros(1, self.input.channels, *self.input.size)
        elif isinstance(self.input, FeatureInput) and self.input.n_features is not None:
            blank = torch.zeros(1, self.input.n_features)
        else:
            return None
        device = next((p.device for p in self.module.parameters()), torch.device("cpu"))
        with _evaluating(self.module):
            return self._forward(blank.to(device)).shape[1]

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
            raise CrowdshotError(f"X is empty ({describe(X)}), but at least one item was expected.")
        self.module.to(device)
        parts: list[Tensor] = []
        done = 0
        with _evaluating(self.module):
            for batch in self._batches(X, batch_size, bad):
                parts.append(self._forward(batch.to(device)))
                done += len(batch)
                if progress is not None:
                    progress(done, n_items)
        if not parts:  # every image was bad
            return torch.empty(0, self.n_features_out or 0, device=device)
        embeddings = torch.cat(parts)
        if not bool(torch.isfinite(embeddings).all()):
            row = int((~torch.isfinite(embeddings)).any(1).nonzero()[0, 0])
            raise CrowdshotError(
                f"The encoder gave NaN or infinite values, first for item {row}: are its weights sound?"
            )
        return embeddings

    def _batches(self, X: Any, batch_size: int, bad: list[BadImage] | None) -> Iterator[Tensor]:
        if isinstance(self.input, ImageInput):
            if getattr(X, "ndim", 0) == 2:
                raise CrowdshotError(
                    f"This encoder was made for {self.input.describe()}, but got {describe(X)}: reshape flattened "
                    "images to (N, height, width), or use encoder='identity' for feature vectors."
                )
            return image_batches(X, self.input, batch_size, bad)
        if isinstance(self.input, FeatureInput):
            x = read_features(X, self.input)
        else:
            numbers = as_numbers(X)
            if numbers is None or numbers.ndim == 0:
                raise CrowdshotError(f"This encoder takes arrays or tensors of numbers, but got {describe(X)}.")
            x = numbers
        return iter(torch.split(x, batch_size))

    def _forward(self, x: Tensor) -> Tensor:
        out = self.module(x)
        if not isinstance(out, Tensor) or out.ndim < 2 or len(out) != len(x):
            raise CrowdshotError(
                f"The encoder's network must return ({len(x)}, D) for {len(x)} items, but returned {describe(out)}."
            )
        return out.flatten(1).float()


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


# ---- building, saving, loading ----------------------------------------------------------------------------------


def build_encoder(
    architecture: str,
    arguments: Mapping[str, Any] | None = None,
    input: ImageInput | FeatureInput | None = None,
    card: Card | None = None,
) -> Encoder:
    """A fresh encoder by the name of its architecture: ``build_encoder("conv4", {}, ImageInput((28, 28)))``."""
    if architecture not in ARCHITECTURES:
        raise CrowdshotError(f"architecture is {architecture!r}, but must be one of: {', '.join(ARCHITECTURES)}.")
    try:
        module = ARCHITECTURES[architecture](**(arguments or {}))
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise CrowdshotError(
            f"{architecture} cannot be built with {dict(arguments or {})} ({str(error).splitlines()[0]})."
        ) from None
    return Encoder(module, architecture, dict(arguments or {}), input, dict(card or {}))


def encoder_state(encoder: Encoder) -> tuple[dict[str, Tensor], Card]:
    """What ``encoder_from_state`` needs to make the same encoder: its tensors, and its card of kind "encoder"."""
    if encoder.architecture is None:
        raise CrowdshotError(
            f"An encoder that wraps a {type(encoder.module).__name__} cannot be saved: add its class to "
            "crowdshot.encoders.ARCHITECTURES and give the encoder that name and its arguments."
        )
    own = {
        "kind": "encoder",
        "architecture": encoder.architecture,
        "arguments": encoder.arguments,
        "input": encoder.input.to_dict() if encoder.input is not None else None,
    }
    return dict(encoder.module.state_dict()), {**encoder.card, **own}


def encoder_from_state(tensors: Mapping[str, Tensor], card: Mapping[str, Any], name: str = "the encoder") -> Encoder:
    """The encoder that ``encoder_state`` described; ``name`` (a file) is for the messages."""
    rest = {key: value for key, value in card.items() if key != "format"}
    try:
        kind, architecture, arguments, given = (rest.pop(k) for k in ("kind", "architecture", "arguments", "input"))
        fed = None if given is None else INPUTS[given["kind"]].from_dict(given)
        architecture, arguments = str(architecture), dict(arguments)
    except CrowdshotError as error:
        raise CrowdshotError(f"{name}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CrowdshotError(f"{name} has a damaged card ({type(error).__name__}: {error}).") from None
    if kind != "encoder":
        raise CrowdshotError(f"{name} is of kind {kind!r}, but 'encoder' was expected.")
    try:
        with torch.random.fork_rng(devices=[]):  # weights drawn here are thrown away: leave no trace in the RNG
            _check_fit(_sketch(architecture, arguments).state_dict(), tensors)
            encoder = build_encoder(architecture, arguments, fed, rest)
        encoder.module.load_state_dict(dict(tensors))
        encoder.n_features_out  # noqa: B018  does the input fit the network?
    except CrowdshotError as error:
        raise CrowdshotError(f"{name}: {error}") from None
    except RuntimeError as error:
        raise CrowdshotError(
            f"{name}: its network does not fit its own input ({str(error).splitlines()[0]})."
        ) from None
    encoder.module.eval()
    return encoder


def _sketch(architecture: str, arguments: Mapping[str, Any]) -> nn.Module:
    """The network without memory, so that a false card cannot ask for all there is."""
    try:
        with torch.device("meta"):
            return build_encoder(architecture, arguments).module
    except CrowdshotError:  # not every network can be sketched; what is really wrong comes again
        return build_encoder(architecture, arguments).module


def _check_fit(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    misfit = "its tensors do not fit its architecture"
    for what, keys in (("missing", expected.keys() - found.keys()), ("unexpected", found.keys() - expected.keys())):
        if keys:
            raise CrowdshotError(f"{misfit}: {min(keys)} is {what} ({len(keys)} in all).")
    for key, tensor in expected.items():
        if tensor.shape != found[key].shape:
            raise CrowdshotError(
                f"{misfit}: {key} has shape {tuple(found[key].shape)}, but {tuple(tensor.shape)} was expected."
            )


def save_encoder(encoder: Encoder, path: str | os.PathLike[str]) -> None:
    """Write the encoder to one file, all or nothing."""
    write_safetensors(path, *encoder_state(encoder))


def load_encoder(name_or_path: str | os.PathLike[str]) -> Encoder:
    """ "identity", "lite0" (a frozen EfficientNet-Lite0), a shipped encoder's name, or a file of ``save_encoder``.

    A shipped name comes before a file of that name: write ``./name`` for the file.
    """
    name = os.fspath(name_or_path)
    if name == "identity":
        return build_encoder("identity", {}, FeatureInput())
    if name == "lite0":
        return build_encoder("lite0-features", {}, ImageInput((SIDE, SIDE), 3, mean=MEAN, std=STD))
    if isinstance(name_or_path, str) and name in shipped_encoders():
        path = WEIGHTS / f"{name}.safetensors"
    else:
        path = Path(name)
        if isinstance(name_or_path, str) and path.name == name and not path.suffix and not path.exists():
            known = ", ".join(["identity", "lite0", *shipped_encoders()])
            raise CrowdshotError(f"encoder is {name!r}, but must be a file or one of: {known}.")
    tensors, card = read_safetensors(path, "encoder")
    return encoder_from_state(tensors, card, str(path))


def shipped_encoders() -> list[str]:
    """The names of the encoders that come with crowdshot."""
    return sorted(path.stem for path in WEIGHTS.glob("*.safetensors"))


def default_encoder(X: Any) -> str:
    """The shipped encoder that suits X: by whether these are feature vectors, grey images or colour images."""
    if are_features(X):
        return "identity"
    if not in_colour(X):
        return "glyphs"
    return "photo-lite0" if is_installed() else "photo"


def are_features(X: Any) -> bool:
    """Rows of numbers, rather than images; without turning a list of images into one array."""
    if hasattr(X, "ndim"):
        return bool(X.ndim == 2)
    first = X[0] if isinstance(X, list | tuple) and X else None
    return isinstance(first, list | tuple) or getattr(first, "ndim", 0) == 1
