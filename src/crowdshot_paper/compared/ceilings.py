"""Compute upper bounds of accuracy from knowledge that is not available in practice.

"True labels" classifies by class means of embeddings, computed from the true classes of the support items. "True
matrices" is the labeling search with the annotators' true confusion matrices; those of real annotators are counted over
the whole dataset.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crowdshot.classifier.episode_methods import average
from crowdshot.methods import Candidate, CrowdEpisodes
from crowdshot_paper.compared import prototypical


def true_labels(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    """Replace every label by the true class; items without a label stay unlabelled."""
    assert episodes.truth is not None
    labels = torch.where(episodes.labels >= 0, episodes.truth[..., None], -1)
    return prototypical.soft_prototypical(episodes._replace(labels=labels), encoder, candidates, seed)


def true_matrices(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    return average(episodes, encoder, candidates, seed, knows_matrices=True)
