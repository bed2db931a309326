"""``crowdshot paper``: run the experiments of the paper and make its tables and figures.

An entry point adds it to the `crowdshot` command.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from crowdshot._cli.console import handle_errors, note
from crowdshot._cli.option_values import as_values
from crowdshot._cli.options import (
    PanelCommand,
    computing_option,
    flat,
    input_option,
    method_option,
    output_option,
    training_option,
)
from crowdshot.errors import CrowdshotError

if TYPE_CHECKING:
    from crowdshot_paper.experiments import Experiment
    from crowdshot_paper.work import Place


app = typer.Typer(
    help="Run the experiments of the paper. Make its tables and figures.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

EXAMPLES = """\b
Examples:
  crowdshot paper run main --quick --results toy
  crowdshot paper run main --dataset omniglot --data data --device cuda
  crowdshot paper run main --dataset omniglot --methods RFMV,RFDS --device cpu*14
  crowdshot paper run all --dry-run
"""
COMPARE_EXAMPLES = """\b
Examples:
  crowdshot paper compare results results/trained-again
  crowdshot paper compare results again --methods PrMV,PrDS --out differences.csv
  crowdshot paper compare results mine --methods "My method" --against Ours
"""

ExperimentName = Annotated[
    str, typer.Argument(metavar="NAME,…", help="Experiments, as listed by `crowdshot paper list`, or all.")
]
Results = Annotated[Path, output_option(metavar="DIR", help="The folder of rows, tables and figures.")]
Out = Annotated[
    Path | None, output_option(metavar="DIR", help="Write to this folder instead, a subfolder per experiment.")
]


@dataclass(frozen=True)
class PartOptions:
    """Options that select a part of the experiments."""

    dataset: Annotated[str | None, method_option(metavar="NAME,…", help="Datasets (default: all).")] = None
    methods: Annotated[str | None, method_option(metavar="NAME,…", help="Methods (default: all).")] = None
    only: Annotated[
        str | None,
        method_option(metavar="NAME=VALUE,…", help="Only candidates with these settings, such as steps=2,b=100."),
    ] = None
    cells: Annotated[
        str | None,
        method_option(
            metavar="NxR,…",
            help="Cells by support items and annotators (0: real annotators), such as 4x3,20x7 (default: all).",
        ),
    ] = None
    splits: Annotated[str | None, method_option(metavar="A:B", help="A range of splits (default: 0:4).")] = None


@dataclass(frozen=True)
class SizeOptions:
    """Options that change the size of the experiments."""

    episodes: Annotated[
        int | None,
        training_option(
            min=1,
            help="Episodes per cell, for validation and test (default: as in the paper; fewer are the first of these).",
            show_default=False,
        ),
    ] = None
    iterations: Annotated[
        int | None,
        training_option(min=1, help="Iterations of meta-training (default: as in the paper).", show_default=False),
    ] = None
    precision: Annotated[
        str | None,
        training_option(
            metavar="float32|bfloat16",
            help="The precision of meta-training on a GPU (default: depends on the dataset).",
        ),
    ] = None
    quick: Annotated[
        bool,
        computing_option(
            "--quick", help="Test that everything runs, in toy size on random data. The numbers mean nothing."
        ),
    ] = False


@dataclass(frozen=True)
class ComputingOptions:
    """Options of devices and folders."""

    device: Annotated[
        str,
        computing_option(
            metavar="auto|cpu|cuda|…", help="The device, or several to use at once, such as cuda:0,cuda:1 or cpu*4."
        ),
    ] = "auto"
    on_ray: Annotated[bool, computing_option("--ray", help="Distribute work over a Ray cluster (extra: ray).")] = False
    data: Annotated[Path, input_option(metavar="DIR", help="A folder with a folder per dataset.")] = Path("data")
    download: Annotated[bool, input_option("--download", help="Download missing datasets where possible.")] = False
    work: Annotated[Path, output_option(metavar="DIR", help="The folder of encoders and checkpoints.")] = Path(
        "runs/paper"
    )


@flat
def run(
    name: ExperimentName,
    part: PartOptions,
    size: SizeOptions,
    computing: ComputingOptions,
    results: Results = Path("results"),
    dry_run: Annotated[bool, computing_option("--dry-run", help="Print what would be run, and stop.")] = False,
) -> None:
    """Run an experiment.

    Rows that exist are not computed again, so a repeated command continues an interrupted one.
    """
    from crowdshot.formatting import counted
    from crowdshot_paper import parallel, runner
    from crowdshot_paper.experiments import chosen, joined_by
    from crowdshot_paper.work import find_data

    experiments = joined_by(chosen(name), (word.strip() for word in (part.methods or "").split(",")))
    place = _place(experiments, part, size, computing, results)
    datasets = _selected(part.dataset, {word for one in experiments for word in one.datasets}, "dataset")
    methods = _selected(part.methods, {word for one in experiments for word in one.methods}, "methods")
    left, devices = runner.missing(experiments, datasets, methods, place), parallel.devices(computing.device)
    expected = runner.expect(left, place, devices) if left and not size.quick else []
    if dry_run:
        for line in (*runner.describe(left, place), *expected):
            typer.echo(line)
        return
    runner.tidy(experiments, place)
    find_data({piece.dataset for piece in left}, place)
    for sentence in expected:
        note(sentence)
    done = runner.run(left, place, devices, parallel.run_all_on_ray if computing.on_ray else parallel.run_all)
    typer.echo(f"{counted(done, 'pieces')} run; {results} is complete.")


def _place(
    experiments: "Sequence[Experiment]",
    part: PartOptions,
    size: SizeOptions,
    computing: ComputingOptions,
    results: Path,
) -> "Place":
    """Return the folders and the protocol of a run."""
    from crowdshot.formatting import command_line
    from crowdshot.training.episodes import as_range
    from crowdshot_paper import runner
    from crowdshot_paper.experiments import PAPER, QUICK
    from crowdshot_paper.work import Place

    protocol = QUICK if size.quick else PAPER
    if part.splits is not None:
        low, high = as_range(part.splits, "splits")
        if not 0 <= low <= high <= PAPER.splits[-1]:
            expected = f"a range within 0:{PAPER.splits[-1]}"
            raise CrowdshotError(f"is {part.splits!r}", argument="splits", found=part.splits, expected=expected)
        protocol = replace(protocol, splits=tuple(range(low, high + 1)))
    cell_sizes = {cell.size for one in experiments for dataset in one.datasets for cell in one.cells(dataset)}
    protocol = replace(
        protocol,
        episodes=size.episodes or protocol.episodes,
        iterations=size.iterations or protocol.iterations,
        precision=size.precision or protocol.precision,
        only=_pairs(part.only, runner.settings_of(experiments)),
        sizes=_sizes(part.cells, cell_sizes),
    )
    command = command_line(sys.argv[1:], ("--data", "--results", "--work"))
    work = computing.work / "toy" if size.quick else computing.work
    data = None if size.quick else computing.data
    return Place(results, work, data, protocol, command, computing.download)


def tables(
    name: ExperimentName = "all",
    results: Results = Path("results"),
    out: Out = None,
) -> None:
    """Make the paper's tables from stored rows.

    Each table is made with the paper's selection of settings and with a fair one, and compared with the paper's
    numbers. Each experiment has tables.md with all its tables, and each table as CSV and LaTeX.
    """
    from crowdshot_paper.paper_tables import make

    for line in make(name, results, out):
        typer.echo(line)


def figures(
    name: ExperimentName = "all",
    results: Results = Path("results"),
    out: Out = None,
    work: Annotated[
        Path,
        input_option(
            metavar="DIR", help="The folder of encoders, which `embedding` and `confusion` need the first time."
        ),
    ] = Path("runs/paper"),
    data: Annotated[
        Path, input_option(metavar="DIR", help="The folder of datasets, for `embedding` and `confusion`.")
    ] = Path("data"),
    quick: Annotated[
        bool, input_option("--quick", help="Draw `embedding` and `confusion` from a `run --quick`.")
    ] = False,
) -> None:
    """Draw the paper's figures from stored rows, as PNG and SVG. The paper's own numbers are drawn hollow."""
    from crowdshot_paper.experiments import PAPER, QUICK
    from crowdshot_paper.figures import make
    from crowdshot_paper.work import Place

    work, size = (work / "toy", QUICK) if quick else (work, PAPER)
    for line in make(name, Place(results, work, None if quick else data, size), out):
        typer.echo(line)


def compare(
    one: Annotated[Path, typer.Argument(metavar="A", help="A folder with <experiment>/<dataset>/rows.parquet.")],
    other: Annotated[
        Path, typer.Argument(metavar="B", help="Another folder, such as that of a second training or version.")
    ],
    methods: Annotated[
        str | None, method_option(metavar="NAME,…", help="Methods (default: all in both folders).")
    ] = None,
    against: Annotated[
        str | None,
        method_option(
            metavar="NAME", help="Compare with this method of A, instead of each with itself. A and B may be the same."
        ),
    ] = None,
    out: Annotated[Path | None, output_option(metavar="FILE.csv", help="Write a table with a row per cell.")] = None,
) -> None:
    """Compare two folders of results.

    Prints the difference B - A ± standard error for each common cell, paired by episode. The p-value is that of a
    paired t-test.
    """
    from crowdshot.io.atomic import replacing
    from crowdshot_paper import paper_comparison

    names = None if methods is None else [name.strip() for name in methods.split(",")]
    table = paper_comparison.compare(one, other, names, against)
    if out is not None:
        with replacing(out) as temporary:
            table.to_csv(temporary, index=False)
    typer.echo(paper_comparison.comparison_text(table, one, other, against), nl=False)


def list_experiments(
    work: Annotated[Path, input_option(metavar="DIR", help="A folder with encoders.")] = Path("results"),
) -> None:
    """List the experiments.

    Each with its data, its estimated time, and the methods whose encoders exist.
    """
    from crowdshot_paper import encoder_plan
    from crowdshot_paper.experiments import EXPERIMENTS

    for experiment in EXPERIMENTS.values():
        typer.echo("\n".join(encoder_plan.describe(experiment, work)))


def _pairs(text: str | None, possible: dict[str, set[float]]) -> tuple[tuple[str, float], ...]:
    """Convert settings; each must have a value that some candidate has."""
    values = as_values("only", text, "settings and numbers, such as steps=2,b=100", float) if text else {}
    _selected(",".join(values) or None, set(possible), "only")
    for name, value in values.items():
        if value not in possible[name]:
            known = ", ".join(f"{each:g}" for each in sorted(possible[name]))
            message = f"has {name}={value:g}"
            raise CrowdshotError(message, argument="only", found=value, expected=f"one of {known} for {name}")
    return tuple(values.items())


def _sizes(text: str | None, possible: set[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    named = {f"{items}x{annotators}": (items, annotators) for items, annotators in sorted(possible)}
    return tuple(named[word] for word in _selected(text, set(named), "cells") or ())


def _selected(text: str | None, possible: set[str], argument: str) -> list[str] | None:
    """Split a list of names and check them."""
    if text is None:
        return None
    names = [word.strip() for word in text.split(",")]
    unknown = next((name for name in names if name not in possible), None)
    if unknown is not None:
        expected = f"some of {', '.join(sorted(possible))}"
        raise CrowdshotError(f"has {unknown!r}", argument=argument, found=unknown, expected=expected)
    return names


app.command("run", cls=PanelCommand, epilog=EXAMPLES)(handle_errors(run, "paper"))
app.command("tables", cls=PanelCommand)(handle_errors(tables, "paper"))
app.command("figures", cls=PanelCommand)(handle_errors(figures, "paper"))
app.command("compare", cls=PanelCommand, epilog=COMPARE_EXAMPLES)(handle_errors(compare, "paper"))
app.command("list", cls=PanelCommand)(handle_errors(list_experiments, "paper"))
