"""Decoded images are kept beside the files they came from, so that a dataset is decoded once."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from crowdshot.episodes.datasets.loader import Loader
from crowdshot.episodes.pools import ClassPool
from crowdshot.errors import CrowdshotError
from crowdshot.files.arrays import read_arrays
from crowdshot.files.whole import replacing

ANYBODY_MAY_WRITE = 0o222


def read_once(loader: Loader, paths: Sequence[Path], file: Path) -> ClassPool:
    """What ``loader.read`` makes of these paths, kept in ``file`` until one of them changes."""
    key = " ".join([f"version {loader.version}", *map(_fingerprint, paths)])
    pool = _load(file, key)
    if pool is None:
        pool = loader.read(paths)
        _save(file, key, pool)
    return pool


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
    if not file.parent.stat().st_mode & ANYBODY_MAY_WRITE:
        return
    crowd = {} if pool.crowd_labels is None else {"crowd": pool.crowd_labels.numpy()}
    arrays: dict[str, Any] = {"examples": pool.examples.numpy(), "counts": pool.counts.numpy(), **crowd}
    with suppress(CrowdshotError), replacing(file) as temporary, temporary.open("wb") as opened:
        np.savez(opened, key=key, names=pool.names, **arrays)
