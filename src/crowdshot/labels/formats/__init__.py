"""Files of labels -> `Annotations`, and results -> files. One tool a file, one registry each way.

To add a format: write a module with a ``FORMAT`` (see `formats.labels`) and list it here. The first format
that recognises a file reads it, so those that look for more come first. Writers are in `formats.write`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from crowdshot.errors import CrowdshotError, NoLabelError
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import GivenColumns
from crowdshot.labels.formats import argilla, cvat, label_studio, mturk, prodigy, table, toloka
from crowdshot.labels.formats.labels import Format, LabelFile, LabelsRead, Project, join, own_names
from crowdshot.labels.formats.questions import refuse_measurements
from crowdshot.labels.formats.sheets import with_labels
from crowdshot.labels.formats.write import WRITERS, to_label_studio, write_questions
from crowdshot.labels.spelling import NewNames, alike, near_twins, new_names, respell, spelling_of
from crowdshot.wording import counted

__all__ = [
    "FORMATS",
    "WRITERS",
    "Format",
    "LabelFile",
    "LabelsRead",
    "Project",
    "read_labels",
    "to_label_studio",
    "write_questions",
]

FORMATS: dict[str, Format] = {
    "cvat": cvat.FORMAT,
    "label-studio": label_studio.FORMAT,
    "argilla": argilla.FORMAT,
    "prodigy": prodigy.FORMAT,
    "toloka": toloka.FORMAT,
    "mturk": mturk.FORMAT,
    "wide": table.WIDE,
    "long": table.LONG,  # last: it takes any table, and says what is missing in it
}
Path = str | os.PathLike[str]


def read_labels(
    paths: Path | Iterable[Path],
    columns: GivenColumns = None,
    format_name: str | None = None,
    *,
    sheet: str | None = None,
    annotator_columns: Sequence[str] = (),
    rename: NewNames = None,
    merge_case: bool = False,
    names: NewNames = None,
) -> LabelsRead:
    """Labels from one file or several, whose format is recognised by their content, or named.

    ``columns`` says which columns hold the item, the annotator and the label where their names do not. Several files
    are parts of one export, or each one annotator's: where a file does not say whose its labels are, its name does.
    Answers from a label tool may stand beside a table; a file without any label yet is left out, and counted.

    - ``sheet``: which one of a workbook, where several could hold labels.
    - ``annotator_columns``: which columns of a wide table are annotators', where that is not plain to see.
    - ``rename``: {label: new name}, or a table with the columns old and new; what is renamed to "" is no label.
    - ``merge_case``: labels that differ in case and spaces alone are one, by their most frequent spelling.
    - ``names``: {annotator: name}, or a table with these columns; two with the same name are one.
    """
    if format_name is not None and format_name not in FORMATS:
        raise CrowdshotError(f"format is {format_name!r}, expected one of {', '.join(FORMATS)}.")
    files = _open([paths] if isinstance(paths, str | os.PathLike) else list(paths), sheet, annotator_columns)
    files = [part for file in files for part in with_labels(file, lambda part: _fits(part, columns))]
    parts: list[LabelsRead] = []
    empty: list[NoLabelError] = []
    for file in files:
        try:
            parts.append(FORMATS[format_name or _recognise(file, columns)].read(file, columns))
        except NoLabelError as error:
            empty.append(error)
    if not parts:
        raise empty[0]
    source = files[0].name if len(files) == 1 else f"{files[0].name} and {len(files) - 1} more"
    labels = parts[0] if len(parts) == 1 else join(source, parts)
    if empty:
        labels = replace(labels, left_out={**labels.left_out, "files without a label": len(empty)})
    labels = _call(labels, rename, merge_case, names, source)
    refuse_measurements(labels.annotations.classes.tolist(), source)
    _tell_blanks(labels.annotations.classes, source)
    _tell_twins(labels.annotations, source)
    return labels


def _call(labels: LabelsRead, rename: NewNames, merge_case: bool, names: NewNames, source: str) -> LabelsRead:
    """The labels, the true ones included, and the annotators by what they are called."""
    ann = labels.annotations
    written = dict(zip(ann.classes, np.bincount(ann.label, minlength=ann.n_classes).tolist(), strict=True))
    spelling = spelling_of(written, rename, merge_case)
    people = new_names(names, "names", ("annotator", "name"), ann.annotators)
    ann, respelled = respell(ann, spelling, people, source)
    gold = {item: spelling(label) for item, label in labels.gold.items()}
    gold = {item: label for item, label in gold.items() if label}
    told = [str(each) for each in respelled if each.of == "labels"]
    for line in [*told[:MOST_TOLD], *([f"so are {len(told) - MOST_TOLD} more"] if len(told) > MOST_TOLD else [])]:
        warnings.warn(f"{source}: {line}.", UserWarning, stacklevel=3)
    return replace(labels, annotations=ann, gold=gold, spelling=spelling, respelled=respelled)


MOST_TOLD = 10  # new names of labels; `respelled` has all
BLANKS = ("NA", "N/A", "n/a", "#N/A", "nan", "NaN", "NULL", "null", "None")


def _tell_blanks(classes: Iterable[Any], source: str) -> None:
    """Other programs write these where they have nothing to write."""
    blanks = [name for name in map(str, classes) if name in BLANKS]
    if blanks:
        warnings.warn(
            f"{source}: the label {blanks[0]!r} is taken for a class like any other.", UserWarning, stacklevel=3
        )


def _tell_twins(ann: Annotations, source: str) -> None:
    """Names that somebody may have meant for one: 'Cat' and 'cat', '7' and '7.0'."""
    beyond_ascii = [item for item in ann.items if not str(item).isascii()]  # IMG_1 and img_1 are two
    twins = near_twins(ann) + alike("items", beyond_ascii, np.arange(len(beyond_ascii)))
    for of in ("labels", "annotators", "items"):
        found = [each for each in twins if each.of == of]
        if found:
            number = {2: "two", 3: "three"}.get(len(found[0].names), str(len(found[0].names)))
            more = f" (and {counted(len(found) - 1, 'more groups like it')})" if found[1:] else ""
            remedy = {"labels": "; merge_case=True merges them", "annotators": "; names= can merge them"}.get(of, "")
            told = f"{source}: {found[0]} are taken for {number}{more}{remedy}."
            warnings.warn(told, UserWarning, stacklevel=3)


def _open(paths: list[Path], sheet: str | None, annotator_columns: Sequence[str]) -> list[LabelFile]:
    if not paths:
        raise CrowdshotError("paths is empty, expected one file of labels at least.")
    names = own_names(paths) if len(paths) > 1 else [None]
    files = [LabelFile(path, name, sheet, annotator_columns) for path, name in zip(paths, names, strict=True)]
    if sheet is not None and not any(file.sheets for file in files):
        raise CrowdshotError(f"sheet is {sheet!r}, expected none, as {files[0].name} is no Excel workbook.")
    return files


def _fits(file: LabelFile, columns: GivenColumns) -> bool:
    return _recognise(file, columns) != "long" or table.is_long(file, columns)


def _recognise(file: LabelFile, columns: GivenColumns) -> str:
    return next(name for name, known in FORMATS.items() if known.recognises(file, columns))
