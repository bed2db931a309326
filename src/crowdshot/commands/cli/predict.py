"""``crowdshot predict`` on the command line; `app` adds it."""

from pathlib import Path
from typing import Annotated

import typer

from crowdshot.commands.cli.console import show
from crowdshot.commands.cli.options import (
    AsJson,
    Engine,
    EngineName,
    ExcelSafe,
    Features,
    File,
    Images,
    Processes,
    SkipBad,
    Texts,
)

# "\b" keeps the lines that follow as they are
EXAMPLES = """\b
Examples:
  crowdshot predict results/model.safetensors --images new-photos
  crowdshot predict results/model.safetensors --features new.csv --out predictions.csv
"""


def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model.safetensors that `adapt` wrote.")],
    images: Images = None,
    features: Features = None,
    texts: Texts = None,
    out: File = None,
    skip_bad: SkipBad = False,
    processes: Processes = 1,
    engine: EngineName = Engine.LOCAL,
    excel_safe: ExcelSafe = False,
    as_json: AsJson = False,
) -> None:
    """Label new items with a classifier: label, confidence, and each class's probability."""
    from crowdshot.commands import predict
    from crowdshot.commands.given import ItemFiles

    items = ItemFiles(images, features, None, skip_bad, texts, processes, engine.value)
    report, table = predict.predict(model, items, out)
    show(report, as_json, table, "predictions")
