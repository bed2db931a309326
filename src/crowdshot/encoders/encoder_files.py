"""Build encoders by name, save them, and load saved or shipped ones. Nothing is unpickled."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crowdshot.encoders import networks
from crowdshot.encoders.encoder import Encoder, FunctionNetwork, Input
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import ImageInput, PictureInput
from crowdshot.encoders.networks import ARCHITECTURES, FAST_SIDE, MEAN, MLP, SIDE, STD
from crowdshot.encoders.outside import allowed, is_outside, outside_encoder
from crowdshot.encoders.shipped import LIBRARIES, shipped_encoders, weights_file
from crowdshot.encoders.table_input import TableInput
from crowdshot.encoders.text_input import TextInput
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import clean
from crowdshot.io.cards import Card, read_safetensors, write_safetensors

INPUTS: dict[str, Any] = {  # classes whose ``from_dict`` reads an input's card entry
    "images": ImageInput,
    "pictures": PictureInput,
    "features": FeatureInput,
    "texts": TextInput,
    "table": TableInput,
}
LITE0_SIDES = {"lite0": SIDE, "lite0-fast": FAST_SIDE}


def build_encoder(
    architecture: str,
    arguments: Mapping[str, Any] | None = None,
    input: Input | None = None,
    card: Card | None = None,
) -> Encoder:
    """Build an encoder with random weights.

    Parameters
    ----------
    architecture : str
        Name in `ARCHITECTURES`.
    arguments : mapping or None
        Arguments of the architecture.
    input : ImageInput, FeatureInput, TextInput, TableInput or None
        Converts items into batches. None: arrays and tensors are passed on unchanged.
    card : dict or None
        Free JSON that is saved with the encoder.

    Returns
    -------
    Encoder

    Raises
    ------
    CrowdshotError
        If the architecture is unknown or cannot be built with these arguments.

    Examples
    --------
    >>> from crowdshot import ImageInput, build_encoder
    >>> build_encoder("conv4", {"width": 16}, ImageInput((28, 28))).n_features_out
    16
    """
    if architecture not in ARCHITECTURES:
        raise CrowdshotError(
            f"is {architecture!r}",
            argument="architecture",
            found=architecture,
            expected=f"one of {', '.join(ARCHITECTURES)}",
        )
    try:
        module = ARCHITECTURES[architecture](**(arguments or {}))
    except CrowdshotError:
        raise
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise CrowdshotError(
            f"is {clean(arguments)}",
            argument="arguments",
            found=arguments,
            expected=f"arguments with which {architecture} can be built ({error})",
        ) from None
    return Encoder(module, architecture, dict(arguments or {}), input, dict(card or {}))


def encoder_state(encoder: Encoder) -> tuple[dict[str, Tensor], Card]:
    """Return the tensors of an encoder and its card, from which `encoder_from_state` restores it."""
    if encoder.architecture is None:
        raise CrowdshotError(
            f"is {_called(encoder.module)}",
            argument="encoder",
            found=_called(encoder.module),
            expected="a network that can be saved",
            hint=_remedy(encoder.module),
        )
    entries = {
        "kind": "encoder",
        "architecture": encoder.architecture,
        "arguments": encoder.arguments,
        "input": encoder.input.to_dict() if encoder.input is not None else None,
        "name": encoder.name,
    }
    return dict(encoder.module.state_dict()), {**encoder.card, **entries}


def _called(module: nn.Module) -> str:
    if isinstance(module, FunctionNetwork):
        return f"{module.name}, a function"
    return f"a wrapped {type(module).__name__}"


def _remedy(module: nn.Module) -> str:
    if isinstance(module, FunctionNetwork):
        return "Compute the vectors yourself and fit them with encoder='identity'."
    return (
        "Add its class to crowdshot.encoders.networks.ARCHITECTURES and build the encoder from that name and its"
        " arguments."
    )


def encoder_from_state(
    tensors: Mapping[str, Tensor], card: Mapping[str, Any], name: str = "the encoder", check: bool = True
) -> Encoder:
    """Restore the encoder that `encoder_state` described. ``name`` (a file) appears in error messages.

    ``check`` runs the network on a blank item, because in a damaged file the input may not fit the network.
    """
    rest = {key: value for key, value in card.items() if key != "format"}
    try:
        kind, architecture, arguments, spec = (rest.pop(k) for k in ("kind", "architecture", "arguments", "input"))
        source = None if spec is None else INPUTS[spec["kind"]].from_dict(spec)
        architecture, arguments = str(architecture), dict(arguments)
        called = str(rest.pop("name", architecture))
    except CrowdshotError as error:
        raise _in_file(error, name) from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CrowdshotError(
            f"has a damaged card ({type(error).__name__}: {error})",
            where=name,
            expected="an encoder that crowdshot saved",
        ) from None
    if kind != "encoder":
        raise CrowdshotError(f"is of kind {kind!r}", where=name, found=kind, expected="'encoder'")
    try:
        with torch.random.fork_rng(devices=[]):  # the random weights are replaced: keep the state of the generator
            _check_fit(_sketch(architecture, arguments).state_dict(), tensors)
            encoder = build_encoder(architecture, arguments, source, rest)
        encoder.module.load_state_dict(dict(tensors))
        refused = not all(getattr(part, "is_allowed", True) for part in encoder.module.modules())
        if check and not refused:  # a network of another library is refused when it is used
            encoder.n_features_out  # noqa: B018  raises an error if the input does not fit the network
    except CrowdshotError as error:
        raise _in_file(error, name) from None
    except Exception as error:  # a damaged card can make a network raise anything
        raise CrowdshotError(
            f"holds a network that does not fit its own input ({error or type(error).__name__})", where=name
        ) from None
    encoder.module.eval()
    encoder.name = called
    return encoder


def _in_file(error: CrowdshotError, name: str) -> CrowdshotError:
    """Return the error with the file in which it occurred."""
    fields = {field: getattr(error, field) for field in ("argument", "found", "expected", "hint")}
    return CrowdshotError(error.message, **fields, where=name)


def _sketch(architecture: str, arguments: Mapping[str, Any]) -> nn.Module:
    """Build the network without allocating memory, because a damaged card may ask for any size."""
    try:
        with torch.device("meta"):
            return build_encoder(architecture, arguments).module
    except CrowdshotError:  # some networks need memory; a real error is raised again here
        return build_encoder(architecture, arguments).module


def _check_fit(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> None:
    for what, keys in (("missing", expected.keys() - found.keys()), ("unexpected", found.keys() - expected.keys())):
        if keys:
            raise CrowdshotError(
                f"Tensor {min(keys)} is {what} ({len(keys)} in all)",
                found=min(keys),
                expected="the tensors of its architecture",
            )
    for key, tensor in expected.items():
        if tensor.shape != found[key].shape:
            raise CrowdshotError(
                f"Tensor {key} has shape {tuple(found[key].shape)}",
                found=tuple(found[key].shape),
                expected=f"{tuple(tensor.shape)}",
            )


def save_encoder(encoder: Encoder, path: str | os.PathLike[str]) -> None:
    """Write an encoder to one file. The write is atomic.

    Parameters
    ----------
    encoder : Encoder
        An encoder with an architecture; one made by `Encoder.wrap` cannot be saved.
    path : str or path
        The .safetensors file.

    Examples
    --------
    >>> from crowdshot import build_encoder, load_encoder, save_encoder
    >>> from crowdshot.encoders.feature_input import FeatureInput
    >>> save_encoder(build_encoder("mlp", {"n_features": 3, "n_out": 2}, FeatureInput(3)), "mine.safetensors")
    >>> load_encoder("mine.safetensors").embed([[1.0, 2.0, 3.0]]).shape
    torch.Size([1, 2])
    """
    write_safetensors(path, *encoder_state(encoder))


def load_encoder(name_or_path: str | os.PathLike[str], allow_outside: bool = False) -> Encoder:
    """Load an encoder by name, or from a file.

    Parameters
    ----------
    name_or_path : str or path
        - "identity" for feature vectors,
        - "lite0" or "lite0-fast", a frozen EfficientNet-Lite0,
        - the name of a shipped encoder (``crowdshot encoders`` lists them),
        - ``library:name`` for a model of another library, such as "hf:facebook/dinov2-small",
        - a file that `save_encoder` wrote. Write ``./name`` for a file that has the name of a shipped encoder.
    allow_outside : bool
        Whether such a file may use a network of another library, which is then downloaded or read from another file.

    Returns
    -------
    Encoder

    Raises
    ------
    CrowdshotError
        If there is no such encoder, or the file is damaged.

    Examples
    --------
    >>> from crowdshot import load_encoder
    >>> load_encoder("glyphs").n_features_out
    64
    """
    name = os.fspath(name_or_path)
    if isinstance(name_or_path, str) and is_outside(name):
        return outside_encoder(name)
    if name == "identity":
        return build_encoder("identity", {}, FeatureInput())
    if name in LITE0_SIDES:
        side = LITE0_SIDES[name]
        found = build_encoder("lite0-features", {}, ImageInput((side, side), 3, mean=MEAN, std=STD))
        found.name = name
        return found
    shipped = isinstance(name_or_path, str) and name in shipped_encoders()
    if shipped:
        path = weights_file(name)
    else:
        path = Path(name)
        if isinstance(name_or_path, str) and path.name == name and not path.suffix and not os.path.exists(path):
            outside = [f"{library}:…" for library in LIBRARIES]
            known = ["identity", *LITE0_SIDES, *shipped_encoders()]
            raise CrowdshotError(
                f"is {name!r}",
                argument="encoder",
                found=name,
                expected=f"a file or one of {', '.join([*known, *outside])}",
                among=known,
            )
    tensors, card = read_safetensors(path, "encoder")
    with allowed(allow_outside):
        found = encoder_from_state(tensors, card, str(path), check=not shipped)
    if "name" not in card:  # a shipped encoder, or one of 0.2
        found.name = path.stem
    return found


# ---- encoders to start training from ----


START = {"mixture": 16.0, "prototypical": 16.0, "lnl": 1.0, "maml": 256.0}
"""Initial mean squared norm of a linear layer's embeddings, by objective: the best of 1, 4, 16, 64, … on validation.

The prototypical objective is insensitive to it. With long embeddings, the weights exp(-distance) of LNL concentrate on
one item of a class. With short ones, the few gradient steps of MAML change too little.
"""
SMALLEST = 16  # pixels per side, because Conv4 halves an image four times


def fresh_encoder(
    spec: ImageInput | FeatureInput,
    architecture: str | None = None,
    width: int = 64,
    hidden: Sequence[int] = (128,),
    embedding: int = 64,
    seed: int = 0,
) -> Encoder:
    """Return a Conv4 with ``width`` channels for images, or an MLP with ``embedding`` outputs for feature vectors."""
    suitable = "conv4" if isinstance(spec, ImageInput) else "mlp"
    if architecture not in (None, suitable):
        raise CrowdshotError(
            f"is {architecture!r}",
            argument="architecture",
            found=architecture,
            expected=f"{suitable!r}, because the source holds {spec.describe()}",
        )
    arguments: dict[str, Any]
    if isinstance(spec, ImageInput):
        if min(spec.size) < SMALLEST:
            raise CrowdshotError(
                f"is {min(spec.size)}", argument="image_size", found=min(spec.size), expected=f"{SMALLEST} or more"
            )
        arguments = {"channels": spec.channels, "width": width}
    else:
        arguments = {"n_features": spec.n_features, "hidden": list(hidden), "n_out": embedding}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_encoder(suitable, arguments, spec)


@torch.no_grad()
def start_principal(module: MLP, features: Tensor, norm: float) -> None:
    """Initialise a single linear layer with the principal components of features (n, D), scaled to a mean squared norm.

    Starting from random weights, training on few classes loses more of the network's knowledge than it gains.
    """
    (layer,) = (part for part in module.layers if isinstance(part, nn.Linear))
    mean = features.mean(0)
    _, vectors = torch.linalg.eigh((features - mean).mT @ (features - mean))
    components = vectors.flip(1)[:, : layer.out_features].mT  # largest variance first
    if len(components) < layer.out_features:
        raise CrowdshotError(
            f"is {layer.out_features}",
            argument="embedding",
            found=layer.out_features,
            expected=f"at most the {layer.in_features} features of the source",
        )
    components = components * (norm / ((features - mean) @ components.mT).square().sum(-1).mean()).sqrt()
    layer.weight.copy_(components)
    layer.bias.copy_(-components @ mean)


def on_backbone(encoder: Encoder) -> Encoder:
    """Return an encoder of images from a linear layer that was trained on the features of EfficientNet-Lite0."""
    assert isinstance(encoder.module, MLP)
    layer, spec = encoder.module.layers[0].state_dict(), encoder.input
    images = ImageInput((networks.SIDE, networks.SIDE), 3, mean=networks.MEAN, std=networks.STD)
    state = {f"head.{name}": value for name, value in layer.items()}
    if isinstance(spec, FeatureInput) and spec.mean:
        state |= {"body.mean": torch.tensor(spec.mean), "body.std": torch.tensor(spec.std)}
    arguments = {"n_out": len(layer["bias"]), "standardised": "body.mean" in state}
    head = build_encoder("lite0", arguments, images, encoder.card)
    head.module.load_state_dict(state)
    return head
