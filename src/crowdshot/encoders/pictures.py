"""Images as other people's networks take them: pictures in RGB, which their own preparation brings to size."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar

from PIL import Image
from torch import Tensor

from crowdshot.encoders.images import BadImage, in_pieces, on_white
from crowdshot.encoders.shipped import describe_input


@dataclass(frozen=True)
class PictureInput:
    """Images in any form that `ImageInput` takes, as lists of PIL images."""

    kind: ClassVar[str] = "images"

    def batches(self, X: Any, batch_size: int, bad: list[BadImage] | None = None) -> Iterator[list[Image.Image]]:
        return (list(chain(*parts)) for parts in in_pieces(X, as_pictures, batch_size, bad))

    def blank(self) -> list[Image.Image]:
        return [Image.new("RGB", (32, 32))]

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "pictures"}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PictureInput:
        return cls()

    def describe(self) -> str:
        return describe_input(self.to_dict())


def as_pictures(pixels: Tensor, full: float) -> list[Image.Image]:
    """(n, C, H, W) with C = 1, 3, 4 and values in 0..full, transparent ones on white."""
    if pixels.shape[1] == 4:
        pixels = on_white(pixels, full)
    values = (pixels.float() * (255 / full)).round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
    return [Image.fromarray(one.squeeze(-1) if one.shape[-1] == 1 else one).convert("RGB") for one in values]
