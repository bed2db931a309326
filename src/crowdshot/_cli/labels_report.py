"""Write a folder of results with a report for `aggregate --report`, and rebuild a report from its folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdshot._cli.console import print_json
from crowdshot._cli.options import AsJson
from crowdshot.formatting import command, in_a_terminal
from crowdshot.progress import progress

if TYPE_CHECKING:
    import pandas as pd

    from crowdshot._cli.inputs import LabelFiles
    from crowdshot.io.cells import Positions
    from crowdshot.labels.aggregation import LabelsAggregated
    from crowdshot.labels.consensus import Floats
    from crowdshot.labels.formats.label_file import LabelsRead
    from crowdshot.labels.label_costs import Money
    from crowdshot.report.page.facts import Facts, Run
    from crowdshot.report.summary import Review


@dataclass(frozen=True)
class ReportFolder:
    """The folder of a report on labels alone; it is written to ``beside`` first if a caller replaces ``out`` later."""

    out: Path
    overwrite: bool = False
    beside: Path | None = None

    @property
    def written(self) -> Path:
        return self.beside or self.out


@dataclass(frozen=True)
class Aggregated:
    """What `aggregate` found: the consensus with its table, the annotators, and the consensus without gold labels.

    ``working`` says when, how fast and how evenly annotators work (`labels.working_times`).
    ``gold`` maps items to known labels. ``options`` are those of the method, as typed.
    """

    read: LabelsRead
    found: LabelsAggregated
    table: pd.DataFrame
    people: pd.DataFrame
    working: pd.DataFrame
    without_gold: LabelsAggregated
    gold: Mapping[str, str]
    method: str
    options: Mapping[str, Any]
    min_accuracy: float
    money: Money | None = None


def write_report(labels: LabelFiles, result: Aggregated, folder: ReportFolder) -> tuple[list[Path], Review]:
    """Write the results of labels alone with a report, all files or none; return the files and what needs review."""
    from crowdshot.labels.annotator_quality import by_risk
    from crowdshot.labels.working_times import with_working_times
    from crowdshot.report import summary
    from crowdshot.report.page.basis import Basis, compare_gold, dense
    from crowdshot.report.page.facts import gather_facts
    from crowdshot.report.page.next_steps import steps
    from crowdshot.report.page.page_writer import write_page, write_sheets
    from crowdshot.report.page.saved_report import write_labels, write_run
    from crowdshot.report.result_tables import with_others, write_label_results

    read, ann = result.read, result.found.annotations
    posterior = dense(result.found.consensus.probabilities, ann)
    known, without_gold = _gold_of(result)
    basis = Basis(
        ann,
        posterior,
        result.people,
        compare_gold(ann, known, without_gold),
        known >= 0,
        read.history.of(ann.annotators),
        read.several,
    )
    with progress("preparing the report"):
        found = gather_facts(basis, _describe_run(labels, result, folder))
    pages = {
        "report.html": partial(write_page, found=found),
        "feedback": partial(write_sheets, found=found),
        "run.json": partial(write_run, run=found.run, basis=basis),
        "labels.safetensors": partial(write_labels, basis=basis, without_gold=without_gold, known=known),
    }
    people = with_others(with_working_times(by_risk(result.people), result.working), read.history)
    if result.money is not None:
        from crowdshot.labels.label_costs import with_costs

        people = with_costs(people, result.money)
    with progress("writing files"):
        files = write_label_results(
            result.found.consensus, result.table, people, folder.written, folder.overwrite, read, pages
        )
    do_next = [summary.Recommendation(in_a_terminal(step.text), step.command) for step in steps(found)]
    return files, summary.Review(found.of_kind(), None, do_next, None)


def _gold_of(result: Aggregated) -> tuple[Positions, Floats]:
    """Return the known class of each item (N,), -1 for none, and the posterior (N, K) without known classes.

    If answers name several labels, the consensus with and without gold may have different sets as classes.
    """
    import numpy as np

    from crowdshot.io.cells import positions

    ann, other = result.found.annotations, result.without_gold
    known = np.full(ann.n_items, -1, dtype=np.int64)
    known[positions(ann.items, list(result.gold))] = positions(ann.classes, list(result.gold.values()))
    column = positions(ann.classes, other.annotations.classes)
    without_gold = np.zeros((ann.n_items, ann.n_classes))
    without_gold[:, column[column >= 0]] = np.asarray(other.consensus.probabilities)[:, column >= 0]
    return known, without_gold


def _describe_run(labels: LabelFiles, result: Aggregated, folder: ReportFolder) -> Run:
    from crowdshot._cli.inputs import merging_options
    from crowdshot.labels.working_times import working_records
    from crowdshot.report import summary
    from crowdshot.report.page.facts import Run, describe_labels

    money: dict[str, Any] = {}
    if result.money is not None:
        from crowdshot.labels.label_costs import describe_costs, describe_money

        money = {
            "money": describe_money(result.money),
            "costs": describe_costs(result.money),
            "price": result.money.cost_per_label,
            "prices": result.money.annotators["cost"].tolist(),
        }
    inputs = labels.options()
    again = {**inputs, **result.options, "report": folder.out, "overwrite": True}
    return Run(
        sources=[str(path) for path in labels.paths],
        items_from="",
        paths=[],
        how=describe_labels(result.method, result.read.several),
        command=command("aggregate", labels.paths, again),
        commands={
            "gold": command("aggregate", labels.paths, again | {"gold": "corrections.csv"}),
            "merge": command("aggregate", labels.paths, again | merging_options(result.read)),
            "ask": command("next", labels.paths, inputs | {"cost": again.get("cost"), "out": "questions.csv"}),
            "audit": command("audit", [folder.out], {}),
        },
        respelled=[str(each) for each in result.read.respelled],
        near_duplicates=result.read.near_duplicates,
        ordered=result.read.ordered,
        min_accuracy=result.min_accuracy,
        working=working_records(result.working),
        left_out=summary.left_out(result.read.left_out),
        **money,
    )


# ---- crowdshot report ----

# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot report results
"""


def run_report(folder: Path) -> list[Path]:
    """Rebuild report.html and the feedback sheets of a folder of results."""
    from crowdshot.io.atomic import write_folder
    from crowdshot.report.page.page_writer import write_page, write_sheets

    found = facts_of(folder)
    pages = {"report.html": partial(write_page, found=found), "feedback": partial(write_sheets, found=found)}
    with progress("writing files"):
        return write_folder(folder, pages, overwrite=True)


def facts_of(folder: Path) -> Facts:
    """Return the facts of the report of a folder, with its audit."""
    from crowdshot.report.folder_audit import read_audit
    from crowdshot.report.page.facts import gather_facts
    from crowdshot.report.page.saved_report import read_basis, read_run

    run = read_run(folder).run
    with progress("reading results"):
        basis, audit = read_basis(folder, run), read_audit(folder)
    with progress("preparing the report"):
        return gather_facts(basis, run, audit)


def report(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that `adapt` or `aggregate --report` wrote.")
    ],
    as_json: AsJson = False,
) -> None:
    """Rebuild the report of a folder of results.

    Writes report.html and the feedback sheets again, with the version of crowdshot that is installed. Pictures are
    shown if the image files are where they were.
    """
    files = run_report(folder)
    if as_json:
        print_json({"files": [str(file) for file in files]})
        return
    for file in files:
        typer.echo(str(file))
