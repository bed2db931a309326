"""Fine-tune one network per episode by gradient descent, for all episodes of a batch at once.

The network of an episode is an encoder with a linear output layer. A `LabelLayer`, which differs between methods, maps
its output to the annotators' labels. The networks of B episodes form one stack (`crowdshot.training.stack`), which
takes all their steps at once. Predictions after 10, 100 and 300 iterations come from a single run.

All episodes and all annotators start from the same parameters. Results therefore depend neither on the other episodes
of the batch nor on the order of the annotators.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from crowdshot.classifier.episode_methods import embed
from crowdshot.encoders.networks import MLP, Conv4
from crowdshot.methods import Candidate, CrowdEpisodes
from crowdshot.training.first_block_gpu import Patches
from crowdshot.training.stack import prepared, stack

LEARNING_RATE = 1e-3
# Outputs of the first convolution in one step. A CPU holds a few times as many numbers. A GPU holds only a part of
# them, because `first_block_gpu` does not write them to memory, and more networks per step reduce the overhead of
# Python.
ACTIVATIONS_AT_ONCE = {"cpu": 2**31, "cuda": 2**34}


class LabelLayer(Protocol):
    """Map the outputs of G networks to a loss on the annotators' labels."""

    def __call__(self, embeddings: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        """Return losses (G,) of embeddings (G, N, D), logits (G, N, K) and labels (G, N, R)."""
        ...

    def parameters(self) -> list[nn.Parameter]: ...


class Sizes:
    """Hold the sizes of G episodes, and draw initial parameters that are the same for every episode."""

    def __init__(self, G: int, D: int, R: int, K: int, seed: int, device: torch.device) -> None:
        self.G, self.D, self.R, self.K, self.device = G, D, R, K, device
        self.generator = torch.Generator().manual_seed(seed)

    def shared(self, value: Tensor) -> nn.Parameter:
        """Return a parameter (G, *shape) with a copy of the value for each episode."""
        return nn.Parameter(value.to(self.device).expand(self.G, *value.shape).clone())

    def linear(self, n_in: int, n_out: int, copies: int = 1) -> tuple[nn.Parameter, nn.Parameter]:
        """Return weights (G, n_in, n_out) and biases (G, 1, n_out) of a linear layer, drawn as torch does.

        ``copies`` repeats the layer: the number of outputs is then copies · n_out.
        """
        bound = n_in**-0.5
        weight, bias = ((2 * torch.rand(n, n_out, generator=self.generator) - 1) * bound for n in (n_in, 1))
        return self.shared(weight.repeat(1, copies)), self.shared(bias.repeat(1, copies))


def fresh_network(shape: Sequence[int], seed: int) -> nn.Module:
    """Return an untrained encoder for items of this shape: Conv4 for images, else a network of two linear layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if len(shape) == 3 and min(shape[1:]) >= 16:
            return Conv4(shape[0])
        return nn.Sequential(nn.Flatten(), MLP(torch.Size(shape).numel()))


def fine_tune_candidates(
    episodes: CrowdEpisodes,
    encoder: nn.Module,
    candidates: Sequence[Candidate],
    seed: int,
    crowd: Callable[..., LabelLayer],
) -> list[Tensor]:
    """Predict by each candidate; those that differ only in the number of iterations share a run.

    ``crowd(sizes, candidate=...)`` returns the label layer.
    """
    runs: dict[str, list[int]] = defaultdict(list)
    for place, candidate in enumerate(candidates):
        runs[repr(sorted((k, v) for k, v in candidate.items() if k != "iterations"))].append(place)
    out: list[Tensor] = [torch.empty(0)] * len(candidates)
    for places in runs.values():
        one = candidates[places[0]]
        iterations = [int(candidates[place]["iterations"]) for place in places]
        frozen = bool(one.get("frozen", False))
        found = fine_tune(episodes, encoder, partial(crowd, candidate=one), iterations, seed, frozen)
        for place, probabilities in zip(places, found, strict=True):
            out[place] = probabilities
    return out


def fine_tune(
    episodes: CrowdEpisodes,
    encoder: nn.Module,
    crowd: Callable[[Sizes], LabelLayer],
    iterations: Sequence[int],
    seed: int,
    frozen: bool = False,
) -> list[Tensor]:
    """Return class probabilities of the queries (B, Q, K) after each number of iterations.

    Adam with learning rate 1e-3 uses the whole support set. Batch normalisation uses statistics of the support set in
    training and running statistics in prediction, as torch does. On a GPU the networks compute in bfloat16. ``frozen``
    fixes the encoder; an encoder that cannot be stacked is always fixed.
    """
    per_item = episodes.support[0, 0].numel() * (64 if episodes.support.ndim == 5 else 1)
    numbers = per_item * (episodes.support.shape[1] + episodes.query.shape[1])
    at_once = ACTIVATIONS_AT_ONCE.get(episodes.support.device.type, 2**31) // numbers
    with torch.backends.cudnn.flags(
        enabled=True, benchmark=True
    ):  # without the benchmark cuDNN chooses a slow algorithm
        parts = [_fine_tune(part, encoder, crowd, iterations, seed, frozen) for part in episodes.parts(at_once)]
    return [torch.cat(after) for after in zip(*parts, strict=True)]


def _fine_tune(
    episodes: CrowdEpisodes,
    encoder: nn.Module,
    crowd: Callable[[Sizes], LabelLayer],
    iterations: Sequence[int],
    seed: int,
    frozen: bool,
) -> list[Tensor]:
    support, labels, query, K = episodes[:4]
    if isinstance(encoder, nn.Sequential) and isinstance(encoder[0], nn.Flatten):
        support, query, encoder = support.flatten(2), query.flatten(2), encoder[1]
    device = support.device
    if frozen or type(encoder) not in (Conv4, MLP):
        support, query = embed(encoder, support), embed(encoder, query)
        networks: nn.Module = nn.Identity()
        D = support.shape[-1]
    else:
        networks = stack([encoder] * len(labels)).to(device)
        D = embed(encoder.to(device), support[:1, :1]).shape[-1]

    def forward(items: Tensor | Patches) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, device.type == "cuda", cache_enabled=False):
            return networks(items).float()  # type: ignore[no-any-return]

    sizes = Sizes(len(labels), D, labels.shape[-1], K, seed, device)
    weight, bias = sizes.linear(D, K)
    annotators = crowd(sizes)
    learned = [*networks.parameters(), weight, bias, *annotators.parameters()]
    optimizer = torch.optim.Adam(learned, lr=LEARNING_RATE, fused=device.type == "cuda")
    learned_from = prepared(networks, support)
    found: dict[int, Tensor] = {}
    for iteration in range(1, max(iterations) + 1):
        networks.train()
        with torch.enable_grad():
            embeddings = forward(learned_from)
            losses = annotators(embeddings, torch.baddbmm(bias, embeddings, weight), labels)
        optimizer.zero_grad(set_to_none=True)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if iteration in iterations:
            networks.eval()
            with torch.no_grad():
                found[iteration] = torch.baddbmm(bias, forward(query), weight).softmax(-1)
    return [found[iteration] for iteration in iterations]


def masked_cross_entropy(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the mean over labels, (G,), of scores (G, N, R, K) and labels (G, N, R); -1 means no label."""
    losses = F.cross_entropy(scores.flatten(0, 2), labels.flatten(), ignore_index=-1, reduction="none")
    n_labels = (labels >= 0).sum((1, 2)).clamp_min(1)
    return losses.view_as(labels).sum((1, 2)) / n_labels
