"""``crowdshot aggregate``: labels alone -> consensus, and how good each annotator is."""

from __future__ import annotations

import warnings
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdshot._cli.console import flat, note, print_result
from crowdshot._cli.options import AsJson, ExportFolder, File, Labels, ReadingOptions, Threshold
from crowdshot.errors import CrowdshotError
from crowdshot.progress import progress

if TYPE_CHECKING:
    import pandas as pd

    from crowdshot._cli.inputs import LabelFiles, Report
    from crowdshot.labels.annotations import Annotations
    from crowdshot.labels.columns import Columns
    from crowdshot.model.parts import PosteriorMatrix
    from crowdshot.report.export import Export


MOST_COMPARED = 5_000_000  # items × classes, beyond which nobody waits to be told who copies


def run_aggregate(
    labels: LabelFiles,
    method: str = "learned",
    steps: int = 100,
    out: Path | None = None,
    annotators: Path | None = None,
    export: Export | None = None,
    top: int = 0,
    network: Path | None = None,
) -> tuple[Report, pd.DataFrame]:
    """Labels alone -> a table with each item's label, confidence, number of labels and agreement.

    All methods but the majority vote add each class's probability (after the soft vote: its share of the labels).
    ``annotators``: a file for a table of how good each of them is. ``export``: see `crowdshot.report.export`. ``top``:
    so many of each item's likeliest classes in a long table beside ``out``. ``network``: of `train-inference`.
    """
    from crowdshot._cli.inputs import counts, export_facts, gold_facts, spellings
    from crowdshot.io.atomic import check_folder, check_table, write_file
    from crowdshot.labels import gold_labels
    from crowdshot.labels.aggregation import VOTES, aggregate_labels
    from crowdshot.labels.annotator_quality import judge
    from crowdshot.labels.confidence import THRESHOLD
    from crowdshot.model.posteriors import expected_rank
    from crowdshot.report.export import write_export
    from crowdshot.report.result_tables import (
        check_columns,
        likeliest_table,
        records,
        with_others,
        with_probabilities,
    )

    if top and out is None:
        raise CrowdshotError(f"top is {top}, expected out= too, beside which its table goes.")
    likeliest = None if not top or out is None else out.with_name(f"{out.stem}.likeliest{out.suffix}")
    labels = labels.expanded()
    files = [file for file in (out, annotators, likeliest) if file is not None]
    for file in files:
        check_table(file, *labels.inputs)
    if out is not None and annotators is not None and out.resolve() == annotators.resolve():
        raise CrowdshotError(f"annotators is {annotators}, which is out= too, expected another file.")
    if export is not None:
        export.check()
        check_folder(export.folder, overwrite=False)
    read = labels.read()
    ann = read.annotations
    check_columns(ann.columns, str(labels))
    gold = {} if method in VOTES and labels.gold is None else read.gold
    gold_labels.some_of(gold, ann.items, source=labels.gold)
    gold_labels.warn_unlabelled(list(gold), ann.items, labels.gold_from)
    ann, known = gold_labels.hold(gold_labels.join(ann, gold), gold)
    with progress("aggregating"):
        believed = aggregate_labels(read, ann, method, steps, gold or None, network)
        without = aggregate_labels(read, ann, method, steps, None, network) if gold else believed
    ann, consensus = believed.annotations, believed.consensus
    table = consensus.to_frame(ann)
    if read.ordered:
        table["expected_rank"] = expected_rank(consensus.probabilities)
    if method != "majority" or read.several:
        table = with_probabilities(table, believed.names, believed.probabilities)
    people = judge(ann, consensus.probabilities, read.history.of(ann.annotators))
    if not read.several:
        _warn_duplicate_annotators(ann, consensus.probabilities)
    with progress("writing"):
        long = likeliest_table(ann, consensus.probabilities, top)
        for path, content in ((out, table), (annotators, with_others(people, read.history)), (likeliest, long)):
            if path is not None:
                write_file(path, content)
        if export is not None:
            files += write_export(export, table, ann, read)
    report = {
        "method": method,
        **counts(ann),
        "classes": believed.names.tolist(),
        "accepted": int((table["confidence"] >= THRESHOLD).sum()),
        "accepted_at": THRESHOLD,
        "annotator_column": ann.columns.annotator,
        "annotator_table": records(people),
        **gold_facts(
            gold_labels.compare(without.annotations, known, without.consensus.probabilities[known >= 0]),
            labels.gold_from,
        ),
        **spellings(read),
        **({} if export is None else export_facts(export, table)),
        "left_out": read.left_out,
        "files": [str(file) for file in files],
    }
    return report, table


def _warn_duplicate_annotators(ann: Annotations, posterior: PosteriorMatrix) -> None:
    """Where these can be compared."""
    import numpy as np

    from crowdshot.labels import duplicate_annotators

    if not isinstance(posterior, np.ndarray) or posterior.size > MOST_COMPARED or ann.n_classes < 2:
        return
    told = duplicate_annotators.in_words(ann, duplicate_annotators.compare_pairs(ann, posterior))
    if told:
        hint = "their one voice counts as several, unless names= makes one of them"
        warnings.warn(f"{told}; {hint}.", UserWarning, stacklevel=2)


# ---- aggregate parts ------------------------------------------------------------
#
# ``crowdshot aggregate --engine``: labels of any number -> a folder of Parquet files, in bounded memory.


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
    """As `crowdshot._cli.aggregate.run_aggregate`, but ``out`` is a folder; see `crowdshot.engine.run`."""
    from crowdshot.engine.label_sources import expand_all
    from crowdshot.engine.part_files import as_bytes, shares_of
    from crowdshot.engine.run import Job, abandon, conclude, prepare, run_job
    from crowdshot.engine.workers import cores, environment, workers_of
    from crowdshot.io.atomic import check_table, write_file
    from crowdshot.labels import gold_labels
    from crowdshot.labels.aggregation import of_default_alone
    from crowdshot.labels.annotator_priors import AnnotatorPriors
    from crowdshot.labels.confidence import THRESHOLD
    from crowdshot.labels.formats.cleaning import warn_blanks, warn_near_duplicates
    from crowdshot.report.result_tables import check_columns, records, with_others

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
        return {} if labels.gold is None else gold_labels.read(labels.gold, columns)

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
    warn_blanks(done.classes, source)
    warn_near_duplicates(done.twins, source)
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
        "accepted": done.accepted,
        "accepted_at": THRESHOLD,
        "annotator_column": done.columns.annotator,
        "annotator_table": records(_weakest(done.people)),
        "gold": done.gold,
        "gold_from": labels.gold_from,
        "near_duplicates": [each._asdict() for each in done.twins],
        "respelled": [each._asdict() for each in done.respelled],
        "left_out": done.left_out,
        "files": files,
    }
    conclude(job, report)
    return report


def _weakest(people: pd.DataFrame) -> pd.DataFrame:
    """As they came, all or `MOST_PEOPLE`."""
    import numpy as np

    if len(people) <= MOST_PEOPLE:
        return people
    weakest = people["high"].where(people["accuracy"].notna(), np.inf).argsort(kind="stable")[:MOST_PEOPLE]
    return people.iloc[np.sort(weakest)]


# ---- aggregate ------------------------------------------------------------
#
# ``crowdshot aggregate`` on the command line; `app` adds it.


# "\b" keeps the lines that follow as they are
EXAMPLES = """\b
Examples:
  crowdshot aggregate labels.csv
  crowdshot aggregate labels.csv --method dawid-skene --gold known.csv --out consensus.csv --annotators people.csv
  crowdshot aggregate 'labels/*.parquet' --engine local --memory 4GB --out consensus
"""


class Aggregator(StrEnum):
    LEARNED = "learned"
    SHRUNK = "shrunk"
    ONE_COIN = "one-coin"
    DAWID_SKENE = "dawid-skene"
    MAJORITY = "majority"
    SOFT = "soft"


class LabelsEngine(StrEnum):
    LOCAL = "local"
    RAY = "ray"
    SPARK = "spark"


@flat
def aggregate(
    labels: Labels,
    method: Annotated[
        Aggregator,
        typer.Option(
            help="learned: weighed as other crowds have taught; shrunk: the same with fixed weights; one-coin: an"
            " accuracy for each annotator; dawid-skene: a confusion matrix, for annotators with many"
            " labels; majority; soft: majority with each class's share."
        ),
    ] = Aggregator.LEARNED,
    steps: Annotated[int, typer.Option(min=1, help="EM steps at most; learned and shrunk have three.")] = 100,
    out: File = None,
    annotators: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write how often each annotator is right.")
    ] = None,
    top: Annotated[
        int,
        typer.Option(
            "--top",
            metavar="N",
            min=0,
            help="The N likeliest classes of each item too, as a long table beside --out: for where classes are many.",
        ),
    ] = 0,
    engine: Annotated[
        LabelsEngine | None,
        typer.Option(
            help="For more labels than memory holds, CSV or Parquet: local, processes of this machine; ray, spark: a"
            " cluster. --out is then a folder, which fills with part-*.parquet; the same command goes on after a kill."
        ),
    ] = None,
    memory: Annotated[str, typer.Option(metavar="SIZE", help="What --engine may use, all processes together.")] = "4GB",
    network: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="What train-inference wrote, in the place of the shipped network."),
    ] = None,
    export: ExportFolder = None,
    threshold: Threshold = 0.9,
    as_json: AsJson = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Consensus from labels alone, without looking at the items, and who is how often right."""
    from crowdshot.report.export import Export

    exported = None if export is None else Export(export, threshold)
    if engine is not None:
        if exported is not None:
            raise CrowdshotError("export is given with engine=, expected one of them.")
        told = aggregate_parts(
            reading.of(labels), method.value, steps, out, annotators, engine.value, memory, top, network
        )
        if told.pop("finished_before", False):
            note(f"{out} was finished before: nothing is left to do.")
        print_result(told, as_json)
        return
    report, table = run_aggregate(reading.of(labels), method.value, steps, out, annotators, exported, top, network)
    print_result(report, as_json, table if out is None else None, "consensus")
