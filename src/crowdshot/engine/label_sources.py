"""Open label tables of any length, CSV or Parquet, find their columns, and read their rows in batches.

Files may be on this machine or in a store that Arrow can read (``s3://bucket/labels/*.parquet``).
"""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet
from pyarrow import fs

from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import first_line, listing, show
from crowdshot.io.cells import AROUND, EXACT
from crowdshot.io.cells import text as text_of
from crowdshot.io.file_names import expand
from crowdshot.io.parquet_files import MAGIC
from crowdshot.io.tables import Table, sniff
from crowdshot.labels.columns import TRUTH, Columns, ColumnsInput, find_columns, input_names, plain
from crowdshot.labels.formats.question_choice import asked_in, refuse_several

STORES = ("s3:", "gs:")  # URL schemes of object stores


def expand_all(patterns: Sequence[Path]) -> list[Path]:
    """Return the files that match the patterns, like `crowdshot.io.file_names.expand`, but in stores too."""
    return [
        file for pattern in patterns for file in (_expand_in_store(pattern) if _store(pattern) else expand([pattern]))
    ]


def located(path: Path) -> tuple[fs.FileSystem, str]:
    """Return the file system that opens a path, and the path's name in it.

    Raises
    ------
    OSError
        If a store cannot be reached.
    """
    store = _store(path)
    return (fs.LocalFileSystem(), str(path)) if store is None else (_connect(store), "/".join(path.parts[1:]))


def stamp(path: Path) -> tuple[int, int | None]:
    """Return a file's size and modification time in ns, which identify this version of it."""
    try:
        system, name = located(path)
        found = system.get_file_info(name)
    except OSError as error:
        raise _unreadable(path, error) from None
    return found.size, found.mtime_ns


def _unreadable(path: Path, error: OSError) -> CrowdshotError:
    return CrowdshotError(f"could not be read ({_reason(error)})", where=path)


def _reason(error: OSError) -> str:
    return str(error.strerror or error).splitlines()[0]


def _store(path: Path) -> str | None:
    """Return the URL of a path's bucket; `Path` has shortened s3://bucket/labels to s3:/bucket/labels."""
    scheme, *rest = path.parts or [""]
    return f"{scheme}//{rest[0]}" if scheme in STORES and rest else None


@cache
def _connect(store: str) -> fs.FileSystem:
    system, _ = fs.FileSystem.from_uri(store)
    return system


def _expand_in_store(pattern: Path) -> list[Path]:
    if not any(sign in pattern.name for sign in "*["):
        return [pattern]
    try:
        system, name = located(pattern)
        found = system.get_file_info(fs.FileSelector(name.rpartition("/")[0]))
    except OSError as error:
        raise CrowdshotError(
            f"could not be listed ({_reason(error)})", where=pattern, hint="Can this machine connect to the store?"
        ) from None
    names = sorted(info.base_name for info in found if info.is_file and fnmatch(info.base_name, pattern.name))
    if not names:
        raise CrowdshotError("matches no file", where=pattern, expected="label files")
    return [pattern.with_name(name) for name in names]


SAMPLE = 2**20  # bytes of text from which the separator and the length of a row are inferred
BATCH_ROWS = 65_536  # rows read from Parquet at a time
QUESTION_ROWS = 10_000  # Parquet rows inspected for several questions in one table
TASK_ROWS = 1_000_000  # rows per task, if row groups are that small


@dataclass(frozen=True)
class Source:
    """A label file, or some row groups of a Parquet file."""

    path: Path
    columns: Columns
    rows: int  # an estimate for CSV
    integers: bool  # whether item names are integers, not text
    question: tuple[str, str] | None = None  # the column that names each row's question, and the question to read
    unread: tuple[str, ...] = ()  # columns that are not used
    separator: str | None = None  # None for Parquet
    groups: tuple[int, ...] = ()  # row groups
    first_row: int = 1  # the number of the first row in messages

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield rows with the raw item, annotator and label, and the question's column if there is one."""
        names = [*self.columns, *(self.question or ())[:1]]
        try:
            with _opened(self.path) as stored:
                if self.separator is None:
                    file = pa.parquet.ParquetFile(stored, pre_buffer=False)
                    for batch in file.iter_batches(BATCH_ROWS, list(self.groups), columns=names, use_threads=False):
                        yield batch.select(names)
                    return
                yield from pa.csv.open_csv(
                    stored,
                    pa.csv.ReadOptions(use_threads=False, block_size=SAMPLE),
                    pa.csv.ParseOptions(delimiter=self.separator, newlines_in_values=True),
                    pa.csv.ConvertOptions(
                        column_types=dict.fromkeys(names, pa.string()), include_columns=names, strings_can_be_null=False
                    ),
                )
        except (pa.ArrowException, OSError) as error:
            raise _damaged(self.path, error) from None


def sources_of(paths: Sequence[Path], columns: ColumnsInput = None) -> list[Source]:
    """Open label files, in the given order; a Parquet file is divided into sources that can be read in parallel."""
    sources = [source for path in paths for source in _open(path, columns)]
    integers = all(source.integers for source in sources)  # otherwise 7 and "7" must be the same item
    first = sources[0]
    for source in sources:
        if source.columns != first.columns and set(first.columns) != set(source.columns):
            raise CrowdshotError(
                f"has the columns {listing(source.columns)}",
                where=source.path,
                found=list(source.columns),
                expected=f"{listing(first.columns)} as in {first.path}",
            )
    truth = unread_column(TRUTH, first)
    if truth:
        warnings.warn(
            CrowdshotWarning(
                f"The column {truth!r} is ignored, although its name suggests true labels",
                argument="gold",
                found=truth,
                where=first.path,
                hint=Use("to read true labels from a file", gold="FILE"),
            ),
            stacklevel=2,
        )
    return [Source(**{**vars(source), "integers": integers}) for source in sources]


def _open(path: Path, columns: ColumnsInput) -> list[Source]:
    try:
        with _opened(path) as file:
            start = file.read(SAMPLE)
            size = file.size()
    except FileNotFoundError:
        raise CrowdshotError("does not exist", where=path) from None
    except OSError as error:
        raise _unreadable(path, error) from None
    if not start.strip():
        raise CrowdshotError("is empty", where=path, expected="a table of labels")
    if start.startswith(MAGIC):
        return _open_parquet(path, columns)
    try:
        text = start.decode("utf-8-sig") if len(start) < SAMPLE else start[: start.rfind(b"\n") + 1].decode("utf-8-sig")
    except UnicodeDecodeError:
        raise CrowdshotError("is not a text file", where=path, expected="CSV in UTF-8, or Parquet") from None
    if text.lstrip()[:1] in ("{", "[", "<"):
        raise CrowdshotError(
            "This is JSON or XML, which an engine does not read",
            argument="engine",
            where=path,
            expected="a CSV or Parquet table with one row per label",
        )
    separator, _ = sniff(text, str(path))
    rows = max(1, round(size / len(start) * text.count("\n")))
    fields = _source_fields(_table(path, _rows_of(text, separator, path)), columns)
    return [Source(path, rows=rows, integers=False, separator=separator, first_row=2, **fields)]


def _opened(path: Path) -> pa.NativeFile:
    system, name = located(path)
    return system.open_input_file(name)


def _rows_of(text: str, separator: str, path: Path) -> pa.Table:
    """Return the rows with all cells as text, without damaged ones: the last cell of the sample may be incomplete."""
    parsing = pa.csv.ParseOptions(delimiter=separator, newlines_in_values=True, invalid_row_handler=lambda row: "skip")
    try:
        names = pa.csv.open_csv(pa.BufferReader(text.encode()), parse_options=parsing).schema.names
        text_only = pa.csv.ConvertOptions(column_types=dict.fromkeys(names, pa.string()), strings_can_be_null=False)
        return pa.csv.read_csv(pa.BufferReader(text.encode()), parse_options=parsing, convert_options=text_only)
    except pa.ArrowException as error:
        raise _damaged(path, error) from None


def _table(path: Path, rows: pa.Table) -> Table:
    return Table(str(path), rows.to_pandas(), np.arange(rows.num_rows))


def _source_fields(table: Table, columns: ColumnsInput) -> dict[str, Any]:
    """Find the columns of a file from its first rows; return fields of a `Source`."""
    named = input_names(columns)
    place = asked_in(table, columns, several=False)
    question = None if place is None else (table.header[place], named.pop("label"))
    names = find_columns(table.header, columns if question is None else named, table.name)
    if question is None:
        refuse_several(table, names, *(table.text(table.header.index(name)) for name in names))
    others = tuple(name for name in table.header if name not in names)
    return {"columns": names, "question": question, "unread": others}


def unread_column(words: Collection[str], source: Source) -> str:
    """Return the first unused column with one of these names, or ""."""
    return next((name for name in source.unread if plain(name) in words), "")


def _damaged(path: Path, error: Exception, expected: str = "a table of labels") -> CrowdshotError:
    return CrowdshotError(f"is damaged ({first_line(error)})", where=path, expected=expected)


def _open_parquet(path: Path, columns: ColumnsInput) -> list[Source]:
    try:
        with _opened(path) as stored:
            file = pa.parquet.ParquetFile(stored)
            schema, meta = file.schema_arrow, file.metadata
            sizes = [meta.row_group(group).num_rows for group in range(meta.num_row_groups)]
            short = [field.name for field in schema if not _is_large(field.type)]
            first_rows = next(file.iter_batches(QUESTION_ROWS, columns=short, use_threads=False), schema.empty_table())
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error, "a Parquet file") from None
    n = first_rows.num_rows
    cells = [first_rows[name] if name in short else pa.nulls(n) for name in schema.names]
    fields = _source_fields(_table(path, pa.table(cells, schema.names)), columns)
    for name in fields["columns"]:
        _check_type(schema.field(name).type, f"{path}, column {show(name)}")
    kind = schema.field(fields["columns"].item).type
    integers = pa.types.is_integer(kind) and kind != pa.uint64()
    out: list[Source] = []
    groups: list[int] = []
    first = 0
    for group, size in enumerate(sizes):
        groups.append(group)
        rows = sum(sizes[each] for each in groups)
        if rows + size > TASK_ROWS or group == len(sizes) - 1:
            out.append(Source(path, rows=rows, integers=integers, groups=tuple(groups), first_row=first + 1, **fields))
            groups, first = [], first + rows
    return out


def _is_large(kind: pa.DataType) -> bool:
    """Return whether cells may be images, embeddings and the like."""
    return bool(pa.types.is_nested(kind) or pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _check_type(kind: pa.DataType, where: str) -> None:
    if pa.types.is_nested(kind) or pa.types.is_binary(kind):
        raise CrowdshotError(f"has cells of type {kind}", where=where, found=str(kind), expected="text or numbers")


def as_text(values: pa.Array, where: str) -> pa.Array:
    """Return cells as trimmed text, null for empty cells. 7.0 becomes 7: a missing cell made the column float.

    The text of other numbers and of times is that of `cells.text`, as without an engine.
    """
    kind = values.type
    if pa.types.is_dictionary(kind):
        values = values.dictionary_decode()
        kind = values.type
    if pa.types.is_floating(kind):
        values = pa.compute.if_else(pa.compute.is_nan(values), None, values)
        whole = pa.compute.equal(values, pa.compute.floor(values))
        exact = pa.compute.less_equal(pa.compute.abs(values.cast(pa.float64())), EXACT)
        if pa.compute.all(pa.compute.and_(whole, exact)).as_py() is not False:
            values = values.cast(pa.int64())
        else:
            values = _as_cells(values)
    elif pa.types.is_temporal(kind):
        values = _as_cells(values)
    else:
        _check_type(kind, where)
    text = pa.compute.utf8_trim(values.cast(pa.string()), characters=AROUND)
    return pa.compute.if_else(pa.compute.equal(text, ""), None, text)


def _as_cells(values: pa.Array) -> pa.Array:
    encoded = values.dictionary_encode()
    words = [text_of(value) for value in pd.Index(encoded.dictionary.to_pandas())]
    return pa.array(words, pa.string()).take(encoded.indices)


def refuse_blank(values: pa.Array, labels: pa.Array, path: Path, first_row: int, column: str, role: str) -> None:
    """Raise an error for a label without an item or an annotator (the ``role`` of the column)."""
    bad = pa.compute.and_(pa.compute.is_null(values), pa.compute.is_valid(labels))
    if pa.compute.any(bad).as_py():
        row = first_row + pa.compute.index(bad, True).as_py()
        raise CrowdshotError(
            "is empty", where=f"{path}, row {row}, column {show(column)}", expected=f"the {role} of the label"
        )
