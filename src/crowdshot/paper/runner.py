"""Runs experiments: finds what is missing, meta-trains what that needs, tests, stores. Safe to interrupt anywhere."""

from __future__ import annotations

import platform
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import sklearn
import torch

import crowdshot
from crowdshot.errors import CrowdshotError
from crowdshot.paper import encoders
from crowdshot.paper.cells import TARGETS
from crowdshot.paper.experiments import EXPERIMENTS, SYSTEMS, Experiment
from crowdshot.paper.store import Piece, Store
from crowdshot.paper.work import Settings, device_name, needed, test_one, train_one
from crowdshot.progress import progress


def chosen(names: str) -> list[Experiment]:
    """Experiments by their names, with commas between them, or all."""
    if names == "all":
        return list(EXPERIMENTS.values())
    wanted = dict.fromkeys(name.strip() for name in names.split(","))
    strange = [name for name in wanted if name not in EXPERIMENTS]
    if strange:
        raise CrowdshotError(f"experiment {strange[0]!r} is not known, expected {', '.join(EXPERIMENTS)} or all.")
    return [EXPERIMENTS[name] for name in wanted]


def run(
    experiments: Sequence[Experiment],
    datasets: Sequence[str] | None,
    methods: Sequence[str] | None,
    settings: Settings,
    devices: Sequence[str],
    run_all: Callable[..., None],
) -> int:
    """Everything of the experiments that is not in the store yet; how many pieces were run.

    What all of them need is meta-trained together. ``run_all`` (`crowdshot.paper.workers`) spreads work over devices.
    """
    pieces = [
        piece
        for experiment in experiments
        for dataset in experiment.datasets
        if datasets is None or dataset in datasets
        for piece in _pieces(experiment, dataset, methods, settings)
    ]
    wanted = {one: piece for piece in reversed(pieces) for _, one in needed(piece, settings) if one is not None}
    stacks = encoders.stacks(one for one in wanted if not one.file(settings.work).exists())
    stores = [Store(settings.results, *place) for place in dict.fromkeys(piece[:2] for piece in pieces)]
    for store in stores:
        store.note_run({**_about(settings, devices), **_size(store.dataset, settings)})
    with progress("meta-training") as tick:
        run_all(train_one, [(stack, [wanted[one] for one in stack], settings) for stack in stacks], devices, tick)
    with progress("testing") as tick:
        run_all(test_one, [(piece, settings) for piece in _in_order(pieces)], devices, tick)
    for store in stores:
        store.compact()
    return len(pieces)


def _pieces(experiment: Experiment, dataset: str, methods: Sequence[str] | None, settings: Settings) -> list[Piece]:
    """What is missing."""
    store = Store(settings.results, experiment.name, dataset)
    done = store.done()
    if done:
        _check_size(store, _size(dataset, settings))
    sizes = dict.fromkeys(cell.size for cell in settings.protocol.cells(experiment, dataset))
    every = [
        Piece(experiment.name, dataset, split, *size, method)
        for method in experiment.methods
        if methods is None or method in methods
        for split in settings.protocol.splits
        for size in sizes
    ]
    return [piece for piece in every if piece not in done]


def _in_order(pieces: Sequence[Piece]) -> list[Piece]:
    """A method's pieces of one split follow each other, as they share encoders and what these make of items."""
    place = {name: i for i, name in enumerate(SYSTEMS)}
    return sorted(
        pieces, key=lambda p: (p.dataset, place[p.method], p.split, p.experiment, p.n_support, p.n_annotators)
    )


def _size(dataset: str, settings: Settings) -> dict[str, Any]:
    """What all rows of a store must share."""
    protocol, target = settings.protocol, TARGETS[dataset]
    return {
        "toy": protocol.toy,
        "episodes": protocol.episodes or target.episodes,
        "iterations": protocol.iterations or target.iterations,
    }


def _check_size(store: Store, size: dict[str, Any]) -> None:
    """Rows of a trial must not pass for the real ones."""
    for found in store.runs()[-1:]:
        for name, value in size.items():
            if found.get(name, value) != value:
                raise CrowdshotError(
                    f"{store.folder} has rows with {name} = {found[name]}, found {value} now; expected the same, or "
                    "another folder (--results)."
                )


def _about(settings: Settings, devices: Sequence[str]) -> dict[str, Any]:
    return {
        "command": settings.command,
        "crowdshot": crowdshot.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
        "splits": list(settings.protocol.splits),  # the seeds
        "devices": [device_name(device) for device in dict.fromkeys(devices)],
    }


def _commit() -> str:
    try:
        found = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"],
            capture_output=True,
            text=True,
            timeout=5,
            cwd=Path(__file__).parent,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return found.stdout.strip()
