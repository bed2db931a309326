"""Few-shot episodes drawn from a class pool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from crowdshot.errors import CrowdshotError
from crowdshot.training import default_settings, simulated_annotators
from crowdshot.training.pools import ClassPool
from crowdshot.training.random_streams import Randomness, uniform, whole_numbers


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


# ---- augmentation ------------------------------------------------------------
#
# Items changed in ways that leave their class alone, so that a network does not learn them by heart.


AUGMENTATIONS = ("none", "photo")
SHIFT = 0.1  # of the side, at most, each way


def augment(items: Tensor, kind: str, randomness: Randomness) -> Tensor:
    """Images (B, n, [C,] H, W) as the pool stores them -> the same, each changed in its own way.

    "photo": mirrored or not, and moved by up to a tenth of its side; its edge is drawn out where nothing is left.
    One look-up a pixel, no waiting for the device.
    """
    if items.ndim not in (4, 5):
        raise CrowdshotError(f"augment is {kind!r}, expected 'none', as the source holds feature vectors.")
    B, n, H, W = *items.shape[:2], *items.shape[-2:]
    mirrored, down, right = uniform((B, n, 3), randomness, items.device).unbind(-1)

    def places(lot: Tensor, side: int) -> Tensor:
        """(B, n, side): where in the stored image each row or column comes from."""
        reach = round(SHIFT * side)
        shift = (lot * (2 * reach + 1)).long().clamp(max=2 * reach) - reach
        return (torch.arange(side, device=items.device) + shift[..., None]).clamp(0, side - 1)

    rows, columns = places(down, H), places(right, W)
    columns = torch.where(mirrored[..., None] < 0.5, W - 1 - columns, columns)
    pixel = (rows[..., :, None] * W + columns[..., None, :]).flatten(-2)  # (B, n, H·W)
    flat = items.flatten(-2)
    if items.ndim == 5:
        pixel = pixel[:, :, None]
    return flat.gather(-1, pixel.expand_as(flat)).view_as(items)


# ---- shape ------------------------------------------------------------
#
# The shape of the episodes that are drawn: how many classes, items and annotators, and who these are.


Range = tuple[int, int]  # from, to, both included


@dataclass(frozen=True)
class EpisodeShape:
    """Ranges are drawn anew for every episode; the defaults are the paper's, with a range of shots and annotators.

    ``crowd``: how probable each kind of simulated annotator is. ``augment`` "photo" flips and shifts the items of
    training episodes (`crowdshot.training.episodes`). Where the pool carries real annotators' labels, these are
    used, and ``annotators``, ``labels_per_item`` and ``crowd`` are not.
    """

    ways: Range = (4, 4)
    shots: Range = (1, 5)
    annotators: Range = (3, 7)
    labels_per_item: Range | None = None  # None: everyone labels everything
    queries: int = 10
    crowd: Mapping[str, float] = field(default_factory=lambda: dict(default_settings.PAPER_SOURCE))
    augment: str = "none"

    def __post_init__(self) -> None:
        for name in ("ways", "shots", "annotators", "labels_per_item"):
            value = getattr(self, name)
            if value is None:
                continue
            low, high = value
            least = 2 if name == "ways" else 1
            if not least <= low <= high:
                raise CrowdshotError(f"{name} is {low}:{high}, expected a range from {least} upwards, such as 3:7.")
            object.__setattr__(self, name, (int(low), int(high)))
        if self.labels_per_item is not None and self.labels_per_item[1] > self.annotators[1]:
            raise CrowdshotError(
                f"labels_per_item is up to {self.labels_per_item[1]}, expected at most the "
                f"{self.annotators[1]} annotators."
            )
        if self.augment not in AUGMENTATIONS:
            raise CrowdshotError(f"augment is {self.augment!r}, expected one of {', '.join(AUGMENTATIONS)}.")
        if self.queries < 1:
            raise CrowdshotError(f"queries is {self.queries}, expected 1 or more.")


def as_range(text: str, name: str) -> Range:
    """ "3:7" -> (3, 7), "4" -> (4, 4); ``name`` is for the message."""
    low, colon, high = text.partition(":")
    try:
        return int(low), int(high if colon else low)
    except ValueError:
        raise CrowdshotError(f"{name} is {text!r}, expected a number or a range, such as 5 or 3:7.") from None


# ---- crowd labels ------------------------------------------------------------
#
# Episodes with a simulated crowd's labels: what meta-training learns from, lines 2 to 6 of the paper's Algorithm 1.


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
    drawn = sample(pool, B, ways, shots, shape.queries, randomness, allowed)
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
    crowd = simulated_annotators.draw_annotators(annotators, ways, shape.crowd, (B,), randomness, in_use)
    confusion = torch.where(clean[:, None, None, None], torch.eye(ways, device=device), crowd.confusion)
    per_item = None if shape.labels_per_item is None else whole_numbers(shape.labels_per_item, (B, 1), randomness)
    present = whole_numbers(shape.annotators, (B,), randomness) if shape.annotators[0] < annotators else None
    return simulated_annotators.draw_labels(truth, confusion, per_item, randomness, present), confusion
