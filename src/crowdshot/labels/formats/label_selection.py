"""Select labels while they are read: those of a batch, or those since a date."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError, NoLabelError, Use
from crowdshot.formatting import counted, listing
from crowdshot.io.cells import as_whole, text
from crowdshot.io.tables import Record, Table
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.formats.label_file import LabelFile, LabelsRead
from crowdshot.labels.label_times import ORDERS, DateOrder, Times, read_times

NESTED = ("data", "metadata", "meta")  # fields of a record that hold its other fields in exports of label tools
WITHOUT_ROWS = ("cvat",)  # formats of which batches cannot be read
ITEM_PER_ROW = ("wide", "turned")  # formats in which each column may be an annotator or an item
OTHER_BATCHES, EARLIER, UNTIMED = "rows of other batches", "earlier labels", "labels without a time"
MOST_LISTED = 8  # batches in a message


class Selection(NamedTuple):
    """Which labels are read.

    Attributes
    ----------
    batch : mapping
        ``{column: value}``; a row is read if it has all these values. None as the value asks which values there are.
    since : str or None
        The earliest time, as text.
    dates : {"day-first", "month-first"}, optional
        The order of day and month.
    """

    batch: Mapping[str, str | None] = {}
    since: str | None = None
    dates: DateOrder | None = None

    @property
    def earliest(self) -> float:
        """The seconds since 1970 of ``since``."""
        assert self.since is not None
        times = read_times([self.since], dates=self.dates)
        if np.isnan(times.seconds[0]) or times.month_first is not None:
            raise CrowdshotError(
                f"is {self.since!r}", argument="since", found=self.since, expected="a date such as 2026-03-04"
            )
        return float(times.seconds[0])

    def check(self) -> None:
        """Raise an error if ``since`` is no date."""
        if self.since is not None:
            _ = self.earliest


# ---- batches ---------------------------------------------------------------------------------------------------------


def select_rows(file: LabelFile, selection: Selection, format_name: str) -> tuple[LabelFile, int]:
    """Return the file with only the rows or records of the batch, and the number of others."""
    if not selection.batch:
        return file, 0
    if format_name in WITHOUT_ROWS:
        raise CrowdshotError(f"is not supported for the format {format_name}", argument="batch", where=file.name)
    records = file.records if file.is_array or file.is_lines else None
    n = len(file.table.frame) if records is None else len(records)
    wanted = np.ones(n, dtype=bool)
    for column, value in selection.batch.items():
        cells = _cells(file.table, column) if records is None else _fields(records, column, file.name)
        wanted &= _equal(cells, column, value, file.name)
    if not wanted.any():
        raise NoLabelError(f"matches no row of {file.name}: none has {_written(selection.batch)}", argument="batch")
    chosen = copy.copy(file)
    for view in ("table", "records", "first"):
        vars(chosen).pop(view, None)
    rows = np.flatnonzero(wanted)
    if records is None:
        chosen.table = _rows_of(file.table, rows, selection.batch if format_name in ITEM_PER_ROW else ())
    else:
        chosen.records = [records[row] for row in rows]
        frame = pd.DataFrame([record.fields for record in chosen.records], dtype=object)
        chosen.table = _rows_of(Table(file.name, frame, rows + 1), np.arange(len(rows)), ())
    return chosen, int((~wanted).sum())


def values_of(file: LabelFile, column: str) -> list[str]:
    """Return the different values of a column, or of a field of the records, of a file."""
    is_table = not (file.is_array or file.is_lines)
    cells = _cells(file.table, column) if is_table else _fields(file.records, column, file.name)
    return sorted({cell for cell in map(as_whole, cells) if cell})


def _rows_of(table: Table, rows: NDArray[np.int64], without: Mapping[str, Any] | Sequence[str]) -> Table:
    kept = [place for place, name in enumerate(table.header) if name not in without]
    frame = table.frame.iloc[rows, kept].reset_index(drop=True)
    return replace(table, frame=frame, rows=table.rows[rows])


def _cells(table: Table, column: str) -> list[str]:
    if table.header.count(column) != 1:
        raise _unknown_column(column, table.header, table.name)
    return list(table.text(table.header.index(column)))


def _fields(records: Sequence[Record], column: str, name: str) -> list[str]:
    """Return the values of a field of all records, which may be one of their data or metadata."""
    found, known = [], dict[str, None]()
    for record in records:
        nested = [part for part in map(record.fields.get, NESTED) if isinstance(part, dict)]
        fields: dict[str, Any] = {}
        for part in (*reversed(nested), record.fields):
            fields |= part
        found.append(text(fields.get(column)) or "")
        known |= dict.fromkeys(fields)
    if column not in known:
        raise _unknown_column(column, list(known), name)
    return found


def _unknown_column(column: str, header: Sequence[str], name: str) -> CrowdshotError:
    return CrowdshotError(
        f"names the column {column!r}",
        argument="batch",
        where=name,
        found=column,
        expected=f"one of {listing(header)}",
        among=header,
    )


def _equal(cells: Sequence[str], column: str, value: str | None, name: str) -> NDArray[np.bool_]:
    """Return which cells have a value; raise an error that lists the values if there are none."""
    whole = [as_whole(cell) for cell in cells]
    equal = np.array([value is not None and cell == as_whole(value.strip()) for cell in whole], dtype=bool)
    if equal.any():
        return equal
    counts = Counter(cell for cell in whole if cell)
    some = ", ".join(f"{cell!r} ({counted(number, 'rows')})" for cell, number in counts.most_common(MOST_LISTED))
    more = f" and {len(counts) - MOST_LISTED} more" if len(counts) > MOST_LISTED else ""
    kind = CrowdshotError if value is None else NoLabelError
    raise kind(
        f"names the column {column!r} but no value"
        if value is None
        else f"matches no row of {name}: none has {column}={value}",
        argument="batch",
        where=name if value is None else None,
        found=value,
        expected=f"one of {some}{more}",
        among=list(counts),
    )


def _written(batch: Mapping[str, str | None]) -> str:
    return " and ".join(f"{column}={value}" for column, value in batch.items())


# ---- dates -----------------------------------------------------------------------------------------------------------


def select_times(labels: LabelsRead, selection: Selection, name: str) -> LabelsRead:
    """Return the labels given at ``since`` or later, with only their items, annotators and classes.

    Raise an error if the labels have no times, or if the choice depends on an undecided order of day and month.
    """
    if selection.since is None:
        return labels
    times = labels.times
    if times is None or np.isnan(times.seconds).all():
        raise CrowdshotError(
            "cannot be applied, because the labels have no times that can be read",
            argument="since",
            where=name,
            found=selection.since,
            hint=Use("if a column has them", columns={"time": "NAME"}),
        )
    wanted, other = (reading >= selection.earliest for reading in (times.readings[0], times.readings[-1]))
    differ = int((wanted != other).sum())
    if differ:
        raise _undecided(times, differ, name)
    unknown = int(np.isnan(times.seconds).sum())
    if not wanted.any():
        newest = datetime.fromtimestamp(float(np.nanmax(times.seconds)), UTC).strftime("%Y-%m-%d %H:%M")
        message = f"is {selection.since!r}, but the newest label of {name} is of {newest} UTC"
        raise NoLabelError(message, argument="since", found=selection.since)
    counts = {EARLIER: int((~wanted).sum()) - unknown, UNTIMED: unknown}
    gone = set(map(str, labels.annotations.items))
    labels = labels.keep(wanted)
    kept = _used(labels.annotations)
    gone -= set(map(str, kept.items))
    return replace(
        labels,
        annotations=kept,
        left_out={**labels.left_out, **{reason: number for reason, number in counts.items() if number}},
        gold={item: label for item, label in labels.gold.items() if item not in gone},
    )


def _used(ann: Annotations) -> Annotations:
    """Return annotations without the items, annotators and classes that have no label."""
    changes: dict[str, Any] = {}
    for role, ids in (("item", "items"), ("annotator", "annotators"), ("label", "classes")):
        used, changes[role] = np.unique(getattr(ann, role), return_inverse=True)
        changes[ids] = getattr(ann, ids)[used]
    return replace(ann, **changes)


def _undecided(times: Times, number: int, name: str) -> CrowdshotError:
    return CrowdshotError(
        f"Dates such as {times.example!r} may begin with the day or with the month, and {counted(number, 'labels')} may"
        " be earlier than the date in since or not",
        argument="dates",
        where=name,
        found=times.example,
        expected=f"one of {listing(ORDERS)}",
        hint=Use("if the day comes first", dates="day-first") | Use("if the month does", dates="month-first"),
    )
