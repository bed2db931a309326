"""First pass over labels: rows to buckets by a hash of their item, so that all labels of an item come to lie together.

A chunk of rows is one file with a batch of rows for each bucket; annotators and labels are numbers in lists of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc
from numpy.typing import NDArray

from crowdshot.engine.placing import put
from crowdshot.engine.sources import Source, as_text, refuse_blank


class Scattered(NamedTuple):
    """Of a task: its chunks, its rows, how many of these answer another question, and how many have no label."""

    chunks: list[str]
    rows: int
    others: int
    blank: int


class Plan(NamedTuple):
    folder: Path
    buckets: int
    chunk_rows: int


def scatter(task: tuple[int, Source], plan: Plan) -> Scattered:
    """The rows of a source, as files; those of a source that was done before are left as they are."""
    number, source = task
    done = plan.folder / f"{number:06d}.json"
    if done.exists():
        return Scattered(*json.loads(done.read_text()))
    chunks: list[str] = []
    rows = others = blank = 0
    for batch in _chunks(source, plan.chunk_rows):
        name = f"{number:06d}-{len(chunks):06d}"
        left_out = _write(batch, source, source.first_row + rows, plan, name)
        others, blank = others + left_out[0], blank + left_out[1]
        rows += batch.num_rows
        chunks.append(name)
    found = Scattered(chunks, rows, others, blank)
    put(done, lambda path: path.write_text(json.dumps(found)))
    return found


def _chunks(source: Source, rows: int) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    n = 0
    for batch in source.batches():
        waiting.append(batch)
        n += batch.num_rows
        if n >= rows:
            yield pa.Table.from_batches(waiting)
            waiting, n = [], 0
    if waiting:
        yield pa.Table.from_batches(waiting)


def _write(table: pa.Table, source: Source, first_row: int, plan: Plan, name: str) -> tuple[int, int]:
    """Of a chunk; how many rows answer another question, and how many have no label."""
    columns = source.columns
    columns_of = {role: table[column].combine_chunks() for role, column in columns._asdict().items()}
    where = {role: (source.path, first_row, column) for role, column in columns._asdict().items()}
    label = as_text(columns_of["label"], f"{source.path}, column {columns.label!r}")
    annotator = as_text(columns_of["annotator"], f"{source.path}, column {columns.annotator!r}")
    item = columns_of["item"].cast(pa.int64()) if source.integers else as_text(columns_of["item"], str(source.path))
    others = 0
    if source.question is not None:
        column, question = source.question
        asked = pa.compute.equal(as_text(table[column].combine_chunks(), f"{source.path}, column {column!r}"), question)
        others = len(label) - (pa.compute.sum(asked).as_py() or 0)
        label = pa.compute.if_else(pa.compute.fill_null(asked, False), label, None)
    refuse_blank(item, label, where["item"], "item")
    refuse_blank(annotator, label, where["annotator"], "annotator")
    some = pa.compute.is_valid(label)
    blank = len(label) - pa.compute.sum(some).as_py() if len(label) else 0
    if blank:
        item, annotator, label = (values.filter(some) for values in (item, annotator, label))
    who, said = annotator.dictionary_encode(), label.dictionary_encode()
    bucket = bucket_of(item, plan.buckets)
    order = np.argsort(bucket, kind="stable")
    rows = pa.table({"item": item, "annotator": who.indices, "label": said.indices}).take(order)
    ends = np.searchsorted(bucket[order], np.arange(plan.buckets + 1))
    counts = np.bincount(said.indices.to_numpy(zero_copy_only=False), minlength=len(said.dictionary))

    def write(path: Path) -> None:
        with pa.ipc.new_file(str(path), rows.schema) as file:
            for start, end in pairwise(ends):
                (batch,) = rows.slice(start, end - start).combine_chunks().to_batches() or [_no_rows(rows.schema)]
                file.write_batch(batch)

    put(plan.folder / f"{name}.rows", write)
    put(plan.folder / f"{name}.annotators", lambda path: write_list(path, who.dictionary))
    put(plan.folder / f"{name}.labels", lambda path: write_list(path, said.dictionary, counts))
    return others, blank - others


def bucket_of(item: Any, buckets: int) -> NDArray[np.uint16]:
    """(n,); the same for the same item, in whichever file."""
    values = item.to_numpy(zero_copy_only=False)
    hashed: NDArray[np.uint64] = pd.util.hash_array(values, categorize=False)
    return (hashed % np.uint64(buckets)).astype(np.uint16)


def write_list(path: Path, names: pa.Array, counts: NDArray[np.int64] | None = None) -> None:
    columns = {"name": names} if counts is None else {"name": names, "count": counts}
    table = pa.table(columns)
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)


def read_list(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def _no_rows(schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([], schema)
