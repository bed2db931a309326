"""CIFAR-10's test images: Krizhevsky, Learning multiple layers of features from tiny images, 2009.

Two crowds labelled them (`cifar10h`, `cifar10s`). They come as the official binary version, or some of them as image
files; either way image i is called by its place in the test set, as five digits. The pickled version is not read,
because a pickle can run any program.
"""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from torch import Tensor

from crowdshot.encoders.images import ImageInput, image_batches
from crowdshot.encoders.source_items import AT_ONCE, SourceItems, find_items
from crowdshot.episodes.datasets.files import Part
from crowdshot.episodes.datasets.loader import COLOUR
from crowdshot.errors import CrowdshotError
from crowdshot.files.downloads import Download
from crowdshot.wording import shown

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
N_IMAGES = 10_000
BATCH = "test_batch.bin"
FOLDER = "cifar-10-batches-bin"
RECORD = 1 + 3 * 32 * 32  # bytes: the class, then the red, green and blue pixels
URL = "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz"

IMAGES = Part(
    ("images.zip", "images", "cifar-10-binary.tar.gz", FOLDER),
    f"get {URL}",
    Download(URL, "sha256:c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),
)


def find_test_images(path: Path) -> SourceItems:
    """The images at any of ``IMAGES.names``; their classes too, unless they are image files in no folders."""
    if path.name == FOLDER:
        return _from_batch(path / BATCH, _read(path / BATCH))
    if path.name.endswith(".tar.gz"):
        return _from_batch(path, _unpack(path))
    return find_items(str(path), COLOUR.size[0])


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CrowdshotError(f"{shown(path)} could not be read ({error.strerror}).") from None


def _unpack(path: Path) -> bytes:
    """The one file of the archive that is needed, read where it is."""
    try:
        with tarfile.open(path) as archive:
            file = archive.extractfile(f"{FOLDER}/{BATCH}")
            return b"" if file is None else file.read()
    except (tarfile.TarError, KeyError, EOFError, OSError, zlib.error) as error:
        raise CrowdshotError(f"{shown(path)} is damaged or of another kind ({error}), expected CIFAR-10.") from None


def _from_batch(path: Path, data: bytes) -> SourceItems:
    if not data or len(data) % RECORD:
        raise CrowdshotError(f"{shown(path)}: {BATCH} has {len(data):,} bytes, expected {RECORD:,} for each image.")
    records = torch.frombuffer(bytearray(data), dtype=torch.uint8).view(-1, RECORD)
    pixels = records[:, 1:].view(-1, 3, 32, 32)
    if records[:, 0].max() >= len(CLASSES):
        raise CrowdshotError(f"{shown(path)}: {BATCH} has class {int(records[:, 0].max())}, expected 0 to 9.")

    def load(wanted: Sequence[int]) -> Iterator[Tensor]:
        for batch in image_batches(pixels[np.asarray(wanted)], ImageInput(COLOUR.size, 3), AT_ONCE):
            yield (batch * 255).round().to(torch.uint8)

    ids = [PurePosixPath(f"{i:05d}.png") for i in range(len(records))]
    return SourceItems(ids, [CLASSES[i] for i in records[:, 0].tolist()], COLOUR, load)
