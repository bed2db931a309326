"""The most probable labelings of a crowd-labelled set, by beam search.

Items are taken one after the other; of all ways to extend the labelings kept so far by one item's class, the most
probable are kept. How probable a labeling is, `labelings.log_probability` says; what one more item adds to it needs, of
a labeling, only its class sizes, the inner products of its class sums with all items, and how often each annotator
called what by what.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F  # noqa: N812

from crowdshot.model.annotator_skills import AnnotatorModel


def search(
    gram: Tensor,
    labels: Tensor,
    order: Tensor,
    crowd: AnnotatorModel,
    log_class_probs: Callable[[Tensor], Tensor],
    n_classes: int,
    scale: Tensor,
    tau: Tensor,
    width: int,
    truth: Tensor,
) -> tuple[Tensor, Tensor]:
    """Labelings (B, M, N), at most ``width`` of each episode, from what `labelings.fit` prepares.

    ``gram`` (B, N, N) has the inner products of items, ``labels`` is (B, N, R), ``order`` (B, N).
    ``truth`` (B, N): the class of items whose class is known, else -1. Other items that nobody labelled are -1 and
    change nothing. Episodes with few labelled items have fewer labelings than others of the batch; the second result,
    (B, M), tells which are real.
    """
    B, N, R, K, M, dtype = len(gram), gram.shape[-1], labels.shape[-1], n_classes, 1, gram.dtype
    who, said = compact(labels)  # (B, N, L)
    episode = torch.arange(B, device=gram.device)
    log_p = gram.new_zeros(B, 1)
    size = gram.new_zeros(B, 1, K)
    inner = gram.new_zeros(B, 1, K, N)  # class sums times items
    squared = gram.new_zeros(B, 1, K)  # class sums times themselves
    counts = labels.new_zeros(B, 1, R, K, K)  # [annotator, true, observed]
    labelings = labels.new_full((B, 1, N), -1)
    for place in range(N):
        item = order[:, place]
        row, annotator, label = gram[episode, item], who[episode, item], said[episode, item]  # (B, N), (B, L), (B, L)
        own_class = truth[episode, item][:, None]  # (B, 1)
        labelled = (label >= 0).any(-1)[:, None] | (own_class >= 0)  # (B, 1)

        # what the item adds to each labeling if it is of class k, (B, M, K)
        own = row.gather(1, item[:, None])[..., None]  # |u|^2
        here = inner.gather(3, item[:, None, None, None].expand(B, M, K, 1))[..., 0]  # u · S_k
        weight = tau + size
        # |u - S_k / weight|^2 counts weight / (weight + 1) times, because the mean is not known exactly
        distance = own - 2 * here / weight + squared / weight.square()
        known = counts[episode[:, None], :, annotator].movedim(2, 1)  # (B, M, L, K, K)
        gain = -0.5 * scale * distance * weight / (weight + 1) + log_class_probs(size)
        gain = gain + crowd.gain(known, annotator, label).sum(2)
        only_one = torch.where(torch.arange(K, device=gram.device) == 0, 0.0, -torch.inf).to(dtype)
        gain = torch.where(labelled[..., None], gain, only_one)
        another = (own_class >= 0) & (own_class != torch.arange(K, device=gram.device))  # (B, K)
        gain = gain.masked_fill(another[:, None], -torch.inf)

        best = (log_p[..., None] + gain).flatten(1).topk(min(width, M * K), dim=1)
        log_p, parent, k = best.values, best.indices // K, best.indices % K
        M = parent.shape[1]
        size, inner, squared, here, counts, labelings = (
            state[episode[:, None], parent] for state in (size, inner, squared, here, counts, labelings)
        )
        joins = F.one_hot(k, K).to(dtype) * labelled[..., None]  # (B, M, K)
        size = size + joins
        squared = squared + joins * (2 * here + own)
        inner = inner + joins[..., None] * row[:, None, None]
        labelings[episode, :, item] = torch.where(labelled, k, -1)
        cell = (annotator[:, None] * K + k[..., None]) * K + label.clamp_min(0)[:, None]  # (B, M, L)
        counts.view(B, M, -1).scatter_add_(2, cell, (label >= 0).to(counts)[:, None].expand_as(cell))
    return labelings, log_p > -torch.inf


def compact(labels: Tensor) -> tuple[Tensor, Tensor]:
    """(B, N, R) -> who labelled an item and how, (B, N, L), L the most labels an item has; -1 fills up the latter."""
    most = max(1, int((labels >= 0).sum(-1).max()))
    who = (labels < 0).long().argsort(dim=-1, stable=True)[..., :most]
    return who, labels.gather(-1, who)
