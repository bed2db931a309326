"""What ``crowdshot train-inference`` does: simulated crowds and finished projects -> the network of `aggregate`.

``fine_tune`` starts from the shipped network, and leaves each project out once, with its relatives: what was learned
without it is scored on it. Where that is worse than the shipped network, nothing is written.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdshot._cli.console import handle_errors
from crowdshot._cli.options import AsJson
from crowdshot._cli.parameters import INPUT, OUTPUT, TRAINING, PanelCommand
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import command_line, listing, plural
from crowdshot.progress import progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from crowdshot._cli.inputs import Report
    from crowdshot.training.simulated_crowds import World
    from crowdshot_paper.label_model_training import Scores, Settings
    from crowdshot_paper.projects import Project

    Network = dict[str, NDArray[np.float32]]


FIRST = 20  # iterations, after which it can be said how long it takes
DIGITS = 4  # of scores on a card
ALL = "all"  # projects are left out


@dataclass(frozen=True)
class InferenceFiles:
    """What the inference learns from, where it goes, and which projects are kept from it.

    ``initial`` is a network to start from; ``relatives`` are groups of projects that are left out together.
    """

    out: Path
    projects: Path | None = None
    leave_out: Sequence[str] = ()
    initial: Path | None = None
    checkpoint: Path | None = None
    relatives: Sequence[Sequence[str]] = ()

    @property
    def progress(self) -> Path:
        """Where it is kept while training runs."""
        return self.checkpoint or self.out.with_name(f"{self.out.name}.checkpoint")

    def fold_progress(self, number: int) -> Path:
        return self.progress.with_name(f"{self.progress.name}.fold-{number}")


class _StoppedError(Exception):
    """Someone asked to; the checkpoint is written."""


def run_train_inference(
    files: InferenceFiles,
    iterations: int | None = None,
    seed: int = 0,
    fine_tune: bool = False,
    command: Sequence[str] = (),
) -> Report:
    """Learn a network and save it, with a card that says how it came about.

    An interrupted run (``"interrupted"`` in the report) goes on when it is started again in the same way.
    """
    from crowdshot.io.atomic import check_writable
    from crowdshot.model.label_model import SHIPPED, load_network, save_network
    from crowdshot.training.distributed import interruptions
    from crowdshot.training.simulated_crowds import World
    from crowdshot_paper.label_model_training import (
        GENTLE_ITERATIONS,
        GENTLE_LEARNING_RATE,
        Settings,
        score_each,
        train,
    )
    from crowdshot_paper.projects import read_projects

    check_writable(files.out)
    check_writable(files.progress)
    if fine_tune and files.projects is None:
        raise CrowdshotError("projects is missing, expected a folder of finished projects to fine-tune on.")
    initial = load_network(files.initial or SHIPPED) if fine_tune or files.initial else None
    gentle = Settings(GENTLE_ITERATIONS, seed, learning_rate=GENTLE_LEARNING_RATE)
    settings = gentle if fine_tune else Settings(seed=seed)
    settings = settings if iterations is None else replace(settings, iterations=iterations)
    projects = [] if files.projects is None else read_projects(files.projects)
    kept, left_out = _divide(projects, files.leave_out)
    world = World()
    began = time.monotonic()
    report: Report = {"interrupted": False}
    made = [files.progress]
    try:
        with interruptions() as interrupted:

            def learn(some: Sequence[Project], checkpoint: Path, what: str) -> Network:
                with _telling(what) as tick:
                    learned = train(
                        some,
                        world,
                        settings,
                        initial=initial,
                        checkpoint=checkpoint,
                        tick=tick,
                        stop=interrupted,
                    )
                if learned is None:
                    raise _StoppedError
                return learned

            if fine_tune:
                assert initial is not None

                def without(number: int, others: list[Project]) -> Network:
                    made.append(files.fold_progress(number))
                    return learn(others, made[-1], f"fold {number + 1}")

                report |= _judge(kept, files.relatives, initial, without)
            network = learn(kept, files.progress, "learning")
    except _StoppedError:
        return {"interrupted": True, "files": [str(files.progress)]}
    report |= {
        "iterations": settings.iterations,
        "seed": seed,
        "seconds": round(time.monotonic() - began, 2),
        "learned_from": [project.name for project in kept],
        "scores": _rounded(score_each(network, kept)),
        "scores_left_out": _rounded(score_each(network, left_out)),
        "files": [str(files.out)],
    }
    save_network(files.out, network, _card(report, world, settings, files, fine_tune, command))
    for checkpoint in made:
        checkpoint.unlink(missing_ok=True)
    return report


def _divide(projects: list[Project], leave_out: Sequence[str]) -> tuple[list[Project], list[Project]]:
    """Those to learn from, and those left out."""
    names = [project.name for project in projects]
    if list(leave_out) == [ALL]:
        return [], projects
    for name in leave_out:
        if name not in names:
            there_are = listing(names) or "of which there are none"
            raise CrowdshotError(f"leave_out has {name!r}, expected names of projects, {there_are}.")
    return [p for p in projects if p.name not in leave_out], [p for p in projects if p.name in leave_out]


def _judge(
    projects: Sequence[Project],
    relatives: Sequence[Sequence[str]],
    shipped: Mapping[str, Any],
    learn: Callable[[int, list[Project]], Network],
) -> Report:
    """Scores on each project of what was learned without it, and the shipped network's; refused where no better."""
    from crowdshot_paper.label_model_training import mean_log_loss, score_each, train_folds

    tuned: dict[str, Scores] = {}
    for fold in train_folds(projects, relatives, learn):
        tuned |= score_each(fold.network, fold.left_out)
    before = score_each(shipped, projects)
    ours, theirs = mean_log_loss(tuned), mean_log_loss(before)
    if not ours <= theirs:
        worst = max(tuned, key=lambda name: tuned[name].log_loss - before[name].log_loss)
        raise CrowdshotError(
            f"the network has log-loss {ours:.4f} on projects left out (worst of all on {worst!r}), expected no more "
            f"than the {theirs:.4f} of the one it started from; nothing was written."
        )
    return {"scores_without": _rounded(tuned), "scores_before": _rounded(before)}


@contextmanager
def _telling(what: str) -> Iterator[Callable[[int, int], None]]:
    """Progress, and once how long it will take."""
    began: tuple[float, int] | None = None
    told = False

    def tick(done: int, total: int) -> None:
        nonlocal began, told
        if began is None:
            began = time.monotonic(), done
        elif not told and done - began[1] >= FIRST:
            told = True
            left = (time.monotonic() - began[0]) / (done - began[1]) * (total - done)
            print(f"{what}: {_duration(left)} for {total - done:,} more iterations", file=sys.stderr, flush=True)
        show(done, total)

    with progress(what) as show:
        yield tick


def _duration(seconds: float) -> str:
    return (
        f"about {plural(max(1, round(seconds)), 'second') if seconds < 90 else plural(round(seconds / 60), 'minute')}"
    )


def _rounded(scored: Mapping[str, Scores]) -> dict[str, dict[str, Any]]:
    return {
        name: {
            key: round(value, DIGITS) if isinstance(value, float) else value for key, value in each._asdict().items()
        }
        for name, each in scored.items()
    }


def _card(
    report: Report, world: World, settings: Settings, files: InferenceFiles, fine_tune: bool, command: Sequence[str]
) -> dict[str, Any]:
    import torch

    started = "the shipped network" if fine_tune and files.initial is None else files.initial and files.initial.name
    return {
        "command": command_line(command) if command else "",
        "learned_from": {"world": world.to_card(), "projects": report["learned_from"]},
        "started_from": started,
        "settings": vars(settings),
        "trained_with": {"torch": torch.__version__},
        **{key: value for key, value in report.items() if key.startswith("scores")},
    }


def tell(report: Report) -> str:
    """The report for a person."""
    if report["interrupted"]:
        return f"interrupted; the same command goes on from {report['files'][0]}"
    lines = []
    for key, title in (
        ("scores_without", "left out, learned without it"),
        ("scores_before", "the same by the network it started from"),
        ("scores", "learned from"),
        ("scores_left_out", "left out"),
    ):
        if report.get(key):
            lines += [*_table(title, report[key]), ""]
    return "\n".join([*lines, *report["files"]])


def _table(title: str, scored: Mapping[str, Mapping[str, Any]]) -> list[str]:
    import numpy as np

    columns = ("accuracy", "log_loss", "over", "accepted", "right")
    rows = {**scored}
    if len(scored) > 1:
        rows["mean"] = {
            column: float(np.mean([each[column] for each in scored.values() if each[column] is not None] or [np.nan]))
            for column in columns
        }
    width = max(len(title), *map(len, rows))
    lines = [f"{title:<{width}}" + "".join(f"{column.replace('_', '-'):>10}" for column in columns)]
    for name, each in rows.items():
        cells = ("–" if each[column] is None else f"{each[column]:.3f}" for column in columns)
        lines.append(f"{name:<{width}}" + "".join(f"{cell:>10}" for cell in cells))
    return lines


# ---- train inference ------------------------------------------------------------
#
# ``crowdshot train-inference`` on the command line; `app` adds it.


# "\b" keeps the lines that follow as they are
EXAMPLES = """\b
Examples:
  crowdshot train-inference --out network.safetensors
  crowdshot train-inference --projects past --leave-out birds,fish --out network.safetensors
  crowdshot train-inference --projects past --fine-tune --relatives birds=more-birds --out ours.safetensors
"""


def train_inference(
    out: Annotated[Path, typer.Option("--out", metavar="FILE", help="The network to write.", rich_help_panel=OUTPUT)],
    projects: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Finished projects to learn from, in addition to simulated annotators: a folder per project, with"
            " answers.csv (item, annotator, label) and truth.csv (item, truth).",
            rich_help_panel=INPUT,
        ),
    ] = None,
    leave_out: Annotated[
        str | None,
        typer.Option(metavar="NAME,…|all", help="Projects for testing, not for training.", rich_help_panel=INPUT),
    ] = None,
    fine_tune: Annotated[
        bool,
        typer.Option(
            "--fine-tune",
            help="Start from the shipped network (or --initial). Test by cross-validation over projects, and write"
            " nothing if the network is worse than the one it started from.",
            rich_help_panel=TRAINING,
        ),
    ] = False,
    relatives: Annotated[
        str | None,
        typer.Option(
            metavar="A=B=C,…",
            help="Projects with common items or annotators, which cross-validation leaves out together.",
            rich_help_panel=INPUT,
        ),
    ] = None,
    iterations: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="The number of iterations (default: 500, or 200 with --fine-tune).",
            show_default=False,
            rich_help_panel=TRAINING,
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="The random seed: the same seed gives the same result.", rich_help_panel=TRAINING)
    ] = 0,
    initial: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A network to start from.", rich_help_panel=TRAINING)
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The file that stores progress (default: a file next to --out).",
            rich_help_panel=OUTPUT,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train the network of `crowdshot aggregate`.

    It learns from simulated annotators, and from your finished projects. If training is interrupted, repeat the same
    command to continue.
    """

    files = InferenceFiles(
        out, projects, _names(leave_out), initial, checkpoint, [_group(part) for part in _names(relatives)]
    )
    report = run_train_inference(files, iterations, seed, fine_tune, sys.argv[1:])
    typer.echo(json.dumps(report) if as_json else tell(report), err=report["interrupted"])
    if report["interrupted"]:
        raise SystemExit(130)


def _names(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _group(text: str) -> list[str]:
    names = [part.strip() for part in text.split("=")]
    if len(names) < 2 or not all(names):
        raise CrowdshotError(f"--relatives is {text!r}, expected names of projects like a=b=c,d=e.")
    return names


app = typer.Typer(rich_markup_mode=None)
app.command("train-inference", cls=PanelCommand, epilog=EXAMPLES)(handle_errors(train_inference))
