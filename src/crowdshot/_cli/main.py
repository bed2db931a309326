"""The `crowdshot` command: it joins the commands, one module each, and starts them.

Exit codes: 0 success, 1 an internal error, 2 bad input or usage, 130 interrupted. Results go to stdout, everything else
to stderr. Command modules import heavy libraries inside their functions, so that `--help` answers at once. Other
packages add commands through entry points in the group `crowdshot.commands`, each a `typer.Typer` with one command or several.
"""

import sys
from importlib.metadata import entry_points
from typing import Annotated

import typer

from crowdshot._cli import (
    adapt,
    aggregate,
    catalogue,
    compare,
    demo,
    embed,
    next,
    predict,
    push,
    serve,
    simulate,
    train,
)
from crowdshot._cli.console import handle_errors
from crowdshot.version import __version__

# "\b" keeps the lines that follow as they are
EXAMPLES = """\b
Examples:
  crowdshot demo
  crowdshot adapt labels.csv --images photos --out results
  crowdshot adapt labels.csv --features embeddings.npz --out results
  crowdshot predict results/model.safetensors --images new-photos --out predictions.csv
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
    rich_markup_mode=None,  # plain help: the same with and without rich, and twice as fast
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """Run the `crowdshot` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a name must not stop the work
            stream.reconfigure(errors="backslashreplace")
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


app.command("adapt", epilog=adapt.EXAMPLES)(handle_errors(adapt.adapt))
app.command("predict", epilog=predict.EXAMPLES)(handle_errors(predict.predict))
app.command("aggregate", epilog=aggregate.EXAMPLES)(handle_errors(aggregate.aggregate))
app.command("next", epilog=next.EXAMPLES)(handle_errors(next.ask_next))
app.command("compare", epilog=compare.EXAMPLES)(handle_errors(compare.compare))
app.command("push", epilog=push.EXAMPLES)(handle_errors(push.push))
app.command("serve", epilog=serve.EXAMPLES)(handle_errors(serve.serve))
app.command("simulate", epilog=simulate.EXAMPLES)(handle_errors(simulate.simulate))
app.command("embed", epilog=embed.EXAMPLES)(handle_errors(embed.embed))
app.command("train", epilog=train.EXAMPLES)(handle_errors(train.train))
for _entry in sorted(entry_points(group="crowdshot.commands"), key=lambda entry: entry.name):
    _added: typer.Typer = _entry.load()
    if len(_added.registered_commands) == 1:
        app.registered_commands += _added.registered_commands
    else:
        app.add_typer(_added, name=_entry.name)
app.command("encoders")(handle_errors(catalogue.encoders))
app.command("methods", epilog=catalogue.EXAMPLES)(handle_errors(catalogue.methods))
app.command("demo")(handle_errors(demo.demo))
