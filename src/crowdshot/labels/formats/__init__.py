"""Files of labels -> `Annotations`, and results -> files. One tool a file, one registry each way.

To add a format: write a module with a ``FORMAT`` (see `formats.labels`) and list it here. The first format
that recognises a file reads it, so those that look for more come first. Writers are in `formats.write`.

>>> from crowdshot import WRITERS, Annotations, aggregate
>>> from crowdshot.labels.formats import LabelsRead
>>> said = Annotations.from_dict({"a": {"ann": "cat", "bob": "cat"}, "b": {"ann": "dog"}})
>>> WRITERS["coco"]("consensus.json", aggregate.learned(said).to_frame(said), LabelsRead(said))
>>> sorted(WRITERS)[:3]
['argilla', 'cleanlab', 'coco']
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial

from crowdshot.errors import CrowdshotError, NoLabelError
from crowdshot.labels.columns import ColumnsInput
from crowdshot.labels.formats import (
    argilla,
    cvat,
    judges,
    label_studio,
    mturk,
    plain_tables,
    prodigy,
    toloka,
    transposed,
)
from crowdshot.labels.formats.cleaning import Naming, call
from crowdshot.labels.formats.label_file import Format, LabelFile, LabelsRead, Project, Spells, join, own_names
from crowdshot.labels.formats.plain_tables import with_labels
from crowdshot.labels.formats.writers import WRITERS, to_label_studio, write_questions
from crowdshot.labels.matching import named_otherwise
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

FORMATS: dict[str, Format] = {
    "cvat": cvat.FORMAT,
    "label-studio": label_studio.FORMAT,
    "argilla": argilla.FORMAT,
    "prodigy": prodigy.FORMAT,
    "toloka": toloka.FORMAT,
    "mturk": mturk.FORMAT,
    "judges": judges.FORMAT,
    "turned": transposed.FORMAT,
    "wide": plain_tables.WIDE,
    "long": plain_tables.LONG,  # last: it takes any table, and says what is missing in it
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
    - ``multi_label``: an answer may name several labels, "cat;dog" (`labels.choices`).
    - ``ordered``: the classes from the lowest to the highest, and no others.
    - ``categories``: labels are names of classes, though they look like measurements or like several labels at once.
    - ``leave_out``: annotators whose labels do not count.

    >>> from pathlib import Path
    >>> from crowdshot import read_labels
    >>> _ = Path("labels.csv").write_text("image,worker,label\\n1.png,ann,cat\\n1.png,bob,Cat\\n2.png,ann,cat\\n")
    >>> read = read_labels("labels.csv", merge_case=True)
    >>> read.annotations.classes.tolist(), read.annotations.n_labels
    (['cat'], 3)
    """
    naming = Naming(rename, merge_case, names, multi_label, ordered, categories, leave_out)
    naming.check()
    paths = _listed(paths)
    parts = read_parts(
        paths, columns, format_name, sheet=sheet, annotator_columns=annotator_columns, multi_label=multi_label,
        rename=rename, merge_case=merge_case,
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
) -> list[LabelsRead]:
    """The labels of each file, as it has them: the first half of `read_labels`.

    By ``rename`` and ``merge_case`` true labels are judged: they are what somebody said, if both are called so.
    """
    if format_name is not None and format_name not in FORMATS:
        raise CrowdshotError(f"format is {format_name!r}, expected one of {', '.join(FORMATS)}.")
    spells = partial(spelling_of, rename=rename, merge_case=merge_case, strangers="allow")  # other files may have them
    files = _open(_listed(paths), sheet, annotator_columns, multi_label, spells)
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
    if empty:
        parts[-1] = replace(parts[-1], left_out={**parts[-1].left_out, "files without a label": len(empty)})
    return parts


def join_parts(parts: Sequence[LabelsRead], naming: Naming, source: str) -> LabelsRead:
    """All of them as one, by what labels and annotators are called: the second half of `read_labels`."""
    if len(parts) == 1:
        return call(parts[0], naming, source)
    otherwise = named_otherwise([part.annotations.items for part in parts])
    return call(join(source, parts), naming, source, otherwise)


def called(paths: Path | Iterable[Path]) -> str:
    """Files, as messages call them."""
    first, *more = _listed(paths) or ["labels"]
    return f"{first} and {len(more)} more" if more else str(first)


def _listed(paths: Path | Iterable[Path]) -> list[Path]:
    return [paths] if isinstance(paths, str | os.PathLike) else list(paths)


def _open(
    paths: list[Path], sheet: str | None, annotator_columns: Sequence[str], several: bool, spells: Spells
) -> list[LabelFile]:
    if not paths:
        raise CrowdshotError("paths is empty, expected one file of labels at least.")
    names = own_names(paths) if len(paths) > 1 else [None]
    given = (sheet, annotator_columns, several, spells)
    files = [LabelFile(path, name, *given) for path, name in zip(paths, names, strict=True)]
    if sheet is not None and not any(file.sheets for file in files):
        raise CrowdshotError(f"sheet is {sheet!r}, expected none, as {files[0].name} is no Excel workbook.")
    return files


def _fits(file: LabelFile, columns: ColumnsInput) -> bool:
    return _recognise(file, columns) != "long" or plain_tables.is_long(file, columns)


def _recognise(file: LabelFile, columns: ColumnsInput) -> str:
    return next(name for name, known in FORMATS.items() if known.recognises(file, columns))
