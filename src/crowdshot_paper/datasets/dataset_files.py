"""Where a dataset's files are, and what to say when they are not there."""

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
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing, shown
from crowdshot.io.atomic import replacing
from crowdshot.io.cells import Ids
from crowdshot.io.downloads import Download, fetch
from crowdshot.io.feature_files import read_arrays
from crowdshot.io.tables import Table, read_bytes
from crowdshot.labels.indexing import Positions
from crowdshot.training.pools import ClassPool
from crowdshot.training.source_files import CHARACTERS, PHOTO_MEAN, PHOTO_STD, PHOTOS


@dataclass(frozen=True)
class Part:
    """Something that a dataset is read from: the first of ``names`` that lies in its folder.

    ``advice`` ends the sentence that says it is absent: where to get it.
    """

    names: tuple[str, ...]
    advice: str
    download: Download | None = None


def find_parts(dataset: str, parts: Sequence[Part], folder: Path, download: bool) -> list[Path]:
    """The path of each part, fetched first where it is absent, can be fetched and ``download`` says so."""
    return [_find(dataset, part, folder, download) for part in parts]


def _find(dataset: str, part: Part, folder: Path, download: bool) -> Path:
    for path in (folder / name for name in part.names):
        if path.suffix == ".zip" and path.is_file() and not zipfile.is_zipfile(path):
            raise CrowdshotError(f"{dataset}: {shown(path)} is damaged or no zip, expected one; {part.advice}.")
        if path.exists():
            return path
    if download and part.download is not None:
        return fetch(part.download, folder)
    names = " or ".join(part.names)
    found = "has none" if folder.is_dir() else "does not exist"
    offer = ", or pass download=True" if part.download else "; it cannot be downloaded for you" if download else ""
    raise CrowdshotError(f"{dataset}: {shown(folder)} {found}, expected {names} in it; {part.advice}{offer}.")


def member(path: Path, name: str) -> bytes:
    """The file of that name in a folder or zip, the topmost where there are several; a file is that file itself."""
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
            raise CrowdshotError(f"{shown(path)} is damaged or encrypted ({error}), expected a zip.") from None
    elif path.name == name:
        return read_bytes(path)
    raise CrowdshotError(f"{shown(path)} has no file {name}, expected one.")


def column(table: Table, name: str) -> Ids:
    """(n,) the cells of the column of that name, as text."""
    return table.text(_place(table, name))


def whole_numbers(table: Table, name: str) -> Positions:
    """(n,) the cells of the column of that name, as whole numbers."""
    at = _place(table, name)
    numbers = table.numbers(at)
    for row in (numbers % 1 != 0).nonzero()[0]:  # NaN, for a blank cell, is unequal to anything
        raise CrowdshotError(f"{table.place(row, at)} is {table.text(at)[row]!r}, expected a whole number.")
    return numbers.astype("int64")


def _place(table: Table, name: str) -> int:
    if name not in table.header:
        raise CrowdshotError(f"{table.name} has the columns {listing(table.header)}, expected {name!r} among them.")
    return table.header.index(name)


# ---- loader ------------------------------------------------------------
#
# What a dataset is, and what a module of this folder says of its own.


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


# ---- cache ------------------------------------------------------------
#
# Decoded images are kept beside the files they came from or in a cache folder, so that a dataset is decoded once.


ANYBODY_MAY_WRITE = 0o222


def read_once(loader: Loader, paths: Sequence[Path], file: Path) -> ClassPool:
    """What ``loader.read`` makes of these paths, kept in ``file`` until one of them changes."""
    key = " ".join([f"version {loader.version}", *map(_fingerprint, paths)])
    pool = _load(file, key)
    if pool is None:
        pool = loader.read(paths)
        _save(file, key, pool)
    return pool


def is_writable(folder: Path) -> bool:
    """Return whether the folder's mode allows writing; root, whom modes do not stop, respects it too."""
    return bool(folder.stat().st_mode & ANYBODY_MAY_WRITE) and os.access(folder, os.W_OK)


def _fingerprint(path: Path) -> str:
    """Name, size and time of a file, or a digest of these for all files of a folder."""
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
        if str(read_arrays(file, ["key"])[0]["key"]) != key:  # before the rest, which may be large
            return None
        arrays, _ = read_arrays(file, ("examples", "counts", "names", "crowd"))
        names = tuple(arrays.pop("names").tolist())
        tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
        return ClassPool(tensors["examples"], tensors["counts"], names, tensors.get("crowd"))
    except Exception:  # absent, or damaged in any way: then it is made anew
        return None


def _save(file: Path, key: str, pool: ClassPool) -> None:
    """Quietly nothing where the folder may not be written to, or is marked so for users whom marks do not stop."""
    if not is_writable(file.parent):
        return
    crowd = {} if pool.crowd_labels is None else {"crowd": pool.crowd_labels.numpy()}
    arrays: dict[str, Any] = {"examples": pool.examples.numpy(), "counts": pool.counts.numpy(), **crowd}
    with suppress(CrowdshotError), replacing(file) as temporary, temporary.open("wb") as opened:
        np.savez(opened, key=key, names=pool.names, **arrays)
