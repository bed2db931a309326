"""What perfect knowledge would give, to see how much is left to gain: not methods, as nobody has what they know.

"True labels" are class averages of embeddings by the true classes of the support items. "True matrices" is Labelings
with the annotators' true confusion matrices; those of real annotators are counted over the whole dataset.
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
    """Everyone tells the truth; an item that nobody labelled has no say."""
    assert episodes.truth is not None
    said = torch.where(episodes.labels >= 0, episodes.truth[..., None], -1)
    return prototypical.soft_prototypical(episodes._replace(labels=said), encoder, candidates, seed)


def true_matrices(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    return average(episodes, encoder, candidates, seed, knows_matrices=True)
