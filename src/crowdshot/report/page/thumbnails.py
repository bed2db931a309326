"""Embed small pictures in the page: one for each item shown in detail, and a sprite sheet for the map."""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageOps

from crowdshot.io.image_decoding import decode, quiet_pillow
from crowdshot.progress import progress

DETAIL = 12_000_000  # pixels of all detailed pictures together, about three megabytes
SMALL, LARGE = 144, 400  # least and most pixels of a detailed picture's side
TINY = 32  # images up to this size are stored without loss
SHEET = 16_000_000  # most pixels of the sheet, a few megabytes
LEAST, MOST = 16, 96  # least and most pixels of a tile's side


class Sheet(NamedTuple):
    """Square tiles in rows, the i-th in column i % columns; ``uri`` is "" if there are no images."""

    uri: str = ""
    tile: int = 0
    columns: int = 1


class Picture(NamedTuple):
    """An image in the page as a data URI, and its size."""

    uri: str
    width: int
    height: int


def thumbnails(paths: Mapping[int, Path]) -> dict[int, Picture]:
    """Return pictures by item, smaller if there are many; images that can no longer be read are left out."""
    side = side_of(len(paths))
    images = zip(paths, _read(list(paths.values()), side), strict=True)
    return {item: Picture(_as_uri(image), *image.size) for item, image in images if image}


def side_of(pictures: int) -> int:
    """Return the side of each picture in pixels, so that all together stay below `DETAIL`."""
    return int(np.clip((DETAIL / max(pictures, 1)) ** 0.5, SMALL, LARGE))


def sheet(paths: Sequence[Path]) -> Sheet:
    """Return all images as one sprite sheet, which a browser decodes once."""
    if not paths:
        return Sheet()
    tile = int(np.clip((SHEET / len(paths)) ** 0.5, LEAST, MOST))
    columns = int(np.ceil(len(paths) ** 0.5))
    canvas = Image.new("RGB", (columns * tile, -(-len(paths) // columns) * tile), (128, 128, 128))
    for i, image in enumerate(_read(paths, tile)):
        if image:
            if max(image.size) < tile:  # enlarge tiny images without smoothing
                image = image.resize(
                    [side * tile // max(image.size) or 1 for side in image.size], Image.Resampling.NEAREST
                )
            x, y = (i % columns) * tile, (i // columns) * tile
            canvas.paste(image, (x + (tile - image.width) // 2, y + (tile - image.height) // 2))
    return Sheet(_uri("jpeg", canvas, quality=60), tile, columns)


def _read(paths: Sequence[Path], side: int) -> list[Image.Image | None]:
    images: list[Image.Image | None] = []
    with quiet_pillow(), ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool, progress("drawing images") as tick:
        for image in pool.map(lambda path: _small(path, side), paths):
            images.append(image)
            tick(len(images), len(paths))
    return images


def _small(path: Path, side: int) -> Image.Image | None:
    """Return the upright image in RGB or grey, at most ``side`` pixels wide and high; None if it cannot be read."""
    try:
        with Image.open(path) as image:
            image.draft(None, (2 * side, 2 * side))  # decodes JPEG at a reduced size
            picture = ImageOps.exif_transpose(image) if image.mode in ("L", "RGB") else _decoded(image)
    except Exception:  # the file has changed since it was first read, or its metadata are damaged
        return None
    picture.thumbnail((side, side), Image.Resampling.LANCZOS, reducing_gap=3)
    return picture


def _decoded(image: Image.Image) -> Image.Image:
    """Decode palettes, transparency and 16-bit images as the encoder does; transparency becomes white."""
    pixels, full = decode(image, {})
    values = (pixels[0].float() * (255 / full)).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
    picture = Image.fromarray(values.squeeze(-1) if values.shape[-1] == 1 else values)
    if picture.mode != "RGBA":
        return picture
    white = Image.new("RGB", picture.size, (255, 255, 255))
    white.paste(picture, mask=picture)
    return white


def _as_uri(image: Image.Image) -> str:
    return _uri("png", image) if max(image.size) <= TINY else _uri("jpeg", image, quality=78)


def _uri(kind: str, image: Image.Image, **options: int) -> str:
    buffer = io.BytesIO()
    image.save(buffer, kind, optimize=True, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode()}"
