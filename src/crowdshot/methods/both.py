"""Both: Labelings and Learned, each believed in part, where the search foretells hidden labels as well.

Authors: crowdshot
Title: What you can trust (docs/trust.md)
Year: 2026
Link: https://arxiv.org/abs/2506.10259, whose question it answers in another way

This project's own, and its default for few items on a meta-trained encoder, as `CrowdClassifier` has it. A search for
labelings is believed beside `Learned`, if it foretells labels that were hidden from it as well; else `Learned` alone is
(`crowdshot.model.both`).

Left open by the paper: how to know that an encoder suits the items. Decided on validation: the scale of the embedding's
evidence in the search, and tau.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from crowdshot.methods.contract import Candidate, CrowdEpisodes
from crowdshot.methods.learned import each_episode, look_at
from crowdshot.model import both, labelings
from crowdshot.model.learned import Floats, Positions


def pooled(episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int) -> list[Tensor]:
    """A candidate's settings are arguments of `labelings.fit`."""

    def judge(x: Floats, labels: Positions, query: Floats, K: int) -> list[Floats]:
        looks, seen = look_at(x, labels, K), (labels >= 0).any(1)
        by_looks = looks.forecast(query)
        items, said, new = (torch.from_numpy(each) for each in (x[seen], labels[seen], query))
        _, weight = both.weights(float(both.company(looks).mean()))
        sizes = both.frequencies(looks.size, np.bincount(labels[labels >= 0], minlength=K))
        found = []
        for candidate in candidates:
            if both.suits(items, said, looks, dict(candidate), sizes):
                search = labelings.fit(items, said, K, sizes=sizes, **candidate).log_proba(new)
                found.append(both.pool(search, torch.from_numpy(by_looks).log(), weight, sizes).exp().numpy())
            else:
                found.append(by_looks)
        return found

    return each_episode(episodes, encoder, judge, len(candidates))
