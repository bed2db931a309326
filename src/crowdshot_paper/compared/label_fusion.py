"""LF, MLF: correct and weight annotators' labels separately for every item (label fusion).

Authors: Zhengqi Gao, Fan-Keng Sun, Mingran Yang, Sucheng Ren, Zikai Xiong, Marc Engeler, Antonio Burazer, Linda
    Wildling, Luca Daniel, Duane S. Boning
Title: Learning from Multiple Annotator Noisy Labels via Sample-wise Label Fusion
Year: 2022
Link: https://arxiv.org/abs/2207.11327

For every item the network predicts a weight and a confusion matrix of each annotator. The matrix corrects the
annotator's label, and the weighted sum of the corrected labels is the target of the network's class probabilities. A
confusion matrix is a mixture of fixed permutation matrices, so it is always valid. The first permutation is the
identity.

Our choices where the paper is silent:

- Weights and mixtures are linear maps of the embedding, like the output layer. The authors use small networks instead,
  with a thousand times the data.
- Target and output influence each other. If these maps learn faster than the network, the target follows the network's
  first guesses, and not even clean labels are learned. Therefore they use the embedding scaled to length one, and start
  with equal weights of the annotators and matrices close to the identity (0.9).
- The maps start at zero. Random starts give the same accuracy (within 0.01).
- The loss is the authors': the Kullback–Leibler divergence from target to output, a mean over items and classes, plus
  the mean of (1 - diagonal)^2. Missing labels do not count.
- The paper gives the numbers of bases but not of iterations. We try each with the iterations of the other networks.
- MLF fine-tunes the whole network, as MCL does.

Accuracy on 30 validation episodes per cell (Omniglot, split 0, a fixed prototypical network trained on glyphs, the best
of 10, 100 and 300 iterations), for 1 shot and 3 annotators, 1 and 5, 3 and 5:

- as implemented: 0.49, 0.54, 0.81
- embeddings not scaled to length one: 0.39, 0.33, 0.63
- the identity starts with 0.1 instead of 0.9: slower; 0.45, 0.49, 0.81 in the end

With fine-tuning (24 episodes, 10 or 100 iterations) the latter two cells have 0.54 and 0.75, against 0.50 and 0.70 with
embeddings that are not scaled.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from crowdshot.methods import Candidate, CrowdEpisodes
from crowdshot_paper.compared.fine_tuning import Sizes, fine_tune_candidates, fresh_network

PENALTY = 1.0
IDENTITY = 0.9  # the weight of the identity in every mixture before learning


class LabelFusion:
    """Linear maps from an item's embedding to the annotators' weights and to their M mixture coefficients."""

    bases: Tensor
    trust: nn.Parameter
    trust_bias: nn.Parameter
    mixture: nn.Parameter
    mixture_bias: nn.Parameter

    def __init__(self, sizes: Sizes, candidate: Candidate) -> None:
        bases = int(candidate["bases"])
        permutations = [torch.arange(sizes.K)]
        permutations += [torch.randperm(sizes.K, generator=sizes.generator) for _ in range(bases - 1)]
        self.bases = torch.eye(sizes.K)[torch.stack(permutations)].to(sizes.device)  # (M, K, K)
        self.R = sizes.R
        self.trust, self.mixture = (sizes.shared(torch.zeros(sizes.D, sizes.R * n)) for n in (1, bases))
        self.trust_bias = sizes.shared(torch.zeros(1, sizes.R))
        bias = torch.zeros(bases)
        bias[0] = math.log(IDENTITY / (1 - IDENTITY) * max(1, bases - 1))
        self.mixture_bias = sizes.shared(bias.repeat(sizes.R)[None])

    def parameters(self) -> list[nn.Parameter]:
        return [self.trust, self.trust_bias, self.mixture, self.mixture_bias]

    def confusion(self, embeddings: Tensor) -> Tensor:
        """Return matrices (G, N, R, K, K) as [true, observed]; rows and columns sum to 1."""
        coefficients = torch.baddbmm(self.mixture_bias, F.normalize(embeddings, dim=-1), self.mixture)
        coefficients = coefficients.reshape(*embeddings.shape[:2], self.R, -1)
        return torch.einsum("gnrm,mto->gnrto", coefficients.softmax(-1), self.bases)

    def weights(self, embeddings: Tensor, labels: Tensor) -> Tensor:
        """Return weights (G, N, R) that sum to 1 over the annotators of an item; zero for items without a label."""
        is_labelled = labels >= 0
        scores = torch.baddbmm(self.trust_bias, F.normalize(embeddings, dim=-1), self.trust)
        return scores.masked_fill(~is_labelled, -1e9).softmax(-1) * is_labelled

    def __call__(self, embeddings: Tensor, logits: Tensor, labels: Tensor) -> Tensor:
        K = logits.shape[-1]
        confusion, weights = self.confusion(embeddings), self.weights(embeddings, labels)
        observed = F.one_hot(labels.clamp_min(0), K).to(logits.dtype)
        target = torch.einsum("gnr,gnrto,gnro->gnt", weights, confusion, observed)
        divergence = torch.xlogy(target, target.clamp_min(1e-12)) - target * logits.log_softmax(-1)
        is_labelled = (labels >= 0).to(logits.dtype)
        n_items = is_labelled.amax(-1).sum(-1).clamp_min(1)
        off = (1 - confusion.diagonal(dim1=-2, dim2=-1)).square().mean(-1)
        off = (off * is_labelled).sum((1, 2)) / is_labelled.sum((1, 2)).clamp_min(1)
        return divergence.sum((1, 2)) / (n_items * K) + PENALTY * off


def label_fusion(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    """Fine-tune the given encoder."""
    return fine_tune_candidates(episodes, encoder, candidates, seed, LabelFusion)


def label_fusion_from_scratch(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    network = fresh_network(episodes.support.shape[2:], seed)
    return fine_tune_candidates(episodes, network, candidates, seed, LabelFusion)
