"""Learned: labels believed by an inference that learned from crowds, and what items look like, told by the others.

Authors: crowdshot
Title: One inference for every crowd (docs/inference.md)
Year: 2026
Link: https://arxiv.org/abs/2506.10259, whose question it answers in another way

This project's own, and its default where features come from elsewhere or labelled items are many. Labels are believed
by a few rounds of EM whose constants a small network sets (`crowdshot.model.inference`); features by ridge regressions
in two ways to see, class means and logistic regressions, each believed as far as it foretells labels that it has not
met (`crowdshot.model.looks`).

Left open by the paper: how much an embedding that was trained for something else should weigh against annotators.
Nothing is chosen on validation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from crowdshot.methods.contract import Candidate, CrowdEpisodes
from crowdshot.methods.embedding import embed
from crowdshot.model import learned
from crowdshot.model.learned import Floats, Positions
from crowdshot.model.network_file import shipped_network

Judge = Callable[[Floats, Positions, Floats, int], list[Floats]]


def by_looks(episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int) -> list[Tensor]:
    def judge(x: Floats, labels: Positions, query: Floats, K: int) -> list[Floats]:
        return [look_at(x, labels, K).forecast(query)] * len(candidates)

    return each_episode(episodes, encoder, judge, len(candidates))


def each_episode(episodes: CrowdEpisodes, encoder: nn.Module, judge: Judge, n_candidates: int) -> list[Tensor]:
    """One after the other, among the classes that somebody named; others have probability 0.

    ``judge``: x (N, D), labels (N, R), queries (Q, D) and K -> what each candidate says of the queries, (Q, K).
    """
    support, query = (embed(encoder, x).double().cpu().numpy() for x in (episodes.support, episodes.query))
    found = np.zeros((n_candidates, *query.shape[:2], episodes.n_classes))
    for b, labels in enumerate(episodes.labels.cpu().numpy()):
        named = np.unique(labels[labels >= 0])
        if len(named) < 2:
            found[:, b, :, named if len(named) else slice(None)] = 1 if len(named) else 1 / episodes.n_classes
            continue
        place = np.full(episodes.n_classes + 1, -1)  # the last one is for -1, a missing label
        place[named] = np.arange(len(named))
        found[:, b][..., named] = judge(support[b], place[labels], query[b], len(named))
    return [torch.from_numpy(each).to(episodes.support) for each in found]


def look_at(x: Floats, labels: Positions, K: int) -> learned.Joint:
    """x (N, D), labels (N, R)"""
    item, annotator = np.nonzero(labels >= 0)
    return learned.fit(x, item, annotator, labels[item, annotator], labels.shape[1], K, shipped_network())
