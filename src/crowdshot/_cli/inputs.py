"""What several commands are given: files of labels, items, and where to write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import shown
from crowdshot.io.feature_files import array_pieces, features_of, is_array
from crowdshot.io.file_names import expand
from crowdshot.io.tables import can_be_cut, table_pieces
from crowdshot.labels import gold_labels
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_priors import AnnotatorPriors
from crowdshot.labels.formats import called, join_parts, read_parts
from crowdshot.labels.formats.cleaning import Naming, refuse_others, warn_new_classes
from crowdshot.labels.formats.label_file import LabelsRead
from crowdshot.labels.label_values import refuse_many
from crowdshot.labels.matching import named_like
from crowdshot.labels.spelling import Strangers
from crowdshot.labels.text_files import read_text_items, texts_of
from crowdshot.report.export import Export

if TYPE_CHECKING:
    from crowdshot.encoders.encoder import Encoder
    from crowdshot.encoders.items import Items


AT_ONCE = 20_000  # items that are looked at together: their embeddings are in memory


@dataclass(frozen=True)
class LabelFiles:
    """Files of labels and how they are read; the fields are `crowdshot.labels.formats.read_labels`' arguments.

    But for ``gold``: a table of items and their true labels, in place of those that the files tell; and ``history``: a
    table of how many labels of annotators were right and wrong in earlier projects; and ``excel_safe``, which says what
    `files.formulas` was told, for commands to copy.
    """

    paths: Sequence[Path]
    columns: Mapping[str, str] | None = None
    format_name: str | None = None
    sheet: str | None = None
    annotator_columns: Sequence[str] = ()
    rename: Mapping[str, str] | Path | None = None
    merge_case: bool = False
    names: Path | None = None
    multi_label: bool = False
    ordered: Sequence[str] = ()
    categories: bool = False
    leave_out: Sequence[str] = ()
    gold: Path | None = None
    history: Path | None = None
    excel_safe: bool = False

    def __str__(self) -> str:
        return ", ".join(map(str, self.paths))

    def expanded(self) -> LabelFiles:
        """With the files that patterns and folders among the paths stand for."""
        return replace(self, paths=expand(self.paths))

    def without_names(self) -> LabelFiles:
        """For commands that are shown to others: NAMES for people's, and FILES for several, which may be called so."""
        return replace(
            self,
            paths=[Path("FILES")] if self.paths[1:] else self.paths,
            annotator_columns=["NAMES"] if self.annotator_columns else (),
            leave_out=["NAMES"] if self.leave_out else (),
        )

    @property
    def inputs(self) -> list[Path]:
        """All files that are read, which nothing may be written over."""
        lists = (self.rename, self.names, self.gold, self.history)
        return [*self.paths, *(file for file in lists if isinstance(file, Path))]

    @property
    def gold_from(self) -> str:
        return str(self.gold or "the labels' file")

    def read(self) -> LabelsRead:
        self.naming.check()
        return self.joined(self.parts())

    @property
    def naming(self) -> Naming:
        fields = ("rename", "merge_case", "names", "multi_label", "ordered", "categories", "leave_out")
        return Naming(**{name: getattr(self, name) for name in fields})

    def parts(self) -> list[LabelsRead]:
        """The labels of each file, as it has them."""
        names = ("paths", "columns", "format_name", "sheet", "annotator_columns", "multi_label", "rename", "merge_case")
        return read_parts(**{name: getattr(self, name) for name in names})

    def joined(self, parts: Sequence[LabelsRead], strangers: Strangers = "refuse") -> LabelsRead:
        """Those of the files, or others too, as one."""
        read = join_parts(parts, replace(self.naming, strangers=strangers), called(self.paths))
        if self.history is not None:
            read = replace(read, history=AnnotatorPriors.read(self.history))
        if not (self.categories or self.ordered):
            refuse_many(read.names, str(self))
        if self.gold is None:
            return read
        gold = gold_labels.read(self.gold, read.annotations.columns, read.spelling)
        if self.ordered:
            refuse_others(gold.values(), self.ordered, str(self.gold))
        warn_new_classes(gold, read, str(self.gold))
        return replace(read, gold=gold)

    def options(self) -> dict[str, Any]:
        """As they are typed, for `wording.command`."""
        given = {name.removesuffix("_name").replace("_", "-"): value for name, value in vars(self).items()}
        del given["paths"]
        return {name: ",".join(value) if isinstance(value, list | tuple) else value for name, value in given.items()}


@dataclass(frozen=True)
class ItemFiles:
    """A folder of images, a file of features, texts, or none; ``encoder``: a name or a file, else it is chosen.

    ``skip_bad`` leaves out unreadable items, and labels of items that are not there. ``processes``: by how many images
    are embedded, of this machine or, where ``engine`` is "ray", of a cluster.
    """

    images: Path | None = None
    features: Path | None = None
    encoder: str | None = None
    skip_bad: bool = False
    texts: Path | None = None
    processes: int = 1
    engine: str = "local"

    def __bool__(self) -> bool:
        return any(given is not None for given in (self.images, self.features, self.texts))

    def open(self, mixed: bool | None = None, wanted: Sequence[str] | None = None) -> Items:
        """``mixed``: whether features are to be a table, else that shows in what it holds; ``wanted``: its columns."""
        from crowdshot.encoders.items import (
            Items,
            open_items,  # here, as labels alone need not wait for torch
        )

        if self.texts is None:
            return open_items(self.images, self.features, mixed, wanted)
        other = "images" if self.images else "features" if self.features else None
        if other is not None:
            raise CrowdshotError(f"texts is given and so is {other}=, expected one of the two.")
        ids, texts, are_files = read_text_items(self.texts)
        return Items("texts", shown(self.texts), ids, texts, are_files)

    def embed_ahead(self, images: Sequence[Path], encoder: Encoder, precision: str = "float32") -> None:
        """By several processes, if there are to be more than this one."""
        if self.images is not None and (self.processes > 1 or self.engine != "local"):
            from crowdshot.engine.parallel_embedding import embed_ahead  # as above

            embed_ahead(images, encoder, self.processes, self.engine, precision)

    def pieces(
        self, mixed: bool, like: Iterable[Any] = (), wanted: Sequence[str] | None = None
    ) -> Iterator[tuple[Items, int, int]]:
        """Items, and how far that is: (done, in all). They come in pieces, however many they are.

        ``like``: ids in whose manner files are called; ``wanted``: as in `read_feature_file`.
        """
        from crowdshot.encoders.items import Items  # as above

        given = [file for file in (self.images, self.features, self.texts) if file is not None]
        file = self.texts or self.features
        if len(given) == 1 and self.features is not None and is_array(self.features):
            for found, done, total in array_pieces(self.features, AT_ONCE):
                yield Items("features", shown(self.features), *found), done, total
            return
        if len(given) != 1 or file is None or not can_be_cut(file):
            items = self.open(mixed, wanted)
            if items.are_files:
                items = replace(items, called=named_like(like, [Path(name) for name in items.ids]))
            n = len(items)
            for start in range(0, n, AT_ONCE):
                some = np.arange(start, min(start + AT_ONCE, n))
                yield items.take(some), start + len(some), n
            return
        for table, done, total in table_pieces(file):
            if self.texts:
                yield Items("texts", shown(file), *texts_of(table, repeated=True)), done, total
            else:
                found = features_of(table, mixed, wanted, repeated=True)
                yield Items("features", shown(file), *found), done, total

    def options(self) -> dict[str, Any]:
        """As they are typed, for `wording.command`."""
        names = ("images", "features", "texts", "encoder", "skip_bad")
        return {name.replace("_", "-"): getattr(self, name) for name in names}


NO_ITEMS = ItemFiles()


@dataclass(frozen=True)
class Output:
    """The folder to write; one that is not empty only if ``overwrite`` says so."""

    out: Path
    overwrite: bool = False


@dataclass(frozen=True)
class TrainingFiles:
    """What an encoder learns from (`crowdshot.training.sources`), where it goes, and which classes are kept from it.

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


# ---- counts ------------------------------------------------------------
#
# How many there are of what, how it is spelled and what is known of it: what reports of commands have in common.


Report = dict[str, Any]  # plain JSON, what a command has to say


def spellings(read: LabelsRead) -> Report:
    """What may be written in several ways, and what was read as something else than it was written."""
    return {
        "near_duplicates": [twins._asdict() for twins in read.near_duplicates],
        "respelled": [each._asdict() for each in read.respelled],
    }


def counts(ann: Annotations) -> Report:
    sizes = {"items": ann.n_items, "annotators": ann.n_annotators, "labels": ann.n_labels}
    return {**sizes, "classes": ann.classes.tolist()}


def export_facts(export: Export, consensus: pd.DataFrame) -> Report:
    exported = int((consensus["confidence"] >= export.threshold).sum())
    return {"exported": exported, "exported_at": export.threshold, "exported_to": str(export.folder)}


def gold_facts(compared: pd.DataFrame, source: str) -> Report:
    """How many true labels are known, and how often labels and items alone would be right; see `known_truth.compare`.

    ``gold_right`` of ``gold_labelled``, the items that somebody labelled; from ``gold_low`` to ``gold_high`` with 90 %
    probability. ``gold_claimed``: how often they would be right by their confidence.
    """
    found = gold_labels.agreement(compared)
    facts: Report = {"gold": len(compared), "gold_from": source}
    if found.right is not None:
        facts |= {"gold_right": found.right.hits, "gold_labelled": found.right.of}
        facts |= {"gold_low": found.right.low, "gold_high": found.right.high}
        facts |= {"gold_claimed": found.confidence, "shared_mistakes": found.shared_mistakes}
    return facts
