"""What several commands are given: files of labels, items, and where to write."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from crowdshot.labels.formats import LabelsRead, read_labels


@dataclass(frozen=True)
class LabelFiles:
    """Files of labels and how they are read; the fields are `read_labels`' arguments."""

    paths: Sequence[Path]
    columns: Mapping[str, str] | None = None
    format_name: str | None = None
    sheet: str | None = None
    rename: Mapping[str, str] | Path | None = None
    merge_case: bool = False
    names: Path | None = None

    def __str__(self) -> str:
        return ", ".join(map(str, self.paths))

    def read(self) -> LabelsRead:
        return read_labels(**vars(self))

    def options(self) -> dict[str, Any]:
        """As they are typed, for `wording.command`."""
        given = {name.replace("_", "-"): value for name, value in vars(self).items() if name != "paths"}
        return {"format" if name == "format-name" else name: value for name, value in given.items()}


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


@dataclass(frozen=True)
class TrainingFiles:
    """What an encoder learns from (`crowdshot.episodes.sources`), where it goes, and which classes are kept from it.

    ``annotations``: what real annotators said of the items. With ``test_classes``, classes that training never touches,
    the card has accuracies on these by shots and annotators. ``rival`` is where a prototypical network goes, trained
    beside it on the same classes with clean labels: what the encoder should be compared with.
    """

    source: str
    out: Path
    annotations: Path | None = None
    image_size: int | None = None
    rotate_classes: bool = False
    terms: str | None = None
    validation_classes: int | None = None
    test_classes: int = 0
    checkpoint: Path | None = None
    checkpoint_every: int | None = None
    rival: Path | None = None

    @property
    def progress(self) -> Path:
        """Where it is kept while training runs."""
        return self.checkpoint or self.out.with_name(f"{self.out.name}.checkpoint")

    @property
    def history(self) -> Path:
        return self.out.with_name(f"{self.out.stem}.history.csv")


@dataclass(frozen=True)
class Network:
    """What is trained, and where. ``architecture``: else the one that suits the items.

    ``backbone`` "lite0" says that the features are EfficientNet-Lite0's: what is saved then takes images and is that
    network with the trained linear layer on top.
    """

    architecture: str | None = None
    width: int = 64
    hidden: Sequence[int] = (128,)
    embedding: int = 64
    precision: str = "float32"
    device: str = "auto"
    backbone: str | None = None


USUAL_NETWORK = Network()
