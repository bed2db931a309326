"""What the options of several commands are called and mean, and how the text given to them is read."""

import csv
import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from crowdshot.errors import CrowdshotError
from crowdshot.io.formulas import excel_safe

if TYPE_CHECKING:
    from crowdshot._cli.inputs import LabelFiles


T = TypeVar("T")

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
        help="Feature vectors, or a table of numbers and categories: CSV or Parquet whose first column is the item's"
        " id, .npz with ids and features, or .npy, whose rows are called 0, 1, 2, ….",
    ),
]
Texts = Annotated[
    Path | None,
    typer.Option(
        "--texts",
        metavar="FILE|DIR",
        help="Texts: CSV, JSON, Parquet or a label tool's export with a column or field for the text and, where labels"
        " do not name items by their text, the item's id; or a folder of .txt files.",
    ),
]
EncoderName = Annotated[
    str | None,
    typer.Option(
        "--encoder",
        metavar="NAME|FILE",
        help="See `crowdshot encoders`; a file of your own; or somebody else's network, like hf:facebook/dinov2-small.",
    ),
]
Folder = Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")]
File = Annotated[
    Path | None, typer.Option("--out", metavar="FILE.csv", help="The file to write; else the table goes to stdout.")
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out unreadable items, and labels of items that are not there.")
]

Processes = Annotated[
    int, typer.Option("--processes", metavar="N", min=1, help="How many processes embed images, each on one core.")
]


class Engine(StrEnum):
    LOCAL = "local"
    RAY = "ray"


EngineName = Annotated[Engine, typer.Option("--engine", help="Where these processes are: ray, on a cluster.")]


def _guard(context: typer.Context, given: bool) -> bool:
    if given:
        context.with_resource(excel_safe())
    return given


ExcelSafe = Annotated[
    bool,
    typer.Option(
        "--excel-safe",
        callback=_guard,
        help="Write ' before cells that a spreadsheet would run (= + - @); take it off tables that are read.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Write into a folder that is not empty.")]
ExportFolder = Annotated[
    Path | None,
    typer.Option(
        "--export", metavar="DIR", help="A folder for the items that are sure enough, as datasets and predictions."
    ),
]
Threshold = Annotated[
    float, typer.Option("--threshold", metavar="P", help="How probable a label must be to be exported.")
]
Copies = Annotated[bool, typer.Option("--copies", help="Export images as copies, not as links.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
Seed = Annotated[int, typer.Option(help="The same seed gives the same result.")]


def as_pairs(
    option: str, text: str | None, expected: str = "", keys: Sequence[str] = (), blank: bool = False
) -> dict[str, str]:
    """ "a=1,b=2" -> {"a": "1", "b": "2"}.

    Where the keys are known a comma counts only before the next one, so that values may hold commas; else a key may
    hold an equals sign. ``blank``: values may be missing, "a=".
    """
    if text is None:
        return {}
    known = "|".join(keys)
    parts = re.split(rf",(?=\s*(?:{known})\s*=)", text) if keys else text.split(",")
    pairs = [part.partition("=") if keys else part.rpartition("=") for part in parts]
    if not all((value.strip() or blank) and re.fullmatch(known or ".+", key.strip()) for key, _, value in pairs):
        choice = expected or f"{'=…,'.join(keys)}=…, or some of these"
        raise CrowdshotError(f"{option} is {text!r}, expected {choice}.")
    found = [key.strip() for key, _, _ in pairs]
    twice = next((key for key in found if found.count(key) > 1), None)
    if twice is not None:
        raise CrowdshotError(f"{option} is {text!r}, which has {twice!r} more than once, expected it once.")
    return {key.strip(): value.strip() for key, _, value in pairs}


def as_values(
    option: str,
    text: str | None,
    expected: str,
    read: Callable[[str], T],
    keys: Sequence[str] = (),
) -> dict[str, T]:
    """The same with values that are more than text; ``read`` raises ValueError where they are not."""
    pairs = as_pairs(option, text, "" if keys else expected, keys)
    try:
        return {key: read(value) for key, value in pairs.items()}
    except ValueError:
        raise CrowdshotError(f"{option} is {text!r}, expected {expected}.") from None


def as_columns(text: str | None) -> dict[str, str] | None:
    return as_pairs("--columns", text, keys=("item", "annotator", "label")) or None


def as_shares(option: str, text: str, kinds: Iterable[str]) -> dict[str, float]:
    """ "hammer=0.8,spammer=0.2" -> numbers."""
    return as_values(option, text, "kinds and numbers, like hammer=0.8,spammer=0.2", float, list(kinds))


def as_names(option: str, text: str | None, otherwise: str = "", like: str = "ann,bob") -> list[str]:
    """ "ann, bob" -> ["ann", "bob"]; a name that holds a comma stands in quotation marks."""
    if text is None:
        return []
    names = [name.strip() for name in next(csv.reader([text], skipinitialspace=True), [""])]
    if not all(names) or len(set(names)) < len(names):
        raise CrowdshotError(f"{option} is {text!r}, expected {otherwise}different names, like {like}.")
    return names


def as_file(text: str) -> Path | None:
    """The path of a file, where pairs might stand too: it is one if there is such a file, or no equals sign."""
    return Path(text) if "=" not in text or Path(text).is_file() else None


def as_new_names(text: str | None) -> dict[str, str] | Path | None:
    """ "Catt=cat,n/a=" -> {"Catt": "cat", "n/a": ""}; else, or where there is such a file, its path."""
    if text is None:
        return None
    expected = "a file, or old and new names, like Catt=cat,unsure="
    return as_file(text) or as_pairs("--rename", text, expected, blank=True)


def as_costs(text: str | None) -> dict[str, float] | Path | None:
    """ "ann=2,bob=0.5" -> numbers; else, or where there is such a file, its path."""
    if text is None:
        return None
    expected = "a file, or annotators and numbers above 0, like ann=2,bob=0.5"
    return as_file(text) or as_values("--cost", text, expected, _as_cost)


def as_available(text: str | None) -> list[str] | Path | None:
    """ "ann,bob" -> names; where there is such a file, its path."""
    if text is None:
        return None
    if Path(text).is_file() or re.search(r"\.(csv|tsv|txt|xlsx|json|parquet)$", text, re.IGNORECASE):
        return Path(text)  # which says so, where there is no such file
    return as_names("--annotators-available", text, "a file, or ")


def _as_cost(text: str) -> float:
    cost = float(text)
    if not 0 < cost < math.inf:
        raise ValueError
    return cost


def as_settings(text: str | None) -> dict[str, bool | int | float]:
    """ "C=0.1,steps=3" -> {"C": 0.1, "steps": 3}."""
    return as_values("--settings", text or None, "names and numbers, like C=0.1,steps=3", _as_value)


def _as_value(text: str) -> bool | int | float:
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    return float(text) if not re.fullmatch(r"[-+]?\d+", text) else int(text)


# ---- reading ------------------------------------------------------------
#
# How files of labels are read: the same options of every command that takes LABELS.


@dataclass(frozen=True)
class ReadingOptions:
    """As `crowdshot._cli.inputs.LabelFiles`, as typed."""

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
        from crowdshot._cli.inputs import LabelFiles  # here, as --help need not wait for pandas

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
