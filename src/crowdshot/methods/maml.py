"""MaMV, MaDS: a network from which a few gradient steps lead to any episode's classifier (MAML).

Authors: Chelsea Finn, Pieter Abbeel, Sergey Levine
Title: Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks
Year: 2017
Link: https://arxiv.org/abs/1703.03400

Meta-training looks for weights such that three gradient steps on a support set give a network that is right on the
queries; it differentiates through these steps, second derivatives included. At test the same steps are taken with the
crowd's verdict for labels: the majority vote (MaMV) or Dawid–Skene's posterior (MaDS).

Left open by the paper, and decided here: the output layer starts each episode at zero and is not meta-learned (the
"zeroing trick" of Kao et al., ICLR 2022, who find it better): then what is learned is an ordinary encoder, and serves
any number of classes. Batch normalisation always uses batch statistics, as MAML's authors have it; queries are
normalised together with the support set, so that one query alone can be classified, and hardly depend on each other.
The step size of meta-training is that of test (`Needs.by`). With pretend annotators, meta-training's targets are soft
votes, for MaMV and MaDS alike.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, replace_all_batch_norm_modules_, vmap

from crowdshot.annotated import Batch
from crowdshot.distributed import World
from crowdshot.encoders import Encoder
from crowdshot.episodes import ClassPool
from crowdshot.methods import votes
from crowdshot.methods.base import Candidate, CrowdEpisodes
from crowdshot.methods.meta_training import run
from crowdshot.trainer import Job, Progress, Trainer

INNER_STEPS = 3
STEP_SIZES = (1e-2, 1e-1, 1.0)
EPISODES_AT_ONCE = 2**24  # numbers of input times 64, in one vectorised map

Weights = Mapping[str, Tensor]


def without_statistics(module: nn.Module) -> nn.Module:
    """A copy that normalises by batch statistics alone, and so is a pure function of weights and items."""
    copy = deepcopy(module).train()
    replace_all_batch_norm_modules_(copy)
    return copy


def start(network: nn.Module, weights: Weights, items: Tensor, n_classes: int) -> dict[str, Tensor]:
    """The weights of one episode before any step: the encoder's, and an output layer of zeros."""
    width = _features(network, weights, items[:2]).shape[-1]
    head = {"head.weight": items.new_zeros(width, n_classes), "head.bias": items.new_zeros(n_classes)}
    return {**{f"body.{name}": value for name, value in weights.items()}, **head}


def logits(network: nn.Module, weights: Weights, items: Tensor) -> Tensor:
    """(n, *shape) -> (n, K), normalised by the statistics of these n items."""
    body = {name.removeprefix("body."): value for name, value in weights.items() if name.startswith("body.")}
    return _features(network, body, items) @ weights["head.weight"] + weights["head.bias"]


def _features(network: nn.Module, body: Weights, items: Tensor) -> Tensor:
    out: Tensor = functional_call(network, dict(body), (items,))
    return out.flatten(1)


def inner_loss(weights: Weights, network: nn.Module, items: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy with soft targets (N, K), a mean over their mass."""
    return -(targets * logits(network, weights, items).log_softmax(-1)).sum() / targets.sum().clamp_min(1)


def classify(
    network: nn.Module,
    weights: Weights,
    support: Tensor,
    targets: Tensor,
    query: Tensor,
    step_size: float | Tensor,
    inner_steps: int = INNER_STEPS,
) -> Tensor:
    """One episode: (N, *shape), (N, K) and (Q, *shape) -> log-probabilities (Q, K); differentiable to any order."""
    adapted = start(network, weights, support, targets.shape[-1])
    for _ in range(inner_steps):
        slope = grad(inner_loss)(adapted, network, support, targets)
        adapted = {name: value - step_size * slope[name] for name, value in adapted.items()}
    together = logits(network, adapted, torch.cat([support, query]))
    return together[len(support) :].log_softmax(-1)


def maml(episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int) -> list[Tensor]:
    """All episodes of a batch in one vectorised map."""
    network = without_statistics(encoder)
    weights = {name: value.detach() for name, value in encoder.named_parameters()}
    N, Q = episodes.support.shape[1], episodes.query.shape[1]
    at_once = max(1, EPISODES_AT_ONCE // ((N + Q) * episodes.support[0, 0].numel()))
    by_steps: dict[int | None, Tensor] = {}
    out = []
    for candidate in candidates:
        steps, size = candidate.get("steps"), float(candidate["step_size"])
        if steps not in by_steps:
            by_steps[steps] = votes.believe(episodes.labels, episodes.n_classes, steps).to(episodes.support)

        def one(support: Tensor, targets: Tensor, query: Tensor, size: float = size) -> Tensor:
            return classify(network, weights, support, targets, query, size)

        with torch.no_grad():
            found = vmap(one, chunk_size=at_once)(episodes.support, by_steps[steps], episodes.query)
        out.append(found.exp())
    return out


# ---- meta-training ------------------------------------------------------------------------------------------------


class SideBySide(nn.Module):
    """The weights of G networks of one shape, each (G, ...), for `vmap`."""

    def __init__(self, modules: Sequence[nn.Module]) -> None:
        super().__init__()
        self.size = len(modules)
        self.names = [name for name, _ in modules[0].named_parameters()]
        for name in self.names:
            together = torch.stack([module.get_parameter(name).detach() for module in modules])
            self.register_parameter(name.replace(".", "/"), nn.Parameter(together))
        self.rest = [dict(module.named_buffers()) for module in modules]
        self.network = (without_statistics(modules[0]),)  # in a tuple, so that its weights are not counted here

    def weights(self) -> dict[str, Tensor]:
        return {name: self.get_parameter(name.replace(".", "/")) for name in self.names}

    def unstack(self, index: int) -> dict[str, Tensor]:
        return {**{name: value.detach()[index].clone() for name, value in self.weights().items()}, **self.rest[index]}


class MAMLTrainer(Trainer):
    """Meta-training as everywhere, with gradient steps in the place of EM; G models, a step size for each."""

    def __init__(
        self, jobs: Sequence[Job], pool: ClassPool, step_sizes: Sequence[float], inner_steps: int = INNER_STEPS
    ) -> None:
        self.step_sizes, self.inner_steps = torch.tensor(step_sizes, device=pool.examples.device), inner_steps
        super().__init__(jobs, pool, "float32", World())
        self.stack: Any = SideBySide([job.encoder.module for job in jobs]).to(self.device)
        on_gpu = self.device.type == "cuda"
        fastest = max(job.recipe.learning_rate for job in jobs)
        self.optimizer = torch.optim.Adam(self.stack.parameters(), lr=fastest, fused=on_gpu, capturable=on_gpu)
        self.best = self.snapshot()

    def step(self) -> None:
        self.iteration += 1
        self._step()

    def log_proba(self, batch: Batch, repeat: int = 1) -> Tensor:
        ways, (network,) = self.recipe.ways[1], self.stack.network
        support, query = (self._inputs(x, repeat) for x in (batch.support, batch.query))
        targets = votes.soft_vote(batch.labels, ways)
        targets = targets.reshape(self.size, repeat, *targets.shape[1:])

        def one(weights: Weights, size: Tensor, support: Tensor, targets: Tensor, query: Tensor) -> Tensor:
            return classify(network, weights, support, targets, query, size, self.inner_steps)

        episodes = vmap(one, in_dims=(None, None, 0, 0, 0), chunk_size=16)
        found = vmap(episodes)(self.stack.weights(), self.step_sizes, support, targets, query).flatten(0, 1)
        if batch.classes_in_use is None:
            return found
        beyond = torch.arange(ways, device=found.device) >= batch.classes_in_use[:, None, None]
        return found.masked_fill(beyond, -torch.inf).log_softmax(-1)

    def _inputs(self, items: Tensor, repeat: int) -> Tensor:
        """(G · repeat, n, ...) as stored -> (G, repeat, n, *shape) as the network takes them."""
        x = self.as_input(items.reshape(self.size, -1, *items.shape[2:]))
        return x.reshape(self.size, repeat, items.shape[1], *x.shape[2:])


def train_maml(
    jobs: Sequence[Job],
    pool: ClassPool,
    step_sizes: Sequence[float],
    *,
    report: Callable[[Progress], None] = lambda progress: None,
) -> list[Encoder]:
    """Encoders for MaMV and MaDS, one for each job and its step size, trained side by side on the pool's device.

    A recipe's objective, EM steps and priors are not used; ``pseudo_annotation`` is.
    """
    encoders = run(MAMLTrainer(jobs, pool, step_sizes), report)
    for encoder, step_size in zip(encoders, step_sizes, strict=True):
        encoder.card["recipe"] |= {"objective": "maml", "step_size": step_size}
    return encoders
