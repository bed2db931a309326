"""The order in which the search for labelings takes items: in turns one of every class, the surest first.

Early decisions are then safe ones, and soon every class has a mean that later items can be compared with. A width of 16
so finds what took 256 with the items in the order of their agreement.

How sure an item is, a quick fit of `mixture` says, by `OneCoin`. It is written once more here, on inner products of
items and for NumPy too, as `mixture.fit` itself would take as long as a third of the search.
"""

from __future__ import annotations

import torch
from torch import Tensor

from crowdshot.model.array_ways import Array, Ways, ways_of
from crowdshot.model.priors import OneCoin

STEPS = 3  # of EM
PRIOR = OneCoin()


def order_of(
    gram: Tensor, labels: Tensor, K: int, scale: float, tau: float, b: float, ruled_out: Tensor | None = None
) -> Tensor:
    """(B, N), with items that nobody labelled last.

    ``gram`` (B, N, N) of centred embeddings, ``labels`` (B, N, R). ``ruled_out`` (B, N, K): classes that items cannot
    have, as their own is known to be another.
    """
    ways = ways_of(gram.device)
    out = None if ruled_out is None else ways.array(ruled_out)
    belief, named = guess(ways.array(gram.double()), ways.array(labels), K, scale, tau, b, out, ways)
    xp, (B, N, _) = ways.xp, belief.shape
    episode = ways.numbers(B, 1)
    surest = ways.sorted_places(xp.where(named, -xp.amax(belief, -1), 1.0))
    k = belief.argmax(-1)[episode, surest]
    turns = (k[..., None] == ways.numbers(K)).cumsum(1)[episode, ways.numbers(N), k]  # an item's place among its class
    return torch.as_tensor(surest[episode, ways.sorted_places(xp.where(named[episode, surest], turns, N + 1))])


def guess(
    gram: Array, labels: Array, K: int, scale: float, tau: float, b: float, ruled_out: Array | None, ways: Ways
) -> tuple[Array, Array]:
    """p(class) of items by a few steps of EM, (B, N, K), and of which something is known, (B, N)."""
    xp, (B, N, R), eye = ways.xp, labels.shape, ways.floats(ways.eye(K))
    votes = ways.floats(labels[..., None] == ways.numbers(K))
    shares = votes.sum(2)
    if ruled_out is not None:
        shares = xp.where(ruled_out.any(-1)[..., None], ways.floats(~ruled_out), shares)
    total = shares.sum(-1)
    named = total > 0
    weight, total = ways.floats(named)[..., None], xp.where(named, total, 1.0)[..., None]
    belief = xp.where(named[..., None], shares / total, 1 / K)
    votes = votes.reshape(B, N, R * K)
    for _ in range(STEPS):
        known = belief * weight
        size = known.sum(1)[:, None]  # (B, 1, K)
        inner = gram @ known
        gaussian = (inner - 0.5 * (known * inner).sum(1)[:, None] / (tau + size)) / (tau + size)
        counts = (xp.swapaxes(votes, 1, 2) @ known).reshape(B, R, K, K)  # [annotator, observed, true]
        right = (counts * eye).sum(-1).sum(-1)
        q = ((right + PRIOR.right) / (counts.sum(-1).sum(-1) + PRIOR.right + PRIOR.wrong))[..., None, None]
        matrices = counts + PRIOR.weight * (eye * q + (1 - eye) * ((1 - q) / (K - 1)))
        matrices = matrices / matrices.sum(2)[:, :, None]
        score = scale * gaussian + xp.log(size + b) + votes @ xp.log(matrices).reshape(B, R * K, K)
        if ruled_out is not None:
            score = xp.where(ruled_out, -xp.inf, score)
        belief = xp.exp(score - xp.amax(score, -1)[..., None])
        belief = belief / belief.sum(-1)[..., None]
    return belief, named
