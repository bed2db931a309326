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
and are better from three items a class on (docs/reproduction-details.md).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crowdshot.encoders.stack import STACKABLE, pure_stack
from crowdshot.methods import verdicts
from crowdshot.methods.contract import Candidate, CrowdEpisodes
from crowdshot.model.gradient_steps import classify

ACTIVATIONS_AT_ONCE = {"cpu": 2**28, "cuda": 2**31}  # numbers behind the first convolution; held a few times


def maml(episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int) -> list[Tensor]:
    """All episodes of a batch side by side, each on its own copy of the encoder."""
    return [
        torch.cat([_adapt(part, encoder, candidate) for part in episodes.parts(_at_once(episodes, encoder))])
        for candidate in candidates
    ]


def _adapt(episodes: CrowdEpisodes, encoder: nn.Module, candidate: Candidate) -> Tensor:
    support, labels, query, K = episodes[:4]
    targets = verdicts.believe(labels, K, candidate).to(support)
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
