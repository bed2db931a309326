"""Ours and w/o PA: a Gaussian mixture over meta-learned embeddings with a confusion matrix for each annotator.

Authors: Atsutoshi Kumagai, Tomoharu Iwata, Taishi Nishiyama, Yasutoshi Ida, Yasuhiro Fujiwara
Title: Meta-learning Representations for Learning from Multiple Annotators
Year: 2025
Link: https://arxiv.org/abs/2506.10259

Embeddings, true classes and annotators' mistakes are one probabilistic model, fitted to each episode by a few steps of
MAP-EM (`crowdshot.mixture`), through which the encoder is meta-trained while pretend annotators label its episodes.
"w/o PA" is the same model at test, on an encoder that was meta-trained with clean labels.

Left open by the paper, and decided here: whether J and b at test must be those of training. In the experiments they are
(`Needs.by`), but they need not be: one encoder serves all candidates, and more steps at test often help. For "w/o PA"
the encoder is the prototypical network's: the paper's section on computation cost says that it shares its meta-training
with PrMV, PrDS, MCL and MCNAL. That encoder has not met tau, which shrinks prototypes of few items, and so fails at one
shot, as the paper's row does. Trained through the mixture itself with annotators who tell the truth
(`Recipe.pseudo_annotation`), it does far better; use the method with such an encoder to see.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from crowdshot import mixture
from crowdshot.methods.base import Candidate, CrowdEpisodes, embed


def map_em(episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int) -> list[Tensor]:
    """A candidate's settings are arguments of `mixture.fit`."""
    support, query = embed(encoder, episodes.support), embed(encoder, episodes.query)
    return [
        mixture.fit(support, episodes.labels, episodes.n_classes, track=False, classifier_only=True, **candidate)
        .log_proba(query)
        .exp()
        for candidate in candidates
    ]
