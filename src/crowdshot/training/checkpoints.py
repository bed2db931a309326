"""Save and load checkpoints: the complete state from which a `Trainer` continues an interrupted run."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from crowdshot.errors import CrowdshotError
from crowdshot.io.cards import read_safetensors, write_safetensors

if TYPE_CHECKING:
    from crowdshot.training.pools import ClassPool
    from crowdshot.training.trainer import Trainer


COUNTERS = ("loss_sum", "finite_steps")
START_AGAIN = "Remove the file to start the training again"
SAMPLE = 100_000  # values of the pool that enter its checksum, approximately


def save(path: Path, trainer: Trainer) -> None:
    """Save a checkpoint atomically: the previous one stays until the new one is complete."""
    tensors = {f"now.{k}": v for k, v in trainer.snapshot().items()}
    tensors |= {f"best.{k}": v for k, v in trainer.best.items()}
    tensors |= {f"generator.{i}": g.get_state() for i, g in enumerate(trainer.generators)}
    tensors |= {name: getattr(trainer, name) for name in COUNTERS}
    for i, state in enumerate(_adam(trainer)):
        tensors |= {f"adam.{i}.{k}": torch.as_tensor(v) for k, v in state.items()}
    card = {
        "kind": "checkpoint",
        "run": describe(trainer),
        "iteration": trainer.iteration,
        "best_accuracy": trainer.best_accuracy,
        "since_best": trainer.since_best,
        "resting": trainer.resting,
    }
    write_safetensors(path, tensors, card)


def load(path: Path, trainer: Trainer) -> None:
    """Load a checkpoint into a new trainer of the same run."""
    tensors, card = read_safetensors(path, "checkpoint")
    check_same_run(path, card.get("run"), describe(trainer))

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
        trainer.iteration = int(card["iteration"])
        trainer.best_accuracy, trainer.since_best, trainer.resting = (
            list(card[k]) for k in ("best_accuracy", "since_best", "resting")
        )
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise CrowdshotError(
            f"is damaged or incomplete ({type(error).__name__}: {error})",
            where=path,
            expected="a checkpoint",
            hint=START_AGAIN,
        ) from None


def describe(trainer: Trainer) -> dict[str, Any]:
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
