"""Read Parquet files within limits of memory: a few kilobytes can decompress to gigabytes.

A Parquet file stores repeated cells once, and its header does not say how large they are when they are expanded.
Therefore text is read in its dictionary encoding, and its size is computed before it is expanded. A list in one row has
any length and is decoded as a whole, so files with nested columns are first read in a process with limited memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet
from numpy.typing import NDArray

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import first_line
from crowdshot.io.archive_limits import check_unpacked
from crowdshot.io.limited_process import LimitedProcess

MAGIC = b"PAR1"
NESTED_BYTES = 100  # of a nested value as a Python object
AT_ONCE = 2**16  # rows
NESTED_ROWS = 2**10  # rows, of any length, that are decoded before their size is known
MEMORY = 3 * 2**29  # bytes to count a file with nested columns
MEMORY_TIMES = 20  # the size of the file
SECONDS = 30  # of computing, to count a file with nested columns
SECONDS_PER_MB = 2
SLOWDOWN = 10  # by other processes
TEXT_TYPES = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


class ParquetTable:
    """An open Parquet file, given as a path or as bytes; messages call it ``name``."""

    def __init__(self, source: Path | bytes, name: str) -> None:
        self._source, self._name = source, name
        self._size = len(source) if isinstance(source, bytes) else source.stat().st_size
        with self._errors_named():
            plain = self._open([])
            self.n_rows: int = plain.metadata.num_rows
            self._schema = plain.schema_arrow
            check_unpacked(name, self._size, declared_size(plain.metadata, self._schema))
            text = [field.name for field in self._schema if field.type in TEXT_TYPES]
            self._file = self._open(text)
        self._nested = any(pa.types.is_nested(field.type) for field in self._schema)

    def _open(self, dictionary_columns: list[str]) -> pa.parquet.ParquetFile:
        source = pa.BufferReader(self._source) if isinstance(self._source, bytes) else self._source
        # a buffer would keep everything that was read in memory
        return pa.parquet.ParquetFile(source, read_dictionary=dictionary_columns, pre_buffer=False)

    def frames(self, rows: int | None = None) -> Iterator[pd.DataFrame]:
        """Yield all rows in frames of about ``rows`` rows, or in a single frame."""
        if self._nested:
            self._check_in_process(rows)
        for batches in self.pieces(rows):
            with self._errors_named():
                frame = self._frame(batches)
            yield frame

    def pieces(self, rows: int | None) -> Iterator[list[pa.RecordBatch]]:
        """Yield about ``rows`` rows at a time, or all; refuse a piece that decompresses to too many bytes."""
        batches: list[pa.RecordBatch] = []
        size = 0
        with self._errors_named():
            for batch in self._file.iter_batches(min(rows or AT_ONCE, NESTED_ROWS if self._nested else AT_ONCE)):
                size += sum(map(_size, batch.columns))
                check_unpacked(self._name, self._size, size)
                batches.append(batch.cast(self._schema))
                if rows is not None and sum(map(len, batches)) >= rows:
                    yield batches
                    batches, size = [], 0
            if batches or rows is None:
                yield batches

    def _check_in_process(self, rows: int | None) -> None:
        seconds = SECONDS + SECONDS_PER_MB * self._size // 2**20
        path = None if isinstance(self._source, bytes) else str(self._source.absolute())
        data = [np.frombuffer(self._source, np.uint8)] if isinstance(self._source, bytes) else []
        memory = MEMORY + MEMORY_TIMES * self._size
        with LimitedProcess("io.parquet_files:check_in_process", self._name, memory, seconds) as process:
            process.ask(SLOWDOWN * seconds, {"name": self._name, "path": path, "rows": rows}, data)

    def _frame(self, batches: Sequence[pa.RecordBatch]) -> pd.DataFrame:
        table = pa.Table.from_batches(batches, self._schema)
        table.validate(full=True)  # finds invalid text here instead of where it is used
        frame: pd.DataFrame = table.to_pandas()
        # an index that pandas saved may hold the ids
        return frame.reset_index() if frame.index.name is not None or frame.index.dtype.kind not in "iu" else frame

    @contextmanager
    def _errors_named(self) -> Iterator[None]:
        try:
            yield
        except (CrowdshotError, MemoryError):
            raise
        except Exception as error:  # metadata that pandas saved in the file may raise anything
            reason = first_line(error) or type(error).__name__
            raise CrowdshotError(f"is damaged ({reason})", where=self._name, expected="a Parquet file") from None


def check_in_process(facts: dict[str, Any], arrays: Sequence[NDArray[Any]]) -> tuple[dict[str, Any], list[Any]]:
    """Read a file, given by its path or its bytes, and return nothing."""
    source = Path(facts["path"]) if facts["path"] is not None else arrays[0].tobytes()
    for _ in ParquetTable(source, facts["name"]).pieces(facts["rows"]):
        pass
    return {}, []


def declared_size(metadata: pa.parquet.FileMetaData, schema: pa.Schema) -> int:
    """Return the least size in bytes of all columns as Python holds them, from the number of rows.

    A column that repeats one value takes a few bytes in the file. Text and the values of lists are counted when they
    are read. The metadata of columns are not used, because pyarrow ends the process if they are damaged.
    """
    nested = sum(pa.types.is_nested(field.type) for field in schema)
    return int(metadata.num_rows * (8 * len(schema) + NESTED_BYTES * nested))


def _size(column: pa.Array) -> int:
    """Return the size of a column in bytes when its dictionary is expanded and its values are Python objects."""
    if pa.types.is_nested(column.type):
        flat = column.flatten()
        inner = flat if isinstance(flat, list) else [flat]
        return NESTED_BYTES * sum(map(len, [column, *inner])) + sum(map(_size, inner))
    if not pa.types.is_dictionary(column.type):
        return max(int(column.nbytes), 8 * len(column))
    if column.dictionary.type not in TEXT_TYPES:
        return 8 * len(column)
    lengths = pa.compute.binary_length(column.dictionary).take(column.indices)
    return int(pa.compute.sum(lengths).as_py() or 0) + int(column.indices.nbytes)
