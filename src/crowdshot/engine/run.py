"""Labels of any number -> a folder of Parquet files, in bounded memory: scatter, gather, believe, finish.

What is done lies in the folder ``_work`` until all is; who is killed goes on from there.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from crowdshot.engine.label_sources import Source, called, sources_of, stamp
from crowdshot.engine.part_files import Arrays, Share, keep, kept, open_part, tables_fit
from crowdshot.engine.scatter_gather import (
    Gathered,
    Gathering,
    Names,
    Plan,
    encode,
    gather,
    history_of,
    names_of,
    part_folder,
    read_list,
    scatter,
)
from crowdshot.engine.workers import Workers, ask_of, in_order
from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import put
from crowdshot.io.cells import Ids
from crowdshot.labels.aggregation import aggregator_of
from crowdshot.labels.annotator_priors import AnnotatorPriors
from crowdshot.labels.annotator_quality import Tally, judged, tally
from crowdshot.labels.columns import WHEN, Columns, ColumnsInput
from crowdshot.labels.confidence import THRESHOLD
from crowdshot.labels.consensus import agreed
from crowdshot.labels.formats.cleaning import Naming
from crowdshot.labels.formats.plain_tables import OF_OTHERS, UNLABELLED
from crowdshot.labels.spelling import Respelled, Twins, alike
from crowdshot.model.parts import MANY, Aggregator, Floats, PosteriorMatrix, Sizes, added, run
from crowdshot.model.posteriors import expected_rank, likeliest, top_classes
from crowdshot.progress import progress

# ---- finish ------------------------------------------------------------
#
# Last pass: what is believed of a part's items, as a Parquet file.


class Finishing(NamedTuple):
    way: Aggregator
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

    accepted: int
    tally: Tally


def finish_share(folders: Sequence[Path], plan: Finishing) -> Finished:
    """Of these parts, one after the other; the sums over them."""
    return added(finish(folder, plan) for folder in folders)


def finish(folder: Path, plan: Finishing) -> Finished:
    part = open_part(folder)
    posterior = plan.way.believe(part, plan.state)
    best, confidence = likeliest(posterior)
    file = plan.out / f"part-{folder.name}.parquet"
    if not file.exists():
        items = read_list(folder / "items.arrow")["name"]
        if plan.top:
            long = _likeliest(items, posterior, plan)
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
            columns["expected_rank"] = expected_rank(posterior)
        if plan.probabilities and len(classes) <= MANY:
            dense: Floats = posterior if isinstance(posterior, np.ndarray) else posterior.toarray()
            columns |= {f"p_{name}": dense[:, k] for k, name in enumerate(plan.classes)}
        _put(pa.table(columns), plan.work, file)
    accepted = int((confidence >= THRESHOLD).sum())
    return Finished(accepted, tally(part.item, part.annotator, part.label, posterior, plan.way.sizes))


def _likeliest(items: pa.ChunkedArray, posterior: PosteriorMatrix, plan: Finishing) -> pa.Table:
    row, rank, label, probability = top_classes(posterior, plan.top)
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


# ---- run ------------------------------------------------------------


WORK, RUN, FINISHED, STATE = "_work", "_run.json", "_finished.json", "state"
EVERY = 1.0  # seconds after which what is known is kept again


@dataclass(frozen=True)
class Job:
    """What is asked of an engine. ``gold``: reads {item: true label}, given the columns."""

    paths: Sequence[Path]
    out: Path
    method: str
    steps: int
    memory: int
    columns: ColumnsInput = None
    naming: Naming = field(default_factory=Naming)
    gold: Callable[[Columns], dict[str, str]] = lambda columns: {}
    history: AnnotatorPriors = field(default_factory=lambda: AnnotatorPriors({}))
    top: int = 0
    network: Path | None = None
    typed: Mapping[str, Any] = field(default_factory=dict)  # by which the same job is known again

    @property
    def work(self) -> Path:
        return self.out / WORK


class Done(NamedTuple):
    sizes: Sizes
    labels: int
    classes: list[str]
    accepted: int
    people: pd.DataFrame
    left_out: dict[str, int]
    respelled: list[Respelled]
    twins: list[Twins]
    columns: Columns
    gold: int
    parts: int


def fingerprint(job: Job) -> dict[str, Any]:
    files = [[str(path), *stamp(path)] for path in job.paths]
    typed = {name: str(value) for name, value in job.typed.items() if value}
    return {
        "files": files,
        "method": job.method,
        "steps": job.steps,
        "top": job.top,
        "network": str(job.network),
        **typed,
    }


def prepare(job: Job) -> dict[str, Any] | None:
    """The folder, empty or with what the same job left in it; what it told, if it was finished before."""
    asked = json.loads(json.dumps(fingerprint(job)))
    try:
        job.out.mkdir(parents=True, exist_ok=True)
        before = job.out / RUN
        if before.exists():
            found = json.loads(before.read_text())
            if found != asked:
                other = next(name for name in {**found, **asked} if found.get(name) != asked.get(name))
                raise CrowdshotError(f"{job.out} has results of other {other}, expected a new or empty folder.")
        elif any(job.out.iterdir()):
            raise CrowdshotError(f"{job.out} is not empty, expected a new or empty folder.")
        job.work.mkdir(exist_ok=True)
        if (job.out / FINISHED).exists():
            shutil.rmtree(job.work, ignore_errors=True)
            told: dict[str, Any] = json.loads((job.out / FINISHED).read_text())
            return told
        before.write_text(json.dumps(asked))
    except OSError as error:
        raise CrowdshotError(f"{job.out} could not be written ({error.strerror or error}).") from None
    return None


def run_job(job: Job, workers: Workers, share: Share) -> Done:
    sources = sources_of(job.paths, job.columns)
    columns = sources[0].columns
    buckets = share.parts(sum(source.rows for source in sources))
    begun = job.work / "buckets"
    if kept(begun) is None:
        keep(begun, buckets)
    buckets = kept(begun)  # as it was begun with, whatever the memory is now
    gold = job.gold(columns)
    scattered = job.work / "scattered"
    found, names = _read(job, workers, share, sources, buckets, gold)
    folders = [part_folder(job.work / "parts", bucket) for bucket in range(buckets)]
    shutil.rmtree(scattered, ignore_errors=True)

    sizes = Sizes(found.items, len(names.annotators), len(names.classes))
    tables_fit(sizes, job.method, job.memory, workers.n)
    history = history_of(names, job.history)
    ordered = bool(job.naming.ordered)
    way = aggregator_of(
        job.method,
        sizes,
        found.labels,
        job.steps,
        ordered=ordered,
        history=history,
        gold=found.gold > 0,
        network=job.network,
    )
    state = _believe(job, way, workers, folders)
    plan = Finishing(way, state, columns, names.classes, ordered, job.method != "majority", job.top, job.work, job.out)
    shares = [folders[first :: workers.n] for first in range(min(workers.n, len(folders)))]
    with progress("writing"):
        finished: Finished = added(in_order(workers.each(finish_share, shares, plan)))
    people = judged(finished.tally, names.annotators, names.classes, columns.annotator, history)
    by_name = dict(zip(map(str, names.annotators), people["n_labels"].tolist(), strict=True))
    twins = alike("labels", names.counts) + alike("annotators", by_name)
    left_out = {**names.left_out, "labels given again": found.repeated}
    timed = called(WHEN, sources[0])
    if found.repeated and timed:
        counts = "of labels given again the last in the files counts"
        warnings.warn(f"{sources[0].path}: {timed!r} is not read with engine=; {counts}.", UserWarning, stacklevel=2)
    return Done(
        sizes,
        found.labels,
        names.classes.tolist(),
        finished.accepted,
        people,
        {reason: n for reason, n in left_out.items() if n},
        names.respelled,
        twins,
        columns,
        found.gold,
        len(folders),
    )


def abandon(job: Job) -> None:
    """What cannot be done leaves nothing: the same command would end the same way, and a mended file is another job."""
    shutil.rmtree(job.work, ignore_errors=True)
    (job.out / RUN).unlink(missing_ok=True)
    with suppress(OSError):  # it is not empty: parts were written
        job.out.rmdir()


def conclude(job: Job, report: Mapping[str, Any]) -> None:
    """All is there: what is left of the work goes."""
    put(job.out / FINISHED, lambda path: path.write_text(json.dumps(report)), beside=job.work)
    shutil.rmtree(job.work, ignore_errors=True)


def _read(
    job: Job, workers: Workers, share: Share, sources: list[Source], buckets: int, gold: dict[str, str]
) -> tuple[Gathered, Names]:
    """Rows to parts. The names of all are kept once they are known, as chunks are gone when all is gathered."""
    scattered, parts, known = job.work / "scattered", job.work / "parts", job.work / "names"
    parts.mkdir(exist_ok=True)
    before = kept(known)
    if before is not None:
        names, chunks = before
    else:
        scattered.mkdir(exist_ok=True)
        plan = Plan(scattered, buckets, share.chunk_rows)
        results = {}
        with progress("reading") as tick:
            for place, found in workers.each(scatter, list(enumerate(sources)), plan):
                results[place] = found
                tick(sum(found.rows for found in results.values()), sum(source.rows for source in sources))
        chunks = [chunk for place in sorted(results) for chunk in results[place].chunks]
        others, blank = (sum(getattr(found, what) for found in results.values()) for what in ("others", "blank"))
        source = ", ".join(str(path) for path in job.paths[:3])
        names = names_of(scattered, chunks, job.naming, gold, source, {OF_OTHERS: others, UNLABELLED: blank})
        keep(known, (names, chunks))
    spelled = {_as_item(item, sources[0].integers): names.spelled.get(label, label) for item, label in gold.items()}
    left = [chunk for chunk in chunks if scattered.exists() and f"{chunk}.labels" not in Arrays(scattered)]
    for _ in workers.each(encode, left, scattered, names):
        pass
    gathering = Gathering(scattered, chunks, names, spelled, buckets, parts)
    out = []
    with progress("sorting") as tick:
        for _, part in workers.each(gather, range(buckets), gathering):
            out.append(part)
            tick(len(out), buckets)
    return added(out), names


def _as_item(item: str, integers: bool) -> Any:
    if not integers:
        return item
    try:
        return int(item)
    except ValueError:
        raise CrowdshotError(f"gold names item {item!r}, expected a whole number as in the labels.") from None


def _believe(job: Job, way: Aggregator, workers: Workers, folders: list[Path]) -> Any:
    file = job.work / STATE
    done, last = 0, -EVERY
    with progress("aggregating") as tick:

        def after(state: Any) -> None:
            nonlocal done, last
            done += 1
            tick(done, job.steps + 1)
            if way.is_done(state) or time.monotonic() - last >= EVERY:
                keep(file, state)
                last = time.monotonic()

        return run(way, ask_of(workers, folders), kept(file), after)
