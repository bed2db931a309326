"""Vectors kept on disk by what they were made of and by whom, so that only what is new is computed.

A store is a folder. Below it each maker (an encoder, by a key of all that it is) has a folder of its own, with files
of rows: a key of an item's content, its vector, and a checksum of both. Files are written whole and never changed, so
that a run that is killed leaves what it has, and several runs may share a store. What is damaged is passed over.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import replacing

VARIABLE = "CROWDSHOT_CACHE"
KEY_SIZE = 16  # bytes
AT_ONCE = 2**20  # bytes of a file that are read at a time
FIELDS = ("key", "vector", "check")
EVERY = 5.0  # seconds between two files that are written

Floats = NDArray[np.float32]
_active: ContextVar[Path | None] = ContextVar("embedding_store", default=None)


@contextmanager
def embedding_cache(folder: str | os.PathLike[str] | None = None) -> Iterator[Path | None]:
    """Embeddings that are made inside are kept below ``folder``, and found there by whoever asks again.

    None is the user's own cache, or what the environment's CROWDSHOT_CACHE names; if that is empty, nothing is kept.

    >>> import tempfile
    >>> from crowdshot import embedding_cache, load_encoder
    >>> with tempfile.TemporaryDirectory() as folder, embedding_cache(folder):
    ...     load_encoder("identity").embed([[1.0, 2.0]]).tolist()  # or fit and predict
    [[1.0, 2.0]]
    """
    if folder is None:
        home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = os.environ.get(VARIABLE, Path(home, "crowdshot", "embeddings"))
    token = _active.set(Path(folder) if os.fspath(folder) else None)
    try:
        yield _active.get()
    finally:
        _active.reset(token)


def is_active() -> bool:
    return _active.get() is not None


def content_key(item: Any) -> bytes | None:
    """Of a file's bytes, or of a text; None for what is neither, or cannot be read."""
    found = hashlib.blake2b(digest_size=KEY_SIZE)
    if isinstance(item, str):
        found.update(item.encode("utf-8", "surrogatepass"))
        return found.digest()
    if not isinstance(item, os.PathLike):
        return None
    try:
        with open(item, "rb") as file:
            while part := file.read(AT_ONCE):
                found.update(part)
    except OSError:
        return None
    return found.digest()


def remembered(
    maker: str | None, keys: Sequence[bytes | None], make: Callable[[list[int]], Iterator[Floats]]
) -> Iterator[tuple[list[int], Floats]]:
    """Positions of items with these ``keys`` and their vectors, in pieces: those that ``maker`` left, then the rest.

    ``make``: positions -> their vectors, in pieces and in that order. A key that is None is always made. With no maker,
    or where nothing is to be kept, all are made.
    """
    folder = _active.get()
    home = None if folder is None or maker is None else folder / maker
    found = {} if home is None else _read(home, set(keys))
    old = [place for place, key in enumerate(keys) if key in found]
    if old:
        yield old, np.stack([found[keys[place]] for place in old])  # type: ignore[index]
    new = [place for place, key in enumerate(keys) if key not in found]
    todo, rows, last = iter(new), dict[bytes, Floats](), time.monotonic()
    try:
        for part in make(new) if new else ():
            places = [next(todo) for _ in part]
            rows |= {key: row for place, row in zip(places, part, strict=True) if (key := keys[place]) is not None}
            if time.monotonic() - last > EVERY:
                _write(home, rows)
                rows, last = {}, time.monotonic()
            yield places, part
    finally:  # what is done is kept, also when the rest fails
        _write(home, rows)


def _read(home: Path, wanted: set[bytes | None]) -> dict[bytes | None, Floats]:
    found: dict[bytes | None, Floats] = {}
    heads = np.unique(_heads(np.array([key for key in wanted if key], dtype=f"V{KEY_SIZE}")))
    for file in sorted(home.glob("*.npy")) if len(heads) else ():
        with suppress(Exception):  # damaged, in whatever way: as if it were not there
            there = _heads_in(file)
            places = np.flatnonzero(heads[np.searchsorted(heads, there).clip(max=len(heads) - 1)] == there)
            kept = np.load(file, mmap_mode="r", allow_pickle=False)[places] if len(places) else ()
            rows = {row["key"].tobytes(): row for row in kept}
            found |= {
                key: row["vector"] for key, row in rows.items() if key in wanted and row["check"] == _check(key, row)
            }
    return found


@lru_cache(100_000)
def _heads_in(file: Path) -> NDArray[np.uint64]:
    """What the keys of a file begin with, which is held in memory: who takes piece by piece asks again and again."""
    return _heads(np.load(file, mmap_mode="r", allow_pickle=False)["key"])


def _heads(keys: NDArray[Any]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(keys).view(np.uint64).reshape(-1, 2)[:, 0].copy()


def _check(key: bytes, row: Any) -> int:
    """So that a damaged row is made anew, and no other vector believed."""
    return zlib.crc32(row["vector"].tobytes(), zlib.crc32(key))


def _write(home: Path | None, rows: dict[bytes, Floats]) -> None:
    if home is None or not rows:
        return
    kinds = (f"V{KEY_SIZE}", ("<f4", next(iter(rows.values())).shape), "<u4")
    table = np.empty(len(rows), dtype=list(zip(FIELDS, kinds, strict=True)))
    table["key"] = [np.void(key) for key in rows]
    table["vector"] = list(rows.values())
    table["check"] = [_check(key, row) for key, row in zip(rows, table, strict=True)]
    with suppress(OSError, CrowdshotError):  # a cache that cannot be written is none
        home.mkdir(parents=True, exist_ok=True)
        with replacing(home / f"{secrets.token_hex(8)}.npy") as temporary, temporary.open("wb") as file:
            np.save(file, table, allow_pickle=False)
