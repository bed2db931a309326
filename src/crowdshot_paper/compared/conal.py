"""CNAL, MCNAL: common and individual confusion matrices of annotators (CoNAL).

Authors: Zhendong Chu, Jing Ma, Hongning Wang
Title: Learning from Crowds by Modeling Common Confusions
Year: 2021
Link: https://arxiv.org/abs/2012.13052

The network's class probabilities are multiplied by two matrices: one is common to all annotators, one belongs to the
annotator. A weight that depends on the item and on the annotator mixes the two products. A regulariser pushes each
annotator's matrix away from the common one, so that they do not learn the same confusions.

Our choices where the paper is silent. As in the authors' program, the matrices start at twice the identity and their
outputs are scores of a softmax. The weight is sigmoid(v(item) · u(annotator)), where both vectors have 20 numbers and
length one. v is two linear layers (128, 20) on the encoder's embedding (on the input features in the authors' program).
All annotators start with the same u, so that their order does not matter. MCNAL fine-tunes the whole network from the
meta-learned encoder, as MCL does; ``frozen`` fixes the encoder.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from crowdshot.methods import Candidate, CrowdEpisodes
from crowdshot_paper.compared.fine_tuning import Sizes, fine_tune_candidates, fresh_network, masked_cross_entropy

WEIGHT, WIDTH, HIDDEN = 1e-5, 20, 128  # weight of the regulariser; length of u and v; width of v's hidden layer


class CommonNoise:
    """Individual (G, R, K, K) and common (G, K, K) matrices as [true, observed], and the network of their weight."""

    common: nn.Parameter
    individual: nn.Parameter
    hidden: nn.Parameter
    hidden_bias: nn.Parameter
    item: nn.Parameter
    item_bias: nn.Parameter
    annotator: nn.Parameter
    annotator_bias: nn.Parameter

    def __init__(self, sizes: Sizes, candidate: Candidate) -> None:
        self.common = sizes.shared(2 * torch.eye(sizes.K))
        self.individual = sizes.shared(2 * torch.eye(sizes.K).repeat(sizes.R, 1, 1))
        self.hidden, self.hidden_bias = sizes.linear(sizes.D, HIDDEN)
        self.item, self.item_bias = sizes.linear(HIDDEN, WIDTH)
        annotator, bias = ((2 * torch.rand(WIDTH, generator=sizes.generator) - 1) * WIDTH**-0.5 for _ in range(2))
        self.annotator, self.annotator_bias = sizes.shared(annotator.repeat(sizes.R, 1)), sizes.shared(bias[None])

    def parameters(self) -> list[nn.Parameter]:
        return list(vars(self).values())

    def mixing_weight(self, embeddings: Tensor) -> Tensor:
        """Return the weight of the common matrix for item n and annotator r, (G, N, R) in (0, 1)."""
        hidden = torch.baddbmm(self.hidden_bias, embeddings, self.hidden)
        item = F.normalize(torch.baddbmm(self.item_bias, hidden, self.item), dim=-1)
        annotator = F.normalize(self.annotator + self.annotator_bias, dim=-1)
        return torch.bmm(item, annotator.mT).sigmoid()

    def scores(self, embeddings: Tensor, logits: Tensor) -> Tensor:
        """Return w p C + (1 - w) p W_r, (G, N, R, K)."""
        p, weight = logits.softmax(-1), self.mixing_weight(embeddings)[..., None]
        individual = torch.einsum("gnt,grto->gnro", p, self.individual)
        return weight * (p @ self.common)[:, :, None] + (1 - weight) * individual

    def separation(self) -> Tensor:
        """Return sum_r |W_r - C|, (G,)."""
        difference = (self.individual - self.common[:, None]).flatten(2)
        distance: Tensor = torch.linalg.vector_norm(difference, dim=-1).sum(-1)
        return distance

    def __call__(self, embeddings: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        return masked_cross_entropy(self.scores(embeddings, logits), labels) - WEIGHT * self.separation()


def common_noise(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    """Fine-tune the given encoder."""
    return fine_tune_candidates(episodes, encoder, candidates, seed, CommonNoise)


def common_noise_from_scratch(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    network = fresh_network(episodes.support.shape[2:], seed)
    return fine_tune_candidates(episodes, network, candidates, seed, CommonNoise)
