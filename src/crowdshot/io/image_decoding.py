"""One picture in any form -> its pixels as a tensor, and the value that means full brightness.

The one rule for numbers in arrays: ``bool``, ``uint8`` and ``uint16`` go by their type (1, 255, 65535); any other
numbers by the first of 1, 16, 255, 65535 that the largest value of the whole input does not exceed (16 is full
ink in scikit-learn's digits). A ladder rather than the maximum itself, so that a picture is scaled alike
whichever others come with it, unless all of them are dark.
"""

from __future__ import annotations

import math
import os
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from crowdshot.errors import CrowdshotError

Array = np.ndarray[Any, Any]

FULL_SCALES = (1.0, 16.0, 255.0, 65535.0)
LARGE, SMALL = 2**24, 2**22  # pixels; a picture with more is read alone, and brought down to these at once
ONE_LARGE = threading.Lock()
OVERSHOOT = 0.02  # floats that were resized elsewhere may leave 0..1 by a hair; they are clipped later
TYPE_SCALES = {"bool": 1.0, "uint8": 255.0, "uint16": 65535.0}


class UnreadableError(Exception):
    """Why a picture cannot be read: the rest of a sentence that starts with its name."""


def decode(item: Any, scales: Mapping[str, float]) -> tuple[Tensor, float]:
    """A path, PIL image or array -> pixels (1, C, H, W) with C = 1, 3, 4, uint8 or float32; their full scale.

    scales: what ``scales_of`` found for the arrays of the whole input.
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
        if not path.is_file():  # opening a pipe would wait for ever
            raise UnreadableError("is not a regular file")
        if path.stat().st_size == 0:
            raise UnreadableError("is empty (0 bytes)")
        with Image.open(path) as image, ONE_LARGE if image.width * image.height > LARGE else nullcontext():
            return _decode_pil(image)
    except UnreadableError:
        raise
    except PermissionError:
        raise UnreadableError("may not be read (permission denied)") from None
    except UnidentifiedImageError:
        convert = ": convert it to JPEG or PNG" if path.suffix.lower() in (".heic", ".heif", ".avif") else ""
        raise UnreadableError(f"is not an image that Pillow can read{convert}") from None
    except Image.DecompressionBombError as error:
        raise UnreadableError(f"is too large an image ({str(error).split(',')[0]})") from None
    except Exception as error:  # damaged bytes make Pillow's parsers raise nearly anything
        raise UnreadableError(f"is truncated or damaged ({error})") from None


def _decode_pil(image: Image.Image) -> tuple[Tensor, float]:
    """Any mode -> upright pixels (1, C, H, W), with C = 4 where there may be transparency."""
    image.load()  # only the first try tells of damage: Pillow hands out what it has on the second
    try:
        upright = ImageOps.exif_transpose(image)
    except Exception:  # broken EXIF says nothing about the pixels
        upright = image
    upright = smaller(upright)
    mode = upright.mode
    if mode in ("I", "F") or mode.startswith("I;"):
        grey = np.asarray(upright)
        return as_tensor(grey)[None, None], TYPE_SCALES.get(_type_of(grey)) or full_scale(*extremes(grey))
    if mode in ("La", "RGBa"):
        upright = upright.convert({"La": "LA", "RGBa": "RGBA"}[mode])
    if mode in ("P", "PA", "LA", "La", "RGBA", "RGBa") or "transparency" in upright.info:
        wanted = "RGBA"
    else:
        wanted = "L" if mode in ("1", "L") else "RGB"
    pixels = np.asarray(upright.convert(wanted))
    return as_tensor(np.moveaxis(np.atleast_3d(pixels), -1, 0))[None], 255.0


def smaller(image: Image.Image) -> Image.Image:
    """A large picture by a whole number of times smaller, so that several fit in memory; any other as it is."""
    if image.width * image.height <= LARGE or image.mode not in ("L", "LA", "RGB", "RGBA"):
        return image
    return image.reduce(math.ceil(math.sqrt(image.width * image.height / SMALL)))


def channels_first(pixels: Any) -> Any:
    """(..., H, W, C) or (..., C, H, W) -> (..., C, H, W).

    C is looked for where its library puts it (NumPy last, torch first), then in the other place.
    """
    places = (-3, -1) if isinstance(pixels, Tensor) else (-1, -3)
    for place in places:
        if pixels.shape[place] in (1, 3, 4):
            return pixels.movedim(place, -3) if isinstance(pixels, Tensor) else np.moveaxis(pixels, place, -3)
    raise UnreadableError(
        f"has shape {tuple(pixels.shape)}, in which no axis holds 1, 3 or 4 channels, "
        "expected last in NumPy arrays, before height and width in tensors"
    )


def scales_of(arrays: list[Any]) -> dict[str, float]:
    """The full scale of each kind of array in a list; all that do not go by their type share one."""
    seen: dict[str, list[float]] = {}
    for array in arrays:
        if isinstance(array, (np.ndarray, Tensor)):
            try:
                seen.setdefault(_scale_key(array), []).extend(extremes(array))
            except UnreadableError:
                continue  # reported under its name when its turn comes
    return {key: full_scale(min(values), max(values), key) for key, values in seen.items() if values}


def scale_of_batch(pixels: Array | Tensor) -> float:
    """The full scale of one array (N, C, H, W)."""
    return full_scale(*extremes(pixels), _scale_key(pixels))


def full_scale(low: float, high: float, dtype: str = "") -> float:
    """The value that means full brightness, by the rule at the top of this file."""
    rung = next((full for full in FULL_SCALES if high <= full * (1 + OVERSHOOT)), None)
    fixed = TYPE_SCALES.get(dtype)
    if fixed is not None:
        if rung is not None and high > 0 and rung < fixed:
            warnings.warn(
                f"images are {dtype} with no value above {high:g} of {fixed:g}, which is nearly black; "
                "pass floats if their full scale is another.",
                stacklevel=2,
            )
        return fixed
    if rung is None or low < -OVERSHOOT * rung:
        raise UnreadableError(
            f"has values from {low:g} to {high:g}, expected pixels in 0..1, 0..16, 0..255 or 0..65535 "
            "(the encoder normalises them itself)"
        )
    return rung


def extremes(pixels: Array | Tensor) -> tuple[float, float]:
    """Smallest and largest value, which must be finite numbers."""
    array = _numpy(pixels)
    if array.dtype.kind not in "buif":
        raise UnreadableError(f"has values of type {array.dtype}, expected numbers")
    if array.size == 0:
        raise UnreadableError(f"has shape {tuple(array.shape)}, which holds no pixels, expected some")
    low, high = float(array.min()), float(array.max())
    if not np.isfinite([low, high]).all():
        raise UnreadableError("has NaN or infinite values, expected finite numbers")
    return low, high


def as_tensor(pixels: Array | Tensor) -> Tensor:
    """uint8 stays, everything else becomes float32, on the CPU; what NumPy or Pillow owns is copied."""
    if isinstance(pixels, Tensor):
        pixels = pixels.detach().cpu()
        return pixels if pixels.dtype == torch.uint8 else pixels.float()
    return torch.from_numpy(np.array(pixels, dtype=np.uint8 if pixels.dtype == np.uint8 else np.float32))


@contextmanager
def name_in_message(name: str) -> Iterator[None]:
    """Tell what is wrong with the whole input as an error about ``name``."""
    try:
        yield
    except UnreadableError as error:
        raise CrowdshotError(f"{name} {error}.") from None


@contextmanager
def quiet_pillow() -> Iterator[None]:
    """Pillow warns of large pictures and odd metadata; what matters is raised, the rest is not the user's.

    Enter it in the calling thread, around the work of others: ``catch_warnings`` changes the whole process.
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
