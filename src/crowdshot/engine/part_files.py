"""A part of a crowd in a folder: its arrays, which are mapped and not read, and what is kept of it between steps."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crowdshot.engine.placing import put
from crowdshot.model.parts import Part

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
