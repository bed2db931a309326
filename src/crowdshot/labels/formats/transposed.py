"""Read transposed tables: a row for each annotator and a column for each item, as forms and surveys export them.

Such a table has a column for annotators but none for items or labels, or most of its columns have names of image files.
If an annotator filled in a form several times, the newest answer to each question counts, by a column of times if there
is one, else the last row. Columns of items are recognised
like columns of annotators in a wide table (`wide_tables.annotators_among`).
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import counted, first, listing
from crowdshot.io.cells import Ids, text
from crowdshot.io.tables import Table
from crowdshot.labels.columns import Columns, ColumnsInput, matches, plain
from crowdshot.labels.formats.label_file import Format, LabelFile, LabelsRead, SourceUsed
from crowdshot.labels.formats.plain_tables import (
    OF_TOTALS,
    drop_empty,
    emails_of,
    image_columns,
    linked_columns,
    read_wide,
    without_totals,
)
from crowdshot.labels.label_times import WHEN, Times, newest_rows, times_of

NO_ITEM = "columns of no item"
FORMS = """
    name yourname fullname yourfullname email emailaddress youremail youremailaddress mail
    ihrname deinname vollständigername emailadresse mailadresse nom votrenom nomcomplet adresseemail courriel
    nombrecompleto tunombre correo correoelectrónico nome seunome nomecompleto endereçodeemail
    名前 お名前 氏名 姓名 メールアドレス 邮箱 电子邮件
"""
IN_FORMS = [plain(word) for word in FORMS.split()]  # names of the respondent's column in forms, the usual ones first
A_TIME = r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3(\d{4}|\d{2})|\d{1,2}:\d{2})(\D|$)"  # start of a time


def is_turned(file: LabelFile, columns: ColumnsInput = None) -> bool:
    if file.annotator_columns or (columns is not None and not _names_annotator(columns)):
        return False
    table = file.table
    pictures = 2 * len(image_columns(table)) > len(table.header)
    people = _people(table, columns) if pictures or columns or _usual_names(table) else None
    if people is None or pictures:
        return people is not None
    if 2 * len(set(table.text(people))) < len(table.frame):  # probably a long table, with a row for each label
        return False
    return not any(matches(role, table.header) for role in ("item", "label")) and len(_items(table, people)) > 1


def read_turned(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    people = _people(file.table, columns)
    if people is None:
        raise CrowdshotError(
            "has no column with an annotator in each row",
            where=file.table.name,
            found=file.table.header,
            expected="one",
            hint=Use("to name it", columns={"annotator": "NAME"}),
        )
    items = _items(file.table, people)
    table, totals = without_totals(file.table, people, None, items)
    if not items:
        others = [name for place, name in enumerate(table.header) if place != people]
        raise CrowdshotError(
            f"has no columns of items among {listing(others)}",
            where=table.name,
            found=others,
            expected="some with common labels",
        )
    table, times = _in_time(table, people, items, file)
    answers = _last_answers(table, people, items, times)
    annotators = list(answers)
    item = next(name for name in ("item", "items", "\0item") if name not in annotators)
    frame = pd.DataFrame(answers, dtype=object)
    frame.insert(0, item, [table.header[place] for place in items])
    wide = copy.copy(file)
    wide.table = Table(table.name, frame, np.array(items) + 1)
    wide.annotator_columns = annotators
    read = read_wide(wide, {"item": item})
    if times is not None:
        last = {name: row for row, name in enumerate(table.text(people))}
        rows = np.array([last[name] for name in read.annotations.annotators], dtype=np.int64)
        read = replace(read, times=times.take(rows[read.annotations.annotator]))
    left_out = {
        NO_ITEM: [name for place, name in enumerate(table.header) if place not in items and place != people],
        OF_TOTALS: totals,
    }
    named = Columns(annotator=table.header[people] or "annotator")
    return replace(
        read,
        annotations=replace(read.annotations, columns=named),
        left_out=drop_empty(left_out) | read.left_out,
        emails=emails_of(table, table.text(people)),
        sources=[_source(file, table, people, items, times)],
    )


def _source(file: LabelFile, table: Table, people: int, items: list[int], times: Times | None) -> SourceUsed:
    used: dict[str, str | list[str]] = {"annotator": table.header[people] or f"column {people + 1}"}
    used["item"] = [table.header[place] for place in items]
    used |= {"time": times.column} if times is not None else {}
    taken = {times.column if times is not None else "", *used["item"], used["annotator"]}
    return SourceUsed(file.name, columns=used, unused=[name for name in table.header if name not in taken])


def _names_annotator(columns: ColumnsInput) -> bool:
    return isinstance(columns, Mapping) and set(columns) == {"annotator"}


def _people(table: Table, columns: ColumnsInput) -> int | None:
    """Return the column with the annotator of each row.

    This is the column that the caller named, or one with a usual name (preferably with unique values), or the first
    column that does not hold times, if its values are unique.
    """
    if table.frame.empty:
        return None
    names = [columns["annotator"]] if isinstance(columns, Mapping) and "annotator" in columns else _usual_names(table)
    if names:
        places = [table.header.index(name) for name in names if table.header.count(name) == 1]
        return min(places, key=lambda place: not _is_unique(table.text(place)), default=None)
    untimed = next((place for place in range(len(table.header)) if not _is_time(table, place)), None)
    return untimed if untimed is not None and _is_unique(table.text(untimed)) else None


def _usual_names(table: Table) -> list[str]:
    """Return the columns with a usual name for annotators, or else with a usual name in forms."""
    in_forms = {plain(name): name for name in table.header}
    return matches("annotator", table.header) or [in_forms[word] for word in IN_FORMS if word in in_forms]


def _is_unique(cells: Ids) -> bool:
    return len(set(cells)) == len(cells)


def _is_time(table: Table, column: int) -> bool:
    """Return whether a column has the name of a time or holds times."""
    cells = pd.Series(table.text(column))
    return plain(table.header[column]) in WHEN or bool(cells.str.match(A_TIME).all())


def _in_time(table: Table, people: int, items: list[int], file: LabelFile) -> tuple[Table, Times | None]:
    """Return the table with its rows in the order of their times, if these are known, and the times."""
    used = [table.header[place] for place in (people, *items)]
    times = times_of(table, used, file.times, serials=bool(file.sheets))
    if times is None:
        return table, None
    names = pd.Series(table.text(people))
    repeated = np.flatnonzero(names.duplicated(keep=False))
    if len(repeated) == 0:
        return table, times
    if np.isnan(times.seconds[repeated]).any():
        return table, None
    rows = table.frame.iloc[repeated, items].to_numpy(dtype=object)
    answers = np.array(["\0".join(map(str, row)) for row in rows], dtype=object)
    newest_rows(pd.factorize(names[repeated])[0], times.take(repeated), answers, table.name)
    order = np.argsort(np.nan_to_num(times.seconds, nan=-np.inf), kind="stable")
    in_order = replace(table, frame=table.frame.iloc[order].reset_index(drop=True), rows=table.rows[order])
    return in_order, times.take(order)


def _last_answers(table: Table, people: int, items: list[int], times: Times | None) -> dict[str, NDArray[Any]]:
    """Return {annotator: cells of the items}; of several rows of an annotator, the last cell that is not blank."""
    annotators = table.text(people)
    if (annotators == "").any():
        raise CrowdshotError(
            "is empty", where=table.place(first(annotators == ""), people), expected="the annotator of the row"
        )
    answers: dict[str, NDArray[Any]] = {}
    for annotator, row in zip(annotators, table.frame.iloc[:, items].to_numpy(dtype=object), strict=True):
        blank = [text(cell) == "" for cell in row] if annotator in answers else False
        answers[annotator] = np.where(blank, answers.get(annotator, row), row)
    if len(answers) < len(annotators):
        names = pd.Series(annotators)
        repeated = names[names.duplicated()].unique().tolist()
        which = "last" if times is None else f"newest (by {times.column!r})"
        more = counted(len(names) - len(answers), "rows") + " more"
        warnings.warn(
            CrowdshotWarning(
                f"{listing(repeated)} answered more than once ({more}); the {which} answer counts",
                where=table.name,
                found=repeated,
            ),
            stacklevel=2,
        )
    return answers


def _items(table: Table, people: int) -> list[int]:
    """Return the columns of items: those with names of image files, or else those with common labels."""
    found = linked_columns(table, [place for place in range(len(table.header)) if place != people])
    return image_columns(table) or found


FORMAT = Format(recognises=is_turned, read=read_turned)
