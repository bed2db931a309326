"""From a pool's entries, bytes or features, to what an encoder's network takes, on the device where they are."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.images import ImageInput


def input_of(encoder: Encoder, device: torch.device) -> Callable[[Tensor], Tensor]:
    """What brings pool entries (G, n, ...) into the form a network takes.

    Bytes ([C,] H, W) become standardised floats (C, H, W); feature vectors stay as they are.
    """
    spec = encoder.input
    if not isinstance(spec, ImageInput):
        return Tensor.float
    mean, std = (torch.tensor(x, device=device)[:, None, None] for x in (spec.mean, spec.std))

    def standardise(stored: Tensor) -> Tensor:
        pixels = stored[:, :, None] if stored.ndim == 4 else stored
        return (pixels.float() / 255 - mean) / std

    return standardise
