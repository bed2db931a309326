"""LNL: prototypes with lower weight for items that are far from the rest of their (noisy) class.

Authors: Kevin J. Liang, Samrudhdhi B. Rangrej, Vladan Petrovic, Tal Hassner
Title: Few-shot Learning with Noisy Labels
Year: 2022
Link: https://arxiv.org/abs/2204.05494

A mislabelled item is far from the other items of its noisy class. Each item is therefore weighted by its squared
distances to them before the prototype is computed, and the encoder is meta-trained under label noise with these
prototypes. Annotators are not distinguished.

Our choices where the paper is silent. If annotators disagree, every label counts as one example of its class. An item
with several equal labels occurs several times, at distance zero from itself, and gains weight. The weights of a class
are softmax(-d) over its examples, where d is the mean squared distance to the other examples of the class. Training the
encoder through these weights finds the scale. At test ``sharpness`` can change it, softmax(-sharpness d); one of four
values is chosen on validation, like the settings of the other systems. The authors' second model, a transformer, is not
the one that the paper describes.
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
