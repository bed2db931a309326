"""LNL: prototypes that listen less to items far from the rest of their (noisy) class.

Authors: Kevin J. Liang, Samrudhdhi B. Rangrej, Vladan Petrovic, Tal Hassner
Title: Few-shot Learning with Noisy Labels
Year: 2022
Link: https://arxiv.org/abs/2204.05494

A mislabelled item lies far from the other items of the class it was put in; so each item is weighted by its squared
distances to them before a prototype is taken, and the encoder is meta-trained under label noise with these prototypes.
Annotators are not told apart.

Left open by the paper, and decided here: which noisy class an item belongs to when annotators disagree: every label
counts as one example of the class it names, so that an item on which many agree stands several times, at distance zero
from itself, and gains weight. The weights of a class are softmax(-d) over its examples, d being the mean squared
distance to the class's other examples; the encoder, trained through it, finds the scale. The authors' second model, a
transformer, is not the one that the paper describes.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crowdshot.methods import votes
from crowdshot.methods.base import Candidate, CrowdEpisodes, embed
from crowdshot.methods.prototypes import classify, known_classes


def weights(support: Tensor, labels: Tensor, n_classes: int) -> Tensor:
    """(..., N, D) and (..., N, R) -> (..., N, K), columns sum to 1; zero for a class that nobody named.

    With c_nk labels k on item n: d_nk = sum_m c_mk |u_n - u_m|^2 / (sum_m c_mk - 1), w_nk ~ c_nk exp(-d_nk).
    """
    counts = votes.counts(labels, n_classes).to(support.dtype)
    centred = support - support.mean(-2, keepdim=True)
    norms = centred.square().sum(-1)
    distances = (norms[..., :, None] + norms[..., None, :] - 2 * centred @ centred.mT).clamp_min(0)
    others = (counts.sum(-2, keepdim=True) - 1).clamp_min(1)
    far = distances @ counts / others  # (..., N, K)
    scores = torch.where(counts > 0, counts.clamp_min(1).log() - far, -1e9)
    return scores.softmax(-2) * (counts.sum(-2, keepdim=True) > 0)


def log_proba(support: Tensor, labels: Tensor, query: Tensor, n_classes: int) -> Tensor:
    return classify(support, weights(support, labels, n_classes), query)


def similarity_weighted(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    support, query = embed(encoder, episodes.support), embed(encoder, episodes.query)
    log_p = log_proba(support, episodes.labels, query, episodes.n_classes)
    found = known_classes(log_p, votes.counts(episodes.labels, episodes.n_classes))
    return [found for _ in candidates]
