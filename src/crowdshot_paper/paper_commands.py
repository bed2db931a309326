"""``crowdshot paper``: the experiments on the command line. an entry point adds it to the `crowdshot` command."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from crowdshot._cli.console import handle_errors, note
from crowdshot._cli.options import as_values
from crowdshot.errors import CrowdshotError

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
"""

Results = Annotated[Path, typer.Option(metavar="DIR", help="Where rows are kept, tables and figures written.")]
Out = Annotated[Path | None, typer.Option(metavar="DIR", help="Write there instead, a folder for each experiment.")]


def run(
    name: Annotated[str, typer.Argument(metavar="NAME,…", help="See `crowdshot paper list`; all: every one.")],
    dataset: Annotated[str | None, typer.Option(metavar="NAME,…", help="Else all of the experiment's.")] = None,
    methods: Annotated[str | None, typer.Option(metavar="NAME,…", help="Else all of the experiment's.")] = None,
    only: Annotated[
        str | None, typer.Option(metavar="NAME=VALUE,…", help="Only candidates with these settings: steps=2,b=100.")
    ] = None,
    cells: Annotated[
        str | None, typer.Option(metavar="NxR,…", help="Only these: 4x3,20x7 by items and annotators (0: real ones).")
    ] = None,
    splits: Annotated[str | None, typer.Option(metavar="A:B", help="Of the five, 0:4.")] = None,
    episodes: Annotated[
        int | None, typer.Option(min=1, help="Of each cell, for validation and test; else the paper's.")
    ] = None,
    iterations: Annotated[int | None, typer.Option(min=1, help="Of meta-training; else the paper's.")] = None,
    precision: Annotated[
        str | None, typer.Option(metavar="float32|bfloat16", help="Of meta-training on a GPU; else the source's.")
    ] = None,
    device: Annotated[
        str, typer.Option(metavar="auto|cpu|cuda|…", help="Several work at once: cuda:0,cuda:1 or cpu*4.")
    ] = "auto",
    data: Annotated[Path, typer.Option(metavar="DIR", help="A folder with a folder for each dataset.")] = Path("data"),
    download: Annotated[
        bool, typer.Option("--download", help="Fetch what is absent there and can be fetched.")
    ] = False,
    results: Results = Path("results"),
    work: Annotated[Path, typer.Option(metavar="DIR", help="Encoders and checkpoints.")] = Path("runs/paper"),
    quick: Annotated[
        bool, typer.Option("--quick", help="Toy size, on drawn data: shows that all runs, not how well.")
    ] = False,
    on_ray: Annotated[bool, typer.Option("--ray", help="Spread over a Ray cluster (extra: ray).")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what is left to run.")] = False,
) -> None:
    """Run an experiment, or what is left of it: rows that are there are not measured again."""
    from dataclasses import replace

    from crowdshot.formatting import (
        command_line,  # here, as it needs NumPy, for which --help need not wait
        counted,
    )
    from crowdshot.training.episodes import as_range
    from crowdshot_paper import experiments as protocol
    from crowdshot_paper import parallel, runner
    from crowdshot_paper.experiments import chosen, joined_by
    from crowdshot_paper.work import Place, find_data

    size = protocol.QUICK if quick else protocol.PAPER
    if splits is not None:
        low, high = as_range(splits, "--splits")
        if not 0 <= low <= high <= protocol.PAPER.splits[-1]:
            raise CrowdshotError(f"--splits is {splits!r}, expected some of the five, 0:4.")
        size = replace(size, splits=tuple(range(low, high + 1)))
    experiments = joined_by(chosen(name), (word.strip() for word in (methods or "").split(",")))
    size = replace(
        size,
        episodes=episodes or size.episodes,
        iterations=iterations or size.iterations,
        precision=precision or size.precision,
        only=_pairs(only, runner.settings_of(experiments)),
        sizes=_sizes(cells, {cell.size for one in experiments for part in one.datasets for cell in one.cells(part)}),
    )
    work = work / "toy" if quick else work
    command = command_line(sys.argv[1:], ("--data", "--results", "--work"))
    place = Place(results, work, None if quick else data, size, command, download)
    run_all = parallel.run_all_on_ray if on_ray else parallel.run_all
    possible = (
        {word for one in experiments for word in one.datasets},
        {word for one in experiments for word in one.methods},
    )
    wanted = (experiments, _some(dataset, possible[0], "--dataset"), _some(methods, possible[1], "--methods"), place)
    left, devices = runner.missing(*wanted), parallel.devices(device)
    expected = runner.expect(left, place, devices) if left and not quick else []
    if dry_run:
        for line in (*runner.describe(left, place), *expected):
            typer.echo(line)
        return
    runner.tidy(experiments, place)
    find_data({piece.dataset for piece in left}, place)
    for sentence in expected:
        note(sentence)
    done = runner.run(left, place, devices, run_all)
    typer.echo(f"{counted(done, 'pieces')} run; {results} has all that was asked for.")


def tables(
    name: Annotated[str, typer.Argument(metavar="NAME", help="See `crowdshot paper list`; else all.")] = "all",
    results: Results = Path("results"),
    out: Out = None,
) -> None:
    """The paper's tables from what was run: as the paper selects, selected fairly, and beside the paper's numbers.

    Of each experiment: tables.md with all of them, and each as CSV and LaTeX.
    """
    from crowdshot_paper.paper_tables import make

    for line in make(name, results, out):
        typer.echo(line)


def figures(
    name: Annotated[str, typer.Argument(metavar="NAME", help="See `crowdshot paper list`; else all.")] = "all",
    results: Results = Path("results"),
    out: Out = None,
    work: Annotated[
        Path, typer.Option(metavar="DIR", help="Encoders, which `embedding` and `confusion` need the first time.")
    ] = Path("runs/paper"),
    data: Annotated[Path, typer.Option(metavar="DIR", help="Datasets; for the same two.")] = Path("data"),
    quick: Annotated[bool, typer.Option("--quick", help="Those two from what `run --quick` made.")] = False,
) -> None:
    """The paper's figures from what was run, as PNG and SVG; the paper's own values are hollow."""
    from crowdshot_paper import experiments as protocol
    from crowdshot_paper.figures import make
    from crowdshot_paper.work import Place

    work, size = (work / "toy", protocol.QUICK) if quick else (work, protocol.PAPER)
    for line in make(name, Place(results, work, None if quick else data, size), out):
        typer.echo(line)


def compare(
    one: Annotated[Path, typer.Argument(metavar="A", help="A folder with <experiment>/<dataset>/rows.parquet.")],
    other: Annotated[Path, typer.Argument(metavar="B", help="Another: a second training, another version.")],
    methods: Annotated[str | None, typer.Option(metavar="NAME,…", help="Else all that both have.")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE.csv", help="The table, with a row for each cell.")] = None,
) -> None:
    """Two stores side by side: cells that both have, paired by episode, B's difference from A's ± standard error."""
    from crowdshot.io.atomic import replacing
    from crowdshot_paper import paper_comparison

    table = paper_comparison.compare(
        one, other, None if methods is None else [name.strip() for name in methods.split(",")]
    )
    if out is not None:
        with replacing(out) as temporary:
            table.to_csv(temporary, index=False)
    typer.echo(paper_comparison.tell(table, one, other), nl=False)


def listing(
    work: Annotated[Path, typer.Option(metavar="DIR", help="Encoders that are there already.")] = Path("results"),
) -> None:
    """The experiments: what each shows, the data it needs, how long it takes, and what runs from kept encoders."""
    from crowdshot_paper import encoder_plan
    from crowdshot_paper.experiments import EXPERIMENTS

    for experiment in EXPERIMENTS.values():
        typer.echo("\n".join(encoder_plan.describe(experiment, work)))


def _pairs(text: str | None, possible: dict[str, set[float]]) -> tuple[tuple[str, float], ...]:
    """Settings by their names, each with a value that some candidate has."""
    given = as_values("only", text, "settings and numbers, such as steps=2,b=100", float) if text else {}
    pairs = tuple(given.items())
    _some(",".join(name for name, _ in pairs) or None, set(possible), "--only")
    for name, value in pairs:
        if value not in possible[name]:
            values = ", ".join(f"{one:g}" for one in sorted(possible[name]))
            raise CrowdshotError(f"--only is {name}={value:g}, expected one of {values} for {name}.")
    return pairs


def _sizes(text: str | None, possible: set[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    named = {f"{items}x{annotators}": (items, annotators) for items, annotators in sorted(possible)}
    return tuple(named[word] for word in _some(text, set(named), "--cells") or ())


def _some(text: str | None, possible: set[str], option: str) -> list[str] | None:
    if text is None:
        return None
    wanted = [word.strip() for word in text.split(",")]
    strange = next((word for word in wanted if word not in possible), None)
    if strange is not None:
        raise CrowdshotError(f"{option} is {strange!r}, expected some of {', '.join(sorted(possible))}.")
    return wanted


app.command("run", epilog=EXAMPLES)(handle_errors(run))
app.command("tables")(handle_errors(tables))
app.command("figures")(handle_errors(figures))
app.command("compare", epilog=COMPARE_EXAMPLES)(handle_errors(compare))
app.command("list")(handle_errors(listing))
