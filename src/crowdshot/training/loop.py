"""Meta-train encoders (the paper's Algorithm 1).

Each step draws an episode from the source classes, lets simulated annotators label its support set
(`crowdshot.training.episodes`), fits the mixture to these labels, and updates the encoder to lower the fitted
classifier's loss on the query items (`crowdshot.training.trainer`). Several jobs of the same shape are trained
together; each has its own classes, settings, episodes, best checkpoint and early stopping. A checkpoint is the complete
state from which interrupted training continues.
"""

from __future__ import annotations

import copy
import json
import math
import sys
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TextIO

import pandas as pd
import torch
from torch import Tensor

from crowdshot.encoders.encoder import Encoder
from crowdshot.errors import CrowdshotError
from crowdshot.io.atomic import write_file
from crowdshot.io.cards import count_in, read_safetensors, write_safetensors
from crowdshot.progress import Line
from crowdshot.training.distributed import Processes
from crowdshot.training.pools import ClassPool
from crowdshot.training.recipe import ALONE, Job
from crowdshot.training.trainer import Progress, Trainer

__all__ = ["Job", "Progress", "Trainer", "train"]


TRAINERS = "crowdshot.trainers"  # entry points: an objective's name -> a subclass of Trainer
CHECK_EVERY = 100  # steps between two checks that the loss is finite; a check waits for the device


def train(
    jobs: Sequence[Job],
    pool: ClassPool,
    *,
    precision: str = "float32",
    checkpoint: Path | None = None,
    checkpoint_every: int | None = None,
    report: Callable[[Progress], None] = lambda progress: None,
    tick: Callable[[int, int], None] = lambda done, total: None,
    stop: Callable[[], bool] = lambda: False,
    world: Processes | None = None,
) -> list[Encoder] | None:
    """Train every job on the pool's device.

    Parameters
    ----------
    jobs : sequence of Job
        Models to train together. Recipes may differ only as `crowdshot.training.recipe.SHARED` allows.
    pool : ClassPool
        The classes to learn from, on the device to use.
    precision : str
        "float32", or "bfloat16" for the network; the mixture always uses float32.
    checkpoint : Path, optional
        Save progress to this file after every validation, and continue from it if it exists. On a CPU the result is
        bit-identical to that of an uninterrupted run. The file is not removed at the end.
    checkpoint_every : int, optional
        Also save every so many steps.
    report : callable
        Called with `Progress` after every validation.
    tick : callable
        Called with (steps done, steps in all) after every step.
    stop : callable
        Return True to stop: the current step is finished and a checkpoint is saved.
    world : Processes, optional
        The processes that share the work.

    Returns
    -------
    list of Encoder or None
        The encoders with the weights of their best validation and a filled card; None if the run was stopped.

    Examples
    --------
    >>> import torch
    >>> from crowdshot import ClassPool, Job, Recipe, build_encoder, train
    >>> from crowdshot.encoders.feature_input import FeatureInput
    >>> pool = ClassPool.from_arrays(torch.randn(80, 6), [f"class {i % 8}" for i in range(80)])
    >>> encoder = build_encoder("mlp", {"n_features": 6, "n_out": 4}, FeatureInput(6))
    >>> recipe = Recipe(ways=(3, 3), shots=(1, 2), queries=3, iterations=4, validate_every=2, validation_episodes=2)
    >>> (trained,) = train([Job(encoder, range(5), range(5, 8), recipe)], pool)
    >>> trained.card["recipe"]["iterations"]
    4
    """
    trainer = trainer_of(jobs, pool, precision, world or Processes())
    recipe = trainer.recipe
    if checkpoint is not None and checkpoint.exists():
        load_checkpoint(checkpoint, trainer)
    while trainer.iteration < recipe.iterations and not all(trainer.resting):
        trainer.step()
        tick(trainer.iteration, recipe.iterations)
        stopping = trainer.world.any(stop())
        due = trainer.iteration % recipe.validate_every == 0 or trainer.iteration == recipe.iterations
        saving = due or stopping or (checkpoint_every is not None and trainer.iteration % checkpoint_every == 0)
        if saving or trainer.iteration % CHECK_EVERY == 0:
            trainer.check_finite()
        if due:
            report(trainer.validate())
        if checkpoint is not None and saving and trainer.world.leads:
            save_checkpoint(checkpoint, trainer)
        if stopping and trainer.iteration < recipe.iterations:
            return None
    return trainer.finish()


def trainer_of(jobs: Sequence[Job], pool: ClassPool, precision: str, world: Processes) -> Trainer:
    """Return the trainer for the jobs' objective; other packages register trainers as entry points (`TRAINERS`)."""
    objective = jobs[0].recipe.objective
    if objective not in ALONE:
        return Trainer(jobs, pool, precision, world)
    (entry,) = entry_points(group=TRAINERS, name=objective)
    trainer: Trainer = entry.load()(jobs, pool, precision, world)
    return trainer


# ---- expected duration ----


STEPS, LONGEST = 5, 3.0  # steps to time, and the seconds after which no further step is started
QUICK = 1.0  # seconds; a first step that takes longer is its own estimate
EPISODES = 2  # validation episodes to time


def expected_seconds(jobs: Sequence[Job], pool: ClassPool, precision: str = "float32") -> float:
    """Estimate the duration of a training run from a few steps of a copy; the jobs are not changed."""
    recipe = jobs[0].recipe
    short = [
        replace(job, encoder=copy.deepcopy(job.encoder), recipe=replace(job.recipe, validation_episodes=EPISODES))
        for job in jobs
    ]
    trial = trainer_of(short, pool, precision, Processes())
    began = time.monotonic()
    trial.step()
    step = time.monotonic() - began
    if step < QUICK:  # the first step includes one-time work; measure later ones instead
        done, began = 0, time.monotonic()
        while done < STEPS and (done == 0 or time.monotonic() - began < LONGEST):
            trial.step()
            done += 1
        step = (time.monotonic() - began) / done
    began = time.monotonic()
    trial.validate()
    episode = (time.monotonic() - began) / EPISODES
    validations = math.ceil(recipe.iterations / recipe.validate_every)
    return recipe.iterations * step + validations * recipe.validation_episodes * episode


# ---- log: one line that is rewritten on a terminal or several lines on stderr, and history.csv ----


COLUMNS = ["iteration", "loss", "accuracy", "best", "seconds"]
EVERY = 30.0  # seconds between two lines without a validation
REFRESH = 0.1  # seconds between two updates of the line on a terminal


class TrainingLog:
    """Log the first model of a run to stderr and to the CSV file ``history``.

    If ``resumed``, rows of an earlier part of the run are kept.
    """

    history: Path
    stream: TextIO
    rows: list[dict[str, Any]]
    began: float
    logged: float

    def __init__(self, history: Path, resumed: bool = False, stream: TextIO | None = None) -> None:
        self.history, self.stream = history, sys.stderr if stream is None else stream
        self.rows = _read(history) if resumed else []
        self.before: float | None = None  # seconds that earlier parts of the run took
        self.began = self.logged = time.monotonic()
        self.first: int | None = None
        self.last: Progress | None = None
        self.line = Line(self.stream) if self.stream.isatty() else None

    def tick(self, done: int, total: int) -> None:
        """Update the log after a step."""
        if self.first is None:
            self.first, self.began = done - 1, time.monotonic()
            self.rows = [row for row in self.rows if row["iteration"] < done]
            self.before = self.rows[-1]["seconds"] if self.rows else 0.0
            if self.first:
                print(f"continuing from iteration {self.first:,} of {total:,}", file=self.stream, flush=True)
        if self.line is None:
            if time.monotonic() - self.logged >= EVERY:
                self._print(done, total, "")
        elif done == total or time.monotonic() - self.logged >= REFRESH:
            self.logged = time.monotonic()
            self.line.rewrite(f"iteration {done:,}/{total:,}, {_short(self.last)}{self._pace(done, total)}")

    def report(self, progress: Progress) -> None:
        """Update the log after a validation."""
        for model, step in enumerate(progress.diverged):
            if step is not None and (self.last is None or self.last.diverged[model] is None):
                message = f"model {model}: the loss is not finite since iteration {step:,}; training the other models"
                print(message, file=self.stream, flush=True)
        self.last = progress
        assert self.before is not None
        values = (
            progress.iteration,
            progress.loss[0],
            progress.accuracy[0],
            progress.best[0],
            round(self.before + time.monotonic() - self.began, 2),
        )
        self.rows.append(dict(zip(COLUMNS, values, strict=True)))
        write_file(self.history, pd.DataFrame(self.rows, columns=COLUMNS))
        if self.line is None:
            self._print(progress.iteration, progress.iterations, f", {_scores(progress)}")

    def close(self) -> None:
        if self.line is not None and self.line.width:  # the last state stays
            print(file=self.stream, flush=True)

    def _pace(self, done: int, total: int) -> str:
        rate = (done - (self.first or 0)) / max(time.monotonic() - self.began, 1e-9)
        return f"{rate:.3g} iterations/s, {_duration((total - done) / rate)} left"

    def _print(self, done: int, total: int, scores: str) -> None:
        self.logged = time.monotonic()
        print(f"iteration {done:,}/{total:,}{scores}, {self._pace(done, total)}", file=self.stream, flush=True)


def _short(last: Progress | None) -> str:
    """Return the scores for the line of a terminal, which has 80 columns in all."""
    return f"loss {last.loss[0]:.4f}, accuracy {last.accuracy[0]:.4f}, " if last else ""


def _scores(progress: Progress) -> str:
    best = f" (best {progress.best[0]:.4f})" if progress.best[0] >= 0 else ""
    return f"loss {progress.loss[0]:.4f}, validation accuracy {progress.accuracy[0]:.4f}{best}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes // 60}:{minutes % 60:02d}:{rest:02d}"


def _read(history: Path) -> list[dict[str, Any]]:
    """Read the rows of an earlier part of the run; raise an error instead of overwriting another file."""
    if not history.exists():
        return []
    try:
        rows = pd.read_csv(history)
        if list(rows.columns) == COLUMNS:
            return [{str(k): v for k, v in row.items()} for row in rows.to_dict("records")]
    except (OSError, ValueError):
        pass
    raise CrowdshotError(
        "is not the history of a training run",
        where=history,
        expected=f"a table with the columns {', '.join(COLUMNS)}",
        hint="Move the file away, or choose another folder",
    )


# ---- checkpoints: the complete state of a `Trainer` ----


COUNTERS = ("loss_sum", "finite_steps")
START_AGAIN = "Remove the file to start the training again"
SAMPLE = 100_000  # values of the pool that enter its checksum, approximately


def save_checkpoint(path: Path, trainer: Trainer) -> None:
    """Save a checkpoint atomically: the previous one stays until the new one is complete."""
    tensors = {f"now.{k}": v for k, v in trainer.snapshot().items()}
    tensors |= {f"best.{k}": v for k, v in trainer.best.items()}
    tensors |= {f"generator.{i}": g.get_state() for i, g in enumerate(trainer.generators)}
    tensors |= {name: getattr(trainer, name) for name in COUNTERS}
    for i, state in enumerate(_adam(trainer)):
        tensors |= {f"adam.{i}.{k}": torch.as_tensor(v) for k, v in state.items()}
    card = {
        "kind": "checkpoint",
        "run": description_of(trainer),
        "iteration": trainer.iteration,
        "best_accuracy": trainer.best_accuracy,
        "validation_accuracies": trainer.validation_accuracies,
        "since_best": trainer.since_best,
        "resting": trainer.resting,
    }
    write_safetensors(path, tensors, card)


def load_checkpoint(path: Path, trainer: Trainer) -> None:
    """Load a checkpoint into a new trainer of the same run."""
    tensors, card = read_safetensors(path, "checkpoint")
    check_same_run(path, card.get("run"), description_of(trainer))

    def part(prefix: str) -> dict[str, Tensor]:
        return {k.removeprefix(prefix): v.to(trainer.device) for k, v in tensors.items() if k.startswith(prefix)}

    try:
        trainer.restore(part("now."))
        trainer.best = part("best.")
        for name in COUNTERS:
            getattr(trainer, name).copy_(tensors[name])
        for i, generator in enumerate(trainer.generators):
            generator.set_state(tensors[f"generator.{i}"])
        parameters = [p for group in trainer.optimizer.param_groups for p in group["params"]]
        for i, parameter in enumerate(parameters):
            state = {k: tensors[f"adam.{i}.{k}"] for k in ("step", "exp_avg", "exp_avg_sq")}
            on_gpu = trainer.device.type == "cuda"
            trainer.optimizer.state[parameter] = {
                k: v.to(trainer.device) if on_gpu or k != "step" else v for k, v in state.items()
            }
        trainer.iteration = count_in(card, "iteration")
        trainer.best_accuracy, trainer.since_best, trainer.resting = (
            list(card[k]) for k in ("best_accuracy", "since_best", "resting")
        )
        trainer.validation_accuracies = [list(each) for each in card.get("validation_accuracies", [])]  # since 0.3
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise CrowdshotError(
            f"is damaged or incomplete ({type(error).__name__}: {error})",
            where=path,
            expected="a checkpoint",
            hint=START_AGAIN,
        ) from None


def description_of(trainer: Trainer) -> dict[str, Any]:
    """Return the settings that must not change between a run and its continuation, as JSON data."""
    run = {
        "recipes": [job.recipe.to_card() for job in trainer.jobs],
        "classes": [[list(job.source), list(job.validation)] for job in trainer.jobs],
        "architecture": [trainer.jobs[0].encoder.architecture, trainer.jobs[0].encoder.arguments],
        "pool": _fingerprint(trainer.pool),
        "precision": trainer.precision,
    }
    return dict(json.loads(json.dumps(run)))


def _fingerprint(pool: ClassPool) -> list[Any]:
    """Return the shape of the examples, and a checksum of names, labels and some of the examples."""
    values = pool.examples.flatten()
    some = values[:: max(1, len(values) // SAMPLE)].cpu().contiguous()
    checksum = zlib.crc32(some.numpy().tobytes(), zlib.crc32("\n".join(pool.names).encode(errors="backslashreplace")))
    if pool.crowd_labels is not None:
        checksum = zlib.crc32(pool.crowd_labels.cpu().numpy().tobytes(), checksum)
    return [*pool.examples.shape, checksum]


def _adam(trainer: Trainer) -> list[dict[str, Any]]:
    parameters = [p for group in trainer.optimizer.param_groups for p in group["params"]]
    return [trainer.optimizer.state[p] for p in parameters]


def check_same_run(path: Path, found: Any, expected: dict[str, Any]) -> None:
    """Raise an error that names the first difference between a checkpoint's run and this one."""
    if found == expected:
        return
    for name, value in expected.items():
        saved = found.get(name) if isinstance(found, dict) else None
        if saved == value:
            continue
        if name == "recipes" and isinstance(saved, list) and len(saved) == len(value):
            recipes = [recipe if isinstance(recipe, dict) else {} for recipe in saved]
            pairs = ((k, old.get(k), v) for old, new in zip(recipes, value, strict=True) for k, v in new.items())
            name, saved, value = next(((k, old, v) for k, old, v in pairs if old != v), (name, saved, value))
        difference = f"{name} was {saved!r} and is now {value!r}" if len(repr(value)) < 100 else f"{name} differs"
        raise CrowdshotError(
            f"is the checkpoint of a different run: {difference}", where=path, found=name, hint=START_AGAIN
        )
