"""Plain tables: long, with a row for each label, or wide, with a row for each item and a column for each annotator.

A column that is called truth, gold or the like has the true labels (`formats.true_labels`); which others of a wide
table are annotators' is told by `labels.wide`. Rows of totals at the end of a table are left out.

CSV with any separator, Excel, JSON (lines or an array) or Parquet. Ids and labels are text as it was written, so "007"
and "7" differ; a blank cell is a missing label, and so are -1, unless it is a label, and NaN in a wide table. A long
table without annotators is one annotator's, if it is one of several files.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, listing
from crowdshot.io.cells import Ids
from crowdshot.io.tables import Table, one_each
from crowdshot.labels import wide_tables
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import TRUTH, WHEN, Columns, ColumnsInput, find_columns, matches, plain
from crowdshot.labels.formats.label_file import Format, LabelFile, LabelsRead
from crowdshot.labels.formats.question_choice import labels_in, of_question, refuse_several
from crowdshot.labels.label_sets import spell_each, split_of
from crowdshot.labels.spelling import fold
from crowdshot.labels.timestamps import in_time
from crowdshot.labels.wide_tables import is_called_otherwise

# ---- true labels ------------------------------------------------------------
#
# The column of a long table that holds true labels, used where it can hold nothing else, and told in any case.


RIGHT_OR_WRONG = {"correct", "true"}  # columns that may as well say whether a label is right
YES_NO = {"yes", "no", "true", "false", "0", "1"}


def warn_taken(source: str, column: str) -> None:
    told = f"{source}: {column!r} is taken for the true labels, and for no annotator."
    warnings.warn(told, UserWarning, stacklevel=3)


def true_labels(
    file: LabelFile, table: Table, names: Columns, item: Ids, label: Ids, missing: Collection[str]
) -> dict[str, str]:
    """{item: true label}, {} where the table has no column of them or one that is not used, as is told.

    Each must be a label that somebody gave, by what labels are called, and the only one of its item. ``table``: those
    rows of the file that are read. ``missing``: what is no label.
    """
    columns = [place for place, name in enumerate(table.header) if name not in names and plain(name) in TRUTH]
    if not columns:
        return {}
    try:
        truth = pd.Series(labels_in(table, columns[0], file.several))
    except CrowdshotError:
        truth = pd.Series("", index=range(len(item)))  # lists and the like
    said = ~truth.map({word: fold(word) in missing for word in truth.unique()}).astype(bool) & (item != "")
    known = pd.DataFrame({"item": item, "label": truth})[said].drop_duplicates()
    if known.empty:
        return {}
    reason = (
        f"there are {len(columns)} such columns, {listing(table.header[place] for place in columns)}"
        if columns[1:]
        else _why_not(known, plain(table.header[columns[0]]), label, file)
    )
    if reason:
        told = f"{table.name}: {table.header[columns[0]]!r} is not taken for true labels, because {reason}."
        warnings.warn(told, UserWarning, stacklevel=3)
        return {}
    warn_taken(table.name, table.header[columns[0]])
    return dict(zip(known["item"], known["label"], strict=True))


def _why_not(known: pd.DataFrame, called: str, label: Ids, file: LabelFile) -> str:
    """Why a column of this name does not hold the true labels, "" where it does."""
    given = pd.Series(label).value_counts().to_dict()
    split = split_of(given) if file.several else lambda word: [word]
    written: Counter[str] = Counter()
    for word, number in given.items():
        for part in split(word):
            written[part] += number
    spelling = file.spells(written)
    names = {"", *map(spelling, written)}
    truths = known["label"].unique()
    strange = next((word for word in truths if not {spelling(part) for part in split(word)} <= names), "")
    if strange:
        return f"nobody gave the label {strange!r}"
    whole = spell_each(spelling, split)
    spelled = known.assign(label=known["label"].map({word: whole(word) for word in truths}))
    spelled = spelled[spelled["label"] != ""].drop_duplicates()
    twice = spelled[spelled["item"].duplicated()]
    if len(twice):
        return f"item {twice['item'].iloc[0]!r} has several"
    if called in RIGHT_OR_WRONG and set(map(fold, truths)) <= YES_NO:
        return "it may say whether a label is right"
    return ""


# ---- table ------------------------------------------------------------


MOST_TOTALS = 20  # rows
CROWDED = 5  # times as many annotators as items are rather items themselves
# What is left out.
NO_ANNOTATOR, OF_TOTALS, OF_OTHERS = "columns of no annotator", "rows of totals", "rows of other questions"
UNLABELLED, MINUS_ONE = "rows without a label", "rows with -1, taken for no label"


def read_long(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    whole = _with_annotator(file, columns)
    table, columns = of_question(whole, columns, file.several)
    other_questions = len(whole.frame) - len(table.frame)
    names = _find_columns(table, columns)
    if len(table.frame) == 0:
        raise CrowdshotError(f"{table.name} has a header but no rows, expected a row for each label.")
    place = [table.header.index(name) for name in names]
    table, totals = without_totals(table, place[0], [place[1]])
    item, annotator = (table.text(column) for column in place[:2])
    label = labels_in(table, place[2], file.several)
    empty = int((label == "").sum())
    counts = wide_tables.count(label)
    missing = {""} if wide_tables.is_label(counts, table.name) else {"", "-1"}
    label = _without(missing, label) if counts["-1"] else label
    for role, ids, column in (("item", item, place[0]), ("annotator", annotator, place[1])):
        nameless = (ids == "") & (label != "")
        if nameless.any():
            where = table.place(first(nameless), column)
            raise CrowdshotError(f"{where} is empty, expected the {role} that the label belongs to.")
    if not other_questions:
        refuse_several(table, names, item, annotator, label)
    frame = pd.DataFrame(dict(zip(names, (item, annotator, label), strict=True)))
    when, by = _when(table)
    annotations, when = in_time(frame, names, when, table.name, by)
    left_out: dict[str, int | list[str]] = {
        OF_TOTALS: totals,
        OF_OTHERS: other_questions,
        UNLABELLED: empty,
        MINUS_ONE: counts["-1"] if "-1" in missing else 0,
    }
    gold = true_labels(file, table, names, item, label, missing)
    return LabelsRead(annotations, some(left_out), gold, when=when)


def _when(table: Table) -> tuple[Ids | None, str]:
    """(n,) when labels were given, as the table says it, if it does; and the column that says so."""
    name = next((header for word in WHEN for header in table.header if plain(header) == word), None)
    if name is None:
        return None, ""
    return table.frame.iloc[:, table.header.index(name)].to_numpy(dtype=object), name


def read_wide(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    at = _item_column(file.table, columns)
    if at is None:
        found = listing(file.table.header)
        raise CrowdshotError(
            f"{file.table.name} has no column for the item among {found}, expected one; columns={{'item': …}} names it."
        )
    others = [column for column in range(len(file.table.header)) if column != at]
    table, totals = without_totals(file.table, at, [])
    header = table.header
    truth = [column for column in others if plain(header[column]) in TRUTH]
    if len(truth) > 1:
        names = listing(header[column] for column in truth)
        raise CrowdshotError(f"{table.name} has {len(truth)} columns of true labels, {names}, expected one at most.")
    if truth:
        warn_taken(table.name, header[truth[0]])
    people = _annotators(table, [column for column in others if column not in truth], file.annotator_columns)
    annotators = [header[column] for column in people]
    odd = next((name for name in annotators if not name or annotators.count(name) > 1), None)
    if odd is not None:
        found = f"more than one column {odd!r}" if odd else "a column without a name"
        raise CrowdshotError(f"{table.name} has {found}, expected a column for each annotator.")
    items = one_each(table, at)
    if len(items) == 0:
        raise CrowdshotError(f"{table.name} has a header but no rows, expected a row for each item.")
    if len(people) > CROWDED * len(items) and not file.annotator_columns:
        told = f"{table.name} is read as {len(items)} items and {len(people)} annotators; the format turned is for rows"
        warnings.warn(f"{told} that are annotators.", UserWarning, stacklevel=2)
    said = [labels_in(table, column, file.several) for column in people]
    counts = wide_tables.count(np.concatenate(said))
    missing = {"", "nan"} if wide_tables.is_label(counts, table.name) else {"", "nan", "-1"}
    frame = pd.DataFrame(
        {
            "item": np.tile(items, len(people)),
            "annotator": np.repeat(np.array(annotators, dtype=object), len(items)),
            "label": np.concatenate([_without(missing, cells) for cells in said]),
        }
    )
    annotations = Annotations.from_frame(frame, Columns(), items=items, annotators=annotators, source=table.name)
    known = zip(items, _without(missing, labels_in(table, truth[0], file.several)), strict=True) if truth else ()
    left_out: dict[str, int | list[str]] = {
        NO_ANNOTATOR: [header[c] or f"column {c + 1}" for c in others if c not in people + truth],
        OF_TOTALS: totals,
        "cells with -1, taken for no label": counts["-1"] if "-1" in missing else 0,
    }
    return LabelsRead(
        replace(annotations, columns=Columns(item=header[at] or "item")),
        some(left_out),
        gold={item: label for item, label in known if label},
    )


def is_long(file: LabelFile, columns: ColumnsInput = None) -> bool:
    """It names its items, annotators and labels."""
    try:
        table, columns = of_question(_with_annotator(file, columns), columns, file.several)
        find_columns(table.header, columns)
    except CrowdshotError:
        return False
    return True


def is_wide(file: LabelFile, columns: ColumnsInput = None) -> bool:
    """It names its items, but not both annotators and labels, and columns have labels in common.

    In a table with a row for each item "email", "value" and the like are no names of annotators and labels.
    """
    table = file.table
    at = _item_column(table, columns)
    if at is None or file.annotator_columns:
        return at is not None
    if _names_both(file, ranks=2) or (_names_both(file, ranks=3) and pd.Index(table.text(at)).has_duplicates):
        return False
    others = [
        column for column in range(len(table.header)) if column != at and plain(table.header[column]) not in TRUTH
    ]
    return len(wide_tables.annotators_among([table.header[c] for c in others], [linking(table, c) for c in others])) > 1


def _names_both(file: LabelFile, ranks: int) -> bool:
    """Does it name both annotators, or is one annotator's, and labels?"""
    annotator, label = (bool(matches(role, file.table.header, ranks)) for role in ("annotator", "label"))
    return label and (annotator or file.annotator is not None)


def _find_columns(table: Table, columns: ColumnsInput) -> Columns:
    try:
        return find_columns(table.header, columns, table.name)
    except CrowdshotError as error:
        if any(matches(role, table.header) for role in ("annotator", "label")) or columns:
            raise
        hint = "annotator_columns= those of a table with a column for each"
        raise CrowdshotError(f"{str(error).removesuffix('.')}, {hint}.") from None


def _annotators(table: Table, others: list[int], named: Sequence[str]) -> list[int]:
    """The columns of annotators, as named or as found; one alone is an annotator's."""
    header = [table.header[column] for column in others]
    strange = next((name for name in named if name not in header), None)
    if strange is not None:
        raise CrowdshotError(
            f"annotator_columns names {strange!r}, expected some of the columns of {table.name}, {listing(header)}."
        )
    if named:
        return [column for column in others if table.header[column] in named]
    found = [
        others[place] for place in wide_tables.annotators_among(header, [linking(table, column) for column in others])
    ]
    if not found and len(others) > 1:
        raise CrowdshotError(
            f"{table.name} has no columns that are surely annotators' among {listing(header)}, expected some with"
            " labels in common; annotator_columns= names them."
        )
    if not found and not others:
        raise CrowdshotError(f"{table.name} has no column of an annotator, expected one.")
    return found or others


def linking(table: Table, column: int) -> wide_tables.Counts:
    """What a column has that others may have too; -1 may mean a missing label in each."""
    return {value: n for value, n in wide_tables.count(labels_in(table, column, several=True)).items() if value != "-1"}


def without_totals(table: Table, item: int, empty: Sequence[int]) -> tuple[Table, list[str]]:
    """The table without rows of totals at its end, in which these columns are empty, and what those are called."""
    tail = replace(table, frame=table.frame.tail(MOST_TOTALS), rows=table.rows[-MOST_TOTALS:])
    ids, cells = tail.text(item), [tail.text(column) for column in empty]
    n = 0
    while n < len(ids) and wide_tables.is_total(ids[-1 - n]) and not any(column[-1 - n] for column in cells):
        n += 1
    end = len(table.frame) - n
    return replace(table, frame=table.frame.iloc[:end], rows=table.rows[:end]), ids[len(ids) - n :].tolist()


def some(left_out: Mapping[str, int | list[str]]) -> dict[str, int | list[str]]:
    return {reason: what for reason, what in left_out.items() if what}


def _with_annotator(file: LabelFile, columns: ColumnsInput) -> Table:
    """The table, with a column for its one annotator where it has none and its file is one of several."""
    table = file.table
    named = columns is not None and (not isinstance(columns, Mapping) or "annotator" in columns)
    if named or file.annotator is None or matches("annotator", table.header):
        return table
    return replace(table, frame=table.frame.assign(annotator=file.annotator))


def _item_column(table: Table, columns: ColumnsInput) -> int | None:
    """Its position, by the name given, by its usual names, or the first if that has no name (an index, to pandas).

    Of several with usual names, the most usual of those that name each row.
    """
    if columns is not None and not (isinstance(columns, Mapping) and set(columns) == {"item"}):
        return None
    names = [columns["item"]] if isinstance(columns, Mapping) else matches("item", table.header)
    if not names and table.header[:1] == [""]:
        return 0
    places = [table.header.index(name) for name in names if table.header.count(name) == 1]
    own = [place for place in places if len(set(table.text(place))) == len(table.frame)] if len(places) > 1 else places
    return next(iter(own), None)


def _without(missing: Collection[str], cells: Ids) -> Ids:
    """The same cells, "" where they say nothing."""
    code, words = pd.factorize(cells)
    known: Ids = np.array(["" if fold(word) in missing else word for word in words], dtype=object)
    said: Ids = known[code]
    return said


WIDE = Format(recognises=is_wide, read=read_wide)
LONG = Format(recognises=lambda file, columns: True, read=read_long)


# ---- sheets ------------------------------------------------------------
#
# Which sheets of a workbook hold labels.


def with_labels(file: LabelFile, fits: Callable[[LabelFile], bool]) -> list[LabelFile]:
    """The file, or of a workbook with several sheets the one that fits; several are refused.

    Where none fits, but would if it were one annotator's, each sheet is the annotator's that it is called after; those
    that are called as no annotator's column is (gold, final, consensus) are left out.
    """
    if len(file.sheets) < 2:
        return [file]
    sound = [sheet for sheet, table in file.sheets.items() if not isinstance(table, CrowdshotError)]
    alone = [sheet for sheet in sound if fits(file.at(sheet))]
    if len(alone) == 1:
        others = listing(sheet for sheet in file.sheets if sheet not in alone)
        told = f"{file.name}: labels are read from the sheet {alone[0]!r}, and nothing from {others}."
        warnings.warn(told, UserWarning, stacklevel=3)
        return [file.at(alone[0])]
    own = [sheet for sheet in sound if fits(file.at(sheet, annotator=sheet))]
    if not alone and len(own) > 1:
        people = [sheet for sheet in own if not is_called_otherwise(sheet)] or own
        left_out = [sheet for sheet in own if sheet not in people]
        rest = f", and nothing is read from {listing(left_out)}" if left_out else ""
        told = f"{file.name}: each of the sheets {listing(people)} is taken for one annotator's{rest}."
        warnings.warn(told, UserWarning, stacklevel=3)
        return [file.at(sheet, annotator=sheet) for sheet in people]
    damaged = next((table for table in file.sheets.values() if isinstance(table, CrowdshotError)), None)
    if damaged is not None and not alone:
        raise damaged
    number = f"{len(alone)} sheets that could hold the labels" if alone else f"{len(file.sheets)} sheets"
    raise CrowdshotError(f"{file.name} has {number}, {listing(alone or file.sheets)}, expected one; sheet= says which.")
