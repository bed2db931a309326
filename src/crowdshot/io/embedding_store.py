"""Cache embeddings on disk, so that each item is encoded only once per encoder.

The cache is a folder with a subfolder for each encoder, named after a hash of its weights and settings. Files in it
have rows of a hash of the item's content, its vector, and a checksum of both. Files are written atomically and never
changed. A killed run keeps what it wrote, and several runs may share a cache. Damaged files and rows are ignored.
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
EVERY = 5.0  # seconds between two writes

Floats = NDArray[np.float32]
_active: ContextVar[Path | None] = ContextVar("embedding_store", default=None)


@contextmanager
def embedding_cache(folder: str | os.PathLike[str] | None = None) -> Iterator[Path | None]:
    """Cache all embeddings that are computed inside the block.

    Parameters
    ----------
    folder : path-like, optional
        The cache. By default the environment variable CROWDSHOT_CACHE names it (if that is empty, nothing is cached),
        or else it is ``~/.cache/crowdshot/embeddings``.

    Yields
    ------
    Path or None
        The cache's folder.

    Examples
    --------
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
    """Return a hash of a file's bytes or of a text; None for other items and for files that cannot be read."""
    digest = hashlib.blake2b(digest_size=KEY_SIZE)
    if isinstance(item, str):
        digest.update(item.encode("utf-8", "surrogatepass"))
        return digest.digest()
    if not isinstance(item, os.PathLike):
        return None
    try:
        with open(item, "rb") as file:
            while part := file.read(AT_ONCE):
                digest.update(part)
    except OSError:
        return None
    return digest.digest()


def remembered(
    maker: str | None, keys: Sequence[bytes | None], make: Callable[[list[int]], Iterator[Floats]]
) -> Iterator[tuple[list[int], Floats]]:
    """Yield item positions and their vectors in batches: the cached items first, then the others.

    Parameters
    ----------
    maker : str or None
        Hash of the encoder; None to compute everything.
    keys : sequence of bytes or None
        Hash of each item, as `content_key` returns it; items with None are always computed.
    make : callable
        Computes the vectors of the items at some positions, in batches and in that order.
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
    finally:  # finished vectors are kept even if the rest fails
        _write(home, rows)


def _read(home: Path, wanted: set[bytes | None]) -> dict[bytes | None, Floats]:
    found: dict[bytes | None, Floats] = {}
    heads = np.unique(_heads(np.array([key for key in wanted if key], dtype=f"V{KEY_SIZE}")))
    for file in sorted(home.glob("*.npy")) if len(heads) else ():
        with suppress(Exception):  # a damaged file, which may raise anything, is ignored
            present = _heads_in(file)
            places = np.flatnonzero(heads[np.searchsorted(heads, present).clip(max=len(heads) - 1)] == present)
            if not len(places):
                continue
            table = np.load(file, mmap_mode="r", allow_pickle=False)[places]
            if table.dtype != _row(*table.dtype["vector"].shape):
                continue  # a damaged header: numbers would be read in another form
            rows = {row["key"].tobytes(): row for row in table}
            found |= {
                key: row["vector"] for key, row in rows.items() if key in wanted and row["check"] == _check(key, row)
            }
    return found


@lru_cache(100_000)
def _heads_in(file: Path) -> NDArray[np.uint64]:
    """Return the first 8 bytes of the keys in a file, held in memory because callers look up batch after batch."""
    return _heads(np.load(file, mmap_mode="r", allow_pickle=False)["key"])


def _heads(keys: NDArray[Any]) -> NDArray[np.uint64]:
    return np.ascontiguousarray(keys).view(np.uint64).reshape(-1, 2)[:, 0].copy()


def _check(key: bytes, row: Any) -> int:
    """Return a checksum of a row, by which damaged rows are found."""
    return zlib.crc32(row["vector"].tobytes(), zlib.crc32(key))


def _row(n_features: int) -> np.dtype[Any]:
    kinds = (f"V{KEY_SIZE}", ("<f4", (n_features,)), "<u4")
    return np.dtype(list(zip(FIELDS, kinds, strict=True)))


def _write(home: Path | None, rows: dict[bytes, Floats]) -> None:
    if home is None or not rows:
        return
    table = np.empty(len(rows), dtype=_row(*next(iter(rows.values())).shape))
    table["key"] = [np.void(key) for key in rows]
    table["vector"] = list(rows.values())
    table["check"] = [_check(key, row) for key, row in zip(rows, table, strict=True)]
    with suppress(OSError, CrowdshotError):  # without write permission there is no cache
        home.mkdir(parents=True, exist_ok=True)
        with replacing(home / f"{secrets.token_hex(8)}.npy") as temporary, temporary.open("wb") as file:
            np.save(file, table, allow_pickle=False)
