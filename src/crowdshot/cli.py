"""The command line: it reads arguments, calls a job and prints what the job says. No logic lives here.

Exit codes: 0 fine, 1 a failure nobody expected, 2 bad input or usage, 130 interrupted. Results go to stdout, all else
to stderr. What is heavy is imported inside the commands, so that --help answers at once.
"""

import functools
import json
import os
import re
import sys
import warnings
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ParamSpec

import typer

from crowdshot import __version__, paper_cli, train_cli
from crowdshot.errors import CrowdshotError
from crowdshot.options import (
    AsJson,
    ColumnNames,
    Features,
    File,
    Folder,
    FormatName,
    Images,
    Labels,
    Overwrite,
    Seed,
    SkipBad,
    as_columns,
    as_settings,
    as_shares,
)

if TYPE_CHECKING:
    import pandas as pd

P = ParamSpec("P")

# "\b" keeps the lines that follow as they are
EXAMPLES = """\b
Examples:
  crowdshot demo
  crowdshot adapt labels.csv --images photos --out results
  crowdshot adapt labels.csv --features embeddings.npz --out results
  crowdshot predict results/model.safetensors --images new-photos --out predictions.csv
  crowdshot aggregate labels.csv --out consensus.csv
  crowdshot train classes.zip --out encoder.safetensors
"""

app = typer.Typer(
    help="A classifier you can trust from a handful of examples and a noisy crowd.",
    epilog=EXAMPLES,
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help: the same with and without rich, and twice as fast
    context_settings={"help_option_names": ["-h", "--help"]},
)


def main() -> None:
    """The ``crowdshot`` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that cannot show a name must not stop the work
            stream.reconfigure(errors="backslashreplace")
    app(prog_name="crowdshot")


def _told(command: Callable[P, None]) -> Callable[P, None]:
    """Errors and warnings as sentences on stderr, with the exit codes above."""

    @functools.wraps(command)
    def told(*args: P.args, **kwargs: P.kwargs) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", category=UserWarning, module="crowdshot")
            warnings.showwarning = lambda message, *_, **__: _note(str(message))
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
                if os.environ.get("CROWDSHOT_DEBUG"):
                    raise
                first_line = next(iter(str(error).splitlines()), "")
                typer.echo(
                    f"crowdshot: this is a bug in crowdshot ({type(error).__name__}: {first_line}); "
                    "set CROWDSHOT_DEBUG=1 to see where.",
                    err=True,
                )
                raise SystemExit(1) from None

    return told


def _note(sentence: str) -> None:
    typer.echo(f"crowdshot: note: {' '.join(sentence.split())}", err=True)


def _in_options(sentence: str) -> str:
    """The library's advice for Python callers, as options."""
    return re.sub(r"columns=\{'(\w+)': …\}", r"--columns \1=NAME", sentence)


def _print(report: dict[str, Any], as_json: bool, table: "pd.DataFrame | None" = None, rows: str = "rows") -> None:
    """The report in words or JSON; a table that went to no file comes along, or alone as CSV."""
    from crowdshot import results, summary

    for line in summary.left_out(report["left_out"]):
        _note(f"left out: {line}")
    to_show = table if not report["files"] else None
    if as_json:
        typer.echo(json.dumps(report if to_show is None else {**report, rows: results.records(to_show)}))
    elif to_show is not None:
        results.write_csv(to_show, sys.stdout)
    else:
        typer.echo(summary.tell(report))


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


@app.command(
    epilog="""\b
Examples:
  crowdshot adapt labels.csv --images photos --out results
  crowdshot adapt export.tsv --columns item=url,annotator=who,label=animal --images photos --out results
  crowdshot adapt ann.xml bob.xml --format cvat --images photos --out results
  crowdshot adapt labels.csv --features embeddings.npz --out results --json
  crowdshot adapt labels.csv --images photos --method LRDS --settings C=0.1,steps=3 --out results
"""
)
@_told
def adapt(
    labels: Labels,
    out: Folder,
    images: Images = None,
    features: Features = None,
    encoder: Annotated[
        str | None, typer.Option(metavar="NAME|FILE", help="See `crowdshot encoders`; or a file of your own.")
    ] = None,
    method: Annotated[
        str, typer.Option(metavar="NAME", help="Another way to learn: see `crowdshot methods`.")
    ] = "Ours",
    settings: Annotated[
        str | None, typer.Option(metavar="NAME=VALUE,…", help="The method's own; else its defaults.")
    ] = None,
    columns: ColumnNames = None,
    format_name: FormatName = None,
    skip_bad: SkipBad = False,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """From items and a crowd's labels to consensus, annotators and a classifier.

    Writes report.html, a page to read in a browser, and consensus.csv, annotators.csv, confusion.csv and
    model.safetensors (and predictions.json where the labels are Label Studio's), all of them or none. Items without a
    label are fine: they get one from the classifier.
    """
    from crowdshot import jobs

    chosen = (encoder, as_columns(columns), format_name, skip_bad, overwrite, method, as_settings(settings))
    _print(jobs.adapt(labels, images, features, out, *chosen), as_json)


@app.command(
    epilog="""\b
Examples:
  crowdshot predict results/model.safetensors --images new-photos
  crowdshot predict results/model.safetensors --features new.csv --out predictions.csv
"""
)
@_told
def predict(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="The model.safetensors that `adapt` wrote.")],
    images: Images = None,
    features: Features = None,
    out: File = None,
    skip_bad: SkipBad = False,
    as_json: AsJson = False,
) -> None:
    """Label new items with a classifier: label, confidence, and each class's probability."""
    from crowdshot import jobs

    report, table = jobs.predict(model, images, features, out, skip_bad)
    _print(report, as_json, table, "predictions")


class Method(StrEnum):
    ONE_COIN = "one-coin"
    DAWID_SKENE = "dawid-skene"
    MAJORITY = "majority"
    SOFT = "soft"


@app.command(
    epilog="""\b
Examples:
  crowdshot aggregate labels.csv
  crowdshot aggregate labels.csv --method dawid-skene --gold known.csv --out consensus.csv
"""
)
@_told
def aggregate(
    labels: Labels,
    method: Annotated[
        Method,
        typer.Option(
            help="one-coin: an accuracy for each annotator; dawid-skene: a confusion matrix, for annotators with many"
            " labels; majority; soft: majority with each class's share."
        ),
    ] = Method.ONE_COIN,
    steps: Annotated[int, typer.Option(min=1, help="EM steps at most.")] = 100,
    gold: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A table of items and their true labels, held fixed.")
    ] = None,
    out: File = None,
    columns: ColumnNames = None,
    format_name: FormatName = None,
    as_json: AsJson = False,
) -> None:
    """Consensus from labels alone, without looking at the items."""
    from crowdshot import jobs

    report, table = jobs.aggregate(labels, method.value, steps, gold, out, as_columns(columns), format_name)
    _print(report, as_json, table, "consensus")


@app.command(
    epilog="""\b
Examples:
  crowdshot simulate --items 40 --annotators 7 --mixture hammer=0.8,spammer=0.2 --out pretend
  crowdshot aggregate pretend/labels.csv
"""
)
@_told
def simulate(
    out: Folder,
    items: Annotated[int, typer.Option(min=1)] = 40,
    classes: Annotated[int, typer.Option(min=2)] = 4,
    annotators: Annotated[int, typer.Option(min=1)] = 5,
    mixture: Annotated[
        str, typer.Option(help="How probable each kind is: expert, hammer, spammer, flipper, classwise.")
    ] = "expert=0.1,hammer=0.7,spammer=0.2",
    labels_per_item: Annotated[
        int | None, typer.Option(min=1, help="How many annotators label each item; else all do.")
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """A pretend crowd, to try things with: labels.csv, truth.csv, annotators.csv."""
    from crowdshot import jobs
    from crowdshot.simulate import KINDS

    shares = as_shares("--mixture", mixture, KINDS)
    _print(jobs.simulate(out, items, classes, annotators, shares, labels_per_item, seed, overwrite), as_json)


@app.command(
    epilog="""\b
Examples:
  crowdshot embed photos/ --encoder lite0 --out features.npz
  crowdshot train features.npz --hidden none --embedding 192 --out head.safetensors
"""
)
@_told
def embed(
    images: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of class/image files.")],
    encoder: Annotated[str, typer.Option(metavar="NAME|FILE", help="What makes features of the images.")],
    out: Annotated[Path, typer.Option(metavar="FILE.npz", help="Where ids, features and labels go.")],
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda")] = "auto",
    as_json: AsJson = False,
) -> None:
    """Turn images into feature vectors once, to train on or to adapt with."""
    from crowdshot import jobs

    report = jobs.embed(images, encoder, out, device)
    told = f"{report['items']:,} images of {report['classes']:,} classes, {report['features']:,} features each: {out}"
    typer.echo(json.dumps(report) if as_json else told)


app.command("train", epilog=train_cli.EXAMPLES)(_told(train_cli.train))
paper_cli.app.command("run", epilog=paper_cli.EXAMPLES)(_told(paper_cli.run))
paper_cli.app.command("tables")(_told(paper_cli.tables))
paper_cli.app.command("figures")(_told(paper_cli.figures))
paper_cli.app.command("list")(_told(paper_cli.listing))
app.add_typer(paper_cli.app, name="paper")


@app.command()
@_told
def encoders(as_json: AsJson = False) -> None:
    """The encoders that come with crowdshot."""
    from crowdshot import catalogue

    lines = catalogue.encoders()
    typer.echo(json.dumps(lines) if as_json else "\n".join(f"{name}: {line}" for name, line in lines.items()))


@app.command(
    epilog="""\b
Examples:
  crowdshot methods
  crowdshot methods MCL
"""
)
@_told
def methods(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One of them, to read its page.")] = None,
    as_json: AsJson = False,
) -> None:
    """The ways to learn that `adapt --method` takes: what they are, what they need, and their settings."""
    from crowdshot import catalogue

    found = catalogue.methods() if name is None else catalogue.method(name)
    typer.echo(json.dumps(found) if as_json else catalogue.tell(found))


@app.command()
@_told
def demo(out: Annotated[Path, typer.Option(metavar="DIR")] = Path("demo"), seed: Seed = 0) -> None:
    """Real handwritten digits, seven pretend annotators, and what crowdshot makes of them."""
    from crowdshot.demo import run

    typer.echo(run(out, seed))
