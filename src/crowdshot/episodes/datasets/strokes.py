"""From a printed shape to handwriting: bitmap -> skeleton -> distances to it -> an image in somebody's hand.

What is bent is not the shape but the field of distances to its skeleton, so that the pen keeps its width wherever the
line is stretched.
"""

import math
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt
from torch import Tensor
from torch.nn import functional

BOX = 44  # the longer side of a shape, in pixels of its bitmap
MARGIN = 6  # around it; more than any pen's half width
SIDE = BOX + 2 * MARGIN
FARTHEST = 7  # distances from the skeleton are exact up to here, and that is enough for any pen
SMALLEST = 14  # pixels a side of an image; below, the thinnest pen would reach over the margin
COARSE = (0.3, 0.4, 0.5, 0.6)  # resolutions of coarse scans, as parts of the full one

Bitmaps = NDArray[np.bool_]
"""(n, SIDE, SIDE) with ink True and every shape centred, its longer side BOX."""

# The eight neighbours of a pixel, clockwise from north: bit i of a neighbourhood's code is NEIGHBOURS[i].
NEIGHBOURS = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1))


@lru_cache(maxsize=1)
def _peeling_tables() -> NDArray[np.uint8]:
    """Zhang and Suen (1984): (2, 256), for both passes and every neighbourhood 1 where an ink pixel stays."""
    stays = np.ones((2, 256), np.uint8)
    for code in range(256):
        n, _, e, _, s, _, w, _ = ring = [code >> i & 1 for i in range(8)]
        starts = sum(a < b for a, b in zip(ring, ring[1:] + ring[:1], strict=True))  # 0 -> 1 round the ring
        on_border = starts == 1 and 2 <= sum(ring) <= 6
        stays[0, code] = not (on_border and not n & e & s and not e & s & w)
        stays[1, code] = not (on_border and not n & e & w and not n & s & w)
    return stays


def thin(bitmaps: Bitmaps) -> Bitmaps:
    """Peel ink off the borders until lines one pixel wide are left, connected as the shapes were.

    Not by scikit-image, whose skeletons differ in a pixel or more of nearly every shape: the shipped encoders learned
    from these.
    """
    ink = bitmaps.astype(np.uint8)
    busy = np.arange(len(ink))
    while len(busy):
        part = ink[busy]
        for stays in _peeling_tables():
            code = np.zeros_like(part)
            for bit, (down, right) in enumerate(NEIGHBOURS):
                near = part[:, 1 + down : SIDE - 1 + down, 1 + right : SIDE - 1 + right]
                code[:, 1:-1, 1:-1] |= near << bit
            part = part & stays[code]
        changed = (part != ink[busy]).any((1, 2))
        ink[busy] = part
        busy = busy[changed]
    return ink.astype(bool)


def squared_distances(skeletons: Bitmaps) -> NDArray[np.uint8]:
    """Squared distance of every pixel to the nearest line, at most FARTHEST²."""
    nearest = np.full(skeletons.shape, FARTHEST**2, np.uint8)
    for field, skeleton in zip(nearest, skeletons, strict=True):
        if skeleton.any():  # else there is no distance
            squared = np.rint(distance_transform_edt(~skeleton) ** 2)
            np.minimum(field, squared, out=field, casting="unsafe")
    return nearest


def write(fields: Tensor, size: int, generator: torch.Generator) -> Tensor:
    """Write each character in a hand of its own: squared distances (n, SIDE, SIDE) -> (n, size, size) uint8.

    Drawn at twice the size and averaged; ``size`` is at least SMALLEST.
    """
    n, fine = len(fields), 2 * size

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(n, 1, 1, generator=generator)

    def normal(spread: float, *shape: int) -> Tensor:
        return spread * torch.randn(n, *(shape or (1, 1)), generator=generator).clamp(-2.5, 2.5)

    # A fifth of the pages is a coarse scan: the writing fills them, the pen is broad. Lengths are parts of a page.
    coarse = torch.rand(n, 1, 1, generator=generator) < 0.2
    box = torch.where(coarse, uniform(0.75, 0.95), uniform(0.45, 0.9))
    pen = box * torch.where(coarse, uniform(0.1, 0.2), uniform(math.log(0.045), math.log(0.17)).exp())
    stretch = normal(0.12).exp()
    width, height = (box * stretch).clamp(max=1), (box / stretch).clamp(max=1)

    # Where on the master each fine pixel comes from, the glyph's box being [-1, 1]: undo the hand, last step first.
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

    reach = (size * pen).clamp(min=1.05) / 2  # half the pen's width in pixels of the page
    scale = (width + height) / 2 * size / BOX  # pixels of the page in one of the master
    ink = functional.avg_pool2d((2 * (reach - distance[:, 0] * scale) + 0.5).clamp(0, 1), 2)

    resolution = torch.randint(len(COARSE), (n,), generator=generator)
    for i, part in enumerate(COARSE):
        these = coarse.flatten() & (resolution == i)
        small = functional.interpolate(ink[these, None], size=max(1, round(part * size)), mode="area")
        small = small / small.amax((2, 3), keepdim=True).clamp(min=0.1)  # a scanner stretches the contrast
        ink[these] = functional.interpolate(small, size=size, mode="bicubic", align_corners=False)[:, 0].clamp(0, 1)
    return (255 * uniform(0.75, 1.1).clamp(max=1) * ink).round().to(torch.uint8)


def smooth(knots: Tensor, side: int) -> Tensor:
    """Smooth fields from their values near k×k knots: (..., k, k) -> (..., side, side)."""
    weights = bells((torch.arange(side) + 0.5) / side, knots.shape[-1], width=0.5)
    weights = weights / weights.sum(1, keepdim=True)
    return weights @ (knots @ weights.T)


def bells(places: Tensor, k: int, width: float) -> Tensor:
    """Heights (..., k) at places in [0, 1] of k Gaussian bells spread over it, ``width`` in units of their spacing."""
    away = (places[..., None] * k - torch.arange(k) - 0.5) / width
    return torch.where(away.abs() < 4, torch.exp(-(away**2) / 2), 0.0)
