"""Encoders to begin training with, and what becomes of a head that was trained on a backbone's features."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from crowdshot.encoders import lite0
from crowdshot.encoders.architectures import MLP
from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.features import FeatureInput
from crowdshot.encoders.images import ImageInput
from crowdshot.encoders.saved import build_encoder
from crowdshot.errors import CrowdshotError

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
