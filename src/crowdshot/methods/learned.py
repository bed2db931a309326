"""Learned: labels believed by an inference that learned from crowds, and what items look like, told by the others.

Authors: crowdshot
Title: One inference for every crowd (docs/inference.md)
Year: 2026
Link: https://arxiv.org/abs/2506.10259, whose question it answers in another way

This project's own, and its default where features come from elsewhere or labelled items are many. Labels are believed
by a few rounds of EM whose constants a small network sets (`crowdshot.model.inference`); features by ridge regressions
in two ways to see, each believed as far as it foretells labels that it has not met (`crowdshot.model.looks`).

Left open by the paper: how much an embedding that was trained for something else should weigh against annotators.
Nothing is chosen on validation.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from crowdshot.methods.contract import Candidate, CrowdEpisodes
from crowdshot.methods.embedding import embed
from crowdshot.model import learned
from crowdshot.model.network_file import shipped_network


def by_looks(episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int) -> list[Tensor]:
    """One episode after the other; a class that nobody named has probability 0, if anybody named one."""
    support, query = (embed(encoder, x).double().cpu().numpy() for x in (episodes.support, episodes.query))
    found = [
        _episode(x, labels.cpu().numpy(), q, episodes.n_classes)
        for x, labels, q in zip(support, episodes.labels, query, strict=True)
    ]
    return [torch.from_numpy(np.stack(found)).to(episodes.support)] * len(candidates)


def _episode(x: learned.Floats, labels: learned.Positions, query: learned.Floats, K: int) -> learned.Floats:
    """x (N, D), labels (N, R), query (Q, D) -> (Q, K)"""
    item, annotator = np.nonzero(labels >= 0)
    named, label = np.unique(labels[item, annotator], return_inverse=True)
    out = np.zeros((len(query), K))
    if len(named) == 0:
        return out + 1 / K
    if len(named) == 1:
        out[:, named] = 1
        return out
    fit = learned.fit(x, item, annotator, label, labels.shape[1], len(named), shipped_network())
    out[:, named] = fit.forecast(query)
    return out
