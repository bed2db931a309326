"""Print results to stdout and messages to stderr, and turn errors into exit codes."""

import contextlib
import errno
import functools
import io
import json
import os
import shlex
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, ParamSpec

import typer

from crowdshot._cli.options import option_names
from crowdshot.errors import CrowdshotError, CrowdshotWarning, Proposal, escape_controls, is_control, one_line
from crowdshot.extras import missing_packages_explained
from crowdshot.progress import line_hidden

if TYPE_CHECKING:
    import pandas as pd

    from crowdshot.report.summary import Result

P = ParamSpec("P")


def handle_errors(command: Callable[P, None], extra: str | None = None) -> Callable[P, None]:
    """Print errors and warnings of a command to stderr and exit with the codes listed in `crowdshot._cli.main`.

    ``extra`` installs what the command needs; by default, an extra for items does.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        names = OptionNames(command)
        with warnings_as_notes(command):
            try:
                with missing_packages_explained("This command", extra):
                    command(*args, **kwargs)
                sys.stdout.flush()
            except CrowdshotError as error:
                _stop(2, *names.lines(error))
            except KeyboardInterrupt:
                _stop(130, "interrupted.")
            except BrokenPipeError:  # the reader of stdout has left
                _discard_stdout()
                raise SystemExit(0) from None
            except Exception as error:
                _stop_unexpected(error)

    return run


@contextmanager
def warnings_as_notes(command: Callable[..., None]) -> Iterator[None]:
    """Print warnings of crowdshot as notes, with the options of a command; hide those of other packages."""
    names = OptionNames(command)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in (UserWarning, FutureWarning):  # the second for names that were renamed
            warnings.filterwarnings("always", category=kind, module="crowdshot")
        warnings.showwarning = lambda message, *_, **__: note(*names.lines(message))
        yield


def _stop(code: int, *lines: str) -> NoReturn:
    typer.echo(f"crowdshot: {_indented(lines)}", err=True)
    raise SystemExit(code) from None


def _stop_unexpected(error: Exception) -> NoReturn:
    """Exit with an explanation of an error of the system, or with a note that this is a bug."""
    if isinstance(error, PermissionError) or (isinstance(error, OSError) and error.errno == errno.EROFS):
        _stop(2, f"{error.filename or 'a file'} could not be read or written ({error.strerror}).")
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", None)):
        _discard_stdout()
        _stop(2, f"the output could not be written ({error.strerror}).")
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        _stop(2, "a path is too long for this system, expected a shorter one.")
    if os.environ.get("CROWDSHOT_DEBUG"):
        raise error
    first_line = next(iter(str(error).splitlines()), "")
    if isinstance(error, MemoryError) or "not enough memory" in first_line:  # of NumPy, of torch
        _stop(
            2, f"not enough memory ({first_line}).", "Use a machine with more memory, or fewer annotators or classes."
        )
    if isinstance(error, FileNotFoundError) and "temporary directory" in str(error):  # of Python's tempfile
        _stop(2, "no folder for temporary files can be written to. Is the disk full?")
    bug = f"this is a bug in crowdshot ({type(error).__name__}: {first_line})."
    _stop(1, bug, "Set CROWDSHOT_DEBUG=1 to see the traceback.")


def _discard_stdout() -> None:
    """Let Python flush stdout at exit without another error."""
    with contextlib.suppress(io.UnsupportedOperation):  # stdout may be no file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def note(*lines: str) -> None:
    """Print a note to stderr: a sentence, and further lines indented below it."""
    with line_hidden():
        typer.echo(f"crowdshot: note: {_indented([' '.join(line.split()) for line in lines])}", err=True)


def _indented(lines: "list[str] | tuple[str, ...]") -> str:
    return escape_controls("\n  ".join(lines))


def refuse_control_characters(words: Sequence[str]) -> None:
    """Refuse typed words with characters such as a carriage return, which a terminal hides.

    Results and file names repeat these words. Tabs and line breaks may be part of the name of a column.
    """
    for before, word in zip(["", *words], words, strict=False):
        if any(map(is_control, word)):
            named = f"{before} " if before.startswith("-") and not word.startswith("-") else ""
            ends = "Lines of this script end in a carriage return; save it with Unix line endings (LF)."
            _stop(2, f"{named}{word!r} contains a control character.", *([ends] if word.endswith("\r") else []))


class OptionNames:
    """Render messages with the options of a command in place of the arguments of the library."""

    def __init__(self, command: Callable[..., None]) -> None:
        self.options = option_names(command)

    def lines(self, message: CrowdshotError | Warning | str) -> list[str]:
        """Return the message and, if it has a hint, the hint as a second line."""
        if not isinstance(message, CrowdshotError | CrowdshotWarning):
            return [str(message)]
        sentence = message.sentence(lambda argument: self.options.get(argument, argument))
        others = [one_line(other) for other in getattr(message, "__notes__", ())]
        if isinstance(message.hint, Proposal):
            return [sentence, *others, f"Try: {self.proposed(sys.argv[1:], message.hint.arguments)}"]
        return [sentence, *message.advice(self.setting), *(f"Also: {other}" for other in others)]

    def proposed(self, typed: Sequence[str], arguments: Mapping[str, Any]) -> str:
        """Return the command as typed, with other values of some options."""
        options = [self.options[name] for name in arguments]
        words = list(typed)
        for option in options:
            while option in words:
                place = words.index(option)
                del words[place : place + 2]
        words = [word for word in words if word.partition("=")[0] not in options]
        settings = [self.setting(name, value) for name, value in arguments.items()]
        return " ".join(["crowdshot", shlex.join(words), *settings])

    def setting(self, argument: str, value: Any) -> str:
        """Return an argument and its value as typed in a shell."""
        if argument not in self.options:
            return f"{argument}={value!r}"
        if value is True:
            return self.options[argument]
        if isinstance(value, Mapping):
            text = ",".join(f"{key}={each}" for key, each in value.items())
        elif isinstance(value, list | tuple):
            text = ",".join(f'"{name}"' if "," in str(name) else str(name) for name in value)
        else:
            text = str(value)
        return f"{self.options[argument]} {shlex.quote(text)}"


def print_result(result: "Result", as_json: bool, table: "pd.DataFrame | None" = None, rows: str = "rows") -> None:
    """Print the result of a command as text or JSON.

    Parameters
    ----------
    result : Result
        The result.
    as_json : bool
        Whether to print JSON.
    table : DataFrame, optional
        A table that was not written to a file. It is part of the JSON, or printed as CSV in place of the text.
    rows : str
        The key of the table in the JSON.
    """
    from crowdshot.io.atomic import write_csv
    from crowdshot.report import summary

    for line in summary.respelled(result.names):
        note(f"{line}.")
    for line in summary.left_out(result.left_out):
        note(f"left out: {line}")
    if as_json:
        print_json(result, {} if table is None else {rows: summary.records(table)})
    elif table is not None:
        for line in [*summary.notes(result), *summary.sources_in_words(result.sources or ())]:
            note(line)
        write_csv(table, sys.stdout)
    else:
        typer.echo(summary.summarise(result))


def print_tables(
    facts: Mapping[str, Any],
    tables: "Mapping[str, pd.DataFrame]",
    files: Sequence[Path],
    as_json: bool,
    summary: str | None,
) -> None:
    """Print facts and tables as JSON, or else a summary and the files; without a summary the first table, as CSV."""
    from crowdshot.io.atomic import write_csv
    from crowdshot.report.summary import records

    if as_json:
        print_json({**facts, **{name: records(table) for name, table in tables.items()}, "files": files})
    elif summary is None:
        write_csv(next(iter(tables.values())), sys.stdout)
    else:
        print_lines(summary, *files)


def print_lines(*lines: object) -> None:
    """Print lines to stdout."""
    typer.echo("\n".join(map(str, lines)))


def print_json(result: Any, more: Mapping[str, Any] | None = None, err: bool = False) -> None:
    """Print a result and ``more`` as one JSON object."""
    from crowdshot.io.json_text import to_json

    found = to_json(result)
    typer.echo(json.dumps({**found, **more} if more else found), err=err)
