"""CL, MCL: one output layer per annotator after the output of the network (crowd layer).

Authors: Filipe Rodrigues, Francisco C. Pereira
Title: Deep Learning from Crowds
Year: 2018
Link: https://arxiv.org/abs/1709.01779

The network's class probabilities are multiplied by one matrix per annotator, which gives scores of the annotator's
labels. The matrices are learned together with the network and removed at test.

Our choices where the paper is silent. We use the authors' variant with a full matrix (MW), which starts as the
identity. MCL starts from the meta-learned encoder with a new output layer and fine-tunes the whole network. The paper
mentions both "fine-tune" and "feature extraction". Its times for CL and MCL are similar, which they would not be with a
fixed encoder; ``frozen`` fixes it. Batch normalisation is torch's.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from crowdshot.methods import Candidate, CrowdEpisodes
from crowdshot_paper.compared.fine_tuning import Sizes, fine_tune_candidates, fresh_network, masked_cross_entropy


class CrowdLayer:
    """One matrix for each episode and annotator, (G, R, K, K) as [annotator, true, observed]."""

    def __init__(self, sizes: Sizes, candidate: Candidate) -> None:
        self.matrices = sizes.shared(torch.eye(sizes.K).repeat(sizes.R, 1, 1))

    def parameters(self) -> list[nn.Parameter]:
        return [self.matrices]

    def scores(self, logits: Tensor) -> Tensor:
        """Return p W_r, (G, N, R, K); its softmax is the distribution of annotator r's label."""
        return torch.einsum("gnt,grto->gnro", logits.softmax(-1), self.matrices)

    def __call__(self, embeddings: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        return masked_cross_entropy(self.scores(logits), labels)


def crowd_layer(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    """Fine-tune the given encoder."""
    return fine_tune_candidates(episodes, encoder, candidates, seed, CrowdLayer)


def crowd_layer_from_scratch(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    network = fresh_network(episodes.support.shape[2:], seed)
    return fine_tune_candidates(episodes, network, candidates, seed, CrowdLayer)
