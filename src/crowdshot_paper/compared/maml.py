"""MaMV, MaDS: adapt meta-learned weights to an episode by a few gradient steps (MAML).

Authors: Chelsea Finn, Pieter Abbeel, Sergey Levine
Title: Model-Agnostic Meta-Learning for Fast Adaptation of Deep Networks
Year: 2017
Link: https://arxiv.org/abs/1703.03400

Meta-training finds weights such that three gradient steps on a support set give a network with a low loss on the
queries. It differentiates through these steps, including second derivatives. At test the same steps use the aggregated
labels: the majority vote (MaMV) or the posterior of Dawid–Skene (MaDS).

Our choices where the paper is silent:

- The output layer starts each episode at zero and is not meta-learned. Kao et al. (ICLR 2022) find this "zeroing trick"
  better. The learned network is then an ordinary encoder for any number of classes.
- Batch normalisation always uses batch statistics, as in the authors' program. Queries are normalised together with the
  support set. A single query can then be classified, and queries hardly depend on each other.
- Meta-training and test use the same step size (`Needs.by`).
- With simulated annotators, the targets of meta-training are soft votes, for both MaMV and MaDS.
- ``gradient_steps`` is three at test, as in meta-training. Two steps fit wrong labels less and are better from three
  items per class on (docs/research/reproduction-details.md).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad
from torch.fx.experimental.proxy_tensor import make_fx

from crowdshot.methods import Candidate, CrowdEpisodes
from crowdshot.model import prototypes
from crowdshot.training.episodes import Batch
from crowdshot.training.stack import STACKABLE, pure_stack
from crowdshot.training.trainer import Trainer, only_in_use, query_losses
from crowdshot_paper.compared import prototypical

# ---- the inner loop: gradient steps from meta-learned weights to the classifier of an episode ----

GRADIENT_STEPS = 3
Weights = Mapping[str, Tensor]


def start(networks: Any, weights: Weights, items: Tensor, n_classes: int) -> dict[str, Tensor]:
    """Return the initial weights of G episodes: those of the encoders, and output layers of zeros."""
    width = functional_call(networks, dict(weights), (items[:, :2],)).shape[-1]
    head = {"head": items.new_zeros(len(items), width, n_classes), "bias": items.new_zeros(len(items), 1, n_classes)}
    return {**{f"body.{name}": value for name, value in weights.items()}, **head}


def logits(networks: Any, weights: Weights, items: Tensor) -> Tensor:
    """Return logits (G, n, K) of items (G, n, *shape), normalised by the statistics of the episode's n items."""
    body = {name.removeprefix("body."): value for name, value in weights.items() if name.startswith("body.")}
    embeddings = functional_call(networks, body, (items,)).to(weights["head"].dtype)
    with torch.autocast(items.device.type, enabled=False):  # only the network uses lower precision
        return torch.baddbmm(weights["bias"], embeddings, weights["head"])


def inner_loss(weights: Weights, networks: Any, items: Tensor, targets: Tensor) -> Tensor:
    """Return the sum over episodes of the mean cross-entropy with soft targets (G, N, K)."""
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
    """Adapt one network per episode and return log-probabilities of the queries (G, Q, K).

    Parameters
    ----------
    networks, weights
        A stack of G networks and its parameters.
    support, targets, query : Tensor
        Items (G, N, *shape), soft labels (G, N, K) and queries (G, Q, *shape).
    step_sizes : Tensor
        The step size of each episode, (G,).
    gradient_steps : int
        The number of steps.
    twice : bool
        Whether the result can be differentiated, as meta-training requires. The networks must support this.
    """
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
    """Return the gradients of the inner loss, which cannot be differentiated again; this needs less memory."""
    leaves = {name: value.detach().requires_grad_() for name, value in weights.items()}
    with torch.enable_grad():
        loss = inner_loss(leaves, networks, items, targets)
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


# ---- prediction ----

ACTIVATIONS_AT_ONCE = {
    "cpu": 2**28,
    "cuda": 2**31,
}  # outputs of the first convolution, several copies of which are held


def maml(episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int) -> list[Tensor]:
    """Adapt one copy of the encoder to each episode, as many episodes at once as fit in memory."""
    return [
        torch.cat([_adapt(part, encoder, candidate) for part in episodes.parts(_at_once(episodes, encoder))])
        for candidate in candidates
    ]


def _adapt(episodes: CrowdEpisodes, encoder: nn.Module, candidate: Candidate) -> Tensor:
    support, labels, query, K = episodes[:4]
    targets = prototypical.aggregated(labels, K, candidate).to(support)
    networks = pure_stack([encoder] * len(labels)).to(support.device)
    weights = {name: value.detach() for name, value in networks.named_parameters()}
    sizes = torch.full((len(labels),), float(candidate["step_size"]), device=support.device)
    with torch.no_grad():
        return classify(networks, weights, support, targets, query, sizes, int(candidate["gradient_steps"])).exp()


def _at_once(episodes: CrowdEpisodes, encoder: nn.Module) -> int:
    """Return how many copies of the encoder fit in memory; 1 if it cannot be stacked."""
    if type(encoder) not in STACKABLE:
        return 1
    items = episodes.support.shape[1] + episodes.query.shape[1]
    at_once = ACTIVATIONS_AT_ONCE.get(episodes.support.device.type, 2**28)
    return at_once // (items * episodes.support[0, 0].numel() * (64 if episodes.support.ndim == 5 else 1))


# ---- meta-training ----
#
# Second derivatives are about 3,000 operations, most of them passes over an activation that PyTorch does not fuse. On a
# GPU the gradients of a step, including second derivatives, are therefore traced once and compiled (1 to 2 minutes).
# Five models of 84×84 images then take 18 ms per step instead of 110 ms in float32.

Slopes = Callable[[list[Tensor], list[Tensor | None]], tuple[list[Tensor], Tensor]]


class MAMLTrainer(Trainer):
    """Meta-train G models, each with its own step size. The recipe's EM steps and priors are not used."""

    compiled: Slopes | None = None

    def stacked(self, modules: Sequence[nn.Module]) -> Any:
        return pure_stack(modules, twice=True)

    def learn(self, batch: Batch, share: float) -> Tensor:
        if self.device.type != "cuda" or find_spec("triton") is None:
            return super().learn(batch, share)
        return self.learn_compiled(batch, share, "inductor")

    def learn_compiled(self, batch: Batch, share: float, backend: str) -> Tensor:
        """Accumulate gradients with a compiled function. It is compiled once, as shapes do not change in a run."""
        parameters = list(self.stack.parameters())
        values, tensors = [p.detach() for p in parameters], list(batch)
        with torch.no_grad():
            if self.compiled is None:
                slopes_of = torch.func.grad(self._total_loss, has_aux=True)
                traced = make_fx(lambda *inputs: slopes_of(*inputs))(values, tensors)  # make_fx takes functions only
                self.compiled = torch.compile(traced, backend=backend)
            slopes, losses = self.compiled(values, tensors)
            for p, slope in zip(parameters, slopes, strict=True):
                slope = slope.contiguous() * share  # Adam needs the memory layout of p
                p.grad = slope if p.grad is None else p.grad + slope
        return losses * share

    def _total_loss(self, values: list[Tensor], tensors: list[Tensor | None]) -> tuple[Tensor, Tensor]:
        """Return the sum of the models' losses, whose gradient is that of each model, and the losses (G,)."""
        batch = Batch(*tensors)  # type: ignore[arg-type]
        weights = dict(zip(dict(self.stack.named_parameters()), values, strict=True))
        log_p = self._classified(self.stack, weights, batch, self.step_sizes, twice=True)
        losses = query_losses(log_p, batch.query_truth)
        return losses.sum(), losses

    def log_proba(self, batch: Batch, repeat: int = 1) -> Tensor:
        weights = {name: self._repeated(value, repeat) for name, value in self.stack.named_parameters()}
        if torch.is_grad_enabled():
            return self._classified(self.stack, weights, batch, self.step_sizes, twice=True)
        copies = pure_stack([self.jobs[0].encoder.module] * len(batch.labels)).to(self.device)
        return self._classified(copies, weights, batch, self.step_sizes.repeat_interleave(repeat))

    def _classified(
        self, networks: Any, weights: Mapping[str, Tensor], batch: Batch, step_sizes: Tensor, twice: bool = False
    ) -> Tensor:
        support, query = (self.as_input(items) for items in (batch.support, batch.query))
        targets = prototypes.soft_vote(batch.labels, self.recipe.ways[1])
        with torch.autocast(self.device.type, torch.bfloat16, self.precision == "bfloat16", cache_enabled=False):
            found = classify(networks, weights, support, targets, query, step_sizes, twice=twice)
        return only_in_use(found, batch.classes_in_use)

    def _repeated(self, value: Tensor, repeat: int) -> Tensor:
        """Repeat each model's part of a stacked parameter ``repeat`` times."""
        each = value.view(self.size, -1, *value.shape[1:])
        return each.repeat_interleave(repeat, 0).flatten(0, 1).view(-1, *value.shape[1:])
