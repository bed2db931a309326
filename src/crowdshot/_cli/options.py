"""Define the options that several commands share."""

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import partial
from inspect import Parameter, Signature, signature
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_type_hints

import typer
from typer.core import TyperCommand
from typer.models import OptionInfo

from crowdshot._cli.option_values import as_batch, as_columns, as_names, as_new_names, as_prices
from crowdshot.errors import closest

if TYPE_CHECKING:
    from crowdshot._cli.inputs import LabelFiles
    from crowdshot.labels.gold_questions import GoldRule

# titles of the panels
INPUT = "Input"
READING = "Reading the labels"
METHOD = "Method"
EPISODES = "Training episodes"
TRAINING = "Training"
NETWORK = "Network"
SERVER = "Server"
TOOL = "Label tool"
CROWD = "Simulated annotators"
COMPUTING = "Computing"
OUTPUT = "Output"
DRAWING = "Drawing a sample"
EVALUATING = "Evaluating it"
OTHER = "Options"

input_option = partial(typer.Option, rich_help_panel=INPUT)
reading_option = partial(typer.Option, rich_help_panel=READING)
method_option = partial(typer.Option, rich_help_panel=METHOD)
episode_option = partial(typer.Option, rich_help_panel=EPISODES)
training_option = partial(typer.Option, rich_help_panel=TRAINING)
network_option = partial(typer.Option, rich_help_panel=NETWORK)
computing_option = partial(typer.Option, rich_help_panel=COMPUTING)
output_option = partial(typer.Option, rich_help_panel=OUTPUT)
crowd_option = partial(typer.Option, rich_help_panel=CROWD)
tool_option = partial(typer.Option, rich_help_panel=TOOL)
server_option = partial(typer.Option, rich_help_panel=SERVER)
drawing_option = partial(typer.Option, rich_help_panel=DRAWING)
evaluating_option = partial(typer.Option, rich_help_panel=EVALUATING)

SHARES = ("P", "SHARE")  # metavars of options whose values may be typed in percent
METHODS_OF_ADAPT = ("auto", "combined", "features", "labeling-search", "ours", "lrds")
METHODS_OF_AGGREGATE = ("shrunk", "one-coin", "dawid-skene", "majority", "soft")
PANELS = (  # in the order of --help
    "Arguments",
    INPUT,
    READING,
    METHOD,
    CROWD,
    EPISODES,
    TRAINING,
    NETWORK,
    SERVER,
    TOOL,
    COMPUTING,
    DRAWING,
    EVALUATING,
    OUTPUT,
    OTHER,
)


class PanelCommand(TyperCommand):
    """List the options of a command in panels, without needing rich.

    The panel of an option is ``rich_help_panel=`` of `typer.Option`.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments; suggest the choice that is most like a misspelled one."""
        words = list(args)
        try:
            rest = super().parse_args(ctx, _with_plain_numbers(self.get_params(ctx), args))
            _refuse_repeated(ctx, self.make_parser(ctx).parse_args(words)[2])
            return rest
        except typer.BadParameter as error:
            _refuse_no_number(ctx, error, words)
            wrong, choices = (None, []) if error.param is None else _wrong_choice(error.param, words)
            if wrong is None or error.param is None:
                raise
            close = closest(wrong, choices)
            similar = f" Did you mean {close!r}?" if close else ""
            if wrong.lower() in METHODS_OF_ADAPT and "--method" in error.param.opts:
                similar = f" {wrong!r} is a method of `crowdshot adapt`."
            message = f"{wrong!r} is not one of {', '.join(map(repr, choices))}.{similar}"
            raise typer.BadParameter(message, ctx, error.param) from None

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {title: [] for title in PANELS}
        for parameter in self.get_params(ctx):
            parameter.metavar = parameter.metavar or _metavar(parameter)
            record = parameter.get_help_record(ctx)
            if record is not None:
                kind = OTHER
                if parameter.param_type_name == "argument":  # without its Python type, as in "LABELS <list[Path]>"
                    kind, record = "Arguments", (record[0].partition(" <")[0], record[1])
                panels[getattr(parameter, "rich_help_panel", None) or kind].append(record)
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


def _refuse_repeated(ctx: Any, typed: Sequence[Any]) -> None:
    """Refuse an input or a list that is given twice, because all values but the last would be ignored.

    A script may repeat other options, such as a number, to override them.
    """
    for option in [each for each in typed if each.param_type_name == "option"]:
        is_list = "," in (getattr(option, "metavar", None) or "")
        is_input = getattr(option, "rich_help_panel", None) in (INPUT, READING)
        if (is_list or is_input) and not (option.is_flag or option.multiple) and typed.count(option) > 1:
            message = "The option is given more than once, but only its last value would count. Give it once."
            raise typer.BadParameter(message, ctx, option)


def _with_plain_numbers(parameters: Iterable[Any], words: Sequence[str]) -> list[str]:
    """Return the typed words with "0,9" as 0.9 and, for shares and probabilities, "80%" as 0.8."""
    numeric = {name: each for each in parameters if float in _kinds(each) for name in each.opts}
    plain = list(words)
    for i, word in enumerate(words):
        option, equals, value = word.partition("=")
        if option in numeric and equals:
            plain[i] = f"{option}={_plain_number(value, numeric[option].metavar)}"
        elif i and words[i - 1] in numeric:
            plain[i] = _plain_number(word, numeric[words[i - 1]].metavar)
    return plain


def _plain_number(text: str, metavar: str | None) -> str:
    """Return a number as Python writes it, or the text if that is ambiguous: 1,000 may be one or a thousand."""
    found = re.fullmatch(r"\s*(0,\d+|\d+,\d{1,2}|\d+(?:\.\d+)?)\s*(%?)\s*", text)
    if found is None or (found[2] and metavar not in SHARES):
        return text
    number = found[1].replace(",", ".")
    return repr(float(number) / 100) if found[2] else number


def _refuse_no_number(ctx: Any, error: typer.BadParameter, words: Sequence[str]) -> None:
    """Raise an error in our words if the value of an option is no number."""
    kinds = _kinds(error.param) & {int, float}
    typed = [] if error.param is None or not kinds else _typed(error.param, words)
    for value in typed:
        try:
            (float if float in kinds else int)(value)
        except ValueError:
            like = "a number such as 0.9 or 90%" if getattr(error.param, "metavar", None) in SHARES else "a number"
            like = like if float in _kinds(error.param) else "a whole number"
            raise typer.BadParameter(f"{value!r} is not {like}.", ctx, error.param) from None


def _kinds(parameter: Any) -> set[type]:
    """Return the types that the value of an option may have."""
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)  # of typer 0.20 and later
    if kind is None:
        names = {"float": float, "float range": float, "integer": int, "integer range": int}
        kind = names.get(getattr(getattr(parameter, "type", None), "name", ""))
    return {each for each in (kind, *get_args(kind)) if isinstance(each, type)}


def _metavar(parameter: Any) -> str | None:
    """Return how --help shows the value of an option: N, X, or the choices."""
    choices = _choices(parameter)
    if choices:
        return "|".join(choices)
    return "N" if int in _kinds(parameter) else "X" if float in _kinds(parameter) else None


def _choices(parameter: Any) -> list[str]:
    return [str(choice.value) for each in _kinds(parameter) if issubclass(each, StrEnum) for choice in each]


def _typed(parameter: Any, words: Sequence[str]) -> list[str]:
    """Return the values that are typed for an option."""
    pairs = [*pairwise(words), *(word.split("=", 1) for word in words if "=" in word)]
    return [value for option, value in pairs if option in parameter.opts]


def _wrong_choice(parameter: Any, words: Sequence[str]) -> tuple[str | None, list[str]]:
    """Return the value typed for an option that is not one of its choices, and the choices; None if there is none."""
    choices = _choices(parameter)
    typed = _typed(parameter, words)
    return next((value for value in typed if choices and value not in choices), None), choices


@dataclass(frozen=True)
class FromText:
    """Mark a parameter that is typed as text and converted by ``convert``."""

    convert: Callable[[str], Any]


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with plain parameters, as typer requires them.

    The fields of a dataclass parameter become parameters of their own. A parameter marked with `FromText` takes text
    and is converted when the command runs, so that `handle_errors` reports bad text like any other bad input.
    """
    hints: dict[str, Any] = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    parameters: list[Parameter] = []
    converted: dict[str, tuple[Callable[[str], Any], Any]] = {}  # name: function, default

    def add(name: str, hint: Any, default: Any) -> None:
        convert = next((mark.convert for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, FromText)), None)
        if convert is not None:
            converted[name] = convert, default
            option = next(mark for mark in hint.__metadata__ if isinstance(mark, OptionInfo))
            hint, default = Annotated[str | None, option], None
        parameters.append(Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hint))

    for name, parameter in signature(command).parameters.items():
        if name not in groups:
            add(name, hints[name], parameter.default)
            continue
        group_hints = get_type_hints(groups[name], include_extras=True)
        for field in fields(groups[name]):
            add(field.name, group_hints[field.name], Parameter.empty if field.default is MISSING else field.default)

    @functools.wraps(command)
    def run(**values: Any) -> None:
        for name, (convert, default) in converted.items():
            values[name] = default if values[name] is None else convert(values[name])
        grouped = {
            name: kind(**{field.name: values.pop(field.name) for field in fields(kind)})
            for name, kind in groups.items()
        }
        command(**grouped, **values)

    vars(run)["__signature__"] = Signature(parameters)
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


def option_names(command: Callable[..., None]) -> dict[str, str]:
    """Return the options of a command by the names of its parameters: {"as_json": "--json", ...}."""
    options = {}
    for name, hint in get_type_hints(command, include_extras=True).items():
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, OptionInfo):
                words = (mark.default, *(mark.param_decls or ()))  # typer takes the first word for the default
                declared = [word for word in words if isinstance(word, str) and word.startswith("--")]
                options[name] = declared[0] if declared else f"--{name.replace('_', '-')}"
    return options


# ---- options ----

Labels = Annotated[
    list[Path],
    typer.Argument(
        metavar="LABELS", help="Labels: a table or an export of a label tool. Several files are joined into one."
    ),
]
Images = Annotated[Path | None, input_option("--images", metavar="DIR", help="A folder of images.")]
Features = Annotated[
    Path | None,
    input_option(
        "--features",
        metavar="FILE",
        help="Feature vectors, or a table of numbers and categories: CSV or Parquet with item ids in the first column,"
        " .npz with ids and features, or .npy with the items 0, 1, 2, ….",
    ),
]
Texts = Annotated[
    Path | None,
    input_option(
        "--texts",
        metavar="FILE|DIR",
        help="Texts: a folder of .txt files, or CSV, JSON, Parquet or an export of a label tool with a column for the"
        " text and one for the item's id. The id is not needed if the labels name items by their text.",
    ),
]
EncoderName = Annotated[
    str | None,
    method_option(
        "--encoder",
        metavar="NAME|FILE",
        help="The network that embeds items: a name listed by `crowdshot encoders`, a file that `crowdshot train`"
        " wrote, or a network of another library, like hf:facebook/dinov2-small.",
    ),
]
Folder = Annotated[Path, output_option("--out", metavar="DIR", help="The folder to write.")]
File = Annotated[
    Path | None, output_option("--out", metavar="FILE.csv", help="The table to write (default: print it to stdout).")
]
SkipBad = Annotated[
    bool,
    input_option(
        "--skip-bad",
        help="Leave out unreadable items, labels of missing items, and rows of labels without an item or annotator.",
    ),
]
AllowOutside = Annotated[
    bool,
    method_option(
        "--allow-outside",
        help="Allow the file of a model or encoder to use a network of another library, which is then downloaded or"
        " read from another file. Only for files that you trust.",
    ),
]
Processes = Annotated[
    int,
    computing_option(
        "--processes", metavar="N", min=1, help="The number of processes that embed images; each uses one core."
    ),
]


AnnotatorsOut = Annotated[
    Path | None,
    output_option(
        "--annotators-out", metavar="FILE.csv", help="Also write a table with the accuracy of each annotator."
    ),
]
Sheet = Annotated[
    str | None, reading_option("--sheet", metavar="NAME", help="The sheet to read from a workbook with several tables.")
]


class Engine(StrEnum):
    LOCAL = "local"
    RAY = "ray"


EngineName = Annotated[
    Engine, computing_option("--engine", help="Where the processes run: local, on this machine; ray, on a Ray cluster.")
]


def _guard(context: typer.Context, enabled: bool) -> bool:
    if enabled:
        from crowdshot.io.cells import excel_safe  # here, as --help need not wait for pandas

        context.with_resource(excel_safe())
    return enabled


ExcelSafe = Annotated[
    bool,
    output_option(
        "--excel-safe",
        callback=_guard,
        help="Put ' in front of cells that a spreadsheet would execute (= + - @), and remove it when reading tables.",
    ),
]
Overwrite = Annotated[bool, output_option("--overwrite", help="Write into a folder that is not empty.")]
ExportFolder = Annotated[
    Path | None,
    output_option(
        "--export", metavar="DIR", help="A folder for the confident items, in the formats of datasets and label tools."
    ),
]
Threshold = Annotated[
    float, output_option("--threshold", metavar="P", help="Export labels with at least this probability.")
]
MIN_ACCURACY = 0.7  # as in labels.annotator_quality, which would load numpy
MinAccuracy = Annotated[
    float,
    output_option(
        "--min-accuracy",
        "--bar",
        metavar="P",
        help="The accuracy that an annotator should have. Annotators who are most likely below it come first.",
    ),
]
Cost = Annotated[
    Mapping[str, float] | Path | None,
    FromText(as_prices),
    output_option(
        "--cost",
        metavar="C|NAME=C,…|FILE",
        help="The cost of a label: one number, or numbers of annotators, like gpt=0.002,others=0.1, or a table with the"
        " columns annotator and cost.",
    ),
]
Copies = Annotated[bool, output_option("--copies", help="Export copies of images instead of links.")]
Page = Annotated[Path | None, output_option("--page", metavar="FILE.html", help="Also write a page.")]
Checkpoint = Annotated[
    Path | None, output_option(metavar="FILE", help="The file that stores progress (default: a file next to --out).")
]
AsJson = Annotated[bool, output_option("--json", help="Print one JSON object, for scripts.")]
Seed = Annotated[int, typer.Option(help="The random seed: the same seed gives the same result.")]


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Define how label files are read: the options that every command with LABELS has.

    The fields are the arguments of `crowdshot.labels.formats.read_labels`, and four more:

    - ``leave_out``: annotators whose labels are ignored;
    - ``gold``: a table of items and their true labels, which replaces true labels in the label files;
    - ``history``: a table of how many labels of each annotator were right and wrong in earlier projects;
    - ``excel_safe``: whether formulas in tables are escaped. The option itself has this effect; the field makes the
      commands that crowdshot suggests include it.
    """

    columns: Annotated[
        Mapping[str, str] | None,
        FromText(as_columns),
        reading_option(
            "--columns",
            metavar="item=…,annotator=…,label=…",
            help="The names of the columns, if crowdshot does not recognise them; time=… names the one with times.",
        ),
    ] = None
    format_name: Annotated[
        str | None,
        reading_option(
            "--format",
            metavar="FORMAT",  # listing formats.FORMATS would load pandas for --help
            help="The format of LABELS, if it is not recognised: cvat, doccano, label-studio, argilla, prodigy, potato,"
            " zooniverse, labelbox, langfuse, phoenix, toloka, mturk, judges (verdicts of language models), turned (a"
            " row per annotator), wide (a column per annotator), long (a row per label).",
        ),
    ] = None
    sheet: Sheet = None
    annotator_columns: Annotated[
        Sequence[str],
        FromText(partial(as_names, "annotator_columns")),
        reading_option(
            "--annotator-columns",
            metavar="NAME,…",
            help="The annotators' columns in a table with one column per annotator (default: recognise them, and note"
            " which columns are ignored).",
        ),
    ] = ()
    rename: Annotated[
        Mapping[str, str] | Path | None,
        FromText(as_new_names),
        reading_option(
            "--rename",
            metavar="OLD=NEW,…|FILE",
            help="New names for labels, or a table with the columns old and new. An empty new name removes the label.",
        ),
    ] = None
    merge_case: Annotated[
        bool, reading_option("--merge-case", help="Merge labels that differ only in case and spaces.")
    ] = False
    names: Annotated[
        Mapping[str, str] | Path | None,
        FromText(partial(as_new_names, argument="names")),
        reading_option(
            "--names",
            metavar="OLD=NEW,…|FILE",
            help="New names for annotators, or a table with the columns annotator and name. Annotators with the same"
            " name are merged.",
        ),
    ] = None
    multi_label: Annotated[
        bool, reading_option("--multi-label", help='Allow several labels per answer, like "cat;dog".')
    ] = False
    ordered: Annotated[
        Sequence[str],
        FromText(partial(as_names, "ordered", like="low,medium,high")),
        reading_option("--ordered", metavar="LOW,…,HIGH", help="The classes in order, from the lowest to the highest."),
    ] = ()
    categories: Annotated[
        bool,
        reading_option("--categories", help="Treat labels as names of classes, even if they look like measurements."),
    ] = False
    dates: Annotated[
        str | None,
        reading_option(
            "--dates",
            metavar="day-first|month-first",
            help="How to read dates such as 3/4/2026, if the files do not show it.",
        ),
    ] = None
    since: Annotated[
        str | None,
        reading_option(
            "--since",
            metavar="DATE",
            help="Read only labels given at this date (2026-03-04, or with a time of day) or later.",
        ),
    ] = None
    batch: Annotated[
        Mapping[str, str | None] | None,
        FromText(as_batch),
        reading_option(
            "--batch",
            metavar="COLUMN=VALUE,…",
            help="Read only rows with this value in a column; COLUMN alone lists its values.",
        ),
    ] = None
    leave_out: Annotated[
        Sequence[str],
        FromText(partial(as_names, "leave_out")),
        reading_option("--leave-out", metavar="NAME,…", help="Annotators whose labels are ignored."),
    ] = ()
    file_names: Annotated[
        bool,
        reading_option(
            "--file-names",
            help="Identify items by file name: photos/1.png, https://host/1.png and an uploaded 1.png are one item.",
        ),
    ] = False
    skip_bad: SkipBad = False
    gold: Annotated[
        Path | None,
        reading_option(
            "--gold", metavar="FILE", help="A table of items and their true labels, which are taken as certain."
        ),
    ] = None
    history: Annotated[
        Path | None,
        reading_option(
            "--history",
            metavar="FILE",
            help="A table of how many labels of each annotator were right and wrong in earlier projects, with the"
            " columns annotator, right and wrong. annotators.csv of an earlier project is such a table.",
        ),
    ] = None
    excel_safe: ExcelSafe = False

    def of(self, labels: Sequence[Path]) -> "LabelFiles":
        """Return label files that are read in this way."""
        from crowdshot._cli.inputs import LabelFiles  # here, as --help need not wait for pandas

        return LabelFiles(labels, **vars(self))


@dataclass(frozen=True, kw_only=True)
class GoldOptions:
    """The fields of `crowdshot.labels.gold_questions.GoldRule`."""

    gold_share: Annotated[
        float,
        method_option(
            "--gold-share",
            metavar="SHARE",
            help="Mix in questions about the items of --gold, as this share of all questions, like 0.1. Nobody can see"
            " which they are, or gets one twice.",
        ),
    ] = 0.0
    pause_below: Annotated[
        float | None,
        method_option(
            "--pause-below",
            metavar="SHARE",
            help="Ask no more questions of annotators who gave the right answer to less than this share of items with"
            " known answers, like 0.6.",
        ),
    ] = None
    after: Annotated[
        int,
        method_option(
            "--after",
            metavar="N",
            help="How many items with known answers somebody must have labelled before --pause-below applies.",
        ),
    ] = 10

    def rule(self) -> "GoldRule":
        from crowdshot.labels.gold_questions import GoldRule  # here, as it imports numpy

        return GoldRule(self.gold_share, self.pause_below, self.after)
