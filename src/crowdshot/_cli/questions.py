"""``crowdshot questions``: aggregate several questions about the same items, with one overview of the people."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot._cli.console import note, print_json
from crowdshot._cli.labels_report import ReportFolder
from crowdshot._cli.option_values import as_names
from crowdshot._cli.options import (
    MIN_ACCURACY,
    AsJson,
    Folder,
    FromText,
    Labels,
    MinAccuracy,
    Overwrite,
    ReadingOptions,
    flat,
    input_option,
)
from crowdshot.errors import CrowdshotError, CrowdshotWarning, Use
from crowdshot.formatting import listing

if TYPE_CHECKING:
    from crowdshot._cli.inputs import LabelFiles
    from crowdshot.io.atomic import Writers
    from crowdshot.report.question_overview import AskedQuestion, QuestionsResult

MOST_QUESTIONS = 100

# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot questions export.json --out results
  crowdshot questions labels.csv --questions colour,shape --out results
  crowdshot questions labels.csv --by aspect --out results
"""


def run_questions(
    labels: LabelFiles,
    out: Path,
    questions: Sequence[str] = (),
    by: str | None = None,
    overwrite: bool = False,
    min_accuracy: float = MIN_ACCURACY,
) -> QuestionsResult:
    """Aggregate each question into a folder of its own, and write an overview.

    Parameters
    ----------
    labels : LabelFiles
        The labels.
    out : Path
        The folder.
    questions : sequence of str
        The names of the questions, or the columns with their labels. By default all questions that the files' format
        recognises.
    by : str, optional
        The column that says which question a row answers, if crowdshot does not recognise it.
    overwrite : bool
        Whether the folder may have results already.
    min_accuracy : float
        The accuracy that an annotator should have.
    """
    from crowdshot.io.atomic import check_folder, write_folder
    from crowdshot.io.file_names import safe_names
    from crowdshot.report.question_overview import QuestionsResult as Overview
    from crowdshot.report.question_overview import over_questions

    check_folder(out, overwrite)
    labels = labels.expanded()
    if labels.columns and "label" in labels.columns:
        raise CrowdshotError("names one question", argument="columns", expected="no label", hint=_name_questions())
    parts = _parts(labels, questions, by)
    _check_gold(labels, list(parts))
    _read_all(parts)
    found: list[AskedQuestion] = []
    files: list[Path] = []
    folders = safe_names(parts, ["index.html", "questions.csv", "annotators.csv"])

    def write_question(question: str, folder: str, path: Path) -> None:
        report = ReportFolder(out / folder, overwrite, beside=path)
        asked, written = _aggregate(question, parts[question], report, min_accuracy)
        found.append(asked)
        files.extend(written)

    @cache
    def overview() -> QuestionsResult:
        return Overview(found, over_questions(found), min_accuracy)

    writers = {folder: partial(write_question, name, folder) for name, folder in zip(parts, folders, strict=True)}
    pages = _overview_writers(overview)
    write_folder(out, {**writers, **pages}, overwrite)
    return replace(overview(), files=[*(out / name for name in pages), *files])


def _parts(labels: LabelFiles, questions: Sequence[str], by: str | None) -> dict[str, LabelFiles]:
    """Return the label files of each question."""
    if by is not None:
        values = _values(labels, by)
        unknown = next((name for name in questions if name not in values), None)
        if unknown is not None:
            expected = f"some of {listing(values)}"
            raise CrowdshotError(
                f"names {unknown!r}", argument="questions", found=unknown, expected=expected, among=values
            )
        names = list(questions) or values
        parts = {name: replace(labels, batch={**(labels.batch or {}), by: name}) for name in names}
    else:
        names = list(questions) or _recognised(labels)
        parts = {name: replace(labels, columns={**(labels.columns or {}), "label": name}) for name in names}
    if not 2 <= len(parts) <= MOST_QUESTIONS:
        message = f"has {len(parts)} questions: {listing(parts, 5)}"
        hint = "`crowdshot aggregate` aggregates one question" if len(parts) < 2 else None
        expected = f"2 to {MOST_QUESTIONS}"
        raise CrowdshotError(message, where=str(labels), found=list(parts)[:10], expected=expected, hint=hint)
    return parts


def _name_questions() -> Use:
    return Use("to name the questions", questions=["QUESTION", "QUESTION"])


def _recognised(labels: LabelFiles) -> list[str]:
    """Return the questions that the files' format recognises: reading them without a choice names them in an error."""
    try:
        labels.parts()
    except CrowdshotError as error:
        arguments = error.hint.arguments if isinstance(error.hint, Use) else {}
        asks_for_one = "label" in (arguments.get("columns") or {}) and isinstance(error.found, list)
        if asks_for_one and error.expected == "one":
            return [str(name) for name in error.found]
        if not asks_for_one:
            raise
    hint = _name_questions() | Use("if a column says which question a row answers", by="COLUMN")
    columns = _columns(labels)
    message = f"has no column that crowdshot recognises as questions: its columns are {listing(columns, 20)}"
    raise CrowdshotError(
        message if columns else "has one question, or crowdshot does not recognise them",
        where=str(labels),
        found=columns[:20],
        hint=hint,
    )


def _columns(labels: LabelFiles) -> list[str]:
    """Return the columns of tables; none for exports of label tools."""
    from crowdshot.labels.formats.label_file import LabelFile

    files = [LabelFile(path, sheet=labels.sheet, skip_bad=labels.skip_bad) for path in labels.paths]
    tables = [file.table for file in files if not (file.is_array or file.is_lines)]
    return list(dict.fromkeys(name for table in tables for name in table.header))


def _values(labels: LabelFiles, by: str) -> list[str]:
    try:
        return labels.values(by)
    except CrowdshotError as error:
        if error.argument == "batch":
            error.argument = "by"
        raise


def _check_gold(labels: LabelFiles, questions: Sequence[str]) -> None:
    """Refuse a table of true labels without a column for each question, which would be used for all of them."""
    from crowdshot.io.tables import read_table

    if labels.gold is None:
        return
    header = read_table(labels.gold).header
    missing = [name for name in questions if name not in header]
    if missing:
        message = f"has no column for the questions {listing(missing, 3)}"
        raise CrowdshotError(message, where=labels.gold, found=header, expected="a column for each question")


def _read_all(parts: Mapping[str, LabelFiles]) -> None:
    """Read every question once before anything is written, so that an error leaves no results of some of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for question, chosen in parts.items():
            try:
                chosen.read()
            except CrowdshotError as error:
                error.add_note(f"This is about the question {question!r}.")
                raise


def _aggregate(
    question: str, labels: LabelFiles, report: ReportFolder, min_accuracy: float
) -> tuple[AskedQuestion, list[Path]]:
    """Aggregate a question and write its folder, which keeps its other files; warnings name the question."""
    from crowdshot._cli.aggregate import run_aggregate
    from crowdshot.io.atomic import link_other_files
    from crowdshot.report.question_overview import asked_question

    if report.out.is_dir():
        report.written.mkdir()
        link_other_files(report.out, report.written, ())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result, _ = run_aggregate(labels, report=report, min_accuracy=min_accuracy)
    if caught:
        note(f"about the question {question!r}:")
    for warning in caught:
        if isinstance(warning.message, CrowdshotWarning) and warning.message.where:
            warning.message.where = warning.message.where.replace(str(report.written), str(report.out))
        warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno, "crowdshot")
    files = [report.out / Path(file).relative_to(report.written) for file in result.files]
    return asked_question(question, report.out.name, result), files


def _overview_writers(result: Callable[[], QuestionsResult]) -> Writers:
    import pandas as pd

    from crowdshot.io.atomic import write_csv
    from crowdshot.report import question_overview as overview

    def write(text: Callable[[QuestionsResult], str], path: Path) -> None:
        path.write_text(text(result()), encoding="utf-8", newline="\n")

    def write_rows(rows: Callable[[QuestionsResult], object], path: Path) -> None:
        write_csv(pd.DataFrame(rows(result())), path)

    return {
        overview.PAGE: partial(write, overview.render_questions),
        "questions.csv": partial(write_rows, overview.question_rows),
        "annotators.csv": partial(write_rows, overview.annotator_rows),
    }


@flat
def questions(
    labels: Labels,
    out: Folder,
    questions: Annotated[
        Sequence[str],
        FromText(partial(as_names, "questions", like="colour,shape")),
        input_option(
            "--questions",
            metavar="NAME,…",
            help="The questions, or the columns with their labels (default: all that are recognised).",
        ),
    ] = (),
    by: Annotated[
        str | None,
        input_option(
            "--by",
            metavar="COLUMN",
            help="The column that says which question a row answers, if crowdshot does not recognise it.",
        ),
    ] = None,
    min_accuracy: MinAccuracy = MIN_ACCURACY,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Aggregate several questions, with one overview.

    Each question gets a folder with its consensus and a report, as `crowdshot aggregate --report` writes it. The
    overview shows each person across all questions.

    \b
    The folder has:
      index.html          the overview, with links to the questions' reports
      questions.csv       a row for each question
      annotators.csv      a row for each person
      QUESTION/           the results of a question
    """
    from crowdshot.report import question_overview

    result = run_questions(reading.of(labels), out, questions, by, overwrite, min_accuracy)
    if as_json:
        print_json(result)
        return
    typer.echo(question_overview.describe_questions(result))
    typer.echo(f"\n{out / question_overview.PAGE}  the overview, for a browser")
