"""What every reader of labels is given, what it gives back, and the steps that readers share."""

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

from crowdshot.errors import CrowdshotError, NoLabelError
from crowdshot.formatting import counted
from crowdshot.io.cells import Ids, trim
from crowdshot.io.records import Record, parse_array, parse_lines, rows_of, starts_with
from crowdshot.io.tables import Table, only, parse_table, parse_workbook, read_bytes
from crowdshot.io.workbooks import is_workbook
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.annotator_priors import AnnotatorPriors
from crowdshot.labels.columns import Columns, ColumnsInput
from crowdshot.labels.label_sets import members, names_of
from crowdshot.labels.spelling import Respelled, Spelling, Twins, alike, counts_of, near_duplicates, spelling_of
from crowdshot.labels.timestamps import in_time

Spells = Callable[[Mapping[str, int]], Spelling]  # how often each label was written -> what they are called


class LabelFile:
    """A file of labels, read once; each view of it is made when a format first asks for it.

    ``annotator``: whose file it is, where several files were given and the files do not say it themselves. ``sheet``:
    which one of a workbook's is meant. ``annotator_columns``: which ones of a wide table are annotators'. ``several``:
    whether an answer may name several labels, which are then joined (`labels.choices`). ``spells``: what labels are
    called.
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
        spells: Spells = spelling_of,
    ) -> None:
        self.name = os.fspath(path)
        self.stem = PurePath(path).stem
        self.annotator = annotator
        self.sheet = sheet
        self.annotator_columns = annotator_columns
        self.several = several
        self.spells = spells
        self.data = read_bytes(path)

    @cached_property
    def sheets(self) -> dict[str, Table | CrowdshotError]:
        """The tables of a workbook, or what is wrong with them, by their sheets; {} for any other file."""
        return parse_workbook(self.data, self.name, self.sheet) if is_workbook(self.data) else {}

    def at(self, sheet: str, annotator: str | None = None) -> LabelFile:
        """The same workbook, of which this sheet is meant, and whose it is."""
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
            return parse_table(self.data, self.name)
        frame = pd.DataFrame([record.fields for record in self.records], dtype=object)
        return Table(self.name, frame, np.arange(1, 1 + len(frame)))

    @cached_property
    def records(self) -> list[Record]:
        if self.is_array:
            return parse_array(self.data, self.name)
        return parse_lines(self.data, self.name) if self.is_lines else rows_of(self.table, self.data)

    @cached_property
    def first(self) -> dict[str, Any]:
        """The first record, or just the columns' names; what tells one tool's file from another's."""
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
    """The Label Studio project that labels came from, as far as its export tells: what its predictions need.

    ``tasks``: all of them, those that nobody labelled included.
    """

    from_name: str = "label"
    to_name: str = "image"
    data_key: str = "image"
    tasks: tuple[ProjectTask, ...] = ()


@dataclass(frozen=True)
class LabelsRead:
    """The labels of one or more files, and what was left out for which reason: how many entries, or which.

    ``gold``: the true labels that a file tells of some items, {item: label}. ``spelling``: what a label is called that
    is written elsewhere, in a table of true labels say; ``people``: the same of annotators, of those who are called
    otherwise, {written: name}; ``respelled``: what is called otherwise than it was written.
    ``several``: whether the annotations' classes are sets of labels (`labels.choices`); ``ordered``: whether they go
    from the lowest to the highest. ``history``: what annotators did in earlier projects. ``when``: (L,) when each label
    was given, as it was written, None where that is not known or no longer needed.
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
    when: Ids | None = None

    @property
    def names(self) -> Ids:
        """(K,) the labels that an answer may name."""
        return names_of(self.annotations.classes) if self.several else self.annotations.classes

    def keep(self, wanted: NDArray[np.bool_]) -> Self:
        """With some of the labels, (L,); items, annotators and classes stay."""
        when = None if self.when is None else self.when[wanted]
        return replace(self, annotations=self.annotations.keep(wanted), when=when)

    def without_names(self) -> Self:
        """The same, but annotators are called by numbers, in the order in which they came.

        What was left out is counted alone: columns of no annotator may be called by one's name.
        """
        people = np.array(
            [f"annotator {number}" for number in range(1, self.annotations.n_annotators + 1)], dtype=object
        )
        respelled = [each for each in self.respelled if each.of != "annotators"]
        records = zip(people, map(tuple, self.history.of(self.annotations.annotators).tolist()), strict=True)
        counts = {reason: len(what) if isinstance(what, list) else what for reason, what in self.left_out.items()}
        return replace(
            self,
            annotations=replace(self.annotations, annotators=people),
            left_out=dict(counts),
            people={},
            respelled=respelled,
            history=AnnotatorPriors(dict(records)),
        )

    @property
    def near_duplicates(self) -> list[Twins]:
        if not self.several:
            return near_duplicates(self.annotations)
        ann, names = self.annotations, self.names
        named = np.nonzero(members(ann.classes, names)[ann.label])[1]
        people = counts_of(ann.annotators, ann.annotator)
        return alike("labels", counts_of(names, named)) + alike("annotators", people)


class Format(NamedTuple):
    """``recognises`` may look at anything but must not raise because the file is another tool's."""

    recognises: Callable[[LabelFile, ColumnsInput], bool]
    read: Callable[[LabelFile, ColumnsInput], LabelsRead]


class Entry(NamedTuple):
    """Who said what about which item; ``when`` sorts the labels that one annotator gave one item."""

    item: str
    annotator: str
    label: str
    when: str = ""


def gather(
    source: str,
    entries: Sequence[Entry],
    columns: Columns,
    left_out: Mapping[str, int],
    gold: Mapping[str, str] | None = None,
    project: Project | None = None,
) -> LabelsRead:
    """Entries -> labels under these column names (or the plain ones, where two of these are the same)."""
    dropped: dict[str, int | list[str]] = {reason: number for reason, number in left_out.items() if number}
    if not entries:
        reasons = ", ".join(counted(number, reason) for reason, number in left_out.items() if number)
        found = f" ({reasons})" if reasons else ""
        raise NoLabelError(f"{source} holds no label that can be used{found}, expected one at least.")
    names = columns if len(set(columns)) == len(columns) else Columns()
    ordered = sorted(entries, key=lambda entry: entry.when)
    frame = pd.DataFrame({name: [entry[i] for entry in ordered] for i, name in enumerate(names)}, dtype=object)
    annotations, when = in_time(
        frame,
        names,
        np.array([entry.when for entry in ordered], dtype=object) if ordered[-1].when else None,
        source,
        items=dict.fromkeys(entry.item for entry in entries),
        annotators=dict.fromkeys(entry.annotator for entry in entries),
    )
    return LabelsRead(annotations, dropped, dict(gold or {}), project, when=when)


def join(source: str, parts: Sequence[LabelsRead]) -> LabelsRead:
    """The labels of several files as one; columns are called as in the first."""
    names = parts[0].annotations.columns
    frames = [part.annotations.to_frame().set_axis(list(names), axis=1) for part in parts]
    annotations, when = in_time(
        pd.concat(frames, ignore_index=True),
        names,
        _join_times(parts),
        source,
        items=dict.fromkeys(item for part in parts for item in part.annotations.items),
        annotators=dict.fromkeys(who for part in parts for who in part.annotations.annotators),
    )
    left_out: dict[str, Any] = {}
    for reason, what in (entry for part in parts for entry in part.left_out.items()):
        left_out[reason] = left_out[reason] + what if reason in left_out else what
    gold: dict[str, str] = {}
    for part in parts:
        for item, label in part.gold.items():
            if gold.setdefault(item, label) != label:
                raise CrowdshotError(
                    f"{source} has the true labels {gold[item]!r} and {label!r} for {item!r}, expected one."
                )
    return LabelsRead(annotations, left_out, gold, _join_projects([part.project for part in parts]), when=when)


def _join_times(parts: Sequence[LabelsRead]) -> Ids | None:
    """Those of all labels, None for those of files that do not tell; None if no file does."""
    if all(part.when is None for part in parts):
        return None
    unknown = (np.full(part.annotations.n_labels, None, dtype=object) for part in parts)
    return np.concatenate([none if part.when is None else part.when for part, none in zip(parts, unknown, strict=True)])


def _join_projects(projects: Sequence[Project | None]) -> Project | None:
    """The first file's, and of others with the same tags the tasks of items that no file before has."""
    first = projects[0]
    if first is None:
        return None
    tasks: list[ProjectTask] = []
    for project in projects:
        if project is not None and replace(project, tasks=()) == replace(first, tasks=()):
            known = {task.item for task in tasks}
            tasks += [task for task in project.tasks if task.item not in known]
    return replace(first, tasks=tuple(tasks))


def own_names(names: Iterable[str | os.PathLike[str]]) -> list[str]:
    """What tells files apart: their stems or, where all have the same, their folders' names.

    ``ann/annotations.xml`` and ``bob/annotations.xml`` are ann's and bob's.
    """
    paths = [(*PurePath(name).parts[:-1], PurePath(name).stem) for name in names]
    while len({path[-1] for path in paths}) == 1 and min(map(len, paths)) > 1:
        paths = [path[:-1] for path in paths]
    last = [path[-1] for path in paths]
    return last if len(set(last)) == len(last) else ["/".join(path) for path in paths]
