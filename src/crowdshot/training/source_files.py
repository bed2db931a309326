"""What lies in a source of training data: a folder or zip of images, an array file, a table of feature vectors."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from crowdshot.encoders.feature_input import FeatureInput, read_features
from crowdshot.encoders.image_input import ImageInput, image_batches, list_images, read_images
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import shown
from crowdshot.io.archive_limits import check_parts
from crowdshot.io.feature_files import Array, read_arrays, read_feature_file
from crowdshot.io.file_names import IMAGE_SUFFIXES
from crowdshot.io.image_decoding import quiet_pillow, smaller

CHARACTERS, PHOTOS = 28, 84  # pixels a side, where none is asked for
PHOTO_MEAN, PHOTO_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, as is usual
AT_ONCE = 256  # images read between two ticks
LOOKED_AT = 64  # images that tell whether a source is grey or in colour
COLOURFUL = 16 / 255  # channels that differ by less are grey with a tint left by compression


@dataclass(frozen=True)
class SourceItems:
    """N items that are not read yet. ``ids``: what labels may call them; ``classes``: of each, None where unknown.

    ``load`` gives the items at some positions, in that order and in pieces, as a pool stores them: images as bytes
    ([3,] H, W), feature vectors as the floats that an encoder's network is fed.
    """

    ids: Sequence[PurePosixPath] | Sequence[str]
    classes: list[str] | None
    input: ImageInput | FeatureInput
    load: Callable[[Sequence[int]], Iterator[Tensor]]

    def __len__(self) -> int:
        return len(self.ids)


def find_items(source: str, image_size: int | None) -> SourceItems:
    """By what it is: a folder, a zip, an .npz, or else a table of feature vectors."""
    path = Path(source)
    if path.is_dir():
        return _from_folder(path, image_size)
    if path.suffix.lower() == ".npz":
        return _from_npz(path, image_size)
    if path.is_file() and zipfile.is_zipfile(path):
        return _from_zip(path, image_size)
    if not path.exists():
        raise CrowdshotError(
            f"{shown(path)} does not exist, expected glyphs, a folder or zip of class/image files, an .npz or a table "
            "of feature vectors."
        )
    file = read_feature_file(path)
    return _of_features([str(name) for name in file.ids], None, np.asarray(file.features))


# ---- files of images ----------------------------------------------------------------------------------------------


def _from_folder(path: Path, image_size: int | None) -> SourceItems:
    files = list_images(path)
    paths = list(files.values())

    def load(wanted: Sequence[int], spec: ImageInput) -> Iterator[Tensor]:
        return image_batches([paths[i] for i in wanted], spec, AT_ONCE)

    return _of_files([shown(name) for name in files], load, image_size)


def _from_zip(path: Path, image_size: int | None) -> SourceItems:
    """Read where it is, nothing is unpacked."""
    with _told_as_zip(path), zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if _is_image(name))
    if not names:
        raise CrowdshotError(f"{shown(path)} holds no images, expected some of {' '.join(sorted(IMAGE_SUFFIXES))}.")

    def load(wanted: Sequence[int], spec: ImageInput) -> Iterator[Tensor]:
        with _told_as_zip(path), zipfile.ZipFile(path) as archive, quiet_pillow():
            for start in range(0, len(wanted), AT_ONCE):
                part = [names[i] for i in wanted[start : start + AT_ONCE]]
                check_parts(shown(path), archive, part)
                yield read_images({f"{path.name}/{name}": _open(archive, name) for name in part}, spec)

    return _of_files(names, load, image_size)


def _is_image(name: str) -> bool:
    parts = PurePosixPath(name).parts
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in parts)
    return not hidden and PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES


def _open(archive: zipfile.ZipFile, name: str) -> Image.Image:
    data = archive.read(name)
    try:
        return smaller(Image.open(BytesIO(data)))
    except Exception:  # damaged bytes make Pillow's parsers raise nearly anything
        raise CrowdshotError(
            f"{shown(name)} in the zip is damaged or of no known kind, expected an image that Pillow can read."
        ) from None


class _told_as_zip:  # noqa: N801
    """What zipfile raises, as an error about the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, _: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, CrowdshotError):  # zipfile's codecs raise their own
            raise CrowdshotError(f"{shown(self.path)} is damaged or encrypted ({error}), expected a zip.") from None


def _of_files(
    names: list[str], load: Callable[[Sequence[int], ImageInput], Iterator[Tensor]], image_size: int | None
) -> SourceItems:
    some = range(0, len(names), max(1, len(names) // LOOKED_AT))
    look = torch.cat(list(load(some, ImageInput((16, 16), 3))))
    spec = _image_input(_is_colourful(look), image_size)
    return SourceItems(
        [PurePosixPath(name) for name in names],
        _classes([PurePosixPath(name).parts[:-1] for name in names]),
        spec,
        lambda wanted: (_as_stored(batch) for batch in load(wanted, _without_scaling(spec))),
    )


def _classes(folders: list[tuple[str, ...]]) -> list[str] | None:
    """The folder each image lies in, without those that all images share; None where no image lies in any."""
    depth = min(map(len, folders))
    if depth == 0:
        astray = sum(not folder for folder in folders)
        if astray < len(folders):
            raise CrowdshotError(f"{astray} of {len(folders)} images lie in no folder, expected a folder a class.")
        return None
    shared = next((i for i, names in enumerate(zip(*folders, strict=False)) if len(set(names)) > 1), depth)
    shared = min(shared, depth - 1)  # the last folder stays
    return ["/".join(folder[shared:]) for folder in folders]


# ---- arrays -------------------------------------------------------------------------------------------------------


def _from_npz(path: Path, image_size: int | None) -> SourceItems:
    """``images`` (N, H, W[, C]) or ``features`` (N, D); ``labels`` (N,) and ``ids`` (N,) may be there."""
    arrays, _ = read_arrays(path, ("images", "features", "labels", "ids"))
    kinds = [kind for kind in ("images", "features") if kind in arrays]
    if len(kinds) != 1:
        found = ", ".join(arrays) or "nothing"
        raise CrowdshotError(f"{shown(path)} holds {found}, expected one array called images or features.")
    values = np.atleast_1d(arrays[kinds[0]])
    classes, ids = (None if arrays.get(k) is None else _words(path, k, arrays[k], values) for k in ("labels", "ids"))
    ids = ids or [str(i) for i in range(len(values))]
    if kinds == ["features"]:
        if values.ndim != 2 or values.size == 0:
            raise CrowdshotError(f"{shown(path)} has features of shape {values.shape}, expected (N, D).")
        return _of_features(ids, classes, values)
    if len(values) == 0:
        raise CrowdshotError(f"{shown(path)} has images of shape {values.shape}, expected one image at least.")
    some = values[:: max(1, len(values) // LOOKED_AT)]
    spec = _image_input(_is_colourful(read_images(some, ImageInput((16, 16), 3))), image_size)

    def load(wanted: Sequence[int]) -> Iterator[Tensor]:
        return (_as_stored(x) for x in image_batches(values[np.asarray(wanted)], _without_scaling(spec), AT_ONCE))

    return SourceItems(ids, classes, spec, load)


def _words(path: Path, name: str, words: Array, values: Array) -> list[str]:
    if words.shape != values.shape[:1] or words.dtype.kind not in "UTSiu":
        raise CrowdshotError(
            f"{shown(path)} has {name} of type {words.dtype} and shape {words.shape}, expected text or whole numbers, "
            f"one for each of the {len(values)} items."
        )
    return [x.decode("utf-8", "backslashreplace") if isinstance(x, bytes) else str(x) for x in words.tolist()]


def _of_features(ids: list[str], classes: list[str] | None, values: Array) -> SourceItems:
    """Features centred and, all by one factor, brought to unit variance on average; the encoder does the same later.

    One factor, because in a network's features which dimension varies more says what matters more.
    """
    raw = read_features(values, FeatureInput(values.shape[1])).double()
    size = float(raw.var(0, correction=0).mean().sqrt()) or 1.0
    spec = FeatureInput(values.shape[1], tuple(raw.mean(0).float().tolist()), (size,) * values.shape[1])
    features = read_features(values, spec)
    return SourceItems(ids, classes, spec, lambda wanted: iter([features[list(wanted)]]))


# ---- images as bytes ----------------------------------------------------------------------------------------------


def _is_colourful(images: Tensor) -> bool:
    """(n, 3, H, W) in [0, 1]: is there colour in any of them?"""
    return bool((images.amax(1) - images.amin(1)).mean((1, 2)).max() > COLOURFUL)


def _image_input(colourful: bool, size: int | None) -> ImageInput:
    """Grey pictures are taken for characters, coloured ones for photos."""
    if colourful:
        return ImageInput((size or PHOTOS,) * 2, 3, mean=PHOTO_MEAN, std=PHOTO_STD)
    return ImageInput((size or CHARACTERS,) * 2, 1, ink=True)


def _without_scaling(spec: ImageInput) -> ImageInput:
    """The same with values in [0, 1]: mean and standard deviation are the trainer's to apply."""
    return ImageInput(spec.size, spec.channels, spec.ink)


def _as_stored(images: Tensor) -> Tensor:
    """(n, C, H, W) in [0, 1] -> bytes (n, H, W) or (n, 3, H, W)."""
    stored = (images * 255).round().to(torch.uint8)
    return stored[:, 0] if stored.shape[1] == 1 else stored
