"""Decode an image from a path, PIL image or array to a tensor of pixels and the value of full brightness.

The full brightness of ``bool``, ``uint8`` and ``uint16`` arrays follows from the type (1, 255, 65535). For other types
it is the first of 1, 16, 255, 65535 that the maximum of the whole input does not exceed (16 occurs in scikit-learn's
digits). These steps, instead of the maximum itself, make the scale of an image independent of the other images in the
input, unless all of them are dark.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from crowdshot.errors import CrowdshotError, CrowdshotWarning

Array = np.ndarray[Any, Any]

FULL_SCALES = (1.0, 16.0, 255.0, 65535.0)
LARGE, SMALL = 2**24, 2**22  # pixels; larger images are decoded one at a time and reduced to about SMALL
ONE_LARGE = threading.Lock()
ORIENTATION = 0x0112  # the EXIF tag
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
OVERSHOOT = 0.02  # resizing may leave the range 0..1 by this share; such values are clipped later
TYPE_SCALES = {"bool": 1.0, "uint8": 255.0, "uint16": 65535.0}


class UnreadableError(Exception):
    """Reason why an image cannot be read, a predicate whose subject is the image's name."""


def decode(item: Any, scales: Mapping[str, float]) -> tuple[Tensor, float]:
    """Decode one image.

    Parameters
    ----------
    item : path-like, PIL image or array
    scales : mapping
        Values of full brightness of the whole input, from `scales_of`.

    Returns
    -------
    pixels : Tensor
        (1, C, H, W) with C = 1, 3 or 4, uint8 or float32.
    scale : float
        The value of full brightness.
    """
    if isinstance(item, (str, os.PathLike)):
        return _decode_file(Path(item))
    if isinstance(item, Image.Image):
        try:
            return _decode_pil(item)
        except (OSError, ValueError) as error:
            raise UnreadableError(f"cannot be read ({error})") from None
    if isinstance(item, (np.ndarray, Tensor)):
        extremes(item)
        if item.ndim not in (2, 3):
            raise UnreadableError(f"has shape {tuple(item.shape)}, expected (height, width[, channels])")
        pixels = item[None] if item.ndim == 2 else channels_first(item)
        return as_tensor(pixels)[None], scales[_scale_key(item)]
    raise UnreadableError(f"is a {type(item).__name__}, expected a path, a PIL image or an array")


def _decode_file(path: Path) -> tuple[Tensor, float]:
    try:
        if path.is_dir():
            raise UnreadableError("is a folder, not an image")
        if not path.exists():
            raise UnreadableError("does not exist")
        if not path.is_file():  # opening a pipe would block
            raise UnreadableError("is not a regular file")
        if path.stat().st_size == 0:
            raise UnreadableError("is empty (0 bytes)")
        with Image.open(path) as image, one_large(image):
            return _decode_pil(image)
    except UnreadableError:
        raise
    except PermissionError:
        raise UnreadableError("cannot be read (permission denied)") from None
    except UnidentifiedImageError:
        convert = ": convert it to JPEG or PNG" if path.suffix.lower() in (".heic", ".heif", ".avif") else ""
        raise UnreadableError(f"is not an image that Pillow can read{convert}") from None
    except Image.DecompressionBombError as error:
        raise UnreadableError(f"is too large ({str(error).split(',')[0]})") from None
    except Exception as error:  # damaged bytes make Pillow's parsers raise nearly anything
        raise UnreadableError(f"is truncated or damaged ({error})") from None


def _decode_pil(image: Image.Image) -> tuple[Tensor, float]:
    """Return upright pixels (1, C, H, W) of an image in any mode, with C = 4 if it may be transparent."""
    image.load()  # Pillow reports damage only at the first attempt; the second returns what was decoded
    if _has_numbers(image):
        grey = np.asarray(image)
        full = TYPE_SCALES.get(_type_of(grey)) or full_scale(*extremes(grey))
        return as_tensor(np.asarray(upright(image)))[None, None], full
    image = upright(image)
    pixels = np.asarray(_in_channels(image))
    return as_tensor(np.moveaxis(np.atleast_3d(pixels), -1, 0))[None], 255.0


def _in_channels(image: Image.Image) -> Image.Image:
    """Return the image as RGBA if it may be transparent, as numbers if it has more than 8 bits, else as grey or RGB."""
    mode = image.mode
    if _has_numbers(image):
        return Image.fromarray(np.asarray(image, dtype=np.float32))
    if mode in ("La", "RGBa"):
        image = image.convert({"La": "LA", "RGBa": "RGBA"}[mode])
    if mode in ("P", "PA", "LA", "La", "RGBA", "RGBa") or "transparency" in image.info:
        return image.convert("RGBA")
    return image.convert("L" if mode in ("1", "L") else "RGB")


def upright(image: Image.Image) -> Image.Image:
    """Turn an image as its EXIF data say, and reduce a large one, so that several fit in memory."""
    reduced = _reduced(image) if image.width * image.height > LARGE else image
    try:
        turn = TURNS.get(image.getexif().get(ORIENTATION, 1))
    except Exception:  # the pixels may be fine although the EXIF data are broken
        turn = None
    if turn is None:
        return reduced
    turned = reduced.transpose(turn)
    turned.info = {key: value for key, value in turned.info.items() if key == "transparency"}
    return turned


def _reduced(image: Image.Image) -> Image.Image:
    """Reduce a large image by an integer factor, in bands, because Pillow copies all that it reduces."""
    width, height = image.size
    factor = math.ceil(math.sqrt(width * height / SMALL))
    rows = max(1, SMALL // (width * factor)) * factor  # whole blocks, of which each becomes one pixel
    bands = (
        _in_channels(image.crop((0, top, width, min(top + rows, height)))).reduce(factor)
        for top in range(0, height, rows)
    )
    first = next(bands)
    reduced = Image.new(first.mode, (first.width, -(-height // factor)))
    for index, band in enumerate(chain([first], bands)):
        reduced.paste(band, (0, index * rows // factor))
    return reduced


def _has_numbers(image: Image.Image) -> bool:
    """Return whether the pixels are one number each, of more than 8 bits."""
    return image.mode in ("I", "F") or image.mode.startswith("I;")


@contextmanager
def one_large(image: Image.Image) -> Iterator[None]:
    """Let threads decode large images one after the other."""
    with ONE_LARGE if image.width * image.height > LARGE else nullcontext():
        yield


def channels_first(pixels: Any) -> Any:
    """Return pixels (..., H, W, C) or (..., C, H, W) as (..., C, H, W).

    C is searched first at the library's usual position (last in NumPy, first in torch), then at the other.
    """
    places = (-3, -1) if isinstance(pixels, Tensor) else (-1, -3)
    for place in places:
        if pixels.shape[place] in (1, 3, 4):
            return pixels.movedim(place, -3) if isinstance(pixels, Tensor) else np.moveaxis(pixels, place, -3)
    raise UnreadableError(
        f"has shape {tuple(pixels.shape)} without an axis of 1, 3 or 4 channels, "
        "expected as the last axis of NumPy arrays, before height and width in tensors"
    )


def scales_of(arrays: list[Any]) -> dict[str, float]:
    """Return the value of full brightness for each type of array; types without a fixed one share one value."""
    seen: dict[str, list[float]] = {}
    for array in arrays:
        if isinstance(array, (np.ndarray, Tensor)):
            try:
                seen.setdefault(_scale_key(array), []).extend(extremes(array))
            except UnreadableError:
                continue  # reported with the image's name when it is decoded
    return {key: full_scale(min(values), max(values), key) for key, values in seen.items() if values}


def scale_of_batch(pixels: Array | Tensor) -> float:
    """Return the value of full brightness of an array (N, C, H, W)."""
    return full_scale(*extremes(pixels), _scale_key(pixels))


def full_scale(low: float, high: float, dtype: str = "") -> float:
    """Return the value of full brightness by the rule in the module's docstring."""
    scale = next((full for full in FULL_SCALES if high <= full * (1 + OVERSHOOT)), None)
    fixed = TYPE_SCALES.get(dtype)
    if fixed is not None:
        if scale is not None and high > 0 and scale < fixed:
            warnings.warn(
                CrowdshotWarning(
                    f"The images are {dtype} with values up to {high:g} of {fixed:g}, which is nearly black",
                    found=high,
                    hint="If they have another range, convert them to float",
                ),
                stacklevel=2,
            )
        return fixed
    if scale is None or low < -OVERSHOOT * scale:
        raise UnreadableError(
            f"has values from {low:g} to {high:g}, expected pixels in 0..1, 0..16, 0..255 or 0..65535 "
            "(the encoder normalises them itself)"
        )
    return scale


def extremes(pixels: Array | Tensor) -> tuple[float, float]:
    """Return the smallest and the largest value; refuse values that are not finite numbers."""
    array = _numpy(pixels)
    if array.dtype.kind not in "buif":
        raise UnreadableError(f"has values of type {array.dtype}, expected numbers")
    if array.size == 0:
        raise UnreadableError(f"has shape {tuple(array.shape)}, which holds no pixels")
    low, high = float(array.min()), float(array.max())
    if not np.isfinite([low, high]).all():
        raise UnreadableError("has NaN or infinite values, expected finite numbers")
    return low, high


def as_tensor(pixels: Array | Tensor) -> Tensor:
    """Return a tensor on the CPU, uint8 or else float32; memory of NumPy or Pillow is copied."""
    if isinstance(pixels, Tensor):
        pixels = pixels.detach().cpu()
        return pixels if pixels.dtype == torch.uint8 else pixels.float()
    return torch.from_numpy(np.array(pixels, dtype=np.uint8 if pixels.dtype == np.uint8 else np.float32))


@contextmanager
def name_in_message(name: str) -> Iterator[None]:
    """Raise an `UnreadableError` of the block as an error about the argument ``name``."""
    try:
        yield
    except UnreadableError as error:
        raise CrowdshotError(str(error), argument=name) from None


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Silence Pillow's warnings about large images and odd metadata; problems that matter are raised as errors.

    Enter this context in the main thread, before worker threads start: ``catch_warnings`` changes the whole process.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module="PIL")
        yield


def _numpy(pixels: Array | Tensor) -> Array:
    if not isinstance(pixels, Tensor):
        return pixels
    pixels = pixels.detach().cpu()
    return np.asarray(pixels.float() if pixels.is_floating_point() else pixels)  # bfloat16 is unknown to NumPy


def _type_of(pixels: Array | Tensor) -> str:
    return str(pixels.dtype).removeprefix("torch.") if isinstance(pixels, Tensor) else pixels.dtype.name


def _scale_key(pixels: Array | Tensor) -> str:
    name = _type_of(pixels)
    return name if name in TYPE_SCALES else "number"
