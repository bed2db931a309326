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
The step size of meta-training is that of test (`Needs.by`). With simulated annotators, meta-training's targets are soft
votes, for MaMV and MaDS alike. ``gradient_steps`` are three at test, as in meta-training; two fit wrong labels less,
and are better from three items a class on (docs/research/reproduction-details.md).
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

# ---- gradient steps ------------------------------------------------------------
#
# MAML's inner loop on tensors: from meta-learned weights, a few gradient steps to an episode's classifier.


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


# ---- maml ------------------------------------------------------------


ACTIVATIONS_AT_ONCE = {"cpu": 2**28, "cuda": 2**31}  # numbers behind the first convolution; held a few times


def maml(episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int) -> list[Tensor]:
    """All episodes of a batch side by side, each on its own copy of the encoder."""
    return [
        torch.cat([_adapt(part, encoder, candidate) for part in episodes.parts(_at_once(episodes, encoder))])
        for candidate in candidates
    ]


def _adapt(episodes: CrowdEpisodes, encoder: nn.Module, candidate: Candidate) -> Tensor:
    support, labels, query, K = episodes[:4]
    targets = prototypical.believe(labels, K, candidate).to(support)
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
    at_once = ACTIVATIONS_AT_ONCE.get(episodes.support.device.type, 2**28)
    return at_once // (items * episodes.support[0, 0].numel() * (64 if episodes.support.ndim == 5 else 1))


# ---- maml trainer ------------------------------------------------------------
#
# Meta-training of MAML (`crowdshot_paper.compared.maml`): as everywhere, with gradient steps in the place of EM.
#
# Second derivatives are some 3,000 operations, most of them passes over an activation that PyTorch does not fuse. So on a
# GPU the slopes of a step, second derivatives and all, are traced once as one function and compiled (a minute or two):
# five models of 84×84 images take 18 ms a step in the place of 110 in float32.


Slopes = Callable[[list[Tensor], list[Tensor | None]], tuple[list[Tensor], Tensor]]


class MAMLTrainer(Trainer):
    """G models, each with its own step size. A recipe's EM steps and priors are not used."""

    compiled: Slopes | None = None

    def stacked(self, modules: Sequence[nn.Module]) -> Any:
        return pure_stack(modules, twice=True)

    def learn(self, batch: Batch, share: float) -> Tensor:
        if self.device.type != "cuda" or find_spec("triton") is None:
            return super().learn(batch, share)
        return self.learn_compiled(batch, share, "inductor")

    def learn_compiled(self, batch: Batch, share: float, backend: str) -> Tensor:
        """The same by one function that is compiled when it is first needed; no shape changes in a run."""
        parameters = list(self.stack.parameters())
        values, tensors = [p.detach() for p in parameters], list(batch)
        with torch.no_grad():
            if self.compiled is None:
                slopes_of = torch.func.grad(self._total_loss, has_aux=True)
                traced = make_fx(lambda *given: slopes_of(*given))(values, tensors)  # a method's self is no argument
                self.compiled = torch.compile(traced, backend=backend)
            slopes, losses = self.compiled(values, tensors)
            for p, slope in zip(parameters, slopes, strict=True):
                slope = slope.contiguous() * share  # a compiled function lays numbers out as it likes, Adam as p
                p.grad = slope if p.grad is None else p.grad + slope
        return losses * share

    def _total_loss(self, values: list[Tensor], tensors: list[Tensor | None]) -> tuple[Tensor, Tensor]:
        """Of all models, which has all their slopes; and each model's, (G,)."""
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
        """A parameter of G models side by side, each ``repeat`` times."""
        each = value.view(self.size, -1, *value.shape[1:])
        return each.repeat_interleave(repeat, 0).flatten(0, 1).view(-1, *value.shape[1:])
