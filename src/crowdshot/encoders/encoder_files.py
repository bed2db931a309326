"""Encoders built by name, saved, loaded and shipped; none is ever unpickled."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from crowdshot.encoders import lite0
from crowdshot.encoders.encoder import Encoder, FunctionNetwork, Input
from crowdshot.encoders.feature_input import FeatureInput
from crowdshot.encoders.image_input import ImageInput, PictureInput
from crowdshot.encoders.lite0 import FAST_SIDE, MEAN, SIDE, STD
from crowdshot.encoders.networks import ARCHITECTURES, MLP
from crowdshot.encoders.outside import is_outside, outside_encoder
from crowdshot.encoders.shipped import LIBRARIES, shipped_encoders, weights_file
from crowdshot.encoders.table_input import TableInput
from crowdshot.encoders.text_input import TextInput
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import clean
from crowdshot.io.cards import Card, read_safetensors, write_safetensors

INPUTS: dict[str, Any] = {  # what reads what ``to_dict`` wrote
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
    """A fresh encoder by the name of its architecture: ``build_encoder("conv4", {}, ImageInput((28, 28)))``.

    >>> from crowdshot import ImageInput, build_encoder
    >>> build_encoder("conv4", {"width": 16}, ImageInput((28, 28))).n_features_out
    16
    """
    if architecture not in ARCHITECTURES:
        raise CrowdshotError(f"architecture is {architecture!r}, expected one of {', '.join(ARCHITECTURES)}.")
    try:
        module = ARCHITECTURES[architecture](**(arguments or {}))
    except CrowdshotError:
        raise
    except (TypeError, ValueError, RuntimeError, OverflowError) as error:
        raise CrowdshotError(
            f"arguments is {clean(arguments)}, expected what {architecture} can be built with ({error})."
        ) from None
    return Encoder(module, architecture, dict(arguments or {}), input, dict(card or {}))


def encoder_state(encoder: Encoder) -> tuple[dict[str, Tensor], Card]:
    """What ``encoder_from_state`` needs to make the same encoder: its tensors, and its card of kind "encoder"."""
    if encoder.architecture is None:
        raise CrowdshotError(
            f"encoder is {_called(encoder.module)}, expected a network that can be saved; {_remedy(encoder.module)}."
        )
    own = {
        "kind": "encoder",
        "architecture": encoder.architecture,
        "arguments": encoder.arguments,
        "input": encoder.input.to_dict() if encoder.input is not None else None,
    }
    return dict(encoder.module.state_dict()), {**encoder.card, **own}


def _called(module: nn.Module) -> str:
    if isinstance(module, FunctionNetwork):
        return f"{module.name}, a function"
    return f"a {type(module).__name__} of your own"


def _remedy(module: nn.Module) -> str:
    if isinstance(module, FunctionNetwork):
        return "fit what it returns with encoder='identity', and save that"
    return "add its class to crowdshot.encoders.networks.ARCHITECTURES and give the encoder that name and its arguments"


def encoder_from_state(tensors: Mapping[str, Tensor], card: Mapping[str, Any], name: str = "the encoder") -> Encoder:
    """The encoder that ``encoder_state`` described; ``name`` (a file) is for the messages."""
    rest = {key: value for key, value in card.items() if key != "format"}
    try:
        kind, architecture, arguments, given = (rest.pop(k) for k in ("kind", "architecture", "arguments", "input"))
        fed = None if given is None else INPUTS[given["kind"]].from_dict(given)
        architecture, arguments = str(architecture), dict(arguments)
    except CrowdshotError as error:
        raise CrowdshotError(f"{name}: {error}") from None
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CrowdshotError(
            f"{name} has a damaged card ({type(error).__name__}: {error}), expected an encoder that crowdshot saved."
        ) from None
    if kind != "encoder":
        raise CrowdshotError(f"{name} is of kind {kind!r}, expected 'encoder'.")
    try:
        with torch.random.fork_rng(devices=[]):  # weights drawn here are thrown away: leave no trace in the RNG
            _check_fit(_sketch(architecture, arguments).state_dict(), tensors)
            encoder = build_encoder(architecture, arguments, fed, rest)
        encoder.module.load_state_dict(dict(tensors))
        encoder.n_features_out  # noqa: B018  does the input fit the network?
    except CrowdshotError as error:
        raise CrowdshotError(f"{name}: {error}") from None
    except Exception as error:  # a card may say anything, and networks stumble over it in their own ways
        raise CrowdshotError(
            f"{name} holds a network that does not fit its own input ({error or type(error).__name__}), expected one "
            "that does."
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
    for what, keys in (("missing", expected.keys() - found.keys()), ("unexpected", found.keys() - expected.keys())):
        if keys:
            raise CrowdshotError(
                f"tensor {min(keys)} is {what} ({len(keys)} in all), expected the tensors of its architecture."
            )
    for key, tensor in expected.items():
        if tensor.shape != found[key].shape:
            raise CrowdshotError(f"tensor {key} has shape {tuple(found[key].shape)}, expected {tuple(tensor.shape)}.")


def save_encoder(encoder: Encoder, path: str | os.PathLike[str]) -> None:
    """Write the encoder to one file, all or nothing.

    >>> from crowdshot import build_encoder, load_encoder, save_encoder
    >>> from crowdshot.encoders.feature_input import FeatureInput
    >>> save_encoder(build_encoder("mlp", {"n_features": 3, "n_out": 2}, FeatureInput(3)), "mine.safetensors")
    >>> load_encoder("mine.safetensors").embed([[1.0, 2.0, 3.0]]).shape
    torch.Size([1, 2])
    """
    write_safetensors(path, *encoder_state(encoder))


def load_encoder(name_or_path: str | os.PathLike[str]) -> Encoder:
    """ "identity", "lite0" (a frozen EfficientNet-Lite0), a shipped encoder's name, or a file of ``save_encoder``.

    Or "lite0-fast", or ``library:name``, a network of `LIBRARIES`. A shipped name comes before a file of that name:
    write ``./name`` for the file.

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
        return build_encoder("lite0-features", {}, ImageInput((side, side), 3, mean=MEAN, std=STD))
    if isinstance(name_or_path, str) and name in shipped_encoders():
        path = weights_file(name)
    else:
        path = Path(name)
        if isinstance(name_or_path, str) and path.name == name and not path.suffix and not os.path.exists(path):
            outside = [f"{library}:…" for library in LIBRARIES]
            known = ", ".join(["identity", *LITE0_SIDES, *shipped_encoders(), *outside])
            raise CrowdshotError(f"encoder is {name!r}, expected a file or one of {known}.")
    tensors, card = read_safetensors(path, "encoder")
    return encoder_from_state(tensors, card, str(path))


# ---- fresh ------------------------------------------------------------
#
# Encoders to begin training with, and what becomes of a head that was trained on a backbone's features.


START = {"mixture": 16.0, "prototypical": 16.0, "lnl": 1.0, "maml": 256.0}
"""Mean squared norm of the embeddings that a linear layer starts with: the best of 1, 4, 16, 64, … on validation.

Prototypes do not mind. Where embeddings are long, LNL, whose weights go by exp(-distance), hears one item of a class;
where they are short, MAML's few steps lead nowhere.
"""
SMALLEST = 16  # pixels a side: Conv4 halves them four times


def fresh_encoder(
    fed: ImageInput | FeatureInput,
    architecture: str | None = None,
    width: int = 64,
    hidden: Sequence[int] = (128,),
    embedding: int = 64,
    seed: int = 0,
) -> Encoder:
    """Conv4 of ``width`` channels for images; for feature vectors an MLP with ``embedding`` numbers out."""
    suits = "conv4" if isinstance(fed, ImageInput) else "mlp"
    if architecture not in (None, suits):
        raise CrowdshotError(f"architecture is {architecture}, expected {suits}, as the source holds {fed.describe()}.")
    arguments: dict[str, Any]
    if isinstance(fed, ImageInput):
        if min(fed.size) < SMALLEST:
            raise CrowdshotError(f"image_size is {min(fed.size)}, expected {SMALLEST} or more.")
        arguments = {"channels": fed.channels, "width": width}
    else:
        arguments = {"n_features": fed.n_features, "hidden": list(hidden), "n_out": embedding}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build_encoder(suits, arguments, fed)


@torch.no_grad()
def start_principal(module: MLP, features: Tensor, norm: float) -> None:
    """Start a single linear layer as the principal components of features (n, D), brought to that mean squared norm.

    From random weights, training on few classes forgets more of what a good network knows than it learns.
    """
    (layer,) = (part for part in module.layers if isinstance(part, nn.Linear))
    mean = features.mean(0)
    _, vectors = torch.linalg.eigh((features - mean).mT @ (features - mean))
    components = vectors.flip(1)[:, : layer.out_features].mT  # the largest first
    if len(components) < layer.out_features:
        raise CrowdshotError(
            f"embedding is {layer.out_features}, expected at most the {layer.in_features} features of the source."
        )
    components = components * (norm / ((features - mean) @ components.mT).square().sum(-1).mean()).sqrt()
    layer.weight.copy_(components)
    layer.bias.copy_(-components @ mean)


@torch.no_grad()
def start_as(module: MLP, fed: FeatureInput, shipped: Encoder) -> None:
    """Start a single linear layer as the head that a shipped encoder has on the same backbone, fed with its features.

    The one had its features standardised as ``fed`` says, the other in its own way: the layer makes up for it.
    """
    assert isinstance(shipped.module, lite0.Lite0)
    (layer,) = (part for part in module.layers if isinstance(part, nn.Linear))
    body, head = shipped.module.body, shipped.module.head
    mean, std = torch.tensor(fed.mean), torch.tensor(fed.std)
    layer.weight.copy_(head.weight * (std / body.std))
    layer.bias.copy_(head.bias + head.weight @ ((mean - body.mean) / body.std))


def on_backbone(encoder: Encoder) -> Encoder:
    """A linear layer that was trained on EfficientNet-Lite0's features, as an encoder of images."""
    assert isinstance(encoder.module, MLP)
    layer, fed = encoder.module.layers[0].state_dict(), encoder.input
    images = ImageInput((lite0.SIDE, lite0.SIDE), 3, mean=lite0.MEAN, std=lite0.STD)
    state = {f"head.{name}": value for name, value in layer.items()}
    if isinstance(fed, FeatureInput) and fed.mean:
        state |= {"body.mean": torch.tensor(fed.mean), "body.std": torch.tensor(fed.std)}
    arguments = {"n_out": len(layer["bias"]), "standardised": "body.mean" in state}
    head = build_encoder("lite0", arguments, images, encoder.card)
    head.module.load_state_dict(state)
    return head
