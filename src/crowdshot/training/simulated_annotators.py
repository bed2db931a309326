"""Simulated annotators: kinds -> confusion matrices -> labels.

A crowd is drawn in two steps. First every annotator gets a kind by its share, and with it a confusion
matrix; then each label is drawn from the row of the item's true class. The five kinds are those of the paper
(sections "Data" and "Experiments with Other Annotator's Types"):

    expert     right with probability q, 0.8 < q <= 1, otherwise any wrong class, all alike
    hammer     the same with 0.5 < q <= 0.8
    spammer    any class, all alike, whatever the truth
    flipper    right with probability q, 0.5 < q <= 0.8, otherwise that class's one flipping target
    classwise  never wrong on half of the classes, a spammer on the other floor(K/2)

Nothing here waits for the device or has a shape that depends on drawn values, so a whole training step may be
captured as a CUDA graph. Everything is drawn on the generator's device and repeats with its seed.

>>> import torch
>>> from crowdshot import simulate
>>> crowd = simulate.draw_annotators(5, n_classes=3, crowd={"expert": 0.6, "spammer": 0.4})
>>> simulate.draw_labels(torch.tensor([0, 1, 2, 0]), crowd.confusion).shape  # (items, annotators)
torch.Size([4, 5])
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from crowdshot.errors import CrowdshotError
from crowdshot.training.default_settings import ACCURACY as ACCURACY
from crowdshot.training.default_settings import KINDS as KINDS
from crowdshot.training.default_settings import OTHER_TARGETS as OTHER_TARGETS
from crowdshot.training.default_settings import PAPER_SOURCE as PAPER_SOURCE
from crowdshot.training.default_settings import PAPER_TARGETS as PAPER_TARGETS
from crowdshot.training.random_streams import Randomness, uniform


class Crowd(NamedTuple):
    confusion: Tensor
    """(..., R, K, K) float: [annotator, true, observed], rows sum to 1."""
    kind: Tensor
    """(..., R) int64: index into KINDS."""


def draw_annotators(
    n_annotators: int,
    n_classes: int,
    crowd: Mapping[str, float],
    batch: Sequence[int] = (),
    generator: Randomness | None = None,
    classes_in_use: Tensor | None = None,
) -> Crowd:
    """Draw R annotators for every element of ``batch``.

    ``crowd`` maps kinds to probabilities that sum to 1. ``classes_in_use``, int and broadcastable to
    ``batch``, lets episodes of different K share one shape: see `draw_confusion`.
    """
    shape = (*batch, n_annotators)
    kind = draw_kinds(shape, crowd, generator)
    possible = [name for name in KINDS if crowd.get(name, 0.0) > 0]
    return Crowd(draw_confusion(kind, n_classes, generator, classes_in_use, possible), kind)


def draw_kinds(shape: Sequence[int], crowd: Mapping[str, float], generator: Randomness | None = None) -> Tensor:
    """Draw kinds, ``shape`` int64, as indices into KINDS."""
    _check_crowd(crowd)
    if any(n < 1 for n in shape):
        raise CrowdshotError(f"shape is {tuple(shape)}, expected 1 or more along every axis, the last for annotators.")
    lot = uniform(shape, generator)
    kind = torch.empty_like(lot, dtype=torch.int64)
    reached = 0.0
    for index, name in enumerate(KINDS):
        share = crowd.get(name, 0.0)
        if share > 0:  # later kinds overwrite; one that has no share can never appear, whatever the rounding
            kind = kind.masked_fill(lot >= reached, index)
            reached += share
    return kind


def draw_confusion(
    kind: Tensor,
    n_classes: int,
    generator: Randomness | None = None,
    classes_in_use: Tensor | None = None,
    possible: Sequence[str] = KINDS,
) -> Tensor:
    """Draw each annotator's confusion matrix: kind (..., R) -> (..., R, K, K) [annotator, true, observed].

    With ``classes_in_use`` (int, broadcastable to (...)) only the first so many classes of an episode are
    real: nobody answers a class beyond them, and the rows beyond them mean nothing (they are the identity's).
    ``possible`` leaves out the work for kinds known to be absent.
    """
    if n_classes < 2:
        raise CrowdshotError(f"n_classes is {n_classes}, expected 2 or more.")
    device = kind.device
    kind = kind[..., None, None]  # (..., R, 1, 1)
    # how many classes are real: a number, or a tensor (..., 1, 1, 1) that broadcasts against (..., R, K, K)
    size = n_classes if classes_in_use is None else classes_in_use.to(device)[..., None, None, None]
    column = torch.arange(n_classes, device=device)
    row = column[:, None]
    right = row == column
    real = column < size  # (K,) or (..., 1, 1, K)

    # expert, hammer, spammer are one coin: q on the diagonal, (1 - q)/(K - 1) off it; a spammer's q is 1/K
    unit = 1 - uniform(kind.shape, generator, device)  # (0, 1]
    q = torch.zeros_like(unit) + 1 / size
    for name, (low, high) in ACCURACY.items():
        q = torch.where(kind == KINDS.index(name), low + (high - low) * unit, q)
    confusion = torch.where(right, q, (1 - q) / (size - 1))

    per_class = (*kind.shape[:-2], n_classes)  # (..., R, K)
    if "flipper" in possible:
        # a step of 1..K-1 round the circle of classes reaches every other class equally often
        steps = (uniform(per_class, generator, device)[..., None] * (size - 1)).long().clamp(max=size - 2) + 1
        target = (row + steps) % size  # (..., R, K, 1)
        flipped = torch.where(right, q, (1 - q) * (column == target))
        confusion = torch.where(kind == KINDS.index("flipper"), flipped, confusion)
    if "classwise" in possible:
        lot = uniform(per_class, generator, device)[..., None, :]
        rank = lot.masked_fill(~real, 2.0).argsort(-1).argsort(-1)
        spammed = (rank < size // 2).transpose(-1, -2)  # (..., R, K, 1)
        halves = torch.where(spammed, 1 / size, right.to(q.dtype))
        confusion = torch.where(kind == KINDS.index("classwise"), halves, confusion)

    if classes_in_use is not None:
        confusion = torch.where(row < size, confusion * real, right.to(q.dtype))
    return confusion


def draw_labels(
    truth: Tensor,
    confusion: Tensor,
    labels_per_item: int | Tensor | None = None,
    generator: Randomness | None = None,
    annotators_in_use: Tensor | None = None,
) -> Tensor:
    """Let annotators label items: truth (..., N) int, confusion (..., R, K, K) -> labels (..., N, R) int64.

    Everyone labels everything, or, with ``labels_per_item`` = m, exactly m annotators picked at random for
    each item; m may be an int tensor broadcastable to (..., N) (m >= R: everyone). ``annotators_in_use``, int
    and broadcastable to (...), keeps to the first so many annotators of an episode. -1 stands where
    nobody was asked, and in the whole row of an item whose truth is -1 (padding).
    """
    n_items, n_annotators, n_classes = truth.shape[-1], confusion.shape[-3], confusion.shape[-1]
    if isinstance(labels_per_item, int) and not 1 <= labels_per_item <= n_annotators:
        raise CrowdshotError(
            f"labels_per_item is {labels_per_item}, expected 1 to {n_annotators}, as many as there are annotators."
        )
    try:
        batch = np.broadcast_shapes(truth.shape[:-1], confusion.shape[:-3])
    except ValueError as error:
        raise CrowdshotError(
            f"confusion is of shape {tuple(confusion.shape)}, expected (..., R, K, K) with the leading shape of truth, "
            f"which is {tuple(truth.shape)}."
        ) from error
    device = confusion.device
    shape = (*batch, n_items, n_annotators)

    # inverse CDF: the label is the number of boundaries at or below a uniform draw. The last boundary is left
    # out and the draw scaled by the row's sum, so rounding yields neither label K nor one of probability 0.
    boundaries = confusion.cumsum(-1).transpose(-2, -3)  # (..., K_true, R, K)
    index = truth.clamp(min=0)[..., None, None].expand(*batch, n_items, n_annotators, n_classes)
    rows = boundaries.expand(*batch, *boundaries.shape[-3:]).gather(-3, index)  # (..., N, R, K)
    draw = uniform(shape, generator, device)[..., None] * rows[..., -1:]
    labels = (draw >= rows[..., :-1]).sum(-1)

    asked = (truth >= 0)[..., None]
    present = None
    if annotators_in_use is not None:
        present = torch.arange(n_annotators, device=device) < annotators_in_use.to(device)[..., None, None]
        asked = asked & present
    if labels_per_item is not None:
        lot = uniform(shape, generator, device)
        if present is not None:
            lot = lot.masked_fill(~present, 2.0)  # those who are absent come last in the queue
        most = labels_per_item[..., None] if isinstance(labels_per_item, Tensor) else labels_per_item
        asked = asked & (lot.argsort(-1).argsort(-1) < most)
    return labels.masked_fill(~asked, -1)


def _check_crowd(crowd: Mapping[str, float]) -> None:
    for name, share in crowd.items():
        if name not in KINDS:
            raise CrowdshotError(f"crowd has the kind {name!r}, expected some of {', '.join(KINDS)}.")
        if not 0 <= share <= 1:
            raise CrowdshotError(f"crowd has {name!r} with {share}, expected a probability, from 0 to 1.")
    if abs(sum(crowd.values()) - 1) > 1e-6:
        raise CrowdshotError(f"crowd has probabilities that sum to {sum(crowd.values()):g}, expected 1.")
