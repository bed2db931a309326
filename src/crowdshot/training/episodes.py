"""Draw few-shot episodes from a class pool, with labels of simulated or real annotators."""

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
    """B episodes; items are grouped by class, and a truth is the class's index in the episode, 0..K-1."""

    support: Tensor
    """(B, N, *shape), N = ways * shots, with the pool's dtype."""
    support_truth: Tensor
    """(B, N) int64."""
    query: Tensor
    """(B, Q, *shape), Q = ways * queries."""
    query_truth: Tensor
    """(B, Q) int64."""
    classes: Tensor
    """(B, ways) int64, indices of the pool's classes."""
    places: Tensor
    """(B, ways, shots) int64, indices of the support items among the examples of their class."""


def sample(
    pool: ClassPool,
    n_episodes: int,
    ways: int,
    shots: int,
    queries: int,
    generator: Randomness | None = None,
    allowed: Tensor | None = None,
) -> Episodes:
    """Draw episodes with ``shots`` support and ``queries`` query examples of each of ``ways`` classes.

    Classes in an episode are distinct, and so are the examples of a class. If the pool has labels of real annotators,
    labelled examples are preferred as support items.

    Parameters
    ----------
    generator : torch.Generator or Uniforms, optional
        Randomness, on the pool's device.
    allowed : Tensor, optional
        (B, C) bool, the classes from which to draw each episode, at least ``ways`` of them.
    """
    n_classes, room = pool.examples.shape[:2]
    device = pool.examples.device
    _check_sizes(pool, n_episodes, ways, shots, queries)
    # The positions of the n smallest of independent uniform numbers are a sample without replacement.
    lots = uniform((n_episodes, n_classes), generator, device)
    if allowed is not None:
        lots = lots.masked_fill(~allowed, 2.0)
    classes = lots.topk(ways, largest=False).indices  # (B, K)
    lots = uniform((n_episodes, ways, room), generator, device)
    if pool.crowd_labels is not None:  # put unlabelled examples last
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


def _check_sizes(pool: ClassPool, n_episodes: int, ways: int, shots: int, queries: int) -> None:
    n_classes = len(pool.names)
    numbers = (("n_episodes", n_episodes, 1), ("ways", ways, 1), ("shots", shots, 1), ("queries", queries, 0))
    for name, found, least in numbers:
        if found < least:
            raise CrowdshotError(f"is {found}", argument=name, found=found, expected=f"{least} or more")
    if ways > n_classes:
        raise CrowdshotError(
            f"is {ways}",
            argument="ways",
            found=ways,
            expected=f"at most {n_classes}, the number of classes of the pool",
        )
    if shots + queries > pool.smallest:
        raise CrowdshotError(
            f"The smallest class of the pool has {pool.smallest} examples",
            argument="pool",
            found=pool.smallest,
            expected=f"{shots + queries} for {shots} shots and {queries} queries",
        )


# ---- augmentation ----


AUGMENTATIONS = ("none", "photo")
SHIFT = 0.1  # largest shift, as a fraction of the side


def augment(items: Tensor, kind: str, randomness: Randomness) -> Tensor:
    """Change images (B, n, [C,] H, W) at random without changing their class, to reduce over-fitting.

    "photo" mirrors half of the images and shifts each by up to a tenth of its side; border pixels are repeated. This
    costs one lookup per pixel and does not wait for the device.
    """
    if items.ndim not in (4, 5):
        raise CrowdshotError(
            f"is {kind!r}, but the source has feature vectors", argument="augment", found=kind, expected="'none'"
        )
    B, n, H, W = *items.shape[:2], *items.shape[-2:]
    mirrored, down, right = uniform((B, n, 3), randomness, items.device).unbind(-1)

    def sources(number: Tensor, side: int) -> Tensor:
        """Return (B, n, side), the stored row or column that each row or column shows."""
        reach = round(SHIFT * side)
        shift = (number * (2 * reach + 1)).long().clamp(max=2 * reach) - reach
        return (torch.arange(side, device=items.device) + shift[..., None]).clamp(0, side - 1)

    rows, columns = sources(down, H), sources(right, W)
    columns = torch.where(mirrored[..., None] < 0.5, W - 1 - columns, columns)
    pixel = (rows[..., :, None] * W + columns[..., None, :]).flatten(-2)  # (B, n, H·W)
    flat = items.flatten(-2)
    if items.ndim == 5:
        pixel = pixel[:, :, None]
    return flat.gather(-1, pixel.expand_as(flat)).view_as(items)


# ---- shape ----


Range = tuple[int, int]  # from, to, both included


@dataclass(frozen=True)
class EpisodeShape:
    """The size of episodes and their annotators.

    A number is drawn from each range for every episode. The defaults are the paper's, with a range of shots and
    annotators. If the pool has labels of real annotators, these are used instead of ``annotators``, ``labels_per_item``
    and ``crowd``.

    Parameters
    ----------
    ways : tuple of int
        Range of the number of classes.
    shots : tuple of int
        Range of the number of support items per class.
    annotators : tuple of int
        Range of the number of simulated annotators.
    labels_per_item : tuple of int, optional
        Range of the number of labels per item. By default every annotator labels every item.
    queries : int
        Query items per class.
    crowd : mapping
        The probability of each kind of simulated annotator.
    augment : str
        "none", or "photo" to mirror and shift the images of training episodes.
    """

    ways: Range = (4, 4)
    shots: Range = (1, 5)
    annotators: Range = (3, 7)
    labels_per_item: Range | None = None
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
                raise CrowdshotError(
                    f"is {low}:{high}",
                    argument=name,
                    found=value,
                    expected=f"a range such as 3:7, from {least} upwards",
                )
            object.__setattr__(self, name, (int(low), int(high)))
        if self.labels_per_item is not None and self.labels_per_item[1] > self.annotators[1]:
            raise CrowdshotError(
                f"is up to {self.labels_per_item[1]}",
                argument="labels_per_item",
                found=self.labels_per_item,
                expected=f"at most {self.annotators[1]}, the number of annotators",
            )
        if self.augment not in AUGMENTATIONS:
            raise CrowdshotError(
                f"is {self.augment!r}",
                argument="augment",
                found=self.augment,
                expected=f"one of {', '.join(AUGMENTATIONS)}",
            )
        if self.queries < 1:
            raise CrowdshotError(f"is {self.queries}", argument="queries", found=self.queries, expected="1 or more")


def as_range(text: str, name: str) -> Range:
    """Parse a range: "3:7" is (3, 7), and "4" is (4, 4). ``name`` is the argument in error messages."""
    low, colon, high = text.partition(":")
    try:
        return int(low), int(high if colon else low)
    except ValueError:
        raise CrowdshotError(
            f"is {text!r}", argument=name, found=text, expected="a number or a range, such as 5 or 3:7"
        ) from None


# ---- episodes with labels: lines 2 to 6 of the paper's Algorithm 1 ----


class Batch(NamedTuple):
    """B labelled episodes of at most K classes; items are stored as in the pool."""

    support: Tensor  # (B, N, *shape)
    labels: Tensor  # (B, N, R), -1 = missing
    query: Tensor  # (B, Q, *shape)
    query_truth: Tensor  # (B, Q), -1 if the class is not in use
    classes_in_use: Tensor | None  # (B,), None if every episode has K classes
    support_truth: Tensor  # (B, N), -1 for padding; for evaluation only, never for training
    confusion: Tensor | None = None  # (B, R, K, K), the annotators' confusion matrices; for evaluation only


def draw(
    pool: ClassPool, shape: EpisodeShape, allowed: Tensor, clean: Tensor, randomness: Randomness, augmented: bool = True
) -> Batch:
    """Draw B labelled episodes, on the pool's device.

    Episodes of different sizes share one shape: surplus support items, annotators and classes are masked. If the pool
    has labels of real annotators, these are used; labels that name no class of the episode count as missing.

    Parameters
    ----------
    allowed : Tensor
        (B, C) bool, the classes from which to draw each episode.
    clean : Tensor
        (B,) bool, the episodes in which every label is true.
    augmented : bool
        Whether to apply ``shape.augment``.
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
    """Return (B, N, A) labels of the pool's annotators, as indices of the episode's classes."""
    in_pool = crowd[drawn.classes[..., None], drawn.places].flatten(1, 2)  # (B, N, A), indices of the pool's classes
    is_class = (in_pool[..., None] == drawn.classes[:, None, None]) & (truth[..., None, None] >= 0)  # (B, N, A, K)
    labels = torch.where(is_class.any(-1), is_class.long().argmax(-1), -1)
    if in_use is not None:
        labels = torch.where(labels < in_use[:, None, None], labels, -1)
    return torch.where(clean[:, None, None] & (labels >= 0), truth[..., None], labels)


def _counted(crowd: Tensor, drawn: Episodes) -> Tensor:
    """Return (B, A, K, K) confusion matrices of the pool's annotators, restricted to the episode's classes.

    They are estimated from all labels of the pool, with a pseudo-count of 1.
    """
    C = len(crowd)
    all_counts = (crowd[..., None] == torch.arange(C, device=crowd.device)).sum(1) + 1.0  # (C true, A, C observed)
    rows, columns = drawn.classes[:, :, None], drawn.classes[:, None, :]  # (B, K, 1), (B, 1, K)
    counts = all_counts.transpose(0, 1)[:, rows, columns].transpose(0, 1)  # (B, A, K, K)
    return counts / counts.sum(-1, keepdim=True)


def _simulated(
    truth: Tensor, in_use: Tensor | None, shape: EpisodeShape, clean: Tensor, randomness: Randomness
) -> tuple[Tensor, Tensor]:
    """Return (B, N, R) labels of new simulated annotators in every episode, and (B, R, K, K) confusion matrices."""
    B, device, ways, annotators = len(truth), truth.device, shape.ways[1], shape.annotators[1]
    crowd = simulated_annotators.draw_annotators(annotators, ways, shape.crowd, (B,), randomness, in_use)
    confusion = torch.where(clean[:, None, None, None], torch.eye(ways, device=device), crowd.confusion)
    per_item = None if shape.labels_per_item is None else whole_numbers(shape.labels_per_item, (B, 1), randomness)
    present = whole_numbers(shape.annotators, (B,), randomness) if shape.annotators[0] < annotators else None
    return simulated_annotators.draw_labels(truth, confusion, per_item, randomness, present), confusion
