"""Which encoders the experiments need, and their meta-training, many side by side."""

from __future__ import annotations

import time
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from crowdshot.encoders.encoder import Encoder
from crowdshot.encoders.saved import build_encoder, load_encoder, save_encoder
from crowdshot.episodes.datasets.loader import Dataset
from crowdshot.episodes.shape import Range
from crowdshot.methods.contract import Candidate, Method
from crowdshot.paper.plan.cells import CROWDS, SOURCE_CROWD, TARGETS, Cell, Target
from crowdshot.paper.plan.protocol import Protocol
from crowdshot.paper.run.draws import split_classes
from crowdshot.training.job import Job
from crowdshot.training.loop import train
from crowdshot.training.recipe import WIDE, Recipe

STACK = {"maml": 30}  # models trained side by side; of others, as many as there are up to MOST
MOST = 128
PHOTOGRAPHS = ("miniimagenet", "tiny-imagenet-100")
WIDE_ITERATIONS = {"omniglot": 15_000, "miniimagenet": 30_000, "tiny-imagenet-100": 30_000}
# What encoders meet that are made for real annotators (`as-sparse`), in the place of what their source gives:
SPARSE: dict[str, Any] = {"ways": 8, "annotators": (20, 20), "labels_per_item": (1, 7), "iterations": 16_000}
# A step of MAML costs ten of the others'. A sixth as many are enough for characters, but not for photographs, where its
# rows could be better (docs/reproduction.md).
SHORTER = {"maml": 6}


@dataclass(frozen=True)
class Wanted:
    """One encoder: what it is for, in words that make its file's name."""

    source: str
    split: int
    objective: str
    pseudo_annotation: bool
    ways: int
    shots: Range
    annotators: Range
    labels_per_item: Range | None = None
    steps: int = 2
    b: float = 100.0
    step_size: float = 0.1
    iterations: int = 30_000
    wide: bool = False

    @property
    def name(self) -> str:
        def span(value: Range | None) -> str:
            return "all" if value is None else "to".join(map(str, sorted(set(value))))

        settings = {"mixture": f"J{self.steps}-b{self.b:g}", "maml": f"step{self.step_size:g}"}.get(self.objective, "")
        words = [
            f"split{self.split}",
            self.objective,
            "pa" if self.pseudo_annotation else "clean",
            f"{self.ways}way",
            f"{span(self.shots)}shot",
            f"{span(self.annotators)}annotators",
            f"{span(self.labels_per_item)}labels",
            settings,
            f"wide-cool{WIDE.cool_down:g}" if self.wide else "",
            f"{self.iterations}iterations",
        ]
        return "-".join(word for word in words if word)

    def file(self, work: Path) -> Path:
        return work / "encoders" / self.source / f"{self.name}.safetensors"

    def recipe(self, protocol: Protocol) -> Recipe:
        return Recipe(
            ways=(self.ways, self.ways),
            shots=self.shots,
            annotators=self.annotators,
            labels_per_item=self.labels_per_item,
            queries=min(protocol.training_queries, WIDE.queries) if self.wide else protocol.training_queries,
            crowd=CROWDS[SOURCE_CROWD],
            iterations=self.iterations,
            validate_every=protocol.validate_every,
            validation_episodes=protocol.training_validation_episodes,
            objective=self.objective,
            pseudo_annotation=self.pseudo_annotation,
            steps=self.steps,
            b=self.b,
            step_size=self.step_size,
            cool_down=WIDE.cool_down if self.wide else 0.0,
            augment="photo" if self.wide and self.source in PHOTOGRAPHS else "none",
            seed=self.split,
        )


def wanted(
    method: Method,
    candidate: Candidate,
    target: Target,
    cell: Cell,
    split: int,
    trained_for: str = "one",
    iterations: int = 0,
) -> Wanted | None:
    """The encoder that a candidate of a method needs; None where the method needs none.

    ``trained_for`` as in `Experiment.encoders`. ``iterations`` 0: as many as the source has.
    """
    needs, learns = method.needs, TARGETS[target.source]
    if needs is None:
        return None
    if needs.wide:  # one for all targets of a source
        return Wanted(
            target.source,
            split,
            needs.objective,
            needs.pseudo_annotation,
            WIDE.ways,
            (1, 5),
            learns.annotators if needs.pseudo_annotation else (3, 3),
            iterations=iterations or WIDE_ITERATIONS[target.source],
            wide=True,
        )
    if trained_for == "sparse":
        learns = replace(learns, **SPARSE)
    shots, annotators = (1, 5), learns.annotators
    if trained_for == "cell":  # annotators who tell the truth are as good as three of them
        shots, annotators = (cell.shots,) * 2, (cell.n_annotators if needs.pseudo_annotation else 3,) * 2
    return Wanted(
        target.source,
        split,
        needs.objective,
        needs.pseudo_annotation,
        learns.ways,
        shots,
        annotators,
        learns.labels_per_item,
        **{name: candidate[name] for name in needs.by},
        iterations=iterations or learns.iterations // SHORTER.get(needs.objective, 1),
    )


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
    precision = "bfloat16" if device.type == "cuda" and stack[0].objective != "maml" else "float32"
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
