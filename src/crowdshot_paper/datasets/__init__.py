"""Read the datasets of the paper: `load_dataset` returns the items of each class and the annotators' labels.

>>> load_dataset("omniglot", "data").pool.examples.shape  # doctest: +SKIP
torch.Size([964, 20, 28, 28])

``data`` has a folder for each dataset, with the original archives or the unpacked files; docs/datasets.md lists their
sources. Decoded images are cached next to the archives, or in the folder ``cache`` if that folder is read-only.

>>> from crowdshot_paper.datasets import DATASETS
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
    """Return the files of a dataset.

    Parameters
    ----------
    name : str
        A name in `DATASETS`.
    root : path
        The folder that contains the folders of the datasets.
    download : bool
        Whether to download missing files, if the dataset allows it.

    Raises
    ------
    CrowdshotError
        If the dataset is unknown, or a file is missing or damaged.
    """
    loader = DATASETS.get(name)
    if loader is None:
        raise CrowdshotError(f"is {name!r}", argument="name", found=name, expected=f"one of {listing(DATASETS)}")
    return find_parts(name, loader.parts, Path(root) / loader.folder, download)


def load_dataset(
    name: str, root: str | os.PathLike[str], *, download: bool = False, cache: Path | None = None
) -> Dataset:
    """Read a dataset.

    Parameters
    ----------
    name : str
        A name in `DATASETS`.
    root : path
        The folder that contains the folders of the datasets.
    download : bool
        Whether to download missing files, if the dataset allows it.
    cache : Path, optional
        The folder for decoded images, used if the folder of the dataset is read-only.

    Returns
    -------
    Dataset
        The items by class, the labels of real annotators if there are any, and a note about the source.

    Raises
    ------
    CrowdshotError
        If the dataset is unknown, or a file is missing, damaged or not as expected.

    Examples
    --------
    >>> from crowdshot_paper.datasets import load_dataset
    >>> load_dataset("omniglot", "data")  # reads data/omniglot/images_background.zip
    Traceback (most recent call last):
    crowdshot.errors.CrowdshotError: data/omniglot does not exist, expected images_background.zip or ...
    """
    paths = find_dataset(name, root, download=download)
    loader = DATASETS[name]
    folder = Path(root) / loader.folder
    pool = read_once(loader, paths, _cache_folder(folder, cache) / f".crowdshot-{name}.npz")
    height, width = loader.input.size
    expected = (height, width) if loader.input.channels == 1 else (3, height, width)
    if pool.examples.shape[2:] != expected:
        colour = "grey" if pool.examples.ndim == 4 else "colour"
        expected_images = f"{loader.input.describe()} for {name}"
        raise CrowdshotError(f"has {colour} images", where=shown(folder), found=colour, expected=expected_images)
    return Dataset(name, pool, loader.input, loader.note(pool))


def _cache_folder(folder: Path, cache: Path | None) -> Path:
    """Return the folder of the dataset if it is writable or there is no other."""
    if cache is None or is_writable(folder):
        return folder
    cache.mkdir(parents=True, exist_ok=True)
    return cache
