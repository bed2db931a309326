"""Turn images (files, PIL images, arrays, tensors) into the tensor that an encoder expects.

Every form passes the same steps, so a picture gives the same tensor in whichever form it arrives: decode the pixels
-> lay alpha on white -> resize (bilinear, antialiased) -> scale to [0, 1] -> convert to grey or colour -> invert dark
ink on a bright ground, for encoders of characters -> (x - mean) / std.
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
from crowdshot.errors import CrowdshotError, Use
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
MIN_SIDE, MAX_SIDE = 2, 1024  # pixels; torch's antialiased resizing is wrong for an output one pixel wide


@dataclass(frozen=True)
class ImageInput:
    """Images as the input of an encoder.

    Parameters
    ----------
    size : tuple of int
        (height, width) in pixels, to which images are resized.
    channels : {1, 3}
        1 for grey, 3 for colour.
    ink : bool
        Whether images are characters, presented as bright ink on a dark ground. An image with a bright border (its mean
        above 0.5) is inverted.
    mean, std : tuple of float
        One number per channel, for (x - mean) / std after scaling to [0, 1]. Empty: 0 and 1.

    Examples
    --------
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
            raise CrowdshotError(
                f"is {self.channels!r}", argument="channels", found=self.channels, expected="1 (grey) or 3 (colour)"
            )
        if len(size) != 2 or not all(isinstance(side, int) and MIN_SIDE <= side <= MAX_SIDE for side in size):
            raise CrowdshotError(
                f"is {self.size!r}",
                argument="size",
                found=self.size,
                expected=f"(height, width), each from {MIN_SIDE} to {MAX_SIDE}",
            )
        mean = tuple(float(value) for value in self.mean) or (0.0,) * self.channels
        std = tuple(float(value) for value in self.std) or (1.0,) * self.channels
        for name, values, least in (("mean", mean, -np.inf), ("std", std, 0)):
            if len(values) != self.channels or not np.isfinite(values).all() or min(values) <= least:
                above = " above 0" if name == "std" else ""
                raise CrowdshotError(
                    f"is {values}", argument=name, found=values, expected=f"a finite number{above} for each channel"
                )
        for name, value in (("size", size), ("ink", bool(self.ink)), ("mean", mean), ("std", std)):
            object.__setattr__(self, name, value)

    def batches(self, X: Any, batch_size: int, bad: list[BadImage] | None = None) -> Iterator[Tensor]:
        if getattr(X, "ndim", 0) == 2:
            raise CrowdshotError(
                f"is {described(X)}",
                argument="X",
                expected=f"{self.describe()}, which this encoder was made for",
                hint=Use("for feature vectors, or reshape flattened images to (N, height, width)", encoder="identity"),
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
    """An unreadable image: its position in the input, its name, and the reason ("is empty")."""

    index: int
    name: str
    reason: str


def list_images(folder: str | os.PathLike[str]) -> dict[str, Path]:
    """Return the image files below ``folder`` by their relative paths, recognised by suffix."""
    return list_files(folder, IMAGE_SUFFIXES, "images")


def read_images(images: Any, spec: ImageInput, bad: list[BadImage] | None = None) -> Tensor:
    """Return images in any form as a float32 tensor (N, C, H, W), prepared as ``spec`` says.

    Parameters
    ----------
    images : list, Series, dict, array or tensor
        Paths, PIL images or arrays; or one array (N, H, W) or (N, H, W, C); or one tensor (N, C, H, W). C is 1, 3 or 4
        (alpha).
    spec : ImageInput
        Size, channels and scaling of the result.
    bad : list or None
        None: an unreadable image is an error that names the first and counts the others. A list: unreadable images are
        appended to it and left out.
    """
    batches = list(image_batches(images, spec, 256, bad))
    return torch.cat(batches) if batches else torch.empty(0, spec.channels, *spec.size)


def image_batches(
    images: Any, spec: ImageInput, batch_size: int, bad: list[BadImage] | None = None
) -> Iterator[Tensor]:
    """Yield what `read_images` returns in batches, so that the images need not fit in memory together."""
    return map(torch.cat, converted_batches(images, partial(_standardise, spec=spec), batch_size, bad))


def converted_batches(
    images: Any, make: Callable[[Tensor, float], Made], batch_size: int, bad: list[BadImage] | None = None
) -> Iterator[list[Made]]:
    """Yield batches of ``make(pixels, full)``, where pixels (n, C, H, W) of one or several images are in 0..full."""
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
    unreadable: list[BadImage] = []
    with name_in_message("images"):
        scales = scales_of(items)

    def read(item: Any) -> Made | str:
        try:
            return make(*decode(item, scales))
        except UnreadableError as error:
            return str(error)

    all_paths = all(isinstance(item, (str, os.PathLike)) for item in items)
    with ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as pool:
        # PIL images load lazily and are not safe to share between threads, so they are read one by one.
        apply: Callable[..., Iterable[Made | str]] = pool.map if all_paths else map
        for start in range(0, len(items), batch_size):
            with quiet_pillow():
                results = list(apply(read, items[start : start + batch_size]))
            for index, result in enumerate(results, start):
                if isinstance(result, str):
                    unreadable.append(BadImage(index, names[index], result))
            good = [result for result in results if not isinstance(result, str)]
            if good and (bad is not None or not unreadable):
                yield good
    if bad is not None:
        bad.extend(unreadable)
    elif unreadable:
        raise _unreadable_error(unreadable, items)


def _unreadable_error(unreadable: list[BadImage], items: list[Any]) -> CrowdshotError:
    image = unreadable[0]
    item = items[image.index]
    if isinstance(item, str) and not item.lower().endswith(ENDINGS) and not os.path.exists(item):
        return CrowdshotError(
            f"has {clean(item, 60)!r}, which is not a file",
            argument="images",
            found=item,
            expected="paths of images",
            hint=Use("to select an encoder of texts", encoder="auto"),
        )
    others = f" (and {len(unreadable) - 1} more of the {len(items)} cannot be read)" if len(unreadable) > 1 else ""
    return CrowdshotError(f"{image.reason}{others}", where=image.name)


def _listed(images: Any) -> tuple[list[str], list[Any]]:
    """Return the images as a list with names for messages. A single image is an error."""
    if isinstance(images, (str, os.PathLike, Image.Image)):
        raise CrowdshotError(
            f"is one {type(images).__name__}", argument="images", expected="a list", hint="Pass [image]."
        )
    if isinstance(images, Mapping):
        return [shown(str(name)) for name in images], list(images.values())
    try:
        items = list(images)
    except TypeError:
        raise CrowdshotError(
            f"is {described(images)}", argument="images", expected="a list of paths, PIL images or arrays"
        ) from None
    return [shown(x) if isinstance(x, (str, os.PathLike)) else f"images[{i}]" for i, x in enumerate(items)], items


def _as_batch(images: Any) -> Any:
    """Return an array or tensor of images with the axes (N, C, H, W). A single image is an error."""
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
    """Convert (n, C, H, W) with C = 1, 3 or 4 and values in 0..full to float32 (n, c, h, w), as ``spec`` says."""
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
    """Return the outermost rows and columns of (n, C, H, W) as (n, C, 2W + 2H)."""
    edges = (pixels[..., 0, :], pixels[..., -1, :], pixels[..., :, 0], pixels[..., :, -1])
    return torch.cat(edges, -1).float()


def _grey(x: Tensor) -> Tensor:
    """Convert (n, 3, ...) to (n, 1, ...) by luma; grey is returned unchanged."""
    if x.shape[1] == 1:
        return x
    return LUMA[0] * x[:, 0:1] + LUMA[1] * x[:, 1:2] + LUMA[2] * x[:, 2:3]


def _resize(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize with an antialiased bilinear filter, which is Pillow's; return float32."""
    if tuple(pixels.shape[-2:]) == size:
        return pixels.float()
    if pixels.dtype == torch.uint8 and pixels.shape[-2] * pixels.shape[-1] <= LARGE:
        pixels = pixels.float()
    return nn.functional.interpolate(pixels, size=size, mode="bilinear", antialias=True).float()


# ---- PIL images, for networks of other libraries that do their own preprocessing ----


@dataclass(frozen=True)
class PictureInput:
    """Converts images in any form that `ImageInput` accepts to lists of PIL images in RGB."""

    kind: ClassVar[str] = "images"

    def batches(self, X: Any, batch_size: int, bad: list[BadImage] | None = None) -> Iterator[list[Image.Image]]:
        return (list(chain(*parts)) for parts in converted_batches(X, as_pictures, batch_size, bad))

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
    """Return (n, C, H, W) with C = 1, 3 or 4 and values in 0..full as PIL images, transparent ones on white."""
    if pixels.shape[1] == 4:
        pixels = on_white(pixels, full)
    values = (pixels.float() * (255 / full)).round().clamp(0, 255).byte().permute(0, 2, 3, 1).numpy()
    return [Image.fromarray(one.squeeze(-1) if one.shape[-1] == 1 else one).convert("RGB") for one in values]
