"""A part of a crowd in a folder: its arrays, which are mapped and not read, and what is kept of it between steps."""

from __future__ import annotations

import io
import json
import mmap
import pickle
import re
from collections.abc import Callable, Iterator, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import put
from crowdshot.model.parts import Part, Sizes

ARRAYS = ("per_item", "annotator", "label", "known")


class Arrays(MutableMapping[str, Any]):
    """The arrays in a folder by their names; each is there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, name: str) -> NDArray[Any]:
        try:
            found: NDArray[Any] = np.load(self._file(name), mmap_mode="r")
        except FileNotFoundError:
            raise KeyError(name) from None
        except ValueError:  # nothing can be mapped of nothing
            found = np.load(self._file(name))
        return found

    def __setitem__(self, name: str, values: NDArray[Any]) -> None:
        def write(path: Path) -> None:
            with path.open("wb") as file:  # else the name would get an ending
                np.save(file, values)

        put(self._file(name), write)

    def __contains__(self, name: object) -> bool:
        return self._file(str(name)).exists()

    def __delitem__(self, name: str) -> None:
        try:
            self._file(name).unlink()
        except FileNotFoundError:
            raise KeyError(name) from None

    def __iter__(self) -> Iterator[str]:
        return (file.stem for file in sorted(self.folder.glob("*.npy")))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _file(self, name: str) -> Path:
        return self.folder / f"{name}.npy"


def open_part(folder: Path) -> Part:
    arrays = Arrays(folder)
    per_item, annotator, label, known = (arrays.get(name) for name in ARRAYS)
    assert per_item is not None and annotator is not None and label is not None  # noqa: PT018
    return Part(per_item, annotator, label, known, kept=arrays)


def smallest(values: NDArray[Any], most: int) -> NDArray[Any]:
    """As the smallest whole numbers that hold 0 to ``most``."""
    return values.astype(np.min_scalar_type(most))


# ---- mapped ------------------------------------------------------------
#
# Values in files whose arrays are mapped and not read, so that one copy of them serves several processes.


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


# ---- kept ------------------------------------------------------------
#
# What a run keeps for the next one, should it be killed: tuples of arrays and names, nothing that can do harm.


KEPT_ARRAYS = {"_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer"}  # of NumPy: by which arrays are made again
CLASSES = {"Keyed", "Names"}  # of ours, beside named tuples


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] not in ("numpy", "crowdshot") or (
            module.startswith("numpy") and name not in KEPT_ARRAYS
        ):
            raise pickle.UnpicklingError(f"it holds {module}.{name}")
        found = super().find_class(module, name)
        if module.startswith("crowdshot") and name not in CLASSES and not issubclass(found, tuple):
            raise pickle.UnpicklingError(f"it holds {module}.{name}")
        return found


def keep(file: Path, value: Any) -> None:
    put(file, lambda path: write(path, value))


def kept(file: Path) -> Any:
    """None where nothing is kept."""
    if not file.exists():
        return None
    try:
        return read(file, lambda rest, buffers: _Reader(io.BytesIO(rest), buffers=buffers).load())
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, TypeError, ValueError) as error:
        raise CrowdshotError(f"{file} is damaged ({error}), expected what a run has kept; remove it.") from None


# ---- memory ------------------------------------------------------------
#
# How much memory there is for whom: of a bound for all processes together, imports included.


UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
PROCESS = 260_000_000  # bytes of a process that has read nothing yet
LEAST = 250_000_000  # bytes that a process should have for its work
ROW = 190  # bytes of a row while it is read and sent to its bucket
LABEL = 170  # bytes of a label while its bucket is sorted
MOST_ROWS, MOST_LABELS, FEWEST = 1_000_000, 8_000_000, 20_000  # beyond which more at a time is no faster
WORTH_A_PART = 100_000  # labels


class Share(NamedTuple):
    """``workers``: processes; 1 means this one alone. Rows and labels that each takes at a time."""

    workers: int
    chunk_rows: int
    part_labels: int

    def parts(self, rows: int) -> int:
        """As many as fit memory, and enough for all workers where there is work for them."""
        return max(1, -(-rows // self.part_labels), min(2 * self.workers, rows // WORTH_A_PART))


def as_bytes(text: str) -> int:
    """ "4GB" -> 4,000,000,000"""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
    if found is None or float(found[1]) <= 0:
        raise CrowdshotError(f"memory is {text!r}, expected a size, like 4GB.")
    return int(float(found[1]) * UNITS[found[2]])


def shares_of(memory: int, cores: int) -> Share:
    workers = max((n for n in range(2, cores + 1) if memory >= (n + 1) * PROCESS + n * LEAST), default=1)
    others = 0 if workers == 1 else workers
    own = (memory - (others + 1) * PROCESS) // workers
    if own < FEWEST * ROW:
        raise CrowdshotError(f"memory is {shown(memory)}, expected {shown(PROCESS + FEWEST * ROW)} or more.")
    return Share(workers, min(MOST_ROWS, own // ROW), min(MOST_LABELS, own // LABEL))


def tables_fit(sizes: Sizes, method: str, memory: int, workers: int) -> None:
    """Each process has a table of the annotators, adds up another, and gets a third from the step before."""
    if sizes.sparse or method in ("majority", "soft"):
        return
    table = sizes.annotators * sizes.classes**2 * 8
    needed = (workers + (workers > 1)) * PROCESS + table * (3 * workers + 3 * (workers > 1))
    if needed > memory:
        what = f"{sizes.annotators:,} annotators and {sizes.classes} classes with {workers} processes"
        raise CrowdshotError(f"memory is {shown(memory)}, expected {shown(needed)} or more for {what}.")


def shown(size: int) -> str:
    """4,000,000,000 -> "4GB"; rounded up, as it is asked for."""
    unit = next(unit for unit in ("g", "m", "k", "") if size >= UNITS[unit] or not unit)
    tenths = -(-size * 10 // UNITS[unit]) / 10
    return f"{tenths:g}{unit.upper()}B"
