"""The texts that labels speak of: a table, a label tool's export, or a folder of .txt files."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first, listing, shown
from crowdshot.io.cells import Ids
from crowdshot.io.file_names import list_files
from crowdshot.io.tables import Table, decode, ids_of, read_bytes
from crowdshot.labels.columns import find_columns, plain
from crowdshot.labels.formats.label_file import LabelFile

# The first rank that any column of the table matches decides.
ALIASES = (
    "text texts",
    "sentence document content body review tweet message comment post passage utterance paragraph abstract",
    "question prompt title headline description caption transcript snippet",
)


class TextsRead(NamedTuple):
    ids: Ids
    """(N,) what labels may call them: an id, a file's path below the folder, or the text itself."""
    texts: list[str]
    are_files: bool = False


def read_text_items(path: str | os.PathLike[str]) -> TextsRead:
    """A folder of .txt files, or a file with a row for each text: CSV, JSON (lines or an array), Parquet.

    The column of the text is called so, or like it; the id is a column that is called like an item, as in tables of
    labels, else the text itself. In an export of Label Studio these are fields of a task's data, and its id. Rows that
    repeat an id and its text, as in a table of labels, count once.
    """
    if Path(path).is_dir():
        files = list_files(path, (".txt",), "texts")
        texts = [_content(file) for file in files.values()]
        return TextsRead(np.array([shown(name) for name in files], dtype=object), texts, are_files=True)
    return texts_of(_table(LabelFile(path)))


def texts_of(table: Table, repeated: bool = False) -> TextsRead:
    """As `read_text_items`; ``repeated``: each row counts, whatever its id."""
    if len(table.frame) == 0:
        raise CrowdshotError(f"{table.name} has a header but no rows, expected a row for each text.")
    at = _text_column(table)
    named = _id_column(table, at)
    found = table.text(at)
    ids = found if named is None else ids_of(table, named)
    if repeated:
        return TextsRead(ids, found.tolist())
    kept = ~pd.Index(ids).duplicated()
    text_of = dict(zip(ids[kept], found[kept], strict=True))
    other = np.array([text_of[name] != text for name, text in zip(ids, found, strict=True)])
    if other.any():
        row = first(other)
        raise CrowdshotError(
            f"{table.place(row, at)} is another text for {ids[row]!r} than a row before has, expected one text an item."
        )
    return TextsRead(ids[kept], found[kept].tolist())


def _content(file: Path) -> str:
    """A file that holds nothing is an empty text, which is told where texts are checked."""
    return decode(read_bytes(file), shown(file)).strip() if file.stat().st_size else ""


def _table(file: LabelFile) -> Table:
    """Any file of records as a table; of a Label Studio task its data, with its id."""
    if not (file.is_array or file.is_lines) or not isinstance(file.first.get("data"), dict):
        return file.table
    rows = [{"id": record.fields.get("id"), **(record.fields.get("data") or {})} for record in file.records]
    return Table(file.name, pd.DataFrame(rows, dtype=object), np.arange(1, 1 + len(rows)))


def _text_column(table: Table) -> int:
    names = [plain(name) for name in table.header]
    for rank in ALIASES:
        found = [place for place, name in enumerate(names) if name in rank.split()]
        if len(found) > 1:
            which = listing(table.header[place] for place in found)
            raise CrowdshotError(
                f"{table.name} has {len(found)} columns that could be the text, {which}, expected one."
            )
        if found:
            return found[0]
    raise CrowdshotError(
        f"{table.name} has no column for the text among {listing(table.header)}, expected one called"
        f" {', '.join(' '.join(ALIASES).split()[:6])} or the like."
    )


def _id_column(table: Table, text: int) -> int | None:
    others = [name for place, name in enumerate(table.header) if place != text]
    placeholders = {"annotator": "\0annotator", "label": "\0label"}
    try:
        return table.header.index(find_columns([*others, *placeholders.values()], placeholders).item)
    except CrowdshotError:
        return None
