"""Group the arguments that several commands take: label files, items and output."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from crowdshot._cli.options import ReadingOptions
from crowdshot.errors import CrowdshotError, Proposal
from crowdshot.extras import ITEMS, NEEDED, require
from crowdshot.formatting import shown
from crowdshot.io.feature_files import array_pieces, features_of, is_array
from crowdshot.io.file_names import expand
from crowdshot.io.table_pieces import can_be_cut, table_pieces
from crowdshot.io.tables import read_table
from crowdshot.labels import gold_labels
from crowdshot.labels.annotations import refuse_many
from crowdshot.labels.annotator_quality import AnnotatorPriors
from crowdshot.labels.columns import Columns
from crowdshot.labels.formats import called, join_parts, read_parts
from crowdshot.labels.formats.cleaning import Naming, refuse_others, warn_new_classes
from crowdshot.labels.formats.label_file import LabelFile, LabelsRead
from crowdshot.labels.formats.label_selection import values_of
from crowdshot.labels.item_names import file_name
from crowdshot.labels.matching import named_like
from crowdshot.labels.spelling import Strangers, merging
from crowdshot.labels.text_files import read_text_items, texts_of
from crowdshot.progress import progress

if TYPE_CHECKING:
    from crowdshot.encoders.encoder import Encoder
    from crowdshot.encoders.items import Items
    from crowdshot.labels.formats.diagnosis import Diagnosis


READ = (  # the arguments of `read_parts`
    *("paths", "columns", "format_name", "sheet", "annotator_columns", "multi_label", "rename", "merge_case", "dates"),
    *("skip_bad", "since", "batch"),
)
MOST_BYTES = 50 * 2**20  # of files that are read again to find all problems
MOST_WIDTH = 5_000  # columns of such a file
AT_ONCE = 20_000  # items per piece; the embeddings of a piece are in memory


def _is_wide(path: Path) -> bool:
    with path.open("rb") as file:
        header = file.readline(2**20)
    return max(map(header.count, (b",", b";", b"\t"))) > MOST_WIDTH


@dataclass(frozen=True)
class LabelFiles(ReadingOptions):
    """Files of labels, and how they are read."""

    paths: Sequence[Path]

    def __str__(self) -> str:
        return ", ".join(map(str, self.paths))

    def expanded(self) -> LabelFiles:
        """Replace patterns and folders among the paths by the files they contain."""
        return replace(self, paths=expand(self.paths))

    def without_names(self) -> LabelFiles:
        """Hide the names of annotators, and of several files, which may be named after annotators."""
        return replace(
            self,
            paths=[Path("FILES")] if self.paths[1:] else self.paths,
            annotator_columns=["NAMES"] if self.annotator_columns else (),
            leave_out=["NAMES"] if self.leave_out else (),
            batch=dict.fromkeys(self.batch, "VALUE") if self.batch else None,
            names=Path("NAMES.csv") if self.names is not None else None,
        )

    @property
    def inputs(self) -> list[Path]:
        """All files that are read, which must not be overwritten."""
        lists = (self.rename, self.names, self.gold, self.history)
        return [*self.paths, *(file for file in lists if isinstance(file, Path))]

    @property
    def gold_from(self) -> str:
        return str(self.gold or "the labels' file")

    def read(self) -> LabelsRead:
        self.naming.check()
        with progress("reading labels"):
            try:
                return self.joined(self.parts())
            except CrowdshotError as error:
                self._explain(error)
                raise

    def _explain(self, error: CrowdshotError) -> None:
        """Add all other problems of the files to an error, and the options that solve all of them."""
        files = [path for path in self.paths if path.is_file()]
        if sum(path.stat().st_size for path in files) > MOST_BYTES or any(map(_is_wide, files)):
            return
        found = self.diagnose()
        if found.error is None or found.error.message != error.message:
            return
        for problem in found.problems[1:]:
            error.add_note(problem.message)
        if found.read is not None and (found.problems[1:] or "NAME" in str(error.hint)):
            error.hint = Proposal("to solve this", **found.arguments)

    def diagnose(self) -> Diagnosis:
        """Return what keeps the files from being read, and what solves it."""
        from crowdshot.labels.formats.diagnosis import diagnose

        def read(arguments: Mapping[str, Any]) -> LabelsRead:
            labels = replace(self, **arguments)
            return labels.joined(labels.parts())

        return diagnose(self.paths, self.arguments(), read)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `read_labels`."""
        names = (*READ, "names", "ordered", "categories", "leave_out", "file_names")
        return {name: getattr(self, name) for name in names if name != "paths"}

    @property
    def naming(self) -> Naming:
        fields = ("rename", "merge_case", "names", "multi_label", "ordered", "categories", "leave_out", "file_names")
        return Naming(**{name: getattr(self, name) for name in fields})

    def parts(self) -> list[LabelsRead]:
        """Read the labels of each file."""
        return read_parts(**{name: getattr(self, name) for name in READ})

    def joined(self, parts: Sequence[LabelsRead], strangers: Strangers = "refuse") -> LabelsRead:
        """Join labels of several sources; ``strangers`` is what happens to options that name unknown annotators."""
        naming = replace(self.naming, strangers=strangers, gold=self._gold_spellings(parts))
        read = join_parts(parts, naming, called(self.paths))
        if self.history is not None:
            read = replace(read, history=AnnotatorPriors.read(self.history))
        if not (self.categories or self.ordered):
            refuse_many(read.names, str(self))
        if self.gold is None:
            return read
        gold = gold_labels.read(self.gold, self._gold_columns(read), read.spelling)
        gold = {file_name(str(item)): label for item, label in gold.items()} if self.file_names else gold
        if self.ordered:
            refuse_others(gold.values(), self.ordered, str(self.gold))
        warn_new_classes(gold, read, str(self.gold))
        return replace(read, gold=gold)

    def values(self, column: str) -> list[str]:
        """Return the different values of a column of the files."""
        files = [LabelFile(path, sheet=self.sheet, skip_bad=self.skip_bad) for path in self.paths]
        return sorted({value for file in files for value in values_of(file, column)})

    def _gold_spellings(self, parts: Sequence[LabelsRead]) -> list[str]:
        """Return the classes of the gold table before renaming, which may reconcile two of them."""
        if self.gold is None or not isinstance(self.rename, Mapping):
            return []
        with suppress(CrowdshotError):
            return list(gold_labels.read(self.gold, self._gold_columns(parts[0])).values())
        return []

    def _gold_columns(self, read: LabelsRead) -> Columns:
        """Return the columns of the gold table, which may have a column for each of several questions.

        The question is what ``columns`` or ``batch`` chooses.
        """
        columns = read.annotations.columns
        questions = [name for name in ((self.columns or {}).get("label"), *(self.batch or {}).values()) if name]
        if self.gold is None or not questions:
            return columns
        header = read_table(self.gold).header
        return columns._replace(label=next((name for name in questions if name in header), columns.label))

    def options(self) -> dict[str, Any]:
        """Return the options as typed, for `crowdshot.formatting.command`."""
        values = {name.removesuffix("_name").replace("_", "-"): value for name, value in vars(self).items()}
        del values["paths"]
        return {name: ",".join(value) if isinstance(value, list | tuple) else value for name, value in values.items()}


def merging_options(read: LabelsRead) -> dict[str, Any]:
    """Return the options that merge labels with nearly the same name, for `crowdshot.formatting.command`."""
    options = merging([group for group in read.near_duplicates if group.of == "labels"])
    return {name.replace("_", "-"): value for name, value in options.items()}


@dataclass(frozen=True)
class ItemFiles:
    """Items: a folder of images, a file of features, texts, or none.

    Parameters
    ----------
    images, features, texts : Path, optional
        The items; at most one of the three.
    encoder : str, optional
        The name or file of an encoder. By default it is chosen to suit the items.
    skip_bad : bool
        Whether to leave out unreadable items, and labels of missing items.
    processes : int
        The number of processes that embed images.
    engine : str
        Where these processes run: "local" or "ray".
    sheet : str, optional
        The sheet with the texts, if a workbook has several.
    allow_outside : bool
        Whether files of encoders may use networks of other libraries, for the rest of the process.
    """

    images: Path | None = None
    features: Path | None = None
    encoder: str | None = None
    skip_bad: bool = False
    texts: Path | None = None
    processes: int = 1
    engine: str = "local"
    sheet: str | None = None
    allow_outside: bool = False

    def __post_init__(self) -> None:
        for kind in ITEMS:
            if getattr(self, kind) is not None:
                require(*NEEDED, user=f"Reading {kind}", extra=kind)

    def __bool__(self) -> bool:
        return any(getattr(self, kind) is not None for kind in ITEMS)

    def open(self, mixed: bool | None = None, wanted: Sequence[str] | None = None) -> Items:
        """Open the items.

        Parameters
        ----------
        mixed : bool, optional
            Whether features are a table with categories. By default this is recognised.
        wanted : sequence of str, optional
            The columns to read from such a table.
        """
        from crowdshot.encoders.items import (
            Items,
            open_items,  # here, as labels alone need not wait for torch
        )

        if self.allow_outside:
            from crowdshot.encoders.outside import stay_allowed

            stay_allowed(True)
        if self.texts is None:
            return open_items(self.images, self.features, mixed, wanted)
        other = "images" if self.images else "features" if self.features else None
        if other is not None:
            raise CrowdshotError(f"cannot be combined with {other}", argument="texts", expected="one of the two")
        ids, texts, are_files = read_text_items(self.texts, self.sheet, self.skip_bad)
        return Items("texts", shown(self.texts), ids, texts, are_files)

    def embed_ahead(self, images: Sequence[Path], encoder: Encoder, precision: str = "float32") -> None:
        """Embed images in several processes, if more than one is requested, so that their embeddings are cached."""
        if self.images is not None and (self.processes > 1 or self.engine != "local"):
            from crowdshot.engine.parallel_embedding import embed_ahead  # as above

            embed_ahead(images, encoder, self.processes, self.engine, precision)

    def pieces(
        self, mixed: bool, like: Iterable[Any] = (), wanted: Sequence[str] | None = None
    ) -> Iterator[tuple[Items, int, int]]:
        """Read the items in pieces of limited size.

        Parameters
        ----------
        mixed, wanted
            As in `open`.
        like : iterable
            Known ids. Image files get ids of the same style (with or without folder and suffix).

        Yields
        ------
        items : Items
            The next items.
        done, total : int
            The progress: what has been read, in all (items, bytes or rows).
        """
        from crowdshot.encoders.items import Items  # as above

        paths = [path for path in (self.images, self.features, self.texts) if path is not None]
        file = self.texts or self.features
        if len(paths) == 1 and self.features is not None and is_array(self.features):
            for found, done, total in array_pieces(self.features, AT_ONCE):
                yield Items("features", shown(self.features), *found), done, total
            return
        if len(paths) != 1 or file is None or not can_be_cut(file):
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
        names = ("images", "features", "texts", "encoder", "skip_bad", "allow_outside")
        return {name.replace("_", "-"): getattr(self, name) for name in names}


NO_ITEMS = ItemFiles()


@dataclass(frozen=True)
class Output:
    """The folder to write; ``overwrite`` allows a folder that is not empty."""

    out: Path
    overwrite: bool = False
