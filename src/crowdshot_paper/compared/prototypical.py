"""PrMV, PrDS, PrSV: nearest class mean of meta-learned embeddings (prototypical networks).

Authors: Jake Snell, Kevin Swersky, Richard Zemel
Title: Prototypical Networks for Few-shot Learning
Year: 2017
Link: https://arxiv.org/abs/1703.05175

An encoder is meta-trained so that items are close to the mean of their class. The means are weighted by the aggregated
labels: the majority vote (PrMV), the posterior of Dawid–Skene (PrDS), or soft votes, which give each label the same
weight (PrSV). PrSV is not in the paper; it is a strong baseline. PrKM, another baseline, continues from PrSV by soft
k-means (Ren et al., Meta-Learning for Semi-Supervised Few-Shot Classification, 2018): three times every item is shared
among the classes that somebody chose for it, by its distances to the class means, and the means are computed anew. Like
PrSV it ignores who gave a label.

Our choices where the paper is silent. The posteriors of Dawid–Skene are weights, as the paper describes for one EM
step. ``hard`` uses their most probable class instead; this is worse and matches the paper's numbers for PrDS
(docs/reproduction.md). A class without weight is never predicted. (If its mean were the mean of all items, it would be
nearer to most queries than any known class.) Distances are squared Euclidean and halved, as in the mixture with which
the encoder is trained. "w/ PA" differs in the encoder only; its meta-training weights items by soft votes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from crowdshot.classifier.episode_methods import embed
from crowdshot.methods import Candidate, CrowdEpisodes
from crowdshot.model import prototypes
from crowdshot.model.prototypes import classify, dawid_skene, known_classes, majority_vote


def aggregated(labels: Tensor, n_classes: int, candidate: Mapping[str, Any]) -> Tensor:
    """Return class probabilities (B, N, K), which methods use as soft labels, targets or weights.

    They come from Dawid–Skene if the candidate has a number of EM steps, else from the majority vote. ``hard`` keeps
    the most probable class only.
    """
    if candidate.get("steps") is None:
        return majority_vote(labels, n_classes)
    posterior = dawid_skene(labels, n_classes, candidate["steps"])
    if candidate.get("hard"):
        posterior = F.one_hot(posterior.argmax(-1), n_classes).to(posterior) * (posterior.sum(-1, keepdim=True) > 0)
    return posterior


def prototypical(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    support, query = embed(encoder, episodes.support), embed(encoder, episodes.query)
    posteriors = [aggregated(episodes.labels, episodes.n_classes, candidate) for candidate in candidates]
    return [known_classes(classify(support, weights, query), weights) for weights in posteriors]


def soft_prototypical(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    weights = prototypes.soft_vote(episodes.labels, episodes.n_classes)
    log_p = classify(embed(encoder, episodes.support), weights, embed(encoder, episodes.query))
    found = known_classes(log_p, weights)
    return [found for _ in candidates]


ROUNDS = 3  # of soft k-means


def soft_k_means(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    """Refine the class means of soft votes by soft k-means; an item belongs to classes that somebody chose for it."""
    support, query = embed(encoder, episodes.support), embed(encoder, episodes.query)
    votes = prototypes.soft_vote(episodes.labels, episodes.n_classes)
    weights = votes
    for _ in range(ROUNDS):
        nearness = classify(support, weights, support).masked_fill(votes == 0, -1e9).softmax(-1)
        weights = nearness * (votes > 0)
    found = known_classes(classify(query=query, support=support, weights=weights), weights)
    return [found for _ in candidates]
