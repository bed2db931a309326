"""Labelings: the paper's mixture, integrated and searched instead of maximised, on a prototypical network's embeddings.

Authors: crowdshot
Title: Beyond the paper (docs/beyond.md)
Year: 2026
Link: https://arxiv.org/abs/2506.10259, whose model it is

This project's own. Means and confusion matrices are integrated out, a beam search finds the most probable true classes
of the labelled items, and the classifier averages over them (`crowdshot.labelings`). The encoder has met clean labels
only: simulated annotators in meta-training make it more patient with wrong labels, but blunter, and an inference that
finds the wrong labels by itself has no need of that. In the experiments it learns from 16 classes at a time, more than
it will meet, and from altered photographs (`paper.run.encoders`).

Left open by the paper, as future work: to integrate over parameters rather than maximise. Decided on validation: the
scale of the embedding's evidence, and tau.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crowdshot.methods.contract import Candidate, CrowdEpisodes
from crowdshot.methods.embedding import embed
from crowdshot.model import labelings

AT_ONCE = 2**25  # numbers that the search may fill


def average(
    episodes: CrowdEpisodes,
    encoder: nn.Module,
    candidates: Sequence[Candidate],
    seed: int,
    knows_matrices: bool = False,
) -> list[Tensor]:
    """A candidate's settings are arguments of `labelings.fit`. ``knows_matrices`` is for `ceilings`."""
    embedded = episodes._replace(support=embed(encoder, episodes.support), query=embed(encoder, episodes.query))
    (N, R), K = episodes.labels.shape[1:], episodes.n_classes
    found = []
    for candidate in candidates:
        size = AT_ONCE // (candidate["width"] * K * (N + R * (K + 28)))
        parts = []
        for part in embedded.parts(size):
            known = part.confusion if knows_matrices else None
            fit = labelings.fit(part.support, part.labels, K, **candidate, confusion=known)
            parts.append(fit.log_proba(part.query).exp())
        found.append(torch.cat(parts))
    return found
