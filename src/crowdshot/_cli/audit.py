"""``crowdshot audit``: draw a random sample of accepted items, and estimate how many of their labels are right."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot._cli.console import note, print_json
from crowdshot._cli.options import AsJson, ExcelSafe, drawing_option, evaluating_option
from crowdshot.errors import CrowdshotError, Use

if TYPE_CHECKING:
    from crowdshot.labels.auditing import Audit
    from crowdshot.report.folder_audit import Drawn

MOST_MISTAKES = 20  # printed; --json has all

# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot audit results --sample 100
  crowdshot audit results --checked audit.csv
  crowdshot audit results --checked audit.csv --promise 0.95 --update
"""


def audit(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="The folder that `adapt` or `aggregate --report` wrote.")
    ],
    sample: Annotated[int | None, drawing_option(min=1, metavar="N", help="Draw N accepted items at random.")] = None,
    out: Annotated[Path, drawing_option(metavar="FILE.csv", help="The table to fill in.")] = Path("audit.csv"),
    threshold: Annotated[
        float, drawing_option(metavar="P", help="Check items with at least this confidence.", min=0, max=1)
    ] = 0.9,
    seed: Annotated[int, drawing_option(help="The random seed: the same seed gives the same sample.")] = 0,
    show_labels: Annotated[
        bool,
        drawing_option(
            "--show-labels",
            help="Show the consensus labels in the table. People who see them agree with them too often.",
        ),
    ] = False,
    overwrite: Annotated[bool, drawing_option("--overwrite", help="Replace an earlier sample.")] = False,
    checked: Annotated[
        Path | None, evaluating_option(metavar="FILE", help="The table with the true labels filled in.")
    ] = None,
    promise: Annotated[
        float | None,
        evaluating_option(
            metavar="P", help="The accuracy that accepted labels should have (default: the threshold of the sample)."
        ),
    ] = None,
    other_classes: Annotated[
        bool,
        evaluating_option(
            "--other-classes", help="Allow true labels that are no class of the results. They count as mistakes."
        ),
    ] = False,
    update: Annotated[
        bool,
        evaluating_option(
            "--update", help="Add the corrected confidence to consensus.csv, and show the audit in report.html."
        ),
    ] = False,
    excel_safe: ExcelSafe = False,
    as_json: AsJson = False,
) -> None:
    """Check how many accepted labels are right.

    First draw a random sample with --sample, and let somebody fill in the true labels without seeing the consensus.
    Then evaluate the table with --checked. The table can also be used as --gold of `adapt`, `aggregate` and `next`.
    """
    if (sample is None) == (checked is None):
        message = "is missing" if sample is None else "draws a sample, and --checked evaluates one: use one of them"
        hint = Use("to draw a sample", sample=50) | Use("to evaluate it", checked="audit.csv")
        raise CrowdshotError(message, argument="sample", hint=hint)
    if sample is not None:
        _draw(folder, sample, out, threshold, seed, show_labels, overwrite, as_json)
    elif checked is not None:
        _evaluate(folder, checked, promise, other_classes, update, as_json)


def _draw(
    folder: Path, size: int, out: Path, threshold: float, seed: int, show: bool, overwrite: bool, as_json: bool
) -> None:
    from crowdshot.report.folder_audit import draw_audit

    drawn = draw_audit(folder, size, out, threshold, seed, show, overwrite)
    if drawn.sampled < drawn.asked:
        note(f"only {drawn.accepted:,} items are accepted and not known already: all of them are in the sample.")
    if as_json:
        print_json(drawn)
        return
    typer.echo(_describe_sample(drawn, folder))


def _describe_sample(drawn: Drawn, folder: Path) -> str:
    from crowdshot.formatting import align_columns, command, plural
    from crowdshot.report.folder_audit import split_accepted

    rows = [
        (_between(stratum.low, stratum.high), f"{stratum.items:,}", f"{stratum.drawn:,}", "")
        for stratum in drawn.strata[::-1]
    ]
    again = command("audit", [folder], {"checked": drawn.files[0]})
    drawn_from = plural(drawn.accepted, "accepted item")
    if drawn.known:
        drawn_from = f"the others ({split_accepted(drawn.accepted, drawn.known)})"
    return "\n".join(
        [
            f"{plural(drawn.sampled, 'item')} drawn from {drawn_from}",
            "",
            align_columns([("confidence", "items", "drawn", ""), *rows]),
            "",
            f"{drawn.files[0]}  the table to fill in: write the true label of each item into its last column",
            f"{drawn.files[1]}  the labels and strata of the sample",
            "",
            f"then run: {again}",
        ]
    )


def _between(low: float, high: float) -> str:
    """Return the confidences of a stratum.

    >>> _between(0.9, 0.95), _between(0.995, math.inf)
    ('90 to 95\\xa0%', '99.5\\xa0% or more')
    """
    if high == math.inf:
        return f"{100 * low:.3g}\xa0% or more"
    return f"{100 * low:.3g} to {100 * high:.3g}\xa0%"


def _evaluate(
    folder: Path, checked: Path, promise: float | None, other_classes: bool, update: bool, as_json: bool
) -> None:
    from crowdshot.report.folder_audit import evaluate_audit, write_corrected

    if promise is not None and not 0 < promise < 1:
        raise CrowdshotError(f"is {promise:g}", argument="promise", found=promise, expected="a share, such as 0.95")
    result = evaluate_audit(folder, checked, promise, other_classes)
    _note_gaps(result)
    files: list[Path] = []
    if update:
        if result.outdated:
            raise CrowdshotError(
                "cannot be used: the results have changed since the sample was drawn",
                argument="update",
                hint="Draw a new sample.",
            )
        from crowdshot._cli.labels_report import run_report

        files = [write_corrected(folder, result)]
        try:
            files += run_report(folder)
        except CrowdshotError as error:  # such as a folder of adapt --share
            note("report.html does not show the audit, because it cannot be rebuilt.", str(error))
    if as_json:
        more = {"keeps": result.keeps, "mistakes": result.mistakes, "files": files}
        from crowdshot.io.json_text import to_json

        print_json(result, to_json(more))
        return
    typer.echo(_describe(result))
    for file in files:
        typer.echo(str(file))


def _note_gaps(result: Audit) -> None:
    from crowdshot.formatting import counted, listing

    missing = result.sampled - result.overall.checked
    if missing:
        note(
            f"{counted(missing, 'items')} of the sample without a true label: the estimate assumes that they were"
            " skipped regardless of what they show."
        )
    if result.others:
        note(f"left out: {counted(len(result.others), 'items')} that were not drawn: {listing(result.others, 5)}")
    if result.outdated:
        note("the results have changed since the sample was drawn: this is about the labels that were accepted then.")


def _describe(result: Audit) -> str:
    from crowdshot.formatting import align_columns, clean, percent, spread
    from crowdshot.report.folder_audit import describe_audit

    head = ("threshold", "labels", "confidence", "checked", "right", "accuracy", "90 % interval", "at least")
    rows = [
        (
            percent(each.threshold),
            f"{each.items:,}",
            percent(each.confidence),
            f"{each.checked:,}",
            f"{each.right:,}",
            percent(each.accuracy),
            spread(each.low, each.high),
            f"{100 * each.at_least:.1f} %",
        )
        for each in result.estimates
    ]
    lines = [*describe_audit(result), "", align_columns([head, *rows])]
    mistakes = result.mistakes
    if mistakes:
        table = [
            (clean(each.item, 40), clean(each.label, 30), clean(each.truth, 30), percent(each.confidence), "")
            for each in mistakes[:MOST_MISTAKES]
        ]
        lines += ["", align_columns([("wrong item", "consensus", "true label", "confidence", ""), *table])]
        if len(mistakes) > MOST_MISTAKES:
            lines.append(f"… and {len(mistakes) - MOST_MISTAKES:,} more")
    return "\n".join(lines)
