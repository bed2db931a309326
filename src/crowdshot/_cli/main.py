"""Start the `crowdshot` command, which joins the commands of the other modules.

Exit codes: 0 success, 1 an internal error, 2 bad input or usage, 130 interrupted. Results go to stdout, everything else
to stderr. Command modules import heavy libraries inside their functions, so that `--help` answers at once. Other
packages add commands through entry points in the group `crowdshot.commands`. Each entry point is a `typer.Typer` with
one or several commands.
"""

import os
import sys
from collections.abc import Callable, Sequence
from importlib.metadata import entry_points
from typing import Annotated

import typer

from crowdshot._cli import (
    adapt,
    aggregate,
    audit,
    catalogue,
    check,
    compare,
    demo,
    embed,
    judges,
    labels_report,
    next,
    objects,
    predict,
    push,
    questions,
    rank,
    serve,
    simulate,
    slices,
    train,
)
from crowdshot._cli.console import handle_errors, refuse_control_characters
from crowdshot._cli.options import PanelCommand
from crowdshot.version import __version__

# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot demo
  crowdshot adapt labels.csv --images photos --out results
  crowdshot adapt labels.csv --features embeddings.npz --out results
  crowdshot predict results/model.safetensors --images new-photos --out predictions.csv
  crowdshot check labels.xlsx
  crowdshot aggregate labels.csv --out consensus.csv
  crowdshot next labels.csv --images photos --budget 50 --out questions.csv
  crowdshot train classes.zip --out encoder.safetensors
"""

app = typer.Typer(
    help="Turn noisy labels from several annotators into labels you can trust.",
    epilog=EXAMPLES,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help is the same with and without rich, and twice as fast
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the `crowdshot` command."""
    os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")  # read by NumPy: idle threads sleep soon
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # names that the terminal cannot show must not stop the command
            stream.reconfigure(errors="backslashreplace")
    refuse_control_characters(sys.argv[1:])
    app(prog_name="crowdshot")


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crowdshot {__version__}")
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


def _add(name: str, command: Callable[..., None], epilog: str | None = None, aliases: Sequence[str] = ()) -> None:
    for each in (name, *aliases):
        app.command(each, cls=PanelCommand, epilog=epilog, hidden=each != name)(handle_errors(command))


_add("adapt", adapt.adapt, adapt.EXAMPLES, aliases=("fit", "label"))
_add("predict", predict.predict, predict.EXAMPLES)
_add("aggregate", aggregate.aggregate, aggregate.EXAMPLES)
_add("check", check.check, check.EXAMPLES)
_add("next", next.ask_next, next.EXAMPLES, aliases=("ask",))
_add("audit", audit.audit, audit.EXAMPLES)
_add("report", labels_report.report, labels_report.EXAMPLES)
_add("compare", compare.compare, compare.EXAMPLES)
_add("rank", rank.rank, rank.EXAMPLES)
_add("judges", judges.judges, judges.EXAMPLES)
_add("questions", questions.questions, questions.EXAMPLES)
_add("objects", objects.objects, objects.EXAMPLES)
_add("slices", slices.slices, slices.EXAMPLES)
_add("push", push.push, push.EXAMPLES)
_add("serve", serve.serve, serve.EXAMPLES)
_add("simulate", simulate.simulate, simulate.EXAMPLES)
_add("embed", embed.embed, embed.EXAMPLES)
_add("train", train.train, train.EXAMPLES)
for _entry in sorted(entry_points(group="crowdshot.commands"), key=lambda entry: entry.name):
    _added: typer.Typer = _entry.load()
    if len(_added.registered_commands) == 1:
        app.registered_commands += _added.registered_commands
    else:
        app.add_typer(_added, name=_entry.name)
_add("encoders", catalogue.encoders)
_add("methods", catalogue.methods, catalogue.EXAMPLES)
_add("demo", demo.demo)
