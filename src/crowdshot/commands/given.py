"""What several commands are given: files of labels, items, and where to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from crowdshot.labels.formats import LabelsRead, read_labels


@dataclass(frozen=True)
class LabelFiles:
    """``columns``: {role: name}, where names do not tell; ``format``: where the content does not."""

    paths: Sequence[Path]
    columns: Mapping[str, str] | None = None
    format: str | None = None

    def __str__(self) -> str:
        return ", ".join(map(str, self.paths))

    def read(self) -> LabelsRead:
        return read_labels(self.paths, self.columns, self.format)


@dataclass(frozen=True)
class ItemFiles:
    """A folder of images or a file of features, or neither; ``encoder``: a name or a file, else it is chosen.

    ``skip_bad`` leaves out unreadable images, and labelled items that have none.
    """

    images: Path | None = None
    features: Path | None = None
    encoder: str | None = None
    skip_bad: bool = False

    def __bool__(self) -> bool:
        return self.images is not None or self.features is not None


NO_ITEMS = ItemFiles()


@dataclass(frozen=True)
class Output:
    """The folder to write; one that is not empty only if ``overwrite`` says so."""

    out: Path
    overwrite: bool = False
