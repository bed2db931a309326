"""``crowdshot aggregate --engine``: labels of any number -> a folder of Parquet files, in bounded memory."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from crowdshot.commands.counts import Report
from crowdshot.commands.given import LabelFiles
from crowdshot.engine.memory import as_bytes, shares_of
from crowdshot.engine.remote import expand_all
from crowdshot.engine.run import Job, abandon, conclude, prepare, run_job
from crowdshot.engine.workers import cores, environment, workers_of
from crowdshot.errors import CrowdshotError
from crowdshot.files.whole import check_table, write_file
from crowdshot.labels import known_truth
from crowdshot.labels.annotator_priors import AnnotatorPriors
from crowdshot.labels.belief import SETTLED
from crowdshot.labels.believed import of_default_alone
from crowdshot.labels.columns import Columns
from crowdshot.labels.formats.naming import tell_blanks, tell_twins
from crowdshot.report.tables import check_columns, records, with_others

UNREAD = ("format_name", "sheet", "annotator_columns", "multi_label")  # options of what an engine does not read
MOST_PEOPLE = 1000  # in what is told, those whose interval ends lowest; `annotators` has all


def aggregate_parts(
    labels: LabelFiles,
    method: str,
    steps: int,
    out: Path | None,
    annotators: Path | None = None,
    engine: str = "local",
    memory: str = "4GB",
    top: int = 0,
    network: Path | None = None,
) -> Report:
    """As `crowdshot.commands.aggregate.aggregate`, but ``out`` is a folder; see `crowdshot.engine.run`."""
    if out is None:
        raise CrowdshotError(f"engine is {engine!r} without out=, expected a folder to write to.")
    for name in UNREAD:
        if getattr(labels, name):
            argument = name.removesuffix("_name")
            raise CrowdshotError(f"{argument} is given with engine=, expected a table with a row for each label.")
    if labels.leave_out:
        raise CrowdshotError("leave_out is given with engine=, expected everybody's labels; take theirs out before.")
    labels.naming.check()
    labels = replace(labels, paths=expand_all(labels.paths))
    if annotators is not None:
        check_table(annotators, *labels.inputs)
    history = AnnotatorPriors({}) if labels.history is None else AnnotatorPriors.read(labels.history)
    of_default_alone(method, history=history, network=network)

    def gold(columns: Columns) -> dict[str, str]:
        check_columns(columns, str(labels))
        return {} if labels.gold is None else known_truth.read(labels.gold, columns)

    share = shares_of(as_bytes(memory), cores())
    job = Job(
        labels.paths,
        out,
        method,
        steps,
        as_bytes(memory),
        labels.columns,
        labels.naming,
        gold,
        history,
        top,
        network,
        labels.options(),
    )
    before = prepare(job)
    if before is not None:
        return {**before, "finished_before": True}
    with environment():
        try:
            workers = workers_of(engine, share.workers, job.work)
            with closing(workers):
                done = run_job(job, workers, share)
        except CrowdshotError:
            abandon(job)
            raise
    source = str(labels)
    tell_blanks(done.classes, source)
    tell_twins(done.twins, source)
    files = [str(out / f"part-{number:05d}.parquet") for number in range(done.parts)]
    if annotators is not None:
        write_file(annotators, with_others(done.people, history))
        files.append(str(annotators))
    report: dict[str, Any] = {
        "method": method,
        "engine": engine,
        "items": done.sizes.items,
        "annotators": done.sizes.annotators,
        "labels": done.labels,
        "classes": done.classes,
        "settled": done.settled,
        "settled_at": SETTLED,
        "annotator_column": done.columns.annotator,
        "annotator_table": records(_weakest(done.people)),
        "gold": done.gold,
        "gold_from": labels.gold_from,
        "near_twins": [each._asdict() for each in done.twins],
        "respelled": [each._asdict() for each in done.respelled],
        "left_out": done.left_out,
        "files": files,
    }
    conclude(job, report)
    return report


def _weakest(people: pd.DataFrame) -> pd.DataFrame:
    """As they came, all or `MOST_PEOPLE`."""
    if len(people) <= MOST_PEOPLE:
        return people
    weakest = people["high"].where(people["accuracy"].notna(), np.inf).argsort(kind="stable")[:MOST_PEOPLE]
    return people.iloc[np.sort(weakest)]
