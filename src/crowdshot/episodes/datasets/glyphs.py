"""Thousands of character classes written by simulated hands, from the fonts that come inside matplotlib.

A class is one Unicode character. Each font that has it gives a different skeleton (its outline thinned to lines one
pixel wide); an example is one of these skeletons, bent, slanted, stretched and then drawn with a pen of some width.
Nothing is downloaded. The same seed gives the same pool, as long as the fonts are the same.
"""

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
from torch import Tensor
from torch.nn import functional

from crowdshot.episodes.datasets import strokes
from crowdshot.episodes.datasets.strokes import BOX, SIDE, Bitmaps, bells
from crowdshot.episodes.pools import ClassPool
from crowdshot.errors import CrowdshotError

# Fonts whose lines differ once the weight of the pen is gone; the first that has a character stands for it
# where characters are compared.
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
LETTERS_ONLY = "cm"  # TeX's fonts put other glyphs than Unicode's behind many codes; their letters are in place

PART = 16  # classes written at a time, so that their fields stay in the cache
ALIKE = 0.9  # characters whose looks agree more than this (cosine) are near-duplicates
ALIKE_EXCLUDED = 0.8  # the same for what is excluded: nothing that may be taken for it


def glyph_pool(
    n_classes: int | None = None,
    n_examples: int = 20,
    size: int = 28,
    seed: int = 0,
    exclude: str = "0123456789",
) -> ClassPool:
    """Draw a pool: examples (n_classes, n_examples, size, size) uint8, bright ink (255) on black.

    ``n_classes`` characters are chosen at random, None takes all. What is in ``exclude`` stays out, together with
    whatever stands for the same thing or looks the same (see `characters`).
    """
    if n_examples < 1:
        raise CrowdshotError(f"n_examples is {n_examples}, expected 1 or more.")
    if size < strokes.SMALLEST:
        raise CrowdshotError(f"size is {size}, expected {strokes.SMALLEST} or more.")
    alphabet = characters(exclude)
    if n_classes is None:
        n_classes = len(alphabet)
    if not 1 <= n_classes <= len(alphabet):
        raise CrowdshotError(f"n_classes is {n_classes}, expected 1 to {len(alphabet)}, as many as there are.")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(alphabet), generator=generator)[:n_classes].tolist()
    names = tuple(alphabet[i] for i in chosen)

    fields, first, n_masters = _masters(names)
    examples = torch.empty(n_classes, n_examples, size, size, dtype=torch.uint8)
    for start in range(0, n_classes, PART):
        part = slice(start, start + PART)
        pick = torch.rand(len(names[part]), n_examples, generator=generator)
        master = first[part, None] + (pick * n_masters[part, None]).long()  # (c, n_examples)
        drawn = strokes.write(fields[master.flatten()], size, generator)
        examples[part] = drawn.view(*master.shape, size, size)
    return ClassPool(examples, torch.full((n_classes,), n_examples), names)


@lru_cache(maxsize=8)
def characters(exclude: str) -> tuple[str, ...]:
    """The characters worth being a class, letters first.

    Left out: what no pen draws as lines (dots, filled shapes, patterns), the same character in another style
    (superscript, full-width, mathematical bold, ...), near-duplicates of a character before it (Greek Alpha
    after Latin A), and ``exclude`` with everything that contains one of its characters, has its numeric value
    or is a near-duplicate of it.
    """
    chars, looks = _drawable()
    order = sorted(range(len(chars)), key=lambda i: chars[i] not in exclude)  # the excluded come first
    n_excluded = sum(char in exclude for char in chars)
    limit = torch.where(torch.arange(len(chars)) < n_excluded, ALIKE_EXCLUDED, ALIKE)
    look = looks[order]
    alike = (look @ look.T > limit[:, None]).triu(1).numpy()
    distinct = np.ones(len(chars), bool)
    for i in range(len(chars)):
        if distinct[i] or i < n_excluded:
            distinct &= ~alike[i]
    kept = (chars[i] for i, is_distinct in zip(order, distinct, strict=True) if is_distinct)
    return tuple(char for char in kept if not _contains(char, exclude))


@lru_cache(maxsize=1)
def _drawable() -> tuple[tuple[str, ...], Tensor]:
    """Every candidate that a pen draws as lines, letters first, and its look in the first font that has it."""
    font_of = {char: font for font in reversed(FONTS) for char in _charset(font) if _is_candidate(char)}
    looks: dict[str, Tensor] = {}
    for font in FONTS:
        chars = sorted(char for char in font_of if font_of[char] == font)
        bitmaps, ems = _render(font, chars)
        skeletons = strokes.thin(bitmaps)
        length = skeletons.sum((1, 2))
        usable = (ems >= 0.25) & (length >= 25) & (length <= 260) & ~_is_filled(bitmaps)
        look = _look(torch.from_numpy(skeletons).float())
        looks |= {char: look[i] for i, char in enumerate(chars) if usable[i]}
    order = sorted(looks, key=lambda char: (not char.isalpha(), char))
    return tuple(order), torch.stack([looks[char] for char in order])


def _is_candidate(char: str) -> bool:
    """Letters, digits, signs and symbols that people may write; no marks, spaces, controls or pictures."""
    name = unicodedata.name(char, "")
    patterns = ("BRAILLE", "HEXAGRAM", "TETRAGRAM", "DIGRAM", "MONOGRAM", "BOX DRAWINGS")
    if unicodedata.category(char)[0] not in "LNSP" or char >= "\U0001f000" or name.startswith(patterns):
        return False
    restyled = unicodedata.decomposition(char).startswith(("<font>", "<super>", "<sub>", "<wide>", "<narrow>"))
    another_hand = any(word in name for word in ("SCRIPT", "FRAKTUR", "BLACK-LETTER", "DOUBLE-STRUCK"))
    return not restyled or (another_hand and "BOLD" not in name and unicodedata.numeric(char, None) is None)


def _contains(char: str, exclude: str) -> bool:
    """Whether a character is made of an excluded one (½, ①, ♳) or means the same number (٣, Ⅲ)."""
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
    """Bitmaps (n, SIDE, SIDE) with each glyph centred and BOX long, and how long it was in units of the font size."""
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
    """(n,) whether some part is thicker than 12 pixels, which no pen stroke is."""
    window = torch.ones(SIDE, SIDE).tril(12).triu()  # 13 pixels long, at every place
    ink = window @ torch.from_numpy(bitmaps).float() @ window.T
    return (ink.amax((1, 2)) == 13**2).numpy()


def _look(skeletons: Tensor) -> Tensor:
    """What is compared, (n, 22²) of length 1: blurred, and stretched (twofold at most) to fill the box, as O to 0."""
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
    """Every font's version of every character.

    Returns squared distance fields (n, SIDE, SIDE) uint8 ordered by character, and for each character the place of
    its first one and how many there are.
    """
    fields, owners = [], []
    for font in FONTS:
        mine = [i for i, char in enumerate(names) if char in _charset(font)]
        bitmaps, _ = _render(font, [names[i] for i in mine])
        fields.append(strokes.squared_distances(strokes.thin(bitmaps)))
        owners.append(np.array(mine, dtype=np.int64))
    owner = np.concatenate(owners)
    counts = np.bincount(owner, minlength=len(names))
    ordered = np.concatenate(fields)[np.argsort(owner, kind="stable")]
    return torch.from_numpy(ordered), torch.from_numpy(counts.cumsum() - counts), torch.from_numpy(counts)
