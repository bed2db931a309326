"""MAML's inner loop on tensors: from meta-learned weights, a few gradient steps to an episode's classifier."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, grad

GRADIENT_STEPS = 3
Weights = Mapping[str, Tensor]


def start(networks: Any, weights: Weights, items: Tensor, n_classes: int) -> dict[str, Tensor]:
    """The weights of G episodes before any step: the encoders', and output layers of zeros."""
    width = functional_call(networks, dict(weights), (items[:, :2],)).shape[-1]
    head = {"head": items.new_zeros(len(items), width, n_classes), "bias": items.new_zeros(len(items), 1, n_classes)}
    return {**{f"body.{name}": value for name, value in weights.items()}, **head}


def logits(networks: Any, weights: Weights, items: Tensor) -> Tensor:
    """(G, n, *shape) -> (G, n, K), normalised by the statistics of an episode's n items."""
    body = {name.removeprefix("body."): value for name, value in weights.items() if name.startswith("body.")}
    embeddings = functional_call(networks, body, (items,)).to(weights["head"].dtype)
    with torch.autocast(items.device.type, enabled=False):  # which is for the network alone
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
    twice: bool = False,
) -> Tensor:
    """G episodes, each on its own network: (G, N, *shape), (G, N, K), (G, Q, *shape) and (G,) -> log-probabilities
    (G, Q, K). ``twice``: they can be differentiated, as meta-training does; ``networks`` must be made for that."""
    G = len(support)
    slopes_of = grad(inner_loss) if twice else _slopes
    adapted = start(networks, weights, support, targets.shape[-1])
    for _ in range(gradient_steps):
        slopes = slopes_of(adapted, networks, support, targets)
        moves = {name: (slope.reshape(G, -1) * step_sizes[:, None]).view_as(slope) for name, slope in slopes.items()}
        adapted = {name: value - moves[name] for name, value in adapted.items()}
    together = logits(networks, adapted, torch.cat([support, query], 1))
    return together[:, support.shape[1] :].log_softmax(-1)


def _slopes(weights: Weights, networks: Any, items: Tensor, targets: Tensor) -> dict[str, Tensor]:
    """Of the inner loss, and nothing else: what cannot be differentiated again need not be remembered."""
    here = {name: value.detach().requires_grad_() for name, value in weights.items()}
    with torch.enable_grad():
        loss = inner_loss(here, networks, items, targets)
    return dict(zip(here, torch.autograd.grad(loss, list(here.values())), strict=True))
