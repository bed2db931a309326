"""Declare the parameters of commands: groups of options, conversion from text, and panels in --help."""

import functools
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, get_type_hints

from typer.core import TyperCommand
from typer.models import OptionInfo

# Titles of the panels, in the order of --help.
INPUT = "Input"
READING = "Reading the labels"
METHOD = "Method"
EPISODES = "Training episodes"
TRAINING = "Training"
NETWORK = "Network"
SERVER = "Server"
CROWD = "Simulated annotators"
COMPUTING = "Computing"
OUTPUT = "Output"
OTHER = "Options"
PANELS = ("Arguments", INPUT, READING, METHOD, CROWD, EPISODES, TRAINING, NETWORK, SERVER, COMPUTING, OUTPUT, OTHER)


class PanelCommand(TyperCommand):
    """List the options of a command in panels, without needing rich.

    The panel of an option is ``rich_help_panel=`` of `typer.Option`.
    """

    def format_options(self, ctx: Any, formatter: Any) -> None:
        panels: dict[str, list[tuple[str, str]]] = {title: [] for title in PANELS}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if record is not None:
                kind = "Arguments" if parameter.param_type_name == "argument" else OTHER
                panels[getattr(parameter, "rich_help_panel", None) or kind].append(record)
        for title, records in panels.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


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
