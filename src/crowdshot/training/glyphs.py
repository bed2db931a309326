"""Draw thousands of classes of simulated handwritten characters, from the fonts that matplotlib includes.

A class is one Unicode character. Every font that contains it gives a skeleton: the shape thinned to lines one pixel
wide. An example is one of these skeletons, bent, slanted, stretched and drawn with a pen of random width. The distances
to the skeleton are deformed instead of the shape itself, so that the pen keeps its width where lines are stretched.

Nothing is downloaded. The same seed and the same fonts give the same pool.
"""

import math
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from string import ascii_letters

import matplotlib
import numpy as np
import torch
from matplotlib.ft2font import FT2Font
from numpy.typing import NDArray
from PIL import Image, ImageFont
from scipy.ndimage import distance_transform_edt
from torch import Tensor
from torch.nn import functional

from crowdshot.errors import CrowdshotError
from crowdshot.training.pools import ClassPool

# ---- strokes: bitmap -> skeleton -> distances to the skeleton -> handwritten image ----


BOX = 44  # the longer side of a shape, in pixels of its bitmap
MARGIN = 6  # pixels around it; more than half the width of any pen
SIDE = BOX + 2 * MARGIN
FARTHEST = 7  # distances from the skeleton are exact up to here, which is enough for any pen
SMALLEST = 14  # height and width of an image; in smaller ones the thinnest pen would exceed the margin
COARSE = (0.3, 0.4, 0.5, 0.6)  # resolutions of coarse scans, relative to the full resolution

Bitmaps = NDArray[np.bool_]
"""(n, SIDE, SIDE), True for ink; every shape is centred and its longer side is BOX pixels."""

# The eight neighbours of a pixel, clockwise from north: bit i of a neighbourhood's code is NEIGHBOURS[i].
NEIGHBOURS = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))


@lru_cache(maxsize=1)
def _peeling_tables() -> NDArray[np.uint8]:
    """Return (2, 256), for both passes of Zhang and Suen (1984) and every neighbourhood: 1 if an ink pixel stays."""
    stays = np.ones((2, 256), np.uint8)
    for code in range(256):
        n, _, e, _, s, _, w, _ = ring = [code >> i & 1 for i in range(8)]
        starts = sum(
            a < b for a, b in zip(ring, ring[1:] + ring[:1], strict=True)
        )  # changes from 0 to 1 along the ring
        on_border = starts == 1 and 2 <= sum(ring) <= 6
        stays[0, code] = not (on_border and not n & e & s and not e & s & w)
        stays[1, code] = not (on_border and not n & e & w and not n & s & w)
    return stays


def thin(bitmaps: Bitmaps) -> Bitmaps:
    """Thin shapes to lines one pixel wide, keeping their connectivity (Zhang and Suen, 1984).

    scikit-image's skeletons differ in at least one pixel for nearly every shape, and the shipped encoders were trained
    on these.
    """
    ink = bitmaps.astype(np.uint8)
    unfinished = np.arange(len(ink))
    while len(unfinished):
        part = ink[unfinished]
        for stays in _peeling_tables():
            code = np.zeros_like(part)
            for bit, (down, right) in enumerate(NEIGHBOURS):
                near = part[:, 1 + down : SIDE - 1 + down, 1 + right : SIDE - 1 + right]
                code[:, 1:-1, 1:-1] |= near << bit
            part = part & stays[code]
        changed = (part != ink[unfinished]).any((1, 2))
        ink[unfinished] = part
        unfinished = unfinished[changed]
    return ink.astype(bool)


def squared_distances(skeletons: Bitmaps) -> NDArray[np.uint8]:
    """Return the squared distance of every pixel to the nearest line, at most FARTHEST²."""
    nearest = np.full(skeletons.shape, FARTHEST**2, np.uint8)
    for field, skeleton in zip(nearest, skeletons, strict=True):
        if skeleton.any():  # without lines there is no distance
            squared = np.rint(distance_transform_edt(~skeleton) ** 2)
            np.minimum(field, squared, out=field, casting="unsafe")
    return nearest


def write(fields: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Draw each character in a random handwriting, from squared distances (n, SIDE, SIDE).

    Returns (n, size, size) uint8. Images are drawn at twice the size and averaged; ``size`` is at least SMALLEST.
    """
    n, fine = len(fields), 2 * size

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n, 1, 1, generator=generator)

    def normal(spread: float, *shape: int) -> Tensor:
        return spread * torch.randn(n, *(shape or (1, 1)), generator=generator).clamp(-2.5, 2.5)

    # A fifth of the images are coarse scans: large writing with a broad pen. Lengths are relative to the image.
    coarse = torch.rand(n, 1, 1, generator=generator) < 0.2
    box = torch.where(coarse, uniform(0.75, 0.95), uniform(0.45, 0.9))
    pen = box * torch.where(coarse, uniform(0.1, 0.2), uniform(math.log(0.045), math.log(0.17)).exp())
    stretch = normal(0.12).exp()
    width, height = (box * stretch).clamp(max=1), (box / stretch).clamp(max=1)

    # Map each fine pixel to its position in the master, whose box is [-1, 1], by inverting the deformations in reverse.
    middle = (torch.arange(fine) + 0.5) / size - 1
    across = (middle[None, :] - normal(0.5).clamp(-0.5, 0.5) * (1 - width)) / width  # (n, 1, fine)
    down = (middle[:, None] - normal(0.5).clamp(-0.5, 0.5) * (1 - height)) / height  # (n, fine, 1)
    turn, slant = normal(0.12), normal(0.18)
    y = turn.cos() * down - turn.sin() * across
    x = turn.cos() * across + turn.sin() * down - slant * y
    tilt = 1 + normal(0.1) * x.clamp(-1, 1) + normal(0.1) * y.clamp(-1, 1)
    bends = smooth(smooth(normal(0.12, 2, 3, 3), 6) + normal(0.05, 2, 6, 6), fine)  # (n, xy, fine, fine)
    place = torch.stack([x * tilt + bends[:, 0], y * tilt + bends[:, 1]], -1) * (BOX / SIDE)
    distance = functional.grid_sample(fields[:, None].float().sqrt(), place, padding_mode="border", align_corners=False)

    reach = (size * pen).clamp(min=1.05) / 2  # half the pen's width in pixels of the image
    scale = (width + height) / 2 * size / BOX  # pixels of the image per pixel of the master
    ink = functional.avg_pool2d((2 * (reach - distance[:, 0] * scale) + 0.5).clamp(0, 1), 2)

    resolution = torch.randint(len(COARSE), (n,), generator=generator)
    for i, part in enumerate(COARSE):
        these = coarse.flatten() & (resolution == i)
        small = functional.interpolate(ink[these, None], size=max(1, round(part * size)), mode="area")
        small = small / small.amax((2, 3), keepdim=True).clamp(min=0.1)  # scanners increase the contrast
        ink[these] = functional.interpolate(small, size=size, mode="bicubic", align_corners=False)[:, 0].clamp(0, 1)
    return (255 * uniform(0.75, 1.1).clamp(max=1) * ink).round().to(torch.uint8)


def smooth(knots: Tensor, side: int) -> Tensor:
    """Interpolate smooth fields (..., side, side) from their values near k×k knots, (..., k, k)."""
    weights = bells((torch.arange(side) + 0.5) / side, knots.shape[-1], width=0.5)
    weights = weights / weights.sum(1, keepdim=True)
    return weights @ (knots @ weights.T)


def bells(places: Tensor, k: int, width: float) -> Tensor:
    """Return heights (..., k) of k equally spaced Gaussian bells at places in [0, 1]; ``width`` is in spacings."""
    away = (places[..., None] * k - torch.arange(k) - 0.5) / width
    return torch.where(away.abs() < 4, torch.exp(-(away**2) / 2), 0.0)


# ---- characters ----


# Fonts with different skeletons. Characters are compared by the first font that contains them.
FONTS = (
    "DejaVuSans.ttf",
    "DejaVuSerif.ttf",
    "DejaVuSerif-Italic.ttf",
    "DejaVuSansMono.ttf",
    "STIXGeneral.ttf",
    "STIXGeneralItalic.ttf",
    "DejaVuSans-Bold.ttf",
    "cmss10.ttf",
    "cmtt10.ttf",
    "cmti10.ttf",
)
LETTERS_ONLY = "cm"  # TeX fonts (cm...) follow Unicode only for letters

PART = 16  # classes drawn at a time, so that their distances stay in the processor's cache
ALIKE = 0.9  # cosine similarity above which characters are near-duplicates
ALIKE_EXCLUDED = 0.8  # the same for excluded characters, to exclude all that could be mistaken for them


def glyph_pool(
    n_classes: int | None = None,
    n_examples: int = 20,
    size: int = 28,
    seed: int = 0,
    exclude: str = "0123456789",
) -> ClassPool:
    """Draw a pool of handwritten characters.

    Parameters
    ----------
    n_classes : int, optional
        The number of characters, chosen at random; by default all.
    n_examples : int
        Examples per class.
    size : int
        Height and width of the images.
    seed : int
        Seed of all random numbers.
    exclude : str
        Characters to leave out, together with near-duplicates and characters of the same meaning (see `characters`).

    Returns
    -------
    ClassPool
        Examples (n_classes, n_examples, size, size) uint8, with bright ink (255) on black.
    """
    if n_examples < 1:
        raise CrowdshotError(f"is {n_examples}", argument="n_examples", found=n_examples, expected="1 or more")
    if size < SMALLEST:
        raise CrowdshotError(f"is {size}", argument="size", found=size, expected=f"{SMALLEST} or more")
    alphabet = characters(exclude)
    if n_classes is None:
        n_classes = len(alphabet)
    if not 1 <= n_classes <= len(alphabet):
        raise CrowdshotError(
            f"is {n_classes}",
            argument="n_classes",
            found=n_classes,
            expected=f"1 to {len(alphabet)}, the number of characters",
        )
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(alphabet), generator=generator)[:n_classes].tolist()
    names = tuple(alphabet[i] for i in chosen)

    fields, first, n_masters = _masters(names)
    examples = torch.empty(n_classes, n_examples, size, size, dtype=torch.uint8)
    for start in range(0, n_classes, PART):
        part = slice(start, start + PART)
        pick = torch.rand(len(names[part]), n_examples, generator=generator)
        master = first[part, None] + (pick * n_masters[part, None]).long()  # (c, n_examples)
        drawn = write(fields[master.flatten()], size, generator)
        examples[part] = drawn.view(*master.shape, size, size)
    return ClassPool(examples, torch.full((n_classes,), n_examples), names)


@lru_cache(maxsize=8)
def characters(exclude: str) -> tuple[str, ...]:
    """Return the characters that are suitable as classes, letters first.

    The following are left out:

    - shapes that are not drawn as lines: dots, filled shapes, patterns;
    - the same character in another style: superscript, full-width, mathematical bold, ...;
    - near-duplicates of an earlier character: Greek Alpha after Latin A;
    - ``exclude``, and all characters that contain one of these, have its numeric value or are near-duplicates of it.
    """
    chars, features = _drawable()
    order = sorted(range(len(chars)), key=lambda i: chars[i] not in exclude)  # excluded characters first
    n_excluded = sum(char in exclude for char in chars)
    limit = torch.where(torch.arange(len(chars)) < n_excluded, ALIKE_EXCLUDED, ALIKE)
    in_order = features[order]
    alike = (in_order @ in_order.T > limit[:, None]).triu(1).numpy()
    distinct = np.ones(len(chars), bool)
    for i in range(len(chars)):
        if distinct[i] or i < n_excluded:
            distinct &= ~alike[i]
    kept = (chars[i] for i, is_distinct in zip(order, distinct, strict=True) if is_distinct)
    return tuple(char for char in kept if not _contains(char, exclude))


@lru_cache(maxsize=1)
def _drawable() -> tuple[tuple[str, ...], Tensor]:
    """Return all candidates that are drawn as lines, letters first, and their features in the first font with them."""
    font_of = {char: font for font in reversed(FONTS) for char in _charset(font) if _is_candidate(char)}
    features: dict[str, Tensor] = {}
    for font in FONTS:
        chars = sorted(char for char in font_of if font_of[char] == font)
        bitmaps, ems = _render(font, chars)
        skeletons = thin(bitmaps)
        length = skeletons.sum((1, 2))
        usable = (ems >= 0.25) & (length >= 25) & (length <= 260) & ~_is_filled(bitmaps)
        vectors = _shape_features(torch.from_numpy(skeletons).float())
        features |= {char: vectors[i] for i, char in enumerate(chars) if usable[i]}
    order = sorted(features, key=lambda char: (not char.isalpha(), char))
    return tuple(order), torch.stack([features[char] for char in order])


def _is_candidate(char: str) -> bool:
    """Return whether people write the character: a letter, digit, sign or symbol, but no mark, space or picture."""
    name = unicodedata.name(char, "")
    patterns = ("BRAILLE", "HEXAGRAM", "TETRAGRAM", "DIGRAM", "MONOGRAM", "BOX DRAWINGS")
    if unicodedata.category(char)[0] not in "LNSP" or char >= "\U0001f000" or name.startswith(patterns):
        return False
    restyled = unicodedata.decomposition(char).startswith(("<font>", "<super>", "<sub>", "<wide>", "<narrow>"))
    another_hand = any(word in name for word in ("SCRIPT", "FRAKTUR", "BLACK-LETTER", "DOUBLE-STRUCK"))
    return not restyled or (another_hand and "BOLD" not in name and unicodedata.numeric(char, None) is None)


def _contains(char: str, exclude: str) -> bool:
    """Return whether a character contains an excluded one (½, ①, ♳) or means the same number (٣, Ⅲ)."""
    value = unicodedata.numeric(char, None)
    number = "" if value is None else f"{value:g}"
    parts = unicodedata.normalize("NFKD", char) + number
    type_number = "".join(filter(str.isdigit, unicodedata.name(char, "")))
    return not set(exclude).isdisjoint(parts + type_number)


@lru_cache(maxsize=len(FONTS))
def _charset(font: str) -> frozenset[str]:
    charset = frozenset(chr(code) for code, glyph in FT2Font(str(_path(font))).get_charmap().items() if glyph)
    return charset & frozenset(ascii_letters) if font.startswith(LETTERS_ONLY) else charset


def _path(font: str) -> Path:
    return Path(matplotlib.get_data_path()) / "fonts" / "ttf" / font


def _render(font: str, chars: Sequence[str]) -> tuple[Bitmaps, NDArray[np.float64]]:
    """Return bitmaps (n, SIDE, SIDE) of centred glyphs of length BOX, and their lengths in units of the font size."""
    em = 96
    face = ImageFont.truetype(_path(font), em, layout_engine=ImageFont.Layout.BASIC)
    bitmaps = np.zeros((len(chars), SIDE, SIDE), bool)
    ems = np.zeros(len(chars))
    for i, char in enumerate(chars):
        mask = face.getmask(char, mode="L")
        image = Image.frombytes("L", mask.size, bytes(mask))
        image = image.crop(image.getbbox())  # an empty glyph stays empty
        if 0 in image.size:
            continue
        longest = max(image.size)
        width, height = (max(1, round(side * BOX / longest)) for side in image.size)
        top, left = (SIDE - height) // 2, (SIDE - width) // 2
        ink = np.asarray(image.resize((width, height), Image.Resampling.BILINEAR))
        bitmaps[i, top : top + height, left : left + width] = ink > 110
        ems[i] = longest / em
    return bitmaps, ems


def _is_filled(bitmaps: Bitmaps) -> NDArray[np.bool_]:
    """Return (n,) whether some part is thicker than 12 pixels, which no pen stroke is."""
    window = torch.ones(SIDE, SIDE).tril(12).triu()  # 13 pixels long, at every position
    ink = window @ torch.from_numpy(bitmaps).float() @ window.T
    return (ink.amax((1, 2)) == 13**2).numpy()


def _shape_features(skeletons: Tensor) -> Tensor:
    """Return unit vectors (n, 22²): skeletons blurred and stretched, at most twofold, to fill the box (O becomes 0)."""
    blurs = []
    for axis in (1, 2):
        inked = skeletons.amax(axis)  # along the other axis: (n, SIDE)
        start = inked.argmax(1)
        stop = SIDE - inked.flip(1).argmax(1)
        span = (stop - start).clamp(min=BOX // 2)
        places = (torch.arange(SIDE) + 0.5 - (start + stop)[:, None] / 2) / span[:, None] + 0.5
        blurs.append(bells(places, BOX // 2, width=1.0))  # (n, SIDE, 22)
    across, down = blurs
    return functional.normalize((down.transpose(1, 2) @ skeletons @ across).flatten(1), dim=1)


def _masters(names: Sequence[str]) -> tuple[Tensor, Tensor, Tensor]:
    """Render every character in every font that has it.

    Returns squared distances (n, SIDE, SIDE) uint8, grouped by character, and each character's first index and count.
    """
    fields, owners = [], []
    for font in FONTS:
        indices = [i for i, char in enumerate(names) if char in _charset(font)]
        bitmaps, _ = _render(font, [names[i] for i in indices])
        fields.append(squared_distances(thin(bitmaps)))
        owners.append(np.array(indices, dtype=np.int64))
    owner = np.concatenate(owners)
    counts = np.bincount(owner, minlength=len(names))
    ordered = np.concatenate(fields)[np.argsort(owner, kind="stable")]
    return torch.from_numpy(ordered), torch.from_numpy(counts.cumsum() - counts), torch.from_numpy(counts)
