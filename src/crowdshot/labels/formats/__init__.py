"""Read labels from the files of label tools and from tables, and write results for these tools.

Each module reads the files of one tool, or of two that are alike. To add a format, write a module with a ``FORMAT``
(see `label_file.Format`) and list it in `FORMATS`, with signs by which a file may be of the format: only then the
module is imported. The first format that recognises a file reads it, so formats with stricter tests come first. The
functions in `WRITERS` (see `writers`) write results.

>>> from crowdshot import WRITERS, Annotations, aggregate
>>> from crowdshot.labels.formats import LabelsRead
>>> labels = Annotations.from_dict({"a": {"ann": "cat", "bob": "cat"}, "b": {"ann": "dog"}})
>>> WRITERS["coco"]("consensus.json", aggregate.learned(labels).to_frame(), LabelsRead(labels))
>>> sorted(WRITERS)[:3]
['argilla', 'cleanlab', 'coco']
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

from crowdshot.errors import CrowdshotError, NoLabelError
from crowdshot.io.archive_limits import ZIP
from crowdshot.labels.columns import ColumnsInput, split_time
from crowdshot.labels.formats.cleaning import Naming, apply_naming
from crowdshot.labels.formats.label_file import (
    Format,
    LabelFile,
    LabelsRead,
    Project,
    SourceUsed,
    SpellingFactory,
    distinct_names,
    join_labels,
    with_file_names,
)
from crowdshot.labels.formats.label_selection import OTHER_BATCHES, Selection, select_rows, select_times
from crowdshot.labels.formats.plain_tables import is_long, may_be_turned, sheets_with_labels
from crowdshot.labels.formats.writers import WRITERS, to_label_studio, write_questions
from crowdshot.labels.item_names import named_otherwise
from crowdshot.labels.label_times import DateOrder, TimeOptions, check_dates
from crowdshot.labels.spelling import NewNames, spelling_of

__all__ = [
    "FORMATS",
    "WRITERS",
    "Format",
    "LabelFile",
    "LabelsRead",
    "Project",
    "called",
    "join_parts",
    "read_labels",
    "read_parts",
    "to_label_studio",
    "write_questions",
]


class KnownFormat(NamedTuple):
    """A format, and whether a file may be of it; the module is imported only if so.

    ``reader`` is the module and the name of its `Format`, such as "crowd_markets:MTURK".
    """

    reader: str
    may_match: Callable[[LabelFile], bool]

    def load(self) -> Format:
        module, _, name = self.reader.partition(":")
        found: Format = getattr(import_module(f"crowdshot.labels.formats.{module}"), name or "FORMAT")
        return found

    def recognises(self, file: LabelFile, columns: ColumnsInput = None) -> bool:
        return self.may_match(file) and self.load().recognises(file, columns)


def _has(*names: str) -> Callable[[LabelFile], bool]:
    """Return the function that says whether a file has one of these fields or columns."""
    return lambda file: any(name in file.first for name in names)


def _may_be_doccano(first: Mapping[str, Any]) -> bool:
    """Return whether a record has its labels in a list."""
    return any(isinstance(first.get(name), list) for name in ("label", "labels", "cats", "entities", "annotations"))


FORMATS: dict[str, KnownFormat] = {
    "cvat": KnownFormat("cvat", lambda file: file.is_xml or file.data.startswith(ZIP)),
    "doccano": KnownFormat("doccano", lambda file: file.data.startswith(ZIP) or _may_be_doccano(file.first)),
    "label-studio": KnownFormat("label_studio", _has("annotations", "annotation_id")),
    "argilla": KnownFormat("argilla", lambda file: any(name.endswith("responses") for name in file.first)),
    "prodigy": KnownFormat("prodigy", _has("answer")),
    "potato": KnownFormat("potato", _has("label_annotations", "instance_id_to_label_to_value")),
    "zooniverse": KnownFormat("zooniverse", _has("subject_ids")),
    "labelbox": KnownFormat("labelbox", _has("data_row")),
    "langfuse": KnownFormat("traces:LANGFUSE", _has("traceId", "trace_id", "data")),
    "phoenix": KnownFormat("traces:PHOENIX", _has("span_id", "data")),
    "toloka": KnownFormat("crowd_markets:TOLOKA", _has("ASSIGNMENT:worker_id")),
    "mturk": KnownFormat("crowd_markets:MTURK", _has("HITId")),
    "judges": KnownFormat("verdicts", lambda file: file.is_lines or file.is_array),
    "turned": KnownFormat("transposed", may_be_turned),
    "wide": KnownFormat("plain_tables:WIDE", lambda file: True),
    "long": KnownFormat("plain_tables:LONG", lambda file: True),  # last: it reports what is missing in any table
}
Path = str | os.PathLike[str]


def read_labels(
    paths: Path | Iterable[Path],
    columns: ColumnsInput = None,
    format_name: str | None = None,
    *,
    sheet: str | None = None,
    annotator_columns: Sequence[str] = (),
    rename: NewNames = None,
    merge_case: bool = False,
    names: NewNames = None,
    multi_label: bool = False,
    ordered: Sequence[str] = (),
    categories: bool = False,
    leave_out: Sequence[str] = (),
    file_names: bool = False,
    dates: DateOrder | None = None,
    skip_bad: bool = False,
    since: str | None = None,
    batch: Mapping[str, str | None] | None = None,
) -> LabelsRead:
    """Read labels from one or more files.

    The format of each file is recognised from its content. Several files are parts of one export, or the labels of one
    annotator each. A file that does not name its annotator is attributed to an annotator with the file's name. Files of
    different formats may be combined. Files without any label are skipped and counted.

    Parameters
    ----------
    paths : path-like or iterable of path-like
    columns : mapping, Columns or sequence of str, optional
        The columns of the item, the annotator and the label, if their names do not show it: ``{role: column}`` or three
        names in this order. The role "time" names the column with the labels' times.
    format_name : str, optional
        A name in `FORMATS`, if the format is not recognised.
    sheet : str, optional
        The sheet of a workbook, if several could hold labels.
    annotator_columns : sequence of str
        The columns of annotators in a wide table, if they are not recognised.
    rename : mapping or path-like, optional
        ``{label: new name}``, or a table with the columns ``old`` and ``new``. Labels renamed to "" are dropped.
    merge_case : bool
        Merge labels that differ only in case and spaces, under their most frequent spelling.
    names : mapping or path-like, optional
        ``{annotator: name}``, or a table with these columns. Annotators with the same name are merged.
    multi_label : bool
        Whether an answer may name several labels, such as "cat;dog" (see `labels.label_sets`).
    ordered : sequence of str
        The classes from the lowest to the highest; other labels are an error.
    categories : bool
        Accept labels as class names although they look like measurements or like several labels.
    leave_out : sequence of str
        Annotators whose labels are dropped.
    file_names : bool
        Identify items by the names of their files, so that ``photos/1.png`` and ``https://host/1.png`` are one item.
    dates : {"day-first", "month-first"}, optional
        How to read dates such as 3/4/2026, if the files do not show it.
    skip_bad : bool
        Leave out rows of tables with a label but no item or annotator, and those with too many or too few cells.
    since : str, optional
        Read only labels given at this date or later, such as "2026-03-04". Labels without a time are dropped.
    batch : mapping, optional
        ``{column: value}``: read only rows (or records) that have this value in a column.

    Returns
    -------
    LabelsRead

    Raises
    ------
    CrowdshotError
        If a file cannot be read, no file has a label, or an argument does not fit the files.

    Examples
    --------
    >>> from pathlib import Path
    >>> from crowdshot import read_labels
    >>> _ = Path("labels.csv").write_text("image,worker,label\\n1.png,ann,cat\\n1.png,bob,Cat\\n2.png,ann,cat\\n")
    >>> read = read_labels("labels.csv", merge_case=True)
    >>> read.annotations.classes.tolist(), read.annotations.n_labels
    (['cat'], 3)
    """
    naming = Naming(rename, merge_case, names, multi_label, ordered, categories, leave_out, file_names)
    naming.check()
    paths = _as_list(paths)
    parts = read_parts(
        paths, columns, format_name, sheet=sheet, annotator_columns=annotator_columns, multi_label=multi_label,
        rename=rename, merge_case=merge_case, dates=dates, skip_bad=skip_bad,
        since=since, batch=batch,
    )  # fmt: skip
    return join_parts(parts, naming, called(paths))


def read_parts(
    paths: Path | Iterable[Path],
    columns: ColumnsInput = None,
    format_name: str | None = None,
    *,
    sheet: str | None = None,
    annotator_columns: Sequence[str] = (),
    multi_label: bool = False,
    rename: NewNames = None,
    merge_case: bool = False,
    dates: DateOrder | None = None,
    skip_bad: bool = False,
    since: str | None = None,
    batch: Mapping[str, str | None] | None = None,
) -> list[LabelsRead]:
    """Read the labels of each file without renaming them: the first step of `read_labels`.

    ``rename`` and ``merge_case`` serve only to check whether annotators chose the labels in a column of true labels.
    """
    if format_name is not None and format_name not in FORMATS:
        raise CrowdshotError(
            f"is {format_name!r}",
            argument="format_name",
            found=format_name,
            expected=f"one of {', '.join(FORMATS)}",
            among=FORMATS,
        )
    check_dates(dates)
    selection = Selection(batch or {}, since, dates)
    selection.check()
    columns, time_column = split_time(columns)
    # a label in rename may occur in another file only
    spelling = partial(spelling_of, rename=rename, merge_case=merge_case, strangers="allow")
    files = _open(
        _as_list(paths), sheet, annotator_columns, multi_label, spelling, TimeOptions(time_column, dates), skip_bad
    )
    files = [part for file in files for part in sheets_with_labels(file, lambda part: _fits(part, columns))]
    parts: list[LabelsRead] = []
    empty: list[NoLabelError] = []
    for file in files:
        try:
            parts.append(_read(file, format_name or _recognise(file, columns), columns, selection))
        except NoLabelError as error:
            empty.append(error)
    if not parts and empty[0].argument is not None:  # a wrong option is an error even where no label is none
        raise CrowdshotError(**vars(empty[0]))
    if not parts:
        raise empty[0]
    if empty:
        parts[-1] = replace(parts[-1], left_out={**parts[-1].left_out, "files without a label": len(empty)})
    return parts


def join_parts(parts: Sequence[LabelsRead], naming: Naming, source: str) -> LabelsRead:
    """Combine the labels of files and apply ``naming``: the second step of `read_labels`."""
    if naming.file_names:
        parts = [with_file_names(part) for part in parts]
    elif len(parts) == 1:
        return apply_naming(parts[0], naming, source)
    similar_items = named_otherwise([part.annotations.items for part in parts])
    return apply_naming(join_labels(source, parts), naming, source, similar_items)


def called(paths: Path | Iterable[Path]) -> str:
    """Return the name of the files in messages."""
    first, *more = _as_list(paths) or ["labels"]
    return f"{first} and {len(more)} more" if more else str(first)


def _read(file: LabelFile, format_name: str, columns: ColumnsInput, selection: Selection) -> LabelsRead:
    file, n_others = select_rows(file, selection, format_name)
    read = select_times(FORMATS[format_name].load().read(file, columns), selection, file.name)
    if n_others:
        read = replace(read, left_out={**read.left_out, OTHER_BATCHES: n_others})
    sheet = next(iter(file.sheets), None) if len(file.sheets) == 1 else None
    used = read.sources or [SourceUsed(file.name, columns=dict(read.annotations.columns._asdict()))]
    return replace(read, sources=[replace(source, format=format_name, sheet=sheet) for source in used])


def _as_list(paths: Path | Iterable[Path]) -> list[Path]:
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)


def _open(
    paths: list[Path],
    sheet: str | None,
    annotator_columns: Sequence[str],
    several: bool,
    spelling: SpellingFactory,
    times: TimeOptions,
    skip_bad: bool,
) -> list[LabelFile]:
    if not paths:
        raise CrowdshotError("is empty", argument="paths", found=paths, expected="one file of labels at least")
    names = distinct_names(paths) if len(paths) > 1 else [None]
    options = (sheet, annotator_columns, several, spelling, times, skip_bad)
    files = [LabelFile(path, name, *options) for path, name in zip(paths, names, strict=True)]
    if sheet is not None and not any(file.sheets for file in files):
        raise CrowdshotError(
            f"is {sheet!r}, but {files[0].name} is not an Excel workbook", argument="sheet", found=sheet
        )
    return files


def _fits(file: LabelFile, columns: ColumnsInput) -> bool:
    return _recognise(file, columns) != "long" or is_long(file, columns)


def _recognise(file: LabelFile, columns: ColumnsInput) -> str:
    return next(name for name, known in FORMATS.items() if known.recognises(file, columns))
