"""Wide tables that are turned: a row for each annotator and a column for each item, as forms and surveys have it.

One is recognised where it names its annotators but neither items nor labels, or where most of its columns are called
after image files. What else people keep in such a table is told from items as it is from annotators (`labels.wide`).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.files.image_names import ENDINGS
from crowdshot.files.tables import Table
from crowdshot.labels import wide
from crowdshot.labels.columns import Columns, GivenColumns, matches
from crowdshot.labels.formats.labels import Format, LabelFile, LabelsRead
from crowdshot.labels.formats.table import OF_TOTALS, linking, read_wide, some, without_totals
from crowdshot.wording import listing

NO_ITEM = "columns of no item"


def is_turned(file: LabelFile, columns: GivenColumns = None) -> bool:
    if file.annotator_columns or (columns is not None and not _names_annotator(columns)):
        return False
    table = file.table
    people = _people(table, columns)
    if 2 * len(_pictures(table)) > len(table.header):
        return people is not None
    if people is None or not (columns or matches("annotator", table.header)):
        return False
    return not any(matches(role, table.header) for role in ("item", "label")) and len(_items(table, people)) > 1


def read_turned(file: LabelFile, columns: GivenColumns = None) -> LabelsRead:
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
    annotators = table.text(people).tolist()
    item = next(name for name in ("item", "items", "\0item") if name not in annotators)
    frame = pd.DataFrame(table.frame.iloc[:, items].to_numpy(dtype=object).T, columns=annotators)
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


def _names_annotator(columns: GivenColumns) -> bool:
    return isinstance(columns, Mapping) and set(columns) == {"annotator"}


def _people(table: Table, columns: GivenColumns) -> int | None:
    """The column that names an annotator in each row: as given, by its usual names, else the first."""
    if isinstance(columns, Mapping) and "annotator" in columns:
        names = [columns["annotator"]]
    else:
        names = matches("annotator", table.header)
    places = [table.header.index(name) for name in names if table.header.count(name) == 1] if names else [0]
    return next((place for place in places if len(set(table.text(place))) == len(table.frame) > 0), None)


def _pictures(table: Table) -> list[int]:
    return [place for place, name in enumerate(table.header) if name.lower().endswith(ENDINGS)]


def _items(table: Table, people: int) -> list[int]:
    """The columns of items: those called after image files, where there are such, else those with common labels."""
    others = [place for place in range(len(table.header)) if place != people]
    found = wide.annotators_among([table.header[c] for c in others], [linking(table, c) for c in others])
    return _pictures(table) or [others[place] for place in found]


FORMAT = Format(recognises=is_turned, read=read_turned)
