"""``crowdshot check``: report how label files are read, everything that is wrong with them, and what to do about it."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdshot._cli.console import OptionNames, print_json
from crowdshot._cli.options import AsJson, Labels, ReadingOptions, Texts, flat, output_option
from crowdshot.io.json_text import INLINE, OPTIONAL

if TYPE_CHECKING:
    from crowdshot._cli.inputs import LabelFiles
    from crowdshot.labels.formats.diagnosis import Diagnosis, Problem
    from crowdshot.labels.formats.label_file import LabelsRead, SourceUsed
    from crowdshot.labels.spelling import Misspelling, Twins
    from crowdshot.report.summary import CrowdCounts


MOST_SHOWN = 10  # misspellings; --json lists all


@dataclass(frozen=True)
class CheckResult:
    """The result of `crowdshot check`.

    Attributes
    ----------
    readable : bool
        Whether the labels can be read, as they are or with the options of ``command``.
    problems : list of Problem
        What keeps the files from being read as they are.
    command : str or None
        A command that reads the labels.
    merging : str or None
        The same command with the options that merge names which are probably spellings of one name.
    sources : list of SourceUsed
        The formats and columns of the files.
    counts : CrowdCounts or None
    left_out : dict
        What is not used, by reason.
    near_duplicates : list
        Groups of names that are probably spellings of one name.
    misspellings : list
        Rare labels that differ from a frequent one by a letter.
    notes : list of str
        Other warnings.
    files : list of Path
        Files that were written.
    """

    readable: bool
    problems: Sequence[Problem]
    command: str | None
    merging: str | None
    sources: Sequence[SourceUsed] = ()
    counts: CrowdCounts | None = field(default=None, metadata={**INLINE, **OPTIONAL})
    left_out: Mapping[str, Any] = field(default_factory=dict)
    near_duplicates: Sequence[Twins] = ()
    misspellings: Sequence[Misspelling] = ()
    notes: Sequence[str] = ()
    files: Sequence[Path] = ()


def run_check(
    labels: LabelFiles, texts: Path | None = None, write_names: Path | None = None, write_rename: Path | None = None
) -> CheckResult:
    """Diagnose label files, and write tables of names that may be merged.

    Parameters
    ----------
    labels : LabelFiles
        The labels.
    texts : Path, optional
        The file of the texts.
    write_names, write_rename : Path, optional
        The tables of annotators and of labels to write, for ``--names`` and ``--rename``.
    """
    from crowdshot.errors import CrowdshotError
    from crowdshot.labels.formats.diagnosis import Problem
    from crowdshot.labels.spelling import misspellings
    from crowdshot.report import summary

    _refuse_existing({"write_names": write_names, "write_rename": write_rename})
    labels = labels.expanded()
    labels.naming.check()
    found = labels.diagnose()
    problems = list(found.problems)
    if found.read is None:
        return CheckResult(False, problems, None, None)
    proposed = replace(labels, **found.arguments)
    names = OptionNames(check)
    notes = [" ".join(names.lines(note)) for note in found.notes]
    try:
        notes += _match_texts(texts, proposed, found.read) if texts is not None else []
    except CrowdshotError as error:
        problems.append(Problem(error.sentence()))
    files = _write_tables(found.read, write_names, write_rename)
    merged = replace(proposed, **_merging(found, write_names, write_rename))
    return CheckResult(
        readable=len(problems) == len(found.problems),
        problems=problems,
        command=_command(proposed, texts),
        merging=None if merged == proposed else _command(merged, texts),
        sources=found.read.sources,
        counts=summary.count(found.read.annotations),
        left_out=found.read.left_out,
        near_duplicates=found.read.near_duplicates,
        misspellings=misspellings(found.read.annotations),
        notes=notes,
        files=files,
    )


def _command(labels: LabelFiles, texts: Path | None) -> str:
    from crowdshot.formatting import command

    if texts is not None:
        return command("adapt", labels.paths, {"texts": texts, **labels.options(), "out": "results"})
    return command("aggregate", labels.paths, {**labels.options(), "out": "consensus.csv"})


def _merging(found: Diagnosis, names: Path | None, rename: Path | None) -> dict[str, Any]:
    """Return the options that merge names: the files that were written, or the names."""
    from crowdshot.errors import Use

    files = {"names": names, "rename": rename}
    suggested = found.suggestions
    if any("file_names" in note.hint.arguments for note in found.notes if isinstance(note.hint, Use)):
        suggested["file_names"] = True
    if rename is not None:
        suggested.pop("merge_case", None)
    return {**suggested, **{name: file for name, file in files.items() if file is not None}}


def _refuse_existing(files: Mapping[str, Path | None]) -> None:
    from crowdshot.errors import CrowdshotError
    from crowdshot.io.atomic import check_table

    for argument, file in files.items():
        if file is not None:
            check_table(file)
            if file.exists():
                message = f"is {file}, which exists already"
                raise CrowdshotError(
                    message, argument=argument, found=file, expected="a new file, as you may have edited it"
                )


def _write_tables(read: LabelsRead, names: Path | None, rename: Path | None) -> list[Path]:
    """Write the names of all annotators and labels, with the suggested name of each."""
    import pandas as pd

    from crowdshot.io.atomic import write_file
    from crowdshot.labels.spelling import counts_of

    ann = read.annotations
    tables = (
        (names, "annotators", counts_of(ann.annotators, ann.annotator), ("annotator", "name")),
        (rename, "labels", counts_of(ann.classes, ann.label), ("old", "new")),
    )
    for path, of, counts, (old, new) in tables:
        if path is not None:
            groups = [group for group in read.near_duplicates if group.of == of]
            main = {name: group.names[0] for group in groups for name in group.names}
            order = [*main, *(name for name in counts if name not in main)]
            rows = {
                old: order,
                new: [main.get(name, name) for name in order],
                "labels": [counts[name] for name in order],
            }
            write_file(path, pd.DataFrame(rows))
    return [path for path in (names, rename) if path is not None]


def _match_texts(path: Path, labels: LabelFiles, read: LabelsRead) -> list[str]:
    """Return a note on how many items have a text; raise an error if none has."""
    from crowdshot.errors import CrowdshotError
    from crowdshot.formatting import counted
    from crowdshot.labels.text_files import read_text_items

    texts = read_text_items(path, labels.sheet, labels.skip_bad)
    items = set(map(str, read.annotations.items))
    n = max(len(items & set(map(str, ids))) for ids in (texts.ids, texts.texts))
    if n == 0 and not texts.are_files:
        message = "has no text of a labelled item"
        raise CrowdshotError(message, where=path, found=list(texts.ids[:3]), expected="the same ids as in the labels")
    return [] if texts.are_files else [f"{path}: {n:,} of {counted(len(items), 'items')} have a text"]


def in_words(result: CheckResult) -> str:
    """Return the result as text for the terminal."""
    from crowdshot.formatting import plural
    from crowdshot.report import summary

    lines = summary.sources_in_words(result.sources)
    lines += [] if result.counts is None else [summary.counts_in_words(result.counts)]
    lines += [f"left out: {line}" for line in summary.left_out(result.left_out)]
    lines += [f"note: {note}" for note in result.notes]
    for each in result.misspellings[:MOST_SHOWN]:
        pair = shlex.join(["--rename", f"{each.name}={each.like}"])
        lines.append(
            f"note: the label {each.name!r} ({plural(each.n_labels, 'label')}) may be a misspelling of {each.like!r}"
            f" ({each.n_like:,}): {pair}"
        )
    if result.problems:
        lines.append("The files cannot be read as they are:")
        for number, problem in enumerate(result.problems, 1):
            asks = " Please confirm the option below." if problem.choice else ""
            lines.append(f"  {number}. {problem.message}{asks}")
    if result.command is not None and result.readable:
        lines += [f"{'Try' if result.problems else 'Ready'}: {result.command}"]
    if result.merging is not None:
        lines += [f"To merge names that may mean the same: {result.merging}"]
    lines += [f"{file}  edit it, then use the command above" for file in result.files]
    return "\n".join(lines)


# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot check labels.xlsx
  crowdshot check labels.xlsx --texts labels.xlsx --json
  crowdshot check labels.csv --write-names names.csv --write-rename rename.csv
"""


@flat
def check(
    labels: Labels,
    texts: Texts = None,
    write_names: Annotated[
        Path | None,
        output_option(
            metavar="FILE.csv",
            help="Write a table of the annotators for --names, which merges names that may be the same person's.",
        ),
    ] = None,
    write_rename: Annotated[
        Path | None,
        output_option(
            metavar="FILE.csv",
            help="Write a table of the labels for --rename, which merges labels that may mean the same.",
        ),
    ] = None,
    as_json: AsJson = False,
    *,
    reading: ReadingOptions,
) -> None:
    """Check label files, and report all problems at once.

    Lists the columns that are used, what is left out, and a command that solves the problems. The exit code is 0 if the
    labels can be read, as they are or with this command, else 2.
    """
    result = run_check(reading.of(labels), texts, write_names, write_rename)
    if as_json:
        print_json(result)
    else:
        typer.echo(in_words(result))
    if not result.readable:
        raise SystemExit(2)
