"""Aggregate any number of labels in bounded memory and write a folder of Parquet files.

The steps are: scatter and gather (sort labels by item, see `crowdshot.engine.scatter_gather`), aggregate, finish.
Intermediate results are kept in the folder ``_work``, so that a run that was killed continues where it stopped.
"""

from __future__ import annotations

import json
import shutil
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet

from crowdshot.engine.label_sources import Source, sources_of, stamp, unread_column
from crowdshot.engine.part_files import Arrays, Share, keep, kept, open_part, tables_fit
from crowdshot.engine.scatter_gather import (
    Gathered,
    Gathering,
    Names,
    Plan,
    Scattered,
    encode,
    gather,
    history_of,
    names_of,
    part_folder,
    read_list,
    scatter,
)
from crowdshot.engine.workers import Workers, ask_of, in_order
from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import first_line
from crowdshot.io.atomic import put
from crowdshot.io.cells import Ids
from crowdshot.labels.aggregation import Settings, aggregator_of
from crowdshot.labels.annotator_quality import MIN_ACCURACY, AnnotatorPriors, Tally, judged, tally
from crowdshot.labels.columns import Columns, ColumnsInput
from crowdshot.labels.consensus import THRESHOLD, agreed
from crowdshot.labels.formats.cleaning import Naming
from crowdshot.labels.formats.plain_tables import OF_OTHERS, UNLABELLED
from crowdshot.labels.label_times import WHEN
from crowdshot.labels.spelling import Respelled, Twins, alike
from crowdshot.model.parts import MANY, Aggregator, Floats, PosteriorMatrix, Sizes, added, run
from crowdshot.model.posteriors import expected_rank, likeliest, top_classes
from crowdshot.progress import progress

# ---- finish: write the posterior of each part as a Parquet file ----


class Finishing(NamedTuple):
    """What is needed to write the results of a part."""

    method: Aggregator
    state: Any
    columns: Columns
    classes: Ids
    ordered: bool
    probabilities: bool  # whether each class gets a column, unless there are more than `MANY` classes
    top: int  # likeliest classes per item in a second, long table; 0 for no such table
    work: Path
    out: Path


class Finished(NamedTuple):
    """Sums over parts."""

    accepted: int
    tally: Tally


def finish_share(folders: Sequence[Path], plan: Finishing) -> Finished:
    """Finish several parts, one after the other; return the sums over them."""
    return added(finish(folder, plan) for folder in folders)


def finish(folder: Path, plan: Finishing) -> Finished:
    """Write the results of a part, unless an earlier run did, and return its sums."""
    part = open_part(folder)
    posterior = plan.method.believe(part, plan.state)
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
    return Finished(accepted, tally(part.item, part.annotator, part.label, posterior, plan.method.sizes))


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


# ---- the whole run ----


WORK, RUN, FINISHED, STATE = "_work", "_run.json", "_finished.json", "state"
NEXT = "_next"  # the results that will replace those of another run
PEOPLE = "_annotators.arrow"  # all annotators; not Parquet, so that *.parquet is the consensus alone
BUCKETS, LOCK = "buckets", "lock"
EVERY = 1.0  # seconds between two saves of the state


@dataclass(frozen=True)
class Job:
    """The settings of a run."""

    paths: Sequence[Path]
    out: Path
    method: str
    steps: int
    memory: int
    columns: ColumnsInput = None
    naming: Naming = field(default_factory=Naming)
    gold: Callable[[Columns], dict[str, str]] = lambda columns: {}  # returns {item: true label}
    history: AnnotatorPriors = field(default_factory=lambda: AnnotatorPriors({}))
    top: int = 0
    network: Path | None = None
    min_accuracy: float = MIN_ACCURACY
    typed: Mapping[str, Any] = field(default_factory=dict)  # options by which an interrupted job is recognised

    @property
    def work(self) -> Path:
        return self.out / WORK


class Done(NamedTuple):
    """The results of a run, besides the files that it wrote."""

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
    """Return the settings and input files that must not change between an interrupted run and its continuation."""
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
    """Make the output folder, or check that it belongs to the same job; return the report if the job is finished."""
    expected = json.loads(json.dumps(fingerprint(job)))
    try:
        job.out.mkdir(parents=True, exist_ok=True)
        before = job.out / RUN
        if before.exists():
            found = _settings_in(before)
            if found != expected:
                changed = next(name for name in {**found, **expected} if found.get(name) != expected.get(name))
                raise CrowdshotError(
                    f"has results of a run that differs in {changed!r}",
                    where=job.out,
                    found=changed,
                    expected="a new or empty folder",
                    hint=Use("to replace them", overwrite=True),
                )
        elif any(job.out.iterdir()):
            raise CrowdshotError("is not empty", where=job.out, expected="a new or empty folder")
        job.work.mkdir(exist_ok=True)
        if (job.out / FINISHED).exists():
            report = _settings_in(job.out / FINISHED)
            shutil.rmtree(job.work, ignore_errors=True)
            return report
        before.write_text(json.dumps(expected))
    except OSError as error:
        raise CrowdshotError(f"could not be written ({error.strerror or error})", where=job.out) from None
    return None


def replacing(job: Job) -> Job:
    """Return a job that writes to ``_next`` in the folder if this holds another run's results; else the same job."""
    expected = json.dumps(fingerprint(job))
    if not (job.out / RUN).exists() or (job.out / RUN).read_text() == expected:
        return job
    job = replace(job, out=job.out / NEXT)
    earlier = job.out / RUN
    if earlier.exists() and earlier.read_text() != expected:  # another attempt, which will not be continued
        job.work.mkdir(exist_ok=True)
        with alone(job):
            shutil.rmtree(job.out)
    return job


def replace_results(job: Job, out: Path, report: Mapping[str, Any]) -> None:
    """Move the results of a finished job to ``out`` in place of another run's. May be interrupted and repeated."""
    parts = {Path(file).name for file in report["files"]}
    tables = parts | {name.replace("part", "_likeliest") for name in parts if job.top}
    for file in job.out.iterdir():
        if file.name not in (RUN, FINISHED):
            file.replace(out / file.name)
    for old in (*out.glob("part-*.parquet"), *out.glob("_likeliest-*.parquet")):
        if old.name not in tables:
            old.unlink()
    for name in (FINISHED, RUN):
        (job.out / name).replace(out / name)
    job.out.rmdir()


def _settings_in(file: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(file.read_text())
    except ValueError:
        found = {}
    if not isinstance(found, dict) or not found:
        raise CrowdshotError(
            "is damaged", where=file, expected="what an earlier run wrote", hint="Write to a new folder"
        ) from None
    return found


@contextmanager
def alone(job: Job) -> Iterator[None]:
    """Refuse a job whose folder another process uses, because their files would be mixed."""
    try:
        import fcntl  # which Windows does not have
    except ImportError:
        yield
        return
    with ExitStack() as stack:
        try:
            file = stack.enter_context((job.work / LOCK).open("w"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, FileNotFoundError):
            raise CrowdshotError("is in use by another run", where=job.out, hint="Wait until it has ended") from None
        yield


def run_job(job: Job, workers: Workers, share: Share) -> Done:
    """Aggregate the labels of a job, whose folder `prepare` made, and write the results."""
    is_resumed = (job.work / BUCKETS).exists()
    try:
        return _run_job(job, workers, share)
    except (ValueError, LookupError, EOFError, AssertionError, pa.ArrowException) as error:
        if isinstance(error, CrowdshotError) or not is_resumed:
            raise
        reason = first_line(error) or type(error).__name__
        raise CrowdshotError(
            f"has damaged files of an interrupted run ({reason})",
            where=job.out,
            hint="Remove this folder and start again",
        ) from error


def _run_job(job: Job, workers: Workers, share: Share) -> Done:
    sources = sources_of(job.paths, job.columns)
    columns = sources[0].columns
    buckets = _buckets(job, share.parts(sum(source.rows for source in sources)))
    gathered, names = _read(job, workers, share, sources, buckets, job.gold(columns))
    folders = [part_folder(job.work / "parts", bucket) for bucket in range(buckets)]
    shutil.rmtree(job.work / "scattered", ignore_errors=True)

    sizes = Sizes(gathered.items, len(names.annotators), len(names.classes))
    tables_fit(sizes, job.method, job.memory, workers.n)
    history = history_of(names, job.history)
    ordered = bool(job.naming.ordered)
    settings = Settings(sizes, gathered.labels, job.steps, ordered, history, gathered.gold > 0, job.network)
    method = aggregator_of(job.method, settings)
    state = _aggregate(job, method, workers, folders)
    probabilities = job.method != "majority"
    plan = Finishing(method, state, columns, names.classes, ordered, probabilities, job.top, job.work, job.out)
    shares = [folders[first :: workers.n] for first in range(min(workers.n, len(folders)))]
    with progress("writing"):
        finished: Finished = added(in_order(workers.each(finish_share, shares, plan)))
    people = judged(finished.tally, names.annotators, names.classes, columns.annotator, history, job.min_accuracy)
    by_name = dict(zip(map(str, names.annotators), people["n_labels"].tolist(), strict=True))
    left_out = {**names.left_out, "labels given again": gathered.repeated}
    if gathered.repeated:
        _warn_unread_time(sources[0])
    return Done(
        sizes=sizes,
        labels=gathered.labels,
        classes=names.classes.tolist(),
        accepted=finished.accepted,
        people=people,
        left_out={reason: n for reason, n in left_out.items() if n},
        respelled=names.respelled,
        twins=alike("labels", names.counts) + alike("annotators", by_name),
        columns=columns,
        gold=gathered.gold,
        parts=len(folders),
    )


def _buckets(job: Job, number: int) -> int:
    """Return the number of buckets: that of the interrupted run, if there was one, even if memory changed."""
    file = job.work / BUCKETS
    if kept(file) is None:
        keep(file, number)
    saved: int = kept(file)
    return saved


def _warn_unread_time(source: Source) -> None:
    column = unread_column(WHEN, source)
    if column:
        warnings.warn(
            CrowdshotWarning(
                f"The times in column {column!r} are ignored: of repeated labels, the last one in the files counts",
                argument="engine",
                found=column,
                where=source.path,
            ),
            stacklevel=3,
        )


def abandon(job: Job) -> None:
    """Remove the files of a failed job that made its folder. It cannot be continued: it would fail again."""
    shutil.rmtree(job.work, ignore_errors=True)
    (job.out / RUN).unlink(missing_ok=True)
    with suppress(OSError):  # not empty: parts were written
        job.out.rmdir()


def conclude(job: Job, report: Mapping[str, Any], people: pd.DataFrame) -> None:
    """Save the report and the table of all annotators, and remove intermediate files."""
    put(job.out / PEOPLE, lambda path: people.to_feather(path, compression="uncompressed"), beside=job.work)
    put(job.out / FINISHED, lambda path: path.write_text(json.dumps(report)), beside=job.work)
    shutil.rmtree(job.work, ignore_errors=True)


def _read(
    job: Job, workers: Workers, share: Share, sources: list[Source], buckets: int, gold: dict[str, str]
) -> tuple[Gathered, Names]:
    """Read the labels and sort them into parts."""
    scattered, parts = job.work / "scattered", job.work / "parts"
    parts.mkdir(exist_ok=True)
    names, chunks = _scatter_all(job, workers, sources, Plan(scattered, buckets, share.chunk_rows), gold)
    gold_labels = {_as_item(item, sources[0].integers): names.spelled.get(label, label) for item, label in gold.items()}
    left = [chunk for chunk in chunks if scattered.exists() and f"{chunk}.labels" not in Arrays(scattered)]
    for _ in workers.each(encode, left, scattered, names):
        pass
    gathering = Gathering(scattered, chunks, names, gold_labels, buckets, parts)
    gathered = []
    with progress("sorting") as tick:
        for _, part in workers.each(gather, range(buckets), gathering):
            gathered.append(part)
            tick(len(gathered), buckets)
    return added(gathered), names


def _scatter_all(
    job: Job, workers: Workers, sources: list[Source], plan: Plan, gold: dict[str, str]
) -> tuple[Names, list[str]]:
    """Scatter all sources and merge their names; both are saved, because chunks are removed after gathering."""
    file = job.work / "names"
    before: tuple[Names, list[str]] | None = kept(file)
    if before is not None:
        return before
    plan.folder.mkdir(exist_ok=True)
    total = sum(source.rows for source in sources)
    results: dict[int, Scattered] = {}
    with progress("reading") as tick:
        for number, result in workers.each(scatter, list(enumerate(sources)), plan):
            results[number] = result
            tick(sum(done.rows for done in results.values()), total)
    chunks = [chunk for number in sorted(results) for chunk in results[number].chunks]
    left_out = {
        OF_OTHERS: sum(result.others for result in results.values()),
        UNLABELLED: sum(result.blank for result in results.values()),
    }
    source = ", ".join(str(path) for path in job.paths[:3])
    names = names_of(plan.folder, chunks, job.naming, gold, source, left_out)
    keep(file, (names, chunks))
    return names, chunks


def _as_item(item: str, integers: bool) -> Any:
    if not integers:
        return item
    try:
        return int(item)
    except ValueError:
        raise CrowdshotError(
            f"has the item {item!r}",
            argument="gold",
            found=item,
            expected="a whole number, as in the labels' column of items",
        ) from None


def _aggregate(job: Job, method: Aggregator, workers: Workers, folders: list[Path]) -> Any:
    """Run all steps of the method and return its state, which is saved in between."""
    file = job.work / STATE
    done, last = 0, -EVERY
    with progress("aggregating, step") as tick:

        def after(state: Any) -> None:
            nonlocal done, last
            done += 1
            tick(done + 1, 0)  # the step that begins; few methods take all the steps that they may take
            if method.is_done(state) or time.monotonic() - last >= EVERY:
                keep(file, state)
                last = time.monotonic()

        tick(1, 0)
        return run(method, ask_of(workers, folders), kept(file), after)
