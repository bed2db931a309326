"""Class pools and crowds to train on and to test with, one source a file: `load_dataset` reads the paper's datasets.

>>> load_dataset("omniglot", "data").pool.examples.shape  # doctest: +SKIP
torch.Size([964, 20, 28, 28])

``data`` has a folder for each dataset, with the archives as they come or already unpacked; docs/datasets.md tells where
to get them. Decoded images are kept beside the archives, or in ``cache`` where that folder is read-only, and read again
the next time.

>>> from crowdshot import DATASETS
>>> "labelme" in DATASETS
True
"""

from __future__ import annotations

import os
from pathlib import Path

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing, shown
from crowdshot_paper.datasets import cifar10h, cifar10s, labelme, miniimagenet, omniglot
from crowdshot_paper.datasets.dataset_files import Dataset, Loader, find_parts, is_writable, read_once

__all__ = ["DATASETS", "Dataset", "Loader", "find_dataset", "load_dataset"]

DATASETS: dict[str, Loader] = {
    "omniglot": omniglot.BACKGROUND,
    "omniglot-evaluation": omniglot.EVALUATION,
    "miniimagenet": miniimagenet.LOADER,
    "labelme": labelme.LOADER,
    "cifar10h": cifar10h.LOADER,
    "cifar10s": cifar10s.LOADER,
}


def find_dataset(name: str, root: str | os.PathLike[str], *, download: bool = False) -> list[Path]:
    """The files that a dataset is read from; ``download`` fetches what is absent, where that is possible."""
    loader = DATASETS.get(name)
    if loader is None:
        raise CrowdshotError(f"dataset is {name!r}, expected one of {listing(DATASETS)}.")
    return find_parts(name, loader.parts, Path(root) / loader.folder, download)


def load_dataset(
    name: str, root: str | os.PathLike[str], *, download: bool = False, cache: Path | None = None
) -> Dataset:
    """Read a dataset from its folder below ``root``; ``download`` as for `find_dataset`.

    ``cache`` is a folder for decoded images, used where the dataset's own folder is read-only.

    >>> from crowdshot import load_dataset
    >>> load_dataset("omniglot", "data")  # the file images_background.zip lies in data/omniglot
    Traceback (most recent call last):
    crowdshot.errors.CrowdshotError: omniglot: data/omniglot does not exist, expected images_background.zip or ...
    """
    paths = find_dataset(name, root, download=download)
    loader = DATASETS[name]
    folder = Path(root) / loader.folder
    pool = read_once(loader, paths, _cache_folder(folder, cache) / f".crowdshot-{name}.npz")
    height, width = loader.input.size
    expected = (height, width) if loader.input.channels == 1 else (3, height, width)
    if pool.examples.shape[2:] != expected:
        colour = "in grey" if pool.examples.ndim == 4 else "in colour"
        raise CrowdshotError(f"{name}: {shown(folder)} holds images {colour}, expected {loader.input.describe()}.")
    return Dataset(name, pool, loader.input, loader.note(pool))


def _cache_folder(folder: Path, cache: Path | None) -> Path:
    """Return the dataset's own folder where it can be written to or there is no other."""
    if cache is None or is_writable(folder):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    return cache
