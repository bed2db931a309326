"""Run experiments: find the missing rows, meta-train the encoders they need, test the methods and store the results.

A run can be interrupted at any time and continued later.
"""

from __future__ import annotations

import platform
import subprocess
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import sklearn
import torch

import crowdshot
from crowdshot.errors import CrowdshotError, Use
from crowdshot.formatting import about_duration, counted
from crowdshot.progress import progress
from crowdshot_paper import encoder_plan
from crowdshot_paper import work as encoders
from crowdshot_paper.encoder_plan import Wanted
from crowdshot_paper.episode_cells import TARGETS, VALIDATION
from crowdshot_paper.experiments import EXPERIMENTS, SYSTEMS, Experiment, candidate_name
from crowdshot_paper.store import Piece, Store
from crowdshot_paper.work import Place, Wants, cells_of, device_name, needed, remove_checkpoints, test_one, train_one


def settings_of(experiments: Sequence[Experiment]) -> dict[str, set[float]]:
    """Return the settings of the methods' candidates, with all their values."""
    found: dict[str, set[float]] = defaultdict(set)
    for method in {name for experiment in experiments for name in experiment.methods}:
        for candidate in SYSTEMS[method].candidates:
            for name, value in candidate.items():
                found[name].add(float(value))
    return dict(found)


def run(left: Mapping[Piece, Wants], place: Place, devices: Sequence[str], run_all: Callable[..., None]) -> int:
    """Run the pieces that `missing` found, and return their number.

    The encoders of all pieces are meta-trained first. ``run_all`` (`parallel`) distributes the jobs over devices.
    """
    wanted = _encoders(left, place)
    stacks = encoders.stacks(wanted)
    stores = [Store(place.results, *where) for where in dict.fromkeys(piece[:2] for piece in left)]
    for store in stores:
        store.note_run({**_about(place, devices), **_size(store, place)})
    with progress("meta-training") as tick:
        run_all(train_one, [(stack, [wanted[one] for one in stack], place) for stack in stacks], devices, tick)
    remove_checkpoints(encoders.stacks(_wanted(left)), place.work)
    with progress("testing") as tick:
        run_all(test_one, [(piece, left[piece], place) for piece in _in_order(left)], devices, tick)
    for store in stores:
        store.compact()
    return len(left)


def missing(
    experiments: Sequence[Experiment], datasets: Sequence[str] | None, methods: Sequence[str] | None, place: Place
) -> dict[Piece, Wants]:
    """Return the requested pieces that are not stored yet, each with its missing candidates."""
    left = {}
    for experiment in experiments:
        for dataset in experiment.datasets:
            if datasets is not None and dataset not in datasets:
                continue
            store = Store(place.results, experiment.name, dataset)
            done = store.done()
            if done:
                _check_size(store, _size(store, place))
            for piece in _pieces(experiment, dataset, place):
                if methods is None or piece.method in methods:
                    have = done.get(piece, set())
                    needs = [(one, encoder) for one, encoder in needed(piece, place) if candidate_name(one) not in have]
                    if needs:
                        left[piece] = needs
    return left


def tidy(experiments: Sequence[Experiment], place: Place) -> None:
    """Compact the stores, in case a run was killed before it did so."""
    for experiment in experiments:
        for dataset in experiment.datasets:
            Store(place.results, experiment.name, dataset).compact()


def describe(left: Mapping[Piece, Wants], place: Place) -> list[str]:
    """Describe the missing pieces: a line per experiment and dataset, and the total."""
    lines = []
    for where in dict.fromkeys(piece[:2] for piece in left):
        methods = tuple(dict.fromkeys(piece.method for piece in left if piece[:2] == where))
        experiment = replace(EXPERIMENTS[where[0]], methods=methods)
        every = Counter(piece.method for piece in _pieces(experiment, where[1], place))
        groups = defaultdict(list)
        for method in methods:
            pieces = [piece for piece in left if piece[:2] == where and piece.method == method]
            lacking = {candidate_name(one) for piece in pieces for one, _ in left[piece]}
            n_candidates = len(needed(pieces[0], place))
            part = f", {len(lacking)} of {n_candidates} settings" if len(lacking) < n_candidates else ""
            groups[f"{len(pieces)} of {every[method]} pieces{part}"].append(method)
        parts = [f"{', '.join(names)} ({work}{' each' * (len(names) > 1)})" for work, names in groups.items()]
        lines.append(f"{', '.join(where)}: {'; '.join(parts)}")
    return [
        *lines,
        f"{counted(len(left), 'pieces')} to run, {counted(len(_encoders(left, place)), 'encoders')} to meta-train.",
    ]


def expect(left: Mapping[Piece, Wants], place: Place, devices: Sequence[str]) -> list[str]:
    """Return notes before a run: the estimated time, and whether shipped encoders could be used."""
    wanted = _encoders(left, place)
    time = encoder_plan.training(wanted)
    for piece, wants in left.items():
        n = (place.protocol.episodes or TARGETS[piece.dataset].episodes) * EXPERIMENTS[piece.experiment].times
        episodes = len(cells_of(piece, place)) * n + (n if place.protocol.episodes else max(n, VALIDATION))
        time = time.plus(encoder_plan.testing(piece.method, piece.dataset, episodes * len(wants)))
    gpus = {device for device in devices if device.startswith("cuda")}
    n = len(gpus or devices)
    long = about_duration((time.gpu if gpus else time.core) / n)
    here = f"{n} {'GPU' if gpus else 'CPU core'}{'s' * (n > 1)}"
    work = f"{counted(len(wanted), 'encoders')} to meta-train and {counted(len(left), 'pieces')} to test"
    sentences = [f"{work}: {long} on {here}."]
    kept = sum(one.file(place.results).exists() for one in wanted)
    if kept:
        sentences.append(f"{kept} of these encoders exist in {place.results}. Use --work {place.results} to use them.")
    return sentences


def _encoders(left: Mapping[Piece, Wants], place: Place) -> dict[Wanted, Piece]:
    """Return the encoders that have to be meta-trained, each with a piece that needs it."""
    return {one: piece for one, piece in _wanted(left).items() if not one.file(place.work).exists()}


def _wanted(left: Mapping[Piece, Wants]) -> dict[Wanted, Piece]:
    return {one: piece for piece in reversed(list(left)) for _, one in left[piece] if one is not None}


def _pieces(experiment: Experiment, dataset: str, place: Place) -> list[Piece]:
    """Return all pieces of an experiment on a dataset."""
    sizes = dict.fromkeys(cell.size for cell in place.protocol.cells(experiment, dataset))
    return [
        Piece(experiment.name, dataset, split, *size, method)
        for method in experiment.methods
        for split in place.protocol.splits
        for size in sizes
    ]


def _in_order(pieces: Iterable[Piece]) -> list[Piece]:
    """Sort pieces so that those with the same method and split, which share encoders and embeddings, are adjacent."""
    rank = {name: i for i, name in enumerate(SYSTEMS)}

    def key(p: Piece) -> tuple[Any, ...]:
        method = (rank.get(p.method, len(rank)), p.method)
        return (p.dataset, *method, p.split, p.experiment, p.n_support, p.n_annotators)

    return sorted(pieces, key=key)


def _size(store: Store, place: Place) -> dict[str, Any]:
    """Return the sizes that all rows of a store must share."""
    protocol, target = place.protocol, TARGETS[store.dataset]
    return {
        "toy": protocol.toy,
        "episodes": protocol.episodes or target.episodes,
        "iterations": protocol.iterations or target.iterations,
        "precision": protocol.precision or target.precision,  # of meta-training on a GPU
    }


def _check_size(store: Store, size: dict[str, Any]) -> None:
    """Refuse to mix rows of different sizes, such as those of a trial run, in a store."""
    for found in store.runs()[-1:]:
        for name, value in size.items():
            if found.get(name, value) != value:
                raise CrowdshotError(
                    f"has rows with {name} = {found[name]}",
                    where=store.folder,
                    found=found[name],
                    expected=f"{value} as in this run",
                    hint=Use("to store the rows elsewhere", results="DIR"),
                )


def _about(place: Place, devices: Sequence[str]) -> dict[str, Any]:
    return {
        "command": place.command,
        "crowdshot": crowdshot.__version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "scikit-learn": sklearn.__version__,
        "splits": list(place.protocol.splits),  # the seeds
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
