"""Wide tables that are turned: a row for each annotator and a column for each item, as forms and surveys have it.

One is recognised where it names its annotators but neither items nor labels, or where most of its columns are called
after image files. Who filled in a form twice is one annotator, whose last answers count. What else people keep in such
a table is told from items as it is from annotators (`labels.wide`).
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

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import counted, first, listing
from crowdshot.io.cells import Ids, text
from crowdshot.io.file_names import ENDINGS
from crowdshot.io.tables import Table
from crowdshot.labels import wide_tables
from crowdshot.labels.columns import WHEN, Columns, ColumnsInput, matches, plain
from crowdshot.labels.formats.label_file import Format, LabelFile, LabelsRead
from crowdshot.labels.formats.plain_tables import OF_TOTALS, linking, read_wide, some, without_totals

NO_ITEM = "columns of no item"
FORMS = """
    name yourname fullname yourfullname email emailaddress youremail youremailaddress mail
    ihrname deinname vollständigername emailadresse mailadresse nom votrenom nomcomplet adresseemail courriel
    nombrecompleto tunombre correo correoelectrónico nome seunome nomecompleto endereçodeemail
    名前 お名前 氏名 姓名 メールアドレス 邮箱 电子邮件
"""
IN_FORMS = [plain(word) for word in FORMS.split()]  # what they call who fills them in, the usual ones first
A_TIME = r"(\d{4}([-/.])\d{1,2}\2\d{1,2}|\d{1,2}([-/.])\d{1,2}\3(\d{4}|\d{2})|\d{1,2}:\d{2})(\D|$)"  # how one begins


def is_turned(file: LabelFile, columns: ColumnsInput = None) -> bool:
    if file.annotator_columns or (columns is not None and not _names_annotator(columns)):
        return False
    table = file.table
    pictures = 2 * len(_pictures(table)) > len(table.header)
    people = _people(table, columns) if pictures or columns or _called(table) else None
    if people is None or pictures:
        return people is not None
    if 2 * len(set(table.text(people))) < len(table.frame):  # rows are rather labels
        return False
    return not any(matches(role, table.header) for role in ("item", "label")) and len(_items(table, people)) > 1


def read_turned(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    people = _people(file.table, columns)
    if people is None:
        raise CrowdshotError(
            f"{file.table.name} has no column with an annotator in each row, expected one;"
            " columns={'annotator': …} names it."
        )
    table, totals = without_totals(file.table, people, [])
    items = _items(table, people)
    if not items:
        others = listing(name for place, name in enumerate(table.header) if place != people)
        raise CrowdshotError(f"{table.name} has no columns of items among {others}, expected some with common labels.")
    said = _last_said(table, people, items)
    annotators = list(said)
    item = next(name for name in ("item", "items", "\0item") if name not in annotators)
    frame = pd.DataFrame(said, dtype=object)
    frame.insert(0, item, [table.header[place] for place in items])
    turned = copy.copy(file)
    turned.table = Table(table.name, frame, np.array(items) + 1)
    turned.annotator_columns = annotators
    read = read_wide(turned, {"item": item})
    left_out = {
        NO_ITEM: [name for place, name in enumerate(table.header) if place not in items and place != people],
        OF_TOTALS: totals,
    }
    named = Columns(annotator=table.header[people] or "annotator")
    return replace(read, annotations=replace(read.annotations, columns=named), left_out=some(left_out) | read.left_out)


def _names_annotator(columns: ColumnsInput) -> bool:
    return isinstance(columns, Mapping) and set(columns) == {"annotator"}


def _people(table: Table, columns: ColumnsInput) -> int | None:
    """The column that names an annotator in each row: as given, by its usual names, else the first that is no time.

    The first must tell all rows apart; of several with usual names, one that does comes before others.
    """
    if table.frame.empty:
        return None
    names = [columns["annotator"]] if isinstance(columns, Mapping) and "annotator" in columns else _called(table)
    if names:
        places = [table.header.index(name) for name in names if table.header.count(name) == 1]
        return min(places, key=lambda place: not _is_unique(table.text(place)), default=None)
    untimed = next((place for place in range(len(table.header)) if not _is_time(table, place)), None)
    return untimed if untimed is not None and _is_unique(table.text(untimed)) else None


def _called(table: Table) -> list[str]:
    """The columns with an annotator's usual name, or else with one that forms have."""
    in_forms = {plain(name): name for name in table.header}
    return matches("annotator", table.header) or [in_forms[word] for word in IN_FORMS if word in in_forms]


def _is_unique(cells: Ids) -> bool:
    return len(set(cells)) == len(cells)


def _is_time(table: Table, column: int) -> bool:
    """Is it called after a time, or does it hold times?"""
    cells = pd.Series(table.text(column))
    return plain(table.header[column]) in WHEN or bool(cells.str.match(A_TIME).all())


def _last_said(table: Table, people: int, items: list[int]) -> dict[str, NDArray[Any]]:
    """{annotator: cells of the items}; of several rows the last cell that says anything, as is told."""
    annotators = table.text(people)
    if (annotators == "").any():
        where = table.place(first(annotators == ""), people)
        raise CrowdshotError(f"{where} is empty, expected the annotator whose answers these are.")
    said: dict[str, NDArray[Any]] = {}
    for who, row in zip(annotators, table.frame.iloc[:, items].to_numpy(dtype=object), strict=True):
        blank = [text(cell) == "" for cell in row] if who in said else False
        said[who] = np.where(blank, said.get(who, row), row)
    if len(said) < len(annotators):
        again = pd.Series(annotators)
        more = f"{counted(len(again) - len(said), 'rows')} more of {listing(again[again.duplicated()].unique())}"
        warnings.warn(f"{table.name}: {more}; the last answer counts.", UserWarning, stacklevel=2)
    return said


def _pictures(table: Table) -> list[int]:
    return [place for place, name in enumerate(table.header) if name.lower().endswith(ENDINGS)]


def _items(table: Table, people: int) -> list[int]:
    """The columns of items: those called after image files, where there are such, else those with common labels."""
    others = [place for place in range(len(table.header)) if place != people]
    found = wide_tables.annotators_among([table.header[c] for c in others], [linking(table, c) for c in others])
    return _pictures(table) or [others[place] for place in found]


FORMAT = Format(recognises=is_turned, read=read_turned)
