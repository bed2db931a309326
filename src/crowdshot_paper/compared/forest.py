"""RFMV, RFDS: a random forest on the raw items.

Authors: Leo Breiman
Title: Random Forests
Year: 2001
Link: https://doi.org/10.1023/A:1010933404324

Decision trees vote on the class. Each is grown on a bootstrap sample of the support set, with a random choice of pixels
at every split. The labels are the aggregated labels (majority vote or posterior of Dawid–Skene). No source class is
used.

Our choices where the paper is silent. The trees follow scikit-learn's defaults: Gini impurity, the square root of the
number of features at each split, grown until pure, midway thresholds, leaves vote with their class frequencies. The
posteriors of Dawid–Skene are soft labels: a tree that draws an item also draws its class. The candidates' trees are the
first 10, 50 and 100 of one forest of 200. A class without weight has probability zero. If no item has a label, all
classes are equally probable.

All trees of all episodes grow at once, level by level, and only along the paths of queries. Trees are not stored: a
query that reaches a leaf receives its class frequencies. Random numbers are a function of seed, tree and node, so that
an episode's forest depends neither on the other episodes nor on the device.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

from crowdshot.methods import Candidate, CrowdEpisodes
from crowdshot_paper.compared import prototypical

LEAST = 1e-6  # the smallest posterior that gets a row
APART = 1e-7  # values closer than this are equal, as in scikit-learn
NUMBERS_AT_ONCE = {"cuda": 2**28, "cpu": 2**23}


class Nodes(NamedTuple):
    """J nodes of all trees, with their items and queries."""

    episode: Tensor  # (J,)
    tree: Tensor  # (J,)
    path: Tensor  # (J,) the path from the root as a number, which seeds random numbers
    weight: Tensor  # (J, N, K) of the resampled items; zero for items of other nodes
    here: Tensor  # (J, Q) queries

    def part(self, which: Tensor | slice) -> Nodes:
        return Nodes(*(x[which] for x in self))


def random_forest(
    episodes: CrowdEpisodes, encoder: nn.Module, candidates: Sequence[Candidate], seed: int
) -> list[Tensor]:
    support, query = episodes.support.flatten(2), episodes.query.flatten(2)
    groups: dict[tuple[Any, ...], list[int]] = defaultdict(list)  # candidates that differ in their trees alone
    for place, candidate in enumerate(candidates):
        groups[candidate.get("steps"), candidate.get("hard")].append(place)
    out: list[Tensor] = [torch.empty(0)] * len(candidates)
    for places in groups.values():
        posterior = prototypical.aggregated(episodes.labels, episodes.n_classes, candidates[places[0]])
        sizes = [int(candidates[place]["trees"]) for place in places]
        for place, found in zip(places, grow(support, posterior, query, sizes, seed), strict=True):
            out[place] = found
    return out


def grow(support: Tensor, posterior: Tensor, query: Tensor, sizes: Sequence[int], seed: int) -> list[Tensor]:
    """Return class probabilities (B, Q, K) by forests of each size.

    ``support`` is (B, N, d), ``posterior`` (B, N, K) and ``query`` (B, Q, d).
    """
    B, K = len(support), posterior.shape[-1]
    ends = sorted(set(sizes))
    block = torch.bucketize(
        torch.arange(ends[-1], device=support.device), torch.tensor(ends).to(support.device), right=True
    )
    votes = support.new_zeros(len(ends), B, query.shape[1], K)
    x, q = support.mT.contiguous(), query.mT.contiguous()  # (B, d, N) and (B, d, Q)
    nodes = _roots(posterior, query.shape[1], ends[-1], seed)
    features = max(1, math.isqrt(x.shape[1]))
    while len(nodes.tree):
        later, divisible = [], _divisible(nodes)
        _vote(votes, nodes.part(~divisible), block)
        nodes = nodes.part(divisible)
        items, order = _inside(nodes).sum(-1).sort(descending=True)  # nodes of similar size share arrays
        nodes, start = nodes.part(order), 0
        while start < len(order):
            most = int(items[start])
            numbers = max(features * most * (K + 2), x.shape[1])
            some = nodes.part(slice(start, start + max(1, NUMBERS_AT_ONCE[x.device.type] // numbers)))
            feature, threshold, found = _best_splits(x, some, features, most, seed)
            _vote(votes, some.part(~found), block)
            later += _children(x, q, some.part(found), feature[found], threshold[found])
            start += len(some.tree)
        nodes = Nodes(*map(torch.cat, zip(*later, strict=True))) if later else nodes.part(slice(0))
    total = dict(zip(ends, votes.cumsum(0), strict=True))
    unlabelled = (posterior <= LEAST).all(-1).all(-1)[:, None, None]
    return [torch.where(unlabelled, 1 / K, total[size] / size) for size in sizes]


def _roots(posterior: Tensor, Q: int, trees: int, seed: int) -> Nodes:
    """Draw as many pairs (item, class) for every tree as there are items, with replacement and by their weights."""
    B, N, K = posterior.shape
    rows = torch.where(posterior > LEAST, posterior, 0).flatten(1)  # (B, N · K)
    n_items = (posterior > LEAST).any(-1).sum(1)
    up_to = rows.cumsum(1)
    up_to = up_to / up_to[:, -1:].clamp_min(LEAST)
    tree, draw = (torch.arange(n, device=posterior.device) for n in (trees, N))
    lots = _uniform(seed, tree[:, None], torch.zeros_like(tree)[:, None], draw)  # (T, N), the same for all episodes
    drawn = torch.searchsorted(up_to, lots.flatten().expand(B, -1).contiguous(), right=True).clamp(max=N * K - 1)
    once = (draw < n_items[:, None, None]).to(posterior).expand(B, trees, N)
    weight = torch.zeros(B, trees, N * K, device=posterior.device).scatter_add_(-1, drawn.view(B, trees, N), once)
    episode = torch.arange(B, device=posterior.device).repeat_interleave(trees)
    everyone = torch.ones(B * trees, Q, dtype=torch.bool, device=posterior.device)
    nodes = Nodes(episode, tree.repeat(B), torch.ones_like(episode), weight.view(B * trees, N, K), everyone)
    return nodes.part(n_items[episode] > 0)


def _inside(nodes: Nodes) -> Tensor:
    """Return which items are in each node, (J, N)."""
    return nodes.weight.sum(-1) > 0


def _divisible(nodes: Nodes) -> Tensor:
    """Return whether a node (J,) has several classes and several items."""
    return ((nodes.weight.sum(1) > 0).sum(-1) > 1) & (_inside(nodes).sum(-1) > 1)


def _best_splits(x: Tensor, nodes: Nodes, features: int, most: int, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return feature and threshold with the least impurity for each node (J,), and whether any splits the node.

    No node has more than ``most`` items.
    """
    d = x.shape[1]
    key = (seed, nodes.tree[:, None], nodes.path[:, None])
    if d <= 4096:
        tried = _uniform(*key, torch.arange(d, device=x.device)).topk(features, largest=False).indices  # (J, f)
    else:  # with so many features hardly any is drawn twice
        tried = (_uniform(*key, torch.arange(features, device=x.device)) * d).long().clamp(max=d - 1)
    feature, threshold, found = _best_of(x, nodes, tried, most)
    constant = ~found
    if bool(constant.any()):  # all tried features are constant: continue to one that varies, as scikit-learn does
        feature[constant], threshold[constant], found[constant] = _best_of(
            x, nodes.part(constant), _some_that_varies(x, nodes.part(constant), seed), most
        )
    return feature, threshold, found


def _best_of(x: Tensor, nodes: Nodes, tried: Tensor, most: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best of the features tried (J, f), its threshold, and whether any of them splits the node."""
    inside, item = (
        _inside(nodes).to(torch.uint8).topk(most, sorted=False)
    )  # (J, n), which includes all items of the node
    values = x[nodes.episode[:, None, None], tried[..., None], item[:, None]]  # (J, f, n)
    values, order = values.masked_fill(inside[:, None] == 0, torch.inf).sort(-1)
    weight = nodes.weight.gather(1, item[..., None].expand(-1, -1, nodes.weight.shape[-1]))  # (J, n, K)
    weight = weight[:, None].expand(-1, tried.shape[1], -1, -1)
    left = weight.gather(2, order[..., None].expand_as(weight)).cumsum(2)[:, :, :-1]  # (J, f, n - 1, K)
    right = nodes.weight.sum(1)[:, None, None] - left
    # the weighted Gini impurity is a constant minus this
    purity = sum(side.square().sum(-1) / side.sum(-1).clamp_min(1e-12) for side in (left, right))
    gap = values[..., 1:] - values[..., :-1]
    possible = (gap > APART) & values[..., 1:].isfinite()
    score, best = torch.as_tensor(purity).masked_fill(~possible, -torch.inf).flatten(1).max(-1)
    which, at = best // gap.shape[-1], best % gap.shape[-1]
    values = values.gather(1, which[:, None, None].expand(-1, 1, values.shape[-1]))[:, 0]
    low, high = (values.gather(1, (at + i)[:, None])[:, 0] for i in (0, 1))
    middle = low / 2 + high / 2
    threshold = torch.where(middle < high, middle, low)
    return tried.gather(1, which[:, None])[:, 0], threshold, score > -torch.inf


def _some_that_varies(x: Tensor, nodes: Nodes, seed: int) -> Tensor:
    """Return a random feature of each node that varies over its items, (J, 1); any feature if there is none."""
    inside = _inside(nodes)[:, None]
    values = x[nodes.episode]  # (J, d, N)
    high, low = values.masked_fill(~inside, -torch.inf).amax(-1), values.masked_fill(~inside, torch.inf).amin(-1)
    lots = _uniform(seed, nodes.tree[:, None], nodes.path[:, None], torch.arange(x.shape[1], device=x.device))
    return lots.masked_fill(high - low <= APART, 2.0).argmin(-1, keepdim=True)


def _children(x: Tensor, q: Tensor, nodes: Nodes, feature: Tensor, threshold: Tensor) -> list[Nodes]:
    """Return the left and right children that a query reaches."""
    children = []
    goes_left = x[nodes.episode, feature] <= threshold[:, None]  # (J, N)
    asks_left = q[nodes.episode, feature] <= threshold[:, None]  # (J, Q)
    for side in (True, False):
        weight = nodes.weight * (goes_left == side)[..., None]
        child = Nodes(nodes.episode, nodes.tree, 2 * nodes.path + side, weight, nodes.here & (asks_left == side))
        children.append(child.part(child.here.any(-1)))
    return children


def _vote(votes: Tensor, leaves: Nodes, block: Tensor) -> None:
    """Add the class frequencies of leaves to the votes for their queries."""
    weight = leaves.weight.sum(1)  # (J, K)
    share = F.normalize(weight, p=1, dim=-1).to(votes.dtype)
    leaf, query = leaves.here.nonzero(as_tuple=True)
    votes.index_put_((block[leaves.tree[leaf]], leaves.episode[leaf], query), share[leaf], accumulate=True)


def _uniform(seed: int, *numbers: Tensor) -> Tensor:
    """Return a pseudo-random number in [0, 1) for each combination of integers, which broadcast."""
    state = torch.full((1,), seed & 0x7FFFFFFF, dtype=torch.int64, device=numbers[0].device)
    for number in numbers:
        state = _mix(state * 0x9E3779B1 + number)
    return (state & 0xFFFFFF).to(torch.float32) / 2**24


def _mix(x: Tensor) -> Tensor:
    """Hash 32 bits; any change of the input changes about half of the output bits."""
    x = (x ^ (x >> 32)) & 0xFFFFFFFF
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        x = ((x ^ (x >> shift)) * factor) & 0xFFFFFFFF
    return x ^ (x >> 16)
