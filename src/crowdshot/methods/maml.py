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
votes, for MaMV and MaDS alike. ``gradient_steps`` are three at test, as in meta-training; two fit wrong labels less,
and are better from three items a class on (docs/reproduction.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, replace_all_batch_norm_modules_

from crowdshot.methods import votes
from crowdshot.methods.base import Candidate, CrowdEpisodes
from crowdshot.stacking import STACKABLE, StackedConv4, stack

GRADIENT_STEPS = 3
STEP_SIZES = (1e-2, 1e-1, 1.0)
ACTIVATIONS_AT_ONCE = 2**28  # numbers behind the first convolution; three steps hold them several times

Weights = Mapping[str, Tensor]


def pure_stack(modules: Sequence[nn.Module]) -> Any:
    """G networks as one pure, twice differentiable function of weights and items (`crowdshot.stacking`).

    It normalises by batch statistics alone. The sum of the networks' losses has all their gradients as its gradient.
    """
    networks = stack(modules)
    if isinstance(networks, StackedConv4):
        networks.pure = True
        return networks
    networks = deepcopy(networks).train()
    replace_all_batch_norm_modules_(networks)
    return networks


def start(networks: Any, weights: Weights, items: Tensor, n_classes: int) -> dict[str, Tensor]:
    """The weights of G episodes before any step: the encoders', and output layers of zeros."""
    width = functional_call(networks, dict(weights), (items[:, :2],)).shape[-1]
    head = {"head": items.new_zeros(len(items), width, n_classes), "bias": items.new_zeros(len(items), 1, n_classes)}
    return {**{f"body.{name}": value for name, value in weights.items()}, **head}


def logits(networks: Any, weights: Weights, items: Tensor) -> Tensor:
    """(G, n, *shape) -> (G, n, K), normalised by the statistics of an episode's n items."""
    body = {name.removeprefix("body."): value for name, value in weights.items() if name.startswith("body.")}
    embeddings = functional_call(networks, body, (items,)).to(weights["head"].dtype)
    return torch.baddbmm(weights["bias"], embeddings, weights["head"])


def inner_loss(weights: Weights, networks: Any, items: Tensor, targets: Tensor) -> Tensor:
    """Cross-entropy with soft targets (G, N, K): each episode's is a mean over their mass, and all are added up."""
    losses = -(targets * logits(networks, weights, items).log_softmax(-1)).sum((1, 2))
    return (losses / targets.sum((1, 2)).clamp_min(1)).sum()


def classify(
    networks: Any,
    weights: Weights,
    support: Tensor,
    targets: Tensor,
    query: Tensor,
    step_sizes: Tensor,
    gradient_steps: int = GRADIENT_STEPS,
) -> Tensor:
    """G episodes, each on its own network: (G, N, *shape), (G, N, K), (G, Q, *shape) and (G,) -> log-probabilities
    (G, Q, K); differentiable to any order."""
    G = len(support)
    adapted = start(networks, weights, support, targets.shape[-1])
    for _ in range(gradient_steps):
        slopes = grad(inner_loss)(adapted, networks, support, targets)
        moves = {name: (slope.reshape(G, -1) * step_sizes[:, None]).view_as(slope) for name, slope in slopes.items()}
        adapted = {name: value - moves[name] for name, value in adapted.items()}
    together = logits(networks, adapted, torch.cat([support, query], 1))
    return together[:, support.shape[1] :].log_softmax(-1)


def maml(episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int) -> list[Tensor]:
    """All episodes of a batch side by side, each on its own copy of the encoder."""
    return [
        torch.cat([_adapt(part, encoder, candidate) for part in episodes.parts(_at_once(episodes, encoder))])
        for candidate in candidates
    ]


def _adapt(episodes: CrowdEpisodes, encoder: nn.Module, candidate: Candidate) -> Tensor:
    support, labels, query, K = episodes[:4]
    targets = votes.believe(labels, K, candidate).to(support)
    networks = pure_stack([encoder] * len(labels)).to(support.device)
    weights = {name: value.detach() for name, value in networks.named_parameters()}
    sizes = torch.full((len(labels),), float(candidate["step_size"]), device=support.device)
    with torch.no_grad():
        return classify(networks, weights, support, targets, query, sizes, int(candidate["gradient_steps"])).exp()


def _at_once(episodes: CrowdEpisodes, encoder: nn.Module) -> int:
    """How many copies can stand side by side: as many as fit in memory, or one that cannot be stacked."""
    if type(encoder) not in STACKABLE:
        return 1
    items = episodes.support.shape[1] + episodes.query.shape[1]
    return ACTIVATIONS_AT_ONCE // (items * episodes.support[0, 0].numel() * (64 if episodes.support.ndim == 5 else 1))
