"""``crowdshot aggregate``: estimate consensus labels and the quality of annotators from labels alone."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from crowdshot._cli.console import note, print_result
from crowdshot._cli.labels_report import Aggregated, ReportFolder, write_report
from crowdshot._cli.options import (
    MIN_ACCURACY,
    AsJson,
    Cost,
    ExportFolder,
    File,
    Labels,
    MinAccuracy,
    Overwrite,
    ReadingOptions,
    Threshold,
    computing_option,
    flat,
    method_option,
    output_option,
)
from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.progress import progress

if TYPE_CHECKING:
    import pandas as pd

    from crowdshot._cli.inputs import LabelFiles
    from crowdshot.engine.run import Done, Job
    from crowdshot.io.cells import Positions
    from crowdshot.labels.aggregation import LabelsAggregated
    from crowdshot.labels.annotations import Annotations
    from crowdshot.labels.columns import Columns
    from crowdshot.labels.consensus import Floats
    from crowdshot.labels.formats.label_file import LabelsRead
    from crowdshot.labels.label_costs import Money
    from crowdshot.model.parts import PosteriorMatrix
    from crowdshot.report.export import Export
    from crowdshot.report.summary import AnnotatorAgreement, AnnotatorTable, Result, Review

STEPS = 100  # EM steps at most
MOST_COMPARED = 5_000_000  # items × classes; above this, the search for duplicate annotators takes too long
MOST_PEOPLE = 1000  # annotators in the result of an engine; the --annotators file has all
NOT_IN_ENGINES = (
    "format_name",
    "sheet",
    "annotator_columns",
    "multi_label",
    "dates",
    "skip_bad",
    "since",
    "batch",
    "file_names",
)  # reading options engines do not support


def run_aggregate(
    labels: LabelFiles,
    method: str = "learned",
    steps: int = 100,
    out: Path | None = None,
    annotators: Path | None = None,
    export: Export | None = None,
    top: int = 0,
    network: Path | None = None,
    report: ReportFolder | None = None,
    min_accuracy: float = MIN_ACCURACY,
    cost: Mapping[str, float] | Path | None = None,
) -> tuple[Result, pd.DataFrame]:
    """Return the result and a table with the consensus label, confidence, label count and agreement of each item.

    All methods but the majority vote add the probability of each class (for the soft vote, its share of the labels).

    Parameters
    ----------
    labels : LabelFiles
        The labels.
    method : str
        The aggregation method.
    steps : int
        The maximal number of EM steps.
    out : Path, optional
        The file for the table.
    annotators : Path, optional
        The file for a table of the quality of annotators.
    export : Export, optional
        See `crowdshot.report.export`.
    top : int
        The number of most probable classes per item in an additional long table next to ``out``; 0 for none.
    network : Path, optional
        A network of `crowdshot train-inference`, in place of the shipped one.
    report : ReportFolder, optional
        The folder for all results and a report.
    min_accuracy : float
        The accuracy that an annotator should have.
    cost : mapping or Path, optional
        The cost of a label of each annotator; see `crowdshot.labels.label_costs`.
    """
    from crowdshot.io.atomic import check_folder, write_files
    from crowdshot.labels.aggregation import aggregate_labels
    from crowdshot.labels.annotator_quality import by_risk, check_min_accuracy, judge
    from crowdshot.labels.working_times import with_working_times, working_table
    from crowdshot.report import summary
    from crowdshot.report.result_tables import likeliest_table, with_others

    check_min_accuracy(min_accuracy)
    labels = labels.expanded()
    likeliest = _check_outputs(labels, out, annotators, export, top, cost)
    if report is not None:
        check_folder(report.written, report.overwrite)
    read, ann, gold, known = _read(labels, method)
    price = None if cost is None else _price(cost, ann)
    with progress("aggregating"):
        found = aggregate_labels(read, ann, method, steps, gold or None, network)
        without_gold = aggregate_labels(read, ann, method, steps, None, network) if gold else found
    posterior = found.consensus.probabilities
    with progress("judging annotators"):
        people = judge(found.annotations, posterior, read.history.of(found.annotations.annotators), min_accuracy)
        if not read.several:
            _warn_duplicate_annotators(found.annotations, posterior)
        working = working_table(read, found.annotations, posterior) if annotators or report else None
    money = None if price is None else _money(found, people, price)
    timed = by_risk(people) if working is None else with_working_times(by_risk(people), working)
    table = _consensus_table(read, found, method)
    files = [file for file in (out, annotators, likeliest) if file is not None]
    with progress("writing"):
        people_table = with_others(_with_costs(timed, money), read.history)
        most_probable = likeliest_table(found.annotations, posterior, top)
        write_files([(out, table), (annotators, people_table), (likeliest, most_probable)])
        if export is not None:
            from crowdshot.report.export import write_export

            files += write_export(export, table, found.annotations, read, soft=(found.names, found.probabilities))
    review = None
    if report is not None:
        assert working is not None
        options: dict[str, Any] = {"method": method, "network": network}
        options |= {"steps": steps if steps != STEPS else None}
        options |= {"method": None} if method == Aggregator.LEARNED else {}
        options |= {} if min_accuracy == MIN_ACCURACY else {"min-accuracy": min_accuracy}
        options |= {} if cost is None else {"cost": cost}
        done = Aggregated(read, found, table, people, working, without_gold, gold, method, options, min_accuracy, money)
        written, review = write_report(labels, done, report)
        files += written
    who = summary.AnnotatorTable(found.annotations.columns.annotator, summary.records(people), min_accuracy)
    result = _result(labels, read, method, found, table, who, (without_gold, known), export, files, review)
    return replace(result, money=money), table


def _price(cost: Mapping[str, float] | Path, ann: Annotations) -> Floats:
    from crowdshot.labels.label_costs import costs_of

    return costs_of(cost, ann)


def _with_costs(people: pd.DataFrame, money: Money | None) -> pd.DataFrame:
    if money is None:
        return people
    from crowdshot.labels.label_costs import with_costs

    return with_costs(people, money)


def _money(found: LabelsAggregated, people: pd.DataFrame, price: Floats) -> Money:
    from crowdshot.labels.label_costs import count_money

    return count_money(found.annotations, found.consensus.probabilities, people["accuracy"].to_numpy(), price)


def _read(labels: LabelFiles, method: str) -> tuple[LabelsRead, Annotations, dict[str, str], Positions]:
    """Return the labels, their annotations with the gold items and classes, gold, and (N,) the gold classes."""
    from crowdshot.labels import gold_labels
    from crowdshot.labels.aggregation import VOTES
    from crowdshot.report.result_tables import check_columns

    read = labels.read()
    ann = read.annotations
    check_columns(ann.columns, str(labels))
    gold = {} if method in VOTES and labels.gold is None else dict(read.gold)
    gold_labels.some_of(gold, ann.items, source=labels.gold)
    gold_labels.warn_unlabelled(list(gold), ann.items, labels.gold_from)
    ann, known = gold_labels.hold(gold_labels.join(ann, gold), gold)
    return read, ann, gold, known


def _check_outputs(
    labels: LabelFiles,
    out: Path | None,
    annotators: Path | None,
    export: Export | None,
    top: int,
    cost: Mapping[str, float] | Path | None,
) -> Path | None:
    """Refuse files that cannot be written; return the file of the long table that ``top`` requests."""
    from crowdshot.io.atomic import check_folder, check_outputs

    if top and out is None:
        message = "needs an output file: its table is written next to that file"
        raise CrowdshotError(message, argument="top", found=top, hint=Use(out="FILE.csv"))
    likeliest = None if not top or out is None else out.with_name(f"{out.stem}.likeliest{out.suffix}")
    tables = {"out": out, "annotators": annotators, "top": likeliest}
    check_outputs(tables, *labels.inputs, cost if isinstance(cost, Path) else None)
    if export is not None:
        export.check()
        check_folder(export.folder, overwrite=False)
    return likeliest


def _consensus_table(read: LabelsRead, found: LabelsAggregated, method: str) -> pd.DataFrame:
    from crowdshot.model.posteriors import expected_rank
    from crowdshot.report.result_tables import with_probabilities

    table = found.consensus.to_frame()
    if read.ordered:
        table["expected_rank"] = expected_rank(found.consensus.probabilities)
    if method != "majority" or read.several:
        table = with_probabilities(table, found.names, found.probabilities)
    return table


def _result(
    labels: LabelFiles,
    read: LabelsRead,
    method: str,
    found: LabelsAggregated,
    table: pd.DataFrame,
    people: AnnotatorTable,
    held_out: tuple[LabelsAggregated, Positions],
    export: Export | None,
    files: Sequence[Path],
    review: Review | None = None,
) -> Result:
    """``held_out``: the result without gold labels, and the gold class of each item (-1: unknown)."""
    from crowdshot.labels import gold_labels
    from crowdshot.labels.consensus import THRESHOLD
    from crowdshot.report import summary

    without_gold, known = held_out
    compared = gold_labels.compare(without_gold.annotations, known, without_gold.consensus.probabilities[known >= 0])
    return summary.Result(
        method=summary.MethodUsed(method),
        counts=replace(summary.count(found.annotations), classes=found.names.tolist()),
        accepted=summary.Accepted(int((table["confidence"] >= THRESHOLD).sum()), THRESHOLD),
        review=review,
        agreement=_agreement(read, found),
        annotators=people,
        gold=summary.check_gold(compared, labels.gold_from),
        names=summary.note_spellings(read),
        exported=None if export is None else summary.count_exported(export, table),
        left_out=read.left_out,
        sources=read.sources,
        files=files,
    )


def _agreement(read: LabelsRead, found: LabelsAggregated) -> AnnotatorAgreement | None:
    """Return the agreement of annotators with each other; None if there are too many labels to compare."""
    from crowdshot.labels import agreement
    from crowdshot.report import summary

    ann = found.annotations
    if not _can_compare(ann, found.consensus.probabilities):
        return None
    ordered = read.ordered and not read.several
    statistics = agreement.statistics(ann, ordered)
    pairs = agreement.pairs(ann, "quadratic" if ordered else None)
    return summary.agreement_of(statistics, agreement.kappa_warning(ann, statistics), pairs)


def _can_compare(ann: Annotations, posterior: PosteriorMatrix) -> bool:
    """Return whether the labels are few enough to compare all pairs of annotators."""
    import numpy as np

    return isinstance(posterior, np.ndarray) and posterior.size <= MOST_COMPARED and ann.n_classes > 1


def _warn_duplicate_annotators(ann: Annotations, posterior: PosteriorMatrix) -> None:
    """Warn about annotators who give the same labels, if the labels are few enough to compare all pairs."""
    from crowdshot.labels import duplicate_annotators

    if not _can_compare(ann, posterior):
        return
    duplicates = duplicate_annotators.in_words(ann, duplicate_annotators.compare_pairs(ann, posterior))
    if duplicates:
        message = f"{duplicates}; they are counted as independent annotators"
        hint = Use("to merge them if they are the same person", names="FILE")
        warnings.warn(CrowdshotWarning(message, hint=hint), stacklevel=2)


# ---- aggregation by an engine ----


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
    min_accuracy: float = MIN_ACCURACY,
    overwrite: bool = False,
) -> tuple[Result, bool]:
    """Aggregate any number of labels in bounded memory, and write a folder of Parquet files.

    Return the result, and whether an earlier run had finished it. The arguments are those of `run_aggregate`, but
    ``out`` is a folder; see `crowdshot.engine.run`. ``overwrite`` replaces another run's results when all is done.
    """
    from crowdshot.engine.part_files import as_bytes, shares_of
    from crowdshot.engine.run import RUN, abandon, alone, conclude, prepare, replace_results, replacing, run_job
    from crowdshot.engine.workers import environment, workers_of
    from crowdshot.io.atomic import write_file
    from crowdshot.io.json_text import to_json
    from crowdshot.labels.annotator_quality import by_risk, check_min_accuracy
    from crowdshot.labels.formats.cleaning import warn_blanks, warn_near_duplicates
    from crowdshot.model.parts import cores
    from crowdshot.report.result_tables import with_others

    check_min_accuracy(min_accuracy)
    folder, labels = _check_engine(labels, out, engine, annotators)
    job = _job(labels, folder, method, steps, as_bytes(memory), top, network)
    if min_accuracy != MIN_ACCURACY:
        job = replace(job, min_accuracy=min_accuracy, typed={**job.typed, "min_accuracy": min_accuracy})
    share = shares_of(job.memory, cores())
    if overwrite:
        job = replacing(job)
    is_resumed = (job.out / RUN).exists()
    finished = prepare(job)
    if finished is not None:
        if job.out != folder:
            replace_results(job, folder, finished)
        return _restored(finished, folder, annotators), True
    with alone(job), environment():
        try:
            workers = workers_of(engine, share.workers, job.work)
            with closing(workers):
                done = run_job(job, workers, share)
        except CrowdshotError:
            if not is_resumed:  # else the files are of an earlier run, and its user decides about them
                abandon(job)
            raise
    warn_blanks(done.classes, str(labels))
    warn_near_duplicates(done.twins, str(labels))
    people = with_others(by_risk(done.people), job.history)
    if annotators is not None:
        write_file(annotators, people)
    result = _engine_result(job, folder, done, engine, labels.gold_from, annotators)
    report = to_json(result)
    conclude(job, report, people)
    if job.out != folder:
        replace_results(job, folder, report)
    return result, False


def _check_engine(
    labels: LabelFiles, out: Path | None, engine: str, annotators: Path | None
) -> tuple[Path, LabelFiles]:
    """Refuse what an engine does not support; return the output folder and the labels of all files."""
    from crowdshot.engine.label_sources import expand_all
    from crowdshot.io.atomic import check_table

    if out is None:
        raise CrowdshotError("needs an output folder", argument="engine", found=engine, hint=Use(out="DIR"))
    for name in NOT_IN_ENGINES:
        if getattr(labels, name):
            message = "is not supported with an engine, which reads only tables with a row per label"
            raise CrowdshotError(message, argument=name)
    if labels.leave_out:
        message = "is not supported with an engine"
        raise CrowdshotError(message, argument="leave_out", hint="Remove the labels of these annotators from the files")
    labels.naming.check()
    labels = replace(labels, paths=expand_all(labels.paths))
    if annotators is not None:
        check_table(annotators, *labels.inputs)
    return out, labels


def _job(labels: LabelFiles, out: Path, method: str, steps: int, memory: int, top: int, network: Path | None) -> Job:
    from crowdshot.engine.run import Job
    from crowdshot.labels import gold_labels
    from crowdshot.labels.aggregation import require_default
    from crowdshot.labels.annotator_quality import AnnotatorPriors
    from crowdshot.report.result_tables import check_columns

    def gold(columns: Columns) -> dict[str, str]:
        check_columns(columns, str(labels))
        return {} if labels.gold is None else gold_labels.read(labels.gold, columns)

    history = AnnotatorPriors({}) if labels.history is None else AnnotatorPriors.read(labels.history)
    require_default(method, history=history, network=network)
    return Job(
        labels.paths,
        out,
        method,
        steps,
        memory,
        labels.columns,
        labels.naming,
        gold,
        history,
        top,
        network,
        typed=labels.options(),
    )


def _engine_result(job: Job, folder: Path, done: Done, engine: str, gold_from: str, annotators: Path | None) -> Result:
    from crowdshot.labels.consensus import THRESHOLD
    from crowdshot.report import summary

    files = [folder / f"part-{number:05d}.parquet" for number in range(done.parts)]
    return summary.Result(
        method=summary.MethodUsed(job.method, engine=engine),
        counts=summary.CrowdCounts(done.sizes.items, done.sizes.annotators, done.labels, done.classes),
        accepted=summary.Accepted(done.accepted, THRESHOLD),
        annotators=summary.AnnotatorTable(
            done.columns.annotator, summary.records(_least_accurate(done.people)), job.min_accuracy
        ),
        gold=summary.Gold(done.gold, gold_from),
        names=summary.SpellingNotes(done.twins, done.respelled),
        left_out=done.left_out,
        files=files if annotators is None else [*files, annotators],
    )


def _restored(saved: Mapping[str, Any], folder: Path, annotators: Path | None) -> Result:
    """Return the result of an engine from the JSON that it saved, and write the table of annotators if asked to."""
    import pandas as pd

    from crowdshot.engine.run import PEOPLE
    from crowdshot.io.atomic import write_file
    from crowdshot.labels.spelling import Respelled, Twins
    from crowdshot.report import summary

    files = [Path(file) for file in saved["files"]]
    if annotators is not None:
        if not (folder / PEOPLE).exists():  # version 0.2 did not save it
            message = "was written by a version that did not keep the table of all annotators"
            raise CrowdshotError(message, argument="annotators", where=folder, expected="a new or empty folder")
        write_file(annotators, pd.read_feather(folder / PEOPLE))
        files = [*(file for file in files if file != annotators), annotators]
    twins = [Twins(**each) for each in saved["near_duplicates"]]
    respelled = [Respelled(**each) for each in saved["respelled"]]
    return summary.Result(
        method=summary.MethodUsed(saved["method"], engine=saved["engine"]),
        counts=summary.CrowdCounts(*(saved[name] for name in ("items", "annotators", "labels", "classes"))),
        accepted=summary.Accepted(saved["accepted"], saved["accepted_at"]),
        annotators=summary.AnnotatorTable(
            saved["annotator_column"],
            [{"p_below": None} | row for row in saved["annotator_table"]],  # version 0.2 had no p_below
            saved.get("min_accuracy", MIN_ACCURACY),
        ),
        gold=summary.Gold(saved["gold"], saved["gold_from"]),
        names=summary.SpellingNotes(twins, respelled),
        left_out=saved["left_out"],
        files=files,
    )


def _least_accurate(people: pd.DataFrame) -> pd.DataFrame:
    """Return the annotators who are most likely not accurate enough, at most `MOST_PEOPLE`, in their order."""
    import numpy as np

    if len(people) <= MOST_PEOPLE:
        return people
    lowest = np.lexsort((people["high"], -people["p_below"].fillna(-1)))[:MOST_PEOPLE]
    return people.iloc[np.sort(lowest)]


# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot aggregate labels.csv
  crowdshot aggregate labels.csv --report results
  crowdshot aggregate labels.csv --method dawid-skene --gold known.csv --out consensus.csv --annotators-out people.csv
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
        method_option(
            help="learned: EM with weights that were learned from simulated annotators; shrunk: EM with fixed weights;"
            " one-coin: one accuracy per annotator; dawid-skene: a confusion matrix per annotator, for annotators with"
            " many labels; majority: the majority vote; soft: the majority vote with the share of each class."
        ),
    ] = Aggregator.LEARNED,
    steps: Annotated[
        int, method_option(min=1, help="The maximal number of EM steps; learned and shrunk always take three.")
    ] = STEPS,
    out: File = None,
    annotators: Annotated[
        Path | None,
        output_option(
            "--annotators-out",
            "--annotators",
            metavar="FILE.csv",
            help="Also write a table with the accuracy of each annotator.",
        ),
    ] = None,
    top: Annotated[
        int,
        output_option(
            "--top",
            metavar="N",
            min=0,
            help="Also write the N most probable classes of each item, as a long table next to --out. Useful with many"
            " classes.",
        ),
    ] = 0,
    engine: Annotated[
        LabelsEngine | None,
        computing_option(
            help="Aggregate more labels than fit into memory, from CSV or Parquet: local, in processes on this"
            " machine; ray or spark, on a cluster. --out is then a folder of part-*.parquet files. An interrupted"
            " command continues when it is repeated. --overwrite replaces the results of other labels or settings."
        ),
    ] = None,
    memory: Annotated[
        str, computing_option(metavar="SIZE", help="The memory that all processes of --engine may use.")
    ] = "4GB",
    network: Annotated[
        Path | None,
        method_option(
            metavar="FILE", help="A network that `crowdshot train-inference` wrote, in place of the shipped one."
        ),
    ] = None,
    report: Annotated[
        Path | None,
        output_option(
            metavar="DIR",
            help="Write a folder with a report to read in a browser, tables, and a feedback page for each annotator.",
        ),
    ] = None,
    overwrite: Overwrite = False,
    export: ExportFolder = None,
    threshold: Threshold = 0.9,
    min_accuracy: MinAccuracy = MIN_ACCURACY,
    cost: Cost = None,
    as_json: AsJson = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Estimate consensus labels from labels alone.

    The result is a table with the label, its probability, the number of labels and their agreement for each item. The
    items themselves are not needed. The accuracy of each annotator is printed, or written with --annotators-out.
    """
    from crowdshot.report.export import Export

    exported = None if export is None else Export(export, threshold)
    label_files = reading.of(labels)
    if engine is None:
        folder = None if report is None else ReportFolder(report, overwrite)
        result, table = run_aggregate(
            label_files, method.value, steps, out, annotators, exported, top, network, folder, min_accuracy, cost
        )
        print_result(result, as_json, table if out is None and report is None else None, "consensus")
        return
    for name, value in {"export": export, "report": report, "cost": cost}.items():
        if value is not None:
            raise CrowdshotError("is not supported with an engine", argument=name)
    result, finished_before = aggregate_parts(
        label_files, method.value, steps, out, annotators, engine.value, memory, top, network, min_accuracy, overwrite
    )
    if finished_before:
        note(f"{out} is complete already; nothing was computed.")
    print_result(result, as_json)
