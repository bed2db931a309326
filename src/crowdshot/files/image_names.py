"""How the names of image files end, and whether strings are such names or texts."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Literal

from crowdshot.errors import CrowdshotError
from crowdshot.wording import clean, show

# Listed here means looked at: a file of these kinds that Pillow cannot read is reported, not passed over.
# fmt: off
IMAGE_SUFFIXES = frozenset({
    ".avif", ".bmp", ".gif", ".heic", ".jfif", ".jpe", ".jpeg", ".jpg",
    ".pbm", ".pgm", ".png", ".pnm", ".ppm", ".tif", ".tiff", ".webp",
})
# fmt: on
PICTURES = (*sorted(IMAGE_SUFFIXES), ".svg")  # what label tools show, whether Pillow can read it or not
ENDINGS = tuple(IMAGE_SUFFIXES)
LONGEST_ENDING = max(map(len, ENDINGS))
LONGEST_PATH = 1_000  # characters


def strings_in(X: Any) -> Literal["texts", "paths"] | None:
    """What a list, Series or array of strings holds; None for anything else.

    Strings that all end as image files do are paths, and if none does they are texts. A mixture is texts where those
    that end otherwise have several words, and no file is called as the others are ("see cat.png"); else it is an error,
    and so is a missing one among them.
    """
    items = _listed(X)
    strings = [isinstance(item, str | os.PathLike) for item in items]
    if not any(strings):
        return None
    if not all(strings):
        odd = strings.index(False)
        if not _missing(items[odd]):
            return None  # a picture or an array beside paths
        raise CrowdshotError(f"X, item {odd} is {show(items[odd])}, expected text or the path of an image.")
    paths = [not isinstance(item, str) or item[-LONGEST_ENDING:].lower().endswith(ENDINGS) for item in items]
    if all(paths):
        return "paths"
    if any(paths) and not _prose(items, paths):
        one, other = (clean(items[paths.index(ends)], 60) for ends in (True, False))
        raise CrowdshotError(
            f"X has {one!r}, which ends as an image file does, and {other!r}, which does not, expected either paths of"
            " images or texts."
        )
    if _is_file(items[0]):
        raise CrowdshotError(
            f"X has {items[0]!r}, which is a file but no image, expected texts or paths of images; read the file first."
        )
    return "texts"


def _prose(items: Sequence[Any], paths: Sequence[bool]) -> bool:
    """Whether strings, of which some end as image files do, are sentences all the same."""
    return all(
        isinstance(item, str) and (not _is_file(item) if path else len(item.split()) > 1)
        for item, path in zip(items, paths, strict=True)
    )


def _is_file(text: str) -> bool:
    return len(text) <= LONGEST_PATH and "\0" not in text and os.path.isfile(text)


def _listed(X: Any) -> Sequence[Any]:
    if isinstance(X, list | tuple):
        return X
    if getattr(X, "ndim", 0) == 1 and hasattr(X, "tolist") and not hasattr(X, "requires_grad"):
        return list(X.tolist())  # an array or a Series
    return ()


def _missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or (isinstance(value, float) and value != value)
