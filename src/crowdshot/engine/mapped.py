"""Values in files whose arrays are mapped and not read, so that one copy of them serves several processes."""

from __future__ import annotations

import json
import mmap
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

ALIGNED = 64  # bytes, as a processor fetches them


def write(file: Path, value: Any) -> None:
    """A line of sizes, all but the arrays, and the arrays."""
    buffers: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    pieces = [memoryview(rest), *(buffer.raw() for buffer in buffers)]
    with file.open("wb") as out:
        out.write(json.dumps([piece.nbytes for piece in pieces]).encode() + b"\n")
        for piece in pieces:
            out.write(bytes(-out.tell() % ALIGNED))
            out.write(piece)


def read(file: Path, load: Callable[..., Any] = pickle.loads) -> Any:
    """Its arrays cannot be written to, and stay though the file goes. ``load``: from bytes and ``buffers``."""
    with file.open("rb") as found:
        sizes = json.loads(found.readline())
        at = found.tell()
        whole = memoryview(mmap.mmap(found.fileno(), 0, access=mmap.ACCESS_READ))
    pieces = []
    for size in sizes:
        at += -at % ALIGNED
        pieces.append(whole[at : at + size])
        at += size
    return load(pieces[0], buffers=pieces[1:])
