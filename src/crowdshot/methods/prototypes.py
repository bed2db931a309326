"""PrMV, PrDS, PrSV: distances to class averages of meta-learned embeddings.

Authors: Jake Snell, Kevin Swersky, Richard Zemel
Title: Prototypical Networks for Few-shot Learning
Year: 2017
Link: https://arxiv.org/abs/1703.05175

An encoder is meta-trained so that items lie close to the average of their class. Here averages are taken with the
crowd's verdict as weights: the majority vote (PrMV), Dawid–Skene's posterior (PrDS), or each label counting alike
(PrSV, which the paper leaves out and which is strong).

Left open by the paper, and decided here: Dawid–Skene's posteriors enter as weights, since the paper says so for one EM
step. ``hard`` takes their most probable class instead, which is worse, and gives what the paper reports for PrDS
(docs/reproduction.md). A class that got no weight is never predicted. (At the average of all items, where one might put
what nothing is known of, it would be nearer to most queries than any class that is known.) Distances are squared
Euclidean and halved, as in the mixture with which the encoder is trained. "w/ PA" differs in the encoder alone; its
meta-training weighs items by soft votes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crowdshot.methods import votes
from crowdshot.methods.base import Candidate, CrowdEpisodes, embed


def classify(support: Tensor, weights: Tensor, query: Tensor) -> Tensor:
    """Log-probabilities (..., Q, K) from embeddings (..., N, D), their weights (..., N, K) and queries (..., Q, D).

    mu_k = sum_n w_nk u_n / sum_n w_nk, and log p(k | u) = -|u - mu_k|^2 / 2 up to a constant.
    """
    everything = weights.sum(-1, keepdim=True)
    centre = (everything * support).sum(-2, keepdim=True) / everything.sum(-2, keepdim=True).clamp_min(1e-12)
    total = weights.sum(-2)[..., None]  # (..., K, 1)
    means = weights.mT @ (support - centre) / total.clamp_min(1e-12)  # around the centre; zero where there is no weight
    return ((query - centre) @ means.mT - 0.5 * means.square().sum(-1)[..., None, :]).log_softmax(-1)


def known_classes(log_p: Tensor, weights: Tensor) -> Tensor:
    """Probabilities (..., Q, K) of the classes that have weight; where none has, all stay as they are."""
    known = weights.sum(-2, keepdim=True) > 0  # (..., 1, K)
    return log_p.masked_fill(~known & known.any(-1, keepdim=True), -torch.inf).softmax(-1)


def prototypical(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    support, query = embed(encoder, episodes.support), embed(encoder, episodes.query)
    beliefs = [votes.believe(episodes.labels, episodes.n_classes, candidate) for candidate in candidates]
    return [known_classes(classify(support, weights, query), weights) for weights in beliefs]


def soft_prototypical(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    weights = votes.soft_vote(episodes.labels, episodes.n_classes)
    log_p = classify(embed(encoder, episodes.support), weights, embed(encoder, episodes.query))
    found = known_classes(log_p, weights)
    return [found for _ in candidates]
