"""Find the files of a dataset, download them, and cache the decoded images."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

from crowdshot.encoders.image_input import ImageInput
from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import listing, shown
from crowdshot.io.atomic import replacing
from crowdshot.io.cells import Ids, Positions
from crowdshot.io.downloads import Download, fetch
from crowdshot.io.feature_files import read_arrays
from crowdshot.io.tables import Table, read_bytes
from crowdshot.training.pools import ClassPool
from crowdshot.training.source_files import CHARACTERS, PHOTO_MEAN, PHOTO_STD, PHOTOS


@dataclass(frozen=True)
class Part:
    """A file or folder that a dataset is read from.

    Parameters
    ----------
    names : tuple of str
        The accepted names; the first that exists in the folder of the dataset is used.
    advice : str
        How to get it, as a clause for error messages: "get https://…".
    download : Download, optional
        The download, if it is allowed.
    """

    names: tuple[str, ...]
    advice: str
    download: Download | None = None


def find_parts(dataset: str, parts: Sequence[Part], folder: Path, download: bool) -> list[Path]:
    """Return the path of each part; ``download`` downloads missing parts if possible."""
    return [_find(dataset, part, folder, download) for part in parts]


def _find(dataset: str, part: Part, folder: Path, download: bool) -> Path:
    for path in (folder / name for name in part.names):
        if path.suffix == ".zip" and path.is_file() and not zipfile.is_zipfile(path):
            raise CrowdshotError("is damaged or not a zip file", where=shown(path), hint=_sentence(part.advice))
        if path.exists():
            return path
    if download and part.download is not None:
        return fetch(part.download, folder)
    names = " or ".join(part.names)
    found = f"has no file of {dataset} with the expected name" if folder.is_dir() else "does not exist"
    hint: Use | str = _sentence(part.advice)
    if part.download is not None:
        hint = Use(f"to download it, or {part.advice}", download=True)
    elif download:
        hint = f"It cannot be downloaded automatically: {part.advice}"
    raise CrowdshotError(found, where=shown(folder), expected=f"{names} in it", hint=hint)


def _sentence(clause: str) -> str:
    return clause[0].upper() + clause[1:]


def member(path: Path, name: str) -> bytes:
    """Return the content of a file in a folder or zip; the one with the shortest path if there are several.

    If the path is a file, its name must be ``name``.
    """
    if path.is_dir():
        inside = sorted(path.rglob(name), key=lambda file: (len(file.parts), file))
        if inside:
            return read_bytes(inside[0])
    elif path.suffix == ".zip":
        try:
            with zipfile.ZipFile(path) as archive:
                names = [other for other in archive.namelist() if PurePosixPath(other).name == name]
                if names:
                    return archive.read(min(names, key=lambda other: (other.count("/"), other)))
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError) as error:
            message = f"is damaged or encrypted ({error})"
            raise CrowdshotError(message, where=shown(path), expected="a readable zip file") from None
    elif path.name == name:
        return read_bytes(path)
    raise CrowdshotError(f"has no file {name}", where=shown(path))


def column(table: Table, name: str) -> Ids:
    """Return the cells of a column as text, (n,)."""
    return table.text(_position(table, name))


def whole_numbers(table: Table, name: str) -> Positions:
    """Return the cells of a column as whole numbers, (n,)."""
    at = _position(table, name)
    numbers = table.numbers(at)
    for row in (numbers % 1 != 0).nonzero()[0]:  # a blank cell is NaN, and NaN % 1 != 0
        cell = table.text(at)[row]
        raise CrowdshotError(f"is {cell!r}", where=table.place(row, at), found=cell, expected="a whole number")
    return numbers.astype("int64")


def _position(table: Table, name: str) -> int:
    if name not in table.header:
        message = f"has no column {name!r}; its columns are {listing(table.header)}"
        raise CrowdshotError(message, where=table.name, found=table.header)
    return table.header.index(name)


# ---- datasets and their loaders ----

INK = ImageInput((CHARACTERS, CHARACTERS), 1, ink=True)
COLOUR = ImageInput((PHOTOS, PHOTOS), 3, mean=PHOTO_MEAN, std=PHOTO_STD)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A dataset of the paper.

    Attributes
    ----------
    name : str
        Its name in `DATASETS`.
    pool : ClassPool
        Items of C classes as bytes, (C, M, H, W) or (C, M, 3, H, W), and labels (C, M, A) if real annotators gave them.
    input : ImageInput
        The input of encoders for this dataset.
    note : str
        A sentence about the dataset and its differences from the paper's.
    """

    name: str
    pool: ClassPool
    input: ImageInput
    note: str


@dataclass(frozen=True)
class Loader:
    """Define how a dataset is read.

    Parameters
    ----------
    folder : str
        The folder of the dataset, relative to the root.
    parts : tuple of Part
        The files that ``read`` needs.
    input : ImageInput
        The input of encoders for this dataset.
    read : callable
        Returns the pool; its argument is the paths of the parts.
    note : callable
        Returns a sentence about the dataset and its differences from the paper's.
    version : int
        Increase it when ``read`` returns something else for the same files: cached images are then decoded again.
    """

    folder: str
    parts: tuple[Part, ...]
    input: ImageInput
    read: Callable[[Sequence[Path]], ClassPool]
    note: Callable[[ClassPool], str]
    version: int = 1


# ---- cache of decoded images ----

ANYBODY_MAY_WRITE = 0o222


def read_once(loader: Loader, paths: Sequence[Path], file: Path) -> ClassPool:
    """Return the pool, cached in ``file`` until one of the paths changes."""
    key = " ".join([f"version {loader.version}", *map(_fingerprint, paths)])
    pool = _load(file, key)
    if pool is None:
        pool = loader.read(paths)
        _save(file, key, pool)
    return pool


def is_writable(folder: Path) -> bool:
    """Return whether the folder may be written to. A read-only mode counts for root as well, who could ignore it."""
    return bool(folder.stat().st_mode & ANYBODY_MAY_WRITE) and os.access(folder, os.W_OK)


def _fingerprint(path: Path) -> str:
    """Return name, size and time of a file, or a digest of these for all files of a folder."""
    if not path.is_dir():
        stat = path.stat()
        return f"{path.name} {stat.st_size} {stat.st_mtime_ns}"
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            stat = file.stat()
            digest.update(f"{file.relative_to(path)} {stat.st_size} {stat.st_mtime_ns}\n".encode(errors="replace"))
    return f"{path.name} {digest.hexdigest()}"


def _load(file: Path, key: str) -> ClassPool | None:
    try:
        if str(read_arrays(file, ["key"])[0]["key"]) != key:  # read the key first, as the other arrays may be large
            return None
        arrays, _ = read_arrays(file, ("examples", "counts", "names", "crowd"))
        names = tuple(arrays.pop("names").tolist())
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return ClassPool(tensors["examples"], tensors["counts"], names, tensors.get("crowd"))
    except Exception:  # missing or damaged in any way: the dataset is decoded again
        return None


def _save(file: Path, key: str, pool: ClassPool) -> None:
    """Write the cache if the folder is writable."""
    if not is_writable(file.parent):
        return
    crowd = {} if pool.crowd_labels is None else {"crowd": pool.crowd_labels.numpy()}
    arrays: dict[str, Any] = {"examples": pool.examples.numpy(), "counts": pool.counts.numpy(), **crowd}
    with suppress(CrowdshotError), replacing(file) as temporary, temporary.open("wb") as opened:
        np.savez(opened, key=key, names=pool.names, **arrays)
