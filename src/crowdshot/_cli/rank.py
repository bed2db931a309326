"""``crowdshot rank``: rank items from pairwise preferences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot._cli.console import note, print_tables
from crowdshot._cli.option_values import as_pairs
from crowdshot._cli.options import AnnotatorsOut, AsJson, ExcelSafe, File, FromText, Sheet, flat, reading_option

if TYPE_CHECKING:
    from crowdshot.labels.preferences import Preferences, Side

MOST_ROWS = 20  # printed; the files have all

# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot rank votes.csv --out ranking.csv
  crowdshot rank votes.jsonl --out ranking.csv --annotators-out judges.csv
  crowdshot rank votes.csv --columns first=photo_1,second=photo_2,winner=preferred
"""


class WinnerIs(StrEnum):
    NAME = "name"
    SIDE = "side"


@flat
def rank(
    comparisons: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A table with two items, the winner and perhaps the annotator in each row."
        ),
    ],
    columns: Annotated[
        Mapping[str, str] | None,
        FromText(partial(as_pairs, "columns", keys=("first", "second", "winner", "annotator"))),
        reading_option(
            "--columns",
            metavar="first=…,second=…,winner=…,annotator=…",
            help="The names of the columns, if crowdshot does not recognise them.",
        ),
    ] = None,
    winner_is: Annotated[
        WinnerIs | None,
        reading_option(
            "--winner-is",
            help="Whether the winner is the name of an item, or a side such as model_a or 1 (default: recognise both).",
        ),
    ] = None,
    sheet: Sheet = None,
    skip_bad: Annotated[
        bool, reading_option("--skip-bad", help="Leave out rows without two different items or without an annotator.")
    ] = False,
    out: File = None,
    annotators_out: AnnotatorsOut = None,
    excel_safe: ExcelSafe = False,
    as_json: AsJson = False,
) -> None:
    """Rank items from answers such as "A is better than B".

    Fits the Bradley-Terry model with a reliability of each annotator. Scores and ranks have 90 % intervals.
    """
    from crowdshot.io.atomic import check_outputs, write_files
    from crowdshot.io.json_text import to_json
    from crowdshot.labels import preferences

    files = check_outputs({"out": out, "annotators_out": annotators_out}, comparisons)
    side: Side | None = None if winner_is is None else "name" if winner_is is WinnerIs.NAME else "side"
    found = preferences.fit(comparisons, columns, winner_is=side, skip_bad=skip_bad, sheet=sheet)
    for reason, number in found.left_out_.items():
        note(f"left out: {number:,} {reason}")
    write_files([(out, found.ranking_), (annotators_out, found.annotators_)])
    facts = {name.rstrip("_"): value for name, value in to_json(found).items()}
    tables = {"ranking": found.ranking_, "annotators": found.annotators_}
    print_tables(facts, tables, files, as_json, None if out is None else _describe(found))


def _describe(found: Preferences) -> str:
    from crowdshot.formatting import align_columns, clean, plural

    table, people = found.ranking_, found.annotators_
    head = ("item", "rank", "90 % interval", "score", "90 % interval", "comparisons", "")
    rows = [
        (
            clean(row.item, 40),
            f"{row.rank}",
            f"{row.rank_low}–{row.rank_high}",
            f"{row.score:.2f}",
            f"{row.low:.2f} to {row.high:.2f}",
            f"{row.comparisons:,}",
            f"group {row.group}" if found.groups_ > 1 else "",
        )
        for row in table.head(MOST_ROWS).itertuples()
    ]
    sizes = plural(len(table), "item"), plural(len(people), "annotator")
    total = plural(int(people["comparisons"].sum()), "comparison")
    lines = [", ".join([*sizes, total]), "", align_columns([head, *rows])]
    if len(table) > MOST_ROWS:
        lines.append(f"… and {len(table) - MOST_ROWS:,} more")
    if len(people) > 1:
        head = ("annotator", "comparisons", "agreement", "reliability", "90 % interval", "", "")
        rows = [
            (
                clean(row.annotator, 40),
                f"{row.comparisons:,}",
                "" if math.isnan(row.agreement) else f"{row.agreement:.2f}",
                f"{row.reliability:.2f}",
                f"{row.low:.2f} to {row.high:.2f}",
                "",
                "",
            )
            for row in people.head(MOST_ROWS).itertuples()
        ]
        lines += ["", align_columns([head, *rows])]
        if len(people) > MOST_ROWS:
            lines.append(f"… and {len(people) - MOST_ROWS:,} more")
    return "\n".join([*lines, ""])
