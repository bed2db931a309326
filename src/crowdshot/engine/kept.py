"""What a run keeps for the next one, should it be killed: tuples of arrays and names, nothing that can do harm."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

from crowdshot.engine import mapped
from crowdshot.engine.placing import put
from crowdshot.errors import CrowdshotError

ARRAYS = {"_reconstruct", "ndarray", "dtype", "scalar", "_frombuffer"}  # of NumPy: by which arrays are made again
CLASSES = {"Keyed", "Names"}  # of ours, beside named tuples


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] not in ("numpy", "crowdshot") or (module.startswith("numpy") and name not in ARRAYS):
            raise pickle.UnpicklingError(f"it holds {module}.{name}")
        found = super().find_class(module, name)
        if module.startswith("crowdshot") and name not in CLASSES and not issubclass(found, tuple):
            raise pickle.UnpicklingError(f"it holds {module}.{name}")
        return found


def keep(file: Path, value: Any) -> None:
    put(file, lambda path: mapped.write(path, value))


def kept(file: Path) -> Any:
    """None where nothing is kept."""
    if not file.exists():
        return None
    try:
        return mapped.read(file, lambda rest, buffers: _Reader(io.BytesIO(rest), buffers=buffers).load())
    except (pickle.UnpicklingError, EOFError, AttributeError, IndexError, TypeError, ValueError) as error:
        raise CrowdshotError(f"{file} is damaged ({error}), expected what a run has kept; remove it.") from None
