"""Simulate annotators: draw their kinds, their confusion matrices, and their labels.

First every annotator gets a kind and a random confusion matrix of that kind. Then each label is drawn from the row of
the item's true class. The five kinds are those of the paper (sections "Data" and "Experiments with Other Annotator's
Types"):

    expert     correct with probability q, 0.8 < q <= 1, otherwise uniform over the wrong classes
    hammer     the same with 0.5 < q <= 0.8
    spammer    uniform over all classes, independent of the truth
    flipper    correct with probability q, 0.5 < q <= 0.8, otherwise one fixed wrong class per true class
    classwise  always correct on ceil(K/2) classes, a spammer on the other floor(K/2)

No function waits for the device, and no shape depends on random values, so a whole training step can be captured as a
CUDA graph. Numbers are drawn on the generator's device; the same seed gives the same labels.

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
    """R simulated annotators."""

    confusion: Tensor
    """(..., R, K, K) float, [annotator, true, observed]; rows sum to 1."""
    kind: Tensor
    """(..., R) int64, indices into KINDS."""


def draw_annotators(
    n_annotators: int,
    n_classes: int,
    crowd: Mapping[str, float],
    batch: Sequence[int] = (),
    generator: Randomness | None = None,
    classes_in_use: Tensor | None = None,
) -> Crowd:
    """Draw annotators.

    Parameters
    ----------
    n_annotators, n_classes : int
        R and K.
    crowd : mapping
        The probability of each kind; the probabilities sum to 1.
    batch : sequence of int
        Leading dimensions, such as the number of episodes.
    generator : torch.Generator or Uniforms, optional
        Randomness.
    classes_in_use : Tensor, optional
        The number of classes of each episode, an int tensor that broadcasts to ``batch``; see `draw_confusion`.

    Returns
    -------
    Crowd
        Confusion matrices and kinds.
    """
    shape = (*batch, n_annotators)
    kind = draw_kinds(shape, crowd, generator)
    possible = [name for name in KINDS if crowd.get(name, 0.0) > 0]
    return Crowd(draw_confusion(kind, n_classes, generator, classes_in_use, possible), kind)


def draw_kinds(shape: Sequence[int], crowd: Mapping[str, float], generator: Randomness | None = None) -> Tensor:
    """Return kinds of annotators, int64 indices into KINDS of the given shape (..., R)."""
    _check_crowd(crowd)
    if any(n < 1 for n in shape):
        raise CrowdshotError(
            f"is {tuple(shape)}",
            argument="shape",
            found=tuple(shape),
            expected="1 or more along every axis; the last axis is for annotators",
        )
    number = uniform(shape, generator)
    kind = torch.empty_like(number, dtype=torch.int64)
    cumulative = 0.0
    for index, name in enumerate(KINDS):
        share = crowd.get(name, 0.0)
        if share > 0:  # later kinds overwrite; kinds without a share never appear, even with rounding errors
            kind = kind.masked_fill(number >= cumulative, index)
            cumulative += share
    return kind


def draw_confusion(
    kind: Tensor,
    n_classes: int,
    generator: Randomness | None = None,
    classes_in_use: Tensor | None = None,
    possible: Sequence[str] = KINDS,
) -> Tensor:
    """Draw confusion matrices (..., R, K, K), [annotator, true, observed], for kinds (..., R).

    Parameters
    ----------
    classes_in_use : Tensor, optional
        The number of classes of each episode, an int tensor that broadcasts to (...). Columns of further classes are
        zero; their rows are those of the identity.
    possible : sequence of str
        Kinds that may occur; others cost no time.
    """
    if n_classes < 2:
        raise CrowdshotError(f"is {n_classes}", argument="n_classes", found=n_classes, expected="2 or more")
    device = kind.device
    kind = kind[..., None, None]  # (..., R, 1, 1)
    # the number of classes in use: an int, or a tensor (..., 1, 1, 1) that broadcasts against (..., R, K, K)
    size = n_classes if classes_in_use is None else classes_in_use.to(device)[..., None, None, None]
    column = torch.arange(n_classes, device=device)
    row = column[:, None]
    diagonal = row == column
    in_use = column < size  # (K,) or (..., 1, 1, K)

    # expert, hammer and spammer are one-coin: q on the diagonal, (1 - q)/(K - 1) elsewhere; a spammer's q is 1/K
    unit = 1 - uniform(kind.shape, generator, device)  # (0, 1]
    q = torch.zeros_like(unit) + 1 / size
    for name, (low, high) in ACCURACY.items():
        q = torch.where(kind == KINDS.index(name), low + (high - low) * unit, q)
    confusion = torch.where(diagonal, q, (1 - q) / (size - 1))

    per_class = (*kind.shape[:-2], n_classes)  # (..., R, K)
    if "flipper" in possible:
        # adding 1..K-1 modulo K makes every other class equally likely as the target
        steps = (uniform(per_class, generator, device)[..., None] * (size - 1)).long().clamp(max=size - 2) + 1
        target = (row + steps) % size  # (..., R, K, 1)
        flipped = torch.where(diagonal, q, (1 - q) * (column == target))
        confusion = torch.where(kind == KINDS.index("flipper"), flipped, confusion)
    if "classwise" in possible:
        number = uniform(per_class, generator, device)[..., None, :]
        rank = number.masked_fill(~in_use, 2.0).argsort(-1).argsort(-1)
        spammed = (rank < size // 2).transpose(-1, -2)  # (..., R, K, 1)
        halves = torch.where(spammed, 1 / size, diagonal.to(q.dtype))
        confusion = torch.where(kind == KINDS.index("classwise"), halves, confusion)

    if classes_in_use is not None:
        confusion = torch.where(row < size, confusion * in_use, diagonal.to(q.dtype))
    return confusion


def draw_labels(
    truth: Tensor,
    confusion: Tensor,
    labels_per_item: int | Tensor | None = None,
    generator: Randomness | None = None,
    annotators_in_use: Tensor | None = None,
) -> Tensor:
    """Draw the labels that annotators give to items.

    Parameters
    ----------
    truth : Tensor
        (..., N) int, the true classes; -1 is padding.
    confusion : Tensor
        (..., R, K, K), the annotators' confusion matrices.
    labels_per_item : int or Tensor, optional
        The number of annotators, chosen at random, who label each item. A tensor broadcasts to (..., N) and may exceed
        R. By default every annotator labels every item.
    generator : torch.Generator or Uniforms, optional
        Randomness.
    annotators_in_use : Tensor, optional
        The number of annotators of each episode, an int tensor that broadcasts to (...).

    Returns
    -------
    Tensor
        (..., N, R) int64 labels; -1 is a missing label.
    """
    n_items, n_annotators, n_classes = truth.shape[-1], confusion.shape[-3], confusion.shape[-1]
    if isinstance(labels_per_item, int) and not 1 <= labels_per_item <= n_annotators:
        raise CrowdshotError(
            f"is {labels_per_item}",
            argument="labels_per_item",
            found=labels_per_item,
            expected=f"1 to {n_annotators}, the number of annotators",
        )
    try:
        batch = np.broadcast_shapes(truth.shape[:-1], confusion.shape[:-3])
    except ValueError as error:
        raise CrowdshotError(
            f"has the shape {tuple(confusion.shape)}",
            argument="confusion",
            found=tuple(confusion.shape),
            expected=f"(..., R, K, K) with the same leading dimensions as truth, which has {tuple(truth.shape)}",
        ) from error
    device = confusion.device
    shape = (*batch, n_items, n_annotators)

    # Inverse CDF: the label is the number of boundaries at or below a uniform number. The last boundary is omitted and
    # the number scaled by the row's sum, so that rounding gives neither label K nor a label of probability 0.
    boundaries = confusion.cumsum(-1).transpose(-2, -3)  # (..., K_true, R, K)
    index = truth.clamp(min=0)[..., None, None].expand(*batch, n_items, n_annotators, n_classes)
    rows = boundaries.expand(*batch, *boundaries.shape[-3:]).gather(-3, index)  # (..., N, R, K)
    draw = uniform(shape, generator, device)[..., None] * rows[..., -1:]
    labels = (draw >= rows[..., :-1]).sum(-1)

    labelled = _labelled(truth, shape, labels_per_item, generator, annotators_in_use, device)
    return labels.masked_fill(~labelled, -1)


def _labelled(
    truth: Tensor,
    shape: tuple[int, ...],
    labels_per_item: int | Tensor | None,
    generator: Randomness | None,
    annotators_in_use: Tensor | None,
    device: torch.device,
) -> Tensor:
    """Choose who labels what: return a mask that broadcasts to ``shape`` (..., N, R)."""
    n_annotators = shape[-1]
    labelled = (truth >= 0)[..., None]
    present = None
    if annotators_in_use is not None:
        present = torch.arange(n_annotators, device=device) < annotators_in_use.to(device)[..., None, None]
        labelled = labelled & present
    if labels_per_item is not None:
        number = uniform(shape, generator, device)
        if present is not None:
            number = number.masked_fill(~present, 2.0)  # absent annotators are chosen last
        most = labels_per_item[..., None] if isinstance(labels_per_item, Tensor) else labels_per_item
        labelled = labelled & (number.argsort(-1).argsort(-1) < most)
    return labelled


def _check_crowd(crowd: Mapping[str, float]) -> None:
    for name, share in crowd.items():
        if name not in KINDS:
            raise CrowdshotError(
                f"has the kind {name!r}", argument="crowd", found=name, expected=f"some of {', '.join(KINDS)}"
            )
        if not 0 <= share <= 1:
            raise CrowdshotError(
                f"has {name!r} with {share}", argument="crowd", found=share, expected="a probability from 0 to 1"
            )
    total = sum(crowd.values())
    if abs(total - 1) > 1e-6:
        raise CrowdshotError(
            f"has probabilities that sum to {total:g}", argument="crowd", found=total, expected="a sum of 1"
        )
