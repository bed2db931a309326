"""``crowdshot next`` on the command line; `app` adds it."""

from pathlib import Path
from typing import Annotated

import typer

from crowdshot.commands.cli.console import show
from crowdshot.commands.cli.flat import flat
from crowdshot.commands.cli.options import (
    AsJson,
    EncoderName,
    Features,
    Images,
    Labels,
    SkipBad,
    Texts,
    as_available,
    as_costs,
)
from crowdshot.commands.cli.reading import Reading

# "\b" keeps the lines that follow as they are
EXAMPLES = """\b
Examples:
  crowdshot next labels.csv --budget 50
  crowdshot next labels.csv --images photos --budget 50 --max-per-annotator 10 --out questions.csv
  crowdshot next labels.csv --annotators-available ann,bob --stop-at 0.95
  crowdshot next labels.csv --budget 100 --cost expert=5,student=1 --out questions.csv
  crowdshot next export.json --images photos --out questions.json
"""


@flat
def ask_next(
    labels: Labels,
    budget: Annotated[float, typer.Option(metavar="N", help="What may be spent: labels, or what they cost.")] = 20,
    images: Images = None,
    features: Features = None,
    texts: Texts = None,
    encoder: EncoderName = None,
    cost: Annotated[
        str | None,
        typer.Option(
            metavar="NAME=COST,…|FILE",
            help="What a label of each annotator costs, or a table with annotator and cost; who is not named costs 1.",
        ),
    ] = None,
    most: Annotated[
        int | None,
        typer.Option(
            "--most",
            "--max-per-annotator",
            min=1,
            help="Questions for one annotator at most; else a tenth, or an equal share if that is more.",
        ),
    ] = None,
    available: Annotated[
        str | None,
        typer.Option(
            "--annotators-available",
            metavar="NAME,…|FILE",
            help="Who can be asked, else everybody; who gave no label yet is taken for somebody new.",
        ),
    ] = None,
    stop_at: Annotated[
        float | None,
        typer.Option(metavar="SHARE", help="Tell how many labels should settle this share of the items, like 0.95."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The list to write: CSV or, where the name ends in .json, tasks for Label Studio."
        ),
    ] = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """Which items to ask about again, and whom: the list of questions that should help most.

    A question's gain is how much doubt about the item the annotator's answer should take away. With images or features
    the classifier's doubt counts, and items that nobody labelled may be asked; else labels alone.
    """
    from crowdshot.commands import next
    from crowdshot.commands.given import ItemFiles

    items = ItemFiles(images, features, encoder, skip_bad, texts)
    report, table = next.ask(
        reading.of(labels), budget, items, as_costs(cost), most, out, as_available(available), stop_at
    )
    show(report, as_json, table if out is None else None, "questions")
