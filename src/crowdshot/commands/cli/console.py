"""How commands speak: results on stdout, all else on stderr, and errors as a sentence with an exit code."""

import errno
import functools
import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ParamSpec

import typer

from crowdshot.errors import CrowdshotError

if TYPE_CHECKING:
    import pandas as pd


P = ParamSpec("P")


def told(command: Callable[P, None]) -> Callable[P, None]:
    """Errors and warnings as sentences on stderr, with the exit codes that `crowdshot.commands.cli.app` lists."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", category=UserWarning, module="crowdshot")
            warnings.showwarning = lambda message, *_, **__: note(str(message))
            try:
                command(*args, **kwargs)
                sys.stdout.flush()
            except CrowdshotError as error:
                typer.echo(f"crowdshot: {_in_options(str(error))}", err=True)
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
                if os.environ.get("CROWDSHOT_DEBUG"):
                    raise
                first_line = next(iter(str(error).splitlines()), "")
                typer.echo(
                    f"crowdshot: this is a bug in crowdshot ({type(error).__name__}: {first_line}); "
                    "set CROWDSHOT_DEBUG=1 to see where.",
                    err=True,
                )
                raise SystemExit(1) from None

    return run


def note(sentence: str) -> None:
    typer.echo(f"crowdshot: note: {' '.join(sentence.split())}", err=True)


def _in_options(sentence: str) -> str:
    """The library's advice for Python callers, as options."""
    return re.sub(r"columns=\{'(\w+)': …\}", r"--columns \1=NAME", sentence)


def show(report: dict[str, Any], as_json: bool, table: "pd.DataFrame | None" = None, rows: str = "rows") -> None:
    """The report in words or JSON; a table that went to no file comes along, or, in the place of words, as CSV."""
    from crowdshot.files import whole
    from crowdshot.report import summary, tables

    for line in summary.left_out(report["left_out"]):
        note(f"left out: {line}")
    if as_json:
        typer.echo(json.dumps(report if table is None else {**report, rows: tables.records(table)}))
    elif table is not None:
        whole.write_csv(table, sys.stdout)
    else:
        typer.echo(summary.tell(report))
