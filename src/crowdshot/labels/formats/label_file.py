"""Input and output of the readers of labels, and the steps that they share."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import PurePath
from typing import Any, NamedTuple, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError, NoLabelError, Use
from crowdshot.formatting import counted
from crowdshot.io.archive_limits import ZIP
from crowdshot.io.cells import Ids, trim
from crowdshot.io.tables import (
    RaggedError,
    Record,
    Table,
    only,
    parse_array,
    parse_lines,
    parse_table,
    parse_workbook,
    read_bytes,
    rows_of,
    starts_with,
)
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_quality import AnnotatorPriors
from crowdshot.labels.columns import Columns, ColumnsInput
from crowdshot.labels.item_names import address, file_name
from crowdshot.labels.label_durations import read_durations
from crowdshot.labels.label_times import (
    NO_OPTIONS,
    TimeOptions,
    Times,
    in_time,
    join_times,
    read_times,
    with_durations,
)
from crowdshot.labels.spelling import (
    Respelled,
    Spelling,
    Twins,
    alike,
    counts_of,
    members,
    names_of,
    near_duplicates,
    spelling_of,
)

BAD_ROWS = Use("to leave out such rows", skip_bad=True)
UNLABELLED_TASKS = "tasks nobody labelled"
SpellingFactory = Callable[[Mapping[str, int]], Spelling]  # counts of the labels as written -> function that renames


class LabelFile:
    """A file of labels, read once; each view of its content is created when a format first needs it.

    Parameters
    ----------
    path : path-like
    annotator : str, optional
        The annotator of the whole file, used if there are several files and the file does not name annotators.
    sheet : str, optional
        The sheet of a workbook to read.
    annotator_columns : sequence of str
        The columns of annotators in a wide table.
    several : bool
        Whether an answer may have several labels, which are then joined (`labels.label_sets`).
    spelling : callable
        Returns the function that renames labels, given the number of labels of each spelling.
    times : TimeOptions
        How times are read.
    skip_bad : bool
        Whether to leave out rows that cannot be read.
    """

    name: str
    stem: str
    data: bytes

    def __init__(
        self,
        path: str | os.PathLike[str],
        annotator: str | None = None,
        sheet: str | None = None,
        annotator_columns: Sequence[str] = (),
        several: bool = False,
        spelling: SpellingFactory = spelling_of,
        times: TimeOptions = NO_OPTIONS,
        skip_bad: bool = False,
    ) -> None:
        self.name = os.fspath(path)
        self.stem = PurePath(path).stem
        self.annotator = annotator
        self.sheet = sheet
        self.annotator_columns = annotator_columns
        self.several = several
        self.spelling = spelling
        self.times = times
        self.skip_bad = skip_bad
        self.data = read_bytes(path)

    @cached_property
    def sheets(self) -> dict[str, Table | CrowdshotError]:
        """The tables of a workbook, or the errors in reading them, by sheet; {} for other files."""
        if not self.data.startswith(ZIP):
            return {}
        from crowdshot.io.workbooks import is_workbook

        return parse_workbook(self.data, self.name, self.sheet) if is_workbook(self.data) else {}

    def at(self, sheet: str, annotator: str | None = None) -> LabelFile:
        """Return the same workbook with only this sheet, attributed to an annotator."""
        other = copy.copy(self)
        other.sheets = {sheet: self.sheets[sheet]}
        other.annotator = annotator or self.annotator
        return other

    @cached_property
    def is_array(self) -> bool:
        return starts_with(self.data, b"[")

    @cached_property
    def is_lines(self) -> bool:
        return starts_with(self.data, b"{")

    @cached_property
    def is_xml(self) -> bool:
        return starts_with(self.data, b"<?xml", b"<!DOCTYPE", b"<annotations")

    @cached_property
    def table(self) -> Table:
        if self.sheets:
            return only(self.sheets, self.name)
        if not self.is_array:
            try:
                return parse_table(self.data, self.name, skip_bad=self.skip_bad)
            except RaggedError as error:
                error.hint = error.hint or BAD_ROWS
                raise
        frame = pd.DataFrame([record.fields for record in self.records], dtype=object)
        return Table(self.name, frame, np.arange(1, 1 + len(frame)))

    @cached_property
    def records(self) -> list[Record]:
        if self.is_array:
            return parse_array(self.data, self.name)
        return parse_lines(self.data, self.name) if self.is_lines else rows_of(self.table, self.data)

    @cached_property
    def first(self) -> dict[str, Any]:
        """The first record, or just the names of the columns, by which formats recognise their files."""
        if self.is_array:
            return self.records[0].fields
        if self.is_lines:
            return parse_lines(self.data, self.name, most=1)[0].fields
        return dict.fromkeys(self.table.header)


class ProjectTask(NamedTuple):
    item: str
    id: Any
    data: dict[str, Any]


@dataclass(frozen=True)
class Project:
    """The Label Studio project that labels came from: what predictions for it need.

    ``tasks`` includes tasks that nobody labelled.
    """

    from_name: str = "label"
    to_name: str = "image"
    data_key: str = "image"
    tasks: tuple[ProjectTask, ...] = ()


@dataclass(frozen=True)
class SourceUsed:
    """What was read from a file: its format, sheet and columns.

    Attributes
    ----------
    file : str
    format : str
        A name in `FORMATS`.
    sheet : str or None
        The sheet of a workbook.
    columns : dict
        Role -> column, such as ``{"item": "Photo", "label": "Answer"}``; "annotator" may be a list of columns.
    unused : list of str
        The other columns of a table.
    """

    file: str
    format: str = ""
    sheet: str | None = None
    columns: dict[str, str | list[str]] = field(default_factory=dict)
    unused: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LabelsRead:
    """Labels of one or more files.

    Attributes
    ----------
    annotations : Annotations
    left_out : dict
        Reason -> number or names of the entries that were left out.
    gold : dict
        True labels of some items in the files, ``{item: label}``.
    project : Project or None
        The project of Label Studio that the labels came from.
    spelling : callable
        Renames a label that is written elsewhere, such as in a table of true labels.
    people : dict
        Annotators who were renamed, ``{written: name}``.
    respelled : list of Respelled
        Labels and annotators that were renamed, with counts.
    several : bool
        Whether the classes are sets of labels (`labels.label_sets`).
    ordered : bool
        Whether the classes are sorted from the lowest to the highest.
    history : AnnotatorPriors
        Results of the annotators in earlier projects.
    times : Times or None
        When each label was given, if the files say so.
    emails : dict
        E-mail addresses of annotators who have one in the files.
    sources : list of SourceUsed
        What was read from each file.
    """

    annotations: Annotations
    left_out: dict[str, int | list[str]] = field(default_factory=dict)
    gold: dict[str, str] = field(default_factory=dict)
    project: Project | None = None
    spelling: Spelling = trim
    people: dict[str, str] = field(default_factory=dict)
    respelled: list[Respelled] = field(default_factory=list)
    several: bool = False
    ordered: bool = False
    history: AnnotatorPriors = field(default_factory=lambda: AnnotatorPriors({}))
    times: Times | None = None
    emails: dict[str, str] = field(default_factory=dict)
    sources: list[SourceUsed] = field(default_factory=list)

    def __repr__(self) -> str:
        files = ", ".join(f"{source.file} ({source.format})" for source in self.sources)
        return f"LabelsRead({self.annotations!r} from {files or 'memory'})"

    @property
    def names(self) -> Ids:
        """The labels (K,) that an answer may have."""
        return names_of(self.annotations.classes) if self.several else self.annotations.classes

    def keep(self, wanted: NDArray[np.bool_]) -> Self:
        """Keep the labels selected by a mask (L,); items, annotators and classes stay."""
        times = None if self.times is None else self.times.take(wanted)
        return replace(self, annotations=self.annotations.keep(wanted), times=times)

    def without_names(self) -> Self:
        """Replace the names of annotators by numbers, in their order.

        Names of what was left out are replaced by counts, because a column may have the name of a person.
        """
        people = np.array(
            [f"annotator {number}" for number in range(1, self.annotations.n_annotators + 1)], dtype=object
        )
        respelled = [each for each in self.respelled if each.of != "annotators"]
        records = zip(people, map(tuple, self.history.of(self.annotations.annotators).tolist()), strict=True)
        counts = {
            reason: len(entries) if isinstance(entries, list) else entries for reason, entries in self.left_out.items()
        }
        return replace(
            self,
            annotations=replace(self.annotations, annotators=people),
            left_out=dict(counts),
            people={},
            emails={},
            sources=[],
            respelled=respelled,
            history=AnnotatorPriors(dict(records)),
        )

    @property
    def near_duplicates(self) -> list[Twins]:
        """Groups of labels and of annotators that are probably spellings of one name."""
        if not self.several:
            return near_duplicates(self.annotations, self.emails)
        ann, names = self.annotations, self.names
        named = np.nonzero(members(ann.classes, names)[ann.label])[1]
        people = counts_of(ann.annotators, ann.annotator)
        return alike("labels", counts_of(names, named)) + alike("annotators", people, self.emails)


class Format(NamedTuple):
    """A format of label files: two functions of a file and the caller's columns.

    ``recognises`` must not raise an error if the file is of another tool.
    """

    recognises: Callable[[LabelFile, ColumnsInput], bool]
    read: Callable[[LabelFile, ColumnsInput], LabelsRead]


class Entry(NamedTuple):
    """A label that an annotator gave to an item, its time and how long it took, as written."""

    item: str
    annotator: str
    label: str
    when: str = ""
    duration: str = ""


def gather(
    source: str,
    entries: Sequence[Entry],
    columns: Columns,
    left_out: Mapping[str, int],
    gold: Mapping[str, str] | None = None,
    project: Project | None = None,
    times: TimeOptions = NO_OPTIONS,
) -> LabelsRead:
    """Convert entries to labels.

    Parameters
    ----------
    source : str
        The file in messages.
    entries : sequence of Entry
    columns : Columns
        Column names for output; the default names replace them if two are equal.
    left_out : mapping
        Reason -> number of entries that were left out.
    gold : mapping, optional
        True labels of some items.
    project : Project, optional
    times : TimeOptions
        How times are read.

    Returns
    -------
    LabelsRead
    """
    dropped: dict[str, int | list[str]] = {reason: number for reason, number in left_out.items() if number}
    if not entries:
        reasons = ", ".join(counted(number, reason) for reason, number in left_out.items() if number)
        found = f" ({reasons})" if reasons else ""
        raise NoLabelError(f"holds no label that can be used{found}", where=source, expected="one at least")
    names = columns if len(set(columns)) == len(columns) else Columns()
    items, annotators = (dict.fromkeys(entry[role] for entry in entries) for role in (0, 1))
    given = None
    if any(entry.when or entry.duration for entry in entries):
        given = read_times([entry.when for entry in entries], times.column or "", source, times.dates)
        if any(entry.duration for entry in entries):
            given = with_durations(given, read_durations(entry.duration for entry in entries))
        order = np.argsort(np.nan_to_num(given.seconds, nan=-np.inf), kind="stable")
        entries, given = [entries[row] for row in order], given.take(order)
    frame = pd.DataFrame({name: [entry[i] for entry in entries] for i, name in enumerate(names)}, dtype=object)
    annotations, given = in_time(
        frame,
        names,
        given,
        source,
        items=items,
        annotators=annotators,
    )
    return LabelsRead(annotations, dropped, dict(gold or {}), project, times=given)


def with_file_names(read: LabelsRead) -> LabelsRead:
    """Replace the items of a file by their file names, without folders, addresses and prefixes of uploads.

    Names may then occur twice among the items; `join_labels` merges them.
    """
    ann, source = read.annotations, read.sources[0].file if read.sources else None
    meant: dict[str, str] = {}
    for item in map(str, ann.items):
        other = meant.setdefault(file_name(item), item)
        if address(other) != address(item):
            raise CrowdshotError(
                f"would merge {other!r} and {item!r}",
                argument="file_names",
                where=source,
                found=[other, item],
                expected="file names that differ within a file",
            )
    items = np.array([file_name(str(item)) for item in ann.items], dtype=object)
    project = read.project
    if project is not None:
        tasks = tuple(task._replace(item=file_name(task.item)) for task in project.tasks)
        project = replace(project, tasks=tasks)
    gold = {file_name(str(item)): label for item, label in read.gold.items()}
    return replace(read, annotations=replace(ann, items=items), gold=gold, project=project)


def join_labels(source: str, parts: Sequence[LabelsRead]) -> LabelsRead:
    """Combine the labels of several files under the column names of the first."""
    names = parts[0].annotations.columns
    frames = [part.annotations.to_frame().set_axis(list(names), axis=1) for part in parts]
    annotations, times = in_time(
        pd.concat(frames, ignore_index=True),
        names,
        _join_times(parts),
        source,
        items=dict.fromkeys(item for part in parts for item in part.annotations.items),
        annotators=dict.fromkeys(name for part in parts for name in part.annotations.annotators),
    )
    left_out: dict[str, Any] = {}
    for reason, dropped in (entry for part in parts for entry in part.left_out.items()):
        left_out[reason] = left_out[reason] + dropped if reason in left_out else dropped
    gold: dict[str, str] = {}
    for part in parts:
        for item, label in part.gold.items():
            if gold.setdefault(item, label) != label:
                raise CrowdshotError(
                    f"has the true labels {gold[item]!r} and {label!r} for {item!r}",
                    where=source,
                    found=[gold[item], label],
                    expected="one",
                )
    emails = {name: email for part in parts for name, email in part.emails.items()}
    project = _join_projects([part.project for part in parts])
    return LabelsRead(
        annotations,
        left_out,
        gold,
        project,
        times=times,
        emails=emails,
        sources=[source for part in parts for source in part.sources],
    )


def _join_times(parts: Sequence[LabelsRead]) -> Times | None:
    """Return the times of all labels; None if no file has times."""
    if all(part.times is None for part in parts):
        return None
    return join_times([part.times or Times.unknown(part.annotations.n_labels) for part in parts])


def _join_projects(projects: Sequence[Project | None]) -> Project | None:
    """Return the first file's project, with the tasks of new items from other files with the same tags."""
    first = projects[0]
    if first is None:
        return None
    tasks: list[ProjectTask] = []
    for project in projects:
        if project is not None and replace(project, tasks=()) == replace(first, tasks=()):
            known = {task.item for task in tasks}
            tasks += [task for task in project.tasks if task.item not in known]
    return replace(first, tasks=tuple(tasks))


def distinct_names(names: Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the part of each path that distinguishes it: its stem or, if all stems are equal, the name of its folder.

    >>> distinct_names(["ann/annotations.xml", "bob/annotations.xml"])
    ['ann', 'bob']
    """
    paths = [(*PurePath(name).parts[:-1], PurePath(name).stem) for name in names]
    while len({path[-1] for path in paths}) == 1 and min(map(len, paths)) > 1:
        paths = [path[:-1] for path in paths]
    last = [path[-1] for path in paths]
    return last if len(set(last)) == len(last) else ["/".join(path) for path in paths]
