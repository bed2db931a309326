"""Sort labels by item in bounded memory, in two passes.

1. Scatter: distribute rows to buckets by a hash of the item, so that all labels of an item end up in one bucket.
   A chunk of rows becomes one file with a batch of rows per bucket. Annotators and labels are stored as indices into
   lists that belong to the chunk.
2. Gather: collect a bucket's rows from all chunks into a part, whose labels are sorted by item. Before, `names_of`
   merges the lists of all chunks, and `encode` maps the indices of each chunk to indices in the merged lists.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc
from numpy.typing import NDArray

from crowdshot.engine.label_sources import Source, as_text, refuse_blank
from crowdshot.engine.part_files import Arrays, smallest
from crowdshot.errors import NoLabelError
from crowdshot.io.atomic import put
from crowdshot.io.cells import Ids, fold, ordered
from crowdshot.labels import wide_tables
from crowdshot.labels.annotations import refuse_fractions, refuse_many
from crowdshot.labels.annotator_quality import AnnotatorPriors
from crowdshot.labels.formats.cleaning import Naming, refuse_others
from crowdshot.labels.formats.plain_tables import MINUS_ONE
from crowdshot.labels.spelling import Respelled, new_names, refuse_sets, respelled, spelling_of


class Scattered(NamedTuple):
    """The chunks of a source, and counts of its rows."""

    chunks: list[str]
    rows: int
    others: int  # rows that answer another question
    blank: int  # rows without a label


class Plan(NamedTuple):
    """Where and how to scatter rows."""

    folder: Path
    buckets: int
    chunk_rows: int


def scatter(task: tuple[int, Source], plan: Plan) -> Scattered:
    """Write the rows of a source to chunk files, unless an earlier run did; ``task`` is (number, source)."""
    number, source = task
    done = plan.folder / f"{number:06d}.json"
    if done.exists():
        return Scattered(*json.loads(done.read_text()))
    chunks: list[str] = []
    rows = others = blank = 0
    for batch in _chunks(source, plan.chunk_rows):
        name = f"{number:06d}-{len(chunks):06d}"
        n_others, n_blank = _write_chunk(batch, source, source.first_row + rows, plan, name)
        others, blank = others + n_others, blank + n_blank
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


def _write_chunk(table: pa.Table, source: Source, first_row: int, plan: Plan, name: str) -> tuple[int, int]:
    """Write a chunk; return the number of rows for other questions and the number of rows without a label."""
    item, annotator, label, others = _cells(table, source)
    for values, column, role in (
        (item, source.columns.item, "item"),
        (annotator, source.columns.annotator, "annotator"),
    ):
        refuse_blank(values, label, source.path, first_row, column, role)
    valid = pa.compute.is_valid(label)
    blank = len(label) - pa.compute.sum(valid).as_py() if len(label) else 0
    if blank:
        item, annotator, label = (values.filter(valid) for values in (item, annotator, label))
    annotators, labels = annotator.dictionary_encode(), label.dictionary_encode()
    bucket = bucket_of(item, plan.buckets)
    order = np.argsort(bucket, kind="stable")
    rows = pa.table({"item": item, "annotator": annotators.indices, "label": labels.indices}).take(order)
    ends = np.searchsorted(bucket[order], np.arange(plan.buckets + 1))
    counts = np.bincount(labels.indices.to_numpy(zero_copy_only=False), minlength=len(labels.dictionary))

    def write(path: Path) -> None:
        with pa.ipc.new_file(str(path), rows.schema) as file:
            for start, end in pairwise(ends):
                (batch,) = rows.slice(start, end - start).combine_chunks().to_batches() or [_no_rows(rows.schema)]
                file.write_batch(batch)

    put(plan.folder / f"{name}.rows", write)
    put(plan.folder / f"{name}.annotators", lambda path: write_list(path, annotators.dictionary))
    put(plan.folder / f"{name}.labels", lambda path: write_list(path, labels.dictionary, counts))
    return others, blank - others


def _cells(table: pa.Table, source: Source) -> tuple[pa.Array, pa.Array, pa.Array, int]:
    """Return items, annotators, labels (null for other questions), and the number of rows for other questions."""

    def column(name: str) -> pa.Array:
        return table[name].combine_chunks()

    columns = source.columns
    label = as_text(column(columns.label), f"{source.path}, column {columns.label!r}")
    annotator = as_text(column(columns.annotator), f"{source.path}, column {columns.annotator!r}")
    items = column(columns.item)
    item = items.cast(pa.int64()) if source.integers else as_text(items, f"{source.path}, column {columns.item!r}")
    others = 0
    if source.question is not None:
        name, question = source.question
        asked = pa.compute.equal(as_text(column(name), f"{source.path}, column {name!r}"), question)
        others = len(label) - (pa.compute.sum(asked).as_py() or 0)
        label = pa.compute.if_else(pa.compute.fill_null(asked, False), label, None)
    return item, annotator, label, others


def bucket_of(item: Any, buckets: int) -> NDArray[np.uint16]:
    """Return (n,) buckets, which depend on nothing but the item."""
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


# ---- names: the lists of all chunks, merged ----


Codes = NDArray[np.int32]


@dataclass(frozen=True)
class Names:
    """The names of annotators and classes in all chunks, and how names in the files map to them."""

    annotators: Ids  # (R,) in the order of their first appearance
    classes: Ids  # (K,) sorted, or in the order that the user set
    spelled: dict[str, str]  # label in the files -> class, "" for no label
    people: dict[str, str] = field(default_factory=dict)  # annotator in the files -> annotator
    respelled: list[Respelled] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)  # reason -> rows
    counts: dict[str, int] = field(default_factory=dict)  # class -> labels, repeated ones included

    @cached_property
    def lists(self) -> tuple[pa.Array, pa.Array]:
        """Annotators and classes as Arrow arrays."""
        return pa.array(self.annotators, pa.string()), pa.array(self.classes, pa.string())


def names_of(
    folder: Path, chunks: Sequence[str], naming: Naming, gold: dict[str, str], source: str, left_out: dict[str, int]
) -> Names:
    """Merge the names of all chunks.

    Parameters
    ----------
    gold : dict
        {item: true label}. Their labels are classes, too.
    source : str
        The name of the label files in messages.
    left_out : dict
        {reason: number of rows} that were left out so far.
    """
    written = _label_counts(folder, chunks)
    if not written:
        raise NoLabelError("has no labels", where=source)
    folded: Counter[str] = Counter()
    for name, count in written.items():
        folded[fold(name)] += count
    no_label = [] if wide_tables.is_label(folded, source) else [name for name in written if fold(name) == "-1"]
    left_out = {**left_out, MINUS_ONE: sum(written.pop(name) for name in no_label)}
    if not naming.categories:
        refuse_sets(np.array(list(written), dtype=object), source)
    spelling = spelling_of(written, naming.rename, naming.merge_case, naming.ordered, gold=gold.values())
    spelled = {**{name: spelling(name) for name in (*written, *gold.values())}, **dict.fromkeys(no_label, "")}
    names = dict.fromkeys(spelled.values())
    names.pop("", None)
    counts = dict.fromkeys(names, 0)
    for name, count in written.items():
        if spelled[name]:
            counts[spelled[name]] += count
    classes = _classes(list(names), naming, source)
    annotators, people = _annotators(folder, chunks, naming)
    return Names(annotators, classes, spelled, people, respelled("labels", spelling, written), left_out, counts)


def _label_counts(folder: Path, chunks: Sequence[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for chunk in chunks:
        table = read_list(folder / f"{chunk}.labels")
        for name, count in zip(table["name"].to_pylist(), table["count"].to_pylist(), strict=True):
            counts[name] = counts.get(name, 0) + count
    return counts


def _classes(names: list[str], naming: Naming, source: str) -> Ids:
    if naming.ordered:
        refuse_others(names, naming.ordered, source)
    classes = np.array(naming.ordered or list(ordered(np.array(names, dtype=object))), dtype=object)
    if not naming.categories:
        refuse_fractions(classes, source)
        if not naming.ordered:
            refuse_many(classes, source)
    return classes


def _annotators(folder: Path, chunks: Sequence[str], naming: Naming) -> tuple[Ids, dict[str, str]]:
    """Return the annotators' names, and a mapping from names in the files to them."""
    seen: pa.Array = pa.array([], pa.string())
    for chunk in chunks:  # one at a time: most chunks have the same annotators, so the list stays short
        names = read_list(folder / f"{chunk}.annotators")["name"].combine_chunks()
        seen = pa.compute.unique(pa.concat_arrays([seen, names]))
    annotators = np.array(seen.to_pylist(), dtype=object)
    people = new_names(naming.names, "names", ("annotator", "name"), annotators)
    if people:
        annotators = np.array(list(dict.fromkeys(people.get(name) or name for name in annotators)), dtype=object)
    return annotators, people


def encode(chunk: str, folder: Path, names: Names) -> None:
    """Write the indices of a chunk's annotators and labels in the merged lists, -1 for no label."""
    annotators, classes = names.lists
    for kind, renamed, ids in (("annotators", names.people, annotators), ("labels", names.spelled, classes)):
        codes = pa.compute.index_in(_renamed(folder / f"{chunk}.{kind}", renamed), value_set=ids)
        Arrays(folder)[f"{chunk}.{kind}"] = pa.compute.fill_null(codes, -1).to_numpy(zero_copy_only=False)


def codes_of(chunk: str, folder: Path) -> tuple[Codes, Codes]:
    arrays = Arrays(folder)
    return arrays[f"{chunk}.annotators"], arrays[f"{chunk}.labels"]


def history_of(names: Names, history: AnnotatorPriors) -> NDArray[np.float64] | None:
    """Return (R, 2) counts of right and wrong labels in earlier projects, or None."""
    return history.of(names.annotators) if history else None


def _renamed(file: Path, new: dict[str, str]) -> pa.Array:
    names = read_list(file)["name"].combine_chunks()
    if not any(new.get(name, name) != name for name in new):
        return names
    return pa.array([new.get(name) if name in new else name for name in names.to_pylist()], pa.string())


# ---- gather ----


Positions = NDArray[np.int64]


class Gathering(NamedTuple):
    """What is needed to turn a bucket into a part."""

    scattered: Path  # the folder of chunks
    chunks: Sequence[str]
    names: Names
    gold: dict[Any, str]  # {item: true label}
    buckets: int
    parts: Path  # the folder to write to


class Gathered(NamedTuple):
    """Counts of a part, or sums over parts."""

    items: int
    labels: int
    repeated: int  # labels left out because the annotator labelled the item again
    gold: int  # items with a known class


def gather(bucket: int, plan: Gathering) -> Gathered:
    """Write one bucket as a part, unless an earlier run did."""
    folder = part_folder(plan.parts, bucket)
    if not folder.exists():
        put(folder, lambda path: _write_part(path, bucket, plan))
    return Gathered(*map(int, np.load(folder / "sizes.npy")))


def part_folder(parts: Path, bucket: int) -> Path:
    return parts / f"{bucket:05d}"


def _write_part(folder: Path, bucket: int, plan: Gathering) -> None:
    folder.mkdir()
    R, K = len(plan.names.annotators), len(plan.names.classes)
    items, item, annotator, label = _rows(bucket, plan)
    key = item.astype(np.int64) * R + annotator
    order = np.argsort(key, kind="stable")
    key = key[order]
    last = np.append(key[1:] != key[:-1], True)[: len(key)]  # of repeated labels the last counts
    order = order[last]
    item, annotator, label = item[order], annotator[order], label[order]
    items, known = _with_gold(items, bucket, plan)
    per_item = np.bincount(item, minlength=len(items))
    kept = per_item > 0 if known is None else (per_item > 0) | (known >= 0)
    arrays = Arrays(folder)
    arrays["per_item"] = smallest(per_item[kept], int(per_item.max(initial=0)))
    arrays["annotator"] = annotator.astype(np.int32)
    arrays["label"] = smallest(label, max(K - 1, 0))
    if known is not None:
        arrays["known"] = known[kept].astype(np.int32)
    write_list(folder / "items.arrow", items.filter(pa.array(kept)))
    n_gold = 0 if known is None else int((known >= 0).sum())
    arrays["sizes"] = np.array([kept.sum(), len(label), len(key) - len(label), n_gold])


def _rows(bucket: int, plan: Gathering) -> tuple[pa.Array, Positions, Positions, Positions]:
    """Return the names of items, and the indices of each label's item, annotator and class."""
    item_names: list[pa.Array] = []
    annotator: list[Positions] = []
    label: list[Positions] = []
    for chunk in plan.chunks:
        with pa.memory_map(str(plan.scattered / f"{chunk}.rows")) as source:
            batch = pa.ipc.open_file(source).get_batch(bucket)
            if batch.num_rows == 0 and item_names:
                continue
            annotator_codes, label_codes = codes_of(chunk, plan.scattered)
            codes = label_codes[batch["label"].to_numpy()]
            is_label = codes >= 0
            item_names.append(batch["item"].filter(pa.array(is_label)))
            annotator.append(annotator_codes[batch["annotator"].to_numpy()[is_label]])
            label.append(codes[is_label])
    item = pa.concat_arrays(item_names).dictionary_encode()
    indices = item.indices.to_numpy(zero_copy_only=False)
    return item.dictionary, indices, np.concatenate(annotator), np.concatenate(label)


def _with_gold(items: pa.Array, bucket: int, plan: Gathering) -> tuple[pa.Array, Positions | None]:
    """Append items that have a gold label only; return all items, and their known classes (-1 if unknown)."""
    if not plan.gold:
        return items, None
    ids = pa.array(list(plan.gold), items.type)
    here = np.flatnonzero(bucket_of(ids, plan.buckets) == bucket)
    class_index = {name: number for number, name in enumerate(plan.names.classes)}
    truth = np.array([class_index[label] for label in plan.gold.values()], dtype=np.int64)[here]
    ids = ids.take(pa.array(here))
    all_items = pa.compute.unique(pa.concat_arrays([items, ids]))
    known = np.full(len(all_items), -1)
    known[pa.compute.index_in(ids, value_set=all_items).to_numpy(zero_copy_only=False)] = truth
    return all_items, known
