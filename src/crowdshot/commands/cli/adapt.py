"""``crowdshot adapt`` on the command line; `app` adds it."""

from typing import Annotated

import typer

from crowdshot.commands.cli.console import show
from crowdshot.commands.cli.flat import flat
from crowdshot.commands.cli.options import (
    AsJson,
    Copies,
    EncoderName,
    Engine,
    EngineName,
    ExportFolder,
    Features,
    Folder,
    Images,
    Labels,
    Overwrite,
    Processes,
    SkipBad,
    Texts,
    Threshold,
    as_settings,
)
from crowdshot.commands.cli.reading import Reading

# "\b" keeps the lines that follow as they are
EXAMPLES = """\b
Examples:
  crowdshot adapt labels.csv --images photos --out results
  crowdshot adapt export.tsv --columns item=url,annotator=who,label=animal --images photos --out results
  crowdshot adapt ann.xml bob.xml --format cvat --images photos --out results
  crowdshot adapt labels.csv --features embeddings.npz --out results --json
  crowdshot adapt labels.csv --images photos --out results --export clean --threshold 0.95 --copies
  crowdshot adapt labels.csv --images photos --method LRDS --settings C=0.1,steps=3 --out results
"""


@flat
def adapt(
    labels: Labels,
    out: Folder,
    images: Images = None,
    features: Features = None,
    texts: Texts = None,
    encoder: EncoderName = None,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Another way to learn: see `crowdshot methods`.")
    ] = "auto",
    settings: Annotated[
        str | None, typer.Option(metavar="NAME=VALUE,…", help="The method's own; else its defaults.")
    ] = None,
    skip_bad: SkipBad = False,
    processes: Processes = 1,
    engine: EngineName = Engine.LOCAL,
    export: ExportFolder = None,
    threshold: Threshold = 0.9,
    copies: Copies = False,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Call annotators by numbers in all that is written, for sharing.")
    ] = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
    *,
    reading: Reading,
) -> None:
    """From items and a crowd's labels to consensus, annotators and a classifier.

    Writes report.html, a page to read in a browser, feedback/, a page for each annotator, and consensus.csv,
    annotators.csv, confusion.csv and model.safetensors (and predictions.json where the labels are Label Studio's), all
    of them or none. Items without a label are fine: they get one from the classifier.
    """
    from crowdshot.commands import adapt
    from crowdshot.commands.given import ItemFiles, Output
    from crowdshot.report.export import Export

    items = ItemFiles(images, features, encoder, skip_bad, texts, processes, engine.value)
    exported = None if export is None else Export(export, threshold, copies)
    output = Output(out, overwrite)
    report = adapt.adapt(reading.of(labels), items, output, method, as_settings(settings), exported, anonymous)
    show(report, as_json)
