"""What a dataset is, and what a module of this folder says of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from crowdshot.encoders.images import ImageInput
from crowdshot.encoders.source_items import CHARACTERS, PHOTO_MEAN, PHOTO_STD, PHOTOS
from crowdshot.episodes.datasets.files import Part
from crowdshot.episodes.pools import ClassPool

INK = ImageInput((CHARACTERS, CHARACTERS), 1, ink=True)
COLOUR = ImageInput((PHOTOS, PHOTOS), 3, mean=PHOTO_MEAN, std=PHOTO_STD)


@dataclass(frozen=True, eq=False)
class Dataset:
    """``pool``: bytes (C, M, H, W) or (C, M, 3, H, W), with a crowd (C, M, A) where real annotators labelled.

    ``input`` is what an encoder for it is fed; ``note`` one sentence: what it is, and how it differs from the paper's.
    """

    name: str
    pool: ClassPool
    input: ImageInput
    note: str


@dataclass(frozen=True)
class Loader:
    """How a dataset is read: ``read`` is given the path of each of its ``parts``, which lie in ``folder`` below a root.

    ``version`` goes up when ``read`` makes something else of the same files, so that what was kept is made anew.
    """

    folder: str
    parts: tuple[Part, ...]
    input: ImageInput
    read: Callable[[Sequence[Path]], ClassPool]
    note: Callable[[ClassPool], str]
    version: int = 1
