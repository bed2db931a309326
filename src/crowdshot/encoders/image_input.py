"""Turn what a user has (files, PIL images, arrays, tensors) into the tensor an encoder expects.

Every form goes one way, so the same picture gives the same tensor however it arrives: pixels (`files.pictures`)
-> alpha laid on white -> resized (bilinear, antialiased) -> scaled to [0, 1] -> grey or colour -> bright ink on
dark, where the encoder reads characters -> (x - mean) / std.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from crowdshot.encoders.shipped import describe_input
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import clean, described, shown
from crowdshot.io.file_names import ENDINGS, IMAGE_SUFFIXES, list_files
from crowdshot.io.image_decoding import (
    UnreadableError,
    as_tensor,
    channels_first,
    decode,
    name_in_message,
    quiet_pillow,
    scale_of_batch,
    scales_of,
)

LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, as in Pillow's own conversion to grey
LARGE = 2**20  # 8-bit pictures with more pixels are resized in 8 bits: 30 times faster, within 1/255
Made = TypeVar("Made")
MIN_SIDE, MAX_SIDE = 2, 1024  # torch's antialiased resizing is wrong for an output one pixel wide


@dataclass(frozen=True)
class ImageInput:
    """The images an encoder was made for.

    size: (height, width) in pixels. channels: 1 grey, 3 colour. ink: characters, read as bright ink on a dark
    ground; an image whose border is bright (its mean above 0.5) is inverted. mean, std: one number a channel,
    applied after scaling to [0, 1]; left out, they are 0 and 1.

    >>> import numpy as np
    >>> from crowdshot import Encoder, ImageInput
    >>> import torch
    >>> encoder = Encoder.wrap(torch.nn.Flatten(), ImageInput((4, 4), channels=1))
    >>> encoder.embed(np.zeros((2, 9, 9), dtype=np.uint8)).shape  # of any size, as arrays, PIL images or files
    torch.Size([2, 16])
    """

    kind: ClassVar[str] = "images"
    size: tuple[int, int]
    channels: int = 1
    ink: bool = False
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        size = tuple(self.size)
        if self.channels not in (1, 3):
            raise CrowdshotError(f"channels is {self.channels!r}, expected 1 (grey) or 3 (colour).")
        if len(size) != 2 or not all(isinstance(side, int) and MIN_SIDE <= side <= MAX_SIDE for side in size):
            raise CrowdshotError(
                f"size is {self.size!r}, expected (height, width), each from {MIN_SIDE} to {MAX_SIDE}."
            )
        mean = tuple(float(value) for value in self.mean) or (0.0,) * self.channels
        std = tuple(float(value) for value in self.std) or (1.0,) * self.channels
        for name, values, least in (("mean", mean, -np.inf), ("std", std, 0)):
            if len(values) != self.channels or not np.isfinite(values).all() or min(values) <= least:
                above = " above 0" if name == "std" else ""
                raise CrowdshotError(f"{name} is {values}, expected a finite number{above} for each of the channels.")
        for name, value in (("size", size), ("ink", bool(self.ink)), ("mean", mean), ("std", std)):
            object.__setattr__(self, name, value)

    def batches(self, X: Any, batch_size: int, bad: list[BadImage] | None = None) -> Iterator[Tensor]:
        if getattr(X, "ndim", 0) == 2:
            raise CrowdshotError(
                f"X is {described(X)}, expected {self.describe()}, for which this encoder was made; reshape flattened"
                " images to (N, height, width), or use encoder='identity' for feature vectors."
            )
        return image_batches(X, self, batch_size, bad)

    def blank(self) -> Tensor:
        return torch.zeros(1, self.channels, *self.size)

    def to_dict(self) -> dict[str, Any]:
        return {"kind": self.kind, **{k: list(v) if isinstance(v, tuple) else v for k, v in asdict(self).items()}}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ImageInput:
        return cls(**{key: value for key, value in data.items() if key != "kind"})

    def describe(self) -> str:
        return describe_input(self.to_dict())


@dataclass(frozen=True)
class BadImage:
    """An image that could not be read: its place in the input, its name, and the rest of the sentence."""

    index: int
    name: str
    reason: str


def list_images(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """All images below ``folder``, by their endings."""
    return list_files(folder, IMAGE_SUFFIXES, "images")


def read_images(images: Any, spec: ImageInput, bad: list[BadImage] | None = None) -> Tensor:
    """Images in any form -> float32 (N, C, H, W) as ``spec`` asks.

    images: a list (or Series, or dict of name -> one) of paths, PIL images or arrays; or one NumPy array
    (N, H, W) or (N, H, W, C), or one tensor (N, C, H, W), where C is 1, 3 or 4 (alpha).
    bad: with None an unreadable image is an error, which names the first and counts the others; given a list,
    unreadable images are appended to it and left out of the result.
    """
    batches = list(image_batches(images, spec, 256, bad))
    return torch.cat(batches) if batches else torch.empty(0, spec.channels, *spec.size)


def image_batches(
    images: Any, spec: ImageInput, batch_size: int, bad: list[BadImage] | None = None
) -> Iterator[Tensor]:
    """As ``read_images``, in pieces of at most ``batch_size``, so that the images need not all fit in memory."""
    return map(torch.cat, in_pieces(images, partial(_standardise, spec=spec), batch_size, bad))


def in_pieces(
    images: Any, make: Callable[[Tensor, float], Made], batch_size: int, bad: list[BadImage] | None = None
) -> Iterator[list[Made]]:
    """What ``make`` makes of pixels (n, C, H, W) in 0..full, and of that ``full``: of one image, or of several."""
    if isinstance(images, Tensor) or (isinstance(images, np.ndarray) and images.dtype.kind not in "OUST"):
        with name_in_message("images"):
            pixels = _as_batch(images)
            full = scale_of_batch(pixels) if len(pixels) else 1.0
        for start in range(0, len(pixels), batch_size):
            yield [make(as_tensor(pixels[start : start + batch_size]), full)]
    else:
        yield from _read_one_by_one(*_listed(images), make, batch_size, bad)


def _read_one_by_one(
    names: list[str],
    items: list[Any],
    make: Callable[[Tensor, float], Made],
    batch_size: int,
    bad: list[BadImage] | None,
) -> Iterator[list[Made]]:
    found: list[BadImage] = []
    with name_in_message("images"):
        scales = scales_of(items)

    def read(item: Any) -> Made | str:
        try:
            return make(*decode(item, scales))
        except UnreadableError as error:
            return str(error)

    all_paths = all(isinstance(item, (str, os.PathLike)) for item in items)
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        # PIL images load on first use and must not be shared between threads, so those are read one by one.
        over: Callable[..., Iterable[Made | str]] = pool.map if all_paths else map
        for start in range(0, len(items), batch_size):
            with quiet_pillow():
                results = list(over(read, items[start : start + batch_size]))
            for index, result in enumerate(results, start):
                if isinstance(result, str):
                    found.append(BadImage(index, names[index], result))
            good = [result for result in results if not isinstance(result, str)]
            if good and (bad is not None or not found):
                yield good
    if bad is not None:
        bad.extend(found)
    elif found:
        odd = items[found[0].index]
        if isinstance(odd, str) and not odd.lower().endswith(ENDINGS) and not os.path.exists(odd):
            raise CrowdshotError(
                f"images has {clean(odd, 60)!r}, which is no file, expected paths of images; texts need an encoder of"
                " texts, such as 'auto' takes."
            )
        others = f" (and {len(found) - 1} more of the {len(items)} cannot be read)" if len(found) > 1 else ""
        raise CrowdshotError(f"{found[0].name} {found[0].reason}{others}.")


def _listed(images: Any) -> tuple[list[str], list[Any]]:
    """-> names for messages, and the images; a lone image is refused."""
    if isinstance(images, (str, os.PathLike, Image.Image)):
        raise CrowdshotError(f"images is one {type(images).__name__}, expected a list; pass [image].")
    if isinstance(images, Mapping):
        return [shown(str(name)) for name in images], list(images.values())
    try:
        items = list(images)
    except TypeError:
        raise CrowdshotError(
            f"images is {described(images)}, expected a list of paths, PIL images or arrays."
        ) from None
    return [shown(x) if isinstance(x, (str, os.PathLike)) else f"images[{i}]" for i, x in enumerate(items)], items


def _as_batch(images: Any) -> Any:
    """One array or tensor of images -> the same values as (N, C, H, W); a lone image is refused."""
    shape = tuple(images.shape)
    if len(shape) == 4:
        return channels_first(images)
    if len(shape) == 2:
        hint = "; pass images[None] if it is one image, images.reshape(N, height, width) if they are flattened"
    elif len(shape) == 3 and isinstance(images, Tensor):
        hint = "; pass images[:, None] if they are N grey ones, images[None] if it is one"
    elif len(shape) == 3 and shape[-1] in (1, 3, 4):
        hint = "; pass images[None] if it is one image"
    elif len(shape) == 3:
        return images[:, None]
    else:
        hint = ""
    axes = "(N, C, height, width)" if isinstance(images, Tensor) else "(N, height, width) or (N, height, width, C)"
    raise UnreadableError(f"has shape {shape}, expected {axes}{hint}")


def _standardise(pixels: Tensor, full: float, spec: ImageInput) -> Tensor:
    """(n, C, H, W) with C = 1, 3, 4 and values in 0..full -> float32 (n, c, h, w) as ``spec`` asks."""
    if pixels.shape[1] == 4:
        pixels = on_white(pixels, full)
    bright = _grey(_border(pixels)).mean((1, 2)) > full / 2  # (n,)
    x = (_resize(pixels, spec.size) / full).clamp(0, 1)
    if spec.channels == 1:
        x = _grey(x)
    elif x.shape[1] == 1:
        x = x.repeat(1, 3, 1, 1)
    if spec.ink:
        x = torch.where(bright[:, None, None, None], 1 - x, x)
    mean, std = (torch.tensor(values)[:, None, None] for values in (spec.mean, spec.std))
    return ((x - mean) / std).contiguous()


def on_white(pixels: Tensor, full: float) -> Tensor:
    colour, alpha = pixels[:, :3], pixels[:, 3:]
    if bool((alpha == full).all()):
        return colour
    opacity = (alpha.float() / full).clamp(0, 1)
    return colour.float() * opacity + full * (1 - opacity)


def _border(pixels: Tensor) -> Tensor:
    """(n, C, H, W) -> its outermost rows and columns (n, C, 2W + 2H)."""
    edges = (pixels[..., 0, :], pixels[..., -1, :], pixels[..., :, 0], pixels[..., :, -1])
    return torch.cat(edges, -1).float()


def _grey(x: Tensor) -> Tensor:
    """(n, 3, ...) -> (n, 1, ...) by luma; grey stays."""
    if x.shape[1] == 1:
        return x
    return LUMA[0] * x[:, 0:1] + LUMA[1] * x[:, 1:2] + LUMA[2] * x[:, 2:3]


def _resize(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Bilinear with antialiasing, the same filter as Pillow's; float32 out."""
    if tuple(pixels.shape[-2:]) == size:
        return pixels.float()
    if pixels.dtype == torch.uint8 and pixels.shape[-2] * pixels.shape[-1] <= LARGE:
        pixels = pixels.float()
    return nn.functional.interpolate(pixels, size=size, mode="bilinear", antialias=True).float()


# ---- pictures ------------------------------------------------------------
#
# Images as other people's networks take them: pictures in RGB, which their own preparation brings to size.


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
