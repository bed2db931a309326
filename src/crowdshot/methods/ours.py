"""Ours and w/o PA: a Gaussian mixture over meta-learned embeddings with a confusion matrix for each annotator.

Authors: Atsutoshi Kumagai, Tomoharu Iwata, Taishi Nishiyama, Yasutoshi Ida, Yasuhiro Fujiwara
Title: Meta-learning Representations for Learning from Multiple Annotators
Year: 2025
Link: https://arxiv.org/abs/2506.10259

Embeddings, true classes and annotators' mistakes are one probabilistic model, fitted to each episode by a few steps of
MAP-EM (`crowdshot.mixture`), through which the encoder is meta-trained while simulated annotators label its episodes.
"w/o PA" is the same model at test, on an encoder that was meta-trained with clean labels.

Left open by the paper, and decided here: whether J and b at test must be those of training. In the experiments they are
(`Needs.by`), but they need not be: one encoder serves all candidates, and more steps at test often help. For "w/o PA"
the encoder is the prototypical network's: the paper's section on computation cost says that it shares its meta-training
with PrMV, PrDS, MCL and MCNAL. That encoder has not met tau, which draws prototypes of few items to the origin, far
from all embeddings, and so fails at one shot, as the paper's row does. ``centred`` puts the origin at the support's
centre instead, and it fails no more (`crowdshot paper run centred`, docs/reproduction.md); nor does it if it is trained
through the mixture with annotators who tell the truth (`Recipe.pseudo_annotation`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crowdshot.methods.contract import Candidate, CrowdEpisodes
from crowdshot.methods.embedding import embed
from crowdshot.model import mixture

CONSTANTS = ("steps", "b", "tau", "c")  # a candidate's settings that are arguments of `mixture.fit`


def map_em(episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int) -> list[Tensor]:
    """MAP-EM with the `CONSTANTS` of each candidate; ``centred``: around the centre of the labelled items."""
    support, query = embed(encoder, episodes.support), embed(encoder, episodes.query)
    labelled = (episodes.labels >= 0).any(-1)[..., None].to(support)
    centre = (support * labelled).sum(1, keepdim=True) / labelled.sum(1, keepdim=True).clamp_min(1)
    found = []
    for candidate in candidates:
        settings = {name: candidate[name] for name in CONSTANTS}
        origin = centre if candidate["centred"] else torch.zeros_like(centre)
        fit = mixture.fit(
            support - origin, episodes.labels, episodes.n_classes, track=False, classifier_only=True, **settings
        )
        found.append(fit.log_proba(query - origin).exp())
    return found
