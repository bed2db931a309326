"""Tables of labels of any length, CSV or Parquet: which columns they have, and how their rows come, bit by bit."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from pyarrow import fs

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import listing, show
from crowdshot.io.cells import AROUND
from crowdshot.io.file_names import expand
from crowdshot.io.parquet import MAGIC
from crowdshot.io.tables import Table, sniff
from crowdshot.labels.columns import TRUTH, Columns, ColumnsInput, find_columns, input_names, plain
from crowdshot.labels.formats.question_choice import asked_in, refuse_several

# ---- remote ------------------------------------------------------------
#
# Files where Arrow finds them: on this machine, or in a store (``s3://bucket/labels/*.parquet``).


STORES = ("s3:", "gs:")


def expand_all(patterns: Sequence[Path]) -> list[Path]:
    """As `crowdshot.io.file_names.expand`, in stores too."""
    return [file for given in patterns for file in (_stored(given) if _store(given) else expand([given]))]


def located(path: Path) -> tuple[fs.FileSystem, str]:
    """Who opens it, and by which name; an `OSError` where a store cannot be reached."""
    store = _store(path)
    return (fs.LocalFileSystem(), str(path)) if store is None else (_reached(store), "/".join(path.parts[1:]))


def stamp(path: Path) -> tuple[int, int | None]:
    """By which a file is known again: its size, and when it was written."""
    try:
        system, name = located(path)
        found = system.get_file_info(name)
    except OSError as error:
        raise CrowdshotError(f"{path} could not be read ({told(error)}), expected a file.") from None
    return found.size, found.mtime_ns


def told(error: OSError) -> str:
    return str(error.strerror or error).splitlines()[0]


def _store(path: Path) -> str | None:
    """The bucket, s3://bucket, of what has become s3:/bucket/labels as a path."""
    scheme, *rest = path.parts or [""]
    return f"{scheme}//{rest[0]}" if scheme in STORES and rest else None


@cache
def _reached(store: str) -> fs.FileSystem:
    system, _ = fs.FileSystem.from_uri(store)
    return system


def _stored(given: Path) -> list[Path]:
    if not any(sign in given.name for sign in "*["):
        return [given]
    try:
        system, name = located(given)
        found = system.get_file_info(fs.FileSelector(name.rpartition("/")[0]))
    except OSError as error:
        raise CrowdshotError(f"{given} could not be listed ({told(error)}), expected a store within reach.") from None
    names = sorted(info.base_name for info in found if info.is_file and fnmatch(info.base_name, given.name))
    if not names:
        raise CrowdshotError(f"{given} matches no file, expected some of labels.")
    return [given.with_name(name) for name in names]


# ---- sources ------------------------------------------------------------


SAMPLE = 2**20  # bytes of text that tell the separator, and how long rows are
ROWS = 65_536  # of Parquet, at a time
LOOKED_AT = 10_000  # rows of Parquet that tell whether they answer one question
AT_ONCE = 1_000_000  # rows of a task, where row groups are as small


@dataclass(frozen=True)
class Source:
    """A file, or some row groups of it. ``rows``: as many, or about."""

    path: Path
    columns: Columns
    rows: int
    integers: bool  # whether items are whole numbers, and not text
    question: tuple[str, str] | None = None  # the column that says which one a row answers, and which one is asked for
    unread: tuple[str, ...] = ()  # its other columns
    separator: str | None = None  # of text; None for Parquet
    groups: tuple[int, ...] = ()
    first_row: int = 1  # as a person counts

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Item, annotator and label as they are written, and the question if one is asked for."""
        names = [*self.columns, *(self.question or ())[:1]]
        try:
            with _opened(self.path) as stored:
                if self.separator is None:
                    file = pa.parquet.ParquetFile(stored, pre_buffer=False)
                    for batch in file.iter_batches(ROWS, list(self.groups), columns=names, use_threads=False):
                        yield batch.select(names)
                    return
                yield from pa.csv.open_csv(
                    stored,
                    pa.csv.ReadOptions(use_threads=False, block_size=SAMPLE),
                    pa.csv.ParseOptions(delimiter=self.separator, newlines_in_values=False),
                    pa.csv.ConvertOptions(
                        column_types=dict.fromkeys(names, pa.string()), include_columns=names, strings_can_be_null=False
                    ),
                )
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self.path, error) from None


def sources_of(paths: Sequence[Path], columns: ColumnsInput = None) -> list[Source]:
    """The files in their order, in bits that can be worked on side by side where they are Parquet."""
    found = [bit for path in paths for bit in _open(path, columns)]
    integers = all(bit.integers for bit in found)  # else 7 and "7" are the same item, and all are text
    names = found[0].columns
    for bit in found:
        if bit.columns != names and set(names) != set(bit.columns):
            where = f"{bit.path} has the columns {listing(bit.columns)}"
            raise CrowdshotError(f"{where}, expected {listing(names)} as in {found[0].path}.")
    truth = called(TRUTH, found[0])
    if truth:
        told = f"{found[0].path}: {truth!r} is not taken for true labels with engine=; gold= reads a file of them."
        warnings.warn(told, UserWarning, stacklevel=2)
    return [Source(**{**vars(bit), "integers": integers}) for bit in found]


def _open(path: Path, columns: ColumnsInput) -> list[Source]:
    try:
        with _opened(path) as file:
            start = file.read(SAMPLE)
            size = file.size()
    except FileNotFoundError:
        raise CrowdshotError(f"{path} does not exist, expected a file.") from None
    except OSError as error:
        raise CrowdshotError(f"{path} could not be read ({told(error)}), expected a file.") from None
    if not start.strip():
        raise CrowdshotError(f"{path} is empty, expected a table of labels.")
    if start.startswith(MAGIC):
        return _of_parquet(path, columns)
    try:
        text = start.decode("utf-8-sig") if len(start) < SAMPLE else start[: start.rfind(b"\n") + 1].decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CrowdshotError(f"{path} holds binary data, expected CSV as UTF-8 or Parquet.") from None
    if text.lstrip()[:1] in ("{", "[", "<"):
        raise CrowdshotError(f"{path} is no table of rows and columns, expected CSV or Parquet with engine=.")
    separator, _ = sniff(text, str(path))
    rows = max(1, round(size / len(start) * text.count("\n")))
    said = _said(_table(path, _rows_of(text, separator, path)), columns)
    return [Source(path, rows=rows, integers=False, separator=separator, first_row=2, **said)]


def _opened(path: Path) -> pa.NativeFile:
    system, name = located(path)
    return system.open_input_file(name)


def _rows_of(text: str, separator: str, path: Path) -> pa.Table:
    """Rows as they are written."""
    parsing = pa.csv.ParseOptions(delimiter=separator)
    head = text[: text.index("\n") + 1] if "\n" in text else text
    names = pa.csv.read_csv(pa.BufferReader(head.encode()), parse_options=parsing).column_names
    as_written = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
    try:
        return pa.csv.read_csv(pa.BufferReader(text.encode()), parse_options=parsing, convert_options=as_written)
    except pa.ArrowException as error:
        raise _damaged(path, error) from None


def _table(path: Path, rows: pa.Table) -> Table:
    return Table(str(path), rows.to_pandas(), np.arange(rows.num_rows))


def _said(table: Table, columns: ColumnsInput) -> dict[str, Any]:
    """What the first rows of a file say of its columns, as fields of a `Source`."""
    named = input_names(columns)
    place = asked_in(table, columns, several=False)
    question = None if place is None else (table.header[place], named.pop("label"))
    names = find_columns(table.header, columns if question is None else named, table.name)
    if question is None:
        refuse_several(table, names, *(table.text(table.header.index(name)) for name in names))
    others = tuple(name for name in table.header if name not in names)
    return {"columns": names, "question": question, "unread": others}


def called(words: Collection[str], source: Source) -> str:
    """The column that has one of these names and is not read, "" if there is none."""
    return next((name for name in source.unread if plain(name) in words), "")


def _damaged(path: Path, error: Exception, expected: str = "a table of labels") -> CrowdshotError:
    return CrowdshotError(f"{path} is damaged ({str(error).splitlines()[0]}), expected {expected}.")


def _of_parquet(path: Path, columns: ColumnsInput) -> list[Source]:
    try:
        with _opened(path) as stored:
            file = pa.parquet.ParquetFile(stored)
            schema, meta = file.schema_arrow, file.metadata
            sizes = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
            short = [field.name for field in schema if not _holds_much(field.type)]
            first_rows = next(file.iter_batches(LOOKED_AT, columns=short, use_threads=False), schema.empty_table())
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error, "a Parquet file") from None
    n = first_rows.num_rows
    cells = [first_rows[name] if name in short else pa.nulls(n) for name in schema.names]
    said = _said(_table(path, pa.table(cells, schema.names)), columns)
    integers = pa.types.is_integer(schema.field(said["columns"].item).type)
    out: list[Source] = []
    groups: list[int] = []
    first = 0
    for group, size in enumerate(sizes):
        groups.append(group)
        rows = sum(sizes[each] for each in groups)
        if rows + size > AT_ONCE or group == len(sizes) - 1:
            out.append(Source(path, rows=rows, integers=integers, groups=tuple(groups), first_row=first + 1, **said))
            groups, first = [], first + rows
    return out


def _holds_much(kind: pa.DataType) -> bool:
    """Pictures, embeddings and the like."""
    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def as_text(values: pa.Array, where: str) -> pa.Array:
    """Cells as text without spaces around it, null where there is none; 7.0 is a 7 that stood beside a missing one."""
    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
        kind = values.type
    if pa.types.is_floating(kind):
        values = pa.compute.if_else(pa.compute.is_nan(values), None, values)
        if pa.compute.all(pa.compute.equal(values, pa.compute.floor(values))).as_py() is not False:
            values = values.cast(pa.int64())
    elif pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise CrowdshotError(f"{where} holds {kind}, expected text or numbers.")
    text = pa.compute.utf8_trim(values.cast(pa.string()), characters=AROUND)
    return pa.compute.if_else(pa.compute.equal(text, ""), None, text)


def refuse_blank(values: pa.Array, said: pa.Array, where: tuple[Path, int, str], role: str) -> None:
    """A label without an item or an annotator; ``where``: the file, the number of the first row, the column."""
    bad = pa.compute.and_(pa.compute.is_null(values), pa.compute.is_valid(said))
    if pa.compute.any(bad).as_py():
        path, row, column = where
        at = pa.compute.index(bad, True).as_py()
        raise CrowdshotError(
            f"{path}, row {row + at}, column {show(column)} is empty, expected the {role} that the label belongs to."
        )
