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

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from crowdshot.classifier.episode_methods import embed
from crowdshot.methods import Candidate, CrowdEpisodes
from crowdshot.model import prototypes
from crowdshot.model.prototypes import classify, dawid_skene, known_classes, majority_vote

# ---- verdicts ------------------------------------------------------------
#
# The crowd's verdict that a candidate asks for: what follows takes it as soft labels, targets or weights.


def believe(labels: Tensor, n_classes: int, candidate: Mapping[str, Any]) -> Tensor:
    """Dawid–Skene where the candidate has a number of steps, else the majority vote; ``hard`` keeps the likeliest."""
    if candidate.get("steps") is None:
        return majority_vote(labels, n_classes)
    posterior = dawid_skene(labels, n_classes, candidate["steps"])
    if candidate.get("hard"):
        posterior = F.one_hot(posterior.argmax(-1), n_classes).to(posterior) * (posterior.sum(-1, keepdim=True) > 0)
    return posterior


# ---- prototypes ------------------------------------------------------------


def prototypical(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    support, query = embed(encoder, episodes.support), embed(encoder, episodes.query)
    posteriors = [believe(episodes.labels, episodes.n_classes, candidate) for candidate in candidates]
    return [known_classes(classify(support, weights, query), weights) for weights in posteriors]


def soft_prototypical(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    weights = prototypes.soft_vote(episodes.labels, episodes.n_classes)
    log_p = classify(embed(encoder, episodes.support), weights, embed(encoder, episodes.query))
    found = known_classes(log_p, weights)
    return [found for _ in candidates]
