"""``crowdshot aggregate`` on the command line; `app` adds it."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crowdshot.commands.cli.console import note, show
from crowdshot.commands.cli.flat import flat
from crowdshot.commands.cli.options import AsJson, ExportFolder, File, Labels, Threshold
from crowdshot.commands.cli.reading import Reading
from crowdshot.errors import CrowdshotError

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
    reading: Reading,
) -> None:
    """Consensus from labels alone, without looking at the items, and who is how often right."""
    from crowdshot.commands import aggregate
    from crowdshot.report.export import Export

    exported = None if export is None else Export(export, threshold)
    if engine is not None:
        from crowdshot.commands.aggregate_parts import aggregate_parts

        if exported is not None:
            raise CrowdshotError("export is given with engine=, expected one of them.")
        told = aggregate_parts(
            reading.of(labels), method.value, steps, out, annotators, engine.value, memory, top, network
        )
        if told.pop("finished_before", False):
            note(f"{out} was finished before: nothing is left to do.")
        show(told, as_json)
        return
    report, table = aggregate.aggregate(
        reading.of(labels), method.value, steps, out, annotators, exported, top, network
    )
    show(report, as_json, table if out is None else None, "consensus")
