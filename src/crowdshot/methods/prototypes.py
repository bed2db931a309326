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

from torch import Tensor, nn

from crowdshot.methods import verdicts
from crowdshot.methods.contract import Candidate, CrowdEpisodes
from crowdshot.methods.embedding import embed
from crowdshot.model import votes
from crowdshot.model.prototypes import classify, known_classes


def prototypical(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    support, query = embed(encoder, episodes.support), embed(encoder, episodes.query)
    beliefs = [verdicts.believe(episodes.labels, episodes.n_classes, candidate) for candidate in candidates]
    return [known_classes(classify(support, weights, query), weights) for weights in beliefs]


def soft_prototypical(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    weights = votes.soft_vote(episodes.labels, episodes.n_classes)
    log_p = classify(embed(encoder, episodes.support), weights, embed(encoder, episodes.query))
    found = known_classes(log_p, weights)
    return [found for _ in candidates]
