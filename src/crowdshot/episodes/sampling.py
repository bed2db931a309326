"""Few-shot episodes drawn from a class pool."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from crowdshot.episodes.pools import ClassPool
from crowdshot.episodes.randomness import Randomness, uniform
from crowdshot.errors import CrowdshotError


class Episodes(NamedTuple):
    """B episodes; items are grouped by class, and a truth is the class's place in its episode, 0..K-1."""

    support: Tensor
    """(B, N, *shape), N = ways * shots, with the pool's dtype."""
    support_truth: Tensor
    """(B, N) int64."""
    query: Tensor
    """(B, Q, *shape), Q = ways * queries."""
    query_truth: Tensor
    """(B, Q) int64."""
    classes: Tensor
    """(B, ways) int64: which of the pool's classes they are."""
    places: Tensor
    """(B, ways, shots) int64: which of its class's examples each support item is."""


def sample(
    pool: ClassPool,
    n_episodes: int,
    ways: int,
    shots: int,
    queries: int,
    generator: Randomness | None = None,
    allowed: Tensor | None = None,
) -> Episodes:
    """Draw episodes of ``ways`` classes with ``shots`` support and ``queries`` query examples of each.

    Classes within an episode are distinct, and so are the examples of a class, support and query together.
    The generator must live on the pool's device. ``allowed`` (B, C) bool keeps episode b to some of the classes, of
    which there must be ``ways`` at least. Where the pool has a crowd's labels, labelled items come first.
    """
    n_classes, room = pool.examples.shape[:2]
    device = pool.examples.device
    asked = (("n_episodes", n_episodes, 1), ("ways", ways, 1), ("shots", shots, 1), ("queries", queries, 0))
    for name, found, least in asked:
        if found < least:
            raise CrowdshotError(f"{name} is {found}, expected {least} or more.")
    if ways > n_classes:
        raise CrowdshotError(f"ways is {ways}, expected at most the {n_classes} classes of the pool.")
    if shots + queries > pool.smallest:
        raise CrowdshotError(
            f"the pool's smallest class has {pool.smallest} examples, expected {shots + queries} for {shots} shots and "
            f"{queries} queries."
        )

    # The n smallest of independent uniform draws are n places chosen without replacement.
    lots = uniform((n_episodes, n_classes), generator, device)
    if allowed is not None:
        lots = lots.masked_fill(~allowed, 2.0)
    classes = lots.topk(ways, largest=False).indices  # (B, K)
    lots = uniform((n_episodes, ways, room), generator, device)
    if pool.crowd_labels is not None:  # support items first, and from those that somebody labelled
        lots = lots + (pool.crowd_labels < 0).all(-1)[classes]
    padding = torch.arange(room, device=device) >= pool.counts[classes][..., None]
    places = lots.masked_fill(padding, 3.0).topk(shots + queries, largest=False).indices  # (B, K, S + Q)

    chosen = pool.examples.flatten(0, 1)[classes[..., None] * room + places]  # (B, K, S + Q, *shape)
    truth = torch.arange(ways, device=device)[None, :, None].expand(n_episodes, ways, shots + queries)
    return Episodes(
        chosen[:, :, :shots].flatten(1, 2),
        truth[:, :, :shots].flatten(1, 2),
        chosen[:, :, shots:].flatten(1, 2),
        truth[:, :, shots:].flatten(1, 2),
        classes,
        places[..., :shots],
    )
