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
distance to the class's other examples; the encoder, trained through it, finds the scale, and at test ``sharpness`` can
change it: softmax(-sharpness d), one of four chosen on validation, as other systems choose theirs. The authors' second
model, a transformer, is not the one that the paper describes.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from crowdshot.classifier.episode_methods import embed
from crowdshot.methods import Candidate, CrowdEpisodes
from crowdshot.model import prototypes
from crowdshot.model.prototypes import known_classes, log_proba


def similarity_weighted(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    support, query = embed(encoder, episodes.support), embed(encoder, episodes.query)
    counts = prototypes.vote_counts(episodes.labels, episodes.n_classes)
    return [
        known_classes(log_proba(support, episodes.labels, query, episodes.n_classes, **candidate), counts)
        for candidate in candidates
    ]
