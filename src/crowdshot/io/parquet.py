"""Parquet files, bit by bit: how much a part of one takes in memory is known before it takes it.

A cell that is repeated stands in the file once, so that kilobytes may become gigabytes, and no header tells. Text is
therefore read as the file has it, its words once and where each stands, and counted before it is written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet

from crowdshot.errors import CrowdshotError
from crowdshot.io.archive_limits import check_unpacked

MAGIC = b"PAR1"
AT_ONCE = 2**16  # rows
WORDS = (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


class ParquetTable:
    """An open file; messages call it ``name``."""

    def __init__(self, source: Path | bytes, name: str) -> None:
        self._source, self._name = source, name
        self._size = len(source) if isinstance(source, bytes) else source.stat().st_size
        with self._sound():
            plain = self._open([])
            self.n_rows: int = plain.metadata.num_rows
            self._schema = plain.schema_arrow
            text = [field.name for field in self._schema if field.type in WORDS]
            self._file = self._open(text)

    def _open(self, as_words: list[str]) -> pa.parquet.ParquetFile:
        source = pa.BufferReader(self._source) if isinstance(self._source, bytes) else self._source
        # without a buffer of its own, which keeps what was read
        return pa.parquet.ParquetFile(source, read_dictionary=as_words, pre_buffer=False)

    def frames(self, rows: int | None = None) -> Iterator[pd.DataFrame]:
        """All rows, so many at a time; None: in one frame."""
        batches: list[pa.RecordBatch] = []
        size = 0
        with self._sound():
            for batch in self._file.iter_batches(min(rows or AT_ONCE, AT_ONCE)):
                size += sum(map(_size, batch.columns))
                check_unpacked(self._name, self._size, size)
                batches.append(batch.cast(self._schema))
                if rows is not None and sum(map(len, batches)) >= rows:
                    yield self._frame(batches)
                    batches, size = [], 0
            if batches or rows is None:
                yield self._frame(batches)

    def _frame(self, batches: Sequence[pa.RecordBatch]) -> pd.DataFrame:
        table = pa.Table.from_batches(batches, self._schema)
        table.validate(full=True)  # text that is none would be found only where it is used
        frame: pd.DataFrame = table.to_pandas()
        # ids that a DataFrame had as its index
        return frame.reset_index() if frame.index.name is not None or frame.index.dtype.kind not in "iu" else frame

    @contextmanager
    def _sound(self) -> Iterator[None]:
        try:
            yield
        except CrowdshotError:
            raise
        except Exception as error:  # what pandas noted in the file may be anything, and raises as much
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise CrowdshotError(f"{self._name} is damaged ({reason}), expected a Parquet file.") from None


def _size(column: pa.Array) -> int:
    """In bytes, once it is written out."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    lengths = pa.compute.binary_length(column.dictionary).take(column.indices)
    return int(pa.compute.sum(lengths).as_py() or 0) + int(column.indices.nbytes)
