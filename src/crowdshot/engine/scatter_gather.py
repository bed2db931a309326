"""First pass over labels: rows to buckets by a hash of their item, so that all labels of an item come to lie together.

A chunk of rows is one file with a batch of rows for each bucket; annotators and labels are numbers in lists of its own.
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
from crowdshot.io.cells import Ids
from crowdshot.labels import label_sets, wide_tables
from crowdshot.labels.annotator_priors import AnnotatorPriors
from crowdshot.labels.formats.cleaning import Naming, refuse_others
from crowdshot.labels.formats.plain_tables import MINUS_ONE
from crowdshot.labels.indexing import ordered
from crowdshot.labels.label_values import refuse_fractions, refuse_many
from crowdshot.labels.spelling import Respelled, fold, new_names, respelled, spelling_of


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
        left_out = _write_bucket(batch, source, source.first_row + rows, plan, name)
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


def _write_bucket(table: pa.Table, source: Source, first_row: int, plan: Plan, name: str) -> tuple[int, int]:
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


# ---- names ------------------------------------------------------------
#
# What annotators and labels are called in all chunks together, and so which number each has.


Codes = NDArray[np.int32]


@dataclass(frozen=True)
class Names:
    """``annotators`` (R,) in the order in which they first appear, ``classes`` (K,) sorted or as they are ordered."""

    annotators: Ids
    classes: Ids
    spelled: dict[str, str]  # labels as they are written -> as they are called, "" for none
    people: dict[str, str] = field(default_factory=dict)  # the same of annotators
    respelled: list[Respelled] = field(default_factory=list)
    left_out: dict[str, int] = field(default_factory=dict)  # {why: rows}
    counts: dict[str, int] = field(default_factory=dict)  # labels of each class, those given again included

    @cached_property
    def lists(self) -> tuple[pa.Array, pa.Array]:
        """Annotators and classes as Arrow has them."""
        return pa.array(self.annotators, pa.string()), pa.array(self.classes, pa.string())


def names_of(
    folder: Path, chunks: Sequence[str], naming: Naming, gold: dict[str, str], source: str, left_out: dict[str, int]
) -> Names:
    """``gold``: {item: true label}, whose labels are classes too. ``left_out``: rows, until here."""
    written: dict[str, int] = {}
    for chunk in chunks:
        table = read_list(folder / f"{chunk}.labels")
        for name, count in zip(table["name"].to_pylist(), table["count"].to_pylist(), strict=True):
            written[name] = written.get(name, 0) + count
    if not written:
        raise NoLabelError(f"{source} holds no label, expected one.")
    counts: Counter[str] = Counter()
    for name, count in written.items():
        counts[fold(name)] += count
    no_label = [] if wide_tables.is_label(counts, source) else [name for name in written if fold(name) == "-1"]
    left_out = {**left_out, MINUS_ONE: sum(written.pop(name) for name in no_label)}
    if not naming.categories:
        label_sets.refuse_sets(np.array(list(written), dtype=object), source)
    spelling = spelling_of(written, naming.rename, naming.merge_case, naming.ordered)
    spelled = {**{name: spelling(name) for name in written}, **dict.fromkeys(no_label, "")}
    called = dict.fromkeys([*spelled.values(), *(spelling(label) for label in gold.values())])
    called.pop("", None)
    counted = dict.fromkeys(called, 0)
    for name, count in written.items():
        if spelled[name]:
            counted[spelled[name]] += count
    if naming.ordered:
        refuse_others(called, naming.ordered, source)
    classes = np.array(naming.ordered or list(ordered(np.array(list(called), dtype=object))), dtype=object)
    if not naming.categories:
        refuse_fractions(classes, source)
        if not naming.ordered:
            refuse_many(classes, source)
    seen: pa.Array = pa.array([], pa.string())
    for chunk in chunks:  # a few at a time, as most have the same
        names = read_list(folder / f"{chunk}.annotators")["name"].combine_chunks()
        seen = pa.compute.unique(pa.concat_arrays([seen, names]))
    annotators = np.array(seen.to_pylist(), dtype=object)
    people = new_names(naming.names, "names", ("annotator", "name"), annotators)
    if people:
        annotators = np.array(list(dict.fromkeys(people.get(name) or name for name in annotators)), dtype=object)
    return Names(annotators, classes, spelled, people, respelled("labels", spelling, written), left_out, counted)


def encode(chunk: str, folder: Path, names: Names) -> None:
    """Files that say which number each of a chunk's annotators and labels has; -1 for what is no label."""
    annotators, classes = names.lists
    for kind, called, ids in (("annotators", names.people, annotators), ("labels", names.spelled, classes)):
        codes = pa.compute.index_in(_called(folder / f"{chunk}.{kind}", called), value_set=ids)
        Arrays(folder)[f"{chunk}.{kind}"] = pa.compute.fill_null(codes, -1).to_numpy(zero_copy_only=False)


def codes_of(chunk: str, folder: Path) -> tuple[Codes, Codes]:
    arrays = Arrays(folder)
    return arrays[f"{chunk}.annotators"], arrays[f"{chunk}.labels"]


def history_of(names: Names, history: AnnotatorPriors) -> NDArray[np.float64] | None:
    """(R, 2)"""
    return history.of(names.annotators) if history else None


def _called(file: Path, new: dict[str, str]) -> pa.Array:
    names = read_list(file)["name"].combine_chunks()
    if not any(new.get(name, name) != name for name in new):
        return names
    return pa.array([new.get(name) if name in new else name for name in names.to_pylist()], pa.string())


# ---- gather ------------------------------------------------------------
#
# Second pass over labels: a bucket's rows of all chunks become a part, in which labels are sorted by item.


Positions = NDArray[np.int64]


class Gathering(NamedTuple):
    scattered: Path
    chunks: Sequence[str]
    names: Names
    gold: dict[Any, str]  # {item: true label}
    buckets: int
    parts: Path


class Gathered(NamedTuple):
    items: int
    labels: int
    repeated: int  # labels left out, as the annotator labelled the item again
    gold: int  # items whose class is known


def gather(bucket: int, plan: Gathering) -> Gathered:
    """One bucket as a folder of arrays; one that is there was done before."""
    folder = part_folder(plan.parts, bucket)
    if not folder.exists():
        put(folder, lambda path: _write_part(path, bucket, plan))
    return Gathered(*map(int, np.load(folder / "sizes.npy")))


def part_folder(parts: Path, bucket: int) -> Path:
    return parts / f"{bucket:05d}"


def _write_part(folder: Path, bucket: int, plan: Gathering) -> None:
    folder.mkdir()
    R, K = len(plan.names.annotators), len(plan.names.classes)
    items, code, who, said = _rows(bucket, plan)
    key = code.astype(np.int64) * R + who
    order = np.argsort(key, kind="stable")
    key = key[order]
    last = np.append(key[1:] != key[:-1], True)[: len(key)]  # of repeated labels the last counts
    order = order[last]
    code, who, said = code[order], who[order], said[order]
    items, known = _with_gold(items, bucket, plan)
    per_item = np.bincount(code, minlength=len(items))
    kept = per_item > 0 if known is None else (per_item > 0) | (known >= 0)
    arrays = Arrays(folder)
    arrays["per_item"] = smallest(per_item[kept], int(per_item.max(initial=0)))
    arrays["annotator"] = who.astype(np.int32)
    arrays["label"] = smallest(said, max(K - 1, 0))
    if known is not None:
        arrays["known"] = known[kept].astype(np.int32)
    write_list(folder / "items.arrow", items.filter(pa.array(kept)))
    n_gold = 0 if known is None else int((known >= 0).sum())
    arrays["sizes"] = np.array([kept.sum(), len(said), len(key) - len(said), n_gold])


def _rows(bucket: int, plan: Gathering) -> tuple[pa.Array, Positions, Positions, Positions]:
    """The items, and of each label its item's, its annotator's and its own number."""
    found: list[pa.Array] = []
    who: list[Positions] = []
    said: list[Positions] = []
    for chunk in plan.chunks:
        with pa.memory_map(str(plan.scattered / f"{chunk}.rows")) as source:
            batch = pa.ipc.open_file(source).get_batch(bucket)
            if batch.num_rows == 0 and found:
                continue
            annotators, labels = codes_of(chunk, plan.scattered)
            label = labels[batch["label"].to_numpy()]
            keep = label >= 0
            found.append(batch["item"].filter(pa.array(keep)))
            who.append(annotators[batch["annotator"].to_numpy()[keep]])
            said.append(label[keep])
    item = pa.concat_arrays(found).dictionary_encode()
    return item.dictionary, item.indices.to_numpy(zero_copy_only=False), np.concatenate(who), np.concatenate(said)


def _with_gold(items: pa.Array, bucket: int, plan: Gathering) -> tuple[pa.Array, Positions | None]:
    """The items, those that have gold and no label last, and the class of each, -1 where it is not known."""
    if not plan.gold:
        return items, None
    ids = pa.array(list(plan.gold), items.type)
    here = np.flatnonzero(bucket_of(ids, plan.buckets) == bucket)
    place = {name: number for number, name in enumerate(plan.names.classes)}
    truth = np.array([place[label] for label in plan.gold.values()], dtype=np.int64)[here]
    ids = ids.take(pa.array(here))
    all_items = pa.compute.unique(pa.concat_arrays([items, ids]))
    known = np.full(len(all_items), -1)
    known[pa.compute.index_in(ids, value_set=all_items).to_numpy(zero_copy_only=False)] = truth
    return all_items, known
