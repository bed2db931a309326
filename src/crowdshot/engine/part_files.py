"""Store the parts of a large crowd as folders of memory-mapped arrays, save state between steps, and share memory.

A part is a set of items with all their labels. Its arrays are mapped, not read, so that several processes share one
copy and a part may be larger than memory.
"""

from __future__ import annotations

import hmac
import io
import json
import mmap
import pickle
import re
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import put
from crowdshot.model.parts import Part, Sizes

ARRAYS = ("per_item", "annotator", "label", "known")


class Arrays(MutableMapping[str, Any]):
    """A mapping from names to the arrays in a folder; files are written atomically."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, name: str) -> NDArray[Any]:
        try:
            found: NDArray[Any] = np.load(self._file(name), mmap_mode="r")
        except FileNotFoundError:
            raise KeyError(name) from None
        except ValueError:  # an empty array cannot be mapped
            found = np.load(self._file(name))
        return found

    def __setitem__(self, name: str, values: NDArray[Any]) -> None:
        def write(path: Path) -> None:
            with path.open("wb") as file:  # with a path, np.save would append ".npy"
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
    """Return the values in the smallest integer type that holds 0 to ``most``."""
    return values.astype(np.min_scalar_type(most))


# ---- values with mapped arrays ----


ALIGNED = 64  # bytes: a cache line


def write(file: Path, value: Any, key: bytes | None = None) -> None:
    """Pickle a value to a file: a line with sizes, the pickle without its arrays, then the aligned arrays.

    With a ``key``, the line has a signature of the pickle, which `read` checks.
    """
    buffers: list[pickle.PickleBuffer] = []
    rest = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    pieces = [memoryview(rest), *(buffer.raw() for buffer in buffers)]
    with file.open("wb") as out:
        signature = [] if key is None else [_signature(rest, key)]
        out.write(json.dumps([*(piece.nbytes for piece in pieces), *signature]).encode() + b"\n")
        for piece in pieces:
            out.write(bytes(-out.tell() % ALIGNED))
            out.write(piece)


def read(file: Path, key: bytes | None = None) -> Any:
    """Read a value that `write` wrote. Its arrays are mapped and read-only; they stay valid if the file is removed.

    Without a ``key``, it may hold nothing but arrays, plain values and a few harmless classes of crowdshot. With the
    key, it may hold anything, because only who knows the key can have written it.
    """
    with file.open("rb") as found:
        sizes = json.loads(found.readline())
        signature = "" if key is None else str(sizes.pop())
        at = found.tell()
        whole = memoryview(mmap.mmap(found.fileno(), 0, access=mmap.ACCESS_READ))
    pieces = []
    for size in sizes:
        at += -at % ALIGNED
        pieces.append(whole[at : at + size])
        at += size
    if key is None:
        return _Reader(io.BytesIO(pieces[0]), buffers=pieces[1:]).load()
    if not pieces or not hmac.compare_digest(signature, _signature(pieces[0], key)):
        raise CrowdshotError("was changed by another program", where=file, expected="the arguments of this run")
    return pickle.loads(pieces[0], buffers=pieces[1:])


def _signature(content: bytes | memoryview, key: bytes) -> str:
    return hmac.new(key, content, "sha256").hexdigest()


# ---- state of an interrupted run ----


NUMPY_NAMES = {"_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer"}  # that pickled arrays refer to
CLASSES = {"Keyed", "Names"}  # classes of crowdshot that may be loaded, besides named tuples


class _Reader(pickle.Unpickler):
    """Refuses to load anything except arrays and a few harmless classes of crowdshot."""

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] not in ("numpy", "crowdshot") or (
            module.startswith("numpy") and name not in NUMPY_NAMES
        ):
            raise pickle.UnpicklingError(f"it holds {module}.{name}")
        found = super().find_class(module, name)
        if module.startswith("crowdshot") and name not in CLASSES and not issubclass(found, tuple):
            raise pickle.UnpicklingError(f"it holds {module}.{name}")
        return found


def keep(file: Path, value: Any) -> None:
    """Save state for a later run, atomically."""
    put(file, lambda path: write(path, value))


def kept(file: Path) -> Any:
    """Return the state that `keep` saved, or None."""
    if not file.exists():
        return None
    try:
        return read(file)
    except Exception as error:  # damaged bytes make pickle and NumPy raise nearly anything
        raise CrowdshotError(
            f"is damaged ({error})",
            where=file,
            expected="the saved state of an interrupted run",
            hint="Remove this file and start again",
        ) from None


# ---- memory: the limit holds for all processes together, imported libraries included ----


UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
PROCESS_BYTES = 260_000_000  # of a process that has read nothing yet
LEAST_BYTES = 250_000_000  # that a process should have for its work
ROW_BYTES = 190  # of a row while it is read and sent to its bucket
LABEL_BYTES = 170  # of a label while its bucket is sorted
MOST_ROWS, MOST_LABELS = 1_000_000, 8_000_000  # at a time; more is not faster
FEWEST_ROWS = 20_000  # at a time; a limit with room for fewer is refused
LABELS_PER_PART = 100_000  # at least, if parts are made only to occupy workers


class Share(NamedTuple):
    """The number of worker processes, and the rows and labels that each processes at a time."""

    workers: int  # 1: this process alone
    chunk_rows: int
    part_labels: int

    def parts(self, rows: int) -> int:
        """Return the number of parts: enough to fit into memory and, for large tables, to occupy all workers."""
        return max(1, -(-rows // self.part_labels), min(2 * self.workers, rows // LABELS_PER_PART))


def as_bytes(text: str) -> int:
    """Parse a size: "4GB" is 4,000,000,000."""
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?\s*", text.lower())
    if found is None or float(found[1]) <= 0:
        raise CrowdshotError(f"is {text!r}", argument="memory", found=text, expected="a size such as 4GB")
    return int(float(found[1]) * UNITS[found[2]])


def shares_of(memory: int, cores: int) -> Share:
    """Return how many workers fit into ``memory`` bytes, at most ``cores``, and the share of each."""
    workers = max((n for n in range(2, cores + 1) if memory >= (n + 1) * PROCESS_BYTES + n * LEAST_BYTES), default=1)
    children = 0 if workers == 1 else workers
    available = (memory - (children + 1) * PROCESS_BYTES) // workers
    if available < FEWEST_ROWS * ROW_BYTES:
        raise _too_little_memory(memory, PROCESS_BYTES + FEWEST_ROWS * ROW_BYTES)
    return Share(workers, min(MOST_ROWS, available // ROW_BYTES), min(MOST_LABELS, available // LABEL_BYTES))


def tables_fit(sizes: Sizes, method: str, memory: int, workers: int) -> None:
    """Raise an error if the annotators' confusion tables do not fit into memory.

    Each process holds three: the current one, the sums for the next one, and the one it receives.
    """
    if sizes.sparse or method in ("majority", "soft"):
        return
    table = sizes.annotators * sizes.classes**2 * 8
    needed = (workers + (workers > 1)) * PROCESS_BYTES + table * (3 * workers + 3 * (workers > 1))
    if needed > memory:
        what = f"{sizes.annotators:,} annotators and {sizes.classes} classes with {workers} processes"
        raise _too_little_memory(memory, needed, f" for {what}")


def _too_little_memory(memory: int, needed: int, purpose: str = "") -> CrowdshotError:
    return CrowdshotError(
        f"is {shown(memory)}", argument="memory", found=memory, expected=f"{shown(needed)} or more{purpose}"
    )


def shown(size: int) -> str:
    """Return a size as people write it, rounded up: 4,000,000,000 is "4GB"."""
    unit = next(unit for unit in ("g", "m", "k", "") if size >= UNITS[unit] or not unit)
    tenths = -(-size * 10 // UNITS[unit]) / 10
    return f"{tenths:g}{unit.upper()}B"
