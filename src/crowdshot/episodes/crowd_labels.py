"""Episodes with a simulated crowd's labels: what meta-training learns from, lines 2 to 6 of the paper's Algorithm 1."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from crowdshot.episodes import sampling, simulate
from crowdshot.episodes.augmentation import augment
from crowdshot.episodes.pools import ClassPool
from crowdshot.episodes.randomness import Randomness, whole_numbers
from crowdshot.episodes.sampling import Episodes
from crowdshot.episodes.shape import EpisodeShape


class Batch(NamedTuple):
    """B episodes of at most K classes; items as the pool stores them."""

    support: Tensor  # (B, N, *shape)
    labels: Tensor  # (B, N, R), -1 = missing
    query: Tensor  # (B, Q, *shape)
    query_truth: Tensor  # (B, Q), -1 where the class is not in use
    classes_in_use: Tensor | None  # (B,), None where all have K
    support_truth: Tensor  # (B, N), -1 where there is no item; for looking on, never for learning
    confusion: Tensor | None = None  # (B, R, K, K), the annotators' own matrices; likewise


def draw(
    pool: ClassPool, shape: EpisodeShape, allowed: Tensor, clean: Tensor, randomness: Randomness, augmented: bool = True
) -> Batch:
    """One episode for each row of ``allowed`` (B, C), which says from which classes, where the pool lives.

    ``clean`` (B,) says in which episodes all annotators tell the truth. Episodes of different sizes share one shape:
    support items, annotators and classes beyond an episode's own are masked. A pool that has labels of its own needs
    no simulated one: its labels are taken as they are, those that name no class of the episode as missing.
    """
    B, device = len(allowed), allowed.device
    ways, shots = shape.ways[1], shape.shots[1]
    drawn = sampling.sample(pool, B, ways, shots, shape.queries, randomness, allowed)
    truth, query_truth, in_use = drawn.support_truth, drawn.query_truth, None
    if shape.ways[0] < ways:
        in_use = whole_numbers(shape.ways, (B,), randomness)
        truth, query_truth = (t.masked_fill(t >= in_use[:, None], -1) for t in (truth, query_truth))
    if shape.shots[0] < shots:
        nth_of_class = torch.arange(ways * shots, device=device) % shots
        truth = truth.masked_fill(nth_of_class >= whole_numbers(shape.shots, (B, 1), randomness), -1)

    support, query = drawn.support, drawn.query
    if pool.crowd_labels is None:
        labels, confusion = _simulated(truth, in_use, shape, clean, randomness)
    else:
        labels = _recorded(pool.crowd_labels, drawn, truth, in_use, clean)
        confusion = _counted(pool.crowd_labels, drawn)
    if shape.augment != "none" and augmented:
        support, query = (augment(items, shape.augment, randomness) for items in (support, query))
    return Batch(support, labels, query, query_truth, in_use, truth, confusion)


def _recorded(crowd: Tensor, drawn: Episodes, truth: Tensor, in_use: Tensor | None, clean: Tensor) -> Tensor:
    """What the pool's own annotators said about the support items, in the episode's classes: (B, N, A)."""
    said = crowd[drawn.classes[..., None], drawn.places].flatten(1, 2)  # (B, N, A), the pool's classes
    is_class = (said[..., None] == drawn.classes[:, None, None]) & (truth[..., None, None] >= 0)  # (B, N, A, K)
    labels = torch.where(is_class.any(-1), is_class.long().argmax(-1), -1)
    if in_use is not None:
        labels = torch.where(labels < in_use[:, None, None], labels, -1)
    return torch.where(clean[:, None, None] & (labels >= 0), truth[..., None], labels)


def _counted(crowd: Tensor, drawn: Episodes) -> Tensor:
    """Each annotator's confusion matrix over the whole pool, among the episode's classes: (B, A, K, K).

    A label more in every cell keeps what was never seen possible.
    """
    C = len(crowd)
    said = (crowd[..., None] == torch.arange(C, device=crowd.device)).sum(1) + 1.0  # (C true, A, C observed)
    rows, columns = drawn.classes[:, :, None], drawn.classes[:, None, :]  # (B, K, 1), (B, 1, K)
    counts = said.transpose(0, 1)[:, rows, columns].transpose(0, 1)  # (B, A, K, K)
    return counts / counts.sum(-1, keepdim=True)


def _simulated(
    truth: Tensor, in_use: Tensor | None, shape: EpisodeShape, clean: Tensor, randomness: Randomness
) -> tuple[Tensor, Tensor]:
    """Truth (B, N) -> what annotators, drawn anew for every episode, say about it, (B, N, R), and their matrices."""
    B, device, ways, annotators = len(truth), truth.device, shape.ways[1], shape.annotators[1]
    crowd = simulate.draw_annotators(annotators, ways, shape.crowd, (B,), randomness, in_use)
    confusion = torch.where(clean[:, None, None, None], torch.eye(ways, device=device), crowd.confusion)
    per_item = None if shape.labels_per_item is None else whole_numbers(shape.labels_per_item, (B, 1), randomness)
    present = whole_numbers(shape.annotators, (B,), randomness) if shape.annotators[0] < annotators else None
    return simulate.draw_labels(truth, confusion, per_item, randomness, present), confusion
