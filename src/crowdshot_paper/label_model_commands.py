"""``crowdshot train-inference``: train the network of `crowdshot aggregate` on simulated crowds and finished projects.

``fine_tune`` starts from the shipped network and cross-validates over projects: it trains without each project and its
relatives, and scores the network on them. If the mean log-loss is worse than that of the initial network, nothing is
written.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crowdshot._cli.console import handle_errors, print_json
from crowdshot._cli.options import (
    AsJson,
    Checkpoint,
    PanelCommand,
    flat,
    input_option,
    output_option,
    training_option,
)
from crowdshot.errors import CrowdshotError
from crowdshot.formatting import command_line, listing, plural
from crowdshot.io.json_text import INLINE, to_json
from crowdshot.progress import progress

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from crowdshot.training.simulated_crowds import World
    from crowdshot_paper.label_model_training import Floats, Scores, Settings
    from crowdshot_paper.projects import Project

    Network = dict[str, NDArray[np.float32]]


FIRST = 20  # iterations before the remaining time is estimated
DIGITS = 4  # of scores in reports and cards
ALL = "all"  # the value of leave_out that leaves all projects out


@dataclass(frozen=True)
class InferenceFiles:
    """Files of a training run.

    Parameters
    ----------
    out : Path
        The network to write.
    projects : Path, optional
        A folder of finished projects.
    leave_out : sequence of str
        Names of projects that are used for testing only, or "all".
    initial : Path, optional
        A network to start from.
    checkpoint : Path, optional
        The file that stores progress (default: a file next to ``out``).
    relatives : sequence of sequences of str
        Groups of projects that cross-validation leaves out together.
    """

    out: Path
    projects: Path | None = None
    leave_out: Sequence[str] = ()
    initial: Path | None = None
    checkpoint: Path | None = None
    relatives: Sequence[Sequence[str]] = ()

    @property
    def progress(self) -> Path:
        """The file that stores progress."""
        return self.checkpoint or self.out.with_name(f"{self.out.name}.checkpoint")

    def fold_progress(self, number: int) -> Path:
        return self.progress.with_name(f"{self.progress.name}.fold-{number}")


class _StoppedError(Exception):
    """Training was interrupted, and the checkpoint is written."""


@dataclass
class _Training:
    """Trains networks with the same settings, and collects their checkpoints."""

    world: World
    settings: Settings
    initial: Mapping[str, Floats] | None
    stop: Callable[[], bool]
    checkpoints: list[Path] = field(default_factory=list)

    def run(self, projects: Sequence[Project], checkpoint: Path, title: str) -> Network:
        from crowdshot_paper.label_model_training import train

        self.checkpoints.append(checkpoint)
        with _progress_with_estimate(title) as tick:
            network = train(
                projects,
                self.world,
                self.settings,
                initial=self.initial,
                checkpoint=checkpoint,
                tick=tick,
                stop=self.stop,
            )
        if network is None:
            raise _StoppedError
        return network


Scored = dict[str, dict[str, Any]]  # {project: {score: value}}


@dataclass(frozen=True)
class CrossValidation:
    """Scores of networks trained without each project and its relatives, and of the initial network."""

    scores_without: Scored
    scores_before: Scored


@dataclass(frozen=True)
class Trained:
    """How a network was trained, and its scores on the projects for training and on those left out."""

    iterations: int
    seed: int
    seconds: float
    learned_from: list[str]
    scores: Scored
    scores_left_out: Scored


@dataclass(frozen=True)
class NetworkResult:
    """The result of a run: ``files`` are the network, or the checkpoint of an interrupted run."""

    interrupted: bool
    validation: CrossValidation | None = field(metadata=INLINE)
    trained: Trained | None = field(metadata=INLINE)
    files: list[Path]


def run_train_inference(
    files: InferenceFiles,
    iterations: int | None = None,
    seed: int = 0,
    fine_tune: bool = False,
    command: Sequence[str] = (),
) -> NetworkResult:
    """Train a network and save it with a card that describes its training.

    An interrupted run (``interrupted`` in the result) continues when it is called again with the same arguments.
    """
    from crowdshot.io.atomic import check_writable
    from crowdshot.model.label_model import SHIPPED, load_network, save_network
    from crowdshot.training.distributed import interruptions
    from crowdshot.training.simulated_crowds import World
    from crowdshot_paper.label_model_training import score_each
    from crowdshot_paper.projects import read_projects

    check_writable(files.out)
    check_writable(files.progress)
    if fine_tune and files.projects is None:
        expected = "a folder of finished projects for fine-tuning"
        raise CrowdshotError("is missing", argument="projects", expected=expected)
    initial = load_network(files.initial or SHIPPED) if fine_tune or files.initial else None
    settings = _settings(iterations, seed, fine_tune)
    projects = [] if files.projects is None else read_projects(files.projects)
    kept, left_out = _divide(projects, files.leave_out)
    began = time.monotonic()
    validation: CrossValidation | None = None
    try:
        with interruptions() as interrupted:
            training = _Training(World(), settings, initial, interrupted)
            if fine_tune:
                validation = _cross_validate(training, kept, files)
            network = training.run(kept, files.progress, "training")
    except _StoppedError:
        return NetworkResult(True, None, None, [files.progress])
    trained = Trained(
        iterations=settings.iterations,
        seed=seed,
        seconds=round(time.monotonic() - began, 2),
        learned_from=[project.name for project in kept],
        scores=_rounded(score_each(network, kept)),
        scores_left_out=_rounded(score_each(network, left_out)),
    )
    result = NetworkResult(False, validation, trained, [files.out])
    save_network(files.out, network, _card(result, training.world, settings, files, fine_tune, command))
    for checkpoint in training.checkpoints:
        checkpoint.unlink(missing_ok=True)
    return result


def _settings(iterations: int | None, seed: int, fine_tune: bool) -> Settings:
    from crowdshot_paper.label_model_training import GENTLE_ITERATIONS, GENTLE_LEARNING_RATE, Settings

    settings = Settings(seed=seed)
    if fine_tune:
        settings = Settings(GENTLE_ITERATIONS, seed, learning_rate=GENTLE_LEARNING_RATE)
    return settings if iterations is None else replace(settings, iterations=iterations)


def _divide(projects: list[Project], leave_out: Sequence[str]) -> tuple[list[Project], list[Project]]:
    """Return the projects for training and those for testing."""
    names = [project.name for project in projects]
    if list(leave_out) == [ALL]:
        return [], projects
    for name in leave_out:
        if name not in names:
            expected = f"names of projects, {listing(names)}" if names else "no names, as there are no projects"
            raise CrowdshotError(f"has {name!r}", argument="leave_out", found=name, expected=expected)
    return [p for p in projects if p.name not in leave_out], [p for p in projects if p.name in leave_out]


def _cross_validate(training: _Training, projects: Sequence[Project], files: InferenceFiles) -> CrossValidation:
    """Score networks on the projects they were trained without; refuse to continue if the initial network is better."""
    from crowdshot_paper.label_model_training import mean_log_loss, score_each, train_folds

    assert training.initial is not None

    def without(number: int, others: list[Project]) -> Network:
        return training.run(others, files.fold_progress(number), f"fold {number + 1}")

    tuned: dict[str, Scores] = {}
    for fold in train_folds(projects, files.relatives, without):
        tuned |= score_each(fold.network, fold.left_out)
    before = score_each(training.initial, projects)
    after_loss, before_loss = mean_log_loss(tuned), mean_log_loss(before)
    if not after_loss <= before_loss:
        worst = max(tuned, key=lambda name: tuned[name].log_loss - before[name].log_loss)
        raise CrowdshotError(
            f"Fine-tuning makes predictions on left-out projects worse: log-loss {after_loss:.4f} (worst on {worst!r})",
            argument="projects",
            found=round(after_loss, DIGITS),
            expected=f"at most {before_loss:.4f}, the log-loss of the initial network",
            hint="No file was written",
        )
    return CrossValidation(_rounded(tuned), _rounded(before))


@contextmanager
def _progress_with_estimate(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show progress, and once print an estimate of the remaining time."""
    began: tuple[float, int] | None = None
    has_estimate = False

    def tick(done: int, total: int) -> None:
        nonlocal began, has_estimate
        if began is None:
            began = time.monotonic(), done
        elif not has_estimate and done - began[1] >= FIRST:
            has_estimate = True
            left = (time.monotonic() - began[0]) / (done - began[1]) * (total - done)
            print(f"{title}: {_duration(left)} for {total - done:,} more iterations", file=sys.stderr, flush=True)
        show(done, total)

    with progress(title) as show:
        yield tick


def _duration(seconds: float) -> str:
    return (
        f"about {plural(max(1, round(seconds)), 'second') if seconds < 90 else plural(round(seconds / 60), 'minute')}"
    )


def _rounded(scored: Mapping[str, Scores]) -> Scored:
    return {
        name: {
            key: round(value, DIGITS) if isinstance(value, float) else value for key, value in each._asdict().items()
        }
        for name, each in scored.items()
    }


def _card(
    result: NetworkResult,
    world: World,
    settings: Settings,
    files: InferenceFiles,
    fine_tune: bool,
    command: Sequence[str],
) -> dict[str, Any]:
    import torch

    found = to_json(result)
    started = "the shipped network" if fine_tune and files.initial is None else files.initial and files.initial.name
    return {
        "command": command_line(command) if command else "",
        "learned_from": {"world": world.to_card(), "projects": found["learned_from"]},
        "started_from": started,
        "settings": vars(settings),
        "trained_with": {"torch": torch.__version__},
        **{key: value for key, value in found.items() if key.startswith("scores")},
    }


def summarise(result: NetworkResult) -> str:
    """Return the result as text."""
    if result.trained is None:
        return f"Interrupted. Repeat the command to continue from {result.files[0]}."
    tables = {"used for training": result.trained.scores, "left out": result.trained.scores_left_out}
    if result.validation is not None:
        without, before = result.validation.scores_without, result.validation.scores_before
        tables = {"left out, trained without it": without, "left out, the initial network": before, **tables}
    lines = [line for title, scored in tables.items() if scored for line in (*_table(title, scored), "")]
    return "\n".join([*lines, *map(str, result.files)])


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


# ---- crowdshot train-inference ----


# "\b" keeps the line breaks
EXAMPLES = """\b
Examples:
  crowdshot train-inference --out network.safetensors
  crowdshot train-inference --projects past --leave-out birds,fish --out network.safetensors
  crowdshot train-inference --projects past --fine-tune --relatives birds=more-birds --out ours.safetensors
"""


@dataclass(frozen=True)
class ProjectOptions:
    """Options that select the training data."""

    projects: Annotated[
        Path | None,
        input_option(
            metavar="DIR",
            help="Finished projects to learn from, in addition to simulated annotators: a folder per project, with"
            " answers.csv (item, annotator, label) and truth.csv (item, truth).",
        ),
    ] = None
    leave_out: Annotated[
        str | None, input_option(metavar="NAME,…|all", help="Projects for testing, not for training.")
    ] = None
    relatives: Annotated[
        str | None,
        input_option(
            metavar="A=B=C,…",
            help="Projects with common items or annotators, which cross-validation leaves out together.",
        ),
    ] = None


@dataclass(frozen=True)
class TrainingOptions:
    """Options of the training itself."""

    fine_tune: Annotated[
        bool,
        training_option(
            "--fine-tune",
            help="Start from the shipped network (or --initial). Test by cross-validation over projects, and write"
            " nothing if the network is worse than the one it started from.",
        ),
    ] = False
    iterations: Annotated[
        int | None,
        training_option(
            min=1, help="The number of iterations (default: 500, or 200 with --fine-tune).", show_default=False
        ),
    ] = None
    seed: Annotated[int, training_option(min=0, help="The random seed: the same seed gives the same result.")] = 0
    initial: Annotated[Path | None, training_option(metavar="FILE", help="A network to start from.")] = None


@flat
def train_inference(
    out: Annotated[Path, output_option("--out", metavar="FILE", help="The network to write.")],
    data: ProjectOptions,
    training: TrainingOptions,
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
) -> None:
    """Train the network of `crowdshot aggregate`.

    It learns from simulated annotators, and from your finished projects. If training is interrupted, repeat the same
    command to continue.
    """
    groups = [_group(part) for part in _names(data.relatives)]
    files = InferenceFiles(out, data.projects, _names(data.leave_out), training.initial, checkpoint, groups)
    result = run_train_inference(files, training.iterations, training.seed, training.fine_tune, sys.argv[1:])
    if as_json:
        print_json(result, err=result.interrupted)
    else:
        typer.echo(summarise(result), err=result.interrupted)
    if result.interrupted:
        raise SystemExit(130)


def _names(text: str | None) -> list[str]:
    return [] if text is None else [part.strip() for part in text.split(",") if part.strip()]


def _group(text: str) -> list[str]:
    names = [part.strip() for part in text.split("=")]
    if len(names) < 2 or not all(names):
        expected = "names of projects, such as a=b=c,d=e"
        raise CrowdshotError(f"is {text!r}", argument="relatives", found=text, expected=expected)
    return names


app = typer.Typer(rich_markup_mode=None)
app.command("train-inference", cls=PanelCommand, epilog=EXAMPLES)(handle_errors(train_inference, "paper"))
