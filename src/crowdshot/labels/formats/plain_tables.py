"""Read plain tables: long (a row for each label) or wide (a row for each item and a column for each annotator).

Tables may be CSV with any separator, Excel, JSON (lines or an array) or Parquet. Ids and labels are text as written, so
"007" and "7" differ. A label is missing if the cell is blank, is -1 (unless -1 is a label, see `wide_tables.is_label`),
or is NaN in a wide table.

A column with a name such as "truth" or "gold" has the true labels. Other columns of a wide table are annotators if
`wide_tables.annotators_among` finds them. Rows of totals at the end are left out. A long table without a column of
annotators belongs to one annotator, if it is one of several files.
"""

from __future__ import annotations

import re
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import first, listing
from crowdshot.io.cells import Ids, fold, text
from crowdshot.io.file_names import ENDINGS
from crowdshot.io.tables import Table, one_each
from crowdshot.labels import wide_tables
from crowdshot.labels.annotations import Annotations
from crowdshot.labels.columns import TRUTH, Columns, ColumnsInput, find_columns, matches, plain
from crowdshot.labels.formats.label_file import BAD_ROWS, Format, LabelFile, LabelsRead, SourceUsed
from crowdshot.labels.formats.question_choice import cells_of, labels_in, of_question, refuse_several
from crowdshot.labels.label_durations import duration_column, read_durations, unit_of
from crowdshot.labels.label_times import in_time, times_of, with_durations
from crowdshot.labels.spelling import EMAIL, spell_each, split_of
from crowdshot.labels.wide_tables import is_called_otherwise

RIGHT_OR_WRONG = {"correct", "true"}  # such columns may say instead whether the label is right
YES_NO = {"yes", "no", "true", "false", "0", "1"}
SAMPLE = 200  # cells from which a column of e-mail addresses is recognised
CROWDED = 5  # a table with this many times more annotators than items is probably transposed
# Reasons for entries that are left out.
NO_ANNOTATOR, OF_TOTALS, OF_OTHERS = "columns of no annotator", "rows of totals", "rows of other questions"
UNLABELLED, MINUS_ONE = "rows without a label", "rows with -1, taken for no label"
NAMELESS, RAGGED = "rows without an item or annotator", "rows with too many or too few cells"
FEWEST_MERGED = 3  # labels with a blank id

# ---- True labels ----------------------------------------------------------------------------------------------------


def warn_gold_column(source: str, column: str) -> None:
    """Warn that a column is read as true labels."""
    warnings.warn(
        CrowdshotWarning(f"Column {column!r} is read as the true labels", where=source, found=column), stacklevel=3
    )


def true_labels(
    file: LabelFile, table: Table, names: Columns, item: Ids, label: Ids, missing: Collection[str]
) -> dict[str, str]:
    """Return the true labels in a long table as {item: true label}.

    The column is used only if annotators chose all its labels and every item has one; a warning says whether it is.

    Parameters
    ----------
    file : LabelFile
    table : Table
        The rows of the file that are read.
    names : Columns
    item, label : (n,) array
        Items and labels of the rows.
    missing : collection of str
        Values that mean a missing label.
    """
    columns = [place for place, name in enumerate(table.header) if name not in names and plain(name) in TRUTH]
    if not columns:
        return {}
    try:
        truth = pd.Series(labels_in(table, columns[0], file.several))
    except CrowdshotError:
        truth = pd.Series("", index=range(len(item)))  # lists or records
    filled = ~truth.map({word: fold(word) in missing for word in truth.unique()}).astype(bool) & (item != "")
    known = pd.DataFrame({"item": item, "label": truth})[filled].drop_duplicates()
    if known.empty:
        return {}
    reason = (
        f"there are {len(columns)} such columns, {listing(table.header[place] for place in columns)}"
        if columns[1:]
        else _reason_against(known, plain(table.header[columns[0]]), label, file)
    )
    if reason:
        column = table.header[columns[0]]
        warnings.warn(
            CrowdshotWarning(
                f"Column {column!r} is not read as true labels, because {reason}", where=table.name, found=column
            ),
            stacklevel=3,
        )
        return {}
    warn_gold_column(table.name, table.header[columns[0]])
    return dict(zip(known["item"], known["label"], strict=True))


def _reason_against(known: pd.DataFrame, name: str, label: Ids, file: LabelFile) -> str:
    """Return the reason why a column of this name cannot hold the true labels, "" if it can."""
    counts = pd.Series(label).value_counts().to_dict()
    split = split_of(counts) if file.several else lambda word: [word]
    written: Counter[str] = Counter()
    for word, number in counts.items():
        for part in split(word):
            written[part] += number
    spelling = file.spelling(written)
    names = {"", *map(spelling, written)}
    truths = known["label"].unique()
    unknown = next((word for word in truths if not {spelling(part) for part in split(word)} <= names), "")
    if unknown:
        return f"no annotator chose the label {unknown!r}"
    whole = spell_each(spelling, split)
    spelled = known.assign(label=known["label"].map({word: whole(word) for word in truths}))
    spelled = spelled[spelled["label"] != ""].drop_duplicates()
    twice = spelled[spelled["item"].duplicated()]
    if len(twice):
        return f"item {twice['item'].iloc[0]!r} has several"
    if name in RIGHT_OR_WRONG and set(map(fold, truths)) <= YES_NO:
        return "it may say whether a label is right"
    return ""


# ---- Long and wide tables -------------------------------------------------------------------------------------------


def read_long(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    """Read a table with a row for each label."""
    whole = _with_annotator(file, columns)
    table, columns = of_question(whole, columns, file.several)
    other_questions = len(whole.frame) - len(table.frame)
    names = _find_columns(table, columns)
    others = [name for name in table.header if name not in names]
    if len(table.frame) == 0:
        raise CrowdshotError("has a header but no rows", where=table.name, expected="a row for each label")
    place = [table.header.index(name) for name in names]
    table, totals = without_totals(table, place[0], place[1])
    item, annotator = (table.text(column) for column in place[:2])
    label = labels_in(table, place[2], file.several)
    item, annotator = _filled_down(table, names, item, annotator, label)
    empty = int((label == "").sum())
    counts = wide_tables.count(label)
    missing = {""} if wide_tables.is_label(counts, table.name) else {"", "-1"}
    label = _without(missing, label) if counts["-1"] else label
    nameless = ((item == "") | (annotator == "")) & (label != "")
    if nameless.any() and not file.skip_bad:
        row = first(nameless)
        role, column = ("item", place[0]) if item[row] == "" else ("annotator", place[1])
        more = f" ({nameless.sum():,} rows are like that)" if nameless.sum() > 1 else ""
        raise CrowdshotError(
            "is empty",
            where=table.place(row, column),
            expected=f"the {role}, because the row has a label{more}",
            hint=BAD_ROWS,
        )
    label = np.where(nameless, "", label)
    if not other_questions:
        refuse_several(table, names, item, annotator, label)
    frame = pd.DataFrame(dict(zip(names, (item, annotator, label), strict=True)))
    times = times_of(table, names, file.times, place[0], serials=bool(file.sheets))
    took = duration_column(table, names, place[0])
    if took is not None:
        times = with_durations(times, read_durations(table.frame.iloc[:, took], unit_of(table.header[took]) or "s"))
    annotations, times = in_time(frame, names, times, table.name)
    left_out: dict[str, int | list[str]] = {
        OF_TOTALS: totals,
        OF_OTHERS: other_questions,
        UNLABELLED: empty,
        NAMELESS: int(nameless.sum()),
        RAGGED: table.n_ragged,
        MINUS_ONE: counts["-1"] if "-1" in missing else 0,
    }
    gold = true_labels(file, table, names, item, label, missing)
    emails = emails_of(table, annotator)
    used: dict[str, str | list[str]] = dict(zip(Columns._fields, names, strict=True))
    used |= {"time": times.column} if times is not None and times.column else {}
    used |= {"duration": table.header[took]} if took is not None else {}
    used |= {"true label": next(name for name in others if plain(name) in TRUTH)} if gold else {}
    unused = [name for name in others if name not in used.values()]
    source = SourceUsed(file.name, columns=used, unused=unused)
    return LabelsRead(annotations, drop_empty(left_out), gold, times=times, emails=emails, sources=[source])


def _filled_down(table: Table, names: Columns, item: Ids, annotator: Ids, label: Ids) -> tuple[Ids, Ids]:
    """Return the items and annotators with blank cells filled from the row above, as in sheets with merged cells.

    They are filled if no id is repeated in the column and no annotator would label an item twice.
    """
    for ids, other, name in ((item, annotator, names.item), (annotator, item, names.annotator)):
        blank = (ids == "") & (label != "")
        written = ids[ids != ""]
        if blank.sum() < FEWEST_MERGED or ids[0] == "" or len(set(written)) < len(written):
            continue
        if (other[label != ""] == "").any():
            continue
        filled = pd.Series(ids).mask(ids == "").ffill().to_numpy(dtype=object)
        pairs = pd.DataFrame({"one": filled, "two": other})[label != ""]
        if pairs.duplicated().any():
            continue
        warnings.warn(
            CrowdshotWarning(
                f"{blank.sum():,} blank cells in column {name!r} are filled from the row above, as in merged cells",
                where=table.name,
                found=int(blank.sum()),
            ),
            stacklevel=3,
        )
        return (filled, annotator) if ids is item else (item, filled)
    return item, annotator


def emails_of(table: Table, annotators: Ids) -> dict[str, str]:
    """Return the e-mail address of each annotator (n,) in another column, if every annotator has only one."""
    for place in range(len(table.header)):
        words = {word for value in table.frame.iloc[:SAMPLE, place] if (word := text(value))}
        if not words or not all(re.fullmatch(EMAIL, word) for word in words):
            continue
        pairs = pd.DataFrame({"name": annotators, "email": pd.Series(table.text(place)).map(fold)})
        pairs = pairs[(pairs["name"] != "") & (pairs["email"] != "")].drop_duplicates()
        if not pairs["name"].duplicated().any() and (pairs["name"].map(fold) != pairs["email"]).any():
            return dict(zip(pairs["name"], pairs["email"], strict=True))
    return {}


def read_wide(file: LabelFile, columns: ColumnsInput = None) -> LabelsRead:
    """Read a table with a row for each item and a column for each annotator."""
    at = _item_column(file.table, columns)
    if at is None:
        raise CrowdshotError(
            f"has no column for the item among {listing(file.table.header)}",
            where=file.table.name,
            found=file.table.header,
            expected="one",
            hint=Use("to name it", columns={"item": "NAME"}),
        )
    others = [column for column in range(len(file.table.header)) if column != at]
    table = file.table
    header = table.header
    truth = _gold_columns(table, others)
    people = _annotators(table, [column for column in others if column not in truth], file.annotator_columns)
    annotators = _annotator_names(table, people)
    table, totals = without_totals(table, at, None, people)
    table, nameless = _with_items(table, at, people, file.skip_bad)
    items = one_each(table, at)
    if len(items) == 0:
        raise CrowdshotError("has a header but no rows", where=table.name, expected="a row for each item")
    if len(people) > CROWDED * len(items) and not file.annotator_columns:
        warnings.warn(
            CrowdshotWarning(
                f"is read as {len(items)} items and {len(people)} annotators",
                where=table.name,
                found=(len(items), len(people)),
                hint=Use("if each row is an annotator", format_name="turned"),
            ),
            stacklevel=2,
        )
    labels = [labels_in(table, column, file.several) for column in people]
    counts = wide_tables.count(np.concatenate(labels))
    missing = {"", "nan"} if wide_tables.is_label(counts, table.name) else {"", "nan", "-1"}
    frame = pd.DataFrame(
        {
            "item": np.tile(items, len(people)),
            "annotator": np.repeat(np.array(annotators, dtype=object), len(items)),
            "label": np.concatenate([_without(missing, cells) for cells in labels]),
        }
    )
    annotations = Annotations.from_frame(frame, Columns(), items=items, annotators=annotators, source=table.name)
    known = zip(items, _without(missing, labels_in(table, truth[0], file.several)), strict=True) if truth else ()
    ignored = sorted({*others} - {*people, *truth})
    left_out: dict[str, int | list[str]] = {
        NO_ANNOTATOR: [header[c] or f"column {c + 1}" for c in ignored],
        OF_TOTALS: totals,
        "rows without an item": nameless,
        RAGGED: table.n_ragged,
        "cells with -1, taken for no label": counts["-1"] if "-1" in missing else 0,
    }
    used: dict[str, str | list[str]] = {"item": header[at] or "column 1", "annotator": annotators}
    used |= {"true label": header[truth[0]]} if truth else {}
    unused = [header[c] for c in ignored]
    return LabelsRead(
        replace(annotations, columns=Columns(item=header[at] or "item")),
        drop_empty(left_out),
        gold={item: label for item, label in known if label},
        sources=[SourceUsed(file.name, columns=used, unused=unused)],
    )


def _with_items(table: Table, at: int, people: Sequence[int], skip_bad: bool) -> tuple[Table, int]:
    """Return the table without rows that have no item, and the number of labelled rows among these."""
    nameless = table.text(at) == ""
    if not nameless.any():
        return table, 0
    labelled = nameless & np.any([table.text(column) != "" for column in people], axis=0)
    if labelled.any() and not skip_bad:
        row = first(labelled)
        raise CrowdshotError(
            "is empty",
            where=table.place(row, at),
            expected="the item, because the row has a label",
            hint=BAD_ROWS,
        )
    return _rows(table, ~nameless), int(labelled.sum())


def _gold_columns(table: Table, others: list[int]) -> list[int]:
    """Return the position of the column of true labels in a list, which is empty if there is none."""
    truth = [column for column in others if plain(table.header[column]) in TRUTH]
    if len(truth) > 1:
        names = [table.header[column] for column in truth]
        raise CrowdshotError(
            f"has {len(truth)} columns of true labels, {listing(names)}",
            where=table.name,
            found=names,
            expected="one at most",
        )
    if truth:
        warn_gold_column(table.name, table.header[truth[0]])
    return truth


def _annotator_names(table: Table, people: list[int]) -> list[str]:
    """Return the names of the annotators' columns, which must be unique and not empty."""
    annotators = [table.header[column] for column in people]
    times = Counter(annotators)
    odd = next((name for name in annotators if not name or times[name] > 1), None)
    if odd is not None:
        raise CrowdshotError(
            f"has more than one column {odd!r}" if odd else "has a column without a name",
            where=table.name,
            found=odd,
            expected="a column for each annotator",
        )
    return annotators


def is_long(file: LabelFile, columns: ColumnsInput = None) -> bool:
    """Return whether the table has columns for items, annotators and labels."""
    try:
        table, columns = of_question(_with_annotator(file, columns), columns, file.several)
        find_columns(table.header, columns, repeats=_repeats_in(table))
    except CrowdshotError:
        return False
    return True


def is_wide(file: LabelFile, columns: ColumnsInput = None) -> bool:
    """Return whether the table has a column for items, not both for annotators and labels, and columns share labels.

    Less specific names such as "email" and "value" do not count as names of annotators and labels if each row has a
    different item.
    """
    table = file.table
    at = _item_column(table, columns)
    if at is None or file.annotator_columns:
        return at is not None
    if _names_annotator_and_label(file, ranks=2):
        return False
    if _names_annotator_and_label(file, ranks=3) and pd.Index(table.text(at)).has_duplicates:
        return False
    others = [
        column for column in range(len(table.header)) if column != at and plain(table.header[column]) not in TRUTH
    ]
    return len(linked_columns(table, others)) > 1


def may_be_turned(file: LabelFile) -> bool:
    """Return whether a table may have a row for each annotator and a column for each item (see `transposed`)."""
    if image_columns(file.table):
        return True
    return not any(matches(role, file.table.header) for role in ("item", "label"))


def image_columns(table: Table) -> list[int]:
    """Return the columns with names of image files."""
    return [place for place, name in enumerate(table.header) if name.lower().endswith(ENDINGS)]


def _names_annotator_and_label(file: LabelFile, ranks: int) -> bool:
    """Return whether the table has columns for labels and for annotators, or a single annotator."""
    annotator, label = (bool(matches(role, file.table.header, ranks)) for role in ("annotator", "label"))
    return label and (annotator or file.annotator is not None)


def _find_columns(table: Table, columns: ColumnsInput) -> Columns:
    try:
        return find_columns(table.header, columns, table.name, _repeats_in(table))
    except CrowdshotError as error:
        if not any(matches(role, table.header) for role in ("annotator", "label")) and not columns:
            error.hint = Use("if each annotator has a column", annotator_columns=["NAME", "NAME"])
        raise


def _repeats_in(table: Table) -> Callable[[str], bool]:
    """Return the function that says whether a column has repeated values."""

    def repeats(name: str) -> bool:
        words = pd.Series(cells_of(table, table.header.index(name)))
        return bool(words[words != ""].duplicated().any())

    return repeats


def _annotators(table: Table, others: list[int], named: Sequence[str]) -> list[int]:
    """Return the columns of annotators: those named by the caller, those recognised, or a single column."""
    header = [table.header[column] for column in others]
    unknown = next((name for name in named if name not in header), None)
    if unknown is not None:
        raise CrowdshotError(
            f"names {unknown!r}",
            argument="annotator_columns",
            found=unknown,
            expected=f"some of the columns of {table.name}, {listing(header)}",
            among=header,
        )
    if named:
        return [column for column in others if table.header[column] in named]
    found = linked_columns(table, others)
    if not found and len(others) > 1:
        raise CrowdshotError(
            f"has no columns that are clearly annotators among {listing(header)}",
            where=table.name,
            found=header,
            expected="some with labels in common",
            hint=Use("to name them", annotator_columns=["NAME", "NAME"]),
        )
    if not found and not others:
        raise CrowdshotError("has no column of an annotator", where=table.name, expected="one")
    return found or others


def linked_columns(table: Table, columns: Sequence[int]) -> list[int]:
    """Return the columns that share labels, which are therefore annotators (or items, in a transposed table).

    -1 is ignored, because it may mean a missing label in any column.
    """
    counts = [wide_tables.count(labels_in(table, column, several=True)) for column in columns]
    shared = [{value: n for value, n in count.items() if value != "-1"} for count in counts]
    return [columns[place] for place in wide_tables.annotators_among([table.header[c] for c in columns], shared)]


def without_totals(
    table: Table, item: int, annotator: int | None = None, labels: Sequence[int] = ()
) -> tuple[Table, list[str]]:
    """Return the table without rows of totals, and the names of these rows.

    Such a row has a name such as "Total" or "Subtotal Ann:" in the item's column, or in another if that is blank. In a
    long table, it has no ``annotator``. In a wide table, none of its cells in the columns ``labels`` is a label of
    another row, unless the row is at the end and named exactly so.
    """
    ids = table.text(item)
    names = ids.copy()
    blank = np.flatnonzero(ids == "")
    cells = {column: cells_of(table, column) for column in range(len(table.header))} if len(blank) else {}
    for row in blank:
        names[row] = next((c[row] for c in cells.values() if wide_tables.is_total(c[row], exactly=False)), "")
    found = np.array([wide_tables.is_total(name, exactly=False) for name in names], dtype=bool)
    if annotator is not None:
        found &= cells_of(table, annotator) == ""
    elif found.any():
        cells = cells or {column: cells_of(table, column) for column in labels}
        usual = {cell for column in labels for cell in cells[column][~found]} - {""}
        own = np.array([any(cells[column][row] in usual for column in labels) for row in range(len(ids))], dtype=bool)
        found &= ~own | (_at_end(found) & np.array([wide_tables.is_total(name) for name in ids], dtype=bool))
    if not found.any():
        return table, []
    return _rows(table, ~found), names[found].tolist()


def _at_end(mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the last consecutive rows of the mask."""
    last: NDArray[np.bool_] = np.logical_and.accumulate(mask[::-1])[::-1]
    return last


def _rows(table: Table, wanted: NDArray[np.bool_]) -> Table:
    return replace(table, frame=table.frame[wanted].reset_index(drop=True), rows=table.rows[wanted])


def drop_empty(left_out: Mapping[str, int | list[str]]) -> dict[str, int | list[str]]:
    """Return only the reasons that apply."""
    return {reason: entries for reason, entries in left_out.items() if entries}


def _with_annotator(file: LabelFile, columns: ColumnsInput) -> Table:
    """Return the table, with a column for the file's annotator if it has none and is one of several files."""
    table = file.table
    named = columns is not None and (not isinstance(columns, Mapping) or "annotator" in columns)
    if named or file.annotator is None or matches("annotator", table.header):
        return table
    return replace(table, frame=table.frame.assign(annotator=file.annotator))


def _item_column(table: Table, columns: ColumnsInput) -> int | None:
    """Return the position of the item's column.

    This is the column that the caller named, or one with a usual name, or a first column without a name (the index that
    pandas writes). Of several columns with usual names, the most usual with unique values is taken.
    """
    if columns is not None and not (isinstance(columns, Mapping) and set(columns) == {"item"}):
        return None
    names = [columns["item"]] if isinstance(columns, Mapping) else matches("item", table.header)
    if not names and table.header[:1] == [""]:
        return 0
    places = [table.header.index(name) for name in names if table.header.count(name) == 1]
    if len(places) > 1:
        places = [place for place in places if len(set(table.text(place))) == len(table.frame)]
    return next(iter(places), None)


def _without(missing: Collection[str], cells: Ids) -> Ids:
    """Replace the values that mean a missing label by ""."""
    code, words = pd.factorize(cells)
    known: Ids = np.array(["" if fold(word) in missing else word for word in words], dtype=object)
    labels: Ids = known[code]
    return labels


WIDE = Format(recognises=is_wide, read=read_wide)
LONG = Format(recognises=lambda file, columns: True, read=read_long)


# ---- Sheets of a workbook -------------------------------------------------------------------------------------------


def sheets_with_labels(file: LabelFile, fits: Callable[[LabelFile], bool]) -> list[LabelFile]:
    """Return the file, or the sheet of a workbook that holds labels; several such sheets are refused.

    If sheets hold labels of one annotator each, every sheet belongs to the annotator with its name. Sheets with names
    that no annotator's column has (gold, final, consensus) are then left out.
    """
    if len(file.sheets) < 2:
        return [file]
    readable = [sheet for sheet, table in file.sheets.items() if not isinstance(table, CrowdshotError)]
    complete = [sheet for sheet in readable if fits(file.at(sheet))]
    if len(complete) == 1:
        others = [sheet for sheet in file.sheets if sheet not in complete]
        warnings.warn(
            CrowdshotWarning(
                f"Labels are read from the sheet {complete[0]!r}, not from {listing(others)}",
                where=file.name,
                found=others,
            ),
            stacklevel=3,
        )
        return [file.at(complete[0])]
    single = [sheet for sheet in readable if fits(file.at(sheet, annotator=sheet))]
    if not complete and len(single) > 1:
        people = [sheet for sheet in single if not is_called_otherwise(sheet)] or single
        left_out = [sheet for sheet in single if sheet not in people]
        rest = f"; nothing is read from {listing(left_out)}" if left_out else ""
        warnings.warn(
            CrowdshotWarning(
                f"Each of the sheets {listing(people)} is read as the labels of one annotator{rest}",
                where=file.name,
                found=people,
            ),
            stacklevel=3,
        )
        return [file.at(sheet, annotator=sheet) for sheet in people]
    damaged = next((table for table in file.sheets.values() if isinstance(table, CrowdshotError)), None)
    if damaged is not None and not complete:
        raise damaged
    candidates = complete or list(file.sheets)
    raise CrowdshotError(
        f"has {len(candidates)} sheets{' that could hold the labels' if complete else ''}, {listing(candidates)}",
        where=file.name,
        found=candidates,
        expected="one",
        hint=Use("to choose one", sheet="NAME"),
    )
