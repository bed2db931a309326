"""What the options of several commands are called and mean, and how the text given to them is read."""

import math
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from crowdshot.errors import CrowdshotError

Labels = Annotated[
    list[Path],
    typer.Argument(metavar="LABELS", help="Who said what: a table or a label tool's export; several files are joined."),
]
Images = Annotated[Path | None, typer.Option("--images", metavar="DIR", help="A folder of images.")]
Features = Annotated[
    Path | None,
    typer.Option(
        "--features",
        metavar="FILE",
        help="Feature vectors instead: CSV or Parquet whose first column is the item's id, or .npz with ids and"
        " features.",
    ),
]
EncoderName = Annotated[
    str | None, typer.Option("--encoder", metavar="NAME|FILE", help="See `crowdshot encoders`; or a file of your own.")
]
Folder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")]
File = Annotated[
    Path | None, typer.Option("--out", metavar="FILE.csv", help="The file to write; else the table goes to stdout.")
]
ColumnNames = Annotated[
    str | None,
    typer.Option(
        "--columns",
        metavar="item=…,annotator=…,label=…",
        help="Which columns of LABELS are which, where their names do not tell.",
    ),
]
FormatName = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",  # the names of formats.FORMATS, which would have to be loaded for --help
        help="What LABELS are, where their content does not tell: cvat, label-studio, argilla, prodigy, toloka, mturk,"
        " wide (a column for each annotator), long (a row for each label).",
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out unreadable images and labelled items that have no image.")
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Write into a folder that is not empty.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.")]


def as_pairs(option: str, text: str | None, keys: str) -> dict[str, str]:
    """ "a=1,b=2" -> {"a": "1", "b": "2"}; a comma counts only before the next key, so names may hold commas."""
    if text is None:
        return {}
    pairs = [part.partition("=") for part in re.split(rf",(?=\s*(?:{keys})\s*=)", text)]
    wrong = [key for key, _, value in pairs if not re.fullmatch(keys, key.strip()) or not value.strip()]
    if wrong:
        raise CrowdshotError(f"{option} is {text!r}, expected {keys.replace('|', '=…,')}=…, or some of these.")
    return {key.strip(): value.strip() for key, _, value in pairs}


def as_columns(text: str | None) -> dict[str, str] | None:
    return as_pairs("--columns", text, "item|annotator|label") or None


def as_shares(option: str, text: str, kinds: Iterable[str]) -> dict[str, float]:
    """ "hammer=0.8,spammer=0.2" -> numbers."""
    given = as_pairs(option, text, "|".join(kinds))
    try:
        return {kind: float(share) for kind, share in given.items()}
    except ValueError:
        raise CrowdshotError(
            f"{option} is {text!r}, expected kinds and numbers, like hammer=0.8,spammer=0.2."
        ) from None


def as_costs(text: str | None) -> dict[str, float] | Path | None:
    """ "ann=2,bob=0.5" -> numbers; else, or where there is such a file, its path."""
    if text is None:
        return None
    if "=" not in text or Path(text).is_file():
        return Path(text)
    try:
        costs = {name.strip(): float(value) for name, _, value in (part.rpartition("=") for part in text.split(","))}
    except ValueError:
        costs = {}
    if not costs or not all(name and 0 < value < math.inf for name, value in costs.items()):
        raise CrowdshotError(
            f"--cost is {text!r}, expected a file, or annotators and numbers above 0, like ann=2,bob=0.5."
        )
    return costs


def as_settings(text: str | None) -> dict[str, bool | int | float]:
    """ "C=0.1,steps=3" -> {"C": 0.1, "steps": 3}."""
    try:
        pairs = [part.split("=") for part in text.split(",")] if text else []
        return {name.strip(): _as_value(value.strip()) for name, value in pairs}
    except ValueError:
        raise CrowdshotError(f"--settings is {text!r}, expected names and numbers, like C=0.1,steps=3.") from None


def _as_value(text: str) -> bool | int | float:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return float(text) if not re.fullmatch(r"[-+]?\d+", text) else int(text)
