"""RFMV, RFDS: a random forest on the items as they are.

Authors: Leo Breiman
Title: Random Forests
Year: 2001
Link: https://doi.org/10.1023/A:1010933404324

Many decision trees, each grown on a resampled support set with a random choice of pixels at every split, vote on the
class. The crowd's verdict (majority vote, or Dawid–Skene's posterior) serves as labels, and no source class is used.

Left open by the paper, and decided here: the trees are scikit-learn's with its defaults, one forest for each episode.
Dawid–Skene's posteriors are soft labels: an item stands once for every class that is possible, weighted by its
posterior. The candidates' trees are the first 10, 50, 100 of one forest of 200, which are the trees that a smaller
forest would have had. A class without weight has probability zero; where no item has a label, all are alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.ensemble import RandomForestClassifier
from torch import Tensor, nn

from crowdshot.methods import votes
from crowdshot.methods.base import Candidate, CrowdEpisodes

LEAST = 1e-6  # of a posterior, to be worth a row


def random_forest(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    support, query = (x.flatten(2).cpu().numpy() for x in (episodes.support, episodes.query))
    by_steps: dict[int | None, list[int]] = defaultdict(list)
    for place, candidate in enumerate(candidates):
        by_steps[candidate.get("steps")].append(place)
    out: list[Tensor] = [torch.empty(0)] * len(candidates)
    for steps, places in by_steps.items():
        belief = votes.believe(episodes.labels, episodes.n_classes, steps).double().cpu().numpy()
        sizes = [int(candidates[place]["trees"]) for place in places]
        grown = np.stack([_grow(*one, sizes, seed) for one in zip(support, belief, query, strict=True)])  # (B, c, Q, K)
        for i, place in enumerate(places):
            out[place] = torch.from_numpy(grown[:, i]).to(episodes.query)
    return out


def _grow(
    x: NDArray[np.float32], belief: NDArray[np.float64], query: NDArray[np.float32], sizes: Sequence[int], seed: int
) -> NDArray[np.float64]:
    """One episode, (N, d), (N, K) and (Q, d): probabilities after so many trees, (len(sizes), Q, K)."""
    item, label = np.nonzero(belief > LEAST)
    K = belief.shape[1]
    if len(item) == 0:
        return np.full((len(sizes), len(query), K), 1 / K)
    forest = RandomForestClassifier(max(sizes), random_state=seed)
    weight = belief[item, label]
    forest.fit(x[item], label, sample_weight=None if (weight == 1).all() else weight)
    columns = forest.classes_.astype(int)
    query = np.ascontiguousarray(query, dtype=np.float32)
    total = np.zeros((len(query), K))
    out = np.empty((len(sizes), len(query), K))
    for n, tree in enumerate(forest.estimators_, start=1):
        total[:, columns] += tree.predict_proba(query, check_input=False)
        for i, size in enumerate(sizes):
            if size == n:
                out[i] = total / n
    return out
