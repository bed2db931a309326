"""How commands speak: results on stdout, all else on stderr, and errors as a sentence with an exit code."""

import ast
import errno
import functools
import json
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, is_dataclass
from inspect import Parameter, Signature, signature
from typing import TYPE_CHECKING, Any, ParamSpec, get_type_hints

import typer
from typer.models import OptionInfo

from crowdshot.errors import CrowdshotError, CrowdshotWarning

if TYPE_CHECKING:
    import pandas as pd


P = ParamSpec("P")


def handle_errors(command: Callable[P, None]) -> Callable[P, None]:
    """Errors and warnings as sentences on stderr, with the exit codes that `crowdshot._cli.main` lists."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", category=UserWarning, module="crowdshot")
            options = _options(command, kwargs)
            warnings.showwarning = lambda message, *_, **__: note(_text(message, options))
            try:
                command(*args, **kwargs)
                sys.stdout.flush()
            except CrowdshotError as error:
                typer.echo(f"crowdshot: {_text(error, options)}", err=True)
                raise SystemExit(2) from None
            except KeyboardInterrupt:
                typer.echo("crowdshot: interrupted.", err=True)
                raise SystemExit(130) from None
            except BrokenPipeError:  # whoever reads has seen enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                raise SystemExit(0) from None
            except Exception as error:
                if isinstance(error, OSError) and error.errno == errno.ENOSPC:
                    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                    typer.echo(f"crowdshot: the output could not be written ({error.strerror}).", err=True)
                    raise SystemExit(2) from None
                if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
                    typer.echo("crowdshot: a path is too long for this system, expected a shorter one.", err=True)
                    raise SystemExit(2) from None
                if os.environ.get("CROWDSHOT_DEBUG"):
                    raise
                first_line = next(iter(str(error).splitlines()), "")
                if isinstance(error, MemoryError) or "not enough memory" in first_line:  # NumPy's, torch's
                    told = "expected more of it, or fewer annotators or classes"
                    typer.echo(f"crowdshot: memory is too small for this ({first_line}), {told}.", err=True)
                    raise SystemExit(2) from None
                typer.echo(
                    f"crowdshot: this is a bug in crowdshot ({type(error).__name__}: {first_line}); "
                    "set CROWDSHOT_DEBUG=1 to see where.",
                    err=True,
                )
                raise SystemExit(1) from None

    return run


def note(sentence: str) -> None:
    """Print a note on stderr."""
    typer.echo(f"crowdshot: note: {' '.join(sentence.split())}", err=True)


def _text(message: CrowdshotError | Warning | str, options: Mapping[str, str]) -> str:
    """Return a message with the names of the command's options in place of the library's arguments."""
    if not isinstance(message, CrowdshotError | CrowdshotWarning):
        return in_options(str(message), options)
    if message.argument is None and message.hint is None:
        return in_options(str(message), options)

    def written(argument: str, value: Any) -> str:
        if argument not in options:
            return f"{argument}={value!r}"
        return options[argument] if value is True else f"{options[argument]} {_typed(value)}"

    return message.text(lambda argument: options.get(argument, argument), written)


def _typed(value: Any) -> str:
    """Return the value as it is typed in a shell."""
    if isinstance(value, Mapping):
        return shlex.quote(",".join(f"{key}={each}" for key, each in value.items()))
    if isinstance(value, list | tuple):
        return shlex.quote(",".join(map(str, value)))
    return shlex.quote(str(value))


# An argument stands at the head of a sentence ("steps is 0, …") or as Python callers write it (`overwrite=True`).
ARGUMENT = re.compile(
    r"^(?P<head>\w+)(?= (?:is|has|holds|names|lists) )"
    r"|(?<!\S)(?P<name>\w+)=(?:(?P<value>True|'[^']*'|\{.*?\})|(?=[\s.,;]))"
)


def in_options(sentence: str, options: Mapping[str, str]) -> str:
    """The library's arguments by the names of a command's options: ``columns={'item': …}`` is ``--columns item=…``."""

    def option(found: re.Match[str]) -> str:
        name, value = found["head"] or found["name"], found["value"] or ""
        if name not in options:
            return found[0]
        words = "" if value == "True" else _as_pairs(value)
        return f"{options[name]} {words}".rstrip()

    return ARGUMENT.sub(option, sentence)


def _as_pairs(value: str) -> str:
    """{'a': 'b c'} as a shell takes it, 'a=b c'; an outline, {'a': …}, is a=…, and a word stands for itself."""
    try:
        given = ast.literal_eval(value)
    except (ValueError, SyntaxError):
        given = None
    if isinstance(given, dict):
        return shlex.quote(",".join(f"{key}={each}" for key, each in given.items()))
    return re.sub(r"[{}']", "", value).replace(": ", "=")


def _options(command: Callable[..., None], given: Mapping[str, Any]) -> dict[str, str]:
    """A command's options by the names of its arguments, but for those that are also what was typed for one."""
    options = {}
    typed = {str(value) for value in given.values()}
    for name, hint in get_type_hints(command, include_extras=True).items():
        for mark in getattr(hint, "__metadata__", ()):
            if isinstance(mark, OptionInfo) and name not in typed:
                words = (mark.default, *(mark.param_decls or ()))  # typer takes the first word for the default
                declared = [word for word in words if isinstance(word, str) and word.startswith("--")]
                options[name] = declared[0] if declared else f"--{name.replace('_', '-')}"
    return options


def print_result(
    report: dict[str, Any], as_json: bool, table: "pd.DataFrame | None" = None, rows: str = "rows"
) -> None:
    """The report in words or JSON; a table that went to no file comes along, or, in the place of words, as CSV."""
    from crowdshot.io import atomic
    from crowdshot.report import result_tables, summary

    for line in summary.respelled(report.get("respelled", ())):
        note(f"{line}.")
    for line in summary.left_out(report["left_out"]):
        note(f"left out: {line}")
    if as_json:
        typer.echo(json.dumps(report if table is None else {**report, rows: result_tables.records(table)}))
    elif table is not None:
        for line in summary.remarks(report):
            note(line)
        atomic.write_csv(table, sys.stdout)
    else:
        typer.echo(summary.tell(report))


# ---- flat ------------------------------------------------------------
#
# Commands whose options are grouped in dataclasses.


def flat(command: Callable[..., None]) -> Callable[..., None]:
    """The command with the fields of its dataclasses as arguments, which is how typer wants them."""
    hints: dict[str, Any] = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if is_dataclass(kind)}
    arguments: list[Parameter] = []
    for name, argument in signature(command).parameters.items():
        if name not in groups:
            arguments.append(argument.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name]))
            continue
        for field in fields(groups[name]):
            default = Parameter.empty if field.default is MISSING else field.default
            hint = get_type_hints(groups[name], include_extras=True)[field.name]
            arguments.append(Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=hint))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        values = {
            name: kind(**{field.name: given.pop(field.name) for field in fields(kind)}) for name, kind in groups.items()
        }
        command(**values, **given)

    vars(run)["__signature__"] = Signature(arguments)
    run.__annotations__ = {argument.name: argument.annotation for argument in arguments}
    return run
