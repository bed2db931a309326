"""Plain tables: long, with a row for each label, or wide, with a row for each item and a column for each annotator.

A wide table's column that is called truth, gold or the like has the true labels; one called notes, width or the like is
no annotator's.

CSV with any separator, JSON (lines or an array) or Parquet. Ids and labels are text as it was written, so "007" and "7"
differ; a blank cell is a missing label, and so are NaN and -1 in a wide table. A long table without annotators is one
annotator's, if it is one of several files.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.files.cells import Ids
from crowdshot.files.tables import Table, one_each
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import NO_ANNOTATOR, TRUTH, Columns, GivenColumns, find_columns, plain
from crowdshot.labels.formats.labels import Format, LabelFile, LabelsRead
from crowdshot.wording import first, listing

MISSING = ("", "nan", "-1")  # in a wide table, lower case


def read_long(file: LabelFile, columns: GivenColumns = None) -> LabelsRead:
    table = _with_annotator(file, columns)
    names = find_columns(table.header, columns, table.name)
    if len(table.frame) == 0:
        raise CrowdshotError(f"{table.name} has a header but no rows, expected a row for each label.")
    place = [table.header.index(name) for name in names]
    item, annotator, label = (table.text(column) for column in place)
    for role, ids, column in (("item", item, place[0]), ("annotator", annotator, place[1])):
        nameless = (ids == "") & (label != "")
        if nameless.any():
            where = table.place(first(nameless), column)
            raise CrowdshotError(f"{where} is empty, expected the {role} that the label belongs to.")
    frame = pd.DataFrame(dict(zip(names, (item, annotator, label), strict=True)))
    annotations = Annotations.from_frame(frame, names, source=table.name)
    blank = int((label == "").sum())
    return LabelsRead(annotations, {"rows without a label": blank} if blank else {})


def read_wide(file: LabelFile, columns: GivenColumns = None) -> LabelsRead:
    table = file.table
    at = _item_column(table, columns)
    if at is None:
        found = listing(table.header)
        raise CrowdshotError(
            f"{table.name} has no column for the item among {found}, expected one; columns={{'item': …}} names it."
        )
    header = table.header
    others = [column for column in range(len(header)) if column != at]
    truth = [column for column in others if plain(header[column]) in TRUTH]
    idle = [column for column in others if plain(header[column]) in NO_ANNOTATOR]
    if idle:
        names = listing(header[column] for column in idle)
        warnings.warn(f"{table.name}: left out, as no annotator is called so: {names}.", UserWarning, stacklevel=2)
    if len(truth) > 1:
        names = listing(header[column] for column in truth)
        raise CrowdshotError(f"{table.name} has {len(truth)} columns of true labels, {names}, expected one at most.")
    if truth:
        told = f"{table.name}: {header[truth[0]]!r} is taken for the true labels, and for no annotator."
        warnings.warn(told, UserWarning, stacklevel=2)
    others = [column for column in others if column not in truth + idle]
    annotators = [header[column] for column in others]
    if not annotators:
        raise CrowdshotError(f"{table.name} has no column of an annotator among {listing(header)}, expected one.")
    odd = next((name for name in annotators if not name or annotators.count(name) > 1), None)
    if odd is not None:
        found = f"more than one column {odd!r}" if odd else "a column without a name"
        raise CrowdshotError(f"{table.name} has {found}, expected a column for each annotator.")
    items = one_each(table, at)
    if len(items) == 0:
        raise CrowdshotError(f"{table.name} has a header but no rows, expected a row for each item.")
    frame = pd.DataFrame(
        {
            "item": np.tile(items, len(others)),
            "annotator": np.repeat(np.array(annotators, dtype=object), len(items)),
            "label": np.concatenate([_said(table, column) for column in others]),
        }
    )
    annotations = Annotations.from_frame(frame, Columns(), items=items, annotators=annotators, source=table.name)
    known = zip(items, _said(table, truth[0]), strict=True) if truth else ()
    gold = {item: label for item, label in known if label}
    return LabelsRead(replace(annotations, columns=Columns(item=header[at] or "item")), gold=gold)


def is_long(file: LabelFile, columns: GivenColumns = None) -> bool:
    """It names its items, annotators and labels."""
    try:
        find_columns(_with_annotator(file, columns).header, columns)
    except CrowdshotError:
        return False
    return True


def is_wide(file: LabelFile, columns: GivenColumns = None) -> bool:
    """It names its items but neither annotators nor labels, and columns have labels in common."""
    table = file.table
    at = _item_column(table, columns)
    if at is None or any(_named(role, table.header) for role in ("annotator", "label")):
        return False
    seen: set[str] = set()
    for column in set(range(len(table.header))) - {at}:
        distinct = set(_said(table, column)) - {""}
        if not seen.isdisjoint(distinct):
            return True
        seen |= distinct
    return False


def _with_annotator(file: LabelFile, columns: GivenColumns) -> Table:
    """The table, with a column for its one annotator where it has none and its file is one of several."""
    table = file.table
    named = columns is not None and (not isinstance(columns, Mapping) or "annotator" in columns)
    if named or file.annotator is None or any(_named("annotator", [name]) for name in table.header):
        return table
    return replace(table, frame=table.frame.assign(annotator=file.annotator))


def _item_column(table: Table, columns: GivenColumns) -> int | None:
    """Its position, by the name given, by its usual names, or the first if that has no name (an index, to pandas)."""
    if columns is not None and not (isinstance(columns, Mapping) and set(columns) == {"item"}):
        return None
    name = columns["item"] if isinstance(columns, Mapping) else _named("item", table.header)
    if name is None and table.header[:1] == [""]:
        return 0
    return table.header.index(name) if table.header.count(name) == 1 else None  # type: ignore[arg-type]


def _named(role: str, header: list[str]) -> str | None:
    """The column that is called like an item, an annotator or a label."""
    others = {other: f"\0{other}" for other in Columns._fields if other != role}
    try:
        return str(getattr(find_columns([*header, *others.values()], others), role))
    except CrowdshotError:
        return None


def _said(table: Table, column: int) -> Ids:
    """What an annotator's column says, "" where it says nothing."""
    code, words = pd.factorize(table.text(column))
    known: Ids = np.array(["" if word.lower() in MISSING else word for word in words], dtype=object)
    said: Ids = known[code]
    return said


WIDE = Format(recognises=is_wide, read=read_wide)
LONG = Format(recognises=lambda file, columns: True, read=read_long)
