"""Read the labelled texts from a table, a label tool's export, or a folder of .txt files."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import first, listing, shown
from crowdshot.io.cells import Ids
from crowdshot.io.file_names import list_files
from crowdshot.io.tables import Table, decode, ids_of, read_bytes
from crowdshot.labels.columns import find_columns, having_word, id_columns, plain
from crowdshot.labels.formats.label_file import LabelFile

# Names of text columns in three ranks; the first rank that matches any column of the table decides.
ALIASES = (
    "text texts",
    "sentence document content body review tweet message comment post passage utterance paragraph abstract",
    "question prompt title headline description caption transcript snippet",
)


class TextsRead(NamedTuple):
    """Texts and their ids (N,): values of an id column, paths below the folder, or the texts themselves."""

    ids: Ids
    texts: list[str]
    are_files: bool = False


def read_text_items(path: str | os.PathLike[str], sheet: str | None = None, skip_bad: bool = False) -> TextsRead:
    """Read texts from a folder of .txt files, or from a CSV, Excel, JSON or Parquet file with a row for each text.

    Of a workbook, the sheet with texts is read, which is ``sheet`` if several have them. ``skip_bad`` leaves out rows
    with too many or too few cells.

    The text column is recognised by its name. The id column is named like an item column in a label table; without one,
    the text is the id. In an export of Label Studio, the columns are the fields of a task's data, and the task's id.
    Rows that repeat an id with the same text, as in a label table, count once.
    """
    if Path(path).is_dir():
        files = list_files(path, (".txt",), "texts")
        texts = [_content(file) for file in files.values()]
        return TextsRead(np.array([shown(name) for name in files], dtype=object), texts, are_files=True)
    return texts_of(_table(_sheet_of(LabelFile(path, skip_bad=skip_bad), sheet)))


def _sheet_of(file: LabelFile, sheet: str | None) -> LabelFile:
    """Return the sheet of a workbook that has texts; other files unchanged."""
    if len(file.sheets) < 2:
        return file
    having = [name for name, table in file.sheets.items() if isinstance(table, Table) and _text_columns(table)]
    chosen = [sheet] if sheet in having else having
    if len(chosen) != 1:
        found = having or list(file.sheets)
        raise CrowdshotError(
            f"has {len(found)} sheets{' with texts' if having else ', none with texts'}, {listing(found)}",
            where=file.name,
            found=found,
            expected="one with a column for the text",
            hint=Use("to choose one", sheet="NAME") if having else None,
        )
    if chosen != [sheet]:
        others = [name for name in file.sheets if name not in chosen]
        warnings.warn(
            CrowdshotWarning(
                f"Texts are read from the sheet {chosen[0]!r}, not from {listing(others)}",
                where=file.name,
                found=others,
            ),
            stacklevel=3,
        )
    return file.at(chosen[0])


def texts_of(table: Table, repeated: bool = False) -> TextsRead:
    """Return the texts of a table as `read_text_items` does; with ``repeated``, every row is kept."""
    if len(table.frame) == 0:
        raise CrowdshotError("has a header but no rows", where=table.name, expected="a row for each text")
    text_column = _text_column(table)
    id_column = _id_column(table, text_column)
    found = table.text(text_column)
    ids = found if id_column is None else ids_of(table, id_column)
    if repeated:
        return TextsRead(ids, found.tolist())
    kept = ~pd.Index(ids).duplicated()
    text_of = dict(zip(ids[kept], found[kept], strict=True))
    other = np.array([text_of[name] != text for name, text in zip(ids, found, strict=True)])
    if other.any():
        row = first(other)
        raise CrowdshotError(
            f"is another text for {ids[row]!r} than in an earlier row",
            where=table.place(row, text_column),
            found=found[row],
            expected="one text for each item",
        )
    return TextsRead(ids[kept], found[kept].tolist())


def _content(file: Path) -> str:
    """Read a text; an empty file is an empty text, which is reported where texts are checked."""
    return decode(read_bytes(file), shown(file)).strip() if file.stat().st_size else ""


def _table(file: LabelFile) -> Table:
    """Return a file of records as a table; of Label Studio tasks, the data and the id."""
    if not (file.is_array or file.is_lines) or not isinstance(file.first.get("data"), dict):
        return file.table
    rows = [{"id": record.fields.get("id"), **(record.fields.get("data") or {})} for record in file.records]
    return Table(file.name, pd.DataFrame(rows, dtype=object), np.arange(1, 1 + len(rows)))


def _text_columns(table: Table) -> list[int]:
    """Return the columns that may hold the text: by their whole name, or else by a word such as "Review text"."""
    names = [plain(name) for name in table.header]
    for rank in ALIASES:
        found = [place for place, name in enumerate(names) if name in rank.split()]
        if found:
            return found
    for rank in ALIASES:
        words = having_word(rank.split(), table.header)
        found = [place for place, name in enumerate(table.header) if name in words]
        long = [place for place in found if not plain(table.header[place]).endswith(("id", "name", "length"))]
        if long:
            return long
    return []


def _text_column(table: Table) -> int:
    found = _text_columns(table)
    if len(found) > 1:
        names = [table.header[place] for place in found]
        raise CrowdshotError(
            f"has {len(found)} columns that could be the text, {listing(names)}",
            where=table.name,
            found=names,
            expected="one",
        )
    if found:
        return found[0]
    raise CrowdshotError(
        f"has no column for the text among {listing(table.header)}",
        where=table.name,
        found=table.header[:10],
        expected=f"one called {', '.join(' '.join(ALIASES).split()[:6])} or similar",
    )


def _id_column(table: Table, text: int) -> int | None:
    others = [name for place, name in enumerate(table.header) if place != text]
    placeholders = {"annotator": "\0annotator", "label": "\0label"}
    try:
        return table.header.index(find_columns([*others, *placeholders.values()], placeholders).item)
    except CrowdshotError:
        ids = id_columns(others)
        return table.header.index(ids[0]) if len(ids) == 1 else None
