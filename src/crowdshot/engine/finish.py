"""Last pass: what is believed of a part's items, as a Parquet file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet

from crowdshot.engine.part_files import open_part
from crowdshot.engine.placing import put
from crowdshot.engine.scatter import read_list
from crowdshot.files.cells import Ids
from crowdshot.labels.annotators import Tally, tally
from crowdshot.labels.belief import SETTLED
from crowdshot.labels.columns import Columns
from crowdshot.labels.consensus import agreed
from crowdshot.model.beliefs import likeliest
from crowdshot.model.parts import MANY, Belief, Floats, Way, added
from crowdshot.report.likeliest import top_classes
from crowdshot.report.tables import expected_rank


class Finishing(NamedTuple):
    way: Way
    state: Any
    columns: Columns
    classes: Ids
    ordered: bool
    probabilities: bool  # whether each class has a column, if these are few
    top: int  # classes an item in a long table, 0 for none
    work: Path
    out: Path


class Finished(NamedTuple):
    """Sums over parts."""

    settled: int
    tally: Tally


def finish_share(folders: Sequence[Path], plan: Finishing) -> Finished:
    """Of these parts, one after the other; the sums over them."""
    return added(finish(folder, plan) for folder in folders)


def finish(folder: Path, plan: Finishing) -> Finished:
    part = open_part(folder)
    belief = plan.way.believe(part, plan.state)
    best, confidence = likeliest(belief)
    file = plan.out / f"part-{folder.name}.parquet"
    if not file.exists():
        items = read_list(folder / "items.arrow")["name"]
        if plan.top:
            long = _likeliest(items, belief, plan)
            _put(long, plan.work, plan.out / f"_likeliest-{folder.name}.parquet")
        n_labels, agreement = agreed(part.item, part.label, best)
        classes = pa.array(plan.classes.tolist(), pa.string())
        columns = {
            plan.columns.item: items,
            plan.columns.label: classes.take(pa.array(best)),
            "confidence": confidence,
            "n_labels": n_labels,
            "agreement": pa.array(agreement, from_pandas=True),
        }
        if plan.ordered:
            columns["expected_rank"] = expected_rank(belief)
        if plan.probabilities and len(classes) <= MANY:
            dense: Floats = belief if isinstance(belief, np.ndarray) else belief.toarray()
            columns |= {f"p_{name}": dense[:, k] for k, name in enumerate(plan.classes)}
        _put(pa.table(columns), plan.work, file)
    settled = int((confidence >= SETTLED).sum())
    return Finished(settled, tally(part.item, part.annotator, part.label, belief, plan.way.sizes))


def _likeliest(items: pa.ChunkedArray, belief: Belief, plan: Finishing) -> pa.Table:
    row, rank, label, probability = top_classes(belief, plan.top)
    return pa.table(
        {
            plan.columns.item: items.take(pa.array(row)),
            "rank": rank,
            plan.columns.label: pa.array(plan.classes.tolist(), pa.string()).take(pa.array(label)),
            "probability": probability,
        }
    )


def _put(table: pa.Table, work: Path, file: Path) -> None:
    put(file, lambda path: pa.parquet.write_table(table, path), beside=work)
