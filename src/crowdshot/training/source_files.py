"""Read the items of a training source: a folder or zip of images, an .npz file, or a table of feature vectors."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path, PurePosixPath

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from crowdshot.encoders.feature_input import FeatureInput, read_features
from crowdshot.encoders.image_input import ImageInput, image_batches, list_images, read_images
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing, shown
from crowdshot.io.archive_limits import check_parts
from crowdshot.io.feature_files import Array, read_arrays, read_feature_file
from crowdshot.io.file_names import IMAGE_SUFFIXES
from crowdshot.io.image_decoding import quiet_pillow, upright

CHARACTERS, PHOTOS = 28, 84  # default height and width in pixels
PHOTO_MEAN, PHOTO_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet
AT_ONCE = 256  # images read at a time
COLOUR_SAMPLE = 64  # images inspected to decide whether a source is grey or in colour
COLOURFUL = 16 / 255  # upright differences between channels are compression artefacts of grey images


@dataclass(frozen=True)
class SourceItems:
    """N items that are not read yet.

    Attributes
    ----------
    ids : sequence
        The names by which labels refer to items.
    classes : list of str or None
        The class of each item, None if unknown.
    input : ImageInput or FeatureInput
        The input specification of an encoder for these items.
    load : callable
        Yields the items at some positions, in that order, in batches and as a pool stores them: images as bytes
        ([3,] H, W), feature vectors as standardised floats.
    """

    ids: Sequence[PurePosixPath] | Sequence[str]
    classes: list[str] | None
    input: ImageInput | FeatureInput
    load: Callable[[Sequence[int]], Iterator[Tensor]]

    def __len__(self) -> int:
        return len(self.ids)


def find_items(source: str, image_size: int | None) -> SourceItems:
    """Open a folder, a zip, an .npz file or a table of feature vectors."""
    path = Path(source)
    if path.is_dir():
        return _from_folder(path, image_size)
    if path.suffix.lower() == ".npz":
        return _from_npz(path, image_size)
    if path.is_file() and zipfile.is_zipfile(path):
        return _from_zip(path, image_size)
    if not path.exists():
        raise CrowdshotError(
            "does not exist",
            where=shown(path),
            expected="'glyphs', a folder or zip of class/image files, an .npz file or a table of feature vectors",
        )
    file = read_feature_file(path)
    return _from_features([str(name) for name in file.ids], None, np.asarray(file.features))


# ---- image files ----


def _from_folder(path: Path, image_size: int | None) -> SourceItems:
    files = list_images(path)
    paths = list(files.values())

    def load(wanted: Sequence[int], spec: ImageInput) -> Iterator[Tensor]:
        return image_batches([paths[i] for i in wanted], spec, AT_ONCE)

    return _from_files([shown(name) for name in files], load, image_size)


def _from_zip(path: Path, image_size: int | None) -> SourceItems:
    """List the images of a zip, which are read without unpacking it."""
    with _zip_errors(path), zipfile.ZipFile(path) as archive:
        names = sorted(name for name in archive.namelist() if _is_image(name))
    if not names:
        raise CrowdshotError(
            "has no images", where=shown(path), expected=f"files that end in {', '.join(sorted(IMAGE_SUFFIXES))}"
        )

    def load(wanted: Sequence[int], spec: ImageInput) -> Iterator[Tensor]:
        with _zip_errors(path), zipfile.ZipFile(path) as archive, quiet_pillow():
            for start in range(0, len(wanted), AT_ONCE):
                part = [names[i] for i in wanted[start : start + AT_ONCE]]
                check_parts(shown(path), archive, part)
                yield read_images({f"{path.name}/{name}": _open(archive, name) for name in part}, spec)

    return _from_files(names, load, image_size)


def _is_image(name: str) -> bool:
    parts = PurePosixPath(name).parts
    hidden = any(part.startswith(".") or part == "__MACOSX" for part in parts)
    return not hidden and PurePosixPath(name).suffix.lower() in IMAGE_SUFFIXES


def _open(archive: zipfile.ZipFile, name: str) -> Image.Image:
    data = archive.read(name)
    try:
        return upright(Image.open(BytesIO(data)))
    except Exception:  # Pillow raises many kinds of errors for damaged images
        raise CrowdshotError(
            "is damaged or has an unknown format",
            where=f"{shown(name)} in the zip",
            expected="an image that Pillow can read",
        ) from None


@contextmanager
def _zip_errors(path: Path) -> Iterator[None]:
    """Turn exceptions of zipfile into a CrowdshotError about the file."""
    try:
        yield
    except CrowdshotError:
        raise
    except Exception as error:  # codecs raise errors of their own
        raise CrowdshotError(f"is damaged or encrypted ({error})", where=shown(path), expected="a zip file") from None


def _from_files(
    names: list[str], load: Callable[[Sequence[int], ImageInput], Iterator[Tensor]], image_size: int | None
) -> SourceItems:
    some = range(0, len(names), max(1, len(names) // COLOUR_SAMPLE))
    sample = torch.cat(list(load(some, ImageInput((16, 16), 3))))
    spec = _image_input(_is_colourful(sample), image_size)
    return SourceItems(
        [PurePosixPath(name) for name in names],
        _classes([PurePosixPath(name).parts[:-1] for name in names]),
        spec,
        lambda wanted: (_as_stored(batch) for batch in load(wanted, _without_scaling(spec))),
    )


def _classes(folders: list[tuple[str, ...]]) -> list[str] | None:
    """Return each image's folder without the folders that all images share; None if no image is in a folder."""
    depth = min(map(len, folders))
    if depth == 0:
        n_outside = sum(not folder for folder in folders)
        if n_outside < len(folders):
            raise CrowdshotError(
                f"{n_outside} of {len(folders)} images are not in a folder",
                found=n_outside,
                expected="a folder for each class",
            )
        return None
    shared = next((i for i, names in enumerate(zip(*folders, strict=False)) if len(set(names)) > 1), depth)
    shared = min(shared, depth - 1)  # the last folder stays
    return ["/".join(folder[shared:]) for folder in folders]


# ---- arrays ----


def _from_npz(path: Path, image_size: int | None) -> SourceItems:
    """Open ``images`` (N, H, W[, C]) or ``features`` (N, D), with optional ``labels`` (N,) and ``ids`` (N,)."""
    arrays, _ = read_arrays(path, ("images", "features", "labels", "ids"))
    kinds = [kind for kind in ("images", "features") if kind in arrays]
    if len(kinds) != 1:
        raise CrowdshotError(
            f"has the arrays {listing(arrays)}" if arrays else "has none of the arrays that are read",
            where=shown(path),
            found=list(arrays),
            expected="either 'images' or 'features'",
        )
    values = np.atleast_1d(arrays[kinds[0]])
    classes, ids = (None if arrays.get(k) is None else _words(path, k, arrays[k], values) for k in ("labels", "ids"))
    ids = ids or [str(i) for i in range(len(values))]
    if kinds == ["features"]:
        if values.ndim != 2 or values.size == 0:
            raise CrowdshotError(
                f"has features of shape {values.shape}", where=shown(path), found=values.shape, expected="(N, D)"
            )
        return _from_features(ids, classes, values)
    if len(values) == 0:
        raise CrowdshotError(
            f"has images of shape {values.shape}", where=shown(path), found=values.shape, expected="at least one image"
        )
    some = values[:: max(1, len(values) // COLOUR_SAMPLE)]
    spec = _image_input(_is_colourful(read_images(some, ImageInput((16, 16), 3))), image_size)

    def load(wanted: Sequence[int]) -> Iterator[Tensor]:
        return (_as_stored(x) for x in image_batches(values[np.asarray(wanted)], _without_scaling(spec), AT_ONCE))

    return SourceItems(ids, classes, spec, load)


def _words(path: Path, name: str, words: Array, values: Array) -> list[str]:
    if words.shape != values.shape[:1] or words.dtype.kind not in "UTSiu":
        raise CrowdshotError(
            f"has {name} of type {words.dtype} and shape {words.shape}",
            where=shown(path),
            found=(str(words.dtype), words.shape),
            expected=f"text or integers, one for each of the {len(values)} items",
        )
    return [x.decode("utf-8", "backslashreplace") if isinstance(x, bytes) else str(x) for x in words.tolist()]


def _from_features(ids: list[str], classes: list[str] | None, values: Array) -> SourceItems:
    """Centre features and scale them by one factor to unit average variance; the encoder's input does the same.

    There is one factor for all dimensions, because differences in their variance are informative in the features of a
    network.
    """
    raw = read_features(values, FeatureInput(values.shape[1])).double()
    size = float(raw.var(0, correction=0).mean().sqrt()) or 1.0
    spec = FeatureInput(values.shape[1], tuple(raw.mean(0).float().tolist()), (size,) * values.shape[1])
    features = read_features(values, spec)
    return SourceItems(ids, classes, spec, lambda wanted: iter([features[list(wanted)]]))


# ---- images as bytes ----


def _is_colourful(images: Tensor) -> bool:
    """Return whether any image of (n, 3, H, W) in [0, 1] has colour."""
    return bool((images.amax(1) - images.amin(1)).mean((1, 2)).max() > COLOURFUL)


def _image_input(colourful: bool, size: int | None) -> ImageInput:
    """Return the input for grey images, treated as characters, or for colour images, treated as photographs."""
    if colourful:
        return ImageInput((size or PHOTOS,) * 2, 3, mean=PHOTO_MEAN, std=PHOTO_STD)
    return ImageInput((size or CHARACTERS,) * 2, 1, ink=True)


def _without_scaling(spec: ImageInput) -> ImageInput:
    """Return the input with values in [0, 1]; `crowdshot.training.pools.input_of` standardises later."""
    return ImageInput(spec.size, spec.channels, spec.ink)


def _as_stored(images: Tensor) -> Tensor:
    """Convert images (n, C, H, W) in [0, 1] to bytes (n, H, W) or (n, 3, H, W)."""
    stored = (images * 255).round().to(torch.uint8)
    return stored[:, 0] if stored.shape[1] == 1 else stored
