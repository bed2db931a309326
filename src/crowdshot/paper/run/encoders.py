"""Meta-training of the encoders that experiments need, many side by side."""

from __future__ import annotations

import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.saved import build_encoder, load_encoder, save_encoder
from crowdshot.episodes.datasets.loader import Dataset
from crowdshot.paper.plan.cells import Target
from crowdshot.paper.plan.protocol import Protocol
from crowdshot.paper.plan.wanted import Wanted
from crowdshot.paper.run.draws import split_classes
from crowdshot.training.job import Job
from crowdshot.training.loop import train

STACK = {"maml": 30}  # models trained side by side; of others, as many as there are up to MOST
MOST = 128


def stacks(wanted: Iterable[Wanted]) -> list[list[Wanted]]:
    """Those that can be trained side by side, together."""
    groups: dict[Any, list[Wanted]] = defaultdict(list)
    for one in sorted(set(wanted), key=lambda one: one.name):
        shape = (one.source, one.ways, one.shots, one.annotators, one.labels_per_item, one.iterations, one.wide)
        groups[(*shape, one.objective == "maml")].append(one)
    parts = []
    for group in groups.values():
        most = STACK.get(group[0].objective, MOST)
        parts += [group[start : start + most] for start in range(0, len(group), most)]
    return parts


def stack_name(stack: Sequence[Wanted]) -> str:
    """The same for the same encoders, and for no others."""
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
    """Train and save; of each its name, its share of the stack's seconds, and its best accuracy on validation.

    Interrupted, training goes on from its last validation, and its seconds are what it would have taken in one go.
    """
    jobs = []
    for one in stack:
        learn, validate, _ = split_classes(target, len(dataset.pool.names), one.split)
        torch.manual_seed(one.split)
        channels = {"channels": dataset.input.channels, "width": protocol.width}
        card = {"trained_on": f"{dataset.name}, split {one.split}", "wanted": asdict(one)}
        encoder = build_encoder("conv4", channels, dataset.input, card)
        jobs.append(Job(encoder, learn, validate, one.recipe(protocol)))
    precision = "bfloat16" if device.type == "cuda" else "float32"
    pool = replace(dataset.pool, crowd_labels=None).to(device)
    checkpoint = work / "checkpoints" / f"{stack_name(stack)}.safetensors"
    checkpoint.parent.mkdir(parents=True, exist_ok=True)
    taken = 0

    def count(done: int, total: int) -> None:
        nonlocal taken
        taken += 1
        tick(done, total)

    began = time.perf_counter()
    course: list[list[float]] = []  # of accuracy on validation
    trained = train(
        jobs, pool, precision=precision, checkpoint=checkpoint, tick=count, report=lambda p: course.append(p.accuracy)
    )
    assert trained is not None
    share = stack[0].iterations / max(1, taken) / len(stack)
    seconds = round((time.perf_counter() - began) * share, 2) if taken else None
    for i, (one, encoder) in enumerate(zip(stack, trained, strict=True)):
        encoder.card["seconds"] = seconds
        encoder.card["validation_accuracies"] = [round(accuracies[i], 4) for accuracies in course]
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
        }
        for one, encoder in zip(stack, trained, strict=True)
    }


def read_encoder(one: Wanted, work: Path) -> Encoder:
    return load_encoder(one.file(work))
