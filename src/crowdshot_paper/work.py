"""Do a piece of work of an experiment on a device: meta-train a stack of encoders, or test a method."""

from __future__ import annotations

import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.encoder_files import build_encoder, load_encoder, save_encoder
from crowdshot.methods import Candidate, CrowdEpisodes
from crowdshot.progress import progress
from crowdshot.training.encoder_scores import calibration_error, embedded
from crowdshot.training.episodes import Batch
from crowdshot.training.loop import train
from crowdshot.training.pools import ClassPool, input_of
from crowdshot.training.recipe import Job
from crowdshot_paper.datasets import find_dataset, load_dataset
from crowdshot_paper.datasets.dataset_files import Dataset
from crowdshot_paper.draws import draw_episodes, first_episodes, split_classes, toy_dataset
from crowdshot_paper.encoder_plan import TRAINED_ONLY, Wanted, wanted
from crowdshot_paper.episode_cells import REAL, SOURCE_CROWD, TARGETS, VALIDATION, Cell, Target
from crowdshot_paper.experiments import EXPERIMENTS, SYSTEMS, Protocol, candidate_name
from crowdshot_paper.store import Piece, Store

# ---- meta-training stacks of encoders ----


STACK = {"maml": 30}  # the largest stack, by objective
MOST = 128  # the largest stack for other objectives


def stacks(wanted: Iterable[Wanted]) -> list[list[Wanted]]:
    """Group encoders into stacks that can be trained together."""
    groups: dict[Any, list[Wanted]] = defaultdict(list)
    for one in sorted(set(wanted), key=lambda one: one.name):
        shape = (one.source, one.ways, one.shots, one.annotators, one.labels_per_item, one.iterations, one.wide)
        groups[(*shape, one.spammers, one.precision, one.objective == "maml")].append(one)
    parts = []
    for group in groups.values():
        most = STACK.get(group[0].objective, MOST)
        parts += [group[start : start + most] for start in range(0, len(group), most)]
    return parts


def stack_name(stack: Sequence[Wanted]) -> str:
    """Return a name that is unique to these encoders."""
    names = "\n".join(one.name for one in stack)
    return f"{stack[0].source}-{len(stack)}-{zlib.crc32(names.encode()):08x}"


def train_stack(
    stack: Sequence[Wanted],
    dataset: Dataset,
    target: Target,
    protocol: Protocol,
    work: Path,
    device: torch.device,
    tick: Callable[[int, int], None] = lambda done, total: None,
) -> dict[Wanted, dict[str, Any]]:
    """Train and save encoders; return the name, seconds and best validation accuracy of each.

    The seconds are a share of those of the stack. Interrupted training continues from its last validation, and its
    seconds are extrapolated to the complete training.
    """
    jobs = [_job(one, dataset, target, protocol) for one in stack]
    precision = stack[0].precision if device.type == "cuda" else "float32"
    clean = replace(dataset.pool, crowd_labels=None)
    pool, jobs = _with_noise(clean, jobs, [one.noise for one in stack])
    pool = pool.to(device)
    checkpoint = _checkpoint(stack, work)
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    taken = 0

    def count(done: int, total: int) -> None:
        nonlocal taken
        taken += 1
        tick(done, total)

    began = time.perf_counter()
    trained = train(jobs, pool, precision=precision, checkpoint=checkpoint, tick=count)
    assert trained is not None
    share = stack[0].iterations / max(1, taken) / len(stack)
    seconds = round((time.perf_counter() - began) * share, 2) if taken else None
    for one, encoder in zip(stack, trained, strict=True):
        encoder.card["seconds"] = seconds
        encoder.card["precision"] = precision
        file = one.file(work)
        file.parent.mkdir(parents=True, exist_ok=True)
        save_encoder(encoder, file)
    checkpoint.unlink(missing_ok=True)
    return {
        one: {
            "encoder": one.name,
            "seconds": seconds,
            "candidates": len(stack),
            "best": encoder.card["scores"]["validation_accuracy"],
            "precision": precision,
        }
        for one, encoder in zip(stack, trained, strict=True)
    }


def remove_checkpoints(stacks: Iterable[Sequence[Wanted]], work: Path) -> None:
    """Remove checkpoints of encoders that exist, in case a run was killed between writing these and removing those."""
    for stack in stacks:
        if all(one.file(work).exists() for one in stack):
            _checkpoint(stack, work).unlink(missing_ok=True)


def _checkpoint(stack: Sequence[Wanted], work: Path) -> Path:
    return work / "checkpoints" / f"{stack_name(stack)}.safetensors"


def _job(one: Wanted, dataset: Dataset, target: Target, protocol: Protocol) -> Job:
    learn, validate, _ = split_classes(target, len(dataset.pool.names), one.split)
    torch.manual_seed(one.split)
    channels = {"channels": dataset.input.channels, "width": protocol.width}
    card = {"trained_on": f"{dataset.name}, split {one.split}", "wanted": asdict(one)}
    encoder = build_encoder("conv4", channels, dataset.input, card)
    return Job(encoder, learn, validate, one.recipe(protocol))


def _with_noise(pool: ClassPool, jobs: list[Job], shares: Sequence[float]) -> tuple[ClassPool, list[Job]]:
    """Give each job with a share above zero its own copy of its classes, in which that share of labels is wrong."""
    examples, counts, names, found = [pool.examples], [pool.counts], list(pool.names), list(jobs)
    for i, (job, share) in enumerate(zip(jobs, shares, strict=True)):
        if share > 0:
            learn, validate, begin = list(job.source), list(job.validation), len(names)
            examples += [_mixed_up(pool, learn, share, job.recipe.seed), pool.examples[validate]]
            counts += [pool.counts[learn], pool.counts[validate]]
            names += [f"{pool.names[c]} (job {i})" for c in (*learn, *validate)]
            middle = begin + len(learn)
            found[i] = replace(job, source=range(begin, middle), validation=range(middle, len(names)))
    if len(examples) == 1:
        return pool, jobs
    return ClassPool(torch.cat(examples), torch.cat(counts), tuple(names)), found


def _mixed_up(pool: ClassPool, classes: list[int], share: float, seed: int) -> Tensor:
    """Return the examples of these classes; a share of them, chosen at random, has changed places."""
    generator = torch.Generator().manual_seed(seed)
    examples, counts = pool.examples[classes].clone(), pool.counts[classes]
    there = (torch.arange(examples.shape[1]) < counts[:, None]).flatten().nonzero()[:, 0]
    moved = there[torch.randperm(len(there), generator=generator)[: round(share * len(there))]]
    flat = examples.flatten(0, 1)
    flat[moved] = flat[moved.roll(1)]
    return examples


def read_encoder(one: Wanted, work: Path) -> Encoder:
    return load_encoder(one.file(work))


# ---- pieces of work ----


MOST_WAYS = max(target.ways for target in TARGETS.values())
Wants = list[tuple[Candidate, Wanted | None]]
"""Candidates of a method, and the encoder that each needs."""
EMBEDDED = 40  # cached embeddings: enough for all candidates of Ours on the source and target of one split


@dataclass(frozen=True)
class Place:
    """Folders and sizes of a run; plain data that can be sent to another process."""

    results: Path
    work: Path  # encoders and checkpoints
    root: Path | None  # the folder of datasets
    protocol: Protocol
    command: str = ""
    download: bool = False  # whether to download missing datasets


def cells_of(piece: Piece, place: Place) -> list[Cell]:
    """Return the cells of a piece, which differ in their crowds."""
    cells = place.protocol.cells(EXPERIMENTS[piece.experiment], piece.dataset)
    return [cell for cell in cells if cell.size == (piece.n_support, piece.n_annotators)]


def needed(piece: Piece, place: Place) -> Wants:
    """Return the requested candidates of a piece and the encoder of each."""
    method, target, protocol = SYSTEMS[piece.method], TARGETS[piece.dataset], place.protocol
    cell, experiment = cells_of(piece, place)[0], EXPERIMENTS[piece.experiment]
    how = (experiment.encoders, protocol.iterations, protocol.precision)
    return [
        (candidate, wanted(method, candidate, target, cell, piece.split, *how))
        for candidate in experiment.candidates(protocol.candidates(method))
    ]


def train_one(stack: Sequence[Wanted], pieces: Sequence[Piece], place: Place, device: str) -> None:
    """Meta-train a stack of encoders, and store the seconds of each with the first piece that needs it."""
    source = read_dataset(stack[0].source, place)
    target = fitted(TARGETS[stack[0].source], source, place)
    with progress(f"meta-training {len(stack)} encoders") as tick:
        made = train_stack(stack, source, target, place.protocol, place.work, torch.device(device), tick)
    known = {"dataset": source.name, "device": device_name(device)}
    notes = defaultdict(list)
    for one, piece in zip(stack, pieces, strict=True):
        notes[piece.experiment, piece.dataset].append({**made[one], **known, "split": one.split})
    for where, rows in notes.items():
        Store(place.results, *where).note_training(stack_name(stack), rows)


def test_one(piece: Piece, needs: Wants, place: Place, device: str) -> None:
    """Test candidates of a method on all episodes of a piece: validation and test, all crowds at once."""
    store = Store(place.results, piece.experiment, piece.dataset)
    if store.has(piece, [candidate_name(candidate) for candidate, _ in needs]):  # another process has finished it
        return
    method, cells = SYSTEMS[piece.method], cells_of(piece, place)
    groups: dict[Wanted | None, list[Candidate]] = defaultdict(list)
    for candidate, one in needs:
        groups[one].append(candidate)
    rows, began = [], time.perf_counter()
    for one, candidates in groups.items():
        batches = draw(piece, cells, place, one if method.on_embeddings else None, device)  # always the same
        everything = Batch(*(_to(x, device) for x in together([batch for _, _, batch in batches])))
        prepare, network = _network(one, method.on_embeddings, read_dataset(piece.dataset, place), place, device)
        episodes = CrowdEpisodes.of(everything, cells[0].ways, prepare)
        settings = [{name: one[name] for name in one if name not in TRAINED_ONLY} for one in candidates]
        found = method.predict_candidates(episodes, network, settings, seed=piece.split)
        rows += [
            _rows(batches, candidate, probabilities.to(device), everything.query_truth)
            for candidate, probabilities in zip(candidates, found, strict=True)
        ]
    about = {
        "what": "test",
        "seconds": round(time.perf_counter() - began, 4),
        "episodes": len(rows[0]),
        "candidates": sum(map(len, groups.values())),
        "device": device_name(device),
    }
    store.add(piece, pd.concat(rows, ignore_index=True), about)


def _rows(
    batches: Sequence[tuple[str, Cell, Batch]], candidate: Candidate, probabilities: Tensor, truth: Tensor
) -> pd.DataFrame:
    """Return accuracy and calibration error of each episode."""
    right = (probabilities.argmax(-1) == truth).float().mean(-1).cpu().numpy()
    error = calibration_error(probabilities, truth).cpu().numpy()
    counts = [len(batch.labels) for _, _, batch in batches]
    return pd.DataFrame(
        {
            "mixture": np.repeat([cell.crowd for _, cell, _ in batches], counts),
            "candidate": candidate_name(candidate),
            "role": np.repeat([role for role, _, _ in batches], counts),
            "episode": np.concatenate([np.arange(count) for count in counts]),
            "accuracy": right,
            "ece": error,
        }
    )


# ---- datasets, episodes and embeddings, which pieces share ----


@cache
def read_dataset(name: str, place: Place) -> Dataset:
    if place.protocol.toy:
        return toy_dataset(name)
    return load_dataset(name, place.root or Path("data"), download=place.download, cache=place.work / "datasets")


def find_data(datasets: Iterable[str], place: Place) -> None:
    """Check before a long run that the datasets and the sources of their encoders exist."""
    if not place.protocol.toy:
        for name in sorted({one for dataset in datasets for one in (dataset, TARGETS[dataset].source)}):
            find_dataset(name, place.root or Path("data"), download=place.download)


def fitted(target: Target, source: Dataset, place: Place) -> Target:
    """Return the target, with splits that fit the fewer classes of a toy dataset."""
    if not place.protocol.toy:
        return target
    classes = len(source.pool.names)
    return replace(target, classes=(classes - 2 * MOST_WAYS + 4, MOST_WAYS, MOST_WAYS - 4))


def draw(
    piece: Piece, cells: Sequence[Cell], place: Place, one: Wanted | None, device: str
) -> list[tuple[str, Cell, Batch]]:
    """Return (role, cell, episodes): validation on the source's classes with its crowd, and test on each of the cells.

    With an encoder, items are replaced by their embeddings. Fewer episodes than the paper's are the first of them,
    because a draw of another number has other episodes.
    """
    target, split = TARGETS[piece.dataset], piece.split
    source = read_dataset(target.source, place)
    _, validate, test = split_classes(fitted(target, source, place), len(source.pool.names), split)
    times = EXPERIMENTS[piece.experiment].times
    n, full = (place.protocol.episodes or target.episodes) * times, target.episodes * times
    first, real = cells[0], cells[0].crowd == REAL
    classes, annotators = (None, target.annotators[1]) if real else (test, first.n_annotators)
    source = _view(target.source, one, tuple(validate if real else validate + test), place, device)
    tested = _view(piece.dataset, one, None, place, device) if real else source
    tests = [
        ("test", cell, first_episodes(draw_episodes(tested, classes, cell, max(n, full), split, "test"), n))
        for cell in cells
    ]
    simulated = Cell(first.n_support, annotators, SOURCE_CROWD, first.ways, first.scarce)
    drawn = max(n, full, VALIDATION)
    validation = draw_episodes(source, validate, simulated, drawn, split, "validation", target.labels_per_item)
    return [("validation", simulated, first_episodes(validation, n if place.protocol.episodes else drawn)), *tests]


def _view(name: str, one: Wanted | None, classes: tuple[int, ...] | None, place: Place, device: str) -> Dataset:
    """Return the dataset, or embeddings of some of its classes (None: all) with zeros for the others."""
    dataset = read_dataset(name, place)
    if one is None:
        return dataset
    wanted = tuple(range(len(dataset.pool.names))) if classes is None else classes
    some = _embeddings(name, one, wanted, place, device)
    examples = some.new_zeros(*dataset.pool.examples.shape[:2], some.shape[-1])
    examples[list(wanted)] = some
    return replace(dataset, pool=replace(dataset.pool, examples=examples))


@lru_cache(maxsize=EMBEDDED)
def _embeddings(name: str, one: Wanted, classes: tuple[int, ...], place: Place, device: str) -> Tensor:
    """Return the embeddings of these classes' items, (classes, items, M), on the CPU."""
    pool = read_dataset(name, place).pool.take(list(classes))
    return embedded(pool.to(device), read_encoder(one, place.work)).examples.cpu()


def together(batches: Sequence[Batch]) -> Batch:
    """Concatenate batches; missing annotators get no labels and uniform confusion matrices."""
    most = max(batch.labels.shape[-1] for batch in batches)

    def padded(batch: Batch) -> Batch:
        absent = most - batch.labels.shape[-1]
        labels = nn.functional.pad(batch.labels, (0, absent), value=-1)
        confusion = batch.confusion
        if confusion is not None:
            confusion = nn.functional.pad(confusion, (0, 0, 0, 0, 0, absent), value=1 / confusion.shape[-1])
        return batch._replace(labels=labels, confusion=confusion)

    parts = (torch.cat(x) if x[0] is not None else None for x in zip(*map(padded, batches), strict=True))
    return Batch(*parts)  # type: ignore[arg-type]


def _network(
    one: Wanted | None, on_embeddings: bool, dataset: Dataset, place: Place, device: str
) -> tuple[Callable[[Tensor], Tensor], nn.Module | None]:
    """Return a function that converts stored items to the network's input, and the network if one is needed."""
    if on_embeddings:
        return Tensor.float, nn.Identity()
    if one is None:
        plain = build_encoder("conv4", {"channels": dataset.input.channels}, dataset.input)
        return input_of(plain, torch.device(device)), None
    encoder = read_encoder(one, place.work)
    return input_of(encoder, torch.device(device)), encoder.module.to(device).eval()


def _to(x: Tensor | None, device: str) -> Any:
    return None if x is None else x.to(device)


def device_name(device: str) -> str:
    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"
