"""Class pools -> episodes, sampled where the data lives.

A pool holds many classes with some examples each; an episode is a few of those classes, a few examples of
each as support and others as query. Drawing is a handful of tensor operations on the pool's device that never
wait for it, so that it can be part of a captured CUDA graph.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from crowdshot.errors import CrowdshotError
from crowdshot.randomness import Source, uniform


@dataclass(frozen=True, eq=False)
class ClassPool:
    """Examples by class.

    ``examples`` is (C, M, *shape); of class c the first ``counts[c]`` are real, the rest is padding,
    never drawn. ``names`` has one name for each class. ``crowd`` (C, M, A) int, where there is one: what each of A
    real annotators said about an example, as a place in ``names``, -1 = nothing.
    """

    examples: Tensor
    counts: Tensor
    names: tuple[str, ...]
    crowd: Tensor | None = None
    smallest: int = field(init=False)
    """Examples in the smallest class, known here so that sampling need not ask the device."""

    def __post_init__(self) -> None:
        n_classes = len(self.names)
        if self.examples.ndim < 2 or len(self.examples) != n_classes or self.counts.shape != (n_classes,):
            raise CrowdshotError(
                f"{n_classes} names need examples ({n_classes}, M, ...) and counts ({n_classes},), "
                f"got {tuple(self.examples.shape)} and {tuple(self.counts.shape)}"
            )
        if n_classes == 0:
            raise CrowdshotError("a pool needs at least one class, got none")
        low, high = int(self.counts.min()), int(self.counts.max())
        if low < 1 or high > self.examples.shape[1]:
            raise CrowdshotError(
                f"counts must lie between 1 and the {self.examples.shape[1]} examples a class has room for, "
                f"got {low if low < 1 else high}"
            )
        if self.crowd is not None and (self.crowd.ndim != 3 or self.crowd.shape[:2] != self.examples.shape[:2]):
            raise CrowdshotError(
                f"crowd: found shape {tuple(self.crowd.shape)}, expected {tuple(self.examples.shape[:2])} and the "
                "number of annotators"
            )
        object.__setattr__(self, "smallest", low)

    @classmethod
    def from_lists(cls, examples: Mapping[str, Any]) -> ClassPool:
        """From each class's examples, name -> array or list of arrays (n, *shape); n may differ."""
        arrays = {name: torch.as_tensor(np.asarray(values)) for name, values in examples.items()}
        if not arrays:
            raise CrowdshotError("a pool needs at least one class, got none")
        first_name, first = next(iter(arrays.items()))
        for name, array in arrays.items():
            if array.shape[1:] != first.shape[1:] or array.dtype != first.dtype:
                raise CrowdshotError(
                    f"class {name!r} has examples of shape {tuple(array.shape[1:])} and type {array.dtype}, "
                    f"but class {first_name!r} has {tuple(first.shape[1:])} and {first.dtype}"
                )
            if len(array) == 0:
                raise CrowdshotError(f"class {name!r} has no examples")
        counts = torch.tensor([len(array) for array in arrays.values()])
        padded = first.new_zeros(len(arrays), int(counts.max()), *first.shape[1:])
        for row, array in zip(padded, arrays.values(), strict=True):
            row[: len(array)] = array
        return cls(padded, counts, tuple(arrays))

    @classmethod
    def from_arrays(cls, examples: Any, labels: Sequence[Any] | np.ndarray[Any, Any]) -> ClassPool:
        """From examples (n, *shape) and the class of each; classes come in sorted order."""
        examples, labels = np.asarray(examples), np.asarray(labels)
        if labels.shape != examples.shape[:1]:
            raise CrowdshotError(
                f"labels must give a class for each of the {len(examples)} examples, got shape {labels.shape}"
            )
        return cls.from_lists({str(name): examples[labels == name] for name in np.unique(labels)})

    def split(self, sizes: Sequence[int], seed: int) -> tuple[ClassPool, ...]:
        """Disjoint pools of so many classes each, chosen at random; classes left over belong to none."""
        if min(sizes, default=1) < 1 or sum(sizes) > len(self.names):
            raise CrowdshotError(
                f"sizes must be positive and sum to at most the pool's {len(self.names)} classes, got {list(sizes)}"
            )
        order = torch.randperm(len(self.names), generator=torch.Generator().manual_seed(seed)).tolist()
        ends = np.cumsum(sizes).tolist()
        return tuple(self.take(order[end - size : end]) for size, end in zip(sizes, ends, strict=True))

    def take(self, classes: Sequence[int]) -> ClassPool:
        """The pool of these classes, in this order."""
        index = torch.tensor(classes, device=self.examples.device)
        crowd = None
        if self.crowd is not None:  # labels name classes by their place, and places change
            place = torch.full((len(self.names) + 1,), -1, dtype=self.crowd.dtype, device=index.device)
            place[index] = torch.arange(len(index), dtype=self.crowd.dtype, device=index.device)
            crowd = place[self.crowd[index].long()]  # -1 takes the last, which is -1
        return ClassPool(self.examples[index], self.counts[index], tuple(self.names[i] for i in classes), crowd)

    def to(self, device: torch.device | str) -> ClassPool:
        crowd = None if self.crowd is None else self.crowd.to(device)
        return replace(self, examples=self.examples.to(device), counts=self.counts.to(device), crowd=crowd)


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
    generator: Source | None = None,
    allowed: Tensor | None = None,
) -> Episodes:
    """Draw episodes of ``ways`` classes with ``shots`` support and ``queries`` query examples of each.

    Classes within an episode are distinct, and so are the examples of a class, support and query together.
    The generator must live on the pool's device. ``allowed`` (B, C) bool keeps episode b to some of the classes, of
    which there must be ``ways`` at least. Where the pool has a crowd, its labelled items are taken first.
    """
    n_classes, room = pool.examples.shape[:2]
    device = pool.examples.device
    if min(n_episodes, ways, shots) < 1 or queries < 0:
        raise CrowdshotError(
            "n_episodes, ways and shots must be at least 1 and queries at least 0, "
            f"got {n_episodes}, {ways}, {shots} and {queries}"
        )
    if ways > n_classes:
        raise CrowdshotError(f"{ways} ways need at least {ways} classes, but the pool has {n_classes}")
    if shots + queries > pool.smallest:
        raise CrowdshotError(
            f"{shots} shots and {queries} queries need {shots + queries} examples of every class, "
            f"but the pool's smallest class has {pool.smallest}"
        )

    # The n smallest of independent uniform draws are n places chosen without replacement.
    lots = uniform((n_episodes, n_classes), generator, device)
    if allowed is not None:
        lots = lots.masked_fill(~allowed, 2.0)
    classes = lots.topk(ways, largest=False).indices  # (B, K)
    lots = uniform((n_episodes, ways, room), generator, device)
    if pool.crowd is not None:  # support items first, and from those that somebody labelled
        lots = lots + (pool.crowd < 0).all(-1)[classes]
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
