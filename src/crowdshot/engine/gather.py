"""Second pass over labels: a bucket's rows of all chunks become a part, in which labels are sorted by item."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pyarrow.ipc
from numpy.typing import NDArray

from crowdshot.engine.names import Names, codes_of
from crowdshot.engine.part_files import Arrays, smallest
from crowdshot.engine.placing import put
from crowdshot.engine.scatter import bucket_of, write_list

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
        put(folder, lambda path: _write(path, bucket, plan))
    return Gathered(*map(int, np.load(folder / "sizes.npy")))


def part_folder(parts: Path, bucket: int) -> Path:
    return parts / f"{bucket:05d}"


def _write(folder: Path, bucket: int, plan: Gathering) -> None:
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
