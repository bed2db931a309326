"""How files of labels are read: the same options of every command that takes LABELS."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot.commands.cli.options import ExcelSafe, as_columns, as_names, as_new_names

if TYPE_CHECKING:
    from crowdshot.commands.given import LabelFiles


@dataclass(frozen=True)
class Reading:
    """As `crowdshot.commands.given.LabelFiles`, as typed."""

    columns: Annotated[
        str | None,
        typer.Option(
            "--columns",
            metavar="item=…,annotator=…,label=…",
            help="Which columns of LABELS are which, where their names do not tell.",
        ),
    ] = None
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="FORMAT",  # the names of formats.FORMATS, which would have to be loaded for --help
            help="What LABELS are, where their content does not tell: cvat, label-studio, argilla, prodigy, toloka,"
            " mturk, judges (verdicts of language models), wide (a column for each annotator), turned (a row for each"
            " annotator), long (a row for each label).",
        ),
    ] = None
    sheet: Annotated[
        str | None, typer.Option("--sheet", metavar="NAME", help="Which sheet of a workbook, where several might do.")
    ] = None
    annotator_columns: Annotated[
        str | None,
        typer.Option(
            "--annotator-columns",
            metavar="NAME,…",
            help="Which columns are annotators', of a table with a column for each; else it is told which are not.",
        ),
    ] = None
    rename: Annotated[
        str | None,
        typer.Option(
            "--rename",
            metavar="OLD=NEW,…|FILE",
            help="Other names for labels, or a table with the columns old and new; what is renamed to nothing is no"
            " label.",
        ),
    ] = None
    merge_case: Annotated[
        bool, typer.Option("--merge-case", help="Labels that differ in case and spaces alone are one.")
    ] = False
    names: Annotated[
        Path | None, typer.Option("--names", metavar="FILE", help="A table of annotators and what they are called.")
    ] = None
    multi_label: Annotated[
        bool, typer.Option("--multi-label", help='An answer may name several labels, like "cat;dog".')
    ] = False
    ordered: Annotated[
        str | None, typer.Option("--ordered", metavar="LOW,…,HIGH", help="The classes, from the lowest to the highest.")
    ] = None
    categories: Annotated[
        bool, typer.Option("--categories", help="Labels are names of classes, though they may look like measurements.")
    ] = False
    leave_out: Annotated[
        str | None, typer.Option("--leave-out", metavar="NAME,…", help="Annotators whose labels do not count.")
    ] = None
    gold: Annotated[
        Path | None,
        typer.Option("--gold", metavar="FILE", help="A table of items and their true labels, which are held fixed."),
    ] = None

    history: Annotated[
        Path | None,
        typer.Option(
            "--history",
            metavar="FILE",
            help="How many labels of annotators were right and wrong in earlier projects: a table with annotator, right"
            " and wrong, such as their annotators.csv.",
        ),
    ] = None

    excel_safe: ExcelSafe = False

    def of(self, labels: Sequence[Path]) -> "LabelFiles":
        from crowdshot.commands.given import LabelFiles  # here, as --help need not wait for pandas

        return LabelFiles(
            labels,
            as_columns(self.columns),
            self.format_name,
            self.sheet,
            as_names("--annotator-columns", self.annotator_columns),
            rename=as_new_names(self.rename),
            merge_case=self.merge_case,
            names=self.names,
            multi_label=self.multi_label,
            ordered=as_names("--ordered", self.ordered, like="low,medium,high"),
            categories=self.categories,
            leave_out=as_names("--leave-out", self.leave_out),
            gold=self.gold,
            history=self.history,
            excel_safe=self.excel_safe,
        )
