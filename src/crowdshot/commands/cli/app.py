"""The command line: it reads arguments, calls a job and prints what the job says. No logic lives here.

Exit codes: 0 fine, 1 a failure nobody expected, 2 bad input or usage, 130 interrupted. Results go to stdout, all else
to stderr. What is heavy is imported inside the commands, so that --help answers at once.
"""

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from crowdshot.commands.cli import adapt, aggregate, compare, next, paper, predict, push, serve, train, train_inference
from crowdshot.commands.cli.console import note, show, told
from crowdshot.commands.cli.options import (
    AsJson,
    Engine,
    EngineName,
    Folder,
    Overwrite,
    Processes,
    Seed,
    as_names,
    as_shares,
)
from crowdshot.errors import CrowdshotError
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


app.command("adapt", epilog=adapt.EXAMPLES)(told(adapt.adapt))
app.command("predict", epilog=predict.EXAMPLES)(told(predict.predict))
app.command("aggregate", epilog=aggregate.EXAMPLES)(told(aggregate.aggregate))
app.command("next", epilog=next.EXAMPLES)(told(next.ask_next))
app.command("compare", epilog=compare.EXAMPLES)(told(compare.compare))
app.command("push", epilog=push.EXAMPLES)(told(push.push))
app.command("serve", epilog=serve.EXAMPLES)(told(serve.serve))


@app.command(
    epilog="""\b
Examples:
  crowdshot simulate --items 40 --annotators 7 --crowd hammer=0.8,spammer=0.2 --out simulated
  crowdshot aggregate simulated/labels.csv
  crowdshot simulate --items 500 --annotators 40 --labels-per-item 3 --crowd world --without copies --out odd
"""
)
@told
def simulate(
    out: Folder,
    items: Annotated[int, typer.Option(min=1)] = 40,
    classes: Annotated[int, typer.Option(min=2)] = 4,
    annotators: Annotated[int, typer.Option(min=1)] = 5,
    crowd: Annotated[
        str,
        typer.Option(
            "--crowd",
            "--mixture",  # its name in 0.1.0
            help="How probable each kind is: expert, hammer, spammer, flipper, classwise. Or `world`: people who share"
            " mistakes, as the inference learns from (docs/inference.md).",
        ),
    ] = "expert=0.1,hammer=0.7,spammer=0.2",
    without: Annotated[
        str | None,
        typer.Option(metavar="NAME,…", help="With --crowd world: ingredients that it lacks, like spammers,copies."),
    ] = None,
    labels_per_item: Annotated[
        int | None, typer.Option(min=1, help="How many annotators label each item; else all do.")
    ] = None,
    seed: Seed = 0,
    overwrite: Overwrite = False,
    as_json: AsJson = False,
) -> None:
    """A simulated crowd, to try things with: labels.csv, truth.csv, annotators.csv."""
    from crowdshot.commands import simulate
    from crowdshot.commands.given import Output
    from crowdshot.episodes.simulate import KINDS

    sizes = simulate.Sizes(items, classes, annotators, labels_per_item)
    output = Output(out, overwrite)
    if crowd == "world":
        report = simulate.simulate_world(output, sizes, as_names("--without", without, like="spammers,copies"), seed)
    elif without is not None:
        raise CrowdshotError(f"--without is {without}, expected --crowd world with it.")
    else:
        report = simulate.simulate(output, sizes, as_shares("--crowd", crowd, KINDS), seed)
    show(report, as_json)


class Precision(StrEnum):
    FLOAT32 = "float32"
    FLOAT16 = "float16"


@app.command(
    epilog="""\b
Examples:
  crowdshot embed photos/ --encoder lite0 --out features.npz
  crowdshot train features.npz --hidden none --embedding 192 --out head.safetensors
"""
)
@told
def embed(
    images: Annotated[Path, typer.Argument(metavar="DIR", help="A folder of class/image files.")],
    encoder: Annotated[str, typer.Option(metavar="NAME|FILE", help="What makes features of the images.")],
    out: Annotated[Path, typer.Option(metavar="FILE.npz", help="Where ids, features and labels go.")],
    device: Annotated[str, typer.Option(metavar="auto|cpu|cuda")] = "auto",
    precision: Annotated[
        Precision, typer.Option(help="float16: mixed precision, on a GPU, which is faster and nearly the same.")
    ] = Precision.FLOAT32,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out images that cannot be read.")] = False,
    processes: Processes = 1,
    engine: EngineName = Engine.LOCAL,
    as_json: AsJson = False,
) -> None:
    """Turn images into feature vectors once, to train on or to adapt with.

    What was embedded before is found again, also what a run left that was killed.
    """
    from crowdshot.commands import embed
    from crowdshot.report.summary import left_out

    report = embed.embed(images, encoder, out, device, precision.value, skip_bad, processes, engine.value)
    for line in left_out(report["left_out"]):
        note(f"left out: {line}")
    told = f"{report['items']:,} images of {report['classes']:,} classes, {report['features']:,} features each: {out}"
    typer.echo(json.dumps(report) if as_json else told)


app.command("train", epilog=train.EXAMPLES)(told(train.train))
app.command("train-inference", epilog=train_inference.EXAMPLES)(told(train_inference.train_inference))
paper.app.command("run", epilog=paper.EXAMPLES)(told(paper.run))
paper.app.command("tables")(told(paper.tables))
paper.app.command("figures")(told(paper.figures))
paper.app.command("compare", epilog=paper.COMPARE_EXAMPLES)(told(paper.compare))
paper.app.command("list")(told(paper.listing))
app.add_typer(paper.app, name="paper")


@app.command()
@told
def encoders(as_json: AsJson = False) -> None:
    """The encoders that come with crowdshot."""
    from crowdshot.commands import catalogue

    lines = catalogue.encoders()
    typer.echo(json.dumps(lines) if as_json else "\n".join(f"{name}: {line}" for name, line in lines.items()))


@app.command(
    epilog="""\b
Examples:
  crowdshot methods
  crowdshot methods MCL
"""
)
@told
def methods(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="One of them, to read its page.")] = None,
    as_json: AsJson = False,
) -> None:
    """The ways to learn that `adapt --method` takes: what they are, what they need, and their settings."""
    from crowdshot.commands import catalogue

    found = catalogue.methods() if name is None else catalogue.method(name)
    typer.echo(json.dumps(found) if as_json else catalogue.tell(found))


@app.command()
@told
def demo(out: Annotated[Path, typer.Option(metavar="DIR")] = Path("demo"), seed: Seed = 0) -> None:
    """Real handwritten digits, seven simulated annotators, and what crowdshot makes of them."""
    from crowdshot.commands.demo import run

    typer.echo(run(out, seed))
