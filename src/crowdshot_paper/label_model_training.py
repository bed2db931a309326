"""Train and evaluate the label model (`crowdshot.model.label_model`) on simulated crowds and finished projects.

A step uses a batch of simulated crowds (`crowdshot.training.simulated_crowds`) and some draws of projects, with equal
weight. The draws of a step depend on the seed and the number of the step only. A run that continues from a checkpoint
(parameters and Adam's state) therefore gives the same bytes as a run without interruption.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from crowdshot.errors import CrowdshotError
from crowdshot.formatting import plural
from crowdshot.io.cards import count_in, read_safetensors, write_safetensors
from crowdshot.io.cells import Positions
from crowdshot.labels.annotations import Annotations
from crowdshot.model import label_model
from crowdshot.model.problem import Problem, posterior_of, problem_of
from crowdshot.training import simulated_crowds
from crowdshot.training.loop import check_same_run
from crowdshot.training.simulated_crowds import Crowds, World
from crowdshot_paper import projects as finished
from crowdshot_paper.projects import Project

# These values are not finely tuned. Five training configurations with three seeds each had accuracies of 0.847 to 0.850
# on complete held-out projects, and log-losses of 0.479 to 0.492 with 8 hidden units and 0.467 to 0.475 with 16.
ROUNDS = 3
HIDDEN = 16
ITERATIONS = 500
LABELS = 20_000  # simulated labels per step
DRAWS = 6  # draws of projects per step
LEARNING_RATE = 3e-3

GENTLE_ITERATIONS = 200  # for fine-tuning
GENTLE_LEARNING_RATE = 1e-3

WARM_UP = 50  # steps
BETAS = (0.9, 0.99)  # of Adam
CLIP = 1.0  # the largest norm of the gradient
CERTAIN = 0.998  # the rest is spread over the classes, which bounds the loss of an item
EARLIER_ROUNDS = 0.1  # their weight in the loss; the last round has weight 1
ENOUGH_ITEMS = 60  # the weight of a crowd is the same from this number of items on


Floats = NDArray[np.float32] | NDArray[np.float64]
Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Settings:
    """Settings of training. The shipped network was trained with the defaults."""

    iterations: int = ITERATIONS
    seed: int = 0
    labels: int = LABELS
    draws: int = DRAWS
    learning_rate: float = LEARNING_RATE

    def __post_init__(self) -> None:
        for name in ("iterations", "labels"):
            if getattr(self, name) < 1:
                found = getattr(self, name)
                raise CrowdshotError(f"is {found}", argument=name, found=found, expected="1 or more")
        for name in ("seed", "draws"):
            if getattr(self, name) < 0:
                found = getattr(self, name)
                raise CrowdshotError(f"is {found}", argument=name, found=found, expected="0 or more")


USUAL = Settings()


def untrained(seed: int, rounds: int, hidden: int) -> dict[str, NDArray[np.float64]]:
    """Return an untrained network, whose constants are near `label_model.START` for all crowds."""
    randomness = np.random.default_rng(seed)
    out: dict[str, NDArray[np.float64]] = {}
    for name, shape in label_model.shapes(rounds, hidden).items():
        if name.endswith("in.weight"):
            out[name] = randomness.normal(size=shape) / math.sqrt(shape[0])
        elif name.endswith("out.weight"):
            out[name] = randomness.normal(size=shape) * 0.02
        elif name.startswith("crowd") and "out" in name:
            out[name] = np.array(list(label_model.START.values()))
        else:
            out[name] = np.zeros(shape)
    return out


def train(
    projects: Sequence[Project],
    world: World,
    settings: Settings = USUAL,
    *,
    initial: Mapping[str, Floats] | None = None,
    device: torch.device | str = "cpu",
    checkpoint: Path | None = None,
    checkpoint_every: int = 100,
    tick: Callable[[int, int], None] = lambda done, total: None,
    report: Callable[[int, float], None] = lambda iteration, loss: None,
    stop: Callable[[], bool] = lambda: False,
) -> dict[str, NDArray[np.float32]] | None:
    """Train a network on simulated crowds and projects; return its weights, or None if training was stopped.

    On the CPU the same arguments give the same network. ``initial`` has the weights to start from (default: random).
    ``checkpoint`` stores progress every ``checkpoint_every`` iterations. If the file exists, training continues from
    it; it is not removed at the end. After every iteration, ``tick`` is called with the numbers of finished and of all
    iterations, and ``report`` with the iteration and its loss. If ``stop`` returns True, training writes a checkpoint
    and stops.
    """
    start = untrained(settings.seed, ROUNDS, HIDDEN) if initial is None else initial
    weights = {name: torch.tensor(value, dtype=torch.float32, device=device) for name, value in start.items()}
    for value in weights.values():
        value.requires_grad_()
    adam = torch.optim.Adam(weights.values(), lr=settings.learning_rate, betas=BETAS)
    run = _describe(projects, world, settings, start)
    first = 0 if checkpoint is None or not checkpoint.exists() else _load(checkpoint, run, weights, adam)
    generator = torch.Generator(device)
    for iteration in range(first, settings.iterations):
        randomness = np.random.default_rng([settings.seed, iteration])
        generator.manual_seed(int(randomness.integers(2**62)))
        for group in adam.param_groups:
            group["lr"] = learning_rate(iteration, settings)
        loss = step_loss(weights, projects, world, settings, generator, randomness)
        _take_step(adam, weights, loss)
        done = iteration + 1
        report(done, float(loss.detach()))
        tick(done, settings.iterations)
        stopping = stop() and done < settings.iterations
        if checkpoint is not None and (stopping or done % checkpoint_every == 0 or done == settings.iterations):
            _save(checkpoint, run, weights, adam, done)
        if stopping:
            return None
    return {name: value.detach().cpu().numpy() for name, value in weights.items()}


def _take_step(adam: torch.optim.Adam, weights: Weights, loss: Tensor) -> None:
    """Update the weights, unless the loss or its gradient is not finite."""
    adam.zero_grad()
    torch.autograd.backward([loss])
    norm = torch.nn.utils.clip_grad_norm_(weights.values(), CLIP)
    if bool(torch.isfinite(loss)) and bool(torch.isfinite(norm)):
        adam.step()


def learning_rate(iteration: int, settings: Settings) -> float:
    """Return the learning rate: linear warm-up, then cosine decay to zero."""
    cosine = 0.5 + 0.5 * math.cos(math.pi * iteration / settings.iterations)
    return settings.learning_rate * min(1.0, (iteration + 1) / WARM_UP) * cosine


def step_loss(
    weights: Weights,
    projects: Sequence[Project],
    world: World,
    settings: Settings,
    generator: torch.Generator,
    randomness: np.random.Generator,
) -> Tensor:
    """Return the loss of a batch of simulated crowds and some draws of projects."""
    loss = loss_of(weights, simulated_crowds.draw(world, settings.labels, generator))
    if not projects or not settings.draws:
        return loss
    parts: dict[int, list[tuple[Project, Positions]]] = {}  # by the number of classes
    for choice in randomness.choice(len(projects), settings.draws):
        labels = finished.draw(projects[choice], randomness)
        if len(labels) >= finished.FEWEST_LABELS:
            parts.setdefault(projects[choice].annotations.n_classes, []).append((projects[choice], labels))
    drawn = sum(map(len, parts.values()))
    for batch in parts.values():
        crowds = simulated_crowds.with_gold(world, finished.side_by_side(batch, generator.device), generator)
        loss = loss + loss_of(weights, crowds) * (len(batch) / drawn)
    return loss


def loss_of(weights: Weights, crowds: Crowds) -> Tensor:
    """Return the mean of -log p(truth) after the last round, plus that of the earlier rounds with a small weight.

    The final posterior, which is averaged with the vote, is not used. The weight of a crowd is the square root of its
    number of items, so that small crowds influence the result.
    """
    known = crowds.truth >= 0 if crowds.known is None else (crowds.truth >= 0) & (crowds.known < 0)
    crowd, truth = crowds.crowd_of_item[known], crowds.truth[known]
    if not len(truth):
        return next(iter(weights.values())).sum() * 0
    items = torch.bincount(crowd, minlength=crowds.n_crowds).clamp_min(1).to(torch.float32)
    weight = (items.clamp_max(ENOUGH_ITEMS).sqrt() / items)[crowd]
    weight = weight / weight.sum()
    K = crowds.n_classes
    *rounds, _ = label_model.infer(training_problem(crowds), weights, torch, total)
    loss = weight.new_zeros(())
    for number, score in enumerate(rounds):
        posterior = CERTAIN * score.reshape(-1, K)[known].softmax(-1) + (1 - CERTAIN) / K
        lost = -(weight * posterior.gather(1, truth[:, None])[:, 0].log()).sum()
        loss = loss + lost * (1.0 if number == len(rounds) - 1 else EARLIER_ROUNDS)
    return loss


def total(values: Tensor, index: Tensor, n: int) -> Tensor:
    """Sum rows of ``values`` by ``index``: `crowdshot.model.label_model.total` for tensors."""
    zeros = torch.zeros((n, *values.shape[1:]), dtype=values.dtype, device=values.device)
    return zeros.index_add(0, index, values)


def training_problem(crowds: Crowds, dtype: torch.dtype = torch.float32) -> Problem:
    """Combine several crowds in one problem, in which every class is possible for every item."""
    item, K, G = crowds.item, crowds.n_classes, crowds.n_crowds
    N, R = len(crowds.crowd_of_item), len(crowds.crowd_of_annotator)
    return Problem(
        weight=torch.ones(len(item), dtype=dtype, device=item.device),
        item=item,
        annotator=crowds.annotator,
        label=crowds.label,
        label_pair=item * K + crowds.label,
        n_items=N,
        n_annotators=R,
        n_classes=K,
        crowd_of_item=crowds.crowd_of_item,
        crowd_of_annotator=crowds.crowd_of_annotator,
        crowd_of_class=torch.arange(G, device=item.device).repeat_interleave(K),
        n_crowds=G,
        known=_known_of_pairs(crowds.known, K, dtype),
        right=None if crowds.right is None else crowds.right.to(dtype),
        wrong=None if crowds.wrong is None else crowds.wrong.to(dtype),
        ordered=None if crowds.ordered is None else crowds.ordered.to(dtype),
    )


def _known_of_pairs(known: Tensor | None, K: int, dtype: torch.dtype) -> Tensor | None:
    """Convert known classes (N,), -1 if unknown, to `Problem.known` (N, K)."""
    if known is None:
        return None
    is_class = torch.nn.functional.one_hot(known.clamp_min(0), K).to(dtype)
    return torch.where(known[:, None] < 0, torch.nan, is_class)


# ---- checkpoints ----

KIND = "inference checkpoint"


def _describe(
    projects: Sequence[Project], world: World, settings: Settings, start: Mapping[str, Floats]
) -> dict[str, Any]:
    """Return the data, settings and initial weights, which must be the same for a run to continue."""
    checksum = 0
    for project in projects:
        ann = project.annotations
        for values in (ann.item, ann.annotator, ann.label, project.truth):
            checksum = zlib.crc32(np.ascontiguousarray(values).tobytes(), checksum)
    origin = 0
    for name in sorted(start):
        origin = zlib.crc32(np.ascontiguousarray(start[name], dtype=np.float32).tobytes(), origin)
    run = {
        **vars(settings),
        "projects": [project.name for project in projects],
        "labels and truth": checksum,
        "world": world.to_card(),
        "initial": origin,
    }
    return dict(json.loads(json.dumps(run)))


def _save(path: Path, run: dict[str, Any], weights: Weights, adam: torch.optim.Adam, iteration: int) -> None:
    tensors = {f"now.{name}": value for name, value in weights.items()}
    for name, value in weights.items():
        tensors |= {f"adam.{name}.{key}": torch.as_tensor(state) for key, state in adam.state[value].items()}
    write_safetensors(path, tensors, {"kind": KIND, "run": run, "iteration": iteration})


def _load(path: Path, run: dict[str, Any], weights: Weights, adam: torch.optim.Adam) -> int:
    """Restore weights and the state of Adam; return the number of finished iterations."""
    tensors, card = read_safetensors(path, KIND)
    check_same_run(path, card.get("run"), run)
    try:
        with torch.no_grad():
            for name, value in weights.items():
                value.copy_(tensors[f"now.{name}"])
                state = {key: tensors.get(f"adam.{name}.{key}") for key in ("step", "exp_avg", "exp_avg_sq")}
                if any(each is not None for each in state.values()):  # no state means that no step has been taken yet
                    adam.state[value] = {
                        key: each if key == "step" else each.to(value)
                        for key, each in state.items()
                        if each is not None
                    }
        return count_in(card, "iteration")
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        message = f"is damaged or incomplete ({type(error).__name__}: {error})"
        hint = "Remove the file to start again"
        raise CrowdshotError(message, where=path, expected="a checkpoint of crowdshot", hint=hint) from None


# ---- evaluation on items of known truth, and cross-validation over projects ----


ACCEPTED = 0.9  # the lowest confidence of accepted labels, as in `crowdshot.labels.consensus`
FLOOR = 1e-3  # the lowest probability in the log-loss


class Scores(NamedTuple):
    """Scores over the items of known truth."""

    items: int
    accuracy: float  # ties between equally probable classes count in part
    log_loss: float  # probabilities below 0.001 count as 0.001
    over: float  # mean confidence minus accuracy; positive if over-confident
    accepted: float  # share of items with a confidence of 0.9 or more
    right: float | None  # accuracy on accepted items; None if there are none


def scores(network: Mapping[str, Floats], annotations: Annotations, truth: Positions) -> Scores:
    """Score the final posterior, computed by NumPy in double precision; ``truth`` (N,) is -1 for unknown classes."""
    ann, known = annotations, truth >= 0
    if not known.any():
        raise CrowdshotError("has no known class", argument="truth", expected="at least one item of known class")
    problem = problem_of(ann.item, ann.annotator, ann.label, ann.n_items, ann.n_annotators, ann.n_classes)
    posterior = posterior_of(problem, label_model.infer(problem, network)[-1])
    item, label = problem.pairs()
    confidence = np.zeros(ann.n_items)
    np.maximum.at(confidence, item, posterior)
    is_top = posterior >= confidence[item] - 1e-9
    is_true = label == truth[item]
    right, p = np.zeros(ann.n_items), np.zeros(ann.n_items)
    right[item[is_true & is_top]] = 1.0
    right /= np.bincount(item[is_top], minlength=ann.n_items).clip(1)
    p[item[is_true]] = posterior[is_true]
    right, p, confidence = right[known], p[known], confidence[known]
    accepted = confidence >= ACCEPTED
    return Scores(
        int(known.sum()),
        float(right.mean()),
        float(-np.log(p.clip(FLOOR)).mean()),
        float(confidence.mean() - right.mean()),
        float(accepted.mean()),
        float(right[accepted].mean()) if accepted.any() else None,
    )


def score_each(network: Mapping[str, Floats], projects: Sequence[Project]) -> dict[str, Scores]:
    return {project.name: scores(network, project.annotations, project.truth) for project in projects}


def mean_log_loss(scored: Mapping[str, Scores]) -> float:
    return float(np.mean([each.log_loss for each in scored.values()]))


@dataclass(frozen=True)
class Fold:
    """A network trained without the projects that were left out."""

    left_out: list[Project]
    network: dict[str, NDArray[np.float32]]


def train_folds(
    projects: Sequence[Project],
    relatives: Sequence[Sequence[str]],
    learn: Callable[[int, list[Project]], dict[str, NDArray[np.float32]]],
) -> Iterator[Fold]:
    """Yield a fold per group of relatives; ``learn`` trains on its number and the other projects."""
    groups = finished.leave_out(projects, relatives)
    if len(groups) < 2:
        message = f"has {plural(len(groups), 'group')} of related projects"
        expected = "two or more groups, so that each can be left out in turn"
        raise CrowdshotError(message, argument="projects", found=len(groups), expected=expected)
    for number, (left_out, others) in enumerate(groups):
        yield Fold(left_out, learn(number, others))
